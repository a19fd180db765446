#!/bin/sh
# symbols.sh COMMAND: checks that the command needs neither MPI nor CUDA, also not through another library.
command=${1:?the path of the command}
nm -D --undefined-only "$command" >/dev/null || exit 1
{
    nm -D --undefined-only "$command" | grep -E ' U P?(MPI_|MPIX_|nccl|cuda|cublas|cudnn|cu[A-Z])'
    readelf -d "$command" | grep NEEDED | grep -E 'lib(mpi|mpich|open-rte|open-pal|nccl|cuda|cublas)'
} | { grep . && exit 1; exit 0; }
