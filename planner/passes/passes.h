/* The passes: what they share while a plan is made, and their list (passes.c). */
#ifndef TANDEM_PASSES_PASSES_H
#define TANDEM_PASSES_PASSES_H

#include "kernels/kernel.h"
#include "planner/front/config.h"
#include "planner/ir/plan.h"

typedef struct LowerOptions {
    DTypeMap dtypes;
    WorkspaceBytes workspace; /* the backend's table; NULL: none */
    Hash128 parent;           /* recorded in the plan; zero: none */
} LowerOptions;

typedef struct Job {
    const Config *config;
    Plan *plan;     /* owns graph and mesh; grows as passes run */
    Arena *arena;   /* lives with the plan */
    Arena *scratch; /* reset after each pass */
    Diag *diag;
    LowerOptions options;
    struct Schedule *schedule; /* set by pp: who does what, in order; one rank without pp */
    uint32_t *stage_of_param;  /* [tensor], set by pp */
    uint32_t *tied_stage;  /* [tensor], set by pp: the stage of another rank that reads it too */
    Fsdp2Options sharding; /* set by fsdp2 or zero: how sharded units live */
    bool resident;         /* weights are gathered once a step and stay */
    bool gathers_bytes; /* set by float8: sharded units of covered weights are gathered in 8 bits */
    bool gather_eager;  /* ... right after the update, not before their first use */
    bool gather_waits, reduce_waits; /* computation waits for each gather, reduction */
    bool double_buffer;              /* units of equal size take turns in two buffers */
    bool registered;                 /* these are registered with the network */
    bool share_gathers, keep_gathered;
    bool pin_replicas;   /* set by tp: gradients of what tp replicates are averaged over it */
    const bool *is_unit; /* [module], set by fsdp2: has a flat unit of its own; NULL without it */
    AxisSet sample_axes; /* dp_replicate, dp_shard, ep: ranks with different samples */
    AxisSet data_axes;   /* these and cp: ranks with different tokens, which sum gradients */
    AxisSet heads_axes;  /* set by cp: attention is computed with heads, not tokens, split here */
    DealId seq_deal;     /* set by cp: how ranks of cp share a sequence; 0: equal parts */
} Job;

struct PassSpec;
typedef struct Pass {
    const char *name;
    const struct PassSpec
        *spec;    /* the user names it; NULL: it runs in every plan, and the rest holds */
    bool reports; /* runs for its errors after another has failed, too */
    bool (*run)(Job *job);
} Pass;
/* The passes of the graph, in order; planner/lower/compile.h runs them and lowers the result. */
extern const Pass *const passes_list;
extern const uint32_t passes_count;
/* The user's list in one line: "tp(sequence), ac(full), fsdp2(reshard)"; "none". */
const char *passes_text(Arena *arena, const Config *config);

/* Of a plan's pipeline: the rank with most activations of stages in flight, and the part of the
 * step in which ranks are idle where forward, input gradient and weight gradient cost the same.
 * False: it has no pipeline. */
typedef struct PipelineFacts {
    uint32_t n_stages, peak, rank;
    double idle;
} PipelineFacts;
bool passes_pipeline(const Config *config, const Plan *plan, Arena *arena, PipelineFacts *facts);

#endif
