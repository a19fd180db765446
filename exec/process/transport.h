/* The functions that the mpi backend needs from an MPI: start-up, groups of ranks, non-blocking
 * transfers that can be tested. There is one module for each installed MPI; it exports one `const
 * Transport tandem_transport`. Neither side uses the other's symbols. Counts are in elements of
 * `bytes` bytes each. Pointers and arrays must stay valid until the request is done. Functions
 * return false on failure; `error` then returns the reason as text. */
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
    /* Starts MPI unless it runs already; process exit ends it. Returns NULL on failure, with the
     * reason in `why`. */
    void *(*open)(uint32_t *rank, uint32_t *n_ranks, char *why, size_t room);
    void (*close)(void *self);           /* frees the groups */
    void (*abort)(void *self, int code); /* ends all ranks; does not return */
    const char *(*error)(void *self);
    /* All ranks call this in the same order. Ranks of equal color form a group, ordered by key.
     * Returns the group's index, from 1; -1 on failure. Group 0 is all ranks. */
    int (*group)(void *self, uint32_t color, uint32_t key);
    /* Gathers the inputs of all members into `out`. counts NULL: n elements from each member;
     * otherwise counts[i] elements at displs[i]. in NULL: this rank's part is in `out` already. */
    bool (*all_gather)(void *self, int group, const void *in, int n, void *out, const int *counts,
                       const int *displs, int bytes, TransportRequest *request);
    /* Sends counts[i] elements at displs[i] of `in` to member i, and receives into `out` in the
     * same way. */
    bool (*all_to_all)(void *self, int group, const void *in, const int *counts, const int *displs,
                       void *out, const int *out_counts, const int *out_displs, int bytes,
                       TransportRequest *request);
    /* MPI's own reductions of floats (bytes 4) or doubles (bytes 8), in an order that MPI chooses.
     * in NULL: `out` holds the input. */
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
