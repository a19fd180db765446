/* Stores each shape of a plan once, and computes what a rank has of each index of an
 * instruction. */
#include "planner/ir/plan.h"

#include <assert.h>
#include <string.h>

#include "planner/ir/layout/rows.h"
#include "planner/ir/window.h"

const char *stream_name(Stream s)
{
    static const char *const names[STREAM_COUNT] = {
#define X(name) #name,
        STREAMS(X)
#undef X
    };
    assert(s < STREAM_COUNT);
    return names[s];
}

const char *phase_name(Phase p)
{
    static const char *const names[PHASE_COUNT] = {
#define X(name) #name,
        PHASES(X)
#undef X
    };
    assert(p < PHASE_COUNT);
    return names[p];
}

const char *category_name(Category c)
{
    static const char *const names[CATEGORY_COUNT] = {
#define X(name) #name,
        CATEGORIES(X)
#undef X
    };
    assert(c < CATEGORY_COUNT);
    return names[c];
}

const char *purpose_name(Purpose p)
{
    static const char *const names[PURPOSE_COUNT] = {
#define X(name) #name,
        PURPOSES(X)
#undef X
    };
    assert(p < PURPOSE_COUNT);
    return names[p];
}

ShapeId plan_shape(Plan *plan, const Shape *shape)
{
    Shape clean; /* a copy whose padding is zero, because shapes are compared byte by byte */
    memset(&clean, 0, sizeof clean);
    clean.n_dims = shape->n_dims;
    clean.layout = shape->layout;
    for (int d = 0; d < shape->n_dims; d++) {
        clean.dim[d] = shape->dim[d];
        clean.deal[d] = shape->deal[d];
    }
    list_reserve_none(plan->arena, &plan->shapes);
    uint32_t found = intern_find(&plan->shapes_index, plan->arena, plan->shapes.at, plan->shapes.n,
                                 sizeof clean, &clean);
    if (found != UINT32_MAX) return found;
    ShapeId id = (ShapeId)list_add(plan->arena, &plan->shapes);
    memcpy(&plan->shapes.at[id], &clean, sizeof clean);
    return id;
}

static uint64_t bytes_of(const Program *p, const Instr *in, uint32_t from, uint32_t to)
{
    uint64_t bytes = 0;
    for (uint32_t i = from; i < to; i++) bytes += p->buffers.at[program_arg(p, in, i)].bytes;
    return bytes;
}

/* Returns the size of an exchange of uneven rows: the bytes of the tokens that a rank sends if all
 * experts are chosen equally often. Its buffer may have room for more. */
static uint64_t bytes_of_even_rows(const Plan *plan, const Program *p, const Instr *in)
{
    const Shape *rows = plan_shape_at(plan, p->buffers.at[program_arg(p, in, 0)].shape);
    const uint64_t bytes = bytes_of(p, in, 0, 1);
    if (!rows_uneven(rows, &plan->graph.deals)) return bytes; /* a damaged plan */
    const double room = (double)rows_local(rows, &plan->mesh, &plan->graph.deals);
    return (uint64_t)((double)bytes * rows_mean(rows, &plan->mesh, &plan->graph.deals) / room);
}

uint64_t plan_comm_bytes(const Plan *plan, const Program *p, const Instr *in)
{
    if (op_info(in->op)->class_ != OP_CLASS_comm) return 0;
    if (in->op == OP_exchange_uneven) return bytes_of_even_rows(plan, p, in);
    const bool whole_is_output = in->op == OP_all_gather || in->op == OP_recv;
    return whole_is_output ? bytes_of(p, in, in->n_in, in->args.n) : bytes_of(p, in, 0, in->n_in);
}

static const Shape *arg_shape(const Plan *plan, const Program *p, const Instr *in, uint32_t i)
{
    return plan_shape_at(plan, p->buffers.at[program_arg(p, in, i)].shape);
}

