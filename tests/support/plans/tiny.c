/* Builds graphs like those of Llama and GPT-2, node by node, as the front does. */
#include "tests/support/plans/tiny.h"

#include <assert.h>
#include <string.h>

#include "planner/base/str.h"

typedef struct Build {
    const Tiny *t;
    Arena *arena;
    Graph *g;
    Diag diag;
    ModuleId module;
    uint32_t line;
    int64_t n_sites;  /* the number of dropouts so far */
    TensorId balance; /* the sum of the balance losses of the layers; 0: there is none */
} Build;

Tiny tiny_default(void)
{
    return (Tiny){.layers = 2,
                  .dim = 12,
                  .groups = 4,
                  .repeat = 1,
                  .head_dim = 4,
                  .hidden = 16,
                  .vocab = 29,
                  .seq = 8,
                  .top_k = 2,
                  .normalise = true,
                  .micro = 1,
                  .microbatches = 1,
                  .dp_shard = 1,
                  .dp_replicate = 1,
                  .cp = 1,
                  .ep = 1,
                  .tp = 1,
                  .pp = 1,
                  .pp_options = {.schedule = SCHEDULE_1f1b, .chunks = 1},
                  .tp_options = {.sequence = true, .loss_parallel = true, .share_gathers = true},
                  .float8 = {.any_size = true, .cuts = 4},
                  .fsdp2 = {.reshard_after_forward = RESHARD_true,
                            .reshard_last = true,
                            .prefetch = 1,
                            .over_ep = true,
                            .mp = {.cast_forward_inputs = true}},
                  .compute = DT_f32,
                  .param = DT_f32,
                  .reduce = DT_f32,
                  .clip = 1.0};
}

Tiny tiny_one_rank(const Tiny *t)
{
    Tiny one = *t;
    one.micro = t->micro * tiny_data_ranks(t);
    one.dp_shard = one.dp_replicate = one.cp = one.tp = one.pp = one.ep = 1;
    one.tp_lent = one.cp_lent = 0;
    one.ac = AC_none;
    one.tile = 0;
    one.unpadded = true;
    one.group = t->group ? t->group : t->micro;
    return one;
}

static Loc here(Build *b)
{
    return (Loc){"tiny.lua", ++b->line};
}

static ModuleId module(Build *b, const char *path, const char *class_, ModuleId parent,
                       uint32_t layer, bool block)
{
    ModuleId id = (ModuleId)list_add(b->arena, &b->g->modules);
    b->g->modules.at[id] = (Module){.path = path,
                                    .class_ = class_,
                                    .parent = parent,
                                    .layer = layer,
                                    .is_block = block,
                                    .loc = here(b)};
    return id;
}

static TensorId param(Build *b, const char *name, uint32_t n, const int64_t *dim, TpStyle tp,
                      Init init)
{
    const char *path = b->g->modules.at[b->module].path;
    if (*path) name = arena_print(b->arena, "%s.%s", path, name);
    TensorId id = graph_tensor(b->g, b->arena, name, ROLE_param, b->t->compute, n, dim, here(b));
    Tensor *t = &b->g->tensors.at[id];
    t->rest_dtype = b->t->param;
    t->reduce_dtype = b->t->reduce;
    t->tp = tp;
    t->column_dim = n > 1 ? 1 : 0;
    t->module = b->module;
    t->init = init;
    t->init_stream = hash_bytes(name, strlen(name)).lo;
    return id;
}

#define DIMS(...)                                                                                  \
    (uint32_t)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[])                                  \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
static const Init norm_init = {INIT_normal, 1.0, 0.1}, bias_init = {INIT_normal, 0.0, 0.1};

static Init weight_init(const Build *b)
{
    return (Init){INIT_normal, 0.0, b->t->deviation > 0 ? b->t->deviation : 0.3};
}

static TensorId op_of(Build *b, OpKind kind, uint32_t n, const TensorId *in, const Attrs *attrs)
{
    TensorId out =
        graph_op(b->g, b->arena, kind, in, n, b->t->compute, attrs, b->module, here(b), &b->diag);
    assert(out);
    const Node *node = &b->g->nodes.at[b->g->tensors.at[out].producer];
    for (uint32_t j = 0; j < node->n_out; j++) /* Statistics are fp32, as in the front. */
        if (b->t->compute != DT_f64 && graph_is_statistic(b->g, node->out[j]))
            b->g->tensors.at[node->out[j]].dtype = DT_f32;
    return out;
}

