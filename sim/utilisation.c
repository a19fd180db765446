/* Model FLOPs utilisation. A convention says how many FLOPs the tokens of a step need. They are
 * divided by the time and by the dense peak of the devices. */
#include "sim/utilisation.h"

#include <string.h>

#include "planner/ir/experts.h"

/* Returns true for a model of fields, whose batch has rows of a grid instead of tokens. */
static bool is_of_fields(const Graph *g)
{
    for (NodeId id = 1; id < g->nodes.n; id++)
        if (op_info(g->nodes.at[id].op)->flags & OP_SOURCE)
            return op_letter(g->nodes.at[id].op, INDEX_height) != 0;
    return false;
}

/* Returns the FLOPs of the products in the graph. This is used for a model of fields, because it
 * applies a weight on grids of several sizes. */
static double flops_of_products(const Graph *g)
{
    double flops = 0;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        Binding b;
        if (!op_is_product(n->op) || !graph_bind(g, n, &b, NULL)) continue;
        const bool uneven = op_counts_arg(n->op) >= 0;
        const Attrs *attrs = graph_attrs_at(g, n->attrs);
        flops +=
            op_flops(n->op, &b, b.size, uneven ? (double)attrs->top_k / (double)attrs->experts : 1);
    }
    return flops;
}

/* Returns true if some weight is frozen. Frozen weights need no gradients, and if nothing before
 * them is trained, their inputs need none either. So the products in the graph are counted for such
 * models. */
static bool has_frozen(const Graph *g)
{
    for (TensorId t = 1; t < g->tensors.n; t++)
        if (g->tensors.at[t].frozen) return true;
    return false;
}

/* The FLOPs of attention for each query are factor x (heads x width of a head) x keys. Returns this
 * factor, which is 12 times the fraction of the keys that a query sees (half if attention is
 * causal, less in a window). If only frozen weights come before the attention, only its forward
 * pass counts, which is a third. */
static double attention_factor(const Graph *g, const Node *n, const Binding *b, bool frozen)
{
    const bool forward = frozen && !g->tensors.at[n->out[0]].grad;
    return (forward ? 4 : 12) * op_seen(n->op, b, graph_attrs_at(g, n->attrs));
}

typedef struct AttentionSum {
    double flops; /* FLOPs of all attention for one token */
    /* factor, width, keys: those of the last attention. alike: they are the same for all, and each
     * token of the sequence is a query */
    double factor;
    int64_t width, keys;
    uint32_t n;
    bool alike;
} AttentionSum;

static AttentionSum attention_sum(const Graph *g)
{
    AttentionSum sum = {.alike = true};
    const bool frozen = has_frozen(g);
    const NodeId end = g->n_forward > 0 ? g->n_forward : g->nodes.n;
    for (NodeId id = 1; id < end; id++) {
        const Node *n = &g->nodes.at[id];
        Binding b;
        if (!op_attends(n->op) || !graph_bind(g, n, &b, NULL)) continue;
        const HeadsSizes is = op_heads_sizes(n->op, b.size);
        const int64_t width = is.groups * is.heads * (is.head + is.value) / 2;
        const double factor = attention_factor(g, n, &b, frozen),
                     part = (double)is.queries / g->info.seq;
        sum.flops += factor * (double)width * (double)is.keys * part;
        const bool same =
            sum.n == 0 || (factor == sum.factor && width == sum.width && is.keys == sum.keys);
        sum.alike = sum.alike && same && part == 1;
        sum.factor = factor, sum.width = width, sum.keys = is.keys;
        sum.n++;
    }
    if (g->nodes.n <= 1) { /* a plan without its graph: causal attention as wide as the model is
                              assumed */
        sum.n = g->info.n_layers, sum.factor = 6, sum.width = g->info.d_model;
        sum.keys = g->info.seq;
        sum.flops = 6 * (double)sum.n * (double)sum.width * (double)sum.keys;
    }
    return sum;
}

/* Returns true if some product does not process all tokens of the sequence, as in an encoder with a
 * decoder. Then not every weight is applied to every token. */
static bool shares_out_tokens(const Graph *g)
{
    const NodeId end = g->n_forward > 0 ? g->n_forward : g->nodes.n;
    for (NodeId id = 1; id < end; id++) {
        const Node *n = &g->nodes.at[id];
        const int tokens = op_dim(n->op, 0, INDEX_tokens);
        if (op_info(n->op)->class_ != OP_CLASS_contract || tokens < 0) continue;
        const Tensor *in = &g->tensors.at[n->in[0]];
        if (in->role == ROLE_activation && in->dim[tokens] != g->info.seq) return true;
    }
    return false;
}

static const char *attention_words(const AttentionSum *sum, Arena *arena)
{
    if (sum->n == 0) return "";
    if (!sum->alike) return arena_print(arena, " + %.4g of %u attentions", sum->flops, sum->n);
    return arena_print(arena, " + %g x %u layers x %lld x %lld", sum->factor, sum->n,
                       (long long)sum->width, (long long)sum->keys);
}

