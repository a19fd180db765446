/* The functions that the mpi backend needs from an MPI library: start-up, groups of ranks, and
 * transfers that run in the background and can be tested. Each installed MPI has a module that
 * exports `const Transport tandem_transport`. The command uses no other symbol of the module, and
 * the module uses none of the command. Counts are numbers of elements of `bytes` bytes each.
 * Pointers and arrays must stay valid until the request is done. Functions return false on failure;
 * `error` then returns the reason as text. */
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
    const char *flavour; /* name of the MPI: "openmpi" or "mpich" */
    /* Starts MPI unless it is already running; it ends with the process. Returns NULL on failure,
     * with the reason in `why`. */
    void *(*open)(uint32_t *rank, uint32_t *n_ranks, char *why, size_t room);
    void (*close)(void *self);           /* frees the groups */
    void (*abort)(void *self, int code); /* ends all ranks; does not return */
    const char *(*error)(void *self);
    /* Creates groups: ranks that pass the same color form a group, in which they are ordered by
     * key. All ranks must call this function in the same order. Returns the number of the group,
     * from 1, or -1 on failure. Group 0 contains all ranks. */
    int (*group)(void *self, uint32_t color, uint32_t key);
    /* Gathers the inputs of all members into `out`. If counts is NULL, each member gives n
     * elements; otherwise member i gives counts[i] elements, which go to offset displs[i]. If `in`
     * is NULL, this rank's elements are already in `out`. */
    bool (*all_gather)(void *self, int group, const void *in, int n, void *out, const int *counts,
                       const int *displs, int bytes, TransportRequest *request);
    /* Sends counts[i] elements at offset displs[i] of `in` to member i, and receives out_counts[i]
     * elements from member i at offset out_displs[i] of `out`. */
    bool (*all_to_all)(void *self, int group, const void *in, const int *counts, const int *displs,
                       void *out, const int *out_counts, const int *out_displs, int bytes,
                       TransportRequest *request);
    /* Reduce floats (bytes = 4) or doubles (bytes = 8) by MPI's own functions, in an order that MPI
     * chooses. If `in` is NULL, the input lies in `out`. */
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