static TensorId op(Build *b, OpKind kind, uint32_t n, TensorId x, TensorId y, TensorId z,
                   const Attrs *attrs)
{
    return op_of(b, kind, n, (const TensorId[]){x, y, z}, attrs);
}

static TensorId norm(Build *b, const char *name, TensorId x)
{
    Attrs attrs = {.eps = 1e-5};
    int64_t d = b->t->dim;
    TensorId w = param(b, arena_print(b->arena, "%s.weight", name), DIMS(d), TP_none, norm_init);
    if (!b->t->gpt2) return op(b, OP_rmsnorm, 2, x, w, 0, &attrs);
    TensorId bias = param(b, arena_print(b->arena, "%s.bias", name), DIMS(d), TP_none, bias_init);
    return op(b, OP_layernorm, 3, x, w, bias, &attrs);
}

static TensorId state(Build *b, TensorId w, const char *suffix, uint32_t n, const int64_t *dim)
{
    DType wide = b->t->compute == DT_f64 ? DT_f64 : DT_f32;
    const char *name = arena_print(b->arena, "%s%s", b->g->tensors.at[w].name, suffix);
    TensorId id = graph_tensor(b->g, b->arena, name, ROLE_state, wide, n, dim, here(b));
    Tensor *t = &b->g->tensors.at[id];
    t->module = b->module;
    t->init = (Init){INIT_normal, 0, 1};
    t->init_stream = hash_bytes(name, strlen(name)).lo;
    return id;
}

/* Divides y by the spectral norm of w, whose first n_in dimensions are summed over. */
static TensorId over_norm(Build *b, TensorId y, TensorId w, uint32_t n_in)
{
    if (!b->t->spectral) return y;
    const Tensor t = b->g->tensors.at[w];
    bool first = n_in == 1;
    Attrs eps = {.eps = 1e-12};
    TensorId v = state(b, w, "_v", n_in, t.dim),
             u = state(b, w, "_u", t.n_dims - n_in, t.dim + n_in), made = 0;
    /* The elements of u correspond to outputs of the weight. */
    b->g->tensors.at[u].order = t.order;
    TensorId *const next[] = {&u, &v}, *const by[] = {&v, &u};
    const OpKind product[] = {first ? OP_project_over_first : OP_project_of_last,
                              first ? OP_project_of_first : OP_project_over_last};
    for (int k = 0; k < 2; k++) {
        made = op(b, product[k], 2, w, *by[k], 0, NULL);
        TensorId square = op(b, OP_inner_product, 2, made, made, 0, NULL);
        *next[k] = op(b, OP_normalise, 3, *next[k], made, square, &eps);
    }
    return op(b, OP_divide, 2, y, op(b, OP_inner_product, 2, made, v, 0, NULL), 0, NULL);
}

static TensorId project(Build *b, OpKind kind, const char *name, TensorId x, uint32_t n,
                        const int64_t *dim, TpStyle tp, uint32_t n_in)
{
    TensorId w = param(b, arena_print(b->arena, "%s.weight", name), n, dim, tp, weight_init(b));
    if (tp == TP_row) b->g->tensors.at[w].row_dim = 0;
    TensorId y = over_norm(b, op(b, kind, 2, x, w, 0, NULL), w, n_in);
    if (!b->t->gpt2 && !b->t->biases) return y;
    TensorId bias = param(b, arena_print(b->arena, "%s.bias", name), n - n_in, dim + n_in,
                          tp == TP_column ? TP_column : TP_none, bias_init);
    b->g->tensors.at[bias].column_dim = 0;
    return op(b, OP_bias, 2, y, bias, 0, NULL);
}

static TensorId dropped(Build *b, TensorId x)
{
    if (b->t->dropout == 0) return x;
    Attrs attrs = {.drop = b->t->dropout, .site = ++b->n_sites};
    return op(b, OP_dropout, 1, x, 0, 0, &attrs);
}

/* Projects x to several segments with one weight. If the segments are equal, dimension 1 of the
 * weight (0 of the bias) numbers the segments, and the next dimension is cut. If they are unequal,
 * that dimension numbers the groups, which are cut, and each group has each[k] features of segment
 * k. */
