/* Predictions as `sim` and `run` make them: simulated once, stored, found again. */
#ifndef TANDEM_CLI_PREDICT_H
#define TANDEM_CLI_PREDICT_H

#include "cli/measure.h"
#include "sim/sim.h"

typedef struct Prediction {
    RunRecord record;
    int64_t id; /* in the store; 0: not stored */
    bool found; /* it was there already */
    uint64_t n_events;
    uint32_t n_classes;
} Prediction;

typedef struct PredictOptions {
    const Cluster *cluster;
    const char *backend;        /* "" unless the costs are a backend's of this machine */
    const char *machine;        /* whose measured costs are used; NULL: none, only models */
    bool trace, unfolded, keep; /* keep: store it */
} PredictOptions;

/* false after diagnostics (a plan that deadlocks; the store). Not fitting is not a failure here. */
bool predict(Cli *cli, const PlanFile *file, Store *store, const PredictOptions *options,
             Prediction *prediction);
/* A plan's exact text, as the store keeps it. */
const char *plan_stored_text(const Plan *plan, Arena *arena);
/* "dgx-h100, 2 x 8" */
const char *cluster_text(Arena *arena, const Cluster *cluster);
/* Step time, throughput, MFU, exposed communication, memory: as text or JSON. */
/* sim --explain, after the prediction. */
void explain_report(Cli *cli, const PlanFile *file, Store *store);
void prediction_report(Cli *cli, const PlanFile *file, const Prediction *p);

#endif
