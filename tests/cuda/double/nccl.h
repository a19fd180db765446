/* Shared by the two files of the double's NCCL: communicators, and operations on streams. */
#ifndef TANDEM_TESTS_CUDA_DOUBLE_NCCL_H
#define TANDEM_TESTS_CUDA_DOUBLE_NCCL_H

#include <stdatomic.h>

#include "tests/cuda/double/private.h"

enum { MOST_COMMS = 64, MOST_RANKS = 8, RING = 64 };

typedef enum Kind {
    KIND_all_reduce,
    KIND_all_gather,
    KIND_reduce_scatter,
    KIND_all_to_all,
    KIND_send,
    KIND_recv
} Kind;

/* ---- in the file that the ranks share ---- */
typedef struct Slot {
    _Atomic int32_t pid, fd;        /* the process whose device memory this is */
    _Atomic uint64_t arrived, read; /* sequence numbers of collectives */
    int32_t kind, type, op;         /* the operation at which this rank has arrived */
    /* number of elements, and offset of the input in the device memory */
    uint64_t count, from;
    uint64_t in_window[2];   /* offsets of input and output in the window */
    _Atomic uint64_t window; /* number of registered bytes */
} Slot;
typedef struct Channel { /* messages from one rank to another */
    _Atomic uint64_t posted, taken;
    uint64_t from[RING], bytes[RING];
} Channel;
typedef struct SharedComm {
    _Atomic uint64_t key;
    _Atomic uint32_t n_joined;
    Slot slot[MOST_RANKS];
    Channel channel[MOST_RANKS][MOST_RANKS];
} SharedComm;
typedef struct Shared {
    SharedComm comm[MOST_COMMS];
} Shared;

/* ---- in this process ---- */
struct ncclComm {
    Buried buried;
    bool is_gone; /* destroyed or aborted; operations that are still in streams end */
    SharedComm *shared;
    Shared *file;
    uint64_t key;
    int rank, n;
    bool blocking, is_open, hangs, is_final;
    uint32_t kernels; /* number of kernels launched before the communicator was made */
    uint32_t n_splits, pending;
    bool made_id; /* rank 0 of the first communicator; it owns the shared file */
    /* a communicator that is being split from this one, and where its handle will be stored */
    ncclComm_t child, *child_out;
    /* where the handle of a window that is being registered will be stored */
    ncclWindow_t *window_out;
    ncclResult_t async;
    uint64_t sequence;
    char *peer[MOST_RANKS]; /* mapped device memory of the other ranks */
    /* connections for sending to a rank, and for receiving from it */
    bool connected[2][MOST_RANKS];
    bool used[KIND_recv + 1]; /* [kind] true once this kind of collective was used */
    void *temp;
    size_t temp_bytes;
    int n_registered;
    const char *window; /* its start; NULL: there is none */
    size_t window_bytes;
};

typedef struct Op {
    Kind kind;
    ncclComm_t comm;
    const void *from;
    void *to;
    uint64_t count;
    int type, op, peer;
    bool hangs, stays; /* hangs: the operation never ends; stays: even an abort does not end it */
} Op;

size_t nccl_type_bytes(int type);
/* Returns a task that runs the operations. It is called when they start, and again until they are
 * done. */
Task *nccl_task(const Op *ops, uint32_t n);

#endif
