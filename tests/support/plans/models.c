/* Builds the tests' tiny models through the graph's own functions. */
#include "tests/support/plans/models.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "planner/base/str.h"

typedef struct Builder {
    Graph *g;
    Arena *arena;
    Diag diag;
    double spread; /* the standard deviation of weights */
    TensorId labels;
    ModuleId root, module; /* the root, and the module that is being built */
} Builder;

#define DIMS(...)                                                                                  \
    (uint32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[])              \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* Sets how tensor parallelism may cut a parameter. The last part of the parameter's path
 * decides. */
static void set_style(Tensor *p)
{
    static const struct {
        const char *path;
        TpStyle weight, bias;
        uint8_t dim; /* the dimension of the weight that is cut */
    } styles[] = {{".wq.", TP_column, TP_column, 1},     {".wk.", TP_column, TP_column, 1},
                  {".wv.", TP_column, TP_column, 1},     {".w1.", TP_column, TP_column, 1},
                  {".w3.", TP_column, TP_column, 1},     {".up.", TP_column, TP_column, 1},
                  {".wo.", TP_row, TP_none, 0},          {".w2.", TP_row, TP_none, 0},
                  {".down.", TP_row, TP_none, 0},        {"wte.", TP_vocab, TP_none, 0},
                  {"embeddings.", TP_vocab, TP_none, 0}, {"output.", TP_vocab, TP_none, 1}};
    bool is_bias = strstr(p->name, ".bias") != NULL;
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++)
        if (strstr(p->name, styles[i].path) != NULL) {
            p->tp = is_bias ? styles[i].bias : styles[i].weight;
            p->column_dim = is_bias ? 0 : styles[i].dim;
        }
}

static TensorId param(Builder *m, const char *name, double mean, uint32_t n, const int64_t *dim)
{
    TensorId t = graph_tensor(m->g, m->arena, name, ROLE_param, DT_f64, n, dim, (Loc){0});
    Tensor *p = &m->g->tensors.at[t];
    p->rest_dtype = p->reduce_dtype = DT_f64;
    p->init = (Init){INIT_normal, mean, m->spread};
    p->init_stream = hash_bytes(name, strlen(name)).lo;
    p->module = m->module;
    set_style(p);
    return t;
}

static TensorId weight(Builder *m, const char *path, const char *name, uint32_t n,
                       const int64_t *dim)
{
    return param(m, arena_print(m->arena, "%s%s.weight", path, name), 0, n, dim);
}

static TensorId op(Builder *m, OpKind kind, const TensorId *in, uint32_t n, const Attrs *attrs)
{
    static const Attrs none;
    TensorId t = graph_op(m->g, m->arena, kind, in, n, DT_f64, attrs ? attrs : &none, m->module,
                          (Loc){0}, &m->diag);
    if (t == 0) {
        Str text = str_in(m->arena);
        diag_print(&m->diag, &text);
        fprintf(stderr, "%s", str_text(&text));
    }
    assert(t != 0);
    return t;
}

static TensorId op1(Builder *m, OpKind kind, TensorId x)
{
    return op(m, kind, (const TensorId[]){x}, 1, NULL);
}

static TensorId op2(Builder *m, OpKind kind, TensorId x, TensorId y)
{
    return op(m, kind, (const TensorId[]){x, y}, 2, NULL);
}

/* Adds an op with a bias of shape `dim`, which has `n` dimensions. */
static TensorId biased(Builder *m, OpKind kind, TensorId x, TensorId w, const char *path,
                       const char *name, uint32_t n, const int64_t *dim)
{
    TensorId y = op2(m, kind, x, w);
    TensorId b = param(m, arena_print(m->arena, "%s%s.bias", path, name), 0, n, dim);
    return op2(m, OP_bias, y, b);
}

static ModuleId module(Builder *m, const char *path, const char *class_, ModuleId parent,
                       uint32_t layer)
{
    Module made = {.path = path, .class_ = class_, .parent = parent, .layer = layer};
    made.is_block = strcmp(class_, "block") == 0;
    return (ModuleId)list_push(m->arena, &m->g->modules, made);
}

