/* Builds small models of fields node by node, as the front does. */
#include "tests/support/plans/nets.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kernel.h"
#include "planner/base/str.h"

typedef struct Build {
    const Net *net;
    Arena *arena;
    Graph *g;
    Diag diag;
    ModuleId module;
    uint32_t line;
} Build;

Window net_window(int64_t kernel, int64_t stride, int64_t dilation, WindowMode mode)
{
    const int64_t around = (kernel - 1) * dilation + 1 - stride;
    return (Window){.kernel = kernel,
                    .stride = stride,
                    .dilation = dilation,
                    .before = around > 0 ? (around + 1) / 2 : 0,
                    .after = around > 0 ? around / 2 : around,
                    .mode = mode};
}

Net net_default(void)
{
    const Window w = net_window(3, 1, 1, WINDOW_zero);
    return (Net){.channels = 4,
                 .height = 12,
                 .width = 8,
                 .n_layers = 1,
                 .layer = {{NET_conv, w, w}},
                 .micro = 1,
                 .microbatches = 1,
                 .domain = 1,
                 .domain_w = 1,
                 .dp_shard = 1,
                 .dp_replicate = 1,
                 .tp = 1,
                 .clip = 1,
                 .compute = DT_f32};
}

static int64_t data_ranks(const Net *n)
{
    return (int64_t)n->dp_shard * n->dp_replicate;
}

Net net_one_rank(const Net *n)
{
    Net one = *n;
    one.micro = n->micro * data_ranks(n);
    one.domain = one.domain_w = one.dp_shard = one.dp_replicate = one.tp = 1;
    one.ac = AC_none;
    return one;
}

static Loc here(Build *b)
{
    return (Loc){"net.lua", ++b->line};
}

static ModuleId module(Build *b, const char *path, ModuleId parent, uint32_t layer)
{
    ModuleId id = (ModuleId)list_add(b->arena, &b->g->modules);
    b->g->modules.at[id] = (Module){.path = path,
                                    .class_ = layer ? "block" : "net",
                                    .parent = parent,
                                    .layer = layer,
                                    .is_block = layer > 0,
                                    .loc = here(b)};
    return id;
}

static TensorId param(Build *b, const char *name, double mean, double deviation, uint32_t n,
                      const int64_t *dim)
{
    const char *path = b->g->modules.at[b->module].path;
    if (*path) name = arena_print(b->arena, "%s.%s", path, name);
    TensorId id = graph_tensor(b->g, b->arena, name, ROLE_param, b->net->compute, n, dim, here(b));
    Tensor *t = &b->g->tensors.at[id];
    t->rest_dtype = t->reduce_dtype = b->net->compute;
    t->module = b->module;
    t->init = (Init){INIT_normal, mean, deviation};
    t->init_stream = hash_bytes(name, strlen(name)).lo;
    return id;
}

static TensorId op(Build *b, OpKind kind, const TensorId *in, uint32_t n, const Attrs *attrs)
{
    static const Attrs none;
    TensorId out = graph_op(b->g, b->arena, kind, in, n, b->net->compute, attrs ? attrs : &none,
                            b->module, here(b), &b->diag);
    if (!out) {
        Str text = str_in(b->arena);
        diag_print(&b->diag, &text);
        fprintf(stderr, "%s", str_text(&text));
    }
    assert(out);
    const Node *node = &b->g->nodes.at[b->g->tensors.at[out].producer];
    for (uint32_t j = 0; j < node->n_out; j++) /* The front gives statistics fp32, too. */
        if (b->net->compute != DT_f64 && graph_is_statistic(b->g, node->out[j]))
            b->g->tensors.at[node->out[j]].dtype = DT_f32;
    return out;
}

static Attrs windows(const NetLayer *l)
{
    return (Attrs){.h_kernel = l->h.kernel,
                   .h_stride = l->h.stride,
                   .h_dilation = l->h.dilation,
                   .h_before = l->h.before,
                   .h_after = l->h.after,
                   .h_mode = (int64_t)l->h.mode,
                   .w_kernel = l->w.kernel,
                   .w_stride = l->w.stride,
                   .w_dilation = l->w.dilation,
                   .w_before = l->w.before,
                   .w_after = l->w.after,
                   .w_mode = (int64_t)l->w.mode};
}

