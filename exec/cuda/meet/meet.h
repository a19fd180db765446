/* Lets the ranks of a run find each other and exchange a few bytes without using the devices: over
 * the MPI that started them, or over TCP if torchrun or srun started them. */
#ifndef TANDEM_EXEC_CUDA_MEET_H
#define TANDEM_EXEC_CUDA_MEET_H

#include "exec/process/transport.h"
#include "planner/base/arena.h"

enum { MEET_WHY = 512 };

typedef struct Meet {
    uint32_t rank, n_ranks;
    uint32_t local_rank; /* this rank's number on its machine, as the launcher gave it */
    bool knows_local;    /* the launcher gave the local rank; otherwise it is 0 */
    /* Gathers `mine` of every rank into `all` [n_ranks, bytes]. All ranks call it in the same
     * order. Returns false after timeout_s, or if a rank has gone, with the reason in `why`. */
    bool (*exchange)(struct Meet *m, const void *mine, size_t bytes, void *all, double timeout_s);
    /* Returns true if another rank has gone or has reported a failure, with the reason in `why`.
     * Never waits. */
    bool (*gone)(struct Meet *m);
    void (*abort)(void *self, int code); /* ends all ranks; does not return. self: the Meet */
    void (*close)(struct Meet *m);
    char why[MEET_WHY];
    const Transport *transport; /* the MPI through which the ranks meet; NULL: none */
    void *mpi;
    void *state;
} Meet;

/* Opens a Meet over MPI or TCP, as the environment says. On failure returns NULL with the reason in
 * `why`. transport NULL: no MPI started this process. */
Meet *meet_open(Arena *arena, const Transport *transport, double timeout_s, char *why, size_t room);
/* ---- meet_tcp.c: a star around rank 0. */
bool meet_tcp(Arena *arena, Meet *m, double timeout_s);

#endif
