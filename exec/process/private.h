/* What the files of the one-process-a-rank backend share. */
#ifndef TANDEM_EXEC_PROCESS_PRIVATE_H
#define TANDEM_EXEC_PROCESS_PRIVATE_H

#include "exec/ending.h"
#include "exec/process/transport.h"

/* How a communication travels. Ordered sums take the pieces to the rank that sums them, in the
 * order of the ranks: the bits of every backend are the same. */
typedef enum Way {
    WAY_none, /* a group of one: a copy */
    WAY_gather,
    WAY_gather_sum,          /* small all_reduce: everybody gets everything and sums */
    WAY_exchange_sum,        /* reduce_scatter: pieces to their owners, who sum */
    WAY_exchange_sum_gather, /* large all_reduce: the same, then the sums are gathered */
    WAY_exchange,            /* all_to_all */
    WAY_native_all_reduce,
    WAY_native_reduce_scatter,
    WAY_send,
    WAY_recv
} Way;

/* One communication of this rank, made ready. */
typedef struct Transfer {
    Pc pc;
    Comm *comm;
    Way way;
    int group, n, bytes;        /* n: elements, `bytes` each; of my input, or of a piece */
    int *counts, *displs;       /* pieces of the members, in elements; also what is exchanged */
    int *in_counts, *in_displs; /* of what arrives in the staging memory */
    char *staging;
    const void **part; /* [members] in the staging memory, in rank order */
    uint64_t staging_bytes;
    /* while it is under way */
    bool is_second; /* the sums are being gathered */
    TransportRequest request;
    Ps start;
} Transfer;

typedef struct Process {
    Arena *arena;
    const Transport *transport;
    void *mpi;
    uint32_t rank, n_ranks;
    const Plan *plan;
    BackendOptions options;
    Control control;
    RankState state;
    Transfer **transfer; /* [pc] */
    char *staging;       /* outside the arena: see outside_bytes */
    uint64_t staging_bytes;
    Status *status;
    StatusSlot *slot;
    StatusSlot alone;   /* where nobody shares one */
    Pc *next_on_stream; /* [pc] */
    Pc first_on_stream[STREAM_COUNT];
    bool *finished;    /* [pc] */
    Transfer **active; /* posted, in order of posting */
    uint32_t n_active;
    Pc *local; /* instructions that may start and are not communications */
    uint32_t n_local;
    Pc *next;
    Trace *trace;
    BadNumber *bad;
    Ps step_start, last_event;
} Process;

/* ---- process_open.c ---- */
bool process_open(Backend *self, const Plan *plan, const BackendOptions *options, Diag *d);
/* The groups of all ranks, which take part together, and p->transfer of every communication that
 * p->state.at has, with the staging memory. Wants transport, mpi, rank, plan, options, state. */
bool transfers_open(Process *p, Diag *d);

/* ---- process_transfer.c ---- all report through process_end: they do not return on failure */
bool transfer_prepare(Process *p, Transfer *w,
                      Diag *d); /* sizes, ways; not yet the staging memory */
void transfer_stage(Transfer *w, char *staging);
void transfer_post(Process *p, Transfer *w);
/* Moves it on; true when it has finished. may_continue: earlier ones of the stream have. */
bool transfer_poll(Process *p, Transfer *w, bool may_continue);
/* Have those before p->active[i] on its stream gone on, so that it may too? */
bool transfer_may_continue(const Process *p, uint32_t i);

/* Ends the run: tells why, and aborts all ranks. */
_Noreturn void process_end(const Process *p, const char *rule, const char *text);

#endif
