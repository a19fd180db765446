/* The list of passes (passes.c), and the data that they share while a plan is compiled (Job). */
#ifndef TANDEM_PASSES_PASSES_H
#define TANDEM_PASSES_PASSES_H

#include "kernels/kernel.h"
#include "planner/front/config.h"
#include "planner/ir/plan.h"

typedef struct LowerOptions {
    DTypeMap dtypes;
    WorkspaceBytes workspace; /* workspace that the backend's kernels need; NULL: none */
    /* if this plan is a shrunk copy of another: that plan's id, for Plan.parent; otherwise zero */
    Hash128 parent;
    /* buffers get no offsets: predictions of times, and of other frameworks' memory, need none */
    bool unplaced;
    /* predicts a longer step of this many micro-batches, of which the plan has only the first few;
     * 0: the plan has them all */
    uint32_t microbatches;
    bool unpadded; /* for comparisons: odd vocabularies get no padding (pad.c) */
    /* for comparisons: lowers every block by itself, in place of copying the programs of equal
     * blocks */
    bool every_block;
    /* for tests: the count of instructions that were copied from an equal block is added here;
     * NULL: not counted */
    uint32_t *n_copied;
} LowerOptions;

/* Set by the pass pp. Without pp there is one pipeline rank. */
typedef struct PipeJob {
    struct Schedule *schedule; /* the order in which each rank runs its stages */
    uint32_t *stage_of_param;  /* [tensor] */
    /* [tensor]: stage of a second rank that also reads it; UINT32_MAX: none */
    uint32_t *tied_stage;
} PipeJob;

/* How units are sharded, gathered and reduced. Set by fsdp2 or zero. */
typedef struct ShardingJob {
    Fsdp2Options options;
    /* is_unit[module]: it has a unit of its own; NULL without fsdp2 and zero and zero */
    const bool *is_unit;
    bool resident; /* weights are gathered once a step and then stay gathered */
    /* set by float8: weights of 8-bit products are gathered in 8 bits, in units of their own */
    bool gathers_bytes;
    /* weights are gathered right after the optimizer's update; false: before their first use */
    bool gather_eager;
    /* computation waits for each gather, or for each reduction, so that nothing overlaps */
    bool gather_waits, reduce_waits;
    bool double_buffer; /* units of equal size use two buffers in turn */
    /* these two buffers, and weights that stay gathered, are registered with NCCL */
    bool registered;
} ShardingJob;

/* Set by tp. */
typedef struct TpJob {
    bool share_gathers; /* products that read the same input share its gather; default: true */
    bool keep_gathered; /* gathered inputs are kept for the backward pass */
    /* averages gradients that are equal on all ranks of tp, which removes rounding differences */
    bool pin_replicas;
} TpJob;

/* Set by cp. */
typedef struct ContextJob {
    /* along these axes, attention exchanges tokens for heads: a rank then has all tokens of its
     * group, but only some heads */
    AxisSet heads_axes;
    /* along these axes, attention reads the keys of one rank after the other */
    AxisSet ring_axes;
    AxisSet scan_axes; /* like heads_axes, for state-space layers (cp_scan.c) */
    /* these axes divide the rooms of each expert, its places for tokens (layout/rows.h) */
    AxisSet rooms_axes;
    /* with ep_mode = "folded" (front/fold.h): mesh axes of cp and tp over which experts are
     * divided, besides ep */
    AxisSet lent_axes;
    DealId seq_deal; /* which tokens each rank of cp has; 0: contiguous parts of equal size */
} ContextJob;

typedef struct Job {
    const Config *config;
    Plan *plan;     /* contains the graph and the mesh; passes fill it */
    Arena *arena;   /* freed together with the plan */
    Arena *scratch; /* reset after each pass */
    Diag *diag;
    LowerOptions options;
    PipeJob pipe;
    ShardingJob sharding;
    TpJob tp;
    ContextJob context;
    /* set by domain: sums over a field have gradients that are not summed over ranks */
    bool own_statistics;
    /* set by domain: convolutions compute inner rows while the halo is exchanged */
    bool interior_first;
    bool keep_halos; /* set by domain: halos are kept for the backward pass */
    /* axes whose ranks read different parts of the batch, such as dp_shard and cp; gradients are
     * summed over them */
    AxisSet data_axes;
} Job;

struct PassSpec;
typedef struct Pass {
    const char *name;
    /* for a pass that users list in `parallel`; NULL: the pass runs in every plan, by the fields
     * below */
    const struct PassSpec *spec;
    bool reports; /* also runs after another pass has failed, to report its own errors */
    bool (*run)(Job *job);
} Pass;
/* The passes on the graph, in order. planner/lower/compile.h runs them and lowers the result. */
extern const Pass *const passes_list;
extern const uint32_t passes_count;
/* Changes `config` to a plan for one rank that computes the same values: no axes, and only the
 * passes that affect values. */
void passes_for_one_rank(Config *config);
/* Returns `parallel` in one line: "tp(sequence), ac(full), fsdp2(reshard)"; "none" if it is
 * empty. */
const char *passes_text(Arena *arena, const Config *config);

/* A plan's pipeline. peak: the most stage activations that a rank stores at once; rank: that rank.
 * idle: the fraction of the step in which ranks wait, if forward, input gradient and weight
 * gradient of a stage take the same time. passes_pipeline returns false if the plan has no
 * pipeline. */
typedef struct PipelineFacts {
    uint32_t n_stages, peak, rank;
    double idle;
} PipelineFacts;
bool passes_pipeline(const Config *config, const Plan *plan, Arena *arena, PipelineFacts *facts);

#endif
