/* Builds the graph from the records of the child's trace. A hostile script may control the child,
 * so every index is checked, and all shapes are computed again here. */
#include <assert.h>
#include <string.h>

#include "planner/front/parent.h"
#include "planner/ir/window.h"

enum { MOST_ELEMENTS_SHRUNK = 20000000 };

static TensorId next_tensor(const Graph *g)
{
    return g->tensors.n == 0 ? 1 : g->tensors.n;
}

static bool add_module(Rebuild *b, Reader *r)
{
    Graph *g = b->graph;
    Module m;
    memset(&m, 0, sizeof m);
    m.path = get_text(r, b->arena);
    m.class_ = get_text(r, b->arena);
    m.parent = get_u32(r);
    m.is_block = get_u32(r) != 0;
    m.fsdp2_shard = get_u32(r) != 0;
    m.layer = get_u32(r);
    m.loc = draft_read_loc(b->draft, r);
    list_reserve_none(b->arena, &g->modules);
    if (!reader_finished(r) || m.parent >= g->modules.n) return false;
    list_push(b->arena, &g->modules, m);
    return true;
}

/* Replaces a parameter's initial distribution by one that reveals mistakes when --verify compares
 * gradients. With a bias of 0 or a norm's weight of 1, some errors would not show. Weights get a
 * standard deviation of at least 0.25, so that all gradients are of order 1. */
static Init varied(Init init)
{
    if (init.kind == INIT_ones) return (Init){INIT_normal, 1, 0.1};
    if (init.kind == INIT_zeros) return (Init){INIT_normal, 0, 0.1};
    if (init.kind == INIT_normal && init.b < 0.25) return (Init){INIT_normal, init.a, 0.25};
    return init;
}

/* Checks the segments of a fused projection, such as q, k and v in one weight. Dimension `at`
 * counts groups (such as KV heads); dimension at + 1 is a group's features, and consists of each[0]
 * features of segment 0, each[1] of segment 1, and so on. So the sum of `each` must be dim[at + 1].
 */
static bool order_fits(uint32_t at, uint32_t n, const int64_t *each, uint32_t n_dims,
                       const int64_t *dim)
{
    int64_t sum = 0;
    if (n == 0) return true;
    if (at + 1 >= n_dims) return false;
    for (uint32_t i = 0; i < n; i++) {
        if (each[i] < 1 || each[i] > dim[at + 1]) return false;
        sum += each[i];
    }
    return sum == dim[at + 1];
}

static bool get_dims(Reader *r, uint32_t *n_dims, int64_t dim[MAX_DIMS])
{
    *n_dims = get_u32(r);
    if (*n_dims < 1 || *n_dims > MAX_DIMS) return false;
    for (uint32_t i = 0; i < *n_dims; i++) {
        dim[i] = get_i64(r);
        if (dim[i] < 1 || dim[i] > INT64_C(1) << 30) return false;
    }
    return !r->bad;
}

/* The segments of a fused projection: each group of dimension `dim` has each[i] features of segment
 * i. n 0: no segments, features keep their order. */
typedef struct SegmentOrder {
    uint32_t dim, n;
    int64_t each[FRONT_MOST_SEGMENTS];
} SegmentOrder;

static bool get_order(Reader *r, uint32_t n_dims, const int64_t *dim, SegmentOrder *o)
{
    o->n = get_u32(r);
    o->dim = o->n ? get_u32(r) : 0;
    if (o->n > FRONT_MOST_SEGMENTS) return false;
    for (uint32_t i = 0; i < o->n; i++) o->each[i] = get_i64(r);
    return reader_finished(r) && order_fits(o->dim, o->n, o->each, n_dims, dim);
}

static void set_order(Rebuild *b, Tensor *t, const SegmentOrder *o)
{
    t->order_dim = (uint8_t)o->dim;
    if (o->n)
        t->order =
            deal_segments(&b->graph->deals, b->arena, (uint32_t)t->dim[o->dim], o->n, o->each);
}

