/* Predictions for `sim` and `run`. A plan is simulated once and the prediction is stored; later
 * commands find it there. */
#ifndef TANDEM_CLI_PREDICT_H
#define TANDEM_CLI_PREDICT_H

#include "cli/run/measure.h"
#include "exec/loads.h"
#include "session/session.h"
#include "sim/compute/imbalance.h"

typedef enum ErrorOf { ERROR_step, ERROR_allocated, ERROR_reserved, ERROR_COUNT } ErrorOf;

/* The size of errors: quantiles of |predicted / measured - 1| over a class of measurements. */
typedef struct ErrorBar {
    /* the framework's profile (the name of its runtime settings) and the GPU of the measurements;
     * NULL: the size of the error is unknown */
    const char *profile, *gpu;
    /* if the error is unknown: profile and GPU of the measurements most like the plan;
     * NULL: none */
    const char *near_profile, *near_gpu;
    uint32_t n_near;
    uint32_t n; /* number of measurements; 0: the size of the error is unknown */
    /* the measurements include some with an assumed power limit, because too few give it */
    bool assumed;
    /* number of measurements with the plan's profile, with its GPU, and with both */
    uint32_t n_profile, n_gpu, n_both;
    double p50, p90;
} ErrorBar;

/* How far a prediction can be trusted: the errors of similar predictions, and the age of
 * the costs. */
typedef struct Trust {
    const char *basis; /* words that name the measurements from which the errors were found */
    int64_t made_at;   /* date of the oldest cost, in seconds since 1970; 0: no cost was measured */
    bool is_modelled;  /* no cost was measured, so made_at is the date of the table of errors */
    /* profile and GPU of the prediction; NULL: its error does not depend on them */
    const char *profile, *gpu;
    ErrorBar bar[ERROR_COUNT];
    CostCounts counts; /* numbers of costs by their source; all zero: unknown */
} Trust;

typedef struct Prediction {
    RunRecord record;
    Trust trust;
    int64_t id; /* the run's number in the store; 0: not stored */
    bool found; /* the prediction was in the store already, so nothing was simulated */
    /* the plan has too few micro-batches to extrapolate the time of the whole step */
    bool aperiodic;
    uint64_t n_events;
    uint32_t n_classes;
    /* the memory of the busiest rank under the framework that the plan names; all 0: it names none
     */
    Held held;
} Prediction;

/* Calls session_predict, and adds the size of errors and warnings. Returns false after reporting
 * diagnostics. keep_unstored: returns true even if the prediction could not be stored, because it
 * can still be shown. */
bool predict(Cli *cli, const PlanFile *file, Store *store, const PredictOptions *options,
             bool keep_unstored, Prediction *prediction);
/* Reports an error if the memory of the framework that the plan names does not fit, even if the
 * plan's own arena fits. */
void predict_fits(Cli *cli, const PlanFile *file, const Prediction *prediction);

/* ---- trust.c */
/* Returns how far a prediction can be trusted. machine: the machine whose measurements are used;
 * NULL: none. A plan without a profile runs on Tandem's own executor. No published run did, so
 * these runs give no error for such a plan. */
Trust trust_of(Cli *cli, const Cluster *cluster, const Runtime *runtime, Store *store,
               const char *machine);
ErrorBar trust_bar(ErrorOf of, const char *profile, const char *gpu);
/* Returns the model of a GPU: the part of a device's name before the first hyphen, such
 * as "H100". */
const char *trust_gpu(Arena *arena, const char *device);
bool trust_store(Store *store, int64_t run, const Trust *trust, Diag *d);
void trust_load_counts(Store *store, int64_t run, Trust *trust, Diag *d);
/* For `tandem net`: returns the size of errors of predicted collectives, between nodes or within a
 * node. n is 0 if no similar measurements were published. */
Trust trust_of_net(const Cluster *cluster, const NcclQuestion *question);
const char *trust_text(Arena *arena, const Trust *trust);
json_t *trust_json(const Trust *trust);
/* Prints, as text, the size of the errors of time and memory, and the counts of costs. */
void trust_report(Cli *cli, const Trust *trust);

/* sim --mtbf: prints the effect of failures, after the prediction (faults.c). Returns the goodput;
 * 0: the user did not ask for failures. */
