/* The passes and their helpers. A pass returns false after it has reported an error. Only the files
 * that make plans (planner/passes and planner/lower) include this header. */
#ifndef TANDEM_PASSES_PASS_H
#define TANDEM_PASSES_PASS_H

#include "planner/front/fold.h"
#include "planner/front/pass_spec.h"
#include "planner/passes/passes.h"

/* Returns the user's options for a pass; NULL if `parallel` does not list it. */
const PassConfig *pass_config(const Job *job, PassName name);

const char *pass_word(PassName name); /* returns the name of the pass in a script: "fsdp2" */
/* pass_axes returns the mesh axes whose layouts the pass assigns (axes.def). pass_ranks returns the
 * number of ranks along them. */
AxisSet pass_axes(const Job *job, PassName name);
uint32_t pass_ranks(const Config *config, PassName name);
/* Checks the order of the user's list against the edges of the PassSpecs. Reports "pass-order",
 * "pass-twice". */
bool order_check(const Config *config, Arena *arena, Diag *d);
/* Returns the first pass of the user's list that must come after `pass`; NULL if there is none. */
const PassConfig *order_first_after(const Config *config, PassName pass);

/* Checks that every axis of more than one rank has a pass that uses it. Reports "axis-unused",
 * "axis-unsupported", "data-none", "data-twice", and warns of requests without effect. */
bool passes_check_axes(const Config *config, const Graph *g, Diag *d);

/* The passes of the INNER rows of passes.def, which run in every plan. The passes that a user lists
 * are in their PassSpecs. */
/* Sets plan->mesh and job->data_axes. Some axes are refined: one axis is split into two, because an
 * option concerns only some of its ranks. */
bool pass_mesh(Job *job);
bool pass_initialise(Job *job); /* checks that every parameter has an initialiser */
bool pass_units(Job *job);      /* adds every parameter without a unit to a unit */
bool pass_pad(Job *job);        /* pads the deals of the weights that make the logits */
bool pass_propagate(Job *job);  /* sets Node.split, and Tensor.use of every activation */
bool pass_backward(Job *job);   /* adds the gradient nodes */
/* Moves quantised inputs of weight gradients to the forward pass. */
bool pass_keep_quantised(Job *job);
/* True if tp gathers the tokens that node n reads before n quantises them or finds their
 * magnitudes. Then n has the whole index `letter`, which `axis` splits in its input (float8 {
 * gather_first = true }). */
bool float8_gathers_first(const Job *job, const Node *n, uint32_t axis, char letter);
bool pass_turn(Job *job);    /* adds transposed copies of 8-bit operands */
bool pass_flatten(Job *job); /* chooses the order and offsets of parameters in their units */
bool pass_lower(Job *job);   /* makes the programs, including all collectives */
bool pass_fuse(Job *job);    /* sets Instr.fuse, if compile is listed */
bool pass_memory(Job *job);  /* chooses the offsets of buffers */

/* pad.c: gives outputs the padding of their inputs along indices that no axis splits. Needs
 * layouts. */
void pad_outputs(Graph *g, const Node *n, const Binding *b);

/* gradient.c: returns the gradient tensor of `id`, and makes it if there is none. */
TensorId gradient_of(Job *job, TensorId id);

/* compile_product.c: if compile is listed, orders the gradient nodes so that compile can fuse
 * them. */
void compile_gradients(Job *job);

/* The graph as it was at the last check. check_graph skips tensors and nodes that have not changed
 * since then. If a pass fails, the graph is restored from this copy. All fields except the arena
 * are zero at the beginning. */
typedef struct CheckedGraph {
    Arena *arena;
    LIST(Tensor) tensors;
    LIST(Node) nodes;
    LIST(Unit) units;
    uint32_t n_modules, n_attrs, n_axes;
} CheckedGraph;
/* Checks the graph's structure after a pass; reports "graph-structure". */
bool check_graph(const Job *job, CheckedGraph *last, const char *pass);

/* Sets matched[module] to true for each module that the pattern names, and returns their number. If
 * it names none, reports "pattern-matched-nothing" or "pattern-not-module" with the nearest path.
 * `where` is the name of the option: "tp.plan". */
uint32_t pattern_mark(Job *job, const char *where, const Pattern *pattern, bool *matched);
/* Read tp { plan }: tp_plan_params reads the layouts of parameters, before parameters are placed.
 * tp_plan_activations reads the layouts of activations, afterwards. tp_plan_params returns the
 * number of modules that the table names; UINT32_MAX after errors. */
typedef struct TpPlan {
    uint32_t *of_module; /* [module]: 1 + index of its pattern; 0: none */
} TpPlan;
uint32_t tp_plan_params(Job *job, const TpOptions *options, TpPlan *plan);
void tp_plan_activations(Job *job, const TpOptions *options, const TpPlan *plan);

