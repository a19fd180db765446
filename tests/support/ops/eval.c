/* Evaluates graphs on one rank with the CPU kernels, and derives reverse-mode gradients from the
 * wiring of the op table. */
#include "tests/support/ops/eval.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/number.h"

int64_t value_elements(const Value *v)
{
    int64_t n = 1;
    for (uint32_t d = 0; d < v->n_dims; d++) n *= v->dim[d];
    return n;
}

int64_t value_numbers(const Value *v)
{
    return value_elements(v) * dtype_numbers(v->dtype);
}

Value value_new(Arena *arena, DType dtype, uint32_t n_dims, const int64_t *dim)
{
    assert(n_dims <= MAX_DIMS);
    Value v = {.dtype = dtype, .n_dims = (uint8_t)n_dims};
    for (uint32_t d = 0; d < n_dims; d++) v.dim[d] = dim[d];
    v.at = arena_array(arena, (size_t)value_elements(&v), dtype_bytes(dtype));
    value_poison(&v);
    return v;
}

double value_get(const Value *v, int64_t i)
{
    if (v->dtype == DT_i32) return ((const int32_t *)v->at)[i];
    return number_read(v->dtype, v->at, (uint64_t)i);
}

void value_set(Value *v, int64_t i, double x)
{
    if (v->dtype == DT_i32)
        ((int32_t *)v->at)[i] = (int32_t)x;
    else
        number_write(v->dtype, v->at, (uint64_t)i, x);
}

void value_poison(Value *v)
{
    memset(v->at, 0xff, (size_t)value_elements(v) * dtype_bytes(v->dtype));
}

static void check_diag(const Diag *d, Arena *arena)
{
    if (d->n_errors == 0) return;
    Str text = str_in(arena);
    diag_print(d, &text);
    fprintf(stderr, "%s", str_text(&text));
    abort();
}

static void bind_values(OpKind op, const Value *args, uint32_t n_in, uint32_t n_out, Binding *b)
{
    Arena *arena = arena_new();
    Diag diag = diag_in(arena);
    Dims in[MAX_IN], out[MAX_OUT];
    for (uint32_t i = 0; i < n_in; i++) in[i] = (Dims){args[i].n_dims, args[i].dim};
    for (uint32_t j = 0; j < n_out; j++) out[j] = (Dims){args[n_in + j].n_dims, args[n_in + j].dim};
    op_bind(op, in, n_in, out, n_out, b, (Loc){0}, &diag);
    check_diag(&diag, arena);
    arena_free(arena);
}

static KernelArgs args_of(const Attrs *attrs, const Value *args, uint32_t n_in, uint32_t n_out)
{
    KernelArgs a = {.n_in = n_in, .n_args = n_in + n_out, .rows = 1};
    if (attrs != NULL) a.attrs = *attrs;
    for (uint32_t i = 0; i < n_in + n_out; i++) {
        a.ptr[i] = args[i].at;
        a.dtype[i] = args[i].dtype;
        a.elements[i] = value_elements(&args[i]);
    }
    return a;
}

KernelArgs eval_args(OpKind op, const Attrs *attrs, const Value *args, uint32_t n_in,
                     uint32_t n_out, const Part *part, Binding *local)
{
    bind_values(op, args, n_in, n_out, local);
    KernelArgs a = args_of(attrs, args, n_in, n_out);
    a.binding = part != NULL ? part->global : local;
    for (uint32_t l = 0; l < local->n_letters; l++) {
        unsigned char letter = (unsigned char)local->letters[l];
        a.size[letter] = a.valid[letter] = local->size[letter];
        a.second[letter] = a.size[letter] / 2;
        if (part == NULL) continue;
        a.start[letter] = part->start[letter];
        a.second[letter] += a.start[letter];
        if (part->second[letter] > 0) a.second[letter] = part->second[letter];
        if (part->valid[letter] > 0) a.valid[letter] = part->valid[letter];
        if (part->valid[letter] == PART_EMPTY) a.valid[letter] = 0;
    }
    /* the padded rows h~ and columns w~ */
    for (const char *l = "HW"; *l && op_info(op)->flags & OP_WINDOWED; l++) {
        const unsigned char rows = (unsigned char)*l;
        a.size[rows] = a.valid[rows] = local->size[rows];
        if (part != NULL) a.start[rows] = part->start[rows];
    }
    for (const char *l = local->ellipsis; *l; l++) a.rows *= local->size[(unsigned char)*l];
    return a;
}