/* After this call, new nodes and parameters belong to the attention of the current block. */
static ModuleId enter_attention(Builder *m)
{
    ModuleId block = m->module;
    Module at = m->g->modules.at[block];
    m->module =
        module(m, arena_print(m->arena, "%s.attention", at.path), "attention", block, at.layer);
    return block;
}

static Builder start(Graph *g, Arena *arena, int64_t batch, int64_t seq, TensorId *tokens)
{
    graph_init(g, arena);
    Builder m = {.g = g, .arena = arena, .diag = diag_in(arena), .spread = 0.2};
    TensorId out[2];
    out[0] = graph_tensor(g, arena, "tokens", ROLE_input, DT_i32, DIMS(batch, seq), (Loc){0});
    out[1] = graph_tensor(g, arena, "labels", ROLE_input, DT_i32, DIMS(batch, seq), (Loc){0});
    graph_node(g, arena, OP_batch, NULL, 0, out, 2, &(Attrs){0}, 0, (Loc){0});
    *tokens = out[0];
    m.labels = out[1];
    m.root = m.module = module(&m, "", "module", 0, 0);
    return m;
}

static void cross_entropy(Builder *m, TensorId logits, double global_tokens)
{
    TensorId top = op1(m, OP_xent_max, logits);
    TensorId picked = op2(m, OP_xent_pick, logits, m->labels);
    TensorId total = op2(m, OP_xent_sumexp, logits, top);
    /* The golden tensors were made with these attributes. */
    Attrs attrs = {.scale = 1 / global_tokens, .count_all = 1};
    m->g->loss = op(m, OP_xent_loss, (const TensorId[]){top, total, picked, m->labels}, 4, &attrs);
    m->g->tensors.at[m->g->loss].role = ROLE_loss;
}

static TensorId rmsnorm(Builder *m, TensorId x, const char *path, const char *name, int64_t dim)
{
    TensorId w = param(m, arena_print(m->arena, "%s%s.weight", path, name), 1, DIMS(dim));
    return op(m, OP_rmsnorm, (const TensorId[]){x, w}, 2, &(Attrs){.eps = 1e-5});
}

static TensorId layernorm(Builder *m, TensorId x, const char *path, const char *name, int64_t dim)
{
    TensorId w = param(m, arena_print(m->arena, "%s%s.weight", path, name), 1, DIMS(dim));
    TensorId b = param(m, arena_print(m->arena, "%s%s.bias", path, name), 0, DIMS(dim));
    return op(m, OP_layernorm, (const TensorId[]){x, w, b}, 3, &(Attrs){.eps = 1e-5});
}

static TensorId attention(Builder *m, TensorId q, TensorId k, TensorId v, double head_dim)
{
    Attrs attrs = {.scale = 1 / sqrt(head_dim), .causal = 1};
    return op(m, OP_attention, (const TensorId[]){q, k, v}, 3, &attrs);
}

static TensorId llama_block(Builder *m, TensorId x, const char *p)
{
    enum { dim = 16, g = 2, r = 2, e = 8, hidden = 24 };
    const Attrs rope = {
        .theta = 10000, .rope_factor = 8, .rope_low = 1, .rope_high = 4, .rope_context = 100};
    TensorId h = rmsnorm(m, x, p, "attention_norm", dim);
    ModuleId block = enter_attention(m);
    TensorId q = op2(m, OP_linear_q, h, weight(m, p, "attention.wq", DIMS(dim, g, r, e)));
    TensorId k = op2(m, OP_linear_kv, h, weight(m, p, "attention.wk", DIMS(dim, g, e)));
    TensorId v = op2(m, OP_linear_kv, h, weight(m, p, "attention.wv", DIMS(dim, g, e)));
    q = op(m, OP_rope, &q, 1, &rope);
    k = op(m, OP_rope, &k, 1, &rope);
    TensorId y = op2(m, OP_linear_o, attention(m, q, k, v, e),
                     weight(m, p, "attention.wo", DIMS(g, r, e, dim)));
    m->module = block;
    x = op2(m, OP_add, x, y);
    h = rmsnorm(m, x, p, "ffn_norm", dim);
    TensorId gate = op2(m, OP_linear, h, weight(m, p, "feed_forward.w1", DIMS(dim, hidden)));
    TensorId up = op2(m, OP_linear, h, weight(m, p, "feed_forward.w3", DIMS(dim, hidden)));
    y = op2(m, OP_mul, op1(m, OP_silu, gate), up);
    y = op2(m, OP_linear, y, weight(m, p, "feed_forward.w2", DIMS(hidden, dim)));
    return op2(m, OP_add, x, y);
}