/* For each parameter, 1 + the dimension that counts KV groups, and 1 + the dimension that counts
 * query heads in a group; 0: none. The ops that read a parameter determine them. fused: the number
 * of query heads that are stored together with their key and value. */
typedef struct HeadDims {
    int8_t groups, repeat;
    int64_t fused;
} HeadDims;
const HeadDims *tp_head_dims(Job *job); /* [tensor] */
/* Returns the number of equal parts into which a sequence must divide if cp has this many ranks. If
 * tp cuts sequences too, each of its ranks gets equally many tokens. */
uint32_t cp_parts(const Job *job, uint32_t ranks);
/* Refines the axis cp if a ring connects groups of its ranks, or if several ranks hold the same
 * group of a scan. */
void cp_refine(Job *job);
void cp_scan_refine(Job *job);
/* Returns the letter of the index that `axis`, a part of cp, splits in a state-space node. */
char cp_scan_letter(const Job *job, const Node *n, uint32_t axis);
/* True if cp can divide the heads of a state-space node evenly. Otherwise reports
 * "divides-heads". */
bool cp_scan_fits(const Job *job, const Node *n);
/* Refines the axis tp, before any placement, if it has more ranks than an attention has KV
 * heads. */
void tp_refine(Job *job);
/* Assigns SPLIT(groups) on the outer axes of tp while they divide the groups, and SPLIT(repeat) or
 * WHOLE on the other axes of tp. Returns false if the query heads of a group cannot be cut in this
 * way. *rest is the number of parts into which they must be cut. */
bool tp_place_heads(const Job *job, Tensor *t, HeadDims heads, uint32_t *rest);
/* Splits the query heads of a fused projection in the same way as those of a separate query
 * projection (wq). */
void tp_place_fused(Job *job);
bool tp_heads_fit(int64_t groups, int64_t repeat, uint32_t tp);

/* Returns the module of the innermost FSDP unit that contains `module`; 0 for the root unit. */
ModuleId unit_module(const Job *job, ModuleId module);
/* Returns how often an expert must be chosen for its bias to stay unchanged: the choices of a step
 * divided by the number of experts. Node `counter` counts the choices. */
double mean_count(const Job *job, const Node *counter);
bool unit_is_root(const Job *job, UnitId unit);
/* Returns the pipeline rank that holds a parameter; 0 without pp. */
uint32_t param_rank(const Job *job, TensorId param);
/* Returns the second of the two pipeline ranks that use a parameter (tied weights); UINT32_MAX if
 * only one rank uses it. Such a parameter has a unit of its own. Both ranks have the parameter,
 * exchange their gradients and make the same update. */
uint32_t param_second_rank(const Job *job, TensorId param);

/* Makes a unit of each block: a flat buffer that is split over `shard`. Parameters outside of
 * blocks form the root unit, or several. */
typedef struct UnitRule {
    AxisSet shard, replicate;
    uint64_t root_elements; /* the root is cut into units of this many elements; 0: it is not cut */
    bool may_be_one;        /* allows one unit for the whole model */
    const Patterns *units;  /* the modules that are units; if none is given: the blocks */
} UnitRule;
bool units_by_block(Job *job, const PassConfig *pass, const UnitRule *rule);
/* Makes buckets of a given number of bytes or elements, beginning at the end of the model. Each
 * bucket is whole on every rank. */
typedef enum BucketKind { BUCKET_bytes, BUCKET_elements } BucketKind;
bool units_by_bucket(Job *job, double size, BucketKind kind);
/* Warns "not-applied" about passes whose axis has size 1, and about options that have no effect on
 * the plan. */
void warn_not_applied(const Config *config, Diag *d);
/* Checks that the options of zero{} do not contradict each other; reports "zero-option". */
void zero_check_options(const Config *config, Diag *d);
/* Applies FSDP2's mixed-precision policy to parameters, units and activations. Casts an activation
 * where another unit reads it. Reports "mp-dtypes". */
bool mixed_precision(Job *job, const MpPolicy *policy);
/* Returns the data axes over which the model itself divides a parameter: ep for experts. The
 * gradient of the parameter is summed over the other data axes only. */
AxisSet own_axes(const Job *job, TensorId param);
/* Returns the deal of a sequence over `parts` ranks, by which it is cut first over cp and then over
 * tp; 0: equal parts. */
DealId sequence_deal(const Job *job, uint32_t parts);
/* Sets the deal of the sequence dimensions of t, for its layout in use. */
void sequence_fit(const Job *job, Tensor *t);
/* unit_new makes an empty unit for a data pass; unit_take adds a parameter to it. */
UnitId unit_new(Job *job, const char *name, AxisSet shard, AxisSet replicate);
void unit_take(Job *job, UnitId unit, TensorId param);

#endif
