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
    /* for each expert, how often all layers and ranks have chosen it, and how many choices were
     * dropped */
    uint64_t chosen[RANKS_EXPERTS], dropped;
    uint32_t n_rows; /* rows of the trace, on the first rank */
    /* rows of the trace that begin before the previous row of their stream has ended */
    uint32_t n_overlaps;
    uint32_t launches, captures; /* launches and captures of graphs */
    /* outputs that chains may leave unwritten, in the order of issue */
    uint32_t n_unread;
    char said[4096]; /* diagnostics, and objects that the double found unreleased */
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

/* Runs the plan on the CUDA backend, on the double of CUDA. One rank runs in this process, several
 * run in forked ones. */
void ranks_run(RanksRun *run, Arena *arena);
/* Does the same for several runs with more than one rank each, RANKS_AT_ONCE runs at a time. This
 * saves time if runs mostly wait. */
void ranks_run_all(RanksRun *runs, uint32_t n, Arena *arena);
/* Reserves a port of this machine until the socket is closed. Other programs that request any free
 * port, or that connect, do not get it. A rank that is given the number may listen there. */
int ranks_hold_port(int *port);
/* Runs the plan on loopback, in the plan's own fp32, and stores the results in rank[0]. */
void ranks_loopback(RanksRun *run, Arena *arena);
#endif