static bool add_param(Rebuild *b, Reader *r)
{
    Graph *g = b->graph;
    const Config *c = &b->draft->config;
    TensorId id = get_u32(r);
    const char *name = get_text(r, b->arena);
    ModuleId module = get_u32(r);
    Loc loc = draft_read_loc(b->draft, r);
    uint32_t tp = get_u32(r), column = get_u32(r), row = get_u32(r), init = get_u32(r);
    Init start = {(InitKind)(init <= INIT_uniform ? init : 0), 0, 0};
    start.a = get_f64(r);
    start.b = get_f64(r);
    bool embedding = get_u32(r) != 0;
    uint32_t n_dims;
    int64_t dim[MAX_DIMS];
    SegmentOrder order;
    if (!get_dims(r, &n_dims, dim) || !get_order(r, n_dims, dim, &order) || id != next_tensor(g) ||
        module == 0 || module >= g->modules.n || tp > TP_vocab || column >= n_dims ||
        row >= n_dims || init > INIT_uniform)
        return false;
    graph_tensor(g, b->arena, name, ROLE_param, c->compute, n_dims, dim, loc);
    Tensor *t = &g->tensors.at[id];
    t->module = module;
    t->rest_dtype = c->param;
    t->reduce_dtype = c->reduce;
    t->tp = (TpStyle)tp;
    t->column_dim = (uint8_t)column;
    t->row_dim = (uint8_t)row;
    t->init = b->varied ? varied(start) : start;
    t->init_stream = hash_bytes(name, strlen(name)).lo;
    t->input_embedding = embedding;
    set_order(b, t, &order);
    return true;
}

/* Returns the dtype of statistics and state tensors: fp64 if the plan computes in fp64, otherwise
 * fp32. */
static DType wide(const Rebuild *b)
{
    return b->draft->config.compute == DT_f64 ? DT_f64 : DT_f32;
}

/* Adds a state tensor, which lives between steps. Its initial value is random, drawn like a weight;
 * the model's first update scales it. */
static bool add_state(Rebuild *b, Reader *r)
{
    Graph *g = b->graph;
    TensorId id = get_u32(r);
    const char *name = get_text(r, b->arena);
    ModuleId module = get_u32(r);
    Loc loc = draft_read_loc(b->draft, r);
    uint32_t n_dims;
    int64_t dim[MAX_DIMS];
    SegmentOrder order;
    if (!get_dims(r, &n_dims, dim) || !get_order(r, n_dims, dim, &order) || id != next_tensor(g) ||
        module == 0 || module >= g->modules.n)
        return false;
    graph_tensor(g, b->arena, name, ROLE_state, wide(b), n_dims, dim, loc);
    Tensor *t = &g->tensors.at[id];
    t->module = module;
    t->init = (Init){INIT_normal, 0, 1};
    t->init_stream = hash_bytes(name, strlen(name)).lo;
    set_order(b, t, &order);
    return true;
}

/* Sets the dtypes of a node's outputs: statistics (such as a norm's root mean square) are at least
 * fp32, losses are fp64. */
static void set_dtypes(Rebuild *b, const Node *n)
{
    Graph *g = b->graph;
    for (uint32_t j = 0; j < n->n_out; j++) {
        Tensor *t = &g->tensors.at[n->out[j]];
        if (graph_is_statistic(g, n->out[j])) t->dtype = wide(b);
    }
    if (!op_makes_loss(n->op)) return;
    g->tensors.at[n->out[0]].role = ROLE_loss;
    for (uint32_t j = 0; j < n->n_out; j++) g->tensors.at[n->out[j]].dtype = DT_f64;
}

static TensorId add_input(Rebuild *b, const char *name, DType dtype, uint32_t n_dims,
                          const int64_t *dim, Loc loc)
{
    return graph_tensor(b->graph, b->arena, name, ROLE_input, dtype, n_dims, dim, loc);
}

static bool within(int64_t x, int64_t most)
{
    return x > 0 && x <= most;
}

/* Adds the input tensor [n, rows x columns, channels x patch x patch] with the images of n samples,
 * each cut into rows x columns patches. */
static TensorId add_image(Rebuild *b, const Attrs *attrs, int64_t n, Loc loc)
{
    if (!within(attrs->rows, IMAGE_MOST) || !within(attrs->columns, IMAGE_MOST) ||
        !within(attrs->h_kernel, IMAGE_MOST_PATCH) || !within(attrs->count, IMAGE_MOST))
        return 0;
    const int64_t dim[] = {n, attrs->rows * attrs->columns,
                           attrs->count * attrs->h_kernel * attrs->h_kernel};
    const char *name = arena_print(b->arena, "image.%u", next_tensor(b->graph));
    TensorId out = add_input(b, name, wide(b), 3, dim, loc);
    graph_node(b->graph, b->arena, OP_image, NULL, 0, &out, 1, attrs, 0, loc);
    return out;
}

