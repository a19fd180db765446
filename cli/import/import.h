/* tandem import: turns measurements of other tools into rows of the store. Readers add samples to a
 * sink of bounded size. A sample's key names the kernel or collective that was measured. Only
 * samples that a prediction can look up are kept. All other samples are counted, and the counts are
 * reported. */
#ifndef TANDEM_CLI_IMPORT_IMPORT_H
#define TANDEM_CLI_IMPORT_IMPORT_H

#include <stdio.h>

#include "cli/cli.h"
#include "sim/sim.h"

enum { MOST_SAMPLES = 128, MOST_IMPORT_KEYS = 1 << 16, MOST_MEETINGS = 1 << 22 };

/* Durations of one kernel or collective. All durations are counted; a random sample of them (a
 * reservoir) is kept for the median. */
typedef struct Samples {
    const char *key; /* work_key of a kernel; NULL: a collective */
    Collective kind; /* the collective's kind; n_ranks and bytes count as in nccl-tests */
    uint32_t n_ranks;
    uint64_t bytes;
    /* only one rank's times are known; most of them include time in which it waited for peers */
    bool alone;
    uint64_t n;
    Ps least, most, kept[MOST_SAMPLES];
} Samples;

/* One collective as one rank saw it. Its kernel waits until its peers have come. */
typedef struct TracedCollective {
    Collective kind;
    uint32_t n_ranks;
    uint64_t bytes, group; /* group: a hash of the members */
    uint32_t epoch, trace; /* epoch: number of earlier traces of the same rank */
    double at;             /* start time, on that trace's clock */
    Ps duration;
} TracedCollective;

typedef struct ImportSink {
    Arena *arena;
    LIST(Samples *) all;
    uint32_t *table;  /* 1 + index in all, by hash; 0: free */
    uint64_t dropped; /* number of samples whose key had no room left */
    uint64_t events;  /* events that the reader saw */
    LIST(TracedCollective) meetings;
    LIST(int64_t) ranks; /* rank of each trace, in order; -1: the trace does not say */
    /* number of ranks from --ranks, for files that do not state it; 0: not given */
    uint32_t ranks_told;
    bool shapes;             /* at least one operator recorded its shapes */
    uint64_t n_used;         /* kernels stored under a key of their work */
    uint64_t n_unused;       /* kernels without such a key */
    uint64_t n_sizeless;     /* collectives whose bytes or ranks are unknown */
    uint64_t n_met, n_alone; /* collectives that several ranks recorded; collectives that only one
                              * rank recorded */
    Ps used_ps, unused_ps;   /* total time of these kernels */
} ImportSink;

void sink_init(ImportSink *sink, Arena *arena);
/* Returns the samples of a key, and adds the key if necessary; NULL if there is no room for it. */
Samples *sink_key(ImportSink *sink, const char *key);
void sink_sample(ImportSink *sink, Samples *s, Ps duration);
/* Adds `duration` to the samples of the same kind as `wanted`, if there are any. */
void sink_add(ImportSink *sink, const Samples *wanted, Ps duration);
bool sink_has(const ImportSink *sink, const Samples *wanted);
void sink_kernel(ImportSink *sink, const char *key, Ps duration);
void sink_collective(ImportSink *sink, Collective kind, uint32_t n_ranks, uint64_t bytes,
                     Ps duration);
/* Returns the time to store: the median, or a low quantile if only one rank's times are known. */
Ps samples_time(const Samples *s);
Ps samples_median(const Samples *s);
double samples_spread(const Samples *s); /* (most - least) / median of the kept samples */

/* import_meet.c. Begins a trace; rank -1: unknown. */
void meet_trace(ImportSink *sink, int64_t rank);
/* Adds a collective of the newest trace. group: a text that is the same in the traces of all its
 * ranks; NULL: unknown. */
void meet_add(ImportSink *sink, Collective kind, uint32_t n_ranks, uint64_t bytes,
              const char *group, double at, Ps duration);
/* Turns the collectives of all traces into samples; call it after the last trace. If several ranks
 * recorded a collective, its time is the shortest of theirs: the time of the rank that came last.
 * If only one rank recorded it, the sample is `alone`, and is dropped if there are better samples
 * of this size. */
void meet_all(ImportSink *sink);

/* import_ops.c: an operator call of PyTorch with its operands, and the key of its work (work.h). */
enum { MOST_OPERANDS = 16, MOST_OPERAND_DIMS = 6 };
typedef struct Operand {
    int64_t dim[MOST_OPERAND_DIMS];
    uint8_t n_dims;
    bool list;     /* a list of tensors, or a tensor with too many dimensions */
    DType dtype;   /* DT_none: not a tensor, or a type that plans do not have */
    char word[12]; /* a number or truth value */
} Operand;
typedef struct OpCall {
    const char *name;
    Operand operand[MOST_OPERANDS];
    uint32_t n;
} OpCall;
DType torch_dtype(const char *name);                       /* "c10::BFloat16" */
const char *op_call_key(const OpCall *call, Arena *arena); /* NULL: it is not an op of a plan */

/* Readers return false after a diagnostic with line or offset. The sink keeps the samples that were
 * read before the fault, but the caller stores nothing of a damaged file. */
typedef struct NcclTestRow {
    uint64_t bytes;
    double count;
    char type[16];
    double us, in_place_us; /* 0: none */
} NcclTestRow;
typedef struct NcclTestText {
    LIST(NcclTestRow) rows;
    uint32_t n_ranks; /* from "# Rank" lines; 0: no such lines */
    bool known;       /* the text names its collective */
    Collective kind;
} NcclTestText;
bool nccl_tests_read(const char *path, Arena *arena, NcclTestText *out,
                     Diag *d);                                             /* import_nccl.c */
bool chrome_trace_read(const char *path, ImportSink *sink, Diag *d);       /* import_trace.c */
bool nsys_read(const char *path, ImportSink *sink, Arena *arena, Diag *d); /* import_nsys.c */

#endif