static void call(OpKind op, const Attrs *attrs, const Value *args, uint32_t n_in, uint32_t n_out,
                 const Part *part, const Value *scratch, const Control *control,
                 uint32_t microbatch)
{
    Binding local;
    KernelArgs a = eval_args(op, attrs, args, n_in, n_out, part, &local);
    a.control = control;
    a.microbatch = microbatch;
    if (scratch != NULL) {
        a.ptr[a.n_args] = scratch->at;
        a.dtype[a.n_args] = scratch->dtype;
        a.elements[a.n_args++] = value_elements(scratch);
    }
    assert(kernel_cpu_accepts(op, a.dtype, a.n_args));
    kernel_cpu(op)(&a);
}

void eval_op(OpKind op, const Attrs *attrs, const Value *args, uint32_t n_in, uint32_t n_out,
             const Part *part, const Control *control, uint32_t microbatch)
{
    call(op, attrs, args, n_in, n_out, part, NULL, control, microbatch);
}

void eval_op_scratch(OpKind op, const Attrs *attrs, const Value *args, uint32_t n_in,
                     uint32_t n_out, const Value *scratch, const Control *control)
{
    call(op, attrs, args, n_in, n_out, NULL, scratch, control, 0);
}

void eval_reshape(OpKind op, const Attrs *attrs, const Value *in, const Value *out,
                  const Extents *extents)
{
    Value args[2] = {*in, *out};
    KernelArgs a = args_of(attrs, args, 1, 1);
    a.outer = extents->outer;
    a.middle = extents->middle;
    a.inner = extents->inner;
    a.part_start = extents->part_start;
    a.part_size = extents->part_size;
    kernel_cpu(op)(&a);
}

static bool is_real(DType t)
{
    return t != DT_i32 && t != DT_i64 && t != DT_u8;
}

Eval eval_new(Arena *arena, const Graph *graph, DType real, const DataSource *data)
{
    Eval e = {.arena = arena, .graph = graph, .control = {.data = data}};
    e.value = arena_array(arena, graph->tensors.n, sizeof *e.value);
    e.grad = arena_array(arena, graph->tensors.n, sizeof *e.grad);
    for (TensorId t = 1; t < graph->tensors.n; t++) {
        const Tensor *tensor = &graph->tensors.at[t];
        DType dtype = is_real(tensor->dtype) ? real : tensor->dtype;
        if (t == graph->loss) dtype = DT_f64;
        e.value[t] = value_new(arena, dtype, tensor->n_dims, tensor->dim);
    }
    return e;
}

void eval_init(Eval *e, uint64_t seed)
{
    for (TensorId t = 1; t < e->graph->tensors.n; t++) {
        const Tensor *p = &e->graph->tensors.at[t];
        if (p->role != ROLE_param && p->role != ROLE_state) continue;
        for (int64_t i = 0; i < value_elements(&e->value[t]); i++)
            value_set(&e->value[t], i,
                      kernel_init_value(seed, p->init_stream,
                                        graph_original(e->graph, t, (uint64_t)i), (int)p->init.kind,
                                        p->init.a, p->init.b));
    }
}

static NodeId last_forward(const Graph *g)
{
    return g->n_forward != 0 ? g->n_forward : (NodeId)(g->nodes.n - 1);
}

static void run_node(Eval *e, const Node *n, const Attrs *attrs, const Value *args)
{
    eval_op(n->op, attrs, args, n->n_in, n->n_out, NULL, &e->control, e->microbatch);
}

void eval_forward(Eval *e)
{
    const Graph *g = e->graph;
    for (NodeId id = 1; id <= last_forward(g); id++) {
        const Node *n = &g->nodes.at[id];
        Value args[MAX_ARGS];
        if (e->frozen && op_info(n->op)->flags & OP_STATE) continue;
        for (uint32_t i = 0; i < n->n_in; i++) args[i] = e->value[n->in[i]];
        for (uint32_t j = 0; j < n->n_out; j++) {
            value_poison(&e->value[n->out[j]]);
            args[n->n_in + j] = e->value[n->out[j]];
        }
        run_node(e, n, graph_attrs_at(g, n->attrs), args);
    }
}

