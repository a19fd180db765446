/* A point is one script with certain settings. A point is simulated once; later commands find its
 * result in the store. */
#ifndef TANDEM_CLI_SWEEP_POINT_H
#define TANDEM_CLI_SWEEP_POINT_H

#include <stdatomic.h>

#include "cli/predict.h"
#include "cli/sweep/jobs.h"
#include "cli/sweep/sweep.h"

enum { N_BEST = 10 };
/* The best speeds so far, the fastest first. They are in memory that all processes share. */
typedef struct BestSpeeds {
    atomic_flag busy;
    double tokens_per_s[N_BEST];
} BestSpeeds;

typedef struct PointShared {
    _Atomic uint32_t next; /* index of the first piece of work that no process has taken */
    BestSpeeds best;
    BestSpeeds likely; /* the best speeds that points could have according to their bounds */
} PointShared;

/* The fastest plan of a process, which is kept until the process has no more points. */
typedef struct BestPlan {
    Arena *arena; /* holds the plan; NULL: this process has compiled no plan yet */
    const PlanFile *file;
    Recipe recipe;
    Hash128 key;  /* key of its answer in the store */
    double speed; /* tokens per second */
    json_t *row;  /* its answer; NULL: there is none, or it could not be stored */
} BestPlan;

/* The task to simulate points of one script. */
typedef struct PointJob {
    Cli *cli;
    const char *path;
    uint32_t n;
    /* settings of each of the n points, such as "mesh.tp=4", in addition to those of --set */
    TextList *settings;
    int64_t sweep; /* the sweep's number in the store; 0: it is not stored */
    bool unproven; /* skips the proofs: sweeps and searches prove only their winners */
    /* with `unproven`: each process proves its fastest plan, unless another process has found a
     * faster one. So the best plan of all is proven. */
    bool proves_best;
    bool prints_best; /* prints lines about the best plan under other frameworks */
    /* true if lower bounds of memory may rule out points before they are compiled */
    bool bounded;
    /* true if only the N_BEST fastest points matter; then lower bounds of time may rule out points,
     * too */
    bool ranked;

    /* ---- filled in by points_decide */
    BestSpeeds *best; /* the best speeds so far; NULL: bounds of time are not used */
    BestSpeeds *likely;
    BestSpeeds *fastest; /* the best speeds so far, if proves_best; otherwise NULL */
    /* true if no point is to be simulated; points that no bound rules out stay open */
    bool bounds_only;
    const SweepRow *bound; /* the bounds of all n points; NULL: they are not known yet */
    _Atomic uint32_t *next;
    uint32_t *order, n_order; /* the points to simulate, in this order */
    /* [n_pieces + 1]: the indices in `order` at which pieces of work begin. One process simulates
     * all points of a piece. */
    uint32_t *piece, n_pieces;
} PointJob;

/* Simulates all points in several processes. Adds one row for each point to `rows`, in the order of
 * the points; SweepRow.values is not filled in. Returns false after reporting diagnostics if a
 * process failed or the store cannot be written. */
bool points_decide(const PointJob *job, SweepRows *rows);

/* ---- point_row.c */
void point_status(json_t *row, SweepStatus status, const Diagnostic *error);
void point_prediction(json_t *row, const Cli *cli, const PlanFile *file, const Prediction *p);
/* Adds the warnings of a point to its answer, because the table shows the warnings that all points
 * share. */
void point_warnings(json_t *row, const Diag *d);

/* ---- point.c, for points.c */
/* Decides points until none is left: the work of one process. self: the PointJob. */
void points_work(void *self, const Worker *worker);

/* ---- prove.c */
/* Proves the plan of the best row of a sweep. If the proof fails, an error names the point, the row
 * becomes a refused one, and the next best plan is proven. job: the task that made the rows.
 * Returns false after reporting diagnostics if a process failed or the store cannot be written. */
bool sweep_prove(const PointJob *job, SweepRows *rows);

/* ---- order.c */
/* Fills in `order` and `piece`, which must have room for all points. */
void points_order(PointJob *job, uint32_t n_jobs);

/* ---- reject.c */
/* Enters a speed into the list; does nothing if `best` is NULL. */
void best_enter(BestSpeeds *best, double tokens_per_s);
/* Returns the best speed; 0: there is none. */
double best_most(BestSpeeds *best);
/* Returns the lowest of the N_BEST best speeds; 0: there are fewer than N_BEST speeds. */
double best_least(BestSpeeds *best);
/* Returns true if the known bound of the point's time is too slow by now. The row then names it. So
 * the script need not run. */
bool bounds_known_decide(const PointJob *job, Cli *one, uint32_t index, json_t *row);
/* Returns true if a lower bound shows that the point cannot fit, or cannot be among the best. The
 * row then names this bound. With job->bounds_only, returns true for every point. */
bool bounds_decide(const PointJob *job, Cli *one, const Config *config, Graph *graph,
                   const PlanOptions *load, uint32_t index, json_t *row);

/* ---- best.c: the best plan under other frameworks. cli->options has the settings of the plan. */
/* Returns the lines that an earlier sweep stored. Returns NULL if none did, or if a script has
 * changed since. `store` may be NULL. */
const char *best_found(Cli *cli, const char *path, Store *store);
/* Prints the lines, and stores them. Compiles the plan. */
void best_print(Cli *cli, const char *path, Store *store);
/* Does the same for a compiled plan, and returns the lines. file: the plan, with all micro-batches
 * if it names a runtime. recipe: its recipe. cli->script: its script, held open. */
const char *best_lines_of(Cli *cli, const PlanFile *file, Recipe *recipe, Store *store);

/* ---- stored.c: sweeps in the store */
/* Begins the sweep of these settings, or continues it if it was interrupted. Returns its number, or
 * 0 after reporting diagnostics. */
int64_t sweep_begin(Cli *cli, Store *store, const char *script, const TextList *settings,
                    uint32_t n);
bool sweep_put_point(Store *store, int64_t sweep, uint32_t point, const TextList *settings,
                     int64_t run, SweepStatus status, Arena *arena, Diag *d);
bool sweep_end(Store *store, int64_t sweep, Diag *d);
/* Returns true if the store contains measured costs of any machine. */
bool measured_any(Store *store, Diag *d);
/* Returns a hash of the measurements on which predictions, and the sizes of their
 * errors, depend. */
Hash128 measured_state(Store *store, Diag *d);

#endif
