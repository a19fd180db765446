/* The passes, one file each, in the order of passes.c. A pass states what it requires and what it
 * leaves true; it returns false after reporting errors. Only passes.c and the passes include this.
 */
#ifndef TANDEM_PASSES_PASS_H
#define TANDEM_PASSES_PASS_H

#include "planner/front/pass_spec.h"
#include "planner/passes/passes.h"

/* The user's options for a pass; NULL if not asked for. */
const PassConfig *pass_config(const Job *job, PassName name);

const char *pass_word(PassName name); /* "fsdp2" */
/* The user's list against the edges of order.c: "pass-order", "pass-twice". */
bool order_check(const Config *config, Arena *arena, Diag *d);

/* Every axis of more than one rank has a pass that uses it: "axis-unused", "axis-unsupported",
 * "data-none", "data-twice"; and warnings of what is not applied. */
bool passes_check_axes(const Config *config, Diag *d);

/* The INNER rows of passes.def; the others are their PassSpec's. */
bool pass_mesh(Job *job);       /* config -> plan->mesh, refined; job->data_axes */
bool pass_initialise(Job *job); /* every parameter has an initialiser */
bool pass_units(Job *job);      /* every parameter left over joins one unit */
bool pass_propagate(Job *job);  /* Node.split, Tensor.use of every activation */
bool pass_backward(Job *job);   /* gradient nodes */
bool pass_turn(Job *job);       /* transposed copies of 8-bit operands */
bool pass_flatten(Job *job);    /* order and offsets of parameters in their units */
bool pass_lower(Job *job);      /* programs, collectives by the one rule */
bool pass_fuse(Job *job);       /* Instr.fuse, if compile is listed */
bool pass_memory(Job *job);     /* offsets */

/* backward.c: the gradient tensor of `id`, made if there is none. */
TensorId gradient_of(Job *job, TensorId id);

/* compile_product.c: gradients' nodes in the order in which compile can fuse them, if it is listed.
 */
void compile_gradients(Job *job);

/* The graph's structure after a pass; reports "graph-structure". */
bool check_graph(const Job *job, const char *pass);

/* Marks the modules that a pattern names in matched[module]; how many there are. None: an error
 * ("pattern-matched-nothing", "pattern-not-module") with the nearest path; `where`: "tp.plan". */
uint32_t pattern_mark(Job *job, const char *where, const Pattern *pattern, bool *matched);
/* tp { plan }: what it asks of parameters, before they are placed; and of activations, after. How
 * many modules it names; UINT32_MAX after errors. */
typedef struct TpPlan {
    uint32_t *of_module; /* [module] 1 + index of its pattern; 0: none */
} TpPlan;
uint32_t tp_plan_params(Job *job, const TpOptions *options, TpPlan *plan);
void tp_plan_activations(Job *job, const TpOptions *options, const TpPlan *plan);

/* Dimensions that are KV groups and query heads a group: 1 + dimension, 0: none. Derived from the
 * ops that read a parameter. fused: query heads a group that lie with their key and value. */
typedef struct HeadDims {
    int8_t groups, repeat;
    int64_t fused;
} HeadDims;
const HeadDims *tp_head_dims(Job *job); /* [tensor] */
/* Refines tp, before anything is placed, where ranks outnumber the KV heads of an attention. */
void tp_refine(Job *job);
/* SPLIT(groups) on the outer axes of tp, as far as the groups go, SPLIT(repeat) or WHOLE on the
 * others. False: the query heads of a group cannot be cut so; *rest: into how many. */
bool tp_place_heads(const Job *job, Tensor *t, HeadDims heads, uint32_t *rest);
/* Query heads that are taken out of a fused projection are cut as those of wq would be. */
void tp_place_fused(Job *job);
bool tp_heads_fit(int64_t groups, int64_t repeat, uint32_t tp);

/* The module that is an FSDP unit of its own and holds `module`; 0: the root. */
ModuleId unit_module(const Job *job, ModuleId module);
bool unit_is_root(const Job *job, UnitId unit);
/* The pipeline rank that holds a parameter; 0 without pp. */
uint32_t param_rank(const Job *job, TensorId param);
/* A parameter tied across pipeline ranks has a second home, and a unit of its own: both hold it,
 * both sum their gradients and make the same update. Its rank; UINT32_MAX: there is none. */
uint32_t param_second_rank(const Job *job, TensorId param);

/* Units by block, FLAT over `shard`. Parameters outside of blocks form the root unit, or several.
 */
typedef struct UnitRule {
    AxisSet shard, replicate;
    uint64_t root_elements; /* the root is cut into units of so many; 0: it is not */
    bool may_be_one;        /* the user wants the whole model as one unit */
    const Patterns *units;  /* the modules that are units; none: blocks */
} UnitRule;
bool units_by_block(Job *job, const PassConfig *pass, const UnitRule *rule);
/* Buckets of so many bytes or elements, whole on every rank, from the model's end. */
typedef enum BucketKind { BUCKET_bytes, BUCKET_elements } BucketKind;
bool units_by_bucket(Job *job, double size, BucketKind kind);
/* Passes without their axis, options that nothing of the plan reads: warnings "not-applied". */
void warn_not_applied(const Config *config, Diag *d);
/* ... of a pass that uses one axis, where that has one rank. */
void warn_axis(const Config *config, PassName pass, AxisName axis, Diag *d);
/* zero{}'s options among themselves; reports "zero-option". */
void zero_check_options(const Config *config, Diag *d);
/* FSDP2's policy on parameters, units and activations; casts where units meet. "mp-dtypes". */
bool mixed_precision(Job *job, const MpPolicy *policy);
/* The data axes that share a parameter itself (experts, over ep): it is summed over the others. */
AxisSet own_axes(const Job *job, TensorId param);
/* The deal of a sequence over `parts` ranks, of cp and then of tp; 0: the equal one. */
DealId sequence_deal(const Job *job, uint32_t parts);
/* Dimensions that are dealt out as sequences are, for the layout in use. */
void sequence_fit(const Job *job, Tensor *t);
/* Units as the data passes make them. */
UnitId unit_new(Job *job, const char *name, AxisSet shard, AxisSet replicate);
void unit_take(Job *job, UnitId unit, TensorId param);

#endif
