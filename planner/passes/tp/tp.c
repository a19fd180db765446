/* Tensor parallelism: splits the weights of linears by columns (outputs) or rows (inputs), and
 * embedding, head and loss by the vocabulary. With `sequence`, activations between a row linear and
 * the next column linear are split by tokens. The pass only sets layouts. Lowering inserts the
 * collectives, also the sum of norm-weight gradients that is easily forgotten. tp { plan }, a table
 * of path patterns, overrides the styles that the model lists (tp_plan.c). */
#include <assert.h>
#include <string.h>

#include "planner/ir/experts.h"
#include "planner/passes/pass.h"

typedef struct Tp {
    Job *job;
    AxisSet axes;
    uint32_t size;
    const PassConfig *pass;
    const HeadDims *heads; /* [tensor] */
    const bool *experts;   /* experts[tensor]: it is a parameter of experts */
    /* The mesh axes of tp over which the matrices of each expert are split. With ep_mode =
     * "folded", the other axes of tp have different experts on each rank instead. */
    AxisSet of_experts;
    uint32_t n_matched;
    /* sizes that were refused. Each is reported once, not for each layer. */
    int64_t reported[16];
    uint32_t n_reported;
} Tp;

static bool report_once(Tp *tp, int64_t size)
{
    for (uint32_t i = 0; i < tp->n_reported; i++)
        if (tp->reported[i] == size) return false;
    if (tp->n_reported < 16) tp->reported[tp->n_reported++] = size;
    return true;
}

static const char *segments(const Tp *tp, DealId order)
{
    const Deals *deals = &tp->job->plan->graph.deals;
    const Deal *d = &deals->deals.at[order];
    Str s = str_in(tp->job->scratch);
    for (uint32_t k = 0; k < d->n; k++) {
        Interval at = deals->intervals.at[d->first + k];
        str_print(&s, "%s%lld",
                  k == 0         ? ""
                  : k + 1 < d->n ? ", "
                                 : " and ",
                  (long long)(at.hi - at.lo));
    }
    return str_text(&s);
}

/* Returns the dimension of the parameter that tp splits; -1: none. */
static int cut_dim(const Tensor *t)
{
    if (t->tp == TP_row) return t->row_dim;
    return t->tp == TP_column || t->tp == TP_vocab ? t->column_dim : -1;
}

/* True if the whole model could be split over n ranks of tp. */
static bool model_fits(const Tp *tp, uint32_t n)
{
    const Graph *g = &tp->job->plan->graph;
    if (tp->pass->tp.sequence && tp->job->config->seq % n != 0) return false;
    for (TensorId id = 1; id < g->tensors.n; id++) {
        const Tensor *t = &g->tensors.at[id];
        const HeadDims heads = tp->heads[id];
        const int dim = t->role == ROLE_param ? cut_dim(t) : -1;
        if (dim < 0) continue;
        if (heads.groups == dim + 1) {
            const int64_t repeat = heads.repeat ? t->dim[heads.repeat - 1] : heads.fused;
            if (!tp_heads_fit(t->dim[dim], repeat, n)) return false;
        } else if (t->tp != TP_vocab && t->dim[dim] % n != 0 &&
                   (!tp->experts[id] || tp->of_experts == tp->axes)) {
            return false;
        }
    }
    return true;
}

/* Adds a hint with the sizes of tp that fit the whole model. (Sizes that fit only the refused
 * weight would be of no use.) */
static void hint_sizes(const Tp *tp)
{
    Str legal = str_in(tp->job->scratch);
    for (uint32_t n = 1; n <= 1024; n++)
        if (model_fits(tp, n)) str_print(&legal, "%s%u", legal.n ? ", " : "", n);
    diag_hint(tp->job->diag, "tp may be %s", str_text(&legal));
}