/* Adds the input tensors of a micro-batch: tokens and labels; an input and a target field; an
 * image; or the offsets between the points of an attention window. Returns the first tensor, or 0
 * if `op` reads no such data or its sizes are out of range. */
static TensorId add_source(Rebuild *b, OpKind op, const Attrs *attrs, Loc loc)
{
    const Config *c = &b->draft->config;
    const int64_t n = c->micro_batch * config_data_ranks(c);
    const int64_t tokens[] = {n, c->seq};
    const int64_t input[] = {n, c->channels, c->height, c->width};
    const int64_t target[] = {n, c->targets, c->height, c->width};
    const int64_t down = attrs->h_kernel, across = attrs->w_kernel;
    const int64_t offsets[] = {n, (2 * down - 1) * (2 * across - 1), 2};
    static const Attrs none;
    TensorId out[2];
    if (!(op_info(op)->flags & OP_SOURCE)) return 0;
    if (op_makes_images(op)) return add_image(b, attrs, n, loc);
    if (op_dim(op, 0, INDEX_tokens) >= 0 && !c->height) {
        out[0] = add_input(b, "tokens", DT_i32, 2, tokens, loc);
        out[1] = add_input(b, "labels", DT_i32, 2, tokens, loc);
    } else if (op_dim(op, 0, INDEX_height) >= 0 && c->height) {
        out[0] = add_input(b, "input", wide(b), 4, input, loc);
        out[1] = add_input(b, "target", wide(b), 4, target, loc);
    } else if (op_info(op)->sig.n_out == 1 && down > 0 && across > 0 &&
               down <= WINDOW_MOST_POINTS && across <= WINDOW_MOST_POINTS) {
        const char *name =
            arena_print(b->arena, "offsets.%lldx%lld", (long long)down, (long long)across);
        out[0] = add_input(b, name, wide(b), 3, offsets, loc);
        graph_node(b->graph, b->arena, op, NULL, 0, out, 1, attrs, 0, loc);
        return out[0];
    } else {
        return 0;
    }
    graph_node(b->graph, b->arena, op, NULL, 0, out, 2, &none, 0, loc);
    return out[0];
}

/* Sets the divisor of a loss node from the plan, and returns the loss op for the plan's
 * denominator. The model's own choice is ignored. seq: labelled tokens in a sequence. */
static OpKind set_denominator(const Config *c, OpKind op, int64_t seq, Attrs *attrs)
{
    attrs->scale = 1.0 / ((double)c->global_batch * (double)seq);
    attrs->count_all = c->denominator == DENOMINATOR_all;
    /* a loss over grid points has no padding, so all denominators give the same value */
    if (op_dim(op, 0, INDEX_tokens) < 0) return op;
    attrs->group = 0;
    if (c->denominator != DENOMINATOR_microbatch_mean) return OP_xent_loss;
    attrs->group = c->group;
    attrs->scale = 1.0 / (double)(c->global_batch / c->group);
    return OP_xent_loss_mean;
}

/* Numbers the ops that draw random values (dropout), for the streams of the random generator; a
 * number from the child would not be trusted. Returns false if the drop rate is not in [0, 1). */
static bool set_site(Rebuild *b, Attrs *attrs)
{
    attrs->site = attrs->drop > 0 ? ++b->n_sites : 0;
    return attrs->drop >= 0 && attrs->drop < 1;
}

/* Returns the number of tokens of each sequence that the loss reads: the size of the labels' token
 * dimension. */
static int64_t sequence_of_loss(const Config *c, const Graph *g, OpKind op, const TensorId *in,
                                uint32_t n_in)
{
    enum { LABELS = 3 };
    const int d = op_dim(op, LABELS, INDEX_tokens);
    const Tensor *labels = d >= 0 && n_in > LABELS ? &g->tensors.at[in[LABELS]] : NULL;
    return labels != NULL && labels->n_dims > d ? labels->dim[d] : c->seq;
}

void front_set_divisor(const Config *c, Graph *graph, Arena *arena)
{
    for (NodeId id = 1; id < graph->nodes.n; id++) {
        Node *n = &graph->nodes.at[id];
        if (!op_makes_loss(n->op)) continue;
        Attrs attrs = *graph_attrs_at(graph, n->attrs);
        n->op =
            set_denominator(c, n->op, sequence_of_loss(c, graph, n->op, n->in, n->n_in), &attrs);
        n->attrs = graph_attrs(graph, arena, &attrs);
    }
}

