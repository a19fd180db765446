/* Points: one script under different settings, each decided once and found again by a look-up. */
#ifndef TANDEM_CLI_SWEEP_POINT_H
#define TANDEM_CLI_SWEEP_POINT_H

#include "cli/sweep/sweep.h"

/* A question about all points of one script. */
typedef struct PointJob {
    Cli *cli;
    const char *path;
    uint32_t n;
    TextList *settings; /* [n] "mesh.tp=4", after those of --set */
    int64_t sweep;      /* its number in the store; 0: none */
    bool unproven;      /* leaves the proofs out: a search proves only the winners */
    bool bounded;       /* lets lower bounds reject points before they are compiled */
    /* The best speed so far [tokens/s], shared by the processes. The time bound rejects points that
     * cannot reach it. NULL: the time bound is not used. */
    _Atomic uint64_t *best;
} PointJob;

/* Decides all points in several processes. `rows` gets one a point, in order, without values. False
 * after diagnostics: a process failed, or the store takes nothing. */
bool points_decide(const PointJob *job, SweepRows *rows);

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