static void refuse(Tp *tp, const Tensor *t, int dim, uint32_t parts)
{
    Diag *d = tp->job->diag;
    int64_t size = t->dim[dim];
    if (!report_once(tp, size)) return;
    Loc loc = t->loc.file ? t->loc : tp->pass->loc;
    if (t->order && dim == t->order_dim)
        diag_error(d, FAULT_input, "divides-features", loc,
                   "%s: its segments of %s features cannot all be split evenly over tp = %u",
                   t->name, segments(tp, t->order), parts);
    else
        diag_error(d, FAULT_input, "divides-features", loc,
                   "%s: dimension %d = %lld cannot be split evenly over tp = %u", t->name, dim,
                   (long long)size, parts);
    hint_sizes(tp);
}

/* True for a parameter of a state-space layer. */
static bool is_of_scan(const Graph *g, const Tensor *t)
{
    const ModuleId layer = g->modules.at[t->module].parent;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        if (op_keeps_state(n->op) && g->modules.at[n->module].parent == layer) return true;
    }
    return false;
}

static void refuse_heads(Tp *tp, const Tensor *t, HeadDims heads, uint32_t rest)
{
    Diag *d = tp->job->diag;
    int64_t groups = t->dim[heads.groups - 1];
    int64_t repeat = heads.repeat ? t->dim[heads.repeat - 1] : heads.fused;
    if (!report_once(tp, -groups)) return;
    Loc loc = t->loc.file ? t->loc : tp->pass->loc;
    const bool of_scan = is_of_scan(&tp->job->plan->graph, t);
    if (repeat == 1)
        diag_error(d, FAULT_input, "divides-heads", loc,
                   "heads = %lld cannot be split evenly over tp = %u (%s)", (long long)groups,
                   tp->size, t->name);
    else if (of_scan)
        diag_error(d, FAULT_input, "divides-heads", loc,
                   "heads = %lld in %lld group%s cannot be split over tp = %u: %u ranks would "
                   "hold the same group, but cannot divide its %lld heads evenly (%s)",
                   (long long)(groups * repeat), (long long)groups, groups == 1 ? "" : "s",
                   tp->size, rest, (long long)repeat, t->name);
    else
        diag_error(d, FAULT_input, "divides-heads", loc,
                   "heads = %lld with kv_heads = %lld cannot be split over tp = %u: %u ranks would "
                   "hold the same KV head, but cannot divide its %lld query heads evenly (%s)",
                   (long long)(groups * repeat), (long long)groups, tp->size, rest,
                   (long long)repeat, t->name);
    if (tp_heads_fit(groups, repeat, tp->size))
        diag_hint(d,
                  "other %s of the model are split over tp differently; make their numbers of %s "
                  "divide each other",
                  of_scan ? "layers" : "attention modules",
                  of_scan ? "groups, or of KV heads," : "KV heads");
    else
        hint_sizes(tp);
}

static void split_on(const Tp *tp, AxisSet axes, Layout *layout, int dim)
{
    for (uint32_t a = 0; a < tp->job->plan->mesh.n_axes; a++)
        if (axes >> a & 1) layout->on[a] = SPLIT(dim);
}

static void place_param(Tp *tp, Tensor *t)
{
    const int dim = cut_dim(t);
    if (dim < 0) return;
    tp->n_matched++;
    HeadDims heads = tp->heads[t - tp->job->plan->graph.tensors.at];
    if (heads.groups == dim + 1) {
        uint32_t rest;
        if (!tp_place_heads(tp->job, t, heads, &rest)) refuse_heads(tp, t, heads, rest);
        return;
    }
    const AxisSet axes =
        tp->experts[t - tp->job->plan->graph.tensors.at] ? tp->of_experts : tp->axes;
    const uint32_t size = mesh_size(&tp->job->plan->mesh, axes);
    if (t->dim[dim] % size != 0) {
        if (t->tp != TP_vocab) {
            refuse(tp, t, dim, size);
            return;
        }
        t->deal[dim] = deal_ceil(&tp->job->plan->graph.deals, tp->job->arena, t->dim[dim], size);
    }
    split_on(tp, axes, &t->use, dim);
}