static TensorId project_fused(Build *b, OpKind kind, const char *name, TensorId x, uint32_t n,
                              const int64_t *dim, TpStyle tp, uint32_t n_each, const int64_t *each)
{
    DealId order =
        n_each ? deal_segments(&b->g->deals, b->arena, (uint32_t)dim[1], n_each, each) : 0;
    TensorId w = param(b, arena_print(b->arena, "%s.weight", name), n, dim, tp, weight_init(b));
    b->g->tensors.at[w].column_dim = order ? 1 : 2;
    b->g->tensors.at[w].order = order;
    b->g->tensors.at[w].order_dim = order != 0;
    TensorId y = over_norm(b, op(b, kind, 2, x, w, 0, NULL), w, 1);
    if (!b->t->gpt2 && !b->t->biases) return y;
    TensorId bias = param(b, arena_print(b->arena, "%s.bias", name), n - 1, dim + 1, tp, bias_init);
    b->g->tensors.at[bias].column_dim = order ? 0 : 1;
    b->g->tensors.at[bias].order = order;
    return op(b, OP_bias, 2, y, bias, 0, NULL);
}

static TensorId part(Build *b, OpKind kind, TensorId x, int64_t first, int64_t n)
{
    Attrs attrs = {.first = first, .count = n};
    return op(b, kind, 1, x, 0, 0, &attrs);
}

static TensorId segment(Build *b, OpKind kind, TensorId x, int64_t which)
{
    Attrs attrs = {.segment = which};
    return op(b, kind, 1, x, 0, 0, &attrs);
}

static TensorId head_norm(Build *b, const char *name, TensorId x)
{
    Attrs attrs = {.eps = 1e-5};
    TensorId w = param(b, name, DIMS(b->t->head_dim), TP_none, norm_init);
    return op(b, OP_rmsnorm_heads, 2, x, w, 0, &attrs);
}

/* Adds a parameter that has values for each head, or for each group. */
static TensorId of_heads(Build *b, const char *name, uint32_t n, const int64_t *dim)
{
    TensorId w = param(b, name, n, dim, TP_column, bias_init);
    b->g->tensors.at[w].column_dim = 0;
    return w;
}

/* Builds what nn.mamba2 builds. */
static TensorId mixer(Build *b, TensorId x)
{
    const Tiny *t = b->t;
    const int64_t d = t->dim, g = t->groups, r = t->repeat, e = t->head_dim, q = 12;
    const Attrs chunk = {.chunk = 4}, eps = {.eps = 1e-5};
    TensorId in[6] = {0}, dt;
    in[0] =
        op(b, OP_conv_heads, 3, project(b, OP_linear_q, "wx", x, DIMS(d, g, r, e), TP_column, 1),
           of_heads(b, "conv_x.weight", DIMS(g, r, e, 3)),
           of_heads(b, "conv_x.bias", DIMS(g, r, e)), NULL);
    for (int k = 0; k < 2; k++)
        in[3 + k] = op(b, OP_conv_groups, 3,
                       project(b, OP_linear_kv, k ? "wc" : "wb", x, DIMS(d, g, q), TP_column, 1),
                       of_heads(b, k ? "conv_c.weight" : "conv_b.weight", DIMS(g, q, 3)),
                       of_heads(b, k ? "conv_c.bias" : "conv_b.bias", DIMS(g, q)), NULL);
    dt = project(b, OP_linear_kv, "wdt", x, DIMS(d, g, r), TP_column, 1);
    in[1] = op(b, OP_step_size, 2, dt, of_heads(b, "dt_bias", DIMS(g, r)), 0, NULL);
    in[2] = of_heads(b, "a_log", DIMS(g, r)), in[5] = of_heads(b, "d", DIMS(g, r));
    TensorId y = op_of(b, OP_state_scan, 6, in, &chunk);
    TensorId z = project(b, OP_linear_q, "wz", x, DIMS(d, g, r, e), TP_column, 1);
    y = op(b, OP_gated_norm, 3, y, z, of_heads(b, "norm.weight", DIMS(g, r, e)), &eps);
    return project(b, OP_linear_o, "wo", y, DIMS(g, r, e, d), TP_row, 3);
}

