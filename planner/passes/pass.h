/* Functions that passes share. A pass returns false after it has reported an error. Only
 * planner/passes and planner/lower include this header. */
#ifndef TANDEM_PASSES_PASS_H
#define TANDEM_PASSES_PASS_H

#include "planner/front/fold.h"
#include "planner/front/pass_spec.h"
#include "planner/passes/passes.h"

/* Returns the options of a pass; NULL if `parallel` does not list it. */
const PassConfig *pass_config(const Job *job, PassName name);

const char *pass_word(PassName name); /* returns the pass's word in a script, such as "fsdp2" */
/* pass_axes returns the mesh axes on which the pass sets layouts (axes.def). pass_ranks returns how
 * many ranks they have together. */
AxisSet pass_axes(const Job *job, PassName name);
uint32_t pass_ranks(const Config *config, PassName name);
/* Checks that `parallel` lists each pass once, and in an order that the PassSpecs allow. Reports
 * "pass-twice" and "pass-order". */
bool order_check(const Config *config, Arena *arena, Diag *d);
/* Returns the first entry of `parallel` that must come behind `pass`; NULL if there is none. */
const PassConfig *order_first_after(const Config *config, PassName pass);

/* Checks that a pass uses every axis of several ranks. Reports "axis-unused", "axis-unsupported",
 * "data-none" and "data-twice", and warns of settings without effect. */
bool passes_check_axes(const Config *config, const Graph *g, Diag *d);

/* The passes of every plan (rows INNER of passes.def). Passes that a user lists are in their
 * PassSpecs. */
/* sets plan->mesh and job->data_axes; splits a named axis if an option concerns only some of its
 * ranks (mesh_pass.c) */
bool pass_mesh(Job *job);
bool pass_initialise(Job *job); /* checks that every parameter has an initialiser */
bool pass_units(Job *job);      /* puts every parameter that has no unit into one */
bool pass_pad(Job *job);        /* pads the vocabulary of the weights that compute logits (pad.c) */
bool pass_propagate(Job *job);  /* sets Node.split, and Tensor.use of every activation */
bool pass_backward(Job *job);   /* appends the gradient nodes */
/* moves the quantisation of weight gradients' inputs to the forward pass (keep_quantised.c) */
bool pass_keep_quantised(Job *job);
/* Node n quantises tokens that tp splits along index `letter` on `axis`, or finds their magnitudes.
 * True if tp gathers the tokens first (float8 { gather_first = true }), so that n needs the whole
 * index. */
bool float8_gathers_first(const Job *job, const Node *n, uint32_t axis, char letter);
bool pass_turn(Job *job);    /* adds transposed copies of 8-bit operands (turn.c) */
bool pass_flatten(Job *job); /* orders the parameters within their flat buffers (flatten.c) */
bool pass_lower(Job *job);   /* builds the programs, with all collectives */
bool pass_fuse(Job *job);    /* sets Instr.fuse (compile.c) */
bool pass_memory(Job *job);  /* places all buffers in the arena */

/* pad.c: gives the outputs of n the padding that its inputs have along indices that no axis splits.
 * `n` must have its splits. */
void pad_outputs(Graph *g, const Node *n, const Binding *b);

/* gradient.c: returns the gradient tensor of tensor `id`. Adds one if there is none. */
TensorId gradient_of(Job *job, TensorId id);

/* compile_product.c: if compile is listed, moves gradient nodes so that products can compute
 * them. */
void compile_gradients(Job *job);

/* A copy of the graph at the last check. check_graph skips what has not changed since then, and a
 * graph is restored from it if a pass fails. Start with all fields except `arena` zero. */
typedef struct CheckedGraph {
    Arena *arena;
    LIST(Tensor) tensors;
    LIST(Node) nodes;
    LIST(Unit) units;
    uint32_t n_modules, n_attrs, n_axes;
} CheckedGraph;
/* Checks the structure of the graph after pass `pass`. Reports "graph-structure". */
bool check_graph(const Job *job, CheckedGraph *last, const char *pass);

/* Sets matched[m] for each module m whose path matches the pattern, and returns how many there are.
 * If there is none, reports "pattern-matched-nothing" or "pattern-not-module" with the nearest
 * path. `where` is the option with the pattern, such as "tp.plan". */
uint32_t pattern_mark(Job *job, const char *where, const Pattern *pattern, bool *matched);
/* tp { plan }, a table from path patterns to styles. tp_plan_params sets the styles of parameters,
 * before tp splits them. It returns how many modules the patterns match, or UINT32_MAX after an
 * error. tp_plan_activations requests layouts of activations, afterwards. */
typedef struct TpPlan {
    uint32_t *of_module; /* of_module[module]: 1 + index of its pattern; 0: none */
} TpPlan;
uint32_t tp_plan_params(Job *job, const TpOptions *options, TpPlan *plan);
void tp_plan_activations(Job *job, const TpOptions *options, const TpPlan *plan);

