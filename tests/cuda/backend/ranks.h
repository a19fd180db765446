/* Ranks as processes that the test forks. They connect over TCP, as with torchrun. */
#ifndef TANDEM_TESTS_CUDA_RANKS_H
#define TANDEM_TESTS_CUDA_RANKS_H

#include "exec/cuda/options.h"
#include "exec/exec.h"

enum { RANKS_MOST = 4, RANKS_STEPS = 5, RANKS_AT_ONCE = 8, RANKS_EXPERTS = 4 };

/* The results of a rank, in memory shared with the test. */
typedef struct RankReport {
    bool fine;
    int exit_code, signal;
    uint32_t n_steps;
    double loss[RANKS_STEPS], norm[RANKS_STEPS];
    Hash128 bits; /* hash of all state between steps */
    uint64_t highest, host_highest, outside;
    /* over all layers and ranks: choices of each expert, and those that were dropped */
    uint64_t chosen[RANKS_EXPERTS], dropped;
    uint32_t n_rows; /* rows of the trace, on the first rank */
    /* rows of the trace that begin before the previous row of their stream has ended */
    uint32_t n_overlaps;
    uint32_t launches, captures; /* launches and captures of graphs */
    uint32_t n_unread;           /* outputs that chains need not write, in the order of issue */
    char said[4096];             /* diagnostics, and objects that the double found unreleased */
} RankReport;

typedef struct RanksRun {
    const Plan *plan;
    BackendOptions options;
    CudaOptions cuda;
    const DataSource *data;
    const char *script; /* the double's script */
    double lr;
    uint32_t steps; /* 0 stands for 3 */
    CheckpointOptions checkpoint;
    bool trace;
    double patience_s; /* time limit after which the ranks are killed; 0 stands for 400 */
    RankReport *rank;  /* [RANKS_MOST]; this field and the next ones are results */
    char *errors;      /* standard error of the forked ranks */
    double took_s;
} RanksRun;

/* Runs the plan on the CUDA backend over the double: one rank in this process, several in forked
 * ones. */
void ranks_run(RanksRun *run, Arena *arena);
/* Does the same for several runs with more than one rank, RANKS_AT_ONCE at a time. Useful for runs
 * that mostly wait. */
void ranks_run_all(RanksRun *runs, uint32_t n, Arena *arena);
/* Reserves a port of this machine until the socket is closed. Callers that ask for any port, or
 * that connect, do not get it. A rank that gets the number may listen there. */
int ranks_hold_port(int *port);
/* Runs the plan on loopback in its own fp32, and stores the results in rank[0]. */
void ranks_loopback(RanksRun *run, Arena *arena);
#endif