static TensorId attention(Build *b, TensorId x)
{
    if (b->t->scans) return mixer(b, x);
    const Tiny *t = b->t;
    int64_t d = t->dim, g = t->groups, r = t->repeat, e = t->head_dim;
    TensorId q, k, v;
    if (t->fused) {
        TensorId all = project_fused(b, OP_linear_heads, "wqkv", x, DIMS(d, g, r + 2, e), TP_column,
                                     DIMS(r, 1, 1));
        q = part(b, OP_part_heads, all, 0, r);
        k = part(b, OP_part_head, all, r, 1);
        v = part(b, OP_part_head, all, r + 1, 1);
    } else {
        q = project(b, OP_linear_q, "wq", x, DIMS(d, g, r, e), TP_column, 1);
        k = project(b, OP_linear_kv, "wk", x, DIMS(d, g, e), TP_column, 1);
        v = project(b, OP_linear_kv, "wv", x, DIMS(d, g, e), TP_column, 1);
    }
    Attrs rope = {.theta = 10000.0}, attrs = {.scale = t->scale > 0 ? t->scale : 0.5, .causal = 1};
    if (t->qk_norm) {
        q = head_norm(b, "q_norm.weight", q);
        k = head_norm(b, "k_norm.weight", k);
    }
    if (!t->gpt2) {
        q = op(b, OP_rope, 1, q, 0, 0, &rope);
        k = op(b, OP_rope, 1, k, 0, 0, &rope);
    }
    if (t->dropout > 0) attrs.drop = t->dropout, attrs.site = ++b->n_sites;
    TensorId a = op(b, OP_attention, 3, q, k, v, &attrs);
    return project(b, OP_linear_o, "wo", a, DIMS(g, r, e, d), TP_row, 3);
}

static Attrs expert_sizes(const Tiny *t)
{
    const bool all = t->dropless || !t->capacity;
    return (Attrs){
        .top_k = t->top_k, .experts = t->experts, .capacity = all ? t->seq : t->capacity};
}

/* Adds a linear of experts. `counts` holds the counts of uneven rows; 0: the rows are not
 * uneven. */
static TensorId of_experts(Build *b, const char *name, TensorId rows, TensorId counts, uint32_t n,
                           const int64_t *dim, TpStyle tp)
{
    const Attrs sizes = expert_sizes(b->t);
    TensorId w = param(b, arena_print(b->arena, "%s.weight", name), n, dim, tp, weight_init(b));
    b->g->tensors.at[w].column_dim = 2;
    b->g->tensors.at[w].row_dim = 1;
    return counts ? op(b, OP_linear_uneven, 3, rows, w, counts, &sizes)
                  : op(b, OP_linear_experts, 2, rows, w, 0, NULL);
}

static void add_balance(Build *b, TensorId own)
{
    b->balance = b->balance ? op(b, OP_add, 2, b->balance, own, 0, NULL) : own;
}

/* Builds what nn.moe builds. For gpt2, an expert has one weight before a gelu. */
static TensorId experts(Build *b, TensorId x, TpStyle column, TpStyle row)
{
    const Tiny *t = b->t;
    const int64_t e = t->experts, d = t->dim, f = t->hidden;
    const Attrs sizes = expert_sizes(t);
    const Attrs how = {.normalise = t->normalise};
    TensorId logits = project(b, OP_linear, "router", x, DIMS(d, e), TP_none, 1);
    Attrs biased = sizes;
    biased.scale = t->balance_rate;
    TensorId ids = t->balance_rate > 0
                       ? op(b, OP_topk_biased, 2, logits,
                            param(b, "balance", DIMS(e), TP_none, weight_init(b)), 0, &biased)
                       : op(b, OP_topk, 1, logits, 0, 0, &sizes);
    TensorId weights =
        op(b, t->balance_rate > 0 ? OP_route_sigmoid : OP_route, 2, logits, ids, 0, &how);
    const Attrs weight = {.scale = t->aux_loss}, of_z = {.scale = t->router_z};
    if (t->aux_loss > 0) add_balance(b, op(b, OP_balance, 2, logits, ids, 0, &weight));
    if (t->router_z > 0) add_balance(b, op(b, OP_router_z, 1, logits, 0, 0, &of_z));
    TensorId slots = op(b, OP_slots, 1, ids, 0, 0, &sizes);
    const TensorId counts = t->dropless ? op(b, OP_counts, 1, slots, 0, 0, &sizes) : 0;
    TensorId rows = counts ? op(b, OP_dispatch_uneven, 3, x, slots, counts, &sizes)
                           : op(b, OP_dispatch, 2, x, slots, 0, &sizes);
    TensorId h = of_experts(b, "w1", rows, counts, DIMS(e, d, f), column);
    if (t->gpt2)
        h = op(b, OP_gelu, 1, h, 0, 0, NULL);
    else
        h = op(b, OP_mul, 2, op(b, OP_silu, 1, h, 0, 0, NULL),
               of_experts(b, "w3", rows, counts, DIMS(e, d, f), column), 0, NULL);
    h = of_experts(b, "w2", h, counts, DIMS(e, f, d), row);
    const TensorId in[] = {slots, weights, h, counts};
    return op_of(b, counts ? OP_combine_uneven : OP_combine, counts ? 4 : 3, in, NULL);
}

