/* What the mpi backend wants of an MPI: started once, groups of ranks, non-blocking transfers that
 * are tested. A module (one for each MPI that is installed) exports one `const Transport
 * tandem_transport`; it needs nothing of ours, and we nothing of MPI's. Counts are in elements of
 * `bytes` bytes each; pointers and arrays must stay until the request is done. Functions return
 * false on failure, and `error` then tells. */
#ifndef TANDEM_EXEC_PROCESS_TRANSPORT_H
#define TANDEM_EXEC_PROCESS_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TRANSPORT_VERSION = 1 };

typedef struct TransportRequest {
    uint64_t opaque;
} TransportRequest;

typedef struct Transport {
    uint32_t version;
    const char *flavour; /* "openmpi", "mpich" */
    /* Starts MPI unless it runs already; it is ended when the process exits. NULL on failure. */
    void *(*open)(uint32_t *rank, uint32_t *n_ranks, char *why, size_t room);
    void (*close)(void *self);           /* frees the groups */
    void (*abort)(void *self, int code); /* ends all ranks; does not return */
    const char *(*error)(void *self);
    /* All ranks call this in the same order: ranks of equal color form a group, in the order of
     * their keys. The group's index, from 1; -1 on failure. Group 0 is all ranks. */
    int (*group)(void *self, uint32_t color, uint32_t key);
    /* out = the inputs of all members. counts NULL: n from each; else counts[i] at displs[i]. in
     * NULL: my part is in place. */
    bool (*all_gather)(void *self, int group, const void *in, int n, void *out, const int *counts,
                       const int *displs, int bytes, TransportRequest *request);
    /* counts[i] at displs[i] of `in` go to member i; `n` from each arrive at `out`. */
    bool (*all_to_all)(void *self, int group, const void *in, const int *counts, const int *displs,
                       void *out, const int *out_counts, const int *out_displs, int bytes,
                       TransportRequest *request);
    /* MPI's own reductions of floats (bytes 4) or doubles (8), in whatever order it likes. in NULL:
     * in place. */
    bool (*all_reduce)(void *self, int group, const void *in, void *out, int n, int bytes,
                       bool is_max, TransportRequest *request);
    bool (*reduce_scatter)(void *self, int group, const void *in, void *out, int n, int bytes,
                           bool is_max, TransportRequest *request);
    bool (*send)(void *self, uint32_t to, uint32_t tag, const void *in, int n, int bytes,
                 TransportRequest *request);
    bool (*recv)(void *self, uint32_t from, uint32_t tag, void *out, int n, int bytes,
                 TransportRequest *request);
    bool (*test)(void *self, TransportRequest *request, bool *is_done);
} Transport;

#endif