void model_llama(Graph *g, Arena *arena, int64_t batch, double global_tokens)
{
    enum { vocab = 29, dim = 16, seq = 10 };
    TensorId tokens;
    Builder m = start(g, arena, batch, seq, &tokens);
    TensorId x = op2(&m, OP_embed, tokens, weight(&m, "", "tok_embeddings", DIMS(vocab, dim)));
    for (uint32_t i = 0; i < 2; i++) {
        m.module = module(&m, arena_print(arena, "layers.%u", i), "block", m.root, i + 1);
        x = llama_block(&m, x, arena_print(arena, "layers.%u.", i));
    }
    m.module = m.root;
    x = rmsnorm(&m, x, "", "norm", dim);
    x = op2(&m, OP_linear, x, weight(&m, "", "output", DIMS(dim, vocab)));
    cross_entropy(&m, x, global_tokens);
}

static TensorId gpt2_block(Builder *m, TensorId x, const char *p)
{
    enum { dim = 12, heads = 3, e = 4 };
    TensorId h = layernorm(m, x, p, "ln_1", dim);
    ModuleId block = enter_attention(m);
    TensorId q = biased(m, OP_linear_q, h, weight(m, p, "attention.wq", DIMS(dim, heads, 1, e)), p,
                        "attention.wq", DIMS(heads, 1, e));
    TensorId k = biased(m, OP_linear_kv, h, weight(m, p, "attention.wk", DIMS(dim, heads, e)), p,
                        "attention.wk", DIMS(heads, e));
    TensorId v = biased(m, OP_linear_kv, h, weight(m, p, "attention.wv", DIMS(dim, heads, e)), p,
                        "attention.wv", DIMS(heads, e));
    TensorId y =
        biased(m, OP_linear_o, attention(m, q, k, v, e),
               weight(m, p, "attention.wo", DIMS(heads, 1, e, dim)), p, "attention.wo", DIMS(dim));
    m->module = block;
    x = op2(m, OP_add, x, y);
    h = layernorm(m, x, p, "ln_2", dim);
    h = biased(m, OP_linear, h, weight(m, p, "mlp.up", DIMS(dim, 4 * dim)), p, "mlp.up",
               DIMS(4 * dim));
    h = biased(m, OP_linear, op1(m, OP_gelu, h), weight(m, p, "mlp.down", DIMS(4 * dim, dim)), p,
               "mlp.down", DIMS(dim));
    return op2(m, OP_add, x, h);
}

void model_gpt2(Graph *g, Arena *arena, int64_t batch, double global_tokens)
{
    enum { vocab = 31, dim = 12, seq = 9 };
    TensorId tokens;
    Builder m = start(g, arena, batch, seq, &tokens);
    TensorId table = weight(&m, "", "wte", DIMS(vocab, dim));
    TensorId x = op2(&m, OP_embed, tokens, table);
    x = op2(&m, OP_position, x, weight(&m, "", "wpe", DIMS(seq, dim)));
    for (uint32_t i = 0; i < 2; i++) {
        m.module = module(&m, arena_print(arena, "layers.%u", i), "block", m.root, i + 1);
        x = gpt2_block(&m, x, arena_print(arena, "layers.%u.", i));
    }
    m.module = m.root;
    x = op2(&m, OP_linear_t, layernorm(&m, x, "", "ln_f", dim), table);
    cross_entropy(&m, x, global_tokens);
}
