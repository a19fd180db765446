/* Points: one script under different settings. A point is predicted once; the store answers later
 * requests. */
#ifndef TANDEM_CLI_SWEEP_POINT_H
#define TANDEM_CLI_SWEEP_POINT_H

#include <stdatomic.h>

#include "cli/sweep/sweep.h"

enum { N_BEST = 10 };
/* The best speeds so far, the fastest first. Processes share them. */
typedef struct BestSpeeds {
    atomic_flag busy;
    double tokens_per_s[N_BEST];
} BestSpeeds;

typedef struct PointShared {
    _Atomic uint32_t next; /* the first piece that no process has taken */
    BestSpeeds best;
    BestSpeeds likely; /* best speeds that the bounds allow */
} PointShared;

/* A request to decide points of one script. */
typedef struct PointJob {
    Cli *cli;
    const char *path;
    uint32_t n;
    TextList *settings; /* [n] "mesh.tp=4", in addition to the settings of --set */
    int64_t sweep;      /* the sweep's number in the store; 0: none */
    bool unproven;      /* leaves the proofs out, because a search proves only its winners */
    bool bounded;       /* lets lower bounds reject points before they are compiled */
    bool ranked;        /* only the N_BEST fastest points matter, so the time bound rejects points,
                         * too */

    /* ---- filled in by points_decide */
    BestSpeeds *best; /* NULL: the time bound is not used */
    BestSpeeds *likely;
    bool bounds_only;      /* only applies bounds; points that no bound rejects stay open */
    const SweepRow *bound; /* [n] the bounds of all points, when they are known; else NULL */
    _Atomic uint32_t *next;
    uint32_t *order, n_order; /* the points to decide, in this order */
    /* [n_pieces + 1]: where pieces of `order` begin. One process decides all points of a piece. */
    uint32_t *piece, n_pieces;
} PointJob;

/* Decides all points in several processes. Adds one row for each point to `rows`, in order, without
 * SweepRow.values. Returns false after reporting diagnostics if a process failed or the store
 * cannot be written. */
bool points_decide(const PointJob *job, SweepRows *rows);

/* ---- point.c, for reject.c */
void point_status(json_t *row, SweepStatus status, const Diagnostic *error);

/* ---- order.c */
/* Fills in `order` and `piece`, which have room for all points. */
void points_order(PointJob *job, uint32_t n_jobs);

/* ---- reject.c */
void best_enter(BestSpeeds *best, double tokens_per_s); /* NULL is fine */
double best_least(
    BestSpeeds *best); /* the speed of the slowest of the N_BEST points; 0: there are fewer */
/* Returns true if a lower bound shows that the point cannot fit or cannot be among the best. The
 * row then names the bound. With job->bounds_only it returns true for every point. */
bool bounds_decide(const PointJob *job, Cli *one, const Config *config, Graph *graph,
                   const PlanOptions *load, uint32_t index, json_t *row);

/* ---- stored.c: sweeps in the store */
/* Begins or resumes the sweep of these settings. Returns its number; 0 after reporting
 * diagnostics. */
int64_t sweep_begin(Cli *cli, Store *store, const char *script, const TextList *settings,
                    uint32_t n);
bool sweep_put_point(Store *store, int64_t sweep, uint32_t point, const TextList *settings,
                     int64_t run, SweepStatus status, Arena *arena, Diag *d);
bool sweep_end(Store *store, int64_t sweep, Diag *d);
/* True if the store has measured costs of any machine. */
bool measured_any(Store *store, Diag *d);
/* Returns a hash of the measurements on which predictions and their error bars depend. */
Hash128 measured_state(Store *store, Diag *d);

#endif
