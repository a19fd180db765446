/* How the ranks of a run find each other and exchange a few bytes outside the devices: over the
 * MPI that started them, or over TCP where torchrun or srun did. */
#ifndef TANDEM_EXEC_CUDA_MEET_H
#define TANDEM_EXEC_CUDA_MEET_H

#include "exec/process/transport.h"
#include "planner/base/arena.h"

enum { MEET_WHY = 512 };

typedef struct Meet {
    uint32_t rank, n_ranks;
    uint32_t local_rank; /* among those of this machine, as the launcher numbers them */
    bool knows_local;    /* the launcher told the local rank; else it is 0 */
    /* all [n_ranks, bytes] = what each rank gave; all ranks call it in the same order. False after
     * timeout_s, or when a rank has gone: `why` tells. */
    bool (*exchange)(struct Meet *m, const void *mine, size_t bytes, void *all, double timeout_s);
    /* Has another rank gone, or said that it failed? Never waits. `why` tells. */
    bool (*gone)(struct Meet *m);
    void (*abort)(void *self, int code); /* ends all ranks; does not return. self: the Meet */
    void (*close)(struct Meet *m);
    char why[MEET_WHY];
    const Transport *transport; /* of the MPI by which they meet; NULL: there is none */
    void *mpi;
    void *state;
} Meet;

/* Chooses by the environment. NULL: `why` tells. transport NULL: no MPI started this process. */
Meet *meet_open(Arena *arena, const Transport *transport, double timeout_s, char *why, size_t room);
/* ---- meet_tcp.c: a star around rank 0. */
bool meet_tcp(Arena *arena, Meet *m, double timeout_s);

#endif
