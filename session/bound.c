/* Lower bounds of memory and time that need no compiled plan (bound.h). Each bound is an average
 * over ranks: the fullest or slowest rank needs at least the average. Costs that only the compiled
 * plan shows are left out: copies for tensor parallelism, workspace, pipeline bubbles,
 * communication. */
#include "session/bound.h"

#include <math.h>

#include "planner/front/fold.h"
#include "session/bound_kernels.h"
#include "sim/compute/kernels.h"
#include "sim/runtime/runtime.h"

/* Returns the product of the sizes of the axes in the set `axes`. */
static double size_over(const Config *c, AxisNames axes)
{
    double n = 1;
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        if (axes_have(axes, (AxisName)a) && c->axis_size[a] > 1) n *= c->axis_size[a];
    return n;
}

static double ranks_of(const Config *c)
{
    return size_over(c, ~(AxisNames)0);
}

static double stages_of(const Config *c)
{
    return size_over(c, axes_with(AXIS_STAGES));
}

static double fewer_bytes(DType a, DType b)
{
    return a == DT_none                      ? dtype_bytes(b)
           : dtype_bytes(a) < dtype_bytes(b) ? dtype_bytes(a)
                                             : dtype_bytes(b);
}

/* True if the plan may freeze parts of the model. Which parts, only the passes find out, so no
 * bound may count work or memory of the backward pass. */
static bool may_be_frozen(const Config *c)
{
    return config_pass(c, PASS_freeze) != NULL;
}

/* How many ranks certainly store the same weight (weights), and the same moments of the optimizer
 * (states). 1 if experts are also divided over ranks of cp or tp: then those ranks store different
 * experts. */
typedef struct Copies {
    double weights, states;
} Copies;

static Copies copies_of(const Config *c)
{
    const PassConfig *zero = config_pass(c, PASS_zero);
    const AxisNames sharing = axes_with(AXIS_STATES);
    const double replicas = size_over(c, axes_cutting(INDEX_samples) & ~sharing);
    const double shards = size_over(c, axes_with(AXIS_UNITS));
    if (config_lends_experts(c)) return (Copies){1, 1};
    if (config_pass(c, PASS_fsdp2) != NULL) return (Copies){replicas, replicas};
    if (zero == NULL || zero->zero.strategy == ZERO_no_shard)
        return (Copies){replicas * shards, replicas * shards};
    const bool whole = zero->zero.strategy != ZERO_optim_grads_params;
    return (Copies){whole ? replicas * shards : replicas, replicas};
}

static double param_elements(const Graph *g, bool blocks_only)
{
    double n = 0;
    for (TensorId t = 1; t < g->tensors.n; t++) {
        const Tensor *tensor = &g->tensors.at[t];
        double elements = tensor->role == ROLE_param;
        if (blocks_only && g->modules.at[tensor->module].layer == 0) continue;
        for (uint8_t d = 0; d < tensor->n_dims; d++) elements *= (double)tensor->dim[d];
        n += elements;
    }
    return n;
}

/* Returns the bytes of each parameter's gradient, if the gradients of all parameters certainly
 * exist at the same time, as clipping by the global norm needs; otherwise 0. */
static double gradient_of(const Config *c)
{
    if (c->optimizer.clip_norm <= 0 || may_be_frozen(c)) return 0;
    return fmin(fewer_bytes(c->reduce, c->compute), dtype_bytes(c->param));
}

static bool is_offloaded(const Config *c)
{
    const PassConfig *fsdp = config_pass(c, PASS_fsdp2);
    return fsdp != NULL && fsdp->fsdp2.offload;
}

static uint64_t gradient_bytes(const Config *c, const Graph *g, bool blocks_only)
{
    if (is_offloaded(c)) return 0;
    const double n = param_elements(g, blocks_only) / ranks_of(c);
    return (uint64_t)(n * copies_of(c).states * gradient_of(c));
}