static TensorId feed_forward(Build *b, TensorId x)
{
    int64_t d = b->t->dim, f = b->t->hidden;
    TpStyle column = b->t->variant == TINY_row_only ? TP_none : TP_column;
    TpStyle row = b->t->variant == TINY_column_only ? TP_none : TP_row;
    if (b->t->experts) return experts(b, x, column, row);
    if (b->t->unequal) {
        TensorId one, two;
        if (b->t->fused) {
            TensorId all =
                project_fused(b, OP_linear_groups, "w13", x, DIMS(d, f, 3), column, DIMS(1, 2));
            one = part(b, OP_part, all, 0, 1);
            two = part(b, OP_part, all, 1, 2);
        } else {
            one = project(b, OP_linear, "w1", x, DIMS(d, f), column, 1);
            two = project(b, OP_linear, "w3", x, DIMS(d, 2 * f), column, 1);
        }
        one = op(b, OP_silu, 1, one, 0, 0, NULL);
        two = op(b, OP_gelu, 1, two, 0, 0, NULL);
        one = project(b, OP_linear, "w2", one, DIMS(f, d), row, 1);
        two = project(b, OP_linear, "w4", two, DIMS(2 * f, d), row, 1);
        return op(b, OP_add, 2, one, two, 0, NULL);
    }
    if (b->t->fused && !b->t->gpt2) {
        TensorId both =
            project_fused(b, OP_linear_segments, "w13", x, DIMS(d, 2, f), column, 0, NULL);
        TensorId gate = op(b, OP_silu, 1, segment(b, OP_segment, both, 0), 0, 0, NULL);
        TensorId h = op(b, OP_mul, 2, gate, segment(b, OP_segment, both, 1), 0, NULL);
        return project(b, OP_linear, "w2", h, DIMS(f, d), row, 1);
    }
    TensorId h = project(b, OP_linear, "w1", x, DIMS(d, f), column, 1);
    if (b->t->gpt2) {
        h = op(b, OP_gelu, 1, h, 0, 0, NULL);
    } else {
        TensorId up = project(b, OP_linear, "w3", x, DIMS(d, f), column, 1);
        h = op(b, OP_mul, 2, op(b, OP_silu, 1, h, 0, 0, NULL), up, 0, NULL);
    }
    return project(b, OP_linear, "w2", h, DIMS(f, d), row, 1);
}

static TensorId block(Build *b, ModuleId root, uint32_t i, TensorId x)
{
    const char *path = arena_print(b->arena, "layers.%u", i);
    ModuleId blk = module(b, path, "block", root, i + 1, true);
    b->module = blk;
    TensorId h = norm(b, "attention_norm", x);
    b->module =
        module(b, arena_print(b->arena, "%s.attention", path), "attention", blk, i + 1, false);
    h = attention(b, h);
    b->module = blk;
    h = dropped(b, h);
    TensorId residual = op(b, OP_add, 2, x, h, 0, NULL);
    h = norm(b, "ffn_norm", b->t->variant == TINY_parallel ? x : residual);
    b->module =
        module(b, arena_print(b->arena, "%s.feed_forward", path), "module", blk, i + 1, false);
    h = feed_forward(b, h);
    b->module = blk;
    h = dropped(b, h);
    x = op(b, OP_add, 2, residual, h, 0, NULL);
    if (b->t->variant == TINY_normed) return op(b, OP_add, 2, x, norm(b, "after", x), 0, NULL);
    return b->t->variant == TINY_doubled ? op(b, OP_add, 2, x, x, 0, NULL) : x;
}

