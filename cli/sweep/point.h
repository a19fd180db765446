/* Points: one script under different settings, each decided once and found again by a look-up. */
#ifndef TANDEM_CLI_SWEEP_POINT_H
#define TANDEM_CLI_SWEEP_POINT_H

#include <stdatomic.h>

#include "cli/sweep/sweep.h"

enum { N_BEST = 10 };
/* The best speeds so far, fastest first; shared by the processes. */
typedef struct BestSpeeds {
    atomic_flag busy;
    double tokens_per_s[N_BEST];
} BestSpeeds;

typedef struct PointShared {
    _Atomic uint32_t next; /* place in `order` of the first point that no process has taken */
    BestSpeeds best;
} PointShared;

/* A question about all points of one script. */
typedef struct PointJob {
    Cli *cli;
    const char *path;
    uint32_t n;
    TextList *settings; /* [n] "mesh.tp=4", after those of --set */
    int64_t sweep;      /* its number in the store; 0: none */
    bool unproven;      /* leaves the proofs out: a search proves only the winners */
    bool bounded;       /* lets lower bounds reject points before they are compiled */
    bool ranked;        /* only the N_BEST fastest points matter: the time bound rejects, too */

    /* ---- filled in by points_decide */
    BestSpeeds *best; /* NULL: the time bound is not used */
    bool bounds_only; /* points that no bound rejects are left open */
    _Atomic uint32_t *next;
    uint32_t *order, n_order; /* the points to decide */
} PointJob;

/* Decides all points in several processes. `rows` gets one a point, in order, without values. False
 * after diagnostics: a process failed, or the store takes nothing. */
bool points_decide(const PointJob *job, SweepRows *rows);

/* ---- point.c, for reject.c */
void point_status(json_t *row, SweepStatus status, const Diagnostic *error);

/* ---- reject.c */
void best_enter(BestSpeeds *best, double tokens_per_s); /* NULL is fine */
/* Returns true if a lower bound shows that the point cannot fit or cannot be among the best. The
 * row then names the bound. With job->bounds_only it returns true for every point. */
bool bounds_decide(const PointJob *job, Cli *one, const Config *config, const Graph *graph,
                   json_t *row);

/* The same by the memory of a plan of fewer micro-batches. */
bool shorter_decides(Cli *one, const Config *config, Graph *graph, const PlanOptions *load,
                     json_t *row);

/* ---- stored.c: sweeps in the store */
/* Begins or resumes the sweep of these settings; its number, 0 after diagnostics. */
int64_t sweep_begin(Cli *cli, Store *store, const char *script, const TextList *settings,
                    uint32_t n);
bool sweep_put_point(Store *store, int64_t sweep, uint32_t point, const TextList *settings,
                     int64_t run, SweepStatus status, Arena *arena, Diag *d);
bool sweep_end(Store *store, int64_t sweep, Diag *d);
/* A hash of what was measured: predictions and their trust depend on it. */
Hash128 measured_state(Store *store, Diag *d);

#endif
