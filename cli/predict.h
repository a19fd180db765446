/* Predictions for `sim` and `run`: each is simulated once, stored, and found again. */
#ifndef TANDEM_CLI_PREDICT_H
#define TANDEM_CLI_PREDICT_H

#include "cli/run/measure.h"
#include "exec/loads.h"
#include "session/session.h"
#include "sim/compute/imbalance.h"

typedef enum ErrorOf { ERROR_step, ERROR_allocated, ERROR_reserved, ERROR_COUNT } ErrorOf;

/* Quantiles of |predicted / measured - 1| over the rows of one class. */
typedef struct ErrorBar {
    const char *profile, *gpu; /* profile and GPU of the rows; NULL: the error is unknown */
    /* profile and GPU of the nearest rows, if the error is unknown; NULL: there are none */
    const char *near_profile, *near_gpu;
    uint32_t n_near;
    uint32_t n;   /* 0: errors are unknown */
    bool assumed; /* rows whose power limit is assumed, because too few rows state it */
    /* numbers of rows with the prediction's own profile, with its GPU, and with both */
    uint32_t n_profile, n_gpu, n_both;
    double p50, p90;
} ErrorBar;

/* The known errors of predictions of one kind, and the age of the costs that they use. */
typedef struct Trust {
    const char *basis; /* the measurements with which the predictions were compared */
    int64_t made_at;   /* date of the oldest cost, in seconds since 1970; 0: none was measured */
    bool is_modelled;  /* no cost was measured; made_at is the date of the error bars */
    /* profile and GPU of the prediction; NULL: error bars do not depend on profile and GPU */
    const char *profile, *gpu;
    ErrorBar bar[ERROR_COUNT];
    CostCounts counts; /* zero: unknown */
} Trust;

typedef struct Prediction {
    RunRecord record;
    Trust trust;
    int64_t id;     /* in the store; 0: not stored */
    bool found;     /* it was stored already */
    bool aperiodic; /* the whole step's time cannot be computed from the plan's few micro-batches */
    uint64_t n_events;
    uint32_t n_classes;
} Prediction;

/* Calls session_predict, and adds error bars and warnings. Returns false after reporting
 * diagnostics. keep_unstored: returns true even if only the store failed, because the prediction
 * can still be shown. */
bool predict(Cli *cli, const PlanFile *file, Store *store, const PredictOptions *options,
             bool keep_unstored, Prediction *prediction);
/* For a plan that names another framework: returns the memory that this framework would hold, and
 * reports an error if it does not fit, even if the plan's own arena fits. For any other plan all
 * fields are 0. */
Held predict_held(Cli *cli, const PlanFile *file);

/* ---- trust.c. machine: the machine whose measurements are used; NULL: none. The published runs
 * used other frameworks and were predicted under their profiles, so they give no error for a plan
 * without a profile. */
Trust trust_of(Cli *cli, const Cluster *cluster, const Runtime *runtime, Store *store,
               const char *machine);
ErrorBar trust_bar(ErrorOf of, const char *profile, const char *gpu);
/* Returns the GPU model in a device's name: the name up to its first hyphen, as "H100". */
const char *trust_gpu(Arena *arena, const char *device);
bool trust_store(Store *store, int64_t run, const Trust *trust, Diag *d);
void trust_load_counts(Store *store, int64_t run, Trust *trust, Diag *d);
/* For `tandem net`: returns the error bar of the network model's collectives, between nodes or
 * within one node; n is 0 if no similar measurements were published. */
Trust trust_of_net(const Cluster *cluster, const NcclQuestion *question);
const char *trust_text(Arena *arena, const Trust *trust);
json_t *trust_json(const Trust *trust);
void trust_report(
    Cli *cli,
    const Trust *trust); /* prints the error bars of time and memory, and the counts, as text */

/* sim --mtbf, after the prediction (faults.c). */
double faults_report(Cli *cli, const PlanFile *file,
                     const Prediction *p); /* returns the goodput; 0: none */