double faults_report(Cli *cli, const PlanFile *file, const Prediction *p);
/* Reads --jitter and --straggler. Returns false if neither was given, or after diagnostics. */
bool unevenness_of(Cli *cli, uint32_t n_ranks, Unevenness *out);
/* Reads --imbalance. Returns the factor, or 1 if the option was not given or was wrong. *loads
 * receives the loads of all ranks if they were drawn or counted, otherwise NULL. */
double imbalance_of(Cli *cli, const PlanFile *file, const RowLoads **loads);
/* The values of the options --jitter, --straggler and --imbalance. */
typedef struct Scenario {
    bool is_uneven;    /* true if --jitter or --straggler was given */
    Unevenness uneven; /* valid only if is_uneven */
    double imbalance;
    const RowLoads *loads; /* the rows of each rank; NULL: only a factor is known */
    /* true if Tandem's executor drops choices that exceed the experts' capacity, so that all ranks
     * keep the same number of rows */
    bool own_drops;
    Diag told; /* warnings about the scenario, which belong to every prediction made with it */
} Scenario;
/* Reads the scenario. A command does this once, because a file of counts may be a pipe. Returns
 * false after errors. */
bool scenario_read(Cli *cli, const PlanFile *file, Scenario *out);
/* Returns words for a scenario, from the key under which the store has it. Numbers have five
 * digits. counts: how the rows of each rank were found; NULL: unknown. */
const char *scenario_said(Arena *arena, const char *key, const char *counts);
/* shares.c: writes how often each expert was chosen, one line for each layer. `sim --imbalance` can
 * read the file. */
bool shares_write(Cli *cli, const Plan *plan, const LoadCounts *counts, const char *path);
/* shares.c: tests the file of --loads. Returns false after reporting "option-value" if the file
 * cannot be written, or if it contains anything but counts, because the run would destroy it. */
bool shares_writable(Cli *cli, const char *data);
/* shares.c: the loads of the `ranks` ranks over which experts are divided. Both functions return
 * the load of the busiest rank relative to the mean, averaged over layers. shares_drawn draws
 * choices with the plan's seed. shares_read reads counts from a file, and returns 0 after reporting
 * "option-value". */
double shares_drawn(const PlanFile *file, uint32_t ranks, Arena *arena, RowLoads *loads);
double shares_read(Cli *cli, const PlanFile *file, const char *path, uint32_t ranks,
                   RowLoads *loads);

/* Sets, from the command's options, the source of costs and how devices differ. Returns false after
 * diagnostics. `store` may be NULL. The scenario must live as long as the options. */
bool predict_options(Cli *cli, const PlanFile *file, Store *store, const Scenario *scenario,
                     PredictOptions *options);

/* sim --explain: prints where the time goes. Call it after the prediction, with the
 * same options. */
void explain_report(Cli *cli, const PlanFile *file, Store *store, const PredictOptions *how);
/* Returns false after an error if --mfu names no known convention. */
bool mfu_check(Cli *cli);
/* Prints the utilisation in the conventions that --mfu names (mfu.c). */
void mfu_report(Cli *cli, const PlanFile *file, const Prediction *p);
/* Checks the values of all --what-if without simulating. Returns false after diagnostics. */
bool what_if_check(Cli *cli, const PlanFile *file);
/* sim --what-if: simulates the plan with other values, each alone and then all together
 * (what_if.c). */
void what_if_report(Cli *cli, const PlanFile *file, Store *store, const PredictOptions *how);
/* sim --tokens: prints the duration and the price of a whole training. `goodput` is 1 if no
 * failures were asked for. */
void training_report(Cli *cli, const PlanFile *file, const Prediction *p, double goodput);
/* Returns the price of one device in USD per hour: the value of --price, or else the library's
 * price. 0: unknown. */
double price_of(const Cli *cli, const Cluster *cluster);
/* Returns the joules that a token costs if every board draws its power limit all the time. They
 * include the PUE. Returns 0 if the power limit is unknown. */
double joules_per_token_of(const Cli *cli, const Cluster *cluster, double tokens_per_s_per_device);
/* sim --pue and --tokens: prints the energy of a step and of the whole training. */
void energy_report(Cli *cli, const PlanFile *file, const Prediction *p, double goodput);
/* Prints step time, throughput, MFU, exposed communication and memory, as text or JSON. */
void prediction_report(Cli *cli, const PlanFile *file, const Prediction *p);
/* Prints the line that names the stored run. */
void run_report(Cli *cli, int64_t id, bool found, const char *calibration);

#endif
