/* Data that the passes share while a plan is made, and their list (passes.c). */
#ifndef TANDEM_PASSES_PASSES_H
#define TANDEM_PASSES_PASSES_H

#include "kernels/kernel.h"
#include "planner/front/config.h"
#include "planner/ir/plan.h"

typedef struct LowerOptions {
    DTypeMap dtypes;
    WorkspaceBytes workspace; /* workspace of the backend's kernels; NULL: none */
    Hash128 parent;           /* id of the parent plan, recorded in the plan; zero: none */
    /* buffers get no offsets; predictions of times, and of other frameworks' memory, need none */
    bool unplaced;
    uint32_t microbatches; /* the plan stands for a longer step of this many micro-batches; 0: for
                              its own step */
    bool unpadded;         /* for comparisons: odd vocabularies get no padding */
    /* for comparisons: equal blocks are lowered one by one, none is a copy of another */
    bool every_block;
    /* for tests: the number of instructions that are copies is added here; NULL: not counted */
    uint32_t *n_copied;
} LowerOptions;

/* Set by pp. Without pp there is a single pipeline rank. */
typedef struct PipeJob {
    struct Schedule *schedule; /* the actions of each rank in order */
    uint32_t *stage_of_param;  /* [tensor] */
    uint32_t *tied_stage;      /* [tensor]: the stage of another rank that also reads it */
} PipeJob;

/* How units are sharded, gathered and reduced; fsdp2 or zero sets it. */
typedef struct ShardingJob {
    Fsdp2Options options;
    /* [module]: the module has a flat unit of its own; NULL without fsdp2 */
    const bool *is_unit;
    bool resident;      /* weights are gathered once a step and stay gathered */
    bool gathers_bytes; /* set by float8: sharded units of the weights that it covers are gathered
                         * in 8 bits */
    bool gather_eager; /* weights are gathered right after the update, not before their first use */
    bool gather_waits, reduce_waits; /* computation waits for each gather, or for each reduction */
    bool double_buffer;              /* units of equal size take turns in two buffers */
    bool registered;                 /* these buffers are registered with the network */
} ShardingJob;

/* Set by tp. */
typedef struct TpJob {
    bool share_gathers; /* products with one input share its gather; default true */
    bool keep_gathered; /* gathered inputs stay for the backward pass */
    bool pin_replicas;  /* gradients that tp replicates are averaged over it */
} TpJob;

/* Set by cp. */
typedef struct ContextJob {
    AxisSet heads_axes; /* attention is computed with heads, not tokens, split on these axes */
    /* attention reads the keys of the ranks along these axes, one rank after the other */
    AxisSet ring_axes;
    AxisSet scan_axes;  /* like ring_axes, for state-space layers (cp_scan.c) */
    AxisSet rooms_axes; /* the rooms (slots for token rows) of each expert are divided over these
                           ranks */
    /* parts of cp and tp over which experts are divided, in addition to ep */
    AxisSet lent_axes;
    DealId seq_deal; /* how a sequence is divided over ranks of cp; 0: equal parts */
} ContextJob;

typedef struct Job {
    const Config *config;
    Plan *plan;     /* owns graph and mesh; grows as passes run */
    Arena *arena;   /* lives with the plan */
    Arena *scratch; /* reset after each pass */
    Diag *diag;
    LowerOptions options;
    PipeJob pipe;
    ShardingJob sharding;
    TpJob tp;
    ContextJob context;
    bool own_statistics; /* set by domain: gradients of sums over a field are not summed over ranks
                          */
    bool interior_first; /* set by domain: convolutions compute inner rows during an exchange */
    bool keep_halos;     /* set by domain: halos stay for the backward pass */
    AxisSet data_axes;   /* dp_replicate, dp_shard, ep and cp: ranks along these axes have different
                          * tokens and sum gradients */
} Job;

struct PassSpec;
typedef struct Pass {
    const char *name;
    const struct PassSpec *spec; /* the spec of a pass that the user names; NULL: the pass runs in
                                    every plan, and only the fields below are used */
    bool reports;                /* also runs after another pass has failed, to report its errors */
    bool (*run)(Job *job);
} Pass;
/* The passes of the graph, in order. planner/lower/compile.h runs them and lowers the result. */
extern const Pass *const passes_list;
extern const uint32_t passes_count;
/* Changes `config` so that one rank computes the same values: no axes, and only the passes that
 * change the values of a step. */
void passes_for_one_rank(Config *config);
/* Returns the user's list in one line: "tp(sequence), ac(full), fsdp2(reshard)", or "none". */
const char *passes_text(Arena *arena, const Config *config);

/* Facts about a plan's pipeline: the rank with the most stage activations in flight, and the
 * fraction of the step in which ranks idle. This fraction assumes that forward, input gradient and
 * weight gradient take the same time. Returns false if the plan has no pipeline. */
typedef struct PipelineFacts {
    uint32_t n_stages, peak, rank;
    double idle;
} PipelineFacts;
bool passes_pipeline(const Config *config, const Plan *plan, Arena *arena, PipelineFacts *facts);

#endif
