/* Computes the FLOPs that an instruction costs one rank, and the bytes that it reads and writes. */
#include "planner/ir/layout/rows.h"
#include "planner/ir/plan.h"
#include "planner/ir/window.h"

/* Experts have rooms for more tokens than they usually get (layout/rows.h). Returns which fraction
 * of the rooms has a token if all experts are chosen equally often. Returns 1 for ops without
 * uneven rows. */
static double taken_share(const Plan *plan, const Program *p, const Instr *in)
{
    const OpInfo *info = op_info(in->op);
    const uint32_t n = (uint32_t)info->sig.n_in + info->sig.n_out;
    if (op_counts_arg(in->op) < 0) return 1;
    for (uint32_t i = 0; i < n && i < in->args.n; i++) {
        const Shape *s = plan_shape_at(plan, p->buffers.at[program_arg(p, in, i)].shape);
        double rooms = 1;
        if (!rows_uneven(s, &plan->graph.deals)) continue;
        for (int d = 0; d < ROWS_DIMS; d++)
            rooms *= (double)shape_local_dim(s, &plan->mesh, &plan->graph.deals, d);
        return rows_mean(s, &plan->mesh, &plan->graph.deals) / rooms;
    }
    return 1;
}

/* A field is split along `letter` (h or w), dimension d of input x. Returns which fraction of its
 * output rows or columns a rank can compute before the halo arrives, because their windows read
 * only its own rows. Ranks differ, so returns the smallest fraction. Returns 1 if d is not
 * split. */
static double inner_share(const Plan *plan, const Shape *x, int d, const Binding *b,
                          const Window *w, char letter)
{
    const int out_of = letter, in_of = window_reach(letter);
    const uint32_t parts = shape_parts(x, &plan->mesh, d);
    double least = 1;
    for (uint32_t part = 0; part < parts; part++) {
        Interval own, out;
        if (!deal_interval(&plan->graph.deals, 0, b->size[out_of], parts, part, 0, &out)) continue;
        if (!deal_interval(&plan->graph.deals, 0, b->size[in_of], parts, part, 0, &own))
            own = (Interval){0, 0};
        const Interval inner = window_inner_rows(w, b->size[in_of], own, out);
        const double share = (double)(inner.hi - inner.lo) / (double)(out.hi - out.lo);
        least = share < least ? share : least;
    }
    return least;
}

double plan_rows_share(const Plan *plan, const Program *p, const Instr *in)
{
    const OpKind whole = op_of_rows(in->op);
    const Attrs *attrs = graph_attrs_at(&plan->graph, in->attrs);
    Binding b;
    if (!whole) return taken_share(plan, p, in);
    if (!plan_bind(plan, p, in, 0, &b, NULL, NULL, NULL)) return 1;
    const Shape *x = plan_shape_at(plan, p->buffers.at[program_arg(p, in, 0)].shape);
    const Window h = op_window(in->op, &b, attrs, 'h'), w = op_window(in->op, &b, attrs, 'w');
    const int rows = op_dim(in->op, 0, INDEX_height), columns = op_dim(in->op, 0, INDEX_width);
    const double inner = inner_share(plan, x, rows, &b, &h, 'h');
    if (in->op == op_in_rows(whole).border) return 1 - inner;
    if (attrs->parts == ROWS_all) return inner;
    const double centre = (inner < 1 ? inner / 2 : 1) * inner_share(plan, x, columns, &b, &w, 'w');
    return attrs->parts == ROWS_centre ? centre : inner - centre;
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
