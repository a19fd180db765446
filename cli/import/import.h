/* tandem import: turns measurements of other tools into rows of the store. A reader of one file
 * format adds samples to a sink, whose size is limited. The key of a sample names the kernel or
 * collective that was measured. Samples that no prediction could look up are only counted, and the
 * counts are reported. */
#ifndef TANDEM_CLI_IMPORT_IMPORT_H
#define TANDEM_CLI_IMPORT_IMPORT_H

#include <stdio.h>

#include "cli/cli.h"
#include "sim/sim.h"

enum { MOST_SAMPLES = 128, MOST_IMPORT_KEYS = 1 << 16, MOST_MEETINGS = 1 << 22 };

/* The durations of one kernel or collective. All of them are counted, but only a random sample (a
 * reservoir) is kept for the median. */
typedef struct Samples {
    /* the kernel's key as work_key returns it; NULL: these are samples of a collective */
    const char *key;
    /* for a collective: its kind; n_ranks and bytes have the meaning that they have
     * in nccl-tests */
    Collective kind;
    uint32_t n_ranks;
    uint64_t bytes;
    /* the times come from only one rank, so most of them include time in which it waited for its
     * peers */
    bool alone;
    uint64_t n;
    Ps least, most, kept[MOST_SAMPLES];
} Samples;

/* A collective in the trace of one rank. The rank's kernel starts when the rank is ready, and waits
 * for the other ranks. */
typedef struct TracedCollective {
    Collective kind;
    uint32_t n_ranks;
    uint64_t bytes, group; /* bytes of the collective; group: a hash of the group's members */
    uint32_t epoch, trace; /* epoch: how many traces of the same rank came before this trace */
    double at;             /* start time on the clock of this trace */
    Ps duration;
} TracedCollective;

typedef struct ImportSink {
    Arena *arena;
    LIST(Samples *) all;
    uint32_t *table;  /* hash table of keys: 1 + index in `all`; 0: the slot is free */
    uint64_t dropped; /* number of samples that were dropped because the sink was full */
    uint64_t events;  /* number of events that the reader has seen */
    LIST(TracedCollective) meetings;
    /* the rank of each trace, in the order of reading; -1: the trace does not give it */
    LIST(int64_t) ranks;
    /* number of ranks from the option --ranks, for files that do not give it; 0: no such option */
    uint32_t ranks_told;
    bool shapes;         /* at least one operator in the file has shapes */
    uint64_t n_used;     /* number of kernels that were stored under a key */
    uint64_t n_unused;   /* number of kernels that have no key */
    uint64_t n_sizeless; /* number of collectives whose bytes or ranks are unknown */
    /* n_met: collectives that several ranks recorded; n_alone: collectives that one
     * rank recorded */
    uint64_t n_met, n_alone;
    Ps used_ps, unused_ps; /* total time of the n_used kernels, and of the n_unused kernels */
} ImportSink;

void sink_init(ImportSink *sink, Arena *arena);
/* Returns the samples of a key, and adds the key if it is new. Returns NULL if the sink is full. */
Samples *sink_key(ImportSink *sink, const char *key);
void sink_sample(ImportSink *sink, Samples *s, Ps duration);
/* Adds the duration to the samples with the key of `wanted` (for a collective: its kind, ranks and
 * bytes). Adds the key if it is new. If the sink is full, only counts the duration as dropped. */
void sink_add(ImportSink *sink, const Samples *wanted, Ps duration);
bool sink_has(const ImportSink *sink, const Samples *wanted);
void sink_kernel(ImportSink *sink, const char *key, Ps duration);
void sink_collective(ImportSink *sink, Collective kind, uint32_t n_ranks, uint64_t bytes,
                     Ps duration);
/* Returns the time to store: the median, or a low quantile if only one rank's times are known. */
Ps samples_time(const Samples *s);
Ps samples_median(const Samples *s);
/* Returns (longest - shortest) / median of the kept samples. */
double samples_spread(const Samples *s);

/* meet.c: begins a trace of this rank; -1: the rank is unknown. */
void meet_trace(ImportSink *sink, int64_t rank);
/* Adds a collective of the newest trace. group: a text that is equal in the traces of all ranks of
 * the group; NULL: unknown. */
void meet_add(ImportSink *sink, Collective kind, uint32_t n_ranks, uint64_t bytes,
              const char *group, double at, Ps duration);
/* Turns the collectives of all traces into samples. Call it after the last trace. If several ranks
 * recorded a collective, its time is the shortest of their times, which is that of the rank that
 * came last. If only one rank recorded it, the sample is marked `alone`, and is dropped if better
 * samples of the same size exist. */
void meet_all(ImportSink *sink);

/* ops.c: a call of a PyTorch operator with its operands. The key of the work (work.h) is made from
 * these. */
enum { MOST_OPERANDS = 16, MOST_OPERAND_DIMS = 6 };
typedef struct Operand {
    int64_t dim[MOST_OPERAND_DIMS];
    uint8_t n_dims;
    bool list;     /* the operand is a list of tensors, or has too many dimensions to be stored */
    DType dtype;   /* DT_none: the operand is no tensor, or has a type that plans do not have */
    char word[12]; /* the operand as text if it is a number or a truth value */
} Operand;
typedef struct OpCall {
    const char *name;
    Operand operand[MOST_OPERANDS];
    uint32_t n;
} OpCall;
/* Returns the type with PyTorch's name, such as "c10::BFloat16". */
DType torch_dtype(const char *name);
/* Returns the key of the call's work; NULL: no op of a plan does this work. */
const char *op_call_key(const OpCall *call, Arena *arena);

/* A reader returns false after a diagnostic with the line or the offset in the file. The samples
 * before the damage are then in the sink, but the caller stores nothing. */
typedef struct NcclTestRow {
    uint64_t bytes;
    double count;
    char type[16];
    double us, in_place_us; /* times out of place and in place; 0: not measured */
} NcclTestRow;
typedef struct NcclTestText {
    LIST(NcclTestRow) rows;
    uint32_t n_ranks; /* number of lines that begin with "# Rank"; 0: none */
    bool known;       /* true if the text names the collective */
    Collective kind;
} NcclTestText;
/* Reads the text of nccl-tests (nccl.c). */
bool nccl_tests_read(const char *path, Arena *arena, NcclTestText *out, Diag *d);
/* Reads a trace of PyTorch's profiler (trace.c). */
bool chrome_trace_read(const char *path, ImportSink *sink, Diag *d);
/* Reads an export of Nsight Systems (nsys.c). */
bool nsys_read(const char *path, ImportSink *sink, Arena *arena, Diag *d);

#endif