/* The head dimensions of a parameter, as the ops that read it use them. groups: 1 + the dimension
 * of KV heads. repeat: 1 + the dimension of query heads of a KV head. 0: there is none. fused: how
 * many query heads are stored together with their key and value, in a fused projection. */
typedef struct HeadDims {
    int8_t groups, repeat;
    int64_t fused;
} HeadDims;
const HeadDims *tp_head_dims(Job *job); /* [tensor] */
/* Returns into how many equal parts a sequence must be divisible if cp has `ranks` ranks: 2 for
 * each rank in a zigzag; more if tp also divides tokens. */
uint32_t cp_parts(const Job *job, uint32_t ranks);
/* Both split cp into two mesh axes if necessary. cp_refine: if a ring connects groups of ranks.
 * cp_scan_refine: if several ranks share a group of heads in a state-space layer. */
void cp_refine(Job *job);
void cp_scan_refine(Job *job);
/* Returns the letter of the index (groups or heads) that `axis`, a mesh axis of cp, splits in a
 * node of a state-space layer. */
char cp_scan_letter(const Job *job, const Node *n, uint32_t axis);
/* True if cp can divide the heads of a state-space node evenly. Otherwise reports
 * "divides-heads". */
bool cp_scan_fits(const Job *job, const Node *n);
/* Splits tp into several mesh axes if it has more ranks than an attention has KV heads. Runs before
 * any parameter is split. */
void tp_refine(Job *job);
/* Sets t->use on tp. The outer mesh axes of tp split the KV heads (groups) as long as they divide
 * them; the others split the query heads of each KV head, or nothing. Sets *rest to the number of
 * ranks that share a KV head. Returns false if its query heads cannot be divided over them. */
bool tp_place_heads(const Job *job, Tensor *t, HeadDims heads, uint32_t *rest);
/* Splits the query heads that are taken from a fused projection in the same way as the output of a
 * separate query projection (wq). */
void tp_place_fused(Job *job);
bool tp_heads_fit(int64_t groups, int64_t repeat, uint32_t tp);

/* Returns the module of the innermost FSDP unit that contains `module`; 0: the root unit. */
ModuleId unit_module(const Job *job, ModuleId module);
/* Returns how often an expert would be chosen in a step if all were chosen equally often: then its
 * balancing bias does not change. `counter` is the node that counts the choices (loads). */
double mean_count(const Job *job, const Node *counter);
bool unit_is_root(const Job *job, UnitId unit);
/* Returns the pipeline rank that stores a parameter; 0 without pp. */
uint32_t param_rank(const Job *job, TensorId param);
/* For a parameter that two pipeline ranks use (tied weights): returns the second of them; for
 * others UINT32_MAX. Such a parameter is a unit of its own. Both ranks store it, sum their
 * gradients and make the same update. */
uint32_t param_second_rank(const Job *job, TensorId param);

/* How units_by_block groups parameters: each block is a unit whose flat buffer is divided over
 * `shard`. All other parameters form the root unit, or several. */
typedef struct UnitRule {
    AxisSet shard, replicate;
    uint64_t root_elements; /* the most elements of a root unit; 0: no limit, so there is one */
    bool may_be_one;        /* the whole model may be one unit */
    /* modules that are units, if the user lists any; otherwise the blocks are */
    const Patterns *units;
} UnitRule;
bool units_by_block(Job *job, const PassConfig *pass, const UnitRule *rule);
/* Groups parameters into buckets of `size` bytes or elements, from the end of the model on. Every
 * rank stores whole buckets. */
typedef enum BucketKind { BUCKET_bytes, BUCKET_elements } BucketKind;
bool units_by_bucket(Job *job, double size, BucketKind kind);
/* Warns "not-applied" of passes whose axes have one rank, and of options without effect. */
void warn_not_applied(const Config *config, Diag *d);
/* Checks that the options of zero{} do not contradict each other. Reports "zero-option". */
void zero_check_options(const Config *config, Diag *d);
/* Sets the dtypes of parameters, units and activations by FSDP2's mixed-precision policy, and casts
 * activations between units (mixed.c). Reports "mp-dtypes". */
bool mixed_precision(Job *job, const MpPolicy *policy);
/* Returns the data axes that already divide a parameter while it is used: ep for experts. Its
 * gradient is summed over the other data axes only. */
AxisSet own_axes(const Job *job, TensorId param);
/* Returns the deal (which tokens each rank has) of a sequence that is divided over `parts` ranks,
 * first over cp and then over tp. 0: contiguous parts of equal size. */
DealId sequence_deal(const Job *job, uint32_t parts);
/* Sets the deals of t's token dimensions to fit its layout in use. */
void sequence_fit(const Job *job, Tensor *t);
/* unit_new adds an empty unit and returns it. unit_take adds a parameter to a unit. */
UnitId unit_new(Job *job, const char *name, AxisSet shard, AxisSet replicate);
void unit_take(Job *job, UnitId unit, TensorId param);

#endif