static TensorId add_node(Rebuild *b, OpKind op, const TensorId *in, uint32_t n_in, Attrs *attrs,
                         ModuleId module, Loc loc)
{
    const Config *c = &b->draft->config;
    Graph *g = b->graph;
    if (op_makes_loss(op)) op = set_denominator(c, op, sequence_of_loss(c, g, op, in, n_in), attrs);
    if (!set_site(b, attrs)) return 0;
    Diag ignored = diag_in(b->arena);
    TensorId out = graph_op(g, b->arena, op, in, n_in, c->compute, attrs, module, loc, &ignored);
    if (out == 0) return 0;
    Node *n = &g->nodes.at[g->nodes.n - 1];
    n->layer = module != 0 ? g->modules.at[module].layer : 0;
    set_dtypes(b, n);
    return out;
}

#define get_double  get_f64
#define get_int64_t get_i64
static bool add_op(Rebuild *b, Reader *r)
{
    Graph *g = b->graph;
    uint32_t op = get_u32(r);
    TensorId first = get_u32(r);
    ModuleId module = get_u32(r);
    Loc loc = draft_read_loc(b->draft, r);
    uint32_t n_in = get_u32(r);
    TensorId in[MAX_IN];
    if (op == OP_none || op >= OP_COUNT || n_in > MAX_IN) return false;
    for (uint32_t i = 0; i < n_in; i++) {
        in[i] = get_u32(r);
        if (in[i] == 0 || in[i] >= g->tensors.n) return false;
    }
    Attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    if (get_u32(r)) {
#define X(type, name) attrs.name = get_##type(r);
        ATTRIBUTES(X)
#undef X
        const uint32_t pairs = get_u32(r);
        if (pairs > ROPE_PAIRS) return false;
        for (uint32_t i = 0; i < pairs; i++) attrs.rope_pair[i] = get_f64(r);
    }
    if (!reader_finished(r) || (module != 0 && module >= g->modules.n)) return false;
    OpClass class_ = op_info((OpKind)op)->class_;
    if (class_ != OP_CLASS_compute && class_ != OP_CLASS_contract) return false;
    const bool source = (op_info((OpKind)op)->flags & OP_SOURCE) != 0;
    if ((n_in == 0) != source || first != next_tensor(g)) return false;
    if (op_info((OpKind)op)->flags & OP_UPDATES && g->tensors.at[in[0]].role != ROLE_state)
        return false;
    TensorId out = source ? add_source(b, (OpKind)op, &attrs, loc)
                          : add_node(b, (OpKind)op, in, n_in, &attrs, module, loc);
    return out == first;
}

bool rebuild_record(Rebuild *b, RecordKind kind, Reader *r)
{
    if (kind == RECORD_module) return add_module(b, r);
    if (kind == RECORD_param) return add_param(b, r);
    if (kind == RECORD_state) return add_state(b, r);
    if (kind == RECORD_op) return add_op(b, r);
    if (kind == RECORD_name) {
        b->graph->info.name = get_text(r, b->arena);
        return reader_finished(r);
    }
    assert(kind == RECORD_loss);
    const Graph *g = b->graph;
    b->graph->loss = get_u32(r);
    return reader_finished(r) && g->loss != 0 && g->loss < g->tensors.n &&
           g->tensors.at[g->loss].role == ROLE_loss;
}

/* Clears input_embedding of each parameter that a matrix product reads, such as an embedding table
 * that is also the head's weight. The MFU leaves out input embeddings, but must count the FLOPs of
 * this product. */
static void find_embeddings(Graph *g)
{
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        if (op_info(n->op)->class_ == OP_CLASS_contract)
            g->tensors.at[n->in[1]].input_embedding = false;
    }
}

bool rebuild_finish(Rebuild *b, Diag *d)
{
    Graph *g = b->graph;
    const Config *c = &b->draft->config;
    if (g->loss == 0) return false;
    if (g->info.name == NULL) g->info.name = "model";
    find_embeddings(g);
    g->info.seq = (uint32_t)c->seq;
    graph_find_info(g);
    if (b->varied && g->info.n_params > MOST_ELEMENTS_SHRUNK) {
        diag_error(d, FAULT_input, "shrink-missing", draft_loc(b->draft, "model"),
                   "the model is too large for --verify and has no function shrink");
        diag_hint(d, "give the model shrink = function(config, mesh) ... return small_config end");
    }
    return true;
}