#define DIMS(...)                                                                                  \
    (uint32_t)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[])                                  \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static TensorId state(Build *b, TensorId w, const char *suffix, uint32_t n, const int64_t *dim)
{
    const char *name = arena_print(b->arena, "%s%s", b->g->tensors.at[w].name, suffix);
    const DType wide = b->net->compute == DT_f64 ? DT_f64 : DT_f32;
    const TensorId id = graph_tensor(b->g, b->arena, name, ROLE_state, wide, n, dim, here(b));
    Tensor *t = &b->g->tensors.at[id];
    t->module = b->module;
    t->init = (Init){INIT_normal, 0, 1};
    t->init_stream = hash_bytes(name, strlen(name)).lo;
    return id;
}

/* Divides y by the norm of w [outputs, inputs, ...], or of w [inputs, outputs, ...] if
 * transposed. */
static TensorId over_norm(Build *b, TensorId y, TensorId w, bool transposed)
{
    if (!b->net->spectral) return y;
    const Tensor t = b->g->tensors.at[w];
    const Attrs eps = {.eps = 1e-12};
    TensorId u = state(b, w, "_u", DIMS(t.dim[transposed])), made = 0;
    TensorId v = state(b, w, "_v", DIMS(t.dim[!transposed], t.dim[2], t.dim[3]));
    TensorId *const next[] = {&u, &v}, *const by[] = {&v, &u};
    const OpKind product[] = {transposed ? OP_project_of_second : OP_project_of_first,
                              transposed ? OP_project_over_second : OP_project_over_first};
    for (int k = 0; k < 2; k++) {
        made = op(b, product[k], (TensorId[]){w, *by[k]}, 2, NULL);
        const TensorId square = op(b, OP_inner_product, (TensorId[]){made, made}, 2, NULL);
        *next[k] = op(b, OP_normalise, (TensorId[]){*next[k], made, square}, 3, &eps);
    }
    const TensorId sigma = op(b, OP_inner_product, (TensorId[]){made, v}, 2, NULL);
    return op(b, OP_divide, (TensorId[]){y, sigma}, 2, NULL);
}

static TensorId conv(Build *b, const NetLayer *l, TensorId x, bool transposed)
{
    const int64_t c = b->net->channels;
    const Attrs attrs = windows(l);
    TensorId w = param(b, "weight", 0, 0.2, DIMS(c, c, l->h.kernel, l->w.kernel));
    TensorId y = op(b, transposed ? OP_conv_transpose2d : OP_conv2d, (TensorId[]){x, w}, 2, &attrs);
    y = over_norm(b, y, w, transposed);
    TensorId bias = param(b, "bias", 0, 0.1, DIMS(c));
    return op(b, OP_channel_bias, (TensorId[]){y, bias}, 2, NULL);
}

static TensorId norm(Build *b, TensorId x)
{
    const int64_t c = b->net->channels;
    const Attrs attrs = {.group = 2, .eps = 1e-5};
    TensorId sum = op(b, OP_group_sum, &x, 1, &attrs);
    TensorId spread = op(b, OP_group_spread, (TensorId[]){x, sum}, 2, &attrs);
    TensorId weight = param(b, "weight", 1, 0.1, DIMS(c)), bias = param(b, "bias", 0, 0.1, DIMS(c));
    return op(b, OP_group_norm, (TensorId[]){x, sum, spread, weight, bias}, 5, &attrs);
}

/* Attention in windows. The bias between two points depends linearly on the differences of their
 * coordinates, which are equal on all ranks. */
static TensorId attention(Build *b, const NetLayer *l, TensorId x)
{
    const int64_t batch = b->net->micro * data_ranks(b->net), rows = l->h.kernel,
                  columns = l->w.kernel;
    const Attrs attrs = {.h_kernel = rows, .w_kernel = columns, .group = 2, .scale = 0.7};
    const char *name = arena_print(b->arena, "%s.offsets", b->g->modules.at[b->module].path);
    TensorId offsets = graph_tensor(b->g, b->arena, name, ROLE_input, b->net->compute,
                                    DIMS(batch, (2 * rows - 1) * (2 * columns - 1), 2), here(b));
    const Attrs points = {.h_kernel = attrs.h_kernel, .w_kernel = attrs.w_kernel};
    graph_node(b->g, b->arena, OP_offsets, NULL, 0, &offsets, 1, &points, 0, here(b));
    TensorId weight = param(b, "bias_weight", 0, 0.5, DIMS(2, 1));
    TensorId bias = op(b, OP_linear, (TensorId[]){offsets, weight}, 2, NULL);
    bias = op(b, OP_window_bias, (TensorId[]){op(b, OP_sum_features, &bias, 1, NULL)}, 1, &attrs);
    const OpKind kind = l->kind == NET_apart ? OP_strided_attention : OP_window_attention;
    TensorId y = op(b, kind, (TensorId[]){x, x, x, bias}, 4, &attrs);
    return op(b, OP_add, (TensorId[]){x, y}, 2, NULL);
}

