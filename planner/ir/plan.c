/* Stores each shape of a plan once, and computes the bytes and FLOPs of an instruction on a
 * rank. */
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

double plan_flops(const Plan *plan, const Program *p, const Instr *in)
{
    Binding b;
    int64_t size['z' + 1];
    if (!plan_bind(plan, p, in, 0, &b, size, NULL, NULL)) return 0;
    const Attrs *attrs = graph_attrs_at(&plan->graph, in->attrs);
    return op_flops(in->op, &b, size, op_seen(in->op, &b, attrs)) * plan_rows_share(plan, p, in);
}

/* Returns the bytes of a table (such as an embedding) that lookups touch: the chosen row for each
 * value of the other indices, such as each token, but at most the whole table of `bytes` bytes.
 * `table` is the letter of the looked-up index. */
static uint64_t touched_bytes(const Binding *b, const int64_t size['z' + 1], char table,
                              uint64_t bytes, uint32_t element_bytes)
{
    uint64_t n = element_bytes;
    for (uint32_t i = 0; i < b->n_letters; i++)
        if (b->letters[i] != table) n *= (uint64_t)size[(int)b->letters[i]];
    return n < bytes ? n : bytes;
}

/* An op with OP_RANGE uses elements lo to hi - 1 of a flat buffer that is divided over ranks.
 * Returns how many of the `bytes` bytes of a rank's part are in this range, on average over the
 * ranks. */
static uint64_t range_bytes(const Plan *plan, const Buffer *b, const Instr *in, uint64_t bytes)
{
    const Attrs *a = graph_attrs_at(&plan->graph, in->attrs);
    const Shape *s = plan_shape_at(plan, b->shape);
    if (s->n_dims != 1 || s->dim[0] <= 0 || a->lo < 0 || a->hi > s->dim[0] || a->hi < a->lo)
        return bytes;
    return (uint64_t)((double)bytes * (double)(a->hi - a->lo) / (double)s->dim[0]);
}

/* Some ops move only a part of argument i, whose buffer has `bytes` bytes. Returns the bytes that
 * they move. halo_pack reads only the strips. The two halves of a split convolution (IN_ROWS in
 * ops.def) each move only their own rows. */
static uint64_t rows_bytes(const Plan *plan, const Program *p, const Instr *in, uint32_t i,
                           uint64_t bytes)
{
    if (in->op == OP_halo_pack || in->op == OP_halo_cut)
        return p->buffers.at[program_arg(p, in, 1)].bytes;
    /* A strided message with unused space at its end: the space is filled with zeros, which reads
     * nothing from the input. */
    if (op_is_stride(in->op)) {
        const uint64_t other = p->buffers.at[program_arg(p, in, 1 - i)].bytes;
        return i == 0 && other < bytes ? other : bytes;
    }
    const bool strips = i + 1 == in->n_in && op_is_border(in->op);
    if (op_of_rows(in->op) == OP_none || strips) return bytes;
    const uint32_t n_in = op_info(in->op)->sig.n_in;
    if (op_dim(in->op, i < in->n_in ? i : n_in + i - in->n_in, INDEX_height) < 0) return bytes;
    return (uint64_t)((double)bytes * plan_rows_share(plan, p, in));
}

/* Sets moved[i] to the bytes of argument i that the instruction reads and writes, without
 * fusion. */
static void argument_bytes(const Plan *plan, const Program *p, const Instr *in,
                           uint64_t moved[MAX_ARGS])
{
    const OpInfo *info = op_info(in->op);
    const int64_t accumulate = graph_attrs_at(&plan->graph, in->attrs)->accumulate;
    Binding b;
    int64_t size['z' + 1];
    const bool scatters =
        info->flags & OP_SCATTERS && plan_bind(plan, p, in, 0, &b, size, NULL, NULL);
    assert(in->args.n <= MAX_ARGS);
    for (uint32_t i = 0; i < in->args.n; i++) {
        const Buffer *buffer = &p->buffers.at[program_arg(p, in, i)];
        const bool added = i >= in->n_in && accumulate >> (i - in->n_in) & 1;
        uint64_t bytes = buffer->bytes;
        /* A new output of a scatter is first zeroed as a whole. So only reads, and outputs that are
         * added to, touch few elements. */
        const bool sparse = scatters && (i < in->n_in || added);
        const uint32_t arg = i < in->n_in ? i : i - in->n_in + (scatters ? b.n_in : 0);
        if (sparse && op_looked_up(in->op, &b, arg))
            bytes = touched_bytes(&b, size, op_looked_up(in->op, &b, arg), bytes,
                                  dtype_bytes(buffer->dtype));
        if (info->flags & OP_RANGE) bytes = range_bytes(plan, buffer, in, bytes);
        bytes = rows_bytes(plan, p, in, i, bytes);
        moved[i] = added ? 2 * bytes : bytes;
    }
}