static uint64_t state_bytes(const Config *c, const Graph *g, bool blocks_only)
{
    const PassConfig *zero = config_pass(c, PASS_zero);
    if (is_offloaded(c)) return 0; /* parameters, gradients and moments are in host memory */
    const Copies copies = copies_of(c);
    const double n = param_elements(g, blocks_only) / ranks_of(c);
    /* a weight that every rank stores whole may be stored in the computation's dtype */
    double weight = zero != NULL ? fewer_bytes(c->param, c->compute) : dtype_bytes(c->param);
    /* moments have the storage dtype of the weights, unless the plan says otherwise */
    double moments = 0, rest = dtype_bytes(c->param);
    if (zero != NULL && zero->zero.preserve_fp32_weights == CHOICE_no) rest = weight;
    if (may_be_frozen(c))
        weight = fmin(fewer_bytes(c->param, c->compute),
                      fewer_bytes(config_pass(c, PASS_freeze)->freeze.dtype, c->compute));
    else if (c->optimizer.kind == OPTIMIZER_adamw)
        moments = 2 * (c->optimizer.state != DT_none ? dtype_bytes(c->optimizer.state) : rest);
    return (uint64_t)(n * (copies.weights * weight + copies.states * (moments + gradient_of(c))));
}

enum { MOST_LAYERS = 4096 };

static double elements_of(const Tensor *t)
{
    double n = 1;
    for (uint8_t d = 0; d < t->n_dims; d++) n *= (double)t->dim[d];
    return n;
}

/* Raises most[n->layer] to the elements of the largest input of `n` that another layer computed. */
static void note_input(const Graph *g, const Node *n, double *most)
{
    for (uint8_t i = 0; i < n->n_in; i++) {
        const Tensor *t = &g->tensors.at[n->in[i]];
        if (t->role != ROLE_activation || t->producer == 0) continue;
        if (g->nodes.at[t->producer].layer == n->layer) continue;
        if (elements_of(t) > most[n->layer]) most[n->layer] = elements_of(t);
    }
}

static bool is_product(const Graph *g, const Node *n)
{
    return op_info(n->op)->class_ == OP_CLASS_contract && n->n_in >= 2 &&
           g->tensors.at[n->in[1]].role == ROLE_param;
}

/* True if the tensor may share the memory of another one, as a reshape or slice does. */
static bool may_alias(const Graph *g, TensorId t)
{
    const NodeId by = g->tensors.at[t].producer;
    if (by == 0) return true;
    const OpInfo *op = op_info(g->nodes.at[by].op);
    return op->class_ == OP_CLASS_reshape || (op->flags & (OP_SCATTERS | OP_TAKES)) != 0;
}

/* Returns the bytes, summed over all ranks, of the activations that the backward pass of a
 * micro-batch needs, without those that may be recomputed. */
static double needed_bytes(const Config *c, const Graph *g, Arena *scratch)
{
    bool *needed = arena_array(scratch, g->tensors.n + 1, sizeof *needed);
    /* with a pipeline, the fullest rank may be one without the head, so leave the head out */
    const bool head = stages_of(c) < 2;
    for (NodeId id = 1; id < g->nodes.n; id++)
        if (head || g->nodes.at[id].layer > 0) bound_mark_needed(&g->nodes.at[id], needed);
    double sum = 0;
    for (TensorId t = 1; t < g->tensors.n; t++) {
        const Tensor *tensor = &g->tensors.at[t];
        if (!needed[t] || tensor->role != ROLE_activation || may_alias(g, t)) continue;
        if (!bound_in_region(c, g, &g->nodes.at[tensor->producer]))
            sum += elements_of(tensor) * dtype_bytes(tensor->dtype);
    }
    return sum;
}

/* Returns the elements that blocks certainly save for the backward pass of a micro-batch, summed
 * over all ranks. Without recomputation or compile{}: the input of each product, which the weight's
 * gradient needs. Otherwise: the largest input of each block. */
static double kept_elements(const Config *c, const Graph *g, Arena *scratch)
{
    const PassConfig *ac = config_pass(c, PASS_ac);
    const bool plain = (ac == NULL || ac->ac == AC_none) && config_pass(c, PASS_compile) == NULL;
    double *most = arena_array(scratch, MOST_LAYERS, sizeof *most), sum = 0;
    bool *seen = arena_array(scratch, g->tensors.n + 1, sizeof *seen);
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        if (n->layer == 0 || n->layer >= MOST_LAYERS) continue;
        if (!plain) {
            note_input(g, n, most);
        } else if (is_product(g, n) && !seen[n->in[0]]) {
            seen[n->in[0]] = true;
            if (g->tensors.at[n->in[0]].role == ROLE_activation)
                sum += elements_of(&g->tensors.at[n->in[0]]);
        }
    }
    for (uint32_t i = 0; i < MOST_LAYERS; i++) sum += most[i];
    return sum;
}