static TensorId shuffle(Build *b, const NetLayer *l, TensorId x)
{
    const int64_t c = b->net->channels, more = c * l->h.kernel * l->w.kernel;
    const Window same = net_window(3, 1, 1, WINDOW_zero);
    const Attrs pool = windows(l), within = windows(&(NetLayer){NET_conv, same, same});
    x = op(b, OP_avg_pool2d, &x, 1, &pool);
    TensorId weight = param(b, "weight", 0, 0.2, DIMS(more, c, 3, 3));
    x = op(b, OP_conv2d, (TensorId[]){x, weight}, 2, &within);
    const Attrs factors = {.h_kernel = l->h.kernel, .w_kernel = l->w.kernel};
    return op(b, OP_pixel_shuffle, &x, 1, &factors);
}

/* Pads the field beyond its poles and around the globe, convolves it, and crops it. */
static TensorId earth(Build *b, const NetLayer *l, TensorId x)
{
    const Window one = net_window(1, 1, 1, WINDOW_symmetric),
                 same = net_window(3, 1, 1, WINDOW_zero);
    NetLayer rows = {NET_pool, one, one}, columns = rows, crop = rows;
    const NetLayer within = {NET_conv, same, same};
    rows.h.before = rows.h.after = l->h.before;
    columns.w.before = columns.w.after = l->w.before;
    columns.w.mode = WINDOW_periodic;
    crop.h.before = crop.h.after = -l->h.before;
    crop.w.before = crop.w.after = -l->w.before;
    const Attrs down = windows(&rows), across = windows(&columns), cropped = windows(&crop);
    x = op(b, OP_avg_pool2d, &x, 1, &down);
    const Attrs poles = {.h_before = l->h.before, .h_after = l->h.before};
    x = op(b, OP_turn_poles, &x, 1, &poles);
    x = op(b, OP_avg_pool2d, &x, 1, &across);
    x = conv(b, &within, x, false);
    return op(b, OP_avg_pool2d, &x, 1, &cropped);
}

static TensorId layer(Build *b, const NetLayer *l, TensorId x)
{
    const Attrs attrs = windows(l);
    TensorId y;
    switch (l->kind) {
    case NET_conv: return op(b, OP_gelu, (TensorId[]){conv(b, l, x, false)}, 1, NULL);
    case NET_transpose: return conv(b, l, x, true);
    case NET_residual:
        y = op(b, OP_silu, (TensorId[]){conv(b, l, x, false)}, 1, NULL);
        return op(b, OP_add, (TensorId[]){x, y}, 2, NULL);
    case NET_norm: return norm(b, x);
    case NET_pool: return op(b, OP_avg_pool2d, &x, 1, &attrs);
    case NET_shuffle: return shuffle(b, l, x);
    case NET_earth: return earth(b, l, x);
    case NET_attention:
    case NET_apart: return attention(b, l, x);
    case NET_KINDS: break;
    }
    assert(0 && "a kind of layer");
    return x;
}

static void add_passes(const Net *n, Config *config)
{
    uint32_t k = 0;
    const uint32_t domains = n->domain * n->domain_w;
    if (domains > 1)
        config->passes[k++] = (PassConfig){.name = PASS_domain,
                                           .domain = {n->original ? DOMAIN_original : DOMAIN_exact,
                                                      n->keep_halos, !n->whole_rows}};
    if (n->ac != AC_none) config->passes[k++] = (PassConfig){.name = PASS_ac, .ac = n->ac};
    if (n->use_zero && n->dp_shard > 1)
        config->passes[k++] = (PassConfig){.name = PASS_zero, .zero = {.strategy = n->zero}};
    else if (n->dp_shard > 1 || (domains > 1 && !n->use_ddp))
        config->passes[k++] = (PassConfig){.name = PASS_fsdp2,
                                           .fsdp2 = {.reshard_after_forward = RESHARD_true,
                                                     .prefetch = 1,
                                                     .over_ep = true,
                                                     .mp = {.cast_forward_inputs = true}}};
    else if (n->dp_replicate > 1 || domains > 1)
        config->passes[k++] = (PassConfig){.name = PASS_ddp, .ddp = {.bucket_mib = 0.001}};
    config->n_passes = k;
}

