/* Lets the ranks of a run find each other and exchange a few bytes without using their devices. It
 * works over MPI if an MPI started the ranks, and over TCP if torchrun or srun did. */
#ifndef TANDEM_EXEC_CUDA_MEET_H
#define TANDEM_EXEC_CUDA_MEET_H

#include "exec/process/transport.h"
#include "planner/base/arena.h"

enum { MEET_WHY = 512 };

typedef struct Meet {
    uint32_t rank, n_ranks;
    /* index of this rank among the ranks of its machine, as the launcher gave it */
    uint32_t local_rank;
    bool knows_local; /* false: the launcher did not give local_rank, which is then 0 */
    /* Gathers `mine` of every rank into `all` [n_ranks, bytes]. All ranks must call this function
     * in the same order. Returns false with the reason in `why` after timeout_s seconds, or if a
     * rank has ended. */
    bool (*exchange)(struct Meet *m, const void *mine, size_t bytes, void *all, double timeout_s);
    /* Returns true with the reason in `why` if another rank has ended or has reported a failure.
     * Never waits. */
    bool (*gone)(struct Meet *m);
    void (*abort)(void *self, int code); /* ends all ranks; does not return. `self` is the Meet */
    void (*close)(struct Meet *m);
    char why[MEET_WHY];
    const Transport *transport; /* the MPI over which the ranks meet; NULL: none */
    void *mpi;
    void *state;
} Meet;

/* Opens a Meet over MPI or TCP, depending on the environment variables. Returns NULL on failure,
 * with the reason in `why`. `transport` is NULL if no MPI started this process. */
Meet *meet_open(Arena *arena, const Transport *transport, double timeout_s, char *why, size_t room);
/* ---- meet_tcp.c: every other rank is connected with rank 0. */
bool meet_tcp(Arena *arena, Meet *m, double timeout_s);

#endif