static void loss(Build *b, TensorId z, TensorId labels, const Config *c)
{
    bool mean = c->denominator == DENOMINATOR_microbatch_mean;
    Attrs smooth = {.smoothing = b->t->smoothing};
    Attrs attrs = {.scale = 1.0 / ((double)c->global_batch * (double)c->seq),
                   .z_loss = b->t->z_loss,
                   .group = c->group,
                   .count_all = c->denominator == DENOMINATOR_all};
    if (mean) attrs.scale = 1.0 / (double)(c->global_batch / c->group);
    TensorId max = op(b, OP_xent_max, 1, z, 0, 0, NULL),
             pick = op(b, b->t->smoothing > 0 ? OP_xent_smooth : OP_xent_pick, 2, z, labels, 0,
                       b->t->smoothing > 0 ? &smooth : NULL);
    TensorId sum = op(b, OP_xent_sumexp, 2, z, max, 0, NULL);
    if (b->balance) pick = op(b, OP_charge, 2, pick, b->balance, 0, NULL);
    TensorId in[] = {max, sum, pick, labels};
    TensorId out = graph_op(b->g, b->arena, mean ? OP_xent_loss_mean : OP_xent_loss, in, 4, DT_f64,
                            &attrs, b->module, here(b), &b->diag);
    b->g->tensors.at[out].role = ROLE_loss;
    b->g->loss = out;
}

static void trace(Build *b, int64_t batch, const Config *c)
{
    const Tiny *t = b->t;
    ModuleId root = module(b, "", "module", 0, 0, false);
    b->module = root;
    int64_t bs[] = {batch, t->seq};
    TensorId io[] = {graph_tensor(b->g, b->arena, "tokens", ROLE_input, DT_i32, 2, bs, here(b)),
                     graph_tensor(b->g, b->arena, "labels", ROLE_input, DT_i32, 2, bs, here(b))};
    graph_node(b->g, b->arena, OP_batch, NULL, 0, io, 2, NULL, root, here(b));
    const bool own = t->freeze & TINY_FROZEN_TABLE;
    if (own) b->module = module(b, "embedding", "embedding", root, 0, false);
    TensorId table = param(b, own ? "weight" : "embedding.weight", DIMS(t->vocab, t->dim),
                           t->whole_table ? TP_none : TP_vocab, weight_init(b));
    b->module = root;
    b->g->tensors.at[table].column_dim = 0;
    b->g->tensors.at[table].input_embedding = !t->gpt2;
    TensorId x = op(b, OP_embed, 2, io[0], table, 0, NULL);
    if (t->gpt2)
        x = op(b, OP_position, 2, x,
               param(b, "position.weight", DIMS(t->seq, t->dim), TP_none, weight_init(b)), 0, NULL);
    x = dropped(b, x);
    for (uint32_t i = 0; i < t->layers; i++) x = block(b, root, i, x);
    b->module = root;
    x = norm(b, "norm", x);
    TensorId z;
    if (t->gpt2) {
        z = op(b, OP_linear_t, 2, x, table, 0, NULL);
    } else {
        TensorId w = param(b, "head.weight", DIMS(t->dim, t->vocab), TP_vocab, weight_init(b));
        z = over_norm(b, op(b, OP_linear, 2, x, w, 0, NULL), w, 1);
    }
    loss(b, z, io[1], c);
    b->g->info.name = "tiny";
    b->g->info.seq = (uint32_t)t->seq;
    graph_find_info(b->g);
}

void tiny_build(const Tiny *t, Arena *arena, Config *config, Graph *graph)
{
    tiny_config(t, arena, config);
    graph_init(graph, arena);
    Build b = {.t = t, .arena = arena, .g = graph, .diag = diag_in(arena)};
    trace(&b, t->micro * tiny_data_ranks(t), config);
}

Plan *tiny_plan_in(const Tiny *t, DTypeMap dtypes, Arena *arena, Diag *d)
{
    Config *config = arena_alloc(arena, sizeof *config);
    Graph graph;
    tiny_build(t, arena, config, &graph);
    LowerOptions options = lower_options_default();
    options.workspace = kernel_cpu_workspace;
    options.dtypes = dtypes;
    options.unpadded = t->unpadded;
    return plan_compile(config, &graph, &options, NULL, arena, d);
}

Plan *tiny_plan(const Tiny *t, bool fp64, Arena *arena, Diag *d)
{
    return tiny_plan_in(t, fp64 ? dtype_map_all(DT_f64) : dtype_map_identity(), arena, d);
}
