/* Predictions for `sim` and `run`: simulated once, stored, found again. */
#ifndef TANDEM_CLI_PREDICT_H
#define TANDEM_CLI_PREDICT_H

#include "cli/run/measure.h"
#include "session/session.h"

typedef enum ErrorOf { ERROR_step, ERROR_allocated, ERROR_reserved, ERROR_COUNT } ErrorOf;

/* Quantiles of |predicted / measured - 1| over the rows of one class. */
typedef struct ErrorBar {
    const char *profile, *gpu; /* profile and GPU of the rows; NULL: the error is unknown */
    /* profile and GPU of the nearest rows, if the error is unknown; NULL: there are none */
    const char *near_profile, *near_gpu;
    uint32_t n_near;
    uint32_t n;   /* 0: errors are unknown */
    bool assumed; /* rows whose limit of power is assumed: too few state it */
    /* numbers of rows with the prediction's own profile, GPU, both */
    uint32_t n_profile, n_gpu, n_both;
    double p50, p90;
} ErrorBar;

/* The size of the errors of such predictions, and the age of their costs. */
typedef struct Trust {
    const char *basis; /* the measurements that they were compared with */
    int64_t made_at;   /* date of the oldest cost, in seconds since 1970; 0: none was measured */
    /* profile and GPU of the prediction; NULL: bars are not by profile and GPU */
    const char *profile, *gpu;
    ErrorBar bar[ERROR_COUNT];
    CostCounts counts; /* zero: unknown */
} Trust;

typedef struct Prediction {
    RunRecord record;
    Trust trust;
    int64_t id;     /* in the store; 0: not stored */
    bool found;     /* it was stored already */
    bool aperiodic; /* the plan's few micro-batches do not tell the time of the whole step */
    uint64_t n_events;
    uint32_t n_classes;
} Prediction;

/* session_predict, with trust and warnings. Returns false after diagnostics. keep_unstored: true
 * even if only the store failed, because the prediction is still worth showing. */
bool predict(Cli *cli, const PlanFile *file, Store *store, const PredictOptions *options,
             bool keep_unstored, Prediction *prediction);
/* For a plan that names another system: the memory that this system would hold, with an error if it
 * does not fit although the plan's own arena does. Otherwise all zero. */
Held predict_held(Cli *cli, const PlanFile *file);

/* ---- trust.c; `machine`: whose measurements are used; NULL: none. The published runs are those of
 * other frameworks, predicted under their profiles. They tell nothing of a plan without a
 * profile. */
Trust trust_of(Cli *cli, const Cluster *cluster, const Runtime *runtime, Store *store,
               const char *machine);
ErrorBar trust_bar(ErrorOf of, const char *profile, const char *gpu);
/* Returns the GPU model in a device's name: the name up to its first hyphen, as "H100". */
const char *trust_gpu(Arena *arena, const char *device);
bool trust_store(Store *store, int64_t run, const Trust *trust, Diag *d);
void trust_load_counts(Store *store, int64_t run, Trust *trust, Diag *d);
/* Trust in collectives of the network model, between nodes or within one, for `tandem net`. There
 * is no error bar if no similar measurements are published. */
Trust trust_of_net(const Cluster *cluster, const NcclQuestion *question);
const char *trust_text(Arena *arena, const Trust *trust);
json_t *trust_json(const Trust *trust);
void trust_report(Cli *cli, const Trust *trust); /* prints it as text, with memory and counts */

/* sim --mtbf, after the prediction (faults.c). */
double faults_report(Cli *cli, const PlanFile *file, const Prediction *p); /* goodput; 0: none */
/* Reads --jitter and --straggler; false if neither is given, or after diagnostics. */
bool unevenness_of(Cli *cli, uint32_t n_ranks, Unevenness *out);
/* Reads --imbalance; 1 if it is not given, or after diagnostics. */
double imbalance_of(Cli *cli, const PlanFile *file);

/* Fills in whose costs to use, and how even devices are, from the command's options. Returns false
 * after diagnostics. `store` may be NULL. */
bool predict_options(Cli *cli, const PlanFile *file, Store *store, PredictOptions *options);

/* sim --explain, after the prediction made with these options. */
void explain_report(Cli *cli, const PlanFile *file, Store *store, const PredictOptions *how);
/* Returns false after an error if --mfu names no convention. */
bool mfu_check(Cli *cli);
/* Prints the utilisation by the conventions of --mfu (mfu.c). */
void mfu_report(Cli *cli, const PlanFile *file, const Prediction *p);
/* Reads all --what-if; returns false after diagnostics. Nothing is simulated. */
bool what_if_check(Cli *cli, const PlanFile *file);
/* sim --what-if: the plan under other values, each alone and all together (what_if.c). */
void what_if_report(Cli *cli, const PlanFile *file, Store *store, const PredictOptions *how);
/* sim --tokens; `goodput` is 1 if nothing fails. */
void training_report(Cli *cli, const PlanFile *file, const Prediction *p, double goodput);
/* Returns USD for an hour of one device: --price, else the library's price; 0: unknown. */
double price_of(const Cli *cli, const Cluster *cluster);
/* Returns the joules of a token: each board takes its power limit for the whole time, times the
 * PUE. 0: the power of the boards is unknown. */
double joules_per_token_of(const Cli *cli, const Cluster *cluster, double tokens_per_s_per_device);
/* sim --pue and --tokens: the energy of a step, and of the training. */
void energy_report(Cli *cli, const PlanFile *file, const Prediction *p, double goodput);
/* Prints step time, throughput, MFU, exposed communication and memory, as text or JSON. */
void prediction_report(Cli *cli, const PlanFile *file, const Prediction *p);

#endif
