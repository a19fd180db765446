/* A plan in virtual time. Integer picoseconds; ties by sequence number; same plan + models + seed =
 * same bytes out. */
#ifndef TANDEM_SIM_SIM_H
#define TANDEM_SIM_SIM_H

#include "planner/front/config.h"
#include "planner/ir/store.h"
#include "planner/ir/trace.h"

#define SIM_ENGINE_VERSION "sim/1" /* bumped by any change that alters results */

/* Time of one compute instruction alone on its device. */
typedef struct CostModel {
    const char *name; /* "roofline", "measured" */
    Ps (*compute)(const void *self, const Plan *plan, const Program *p, const Instr *in);
    const void *self;
} CostModel;

/* Transfers share links, so a network model keeps state. */
typedef struct Transfer {
    OpKind op;
    AxisSet axes;
    Rank member;    /* any member: with axes it names the group */
    Rank peer;      /* send/recv */
    uint64_t bytes; /* plan_comm_bytes */
    DType dtype;
    Reduce reduce;
} Transfer;
typedef struct NetModel {
    const char *name; /* "nccl", "measured" */
    void (*start)(void *self, uint32_t id, const Transfer *t, Ps now);
    bool (*next)(void *self, uint32_t *id,
                 Ps *when); /* the transfer that ends first; false: none running */
    void (*finish)(void *self, uint32_t id, Ps now);
    void *self;
} NetModel;

typedef struct SimOptions {
    bool unfolded; /* every rank simulated; else ranks are folded by refinement */
    bool trace;    /* keep rows (all simulated ranks) */
    uint64_t seed;
    uint32_t steps;      /* >= 2: the last one is steady and reported; default 2 */
    Store *store;        /* measured kernels and collectives; NULL: none */
    const char *machine; /* key of the measurements */
    const char *backend;
} SimOptions;

typedef struct AxisTime {
    AxisSet axes;
    Stream stream;
    uint32_t n;
    uint64_t bytes;
    Ps total_ps, exposed_ps;
} AxisTime;

typedef struct SimReport {
    Ps step_ps;
    double tokens_per_s, tokens_per_s_per_device;
    double mfu; /* fraction of peak */
    double model_flops_per_token;
    const char *mfu_formula; /* "6 x 7,504,924,672 params (no input embedding) + 6 x 32 layers x
                                4096 x 8192 per token" */
    const char *peak_name;   /* "989.4 TFLOP/s dense bf16 H100-SXM5-80GB" */
    Ps compute_ps;           /* of the slowest rank's compute stream */
    Ps idle_ps;
    LIST(AxisTime) axes; /* exposed: compute stream idle while waiting for it */
    LIST(CollectiveRow) collectives;
    uint64_t peak_bytes;  /* arena of the worst rank's program */
    uint64_t total_bytes; /* + reserved (context, communicators) */
    Rank peak_rank;
    uint64_t memory[CATEGORY_COUNT]; /* live bytes by category at the peak instant of that rank's
                                        program */
    uint64_t memory_holes;           /* arena minus live at that instant */
    Pc peak_pc;
    uint32_t n_classes; /* simulated ranks */
    uint64_t n_events;
    bool fits;
    Trace trace;
} SimReport;

/* Runs the plan on the cluster. Reports "sim-deadlock" with the ranks and what each waits for. */
bool sim_run(const Plan *plan, const Cluster *cluster, const SimOptions *options, Arena *arena,
             SimReport *report, Diag *d);

/* The engine alone: any plan, any models (tests use constants). `rank_class`: NULL for unfolded. */
typedef struct EngineOptions {
    const CostModel *cost;
    NetModel *net;
    uint32_t steps;
    uint32_t cores_per_node,
        ranks_per_node; /* compute shares cores when cores < ranks; 0: a device each */
    bool trace;
    uint32_t n_classes;
    const uint32_t *class_of; /* [n_ranks] or NULL */
} EngineOptions;
typedef struct EngineResult {
    Ps step_ps; /* steady step */
    uint64_t n_events;
    Trace trace; /* of the steady step, one rank a class when folded */
} EngineResult;
bool engine_run(const Plan *plan, const EngineOptions *options, Arena *arena, EngineResult *result,
                Diag *d);

/* Live bytes over program order: for each pc the live bytes by category (device space). */
typedef struct MemoryCurve {
    uint64_t (*at)[CATEGORY_COUNT];
    uint32_t n;
    Pc peak;
} MemoryCurve;
void memory_curve(const Plan *plan, const Program *p, Arena *arena, MemoryCurve *curve);

/* Default MFU: 6 x (parameters without input embedding) + 6 x layers x d_model x seq (causal) per
 * token. */
double mfu_flops_per_token(const ModelInfo *info);
/* The calibration key of a compute instruction: op, dtype and local sizes by letter. */
const char *cost_key(const Plan *plan, const Program *p, const Instr *in, Arena *arena);

/* NCCL's choice for one collective over a group: seconds, algorithm, protocol. See facts in
 * net_nccl.c. */
typedef struct NcclChoice {
    Ps time_ps;
    const char *algorithm, *protocol;
    double bus_bytes_per_s;
    uint32_t channels;
} NcclChoice;
NcclChoice nccl_choose(const Cluster *cluster, OpKind op, uint32_t n_nodes, uint32_t ranks_per_node,
                       uint64_t bytes);

#endif
