/* Queries on plans: interned shapes, views, bytes and FLOPs of an instruction, index bindings. */
#include "planner/ir/plan.h"

#include <assert.h>
#include <string.h>

static const char *const streams[STREAM_COUNT] = {
#define X(name) #name,
    STREAMS(X)
#undef X
};
static const char *const phases[PHASE_COUNT] = {
#define X(name) #name,
    PHASES(X)
#undef X
};
static const char *const categories[CATEGORY_COUNT] = {
#define X(name) #name,
    CATEGORIES(X)
#undef X
};

const char *stream_name(Stream s)
{
    return streams[s];
}
const char *phase_name(Phase p)
{
    return phases[p];
}
const char *category_name(Category c)
{
    return categories[c];
}

ShapeId plan_shape(Plan *plan, const Shape *shape)
{
    Shape scalar = {.n_dims = 0};
    if (plan->shapes.n == 0) list_push(plan->arena, &plan->shapes, scalar);
    for (ShapeId i = 0; i < plan->shapes.n; i++)
        if (shape_equal(&plan->shapes.at[i], shape)) return i;
    return (ShapeId)list_push(plan->arena, &plan->shapes, *shape);
}

BufferId program_root(const Program *p, BufferId b, uint64_t *offset)
{
    const Buffer *at = &p->buffers.at[b];
    *offset = at->offset;
    if (!at->parent) return b;
    *offset += p->buffers.at[at->parent].offset;
    return at->parent;
}

static uint64_t arg_bytes(const Program *p, const Instr *in, uint32_t i)
{
    return p->buffers.at[program_arg(p, in, i)].bytes;
}

uint64_t plan_comm_bytes(const Plan *plan, const Program *p, const Instr *in)
{
    (void)plan;
    assert(in->args.n >= 1);
    return in->op == OP_all_gather ? arg_bytes(p, in, in->args.n - 1) : arg_bytes(p, in, 0);
}

bool plan_bind(const Plan *plan, const Program *p, const Instr *in, Rank rank, Binding *global,
               int64_t size['z' + 1], int64_t start['z' + 1], int64_t valid['z' + 1])
{
    Binding local;
    Binding *b = global ? global : &local;
    Dims dims[MAX_ARGS];
    const Shape *shape[MAX_ARGS];
    for (uint32_t i = 0; i < in->args.n; i++) {
        shape[i] = plan_shape_at(plan, p->buffers.at[program_arg(p, in, i)].shape);
        dims[i] = (Dims){shape[i]->n_dims, shape[i]->dim};
    }
    Loc none = {NULL, 0};
    if (!op_bind(in->op, dims, in->n_in, dims + in->n_in, in->args.n - in->n_in, b, none, NULL))
        return false;
    for (int k = 0; k < b->n_letters; k++) {
        int letter = b->letters[k];
        if (size) size[letter] = b->size[letter];
        if (start) start[letter] = 0;
        if (valid) valid[letter] = b->size[letter];
    }
    for (uint32_t i = 0; i < in->args.n; i++)
        for (int d2 = 0; d2 < shape[i]->n_dims; d2++) {
            if (shape_parts(shape[i], &plan->mesh, d2) == 1) continue;
            int letter = b->letter[i][d2];
            if (size) size[letter] = shape_local_dim(shape[i], &plan->mesh, &plan->graph.deals, d2);
            if (start)
                start[letter] = shape_start(shape[i], &plan->mesh, &plan->graph.deals, d2, rank);
            if (valid)
                valid[letter] = shape_valid(shape[i], &plan->mesh, &plan->graph.deals, d2, rank);
        }
    return true;
}

double plan_flops(const Plan *plan, const Program *p, const Instr *in)
{
    OpClass class_ = op_info(in->op)->class_;
    if (class_ != OP_CLASS_compute && class_ != OP_CLASS_contract) return 0;
    Binding b;
    int64_t size['z' + 1] = {0};
    if (!plan_bind(plan, p, in, 0, &b, size, NULL, NULL)) return 0;
    return op_flops(in->op, &b, size, graph_attrs_at(&plan->graph, in->attrs)->causal != 0);
}

uint64_t plan_hbm_bytes(const Plan *plan, const Program *p, const Instr *in)
{
    const Attrs *attrs = graph_attrs_at(&plan->graph, in->attrs);
    uint64_t bytes = 0;
    if (op_info(in->op)->flags & OP_SCATTERS) { /* the large operand is touched by rows only */
        for (uint32_t i = 0; i < in->n_in; i++) bytes += 2 * arg_bytes(p, in, i);
        return bytes;
    }
    for (uint32_t i = 0; i < in->args.n; i++) {
        uint64_t once = arg_bytes(p, in, i);
        bytes += once;
        if (i >= in->n_in && (attrs->accumulate >> (i - in->n_in) & 1)) bytes += once;
    }
    return bytes;
}