/* Three kinds of nodes have outputs that are partial sums on tp: a row linear, an embedding with a
 * split vocabulary, and the sum over a token's experts. Returns -1 for all other nodes. For these
 * three, returns the dimension of the weight that tp splits, or 0 if there is no weight. */
static int row_dim_of(const Graph *g, const Node *n)
{
    if (op_collects_tokens(n->op)) return 0;
    for (uint32_t i = 0; i < n->n_in; i++) {
        const Tensor *t = &g->tensors.at[n->in[i]];
        if (t->role != ROLE_param) continue;
        if (t->tp == TP_row) return t->row_dim;
        if (t->tp == TP_vocab && op_info(n->op)->flags & OP_LOOKS_UP) return t->column_dim;
    }
    return -1;
}

/* Sets the layout of outputs that are partial sums on tp when they are computed: SPLIT(tokens) with
 * `sequence`, so that lowering inserts a reduce_scatter; otherwise WHOLE, an all_reduce. */
static void place_activations(Tp *tp)
{
    Graph *g = &tp->job->plan->graph;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        Tensor *out = n->n_out ? &g->tensors.at[n->out[0]] : NULL;
        const bool looks_up = op_info(n->op)->flags & OP_LOOKS_UP;
        bool head = false;
        for (uint32_t i = 0; i < n->n_in; i++) {
            const Tensor *t = &g->tensors.at[n->in[i]];
            head = head || (t->role == ROLE_param && t->tp == TP_vocab && !looks_up);
        }
        /* without loss_parallel, logits are gathered over tp */
        if (head && !tp->pass->tp.loss_parallel) out->use_is_fixed = true;
        if (row_dim_of(g, n) < 0 || op_info(n->op)->flags & OP_ONCE) continue;
        out->use_is_fixed = true;
        /* Inside experts, a token occurs once for each expert that it chose. The partial sums are
         * scattered by features there, and gathered only after the results of a token's experts
         * were summed. */
        const bool rows = op_dim(n->op, n->n_in, INDEX_experts) >= 0;
        const int features = op_dim(n->op, n->n_in, INDEX_features);
        if (rows && out->dim[features] % mesh_size(&tp->job->plan->mesh, tp->of_experts) == 0)
            split_on(tp, tp->of_experts, &out->use, features);
        else if (!rows && tp->pass->tp.sequence)
            split_on(tp, tp->axes, &out->use, op_dim(n->op, n->n_in, INDEX_tokens));
    }
}

static bool pass_tp(Job *job)
{
    Tp tp = {.job = job, .axes = pass_axes(job, PASS_tp), .pass = pass_config(job, PASS_tp)};
    assert(tp.pass);
    tp.size = mesh_size(&job->plan->mesh, tp.axes);
    job->tp.share_gathers = tp.pass->tp.share_gathers;
    job->tp.keep_gathered = tp.pass->tp.keep_gathered;
    job->tp.pin_replicas = tp.pass->tp.sync_replicated_gradients;
    uint32_t before = job->diag->n_errors;
    TpPlan asked;
    tp.n_matched = tp_plan_params(job, &tp.pass->tp, &asked);
    bool plan_ok = job->diag->n_errors == before;
    if (tp.size == 1) return plan_ok;
    Graph *g = &job->plan->graph;
    tp.heads = tp_head_dims(job);
    tp.experts = experts_params(g, job->scratch);
    tp.of_experts = (AxisSet)(tp.axes & ~job->context.lent_axes);
    for (TensorId t = 1; t < g->tensors.n; t++)
        if (g->tensors.at[t].role == ROLE_param) place_param(&tp, &g->tensors.at[t]);
    if (tp.n_matched == 0 && plan_ok) {
        diag_error(
            job->diag, FAULT_input, "tp-matched-nothing", tp.pass->loc,
            "tp = %u, but no module of the model has tp_col or tp_row, so nothing would be split",
            tp.size);
        diag_hint(job->diag,
                  "give blocks tp_col = { ... } and tp_row = ..., or remove tp from the mesh");
    }
    if (tp.pass->tp.sequence && job->config->seq % tp.size != 0) {
        diag_error(
            job->diag, FAULT_input, "divides-seq", job->config->batch_loc,
            "seq = %lld cannot be split evenly over tp = %u, which sequence parallelism needs",
            (long long)job->config->seq, tp.size);
        diag_hint(job->diag, "seq may be %s; or set tp { sequence = false }",
                  str_multiples(job->scratch, job->config->seq, tp.size));
    }
    if (job->diag->n_errors > before) return false;
    place_activations(&tp);
    tp_plan_activations(job, &tp.pass->tp, &asked);
    tp_place_fused(job);
    return job->diag->n_errors == before;
}