/* Returns how many micro-batches have saved activations on the first pipeline rank at the same
 * time. */
static double in_flight(const Config *c, double steps)
{
    const PassConfig *pp = config_pass(c, PASS_pp);
    const double stages = stages_of(c);
    if (pp == NULL || stages < 2 || pp->pp.is_own || pp->pp.has_split || pp->pp.round != 0)
        return 1;
    if (pp->pp.schedule == SCHEDULE_gpipe) return steps;
    return pp->pp.schedule == SCHEDULE_1f1b ? fmin(stages, steps) : 1;
}

static double steps_of(const Config *c)
{
    return (double)c->global_batch / ((double)c->micro_batch * (double)config_data_ranks(c));
}

static uint64_t kept_bytes(const Config *c, const Graph *g)
{
    const PassConfig *ac = config_pass(c, PASS_ac);
    /* a region that the user names may span several blocks, and then only its first input is saved
     */
    if (ac != NULL && ac->ac == AC_modules) return 0;
    if (may_be_frozen(c)) return 0;
    Arena *scratch = arena_new();
    const PassConfig *eight = config_pass(c, PASS_float8);
    const bool in_four =
        eight && eight->float8.recipe == FLOAT8_nvfp4 && eight->float8.keep_quantised;
    const double size = in_four ? 0.5 : eight ? 1 : dtype_bytes(c->compute);
    double bytes = kept_elements(c, g, scratch) * size;
    /* a framework's kernels, and passes that fuse or split ops, may save other tensors */
    if (!eight && c->runtime.name == NULL && config_pass(c, PASS_compile) == NULL &&
        config_pass(c, PASS_tile) == NULL && config_pass(c, PASS_domain) == NULL)
        bytes = fmax(bytes, needed_bytes(c, g, scratch));
    arena_free(scratch);
    return (uint64_t)(bytes * in_flight(c, steps_of(c)) / ranks_of(c));
}

/* FLOPs of one micro-batch on all ranks together, in matrix products with weights and in attention.
 * Only work that certainly exists is counted. */
typedef struct Products {
    double all;       /* products: forward, and the backward work that is certain */
    double blocks;    /* products inside blocks: forward */
    double outside;   /* products of the head, after the blocks: forward and backward */
    double attention; /* attention: forward and backward */
} Products;

/* Returns the FLOPs of one node, or 0 if it is neither a product with a weight nor attention. */
static double flops_of(const Graph *g, const Node *n)
{
    Binding b;
    const Attrs *attrs = graph_attrs_at(g, n->attrs);
    if ((!op_attends(n->op) && !is_product(g, n)) || !graph_bind(g, n, &b, NULL)) return 0;
    return op_flops(n->op, &b, b.size, op_seen(n->op, &b, attrs));
}

static Products products_of(const Config *c, const Graph *g, Arena *scratch)
{
    Products p = {0};
    /* with frozen parts, only the forward pass is certain */
    const bool forward = may_be_frozen(c);
    double *flops_at = arena_array(scratch, g->nodes.n + 1, sizeof *flops_at);
    SeenWorks seen = {.n = 0};
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        const NodeId first = bound_first_alike(&seen, g, id);
        const double flops = first != id ? flops_at[first] : flops_of(g, n);
        flops_at[id] = flops;
        if (flops == 0) continue;
        /* attention has two products forward and five backward; counted as 1 + 2 times the forward
         * FLOPs */
        if (op_attends(n->op)) {
            p.attention += forward ? flops : 3 * flops;
            continue;
        }
        const double both = flops * (forward                                           ? 1
                                     : g->tensors.at[n->in[0]].role == ROLE_activation ? 3
                                                                                       : 2);
        p.all += both;
        if (n->layer > 0)
            p.blocks += flops;
        else if (p.blocks >
                 0) /* nodes are in execution order, so this node comes after the blocks */
            p.outside += both;
    }
    return p;
}

/* True if each rank has one stage, all stages have equally many blocks, and the schedule is 1f1b or
 * gpipe. Then the first rank ends only after the last micro-batch's gradient has come back through
 * all stages. */