static bool bind_global(const Plan *plan, const Program *p, const Instr *in, Binding *b)
{
    const OpInfo *info = op_info(in->op);
    if (info->class_ != OP_CLASS_compute && info->class_ != OP_CLASS_contract) return false;
    const uint32_t n_in = info->sig.n_in, n_out = info->sig.n_out;
    Dims dims[MAX_ARGS];
    if (in->n_in != n_in || in->args.n < (uint32_t)in->n_in + n_out) return false;
    for (uint32_t i = 0; i < n_in; i++) {
        const Shape *s = arg_shape(plan, p, in, i);
        dims[i] = (Dims){s->n_dims, s->dim};
    }
    for (uint32_t j = 0; j < n_out; j++) {
        const Shape *s = arg_shape(plan, p, in, in->n_in + j);
        dims[n_in + j] = (Dims){s->n_dims, s->dim};
    }
    Loc none = {NULL, 0};
    return op_bind(in->op, dims, n_in, dims + n_in, n_out, b, none, NULL);
}

/* Converts n, a size or a start along a dimension of `global` elements, to the unit of index
 * `letter`. For a composite dimension (hp) with p = 64, the letter is h, so 128 elements are 2
 * values of h. For other dimensions n stays the same. */
static int64_t leading(const Binding *b, char letter, int64_t global, int64_t n)
{
    int64_t size = b->size[(int)letter];
    return global == size || !global ? n : n * size / global;
}

bool plan_bind(const Plan *plan, const Program *p, const Instr *in, Rank rank, Binding *global,
               int64_t size['z' + 1], int64_t start['z' + 1], int64_t valid['z' + 1])
{
    Binding own;
    Binding *b = global ? global : &own;
    if (!bind_global(plan, p, in, b)) return false;
    if (size) memcpy(size, b->size, sizeof b->size);
    if (start) memset(start, 0, sizeof b->size);
    if (valid) memcpy(valid, b->size, sizeof b->size);
    const Mesh *mesh = &plan->mesh;
    const Deals *deals = &plan->graph.deals;
    for (uint32_t i = 0; i < (uint32_t)b->n_in + b->n_out; i++) {
        const Shape *s = arg_shape(plan, p, in, i < b->n_in ? i : in->n_in + i - b->n_in);
        for (int d = 0; d < s->n_dims; d++) {
            if (!s->deal[d] && !layout_axes_split(&s->layout, d)) continue;
            const char l = b->reads[i][d] ? window_reach(b->letter[i][d]) : b->letter[i][d];
            const int64_t dim = s->dim[d];
            if (size) size[(int)l] = leading(b, l, dim, shape_local_dim(s, mesh, deals, d));
            if (start) start[(int)l] = leading(b, l, dim, shape_start(s, mesh, deals, d, rank));
            if (valid) valid[(int)l] = leading(b, l, dim, shape_valid(s, mesh, deals, d, rank));
        }
    }
    return true;
}

void plan_second(const Plan *plan, const Program *p, const Instr *in, Rank rank,
                 const Binding *global, const int64_t size['z' + 1], const int64_t start['z' + 1],
                 int64_t second['z' + 1])
{
    for (int l = 0; l <= 'z'; l++) second[l] = start[l] + size[l] / 2;
    for (uint32_t i = 0; i < (uint32_t)global->n_in + global->n_out; i++) {
        const uint32_t arg = i < global->n_in ? i : in->n_in + i - global->n_in;
        const Shape *s = arg_shape(plan, p, in, arg);
        for (int d = 0; d < s->n_dims; d++) {
            const uint32_t parts = shape_parts(s, &plan->mesh, d);
            Interval chunk;
            if (parts == 1 || !s->deal[d] ||
                plan->graph.deals.deals.at[s->deal[d]].kind != DEAL_listed)
                continue;
            if (deal_interval(&plan->graph.deals, s->deal[d], s->dim[d], parts,
                              shape_part(s, &plan->mesh, d, rank), 1, &chunk))
                second[(int)global->letter[i][d]] = chunk.lo;
        }
    }
}