static const PassOption options[] = {
    OPTION_FLAG(tp.sequence, 0, "",
                "true: sequence parallelism. Where activations are not split by features or heads, "
                "they are split by tokens."),
    OPTION_FLAG(tp.loss_parallel, 1, "",
                "true: each rank computes the loss on its own part of the vocabulary."),
    OPTION_FLAG(tp.keep_gathered, 0, "",
                "true: the gathered input of column linears is kept for the backward pass."),
    OPTION_FLAG(
        tp.share_gathers, 1, "",
        "true: one gather serves all linears that read the same activation, such as q, k and v."),
    OPTION_FLAG(tp.sync_replicated_gradients, 0, "",
                "true: gradients of parameters that tp does not split are averaged over tp. "
                "Otherwise rounding could make the copies differ."),
    OPTION_LIST("tp.plan", styles, tp.plan, 0, NULL, "the model's own table", "",
                "A table from module paths to styles: colwise, rowwise, colwise_rep, rowwise_rep "
                "or sequence_parallel. It has priority over the styles in the model."),
    OPTION_FLAG(tp.plan_only, 0, "",
                "true: only tp.plan counts. The styles in the model are ignored."),
    OPTION_END,
};

#define CUT_AGAIN                                                                                  \
    "tp would split weights that are already sharded, so each rank would train on the wrong part"
static const PassEdge before[] = {
    {PASS_ep, "ranks of a tp group would hold parts of different experts, but they must share the "
              "same experts"},
    {PASS_cp, "cp exchanges tokens for heads, so tp must divide the heads first"},
    {PASS_ac, "the inputs that a region keeps would not be split, so its recomputation would "
              "differ from the forward pass"},
    {PASS_fsdp2, CUT_AGAIN},
    {PASS_zero, CUT_AGAIN},
    {PASS_ddp, "gradients would be summed over ranks that hold different parts of a weight"},
    {PASS_compile,
     "the code would be compiled for whole weights, but a rank holds only a part of each weight"},
    {0, NULL},
};

static void print(const PassConfig *pass, Str *out)
{
    str_add(out, pass->tp.sequence ? "tp(sequence)" : "tp");
    if (pass->tp.sync_replicated_gradients) str_add(out, ", replicas averaged");
    if (pass->tp.plan.n > 0)
        str_print(out, "%s by %u patterns", pass->tp.plan_only ? " only" : "", pass->tp.plan.n);
}

static void warn_options(const Config *config, const PassConfig *pass, Diag *d)
{
    const TpOptions *o = &pass->tp;
    if (pass_ranks(config, PASS_tp) > 1 && o->keep_gathered && !o->sequence && !o->plan.n)
        diag_warning(d, "not-applied", pass->loc,
                     "tp { keep_gathered = true } has no effect, because without sequence = true "
                     "nothing is gathered");
}

const PassSpec pass_spec_tp = {
    .name = "tp",
    .doc = {"tp", "", "Tensor parallelism: splits weight matrices over the ranks of mesh.tp."},
    .options = options,
    .before = before,
    .reports = true,
    .run = pass_tp,
    .proposal = "parallel.tp.sequence=true",
    .trials = OPTION_WORDS("parallel.tp.sequence=true", "parallel.tp.keep_gathered=true"),
    .print = print,
    .warn_options = warn_options,
};