static bool is_plain_pipeline(const Config *c, const Graph *g)
{
    const PassConfig *pp = config_pass(c, PASS_pp);
    if (g->info.n_layers % (uint32_t)stages_of(c) != 0) return false;
    if (pp == NULL || stages_of(c) < 2 || pp->pp.is_own || pp->pp.has_split || pp->pp.round != 0)
        return false;
    return pp->pp.schedule == SCHEDULE_1f1b || pp->pp.schedule == SCHEDULE_gpipe;
}

/* Returns the FLOPs that all ranks could compute during a step with a pipeline, as if no rank were
 * ever idle; 0: unknown. To the work itself it adds the idle time of filling: the last rank waits
 * until the first micro-batch has passed the other stages, and the first rank ends when the last
 * gradient has come back through them. */
static double pipeline_flops(const Config *c, const Graph *g, const Products *p, double steps)
{
    const double stages = stages_of(c);
    if (!is_plain_pipeline(c, g) || may_be_frozen(c)) return 0;
    const double filling = 2 * p->blocks * (stages - 1) / stages;
    return stages * (steps * (3 * p->blocks / stages + p->outside) + filling);
}

static bool computes_twice(const Config *c)
{
    const PassConfig *ac = config_pass(c, PASS_ac);
    return ac != NULL && ac->ac == AC_full && ac->ac_every <= 1 && ac->ac_ops.n == 0;
}

/* Returns the sum of the times of one rank's kernels in a step [seconds], with the filling of a
 * pipeline; 0: the kernels' sizes are unknown. */
static double kernels_s(const Config *c, const Graph *g, double steps)
{
    KernelTimes t;
    if (!bound_kernels(c, g, &t)) return 0;
    const double stages = stages_of(c), blocks = (t.blocks_s + t.again_s) / stages,
                 even = steps * (blocks + t.head_s / stages);
    if (!is_plain_pipeline(c, g)) return even;
    const double filling = (t.forward_s + t.input_s) * (stages - 1) / stages;
    return fmax(even, steps * (blocks + t.head_s) + filling);
}

Ps bound_step_ps(const Config *c, const Graph *g)
{
    const Device lasting = kernel_sustained(&c->cluster.device), *device = &lasting;
    const bool eight = config_pass(c, PASS_float8) != NULL, single = c->compute == DT_f32;
    const GemmFit *timed = runtime_products(&c->runtime, device);
    double rate = 0, peak = 0;
    if (c->cluster.is_local || g->tensors.n < 2) return 0;
    if (device->peak_flops[c->compute] <= 0) return 0;
    /* some products may run in 8 bits, or in TF32 instead of fp32; use the fastest rate */
    for (uint32_t t = 1; t < DT_COUNT; t++) {
        if (t != c->compute && !eight && !single) continue;
        if (device->peak_flops[t] <= 0) continue;
        peak = fmax(peak, device->peak_flops[t]);
        rate = fmax(rate, kernel_gemm_most(device, (DType)t, timed));
    }
    /* a framework's kernels may be faster than the fitted model of cuBLAS says */
    if (c->runtime.name != NULL || eight || single) rate = fmax(rate, peak);
    const double steps = steps_of(c);
    Arena *scratch = arena_new();
    const Products p = products_of(c, g, scratch);
    arena_free(scratch);
    const double again =
        /* recomputed attention is left out */
        computes_twice(c) && !may_be_frozen(c) ? p.blocks : 0;
    const double even = (p.all + again) * steps / rate + p.attention * steps / peak,
                 piped = pipeline_flops(c, g, &p, steps) / rate;
    const double seconds = fmax(fmax(even, piped) / ranks_of(c), kernels_s(c, g, steps));
    return (Ps)(seconds * PS_PER_S);
}

Bounds bounds_of(const Config *config, const Graph *graph)
{
    Bounds b = {.state_bytes = state_bytes(config, graph, false)};
    if (graph->tensors.n < 2) return b;
    b.kept_bytes = kept_bytes(config, graph);
    /* The first rank of a pipeline has activations of the most micro-batches. It has blocks, but no
     * head. */
    const bool blocks = in_flight(config, steps_of(config)) > 1;
    if (blocks) b.state_bytes = state_bytes(config, graph, true);
    /* With one micro-batch, a gradient can reuse memory of activations that were freed before. So
     * count only the larger of the two. */
    const uint64_t gradients = gradient_bytes(config, graph, blocks);
    if (steps_of(config) < 2)
        b.kept_bytes = b.kept_bytes > gradients ? b.kept_bytes - gradients : 0;
    return b;
}