/* Returns the dtype in which most elements of the model's parameters are used. */
static DType compute_dtype(const Graph *g)
{
    double elements[DT_COUNT] = {0};
    DType most = DT_f32;
    for (TensorId i = 1; i < g->tensors.n; i++) {
        const Tensor *t = &g->tensors.at[i];
        if (t->role != ROLE_param) continue;
        double n = 1;
        for (uint8_t d = 0; d < t->n_dims; d++) n *= (double)t->dim[d];
        elements[t->dtype] += n;
    }
    for (DType t = 0; t < DT_COUNT; t++) {
        if (elements[t] > elements[most]) most = t;
    }
    return most;
}

/* The values from which model FLOPs are counted. They are found once, because each needs a visit of
 * the whole graph. */
typedef struct ModelFlops {
    bool fields, shared_out, frozen; /* shared_out, frozen: false for a model of fields */
    uint64_t active;                 /* parameters that a token uses */
    AttentionSum attention;
} ModelFlops;

static ModelFlops count_model(const Graph *g)
{
    ModelFlops m = {.fields = is_of_fields(g), .attention = attention_sum(g)};
    m.shared_out = !m.fields && shares_out_tokens(g);
    m.frozen = !m.fields && has_frozen(g);
    m.active = experts_active_params(g);
    return m;
}

/* Returns the model FLOPs of a token. By default they are 6 x (parameters without input embedding)
 * + 6 x layers x (heads x width of a head) x seq. If attention is not causal, the second 6 becomes
 * 12. Only experts that a token uses
 * count. */
static double model_flops_per_token(const Plan *plan, const StepInfo *step, const ModelFlops *m)
{
    if (!m->fields && !m->shared_out && !m->frozen)
        return 6 * (double)m->active + m->attention.flops;
    const double tokens = (double)step->global_batch * (double)step->seq;
    const double products = flops_of_products(&plan->graph) * step->n_microbatches / tokens;
    return m->fields ? products : products + m->attention.flops;
}

void report_utilisation(const Plan *plan, const StepInfo *step, const Cluster *cluster,
                        Arena *arena, SimReport *report)
{
    const ModelInfo *info = &plan->graph.info;
    DType dtype = compute_dtype(&plan->graph);
    double peak = cluster->device.peak_flops[dtype];
    double seconds = (double)report->step_ps / (double)PS_PER_S;
    double tokens = (double)step->global_batch * (double)step->seq;
    const ModelFlops model = count_model(&plan->graph);
    const char *attention = attention_words(&model.attention, arena);
    report->model_flops_per_token = model_flops_per_token(plan, step, &model);
    report->tokens_per_s = seconds > 0 ? tokens / seconds : 0;
    report->tokens_per_s_per_device = report->tokens_per_s / plan->mesh.n_ranks;
    double flops_per_s = report->tokens_per_s_per_device * report->model_flops_per_token;
    report->mfu = peak > 0 ? flops_per_s / peak : 0;
    report->mfu_formula =
        model.fields ? "products and convolutions, forward and backward, per point of the grid"
        : model.frozen
            ? arena_print(arena, "products, without gradients of frozen parts%s per token",
                          attention)
        : model.shared_out
            ? arena_print(arena, "products of encoder and decoder%s per token", attention)
            : arena_print(arena, "6 x %s %sparams (no input embedding)%s per token",
                          str_count(arena, model.active),
                          model.active < info->n_params_no_embedding ? "active " : "", attention);
    report->peak_name =
        arena_print(arena, "%.4g TFLOP/s dense %s %s", peak / 1e12, dtype_name(dtype),
                    cluster->device.name == NULL ? "device" : cluster->device.name);
}

/* Returns the FLOPs of products, convolutions, attention and scans of all ranks in a step, as the
 * programs execute them. */
static double executed_flops(const Plan *plan)
{
    double sum = 0;
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        const Program *p = &plan->programs.at[i];
        double own = 0, ranks = 0;
        for (Rank r = 0; r < plan->mesh.n_ranks; r++) ranks += plan->program_of[r] == i;
        for (Pc pc = 1; pc < p->code.n; pc++) {
            const Instr *in = program_instr(p, pc);
            if (op_is_product(in->op) || op_mixes_tokens(in->op) || op_keeps_state(in->op))
                own += plan_flops(plan, p, in);
        }
        sum += ranks * own;
    }
    return sum;
}

static const char *const convention_names[] = {
#define X(name, help) #name,
    MFU_CONVENTIONS(X)
#undef X
};

const char *mfu_convention_name(MfuConvention convention)
{
    return convention_names[convention];
}

bool mfu_convention_find(const char *name, MfuConvention *convention)
{
    for (MfuConvention c = 0; c < MFU_CONVENTION_COUNT; c++) {
        if (strcmp(convention_names[c], name) != 0) continue;
        *convention = c;
        return true;
    }
    return false;
}