/* Reads --jitter and --straggler; false if neither is given, or after diagnostics. */
bool unevenness_of(Cli *cli, uint32_t n_ranks, Unevenness *out);
/* Reads --imbalance; 1 if it is not given, or after diagnostics. *loads: the loads of each rank
 * that were drawn or counted; NULL: only a factor is known. */
double imbalance_of(Cli *cli, const PlanFile *file, const RowLoads **loads);
/* The values of --jitter, --straggler and --imbalance. */
typedef struct Scenario {
    bool is_uneven;    /* true if --jitter or --straggler is given */
    Unevenness uneven; /* meaningless unless is_uneven */
    double imbalance;
    const RowLoads *loads; /* NULL: only a factor is known */
    bool own_drops; /* true if Tandem's executor drops choices above the experts' capacity, so that
                     * all ranks keep the same number of rows */
    Diag told;      /* warnings, which belong to the prediction */
} Scenario;
/* Reads the scenario once, because a file of counts may be a pipe. Returns false after errors. */
bool scenario_read(Cli *cli, const PlanFile *file, Scenario *out);
/* Returns words for the stored key of a scenario, with numbers of five digits. counts: how the rows
 * of each rank were found; NULL: unknown. */
const char *scenario_said(Arena *arena, const char *key, const char *counts);
/* shares.c: writes how often each expert was chosen, a line for each layer, as `sim --imbalance`
 * reads it. */
bool shares_write(Cli *cli, const Plan *plan, const LoadCounts *counts, const char *path);
/* shares.c: returns false after reporting "option-value" if the file of --loads cannot be written,
 * or if it holds something else than counts, which the run must not replace. */
bool shares_writable(Cli *cli, const char *data);
/* shares.c: the loads of the `ranks` ranks over which experts are divided. They return the mean
 * over layers of the busiest rank's load. shares_drawn draws choices from the plan's seed.
 * shares_read reads counts from a file; it returns 0 after reporting "option-value". */
double shares_drawn(const PlanFile *file, uint32_t ranks, Arena *arena, RowLoads *loads);
double shares_read(Cli *cli, const PlanFile *file, const char *path, uint32_t ranks,
                   RowLoads *loads);

/* Fills in the source of costs and the differences between devices, from the command's options.
 * Returns false after diagnostics. `store` may be NULL. The scenario must outlive the options. */
bool predict_options(Cli *cli, const PlanFile *file, Store *store, const Scenario *scenario,
                     PredictOptions *options);

/* sim --explain: called after the prediction with the same options. */
void explain_report(Cli *cli, const PlanFile *file, Store *store, const PredictOptions *how);
/* Returns false after an error if --mfu does not name a convention. */
bool mfu_check(Cli *cli);
/* Prints the utilisation by the conventions that --mfu names (mfu.c). */
void mfu_report(Cli *cli, const PlanFile *file, const Prediction *p);
/* Checks the values of all --what-if without simulating; returns false after diagnostics. */
bool what_if_check(Cli *cli, const PlanFile *file);
/* sim --what-if: the plan under other values, each alone and all together (what_if.c). */
void what_if_report(Cli *cli, const PlanFile *file, Store *store, const PredictOptions *how);
/* sim --tokens; `goodput` is 1 if failures are not modelled. */
void training_report(Cli *cli, const PlanFile *file, const Prediction *p, double goodput);
/* Returns USD for an hour of one device: --price, else the library's price; 0: unknown. */
double price_of(const Cli *cli, const Cluster *cluster);
/* Returns the joules of a token, multiplied by the PUE, if each board draws its power limit all the
 * time. 0: the power limit of the boards is unknown. */
double joules_per_token_of(const Cli *cli, const Cluster *cluster, double tokens_per_s_per_device);
/* sim --pue and --tokens: the energy of a step, and of the training. */
void energy_report(Cli *cli, const PlanFile *file, const Prediction *p, double goodput);
/* Prints step time, throughput, MFU, exposed communication and memory, as text or JSON. */
void prediction_report(Cli *cli, const PlanFile *file, const Prediction *p);
/* Prints the line that names the stored run. */
void run_report(Cli *cli, int64_t id, bool found, const char *calibration);

#endif
