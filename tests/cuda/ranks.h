/* Ranks as processes that this test forks: they meet over TCP, as under torchrun. */
#ifndef TANDEM_TESTS_CUDA_RANKS_H
#define TANDEM_TESTS_CUDA_RANKS_H

#include "exec/exec.h"

enum { RANKS_MOST = 4, RANKS_STEPS = 5, RANKS_AT_ONCE = 8 };

/* A rank's results, in memory that it shares with the test. */
typedef struct RankReport {
    bool fine;
    int exit_code, signal;
    uint32_t n_steps;
    double loss[RANKS_STEPS], norm[RANKS_STEPS];
    Hash128 bits; /* of all that lives between steps */
    uint64_t highest, host_highest, outside;
    uint32_t n_rows;             /* of the trace, on the first rank */
    uint32_t n_overlaps;         /* rows of it that begin before the one before them on their
                                  * stream has ended */
    uint32_t launches, captures; /* of graphs */
    uint32_t n_unread;           /* outputs that a chain need not have written, as issued */
    char said[4096];             /* diagnostics, and what the double found not released */
} RankReport;

typedef struct RanksRun {
    const Plan *plan;
    BackendOptions options;
    const DataSource *data;
    const char *script; /* of the double */
    double lr;
    uint32_t steps; /* 0: 3 */
    bool trace;
    double patience_s; /* after that the ranks are killed; 0: 400 */
    RankReport *rank;  /* [RANKS_MOST], written; as is what follows */
    char *errors;      /* standard error of the forked ranks */
    double took_s;
} RanksRun;

/* Runs the plan on the CUDA backend over the double: one rank in this process, several forked. */
void ranks_run(RanksRun *run, Arena *arena);
/* Several runs of more than one rank, RANKS_AT_ONCE at a time: for those that mostly wait. */
void ranks_run_all(RanksRun *runs, uint32_t n, Arena *arena);
/* A port of this machine that stays ours until the socket is closed: neither who asks for any port
 * nor who connects gets it, but a rank that is told of it may listen there. */
int ranks_hold_port(int *port);
/* The same on loopback, in fp32 as it is: into rank[0]. */
void ranks_loopback(RanksRun *run, Arena *arena);
#endif
