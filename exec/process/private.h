/* Shared by the files of the backend with one process for each rank. */
#ifndef TANDEM_EXEC_PROCESS_PRIVATE_H
#define TANDEM_EXEC_PROCESS_PRIVATE_H

#include "exec/ending.h"
#include "exec/process/transport.h"

/* How a communication moves data. For a sum, each member owns a block of the elements. It receives
 * its block from all members and adds these blocks in rank order, so that all backends produce the
 * same bits. */
typedef enum TransferMethod {
    METHOD_none, /* a group of one: a copy */
    METHOD_gather,
    METHOD_gather_sum,          /* small all_reduce: every rank gathers all inputs and sums them */
    METHOD_exchange_sum,        /* reduce_scatter: each block goes to its owner, which sums */
    METHOD_exchange_sum_gather, /* large all_reduce: METHOD_exchange_sum, then a gather of the sums
                                 */
    METHOD_exchange,            /* all_to_all */
    METHOD_rows,                /* exchange_uneven: as many rows to each member as the counts say */
    METHOD_strips,              /* halo_exchange: exchanges messages only with the two neighbours */
    METHOD_rotate, /* rotate: sends to the next member, receives from the previous one */
    METHOD_native_all_reduce,
    METHOD_native_reduce_scatter,
    METHOD_send,
    METHOD_recv
} TransferMethod;

/* One communication of this rank, prepared before the first step. */
typedef struct PreparedTransfer {
    Pc pc;
    Comm *comm;
    TransferMethod method;
    /* n: number of elements, of `bytes` bytes each, in this rank's input or in one block */
    int group, n, bytes;
    /* [members] sizes and offsets, in elements, of the members' blocks, or of the data that this
     * rank sends to each */
    int *counts, *displs;
    /* [members] sizes and offsets, in elements, of the data that arrive in the staging memory */
    int *in_counts, *in_displs;
    char *staging;
    const void **part; /* [members] the members' inputs in the staging memory, in rank order */
    uint64_t staging_bytes;
    /* state while it runs */
    bool is_second; /* it is in its second phase, in which the sums are gathered */
    TransportRequest request;
    Ps start;
} PreparedTransfer;

typedef struct Process {
    Arena *arena;
    const Transport *transport;
    void *mpi;
    uint32_t rank, n_ranks;
    bool shares_cores; /* there are more ranks than cores */
    const Plan *plan;
    BackendOptions options;
    Control control;
    RankState state;
    PreparedTransfer **transfer; /* [pc] */
    char *staging;               /* memory outside the arena (Backend.outside_bytes) */
    uint64_t staging_bytes;
    Status *status;
    StatusSlot *slot;
    StatusSlot alone;   /* used if no launcher provides a shared status record */
    Pc *next_on_stream; /* [pc] */
    Pc first_on_stream[STREAM_COUNT];
    bool *finished;            /* [pc] */
    PreparedTransfer **active; /* transfers that have been posted, in order of posting */
    uint32_t n_active;
    Pc *local; /* local instructions (not communications) that may start */
    uint32_t n_local;
    Pc *next;
    Trace *trace;
    BadNumber *bad;
    Ps step_start, last_event;
    double more_s; /* beyond the timeout; see Backend.patience */
} Process;

/* ---- process_open.c ---- */
bool process_open(Backend *self, const Plan *plan, const BackendOptions *options, Diag *d);
/* Creates the groups, in which all ranks take part. Prepares p->transfer and its staging memory for
 * every communication in p->state.at. Reads the fields transport, mpi, rank, plan, options and
 * state of `p`. */
bool transfers_open(Process *p, Diag *d);

/* ---- process_transfer.c ---- errors go through process_end, which does not return */
/* Sets the sizes and the method of the transfer, but not its staging memory. */
bool transfer_prepare(Process *p, PreparedTransfer *w, Diag *d);
void transfer_stage(PreparedTransfer *w, char *staging);
void transfer_post(Process *p, PreparedTransfer *w);
/* Advances a transfer; returns true when it has finished. may_continue: the value of
 * transfer_may_continue. */
bool transfer_poll(Process *p, PreparedTransfer *w, bool may_continue);
/* True if the earlier transfers on the stream of p->active[i] have advanced so far that this
 * transfer may continue. */
bool transfer_may_continue(const Process *p, uint32_t i);

/* Ends the run: reports why and aborts all ranks. */
_Noreturn void process_end(const Process *p, const char *rule, const char *text);

#endif