Value *eval_seed(Eval *e, TensorId t)
{
    if (e->grad[t].at == NULL) {
        const Value *v = &e->value[t];
        e->grad[t] = value_new(e->arena, v->dtype, v->n_dims, v->dim);
    }
    return &e->grad[t];
}

/* Adds `from` to the gradient of t. If t has no gradient yet, `from` becomes the gradient. */
static void add_gradient(Eval *e, TensorId t, const Value *from)
{
    bool first = e->grad[t].at == NULL;
    Value args[2] = {*from, *eval_seed(e, t)};
    Attrs attrs = {.accumulate = first ? 0 : 1};
    eval_op(OP_pass, &attrs, args, 1, 1, NULL, &e->control, 0);
}

/* Runs one backward entry of one node. Its outputs accumulate in place if the op can do so. */
static void run_backward(Eval *e, const Node *n, const Backward *w)
{
    Value args[MAX_ARGS], fresh[MAX_OUT];
    bool reads_gradient = false, direct[MAX_OUT] = {false};
    for (uint32_t i = 0; i < w->n_in; i++) {
        Wire from = w->in[i];
        if (from.kind == WIRE_d) {
            reads_gradient = true;
            args[i] = e->grad[n->out[from.index]];
            if (args[i].at == NULL) return; /* The loss does not depend on that output. */
        } else {
            args[i] = e->value[from.kind == WIRE_i ? n->in[from.index] : n->out[from.index]];
        }
    }
    if (!reads_gradient && n->out[0] != e->graph->loss) return;
    Attrs attrs = *graph_attrs_at(e->graph, n->attrs);
    attrs.accumulate = 0;
    for (uint32_t j = 0; j < w->n_of; j++) {
        TensorId of = n->in[w->of[j]];
        const Value *v = &e->value[of];
        direct[j] = (op_info(w->op)->flags & OP_ACCUMULATES) != 0;
        for (uint32_t k = 0; k < j; k++) direct[j] = direct[j] && n->in[w->of[k]] != of;
        if (direct[j] && e->grad[of].at != NULL) attrs.accumulate |= 1 << j;
        fresh[j] = direct[j] ? *eval_seed(e, of) : value_new(e->arena, v->dtype, v->n_dims, v->dim);
        args[w->n_in + j] = fresh[j];
    }
    eval_op(w->op, &attrs, args, w->n_in, w->n_of, NULL, &e->control, e->microbatch);
    for (uint32_t j = 0; j < w->n_of; j++)
        if (!direct[j]) add_gradient(e, n->in[w->of[j]], &fresh[j]);
}

void eval_backward(Eval *e)
{
    const Graph *g = e->graph;
    for (NodeId id = last_forward(g); id > 0; id--) {
        const Node *n = &g->nodes.at[id];
        const OpInfo *info = op_info(n->op);
        for (uint32_t k = 0; k < info->n_backward; k++) run_backward(e, n, &info->backward[k]);
    }
}

void eval_clear(Eval *e, bool parameters_too)
{
    for (TensorId t = 1; t < e->graph->tensors.n; t++)
        if (parameters_too || e->graph->tensors.at[t].role != ROLE_param) e->grad[t] = (Value){0};
}

void eval_graph_backward(Eval *e)
{
    const Graph *g = e->graph;
    bool *written = arena_array(e->arena, g->tensors.n, sizeof *written);
    for (NodeId id = g->n_forward + 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        Attrs attrs = *graph_attrs_at(g, n->attrs);
        Value args[MAX_ARGS];
        attrs.accumulate = 0;
        for (uint32_t i = 0; i < n->n_in; i++) args[i] = e->value[n->in[i]];
        for (uint32_t j = 0; j < n->n_out; j++) {
            if (written[n->out[j]]) attrs.accumulate |= 1 << j;
            written[n->out[j]] = true;
            args[n->n_in + j] = e->value[n->out[j]];
        }
        run_node(e, n, &attrs, args);
    }
}
