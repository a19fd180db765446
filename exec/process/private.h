/* Declarations that only the files of the mpi backend (one process for each rank) use. */
#ifndef TANDEM_EXEC_PROCESS_PRIVATE_H
#define TANDEM_EXEC_PROCESS_PRIVATE_H

#include "exec/ending.h"
#include "exec/process/options.h"
#include "exec/process/transport.h"

/* How a communication moves data. For a sum, each member is responsible for one block of the
 * elements. It receives this block from all members and adds the copies in the order of ranks. So
 * all backends produce the same bits. */
typedef enum TransferMethod {
    METHOD_none, /* the group has a single member: the data are copied */
    METHOD_gather,
    METHOD_gather_sum,          /* small all_reduce: every rank gathers all inputs and sums them */
    METHOD_exchange_sum,        /* reduce_scatter: each block goes to its member, which adds the
                                   copies */
    METHOD_exchange_sum_gather, /* large all_reduce: like METHOD_exchange_sum, then the sums are
                                   gathered */
    METHOD_exchange,            /* all_to_all */
    METHOD_rows,   /* exchange_uneven: the tables of counts say how many rows each member gets */
    METHOD_strips, /* halo_exchange: messages go only to the two neighbours and come
                      only from them */
    METHOD_rotate, /* rotate: the input goes to the next member, the output comes from the previous
                      one */
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
    /* For each member, a size and an offset [elements]: those of the member's block if it has one,
     * otherwise those of the data that this rank sends to it. */
    int *counts, *displs;
    /* For each member, the size and offset [elements] in the staging memory of the data that arrive
     * from it. */
    int *in_counts, *in_displs;
    char *staging;
    const void **part; /* [members]: where each member's input lies in the staging memory, in the
                          order of ranks */
    uint64_t staging_bytes;
    /* state of the transfer while it is in progress */
    bool is_second; /* true: the sums are being gathered */
    TransportRequest request;
    Ps start;
} PreparedTransfer;

typedef struct Process {
    Arena *arena;
    const Transport *transport;
    void *mpi;
    uint32_t rank, n_ranks;
    bool shares_cores; /* this machine runs more ranks than it has cores */
    const Plan *plan;
    BackendOptions options;
    ProcessOptions own;
    Control control;
    RankState state;
    PreparedTransfer **transfer; /* [pc]: NULL if the instruction is no communication */
    char *staging;               /* memory outside of the arena (Backend.outside_bytes) */
    uint64_t staging_bytes;
    Status *status;
    StatusSlot *slot;
    StatusSlot alone;   /* used if no launcher provides a status record */
    Pc *next_on_stream; /* [pc]: next instruction on the same stream */
    Pc first_on_stream[STREAM_COUNT];
    bool *finished;            /* [pc]: the instruction has finished in this step */
    PreparedTransfer **active; /* transfers in progress, in the order in which they were started */
    uint32_t n_active;
    Pc *local; /* local instructions (not communications) that may start */
    uint32_t n_local;
    Pc *next;
    Trace *trace;
    BadNumber *bad;
    Ps step_start, last_event;
    double more_s; /* how many seconds exchanges may take beyond the timeout; see
                      Backend.patience */
} Process;

/* ---- open.c ---- */
bool process_open(Backend *self, const Plan *plan, const BackendOptions *options, Diag *d);
/* Creates the groups. All ranks must call this together. Then prepares p->transfer and its staging
 * memory for every communication in p->state.at. Before the call, the fields transport, mpi, rank,
 * plan, options and state of *p must be set. */
bool transfers_open(Process *p, Diag *d);

/* ---- transfer.c ---- After an error of MPI, these functions call process_end, which does not
 * return. */
/* Chooses the method of a transfer and computes its sizes. Staging memory is assigned later, by
 * transfer_stage. */
bool transfer_prepare(Process *p, PreparedTransfer *w, Diag *d);
void transfer_stage(PreparedTransfer *w, char *staging);
void transfer_post(Process *p, PreparedTransfer *w); /* starts the transfer, without waiting */
/* Lets a transfer make progress. Returns true when it has finished. may_continue is the result of
 * transfer_may_continue. */
bool transfer_poll(Process *p, PreparedTransfer *w, bool may_continue);
/* Returns true if transfer p->active[i] may start its second phase, because all earlier transfers
 * on its stream have started theirs. */
bool transfer_may_continue(const Process *p, uint32_t i);

/* ---- end.c ---- */
Ending process_ending(const Process *p); /* how the run ends: what a report needs */
/* Ends the run: reports the error and aborts all ranks. */
_Noreturn void process_end(const Process *p, const char *rule, const char *text);

#endif