/* Returns 12 x (heads x width of a head) x keys, summed over all attention. Masks are ignored. */
static double square_attention(const Graph *g)
{
    double sum = 0;
    const bool frozen = has_frozen(g);
    const NodeId end = g->n_forward > 0 ? g->n_forward : g->nodes.n;
    for (NodeId id = 1; id < end; id++) {
        const Node *n = &g->nodes.at[id];
        Binding b;
        if (!op_attends(n->op) || !graph_bind(g, n, &b, NULL)) continue;
        const HeadsSizes is = op_heads_sizes(n->op, b.size);
        const double width = (double)(is.groups * is.heads * (is.head + is.value)) / 2;
        const bool forward = frozen && !g->tensors.at[n->out[0]].grad;
        sum +=
            (forward ? 4 : 12) * width * (double)is.keys * (double)is.queries / (double)g->info.seq;
    }
    return sum;
}

/* Returns how many of a parameter's 6 FLOPs a model with frozen weights does not need. If this
 * parameter is frozen, 2 are spared for its gradient. If nothing before it is trained, 2 are spared
 * for the gradient of its input. */
static double spared(const Graph *g, const Node *n, uint32_t i)
{
    const bool looks_up = op_info(n->op)->flags & OP_LOOKS_UP,
               frozen = g->tensors.at[n->in[i]].frozen;
    const bool needs_input = i > 0 && g->tensors.at[n->in[0]].grad;
    if (looks_up) return frozen ? 4 : 0;
    return (frozen ? 2 : 0) + (needs_input ? 0 : 2);
}

/* Returns the FLOPs per token that a model with frozen weights does not need, out of 6 for each
 * parameter. */
static double flops_left_out(const Graph *g, bool with_embedding)
{
    if (!has_frozen(g)) return 0;
    Arena *scratch = arena_new();
    bool *counted = arena_array(scratch, g->tensors.n + 1, sizeof *counted);
    const bool *experts = experts_params(g, scratch);
    const NodeId *rows = experts_rows(g, scratch);
    const NodeId end = g->n_forward > 0 ? g->n_forward : g->nodes.n;
    double sum = 0;
    for (NodeId id = 1; id < end; id++) {
        const Node *n = &g->nodes.at[id];
        for (uint32_t i = 0; i < n->n_in; i++) {
            const TensorId t = n->in[i];
            const Tensor *at = &g->tensors.at[t];
            if (at->role != ROLE_param || counted[t]) continue;
            counted[t] = true;
            if (at->input_embedding && !with_embedding) continue;
            double used = 1;
            for (int d = 0; d < at->n_dims; d++) used *= (double)at->dim[d];
            const NodeId sent = experts[t] && rows && i > 0 ? rows[n->in[0]] : 0;
            const Attrs *a = graph_attrs_at(g, g->nodes.at[sent].attrs);
            if (sent) used *= (double)a->top_k / (double)a->experts;
            sum += used * spared(g, n, i);
        }
    }
    arena_free(scratch);
    return sum;
}

double mfu_convention_flops(const Plan *plan, MfuConvention convention, const char **formula)
{
    const Graph *g = &plan->graph;
    const bool frozen = has_frozen(g);
    const double active = (double)experts_active_params(g);
    const double embedding = (double)(g->info.n_params - g->info.n_params_no_embedding);
    const double tokens = (double)plan->step.global_batch * (double)plan->step.seq;
    const bool counts = !is_of_fields(g); /* parameters of a model of fields are applied on several
                                             grids */
    *formula = "";
    switch (convention) {
    case MFU_square:
        *formula = frozen
                       ? "6 x params (no input embedding) + 12 x layers x width x seq, masked or "
                         "not, without gradients of frozen parts"
                       : "6 x params (no input embedding) + 12 x layers x width x seq, masked or "
                         "not";
        return counts ? 6 * active - flops_left_out(g, false) + square_attention(g) : 0;
    case MFU_all_parameters:
        *formula = frozen ? "6 x all params + 12 x layers x width x seq, masked or not, without "
                            "gradients of frozen parts"
                          : "6 x all params + 12 x layers x width x seq, masked or not";
        return counts ? 6 * (active + embedding) - flops_left_out(g, true) + square_attention(g)
                      : 0;
    case MFU_parameters:
        *formula = frozen ? "6 x all params, without attention and gradients of frozen parts"
                          : "6 x all params, without attention";
        return counts ? 6 * (active + embedding) - flops_left_out(g, true) : 0;
    case MFU_hardware:
        *formula = "HFU: all products and attention that run, recomputation included";
        return executed_flops(plan) / tokens;
    case MFU_model: {
        *formula = "attention under its mask, without the input embedding (as above)";
        const ModelFlops model = count_model(g);
        return model_flops_per_token(plan, &plan->step, &model);
    }
    case MFU_CONVENTION_COUNT: break;
    }
    return 0;
}
