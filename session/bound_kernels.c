/* A lower bound of the time of a rank's matrix products and attention, from the sizes of its
 * kernels. A rank runs them one after the other on one stream, so a step takes at least their sum.
 * Where a pass may split a product by tokens, rows or columns, the bound uses the fastest of these
 * kernels. */
#include "session/bound_kernels.h"

#include <math.h>
#include <string.h>

#include "planner/front/fold.h"
#include "session/bound.h"
#include "sim/compute/kernels.h"
#include "sim/compute/work.h"
#include "sim/runtime/runtime.h"

enum { MOST_SHAPES = 64 };

/* Times of one linear layer's products on one rank, for one micro-batch. */
typedef struct ProductTimes {
    /* n, k: columns and rows of the weight. forward_s: the product. input_s, weight_s: the
     * gradients of its input and of its weight */
    double n, k, forward_s, input_s, weight_s;
} ProductTimes;

typedef struct Local {
    const Device *device;
    DType dtype;
    const GemmFit *timed; /* constants fitted to the runtime's matrix products (runtime_products) */
    double tokens, tp;    /* tokens of a micro-batch on one rank; size of tp */
    ProductTimes known[MOST_SHAPES];
    uint32_t n_known;
} Local;

/* Returns the shortest time of a product of m x k by k x n, if tp may split any one of m, n and k.
 */
static double fastest_s(const Local *l, double m, double n, double k)
{
    const Device *on = l->device;
    double s = cost_lasting_gemm_s(on, l->dtype, m, n, k, l->timed);
    if (l->tp == 1) return s;
    s = fmin(s, cost_lasting_gemm_s(on, l->dtype, ceil(m / l->tp), n, k, l->timed));
    s = fmin(s, cost_lasting_gemm_s(on, l->dtype, m, ceil(n / l->tp), k, l->timed));
    return fmin(s, cost_lasting_gemm_s(on, l->dtype, m, n, ceil(k / l->tp), l->timed));
}

static ProductTimes product_s(Local *l, double n, double k)
{
    for (uint32_t i = 0; i < l->n_known; i++)
        if (l->known[i].n == n && l->known[i].k == k) return l->known[i];
    const ProductTimes t = {n, k, fastest_s(l, l->tokens, n, k), fastest_s(l, l->tokens, k, n),
                            fastest_s(l, k, n, l->tokens)};
    if (l->n_known < MOST_SHAPES) l->known[l->n_known++] = t;
    return t;
}

/* Returns the time of attention on one rank for one micro-batch; `b` has the sizes over all ranks.
 * Returns 0 for attention with an attribute other than scale, causal and window, because it may
 * skip work. */
static double attention_s(const Config *c, const Local *l, const Graph *g, const Node *n,
                          const Binding *b, bool backward)
{
    const HeadsSizes is = op_heads_sizes(n->op, b->size);
    const Attrs *attrs = graph_attrs_at(g, n->attrs);
    const double samples = (double)c->micro_batch, groups = (double)is.groups;
    AttentionWork work = {.kernel = runtime_attention(&c->runtime, l->device), .dtype = l->dtype};
    const Attrs plain = {.scale = attrs->scale, .causal = attrs->causal, .window = attrs->window};
    if (memcmp(attrs, &plain, sizeof plain) != 0 || work.kernel == ATTENTION_unfused) return 0;
    work.kv_heads = samples * fmax(groups / l->tp, 1);
    work.heads = samples * groups * (double)is.heads / l->tp;
    work.queries = (double)is.queries;
    work.keys = (double)is.keys;
    work.head = (double)is.head;
    work.value = (double)is.value;
    work.causal = attrs->causal != 0;
    work.window = (double)attrs->window;
    work.backward = backward;
    return kernel_lasting_attention_s(l->device, &work);
}

/* Returns the time of the nodes that are recomputed in the backward pass: those whose outputs
 * gradients need, and those on whose outputs these depend, within each block. */
static double again_s(const Config *c, const Graph *g, const double *forward_s, Arena *scratch)
{
    for (uint32_t i = 0; i < c->n_passes; i++) {
        const PassConfig *ac = &c->passes[i];
        if (ac->name == PASS_ac && (ac->ac_every > 1 || ac->ac_ops.n > 0 || ac->ac == AC_modules))
            return 0;
    }
    bool *needed = arena_array(scratch, g->tensors.n + 1, sizeof *needed);
    for (NodeId id = 1; id < g->nodes.n; id++)
        if (bound_in_region(c, g, &g->nodes.at[id])) bound_mark_needed(&g->nodes.at[id], needed);
    double sum = 0;
    for (NodeId id = g->nodes.n; id-- > 1;) {
        const Node *n = &g->nodes.at[id];
        bool wanted = false;
        for (uint8_t i = 0; i < n->n_out; i++) wanted = wanted || needed[n->out[i]];
        if (!wanted || !bound_in_region(c, g, n)) continue;
        sum += forward_s[id];
        /* a block's input is saved, so its producer does not run again */
        for (uint8_t i = 0; i < n->n_in; i++) {
            const NodeId by = g->tensors.at[n->in[i]].producer;
            if (by != 0 && g->nodes.at[by].layer == n->layer) needed[n->in[i]] = true;
        }
    }
    return sum;
}

