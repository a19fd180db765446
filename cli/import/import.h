/* tandem import: what other tools measured, as rows of the store. Readers give samples to a sink of
 * bounded size; what a sample is of is its key. Only what a prediction can look up is kept: the
 * rest is counted, and told. */
#ifndef TANDEM_CLI_IMPORT_IMPORT_H
#define TANDEM_CLI_IMPORT_IMPORT_H

#include <stdio.h>

#include "cli/cli.h"
#include "sim/sim.h"

enum { MOST_SAMPLES = 128, MOST_IMPORT_KEYS = 1 << 16, MOST_MEETINGS = 1 << 22 };

/* Durations of one kernel or collective: all counted, some kept (a reservoir), for the median. */
typedef struct Samples {
    const char *key; /* work_key of a kernel; NULL: a collective */
    Collective kind; /* ... with group size and nccl-tests' bytes */
    uint32_t n_ranks;
    uint64_t bytes;
    bool alone; /* as one rank saw it, which waited for its peers in most of them */
    uint64_t n;
    Ps least, most, kept[MOST_SAMPLES];
} Samples;

/* One collective as one rank saw it: its kernel spins until its peers have come. */
typedef struct TracedCollective {
    Collective kind;
    uint32_t n_ranks;
    uint64_t bytes, group; /* group: a hash of who takes part */
    uint32_t epoch, trace; /* epoch: how many traces of the same rank came before this one */
    double at;             /* start, by that trace's clock */
    Ps duration;
} TracedCollective;

typedef struct ImportSink {
    Arena *arena;
    LIST(Samples *) all;
    uint32_t *table;  /* 1 + index in all, by hash; 0: free */
    uint64_t dropped; /* samples whose key was one too many */
    uint64_t events;  /* that the reader looked at */
    LIST(TracedCollective) meetings;
    LIST(int64_t) ranks;     /* of each trace, in order; -1: it does not say */
    uint32_t ranks_told;     /* --ranks, for files that do not say; 0: not given */
    bool shapes;             /* some op had them recorded */
    uint64_t n_used;         /* kernels under a key of their work */
    uint64_t n_unused;       /* ... that have none */
    uint64_t n_sizeless;     /* collectives whose bytes or ranks nothing tells */
    uint64_t n_met, n_alone; /* collectives that several ranks saw, that only one did */
    Ps used_ps, unused_ps;   /* of kernels */
} ImportSink;

void sink_init(ImportSink *sink, Arena *arena);
/* The samples of a key, there from now on; NULL: it is one too many. */
Samples *sink_key(ImportSink *sink, const char *key);
void sink_sample(ImportSink *sink, Samples *s, Ps duration);
/* More of what `wanted` is; is there a sample of it? */
void sink_add(ImportSink *sink, const Samples *wanted, Ps duration);
bool sink_has(const ImportSink *sink, const Samples *wanted);
void sink_kernel(ImportSink *sink, const char *key, Ps duration);
void sink_collective(ImportSink *sink, Collective kind, uint32_t n_ranks, uint64_t bytes,
                     Ps duration);
/* The time that is stored: the median; of what one rank saw a low quantile. */
Ps samples_time(const Samples *s);
Ps samples_median(const Samples *s);
double samples_spread(const Samples *s); /* (most - least) / median of those kept */

/* import_meet.c. A trace begins; rank -1: not known. */
void meet_trace(ImportSink *sink, int64_t rank);
/* `group`: who takes part, as text that all members write alike; NULL: not known. */
void meet_add(ImportSink *sink, Collective kind, uint32_t n_ranks, uint64_t bytes,
              const char *group, double at, Ps duration);
/* After all traces: an occurrence that several ranks saw took what the shortest saw, who came last;
 * one that only one rank saw is a sample `alone`, where nothing better is known of its size. */
void meet_all(ImportSink *sink);

/* import_ops.c: an operator call of PyTorch with its operands, and the key of its work (work.h). */
enum { MOST_OPERANDS = 16, MOST_OPERAND_DIMS = 6 };
typedef struct Operand {
    int64_t dim[MOST_OPERAND_DIMS];
    uint8_t n_dims;
    bool list;     /* of tensors, or of too many dimensions */
    DType dtype;   /* DT_none: no tensor, or of a type that plans have not */
    char word[12]; /* a number or truth value */
} Operand;
typedef struct OpCall {
    const char *name;
    Operand operand[MOST_OPERANDS];
    uint32_t n;
} OpCall;
DType torch_dtype(const char *name);                       /* "c10::BFloat16" */
const char *op_call_key(const OpCall *call, Arena *arena); /* NULL: no plan's op is that */

/* Readers: false after diagnostics with line or offset. A reader tells what it read so far before
 * it fails: nothing of a damaged file is stored. */
typedef struct NcclTestRow {
    uint64_t bytes;
    double count;
    char type[16];
    double us, in_place_us; /* 0: none */
} NcclTestRow;
typedef struct NcclTestText {
    LIST(NcclTestRow) rows;
    uint32_t n_ranks; /* "# Rank" lines; 0: none */
    bool known;       /* the text names its collective */
    Collective kind;
} NcclTestText;
bool nccl_tests_read(const char *path, Arena *arena, NcclTestText *out,
                     Diag *d);                                             /* import_nccl.c */
bool chrome_trace_read(const char *path, ImportSink *sink, Diag *d);       /* import_trace.c */
bool nsys_read(const char *path, ImportSink *sink, Arena *arena, Diag *d); /* import_nsys.c */

#endif