static void set_config(const Net *n, Config *config)
{
    memset(config, 0, sizeof *config);
    config->file = "net.lua";
    for (int a = 0; a < AXIS_NAMES; a++) config->axis_size[a] = 1;
    config->axis_size[AXIS_dp_shard] = n->dp_shard;
    config->axis_size[AXIS_dp_replicate] = n->dp_replicate;
    config->axis_size[AXIS_domain] = n->domain;
    config->axis_size[AXIS_domain_w] = n->domain_w;
    config->axis_size[AXIS_tp] = n->tp;
    config->micro_batch = n->micro;
    config->global_batch = n->micro * data_ranks(n) * n->microbatches;
    config->seq = n->height * n->width;
    config->param = config->reduce = config->compute = n->compute;
    config->optimizer = (Optimizer){.kind = OPTIMIZER_adamw,
                                    .lr = 1e-2,
                                    .beta1 = 0.9,
                                    .beta2 = 0.95,
                                    .eps = 1e-6,
                                    .weight_decay = 0.1,
                                    .clip_norm = n->clip};
    config->seed = 7;
    add_passes(n, config);
}

void net_build(const Net *n, Arena *arena, Config *config, Graph *graph)
{
    Build b = {.net = n, .arena = arena, .g = graph, .diag = diag_in(arena)};
    const int64_t batch = n->micro * data_ranks(n);
    set_config(n, config);
    graph_init(graph, arena);
    TensorId out[2];
    for (int j = 0; j < 2; j++)
        out[j] = graph_tensor(graph, arena, j ? "target" : "input", ROLE_input, n->compute,
                              DIMS(batch, n->channels, n->height, n->width), here(&b));
    graph_node(graph, arena, OP_field, NULL, 0, out, 2, &(Attrs){0}, 0, here(&b));
    const ModuleId root = module(&b, "", 0, 0);
    TensorId x = out[0];
    for (uint32_t i = 0; i < n->n_layers; i++) {
        b.module = module(&b, arena_print(arena, "layers.%u", i), root, i + 1);
        x = layer(&b, &n->layer[i], x);
    }
    b.module = root;
    const Attrs attrs = {.scale = 1.0 / ((double)config->global_batch * (double)config->seq),
                         .latitude = n->latitude};
    graph->loss = op(&b, OP_mse_loss, (TensorId[]){x, out[1]}, 2, &attrs);
    graph->tensors.at[graph->loss].role = ROLE_loss;
    for (uint32_t j = 0; j < 2; j++)
        graph->tensors.at[graph->nodes.at[graph->nodes.n - 1].out[j]].dtype = DT_f32;
    graph->info.n_layers = n->n_layers;
}

Plan *net_plan(const Net *n, bool fp64, Arena *arena, Diag *d)
{
    Config *config = arena_alloc(arena, sizeof *config);
    Graph graph;
    net_build(n, arena, config, &graph);
    LowerOptions options = lower_options_default();
    options.workspace = kernel_cpu_workspace;
    if (fp64) options.dtypes = dtype_map_all(DT_f64);
    return plan_compile(config, &graph, &options, NULL, arena, d);
}

static void print_window(Str *s, const Window *w)
{
    static const char *const modes[] = {"zero", "reflect", "periodic", "symmetric"};
    str_print(s, " %lld/%lld*%lld +%lld+%lld %s", (long long)w->kernel, (long long)w->stride,
              (long long)w->dilation, (long long)w->before, (long long)w->after, modes[w->mode]);
}

const char *net_name(const Net *n, Arena *arena)
{
    static const char *const kinds[] = {"conv",    "transpose", "residual",  "norm", "pool",
                                        "shuffle", "earth",     "attention", "apart"};
    Str s = str_in(arena);
    str_print(&s, "%lld x %lld x %lld:", (long long)n->channels, (long long)n->height,
              (long long)n->width);
    for (uint32_t i = 0; i < n->n_layers; i++) {
        str_print(&s, "%s %s", i ? "," : "", kinds[n->layer[i].kind]);
        if (n->layer[i].kind == NET_norm) continue;
        print_window(&s, &n->layer[i].h);
        str_add(&s, " x");
        print_window(&s, &n->layer[i].w);
    }
    str_print(&s,
              "; domain %u domain_w %u dp_shard %u dp_replicate %u%s%s micro %lld x %u ac %d%s%s",
              n->domain, n->domain_w, n->dp_shard, n->dp_replicate, n->use_ddp ? " ddp" : "",
              n->use_zero ? " zero" : "", (long long)n->micro, n->microbatches, (int)n->ac,
              n->latitude ? " latitude" : "", n->keep_halos ? " keep_halos" : "");
    if (n->whole_rows) str_print(&s, " whole_rows");
    if (n->spectral) str_print(&s, " spectral");
    return str_text(&s);
}
