/* tandem import: what other tools measured, as rows of the store. Readers give samples to a sink of
 * bounded size; what a sample is of is its key. */
#ifndef TANDEM_CLI_IMPORT_H
#define TANDEM_CLI_IMPORT_H

#include <stdio.h>

#include "cli/cli.h"
#include "sim/sim.h"

enum { MOST_SAMPLES = 128, MOST_IMPORT_KEYS = 1 << 16 };

/* Durations of one kernel or collective: all counted, some kept (a reservoir), for the median. */
typedef struct Samples {
    const char *key; /* of a kernel; NULL: a collective */
    Collective kind; /* ... with group size and nccl-tests' bytes */
    uint32_t n_ranks;
    uint64_t bytes;
    uint64_t n;
    Ps least, most, kept[MOST_SAMPLES];
} Samples;

typedef struct ImportSink {
    Arena *arena;
    LIST(Samples *) all;
    uint32_t *table;  /* 1 + index in all, by hash; 0: free */
    uint64_t dropped; /* samples whose key was one too many */
    uint64_t events;  /* that the reader looked at */
} ImportSink;

void sink_init(ImportSink *sink, Arena *arena);
void sink_kernel(ImportSink *sink, const char *key, Ps duration);
void sink_collective(ImportSink *sink, Collective kind, uint32_t n_ranks, uint64_t bytes,
                     Ps duration);
Ps samples_median(const Samples *s);
double samples_spread(const Samples *s); /* (most - least) / median of those kept */

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