/* Returns the instruction before `in` in the same fused kernel; NULL if `in` is its first one. */
static const Instr *part_before(const Program *p, const Instr *in)
{
    const Instr *before = in;
    if (!in->fuse) return NULL;
    do before--;
    while (before > p->code.at && before->stream != STREAM_compute);
    return before > p->code.at && before->fuse == in->fuse ? before : NULL;
}

bool plan_begins_kernel(const Program *p, const Instr *in)
{
    return !part_before(p, in);
}

const Instr *plan_kernel(const Program *p, const Instr *in)
{
    for (const Instr *part = part_before(p, in); part; part = part_before(p, part)) in = part;
    return in;
}

const Instr *plan_next_part(const Program *p, const Instr *in)
{
    const Instr *next = in;
    if (!in->fuse) return NULL;
    do next++;
    while (next < p->code.at + p->code.n && next->stream != STREAM_compute);
    return next < p->code.at + p->code.n && next->fuse == in->fuse ? next : NULL;
}

/* True if an earlier instruction of the same fused kernel has read or written all of buffer `b`, so
 * that `in` need not read it from memory. */
static bool at_hand(const Program *p, const Instr *in, BufferId b)
{
    for (const Instr *part = part_before(p, in); part; part = part_before(p, part)) {
        const bool looks_up = op_info(part->op)->flags & OP_SCATTERS;
        for (uint32_t i = looks_up ? part->n_in : 0; i < part->args.n; i++)
            if (program_arg(p, part, i) == b) return true;
    }
    return false;
}

/* True if only instructions of fused kernel `fuse` use buffer `at`, so that it stays in
 * registers. */
static bool stays_within(const Program *p, const Buffer *at, uint32_t fuse)
{
    return fuse && !at->persistent && !at->parent && !at->result && at->first && at->last &&
           at->category != CATEGORY_workspace && p->code.at[at->first].fuse == fuse &&
           p->code.at[at->last].fuse == fuse;
}

uint64_t plan_written_bytes(const Program *p)
{
    uint64_t end = 0;
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const Buffer *at = &p->buffers.at[b];
        if (at->parent || at->space != SPACE_device || at->category == CATEGORY_workspace) continue;
        if (stays_within(p, at, p->code.at[at->first].fuse)) continue;
        if (at->offset + at->bytes > end) end = at->offset + at->bytes;
    }
    return end;
}

void plan_moved(const Plan *plan, const Program *p, const Instr *in, bool part,
                uint64_t moved[MAX_ARGS])
{
    const int64_t accumulate = graph_attrs_at(&plan->graph, in->attrs)->accumulate;
    argument_bytes(plan, p, in, moved);
    for (uint32_t i = 0; i < in->args.n && part && in->fuse; i++) {
        BufferId b = program_arg(p, in, i);
        const bool stays = stays_within(p, &p->buffers.at[b], in->fuse);
        const bool added = i >= in->n_in && accumulate >> (i - in->n_in) & 1;
        if (i < in->n_in ? at_hand(p, in, b) : stays)
            moved[i] = 0;
        else if (added && at_hand(p, in, b))
            moved[i] /= 2;
    }
}

static uint64_t all_moved(const Plan *plan, const Program *p, const Instr *in, bool part)
{
    uint64_t moved[MAX_ARGS], sum = 0;
    plan_moved(plan, p, in, part, moved);
    for (uint32_t i = 0; i < in->args.n; i++) sum += moved[i];
    return sum;
}

uint64_t plan_hbm_bytes(const Plan *plan, const Program *p, const Instr *in)
{
    return all_moved(plan, p, in, false);
}

uint64_t plan_kernel_bytes(const Plan *plan, const Program *p, const Instr *in)
{
    return all_moved(plan, p, in, true);
}

bool plan_touches_host(const Program *p, const Instr *in)
{
    bool host = false;
    for (uint32_t i = 0; i < in->args.n; i++)
        host = host || p->buffers.at[program_arg(p, in, i)].space == SPACE_host;
    return host;
}