/* True if this file knows how every pass and axis of the plan changes the sizes of kernels. */
static bool applies(const Config *c)
{
    const AxisNames known =
        axes_cutting(INDEX_samples) | axes_with(AXIS_STAGES) | axes_with(AXIS_WEIGHTS);
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        if (c->axis_size[a] > 1 && !axes_have(known, (AxisName)a)) return false;
    for (uint32_t i = 0; i < c->n_passes; i++) {
        const PassName name = c->passes[i].name;
        if (name != PASS_pp && name != PASS_tp && name != PASS_ac && name != PASS_fsdp2 &&
            name != PASS_ddp && name != PASS_zero)
            return false;
    }
    return c->runtime.name == NULL && (c->compute == DT_bf16 || c->compute == DT_f16) &&
           !config_lends_experts(c) && c->height == 0;
}

static bool does_the_same(const Graph *g, const Node *a, const Node *b)
{
    if (a->op != b->op || a->attrs != b->attrs || a->n_in != b->n_in) return false;
    for (uint8_t i = 0; i < a->n_in; i++) {
        const Tensor *x = &g->tensors.at[a->in[i]], *y = &g->tensors.at[b->in[i]];
        if (x->role != y->role || x->n_dims != y->n_dims ||
            memcmp(x->dim, y->dim, x->n_dims * sizeof *x->dim) != 0)
            return false;
    }
    return true;
}

NodeId bound_first_alike(SeenWorks *seen, const Graph *g, NodeId id)
{
    const Node *n = &g->nodes.at[id];
    for (uint32_t i = 0; i < seen->n; i++)
        if (does_the_same(g, &g->nodes.at[seen->first[i]], n)) return seen->first[i];
    if (seen->n < MOST_WORKS) seen->first[seen->n++] = id;
    return id;
}

/* Times of one node's kernels for one micro-batch [seconds]: forward, gradient of the input,
 * gradient of the weight. */
typedef struct NodeTimes {
    double forward_s, input_s, weight_s;
} NodeTimes;

static NodeTimes times_of(const Config *c, Local *l, const Graph *g, const Node *n)
{
    Binding b;
    const bool attends = op_attends(n->op);
    const bool product = op_info(n->op)->class_ == OP_CLASS_contract && n->n_in >= 2 &&
                         g->tensors.at[n->in[1]].role == ROLE_param;
    if ((!product && !attends) || !graph_bind(g, n, &b, NULL)) return (NodeTimes){0};
    if (attends)
        return (NodeTimes){attention_s(c, l, g, n, &b, false), attention_s(c, l, g, n, &b, true),
                           0};
    const ProductWork w = work_of_product(&b, b.size);
    const double all = l->tokens * (double)config_data_ranks(c);
    if (w.batch != 1 || w.m != all) return (NodeTimes){0};
    const ProductTimes t = product_s(l, w.n, w.k);
    const bool has_input = g->tensors.at[n->in[0]].role == ROLE_activation;
    return (NodeTimes){t.forward_s, has_input ? t.input_s : 0, t.weight_s};
}

bool bound_kernels(const Config *c, const Graph *g, KernelTimes *out)
{
    *out = (KernelTimes){0};
    if (!applies(c)) return false;
    const Device device = kernel_sustained(&c->cluster.device);
    Local l = {.device = &device,
               .dtype = c->compute,
               .timed = runtime_products(&c->runtime, &device),
               .tp = config_ranks(c, axes_with(AXIS_WEIGHTS)),
               .tokens = (double)c->micro_batch * (double)c->seq};
    Arena *scratch = arena_new();
    double *forward_s = arena_array(scratch, g->nodes.n + 1, sizeof *forward_s);
    NodeTimes *times = arena_array(scratch, g->nodes.n + 1, sizeof *times);
    SeenWorks seen = {.n = 0};
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        const NodeId first = bound_first_alike(&seen, g, id);
        times[id] = first != id ? times[first] : times_of(c, &l, g, n);
        const double forward = times[id].forward_s, input = times[id].input_s,
                     weight = times[id].weight_s;
        forward_s[id] = forward;
        if (n->layer > 0) {
            out->forward_s += forward;
            out->input_s += input;
            out->blocks_s += forward + input + weight;
        } else if (out->forward_s >
                   0) { /* nodes are in execution order, so this node comes after the blocks */
            out->head_s += forward + input + weight;
        }
    }
    out->again_s = again_s(c, g, forward_s, scratch);
    arena_free(scratch);
    return out->forward_s > 0;
}
