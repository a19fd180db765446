/* Changes a dimension that is split over ranks from contiguous rows to strided rows, or back.
 * stride_pack copies the pieces for each rank into the message to that rank; stride_unpack puts the
 * pieces of received messages in order. A piece is a group of rows that always move together. An
 * output element is one input element, or zero. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"

enum { STRIDE_THREADS = 256, STRIDE_BLOCKS_PER_SM = 8 };

typedef struct StrideArgs {
    Array from, to;
    Strides strides;
    int64_t outer, piece, n; /* piece: elements of a piece; n: elements of the whole output */
    bool packs, in_rows; /* in_rows: the rank's own buffer (not the messages) has contiguous rows */
} StrideArgs;

/* Two ranks exchange several pieces. Returns the position, in the whole dimension, of the k-th
 * piece that this rank and rank `other` exchange; -1: there are at most k. */
DEVICE int64_t shared_piece(const StrideArgs *a, int64_t other, int64_t k)
{
    const Strides *s = &a->strides;
    int64_t of_rows = a->in_rows ? s->part : other, of_strides = a->in_rows ? other : s->part;
    int64_t lo = of_rows * s->pieces, n = s->n_parts;
    int64_t piece = lo + ((of_strides - lo) % n + n) % n + k * n;
    return piece < lo + s->pieces ? piece : -1;
}

/* Returns the element of the rank's buffer that becomes element t of the messages; -1: zero. */
DEVICE int64_t packed_from(const StrideArgs *a, int64_t t)
{
    const Strides *s = &a->strides;
    int64_t block = t / a->piece, k = block % s->most, outer = block / s->most % a->outer;
    int64_t piece = shared_piece(a, block / s->most / a->outer, k);
    if (piece < 0) return -1;
    int64_t place = a->in_rows ? piece % s->pieces : piece / s->n_parts;
    return (outer * s->pieces + place) * a->piece + t % a->piece;
}

/* Returns the element of the messages that becomes element t of the rank's buffer. */
DEVICE int64_t unpacked_from(const StrideArgs *a, int64_t t)
{
    const Strides *s = &a->strides;
    int64_t block = t / a->piece, place = block % s->pieces, outer = block / s->pieces;
    int64_t piece = a->in_rows ? s->part * s->pieces + place : place * s->n_parts + s->part;
    int64_t other = a->in_rows ? piece % s->n_parts : piece / s->pieces;
    int64_t k = (piece - shared_piece(a, other, 0)) / s->n_parts;
    return ((other * a->outer + outer) * s->most + k) * a->piece + t % a->piece;
}

KERNEL(stride_elements, StrideArgs, STRIDE_THREADS, STRIDE_BLOCKS_PER_SM / 2)
{
    int64_t step = (int64_t)gridDim.x * STRIDE_THREADS;
    for (int64_t t = (int64_t)blockIdx.x * STRIDE_THREADS + threadIdx.x; t < a.n; t += step) {
        int64_t from = a.packs ? packed_from(&a, t) : unpacked_from(&a, t);
        write_one(a.to, t, from < 0 ? 0 : read_one(a.from, from));
    }
}

static bool stride_launch(const KernelArgs *args, bool packs, const CudaContext *cuda,
                          CudaError *error)
{
    StrideArgs p;
    memset(&p, 0, sizeof p);
    p.from = array_of(args, 0, args->inner), p.to = array_of(args, 1, args->inner);
    p.strides = args->strides;
    p.outer = args->outer, p.piece = args->strides.rows * args->inner;
    p.n = args->elements[1];
    p.packs = packs, p.in_rows = packs != args->strides.to_rows;
    if (p.n == 0) return true;
    int64_t blocks = blocks_for(p.n, STRIDE_THREADS, (int64_t)cuda->n_sms * STRIDE_BLOCKS_PER_SM);
    return LAUNCH(stride_elements, blocks, STRIDE_THREADS, 0, p, cuda, error);
}

bool cuda_stride_pack(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return stride_launch(args, true, cuda, error);
}

bool cuda_stride_unpack(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return stride_launch(args, false, cuda, error);
}
