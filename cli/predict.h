/* Predictions as `sim` and `run` make them: simulated once, stored, found again. */
#ifndef TANDEM_CLI_PREDICT_H
#define TANDEM_CLI_PREDICT_H

#include "cli/run/measure.h"
#include "session/session.h"

typedef enum ErrorOf { ERROR_step, ERROR_allocated, ERROR_reserved, ERROR_COUNT } ErrorOf;

/* Of |predicted / measured - 1|, over the rows of one class. */
typedef struct ErrorBar {
    const char *profile, *gpu;         /* whose rows; NULL: any */
    uint32_t n;                        /* 0: errors are not known */
    uint32_t n_profile, n_gpu, n_both; /* rows of the prediction's own profile, GPU, both */
    double p50, p90;
} ErrorBar;

/* How far off predictions of a kind were, and how old what they rest on is. */
typedef struct Trust {
    const char *basis;         /* what they were compared with */
    int64_t made_at;           /* seconds since 1970, of the oldest cost; 0: none was measured */
    const char *profile, *gpu; /* the prediction's; NULL: bars are not by profile and GPU */
    ErrorBar bar[ERROR_COUNT];
    CostCounts counts; /* zero: not known */
} Trust;

typedef struct Prediction {
    RunRecord record;
    Trust trust;
    int64_t id; /* in the store; 0: not stored */
    bool found; /* it was there already */
    uint64_t n_events;
    uint32_t n_classes;
} Prediction;

/* session_predict with its trust and warnings. False after diagnostics; keep_unstored: not where
 * only the store failed, for the prediction is still worth showing. */
bool predict(Cli *cli, const PlanFile *file, Store *store, const PredictOptions *options,
             bool keep_unstored, Prediction *prediction);
/* Of a plan that names another system: what that would hold, with a fault where it does not fit and
 * the plan's own arena does; else all zero. */
Held predict_held(Cli *cli, const PlanFile *file);

/* ---- trust.c; `machine`: whose measurements are used, NULL: none. The published runs are other
 * frameworks', predicted under their profiles: of a plan without one they say nothing. */
Trust trust_of(Cli *cli, const Cluster *cluster, const Runtime *runtime, Store *store,
               const char *machine);
ErrorBar trust_bar(ErrorOf of, const char *profile, const char *gpu);
/* The GPU model behind a device's name: the name up to its first hyphen, as "H100". */
const char *trust_gpu(Arena *arena, const char *device);
bool trust_store(Store *store, int64_t run, const Trust *trust, Diag *d);
void trust_load_counts(Store *store, int64_t run, Trust *trust, Diag *d);
/* Of collectives by the network model, of nodes or within one: `tandem net`. No error bar where
 * none like them are published. */
Trust trust_of_net(const Cluster *cluster, const NcclQuestion *question);
const char *trust_text(Arena *arena, const Trust *trust);
json_t *trust_json(const Trust *trust);
void trust_report(Cli *cli, const Trust *trust); /* as text, with memory and counts */

/* sim --mtbf, after the prediction (faults.c). */
double faults_report(Cli *cli, const PlanFile *file, const Prediction *p); /* goodput; 0: none */
/* --jitter and --straggler; false: neither, or after diagnostics. */
bool unevenness_of(Cli *cli, uint32_t n_ranks, Unevenness *out);
/* --imbalance; 1: not asked for, or after diagnostics. */
double imbalance_of(Cli *cli, const PlanFile *file);

/* Whose costs, and how even: as the command's options say; false after diagnostics. `store` may be
 * NULL. */
bool predict_options(Cli *cli, const PlanFile *file, Store *store, PredictOptions *options);

/* sim --explain, after the prediction that these options made. */
void explain_report(Cli *cli, const PlanFile *file, Store *store, const PredictOptions *how);
/* sim --tokens; `goodput` is 1 where nothing fails. */
void training_report(Cli *cli, const PlanFile *file, const Prediction *p, double goodput);
/* USD of an hour of one device: --price, else the library's; 0: not known. */
double price_of(const Cli *cli, const Cluster *cluster);
/* Step time, throughput, MFU, exposed communication, memory: as text or JSON. */
void prediction_report(Cli *cli, const PlanFile *file, const Prediction *p);

#endif
