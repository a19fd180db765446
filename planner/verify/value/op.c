/* Checks computations: finds the index letter that each mesh axis splits, and checks that the
 * computed values equal those of the graph. */
#include <assert.h>
#include <ctype.h>
#include <string.h>

#include "planner/ir/layout/padding.h"
#include "planner/ir/layout/rows.h"
#include "planner/verify/value/cache.h"

typedef struct OpStep {
    Verifier *v;
    Pc pc;
    const Instr *in;
    uint32_t n_args; /* the number of arguments, without scratch */
    const Binding *b;
    /* the shapes of the buffers; the values of the inputs must have the same shapes */
    uint32_t shape[MAX_ARGS];
    bool has_part; /* attention with the keys of one rank of the ring; `hop` says which rank */
    Hop hop;
    bool in_rows; /* a convolution that computes only the inner rows, or only the border rows */
} OpStep;

static bool complain(const OpStep *s, uint32_t axis, uint32_t arg, const char *what)
{
    Verifier *v = s->v;
    bool in = arg < s->in->n_in;
    verify_report(v, "verify-layout", s->pc, "%s %u %s %s: %s (%s)", in ? "input" : "output",
                  in ? arg : arg - s->in->n_in, value_shape_text(v, s->shape[arg]), what,
                  v->plan->mesh.axis[axis].text ? v->plan->mesh.axis[axis].text : "?",
                  op_info(s->in->op)->signature);
    return false;
}

static bool letter_in_inputs(const OpStep *s, char letter)
{
    for (uint32_t i = 0; i < s->in->n_in; i++)
        for (int d = 0; d < s->b->n_dims[i]; d++)
            if (s->b->letter[i][d] == letter) return true;
    return false;
}

/* True if all inputs are partial sums on this axis. An op that is linear in all inputs may then
 * compute with the summands. */
static bool all_partial(const OpStep *s, uint32_t axis)
{
    if (!(op_info(s->in->op)->flags & OP_ADDS)) return false;
    for (uint32_t i = 0; i < s->n_args; i++)
        if (value_shape_at(s->v, s->shape[i])->layout.on[axis] != PARTIAL_SUM) return false;
    return true;
}

/* Sets *letter to the index that the axis splits; 0 if it splits none. Reports an error and returns
 * false if the arguments contradict each other. */
static bool find_letter(const OpStep *s, uint32_t axis, char *letter)
{
    *letter = 0;
    for (uint32_t i = 0; i < s->n_args; i++) {
        bool in = i < s->in->n_in;
        int8_t on = value_shape_at(s->v, s->shape[i])->layout.on[axis];
        if (in && layout_is_partial(on))
            return complain(s, axis, i,
                            on == PARTIAL_MAX
                                ? "is the maximum of only one rank's part, but is read as the "
                                  "whole maximum, on axis"
                                : "is a partial sum, but is read as the whole sum, on axis");
        if (!layout_is_split(on)) continue;
        char c = s->b->letter[i][layout_dim(on)];
        if (!in && (*letter || letter_in_inputs(s, c)))
            continue; /* an index that only outputs have
                         is compared later */
        if (*letter && *letter != c)
            return complain(s, axis, i,
                            "is split along another index than earlier arguments, on axis");
        if (!op_may_split(s->in->op, c))
            return complain(s, axis, i, "must be whole for this op, but is split, on axis");
        *letter = c;
    }
    return true;
}

/* Checks that all arguments have the layouts on this axis that follow from the split index. */
static bool check_axis(const OpStep *s, uint32_t axis)
{
    char letter;
    if (all_partial(s, axis)) return true;
    if (!find_letter(s, axis, &letter)) return false;
    for (uint32_t i = 0; i < s->n_args; i++) {
        int8_t want = op_axis_layout(s->in->op, s->b, i, letter);
        if (layout_is_partial(want) && op_info(s->in->op)->reduce == REDUCE_none)
            return complain(s, axis, i,
                            "lacks the index along which other arguments are split, on axis");
        if (want == value_shape_at(s->v, s->shape[i])->layout.on[axis]) continue;
        return complain(s, axis, i,
                        layout_is_partial(want) ? "must have a partial layout on axis"
                        : layout_is_split(want) ? "must be split like the other arguments on axis"
                                                : "must be whole on axis");
    }
    return true;
}

/* [index letter]: the deal of an index that no axis splits. Such a deal describes only padding. */
typedef struct WholeDeals {
    DealId deal['z' + 1];
    bool seen['z' + 1];
} WholeDeals;

static bool deals_otherwise(const OpStep *s, uint32_t arg, int letter)
{
    verify_report(s->v, "verify-layout", s->pc,
                  "argument %u has another division of index %c than earlier arguments", arg,
                  letter);
    return false;
}

/* Checks that each rank has the rows that its windows read. */
static bool check_windows(const OpStep *s)
{
    if (!(op_info(s->in->op)->flags & OP_WINDOWED)) return true;
    const bool inner = s->in_rows && !op_is_border(s->in->op);
    const bool centre = inner && verify_attrs(s->v, s->pc)->parts == ROWS_centre;
    for (uint32_t i = 0; i < s->n_args; i++) {
        const Shape *at = value_shape_at(s->v, s->shape[i]);
        for (int d = 0; d < at->n_dims; d++) {
            const char letter = s->b->letter[i][d];
            if (!s->b->reads[i][d] || !layout_axes_split(&at->layout, d)) continue;
            /* inner rows read no row of a neighbour; points of the centre read no row and no column
             * of a neighbour */
            if (centre || (inner && op_role(s->in->op, letter) == INDEX_height)) continue;
            const Window w = op_window(s->in->op, s->b, verify_attrs(s->v, s->pc), letter);
            const char *fault =
                value_window_fault(s->v, &w, at, d, s->b->size[(int)letter], i >= s->in->n_in);
            if (!fault) continue;
            verify_report(s->v, "verify-layout", s->pc, "argument %u %s: %s (index %c)", i,
                          value_shape_text(s->v, s->shape[i]), fault, letter);
            return false;
        }
    }
    return true;
}

/* Checks the padding of a dimension that no axis splits. All arguments with this index must have
 * the same padding. The op may read padding only if zeros do not change its result. */
static bool check_padding(const OpStep *s, uint32_t arg, int d, WholeDeals *whole)
{
    const Shape *at = value_shape_at(s->v, s->shape[arg]);
    const int c = s->b->letter[arg][d];
    if (whole->seen[c] && whole->deal[c] != at->deal[d]) return deals_otherwise(s, arg, c);
    whole->seen[c] = true;
    whole->deal[c] = at->deal[d];
    if (deal_is_rows(&s->v->g->deals, at->deal[d])) {
        const char *fault = value_rows_fault(s->in->op, s->b, arg, d);
        if (fault) verify_report(s->v, "verify-layout", s->pc, "argument %u %s", arg, fault);
        return !fault;
    }
    if (!at->deal[d] || (op_may_split(s->in->op, (char)c) && s->b->size[c] == at->dim[d]))
        return true;
    verify_report(s->v, "verify-layout", s->pc,
                  "argument %u has padding in index %c, which %s would read as data", arg, c,
                  op_info(s->in->op)->name);
    return false;
}

/* Checks that an index has the same deal in all arguments. */
static bool check_deals(const OpStep *s)
{
    DealId deal['z' + 1] = {0};
    AxisSet axes['z' + 1] = {0};
    WholeDeals whole = {0};
    for (uint32_t i = 0; i < s->n_args; i++) {
        const Shape *at = value_shape_at(s->v, s->shape[i]);
        for (int d = 0; d < at->n_dims; d++) {
            AxisSet split = layout_axes_split(&at->layout, d);
            int c = s->b->letter[i][d];
            if (!split && !s->b->reads[i][d] && !check_padding(s, i, d, &whole)) return false;
            if (!split) continue;
            if (s->b->reads[i][d]) { /* check_windows checks these rows */
                if (axes[c] && axes[c] != split) return deals_otherwise(s, i, c);
                axes[c] = split;
                continue;
            }
            /* a dimension (hp) is split along index h, so a rank must have whole pieces of p
             * elements */
            const int64_t pieces = s->b->size[c];
            if (!at->deal[d] && pieces && pieces < at->dim[d] &&
                pieces % mesh_size(&s->v->plan->mesh, split))
                return complain(s, (uint32_t)__builtin_ctz(split), i,
                                "is cut within pieces that the op must read whole, on axis");
            const char *fault = value_stride_fault(s->v, s->b, at, i, d);
            if (fault) return complain(s, (uint32_t)__builtin_ctz(split), i, fault);
            if (deal_is_around(&s->v->g->deals, at->deal[d])) {
                verify_report(s->v, "verify-layout", s->pc,
                              "argument %u has a halo, but the op reads all rows as the rank's own",
                              i);
                return false;
            }
            const uint32_t flags = op_info(s->in->op)->flags;
            const bool tokens =
                op_role(s->in->op, (char)c) == INDEX_tokens || strchr(s->b->ellipsis, c);
            const bool chunks = tokens && flags & OP_CHUNKED;
            const bool one = !at->deal[d] || deal_is_padded(&s->v->g->deals, at->deal[d]);
            if (!one && flags & OP_PLACED && !chunks) {
                verify_report(s->v, "verify-layout", s->pc,
                              "%s needs consecutive positions, but argument %u has several "
                              "intervals of index %c",
                              op_info(s->in->op)->name, i, c);
                return false;
            }
            if (axes[c] && (axes[c] != split || deal[c] != at->deal[d]))
                return deals_otherwise(s, i, c);
            axes[c] = split;
            deal[c] = at->deal[d];
        }
    }
    return true;
}

/* Checks that each rank has whole groups of sequences. Otherwise the mean of each group would be
 * wrong. */
static bool check_groups(const OpStep *s)
{
    int64_t group = graph_attrs_at(s->v->g, s->in->attrs)->group;
    uint32_t at = 0;
    while (at < s->in->n_in && !op_reads_whole_labels(s->in->op, at)) at++;
    if (at == s->in->n_in) return true;
    const Shape *labels = value_shape_at(s->v, s->shape[at]);
    const int dim = op_dim(s->in->op, at, INDEX_samples);
    int64_t n = shape_local_dim(labels, &s->v->plan->mesh, &s->v->g->deals, dim);
    if (group > 0 && n % group == 0) return true;
    verify_report(s->v, "verify-scale", s->pc,
                  "averages over groups of %lld sequences, but a rank has %lld", (long long)group,
                  (long long)n);
    return false;
}

static bool check_layouts(const OpStep *s)
{
    for (uint32_t a = 0; a < s->v->plan->mesh.n_axes; a++)
        if (!check_axis(s, a)) return false;
    return check_deals(s) && check_groups(s);
}

/* Checks the random numbers of an op. They must depend on the op's site in the model and on the
 * micro-batch, but not on the rank. */
static bool check_draw(const OpStep *s, const Node *n, const Val *in)
{
    Verifier *v = s->v;
    const Attrs *is = graph_attrs_at(v->g, s->in->attrs), *was = graph_attrs_at(v->g, n->attrs);
    if (is->drop != was->drop || is->site != was->site) {
        verify_report(v, "verify-purity", s->pc,
                      "draws with p = %g at site %lld, but its node in the graph draws with p = %g "
                      "at site %lld",
                      is->drop, (long long)is->site, was->drop, (long long)was->site);
        return false;
    }
    uint32_t mb = s->in->microbatch;
    if (is->drop == 0 || value_same(in[0].vn, value_of_tensor(v, n->in[0], mb))) return true;
    for (uint32_t of = 0; of < v->n_mb; of++)
        if (value_same(in[0].vn, value_of_tensor(v, n->in[0], of))) {
            verify_report(
                v, "verify-purity", s->pc,
                "draws random numbers of micro-batch %u, but its values belong to micro-batch %u",
                mb, of);
            return false;
        }
    return true;
}

/* True if each of n ranks has the whole input, and the op multiplies it by 1 / n. The results are
 * then partial sums: they add up to the input. */
static bool shares_out(const OpStep *s)
{
    if (!(op_info(s->in->op)->flags & OP_SCALES) || verify_accumulates(s->v, s->in, 0))
        return false;
    const Shape *from = value_shape_at(s->v, s->shape[0]), *to = value_shape_at(s->v, s->shape[1]);
    Shape shared = *from;
    AxisSet axes = 0;
    for (uint32_t a = 0; a < s->v->plan->mesh.n_axes; a++) {
        if (from->layout.on[a] != WHOLE || to->layout.on[a] != PARTIAL_SUM) continue;
        shared.layout.on[a] = PARTIAL_SUM;
        axes = (AxisSet)(axes | 1u << a);
    }
    if (!axes || !shape_equal(&shared, to)) return false;
    return verify_attrs(s->v, s->pc)->scale == 1.0 / mesh_size(&s->v->plan->mesh, axes);
}

/* Checks an instruction that computes a graph node. It must have the inputs and outputs of the
 * node. */
static bool check_origin(const OpStep *s, const Val *in, bool *is_node)
{
    Verifier *v = s->v;
    *is_node = false;
    if (!s->in->origin) return true;
    const Node *n = &v->g->nodes.at[s->in->origin];
    if (!verify_is_of_node(s->in, n)) return true;
    *is_node = true;
    if (!check_draw(s, n, in)) return false;
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (value_same(in[i].vn, value_of_tensor(v, n->in[i], s->in->microbatch))) continue;
        verify_report(v, "verify-layout", s->pc, "input %u should be %s, but is %s", i,
                      value_name(v, value_of_tensor(v, n->in[i], s->in->microbatch)),
                      value_name(v, in[i].vn));
        return false;
    }
    if (v->attrs_key[n->attrs] != v->attrs_key[s->in->attrs]) {
        const Attrs *is = graph_attrs_at(v->g, s->in->attrs), *was = graph_attrs_at(v->g, n->attrs);
        verify_report(v, is->scale != was->scale ? "verify-scale" : "verify-layout", s->pc,
                      is->scale != was->scale
                          ? "scales by %.17g, but the graph states %.17g"
                          : "has attributes that differ from those in the graph (scale %g, %g)",
                      is->scale, was->scale);
        return false;
    }
    for (uint32_t j = 0; j < n->n_out; j++) {
        const Tensor *t = &v->g->tensors.at[n->out[j]];
        const Shape *o = value_shape_at(v, s->shape[s->in->n_in + j]);
        for (int d = 0; d < t->n_dims && d < o->n_dims; d++)
            if (t->dim[d] != o->dim[d]) {
                verify_report(v, "verify-layout", s->pc,
                              "output %u is %s, but the graph states %lld", j,
                              value_shape_text(v, s->shape[s->in->n_in + j]), (long long)t->dim[d]);
                return false;
            }
    }
    return true;
}

/* Returns the value of output j. With `recovered`, the instruction has a fault that was reported.
 * It then counts as right, and output j gets the value of the graph, so that one fault does not
 * make all later instructions look faulty. */
static Hash128 output_value(const OpStep *s, const Val *in, uint32_t j, bool recovered)
{
    Verifier *v = s->v;
    Hash128 vn[MAX_IN];
    if (s->has_part) return value_of_hop(v, s->pc, &s->hop, s->hop.i, in, j);
    if (s->in_rows) return value_of_rows(v, s->pc, in, j);
    if (recovered) return value_contribution(v, s->in->origin, j, s->in->microbatch);
    for (uint32_t i = 0; i < s->in->n_in; i++) vn[i] = in[i].vn;
    const bool source = op_info(s->in->op)->flags & OP_SOURCE;
    if (source) vn[0] = value_leaf("micro-batch", s->in->microbatch);
    const Shape *o = value_shape_at(v, s->shape[s->in->n_in + j]);
    return value_of_op(s->in->op, value_key(v, s->in->attrs, s->in->microbatch), vn,
                       source ? 1 : s->in->n_in, j, o->n_dims, o->dim);
}

/* ---- plain instructions ---- */

/* The instruction has passed its checks. Returns true if these checks need not be repeated for its
 * twins, because none of the special cases below was involved. Only the values that a twin reads
 * must still be compared. */
static bool is_plain(const OpStep *s)
{
    const Verifier *v = s->v;
    const Instr *in = s->in;
    const Node *n = &v->g->nodes.at[in->origin];
    if (s->has_part || s->in_rows || op_is_border(in->op) || n->op != in->op ||
        n->n_in != in->n_in || s->n_args != (uint32_t)n->n_in + n->n_out ||
        op_info(in->op)->flags & OP_SOURCE || graph_attrs_at(v->g, in->attrs)->drop != 0 ||
        graph_attrs_at(v->g, n->attrs)->drop != 0)
        return false;
    for (uint32_t j = 0; j < n->n_out; j++) {
        const Tensor *t = &v->g->tensors.at[n->out[j]];
        const Shape *o = value_shape_at(v, s->shape[in->n_in + j]);
        if (v->p->buffers.at[program_arg(v->p, in, in->n_in + j)].packed || o->n_dims != t->n_dims)
            return false;
        for (int d = 0; d < t->n_dims; d++)
            if (o->dim[d] != t->dim[d]) return false;
    }
    return true;
}

static bool *plain_mark(const Verifier *v, Pc pc)
{
    const uint32_t group = v->twins ? v->twins[v->program].of_instr[pc] : 0;
    return group ? &v->cache->plain[group] : NULL;
}

/* True if the values that the instruction reads are those of its graph node's inputs. */
static bool has_inputs_of_node(const OpStep *s, const Val *in)
{
    const Node *n = &s->v->g->nodes.at[s->in->origin];
    bool same = true;
    for (uint32_t i = 0; i < n->n_in; i++)
        same &= value_same(in[i].vn, value_of_tensor(s->v, n->in[i], s->in->microbatch));
    return same;
}

/* Returns the value of output j of a plain instruction (is_plain) that reads the inputs of its
 * node. Op, attributes and sizes are also those of the node, so the value is that of the graph. */
static Hash128 plain_value(const OpStep *s, uint32_t j)
{
    const TensorId t = s->v->g->nodes.at[s->in->origin].out[j];
    if (s->v->known[t] == 1) return value_of_tensor(s->v, t, s->in->microbatch);
    return value_contribution(s->v, s->in->origin, j, s->in->microbatch);
}

/* ---- one instruction ---- */

/* Reads the inputs, and the outputs to which the instruction adds. Returns false after a fault. */
static bool read_values(const OpStep *s, Val *from, Val *old)
{
    Verifier *v = s->v;
    const Instr *in = s->in;
    bool bad = false;
    for (uint32_t i = 0; i < in->n_in; i++) {
        from[i] = value_read(v, s->pc, program_arg(v->p, in, i), "input", i);
        const bool strips = op_is_border(in->op) && i + 1 == in->n_in && !from[i].list;
        if (strips && !from[i].bad) {
            from[i].bad = from[0].bad || !value_takes_strips(v, s->pc, &from[i], &from[0]);
        } else if (from[i].list || from[i].packed_dim) {
            verify_report(v, "verify-layout", s->pc, "input %u is %s", i,
                          from[i].list ? "a flat buffer of several values" : "packed");
            from[i].bad = true;
        }
        bad = bad || from[i].bad;
    }
    for (uint32_t j = 0; in->n_in + j < s->n_args; j++)
        if (verify_accumulates(v, in, j))
            old[j] = value_read(v, s->pc, program_arg(v->p, in, in->n_in + j), "sum", j);
    return !bad;
}

/* Writes output j. Adds its old value, if the instruction adds to it. */
static void write_value(const OpStep *s, uint32_t j, Val out, const Val *old)
{
    Verifier *v = s->v;
    const BufferId b = program_arg(v->p, s->in, s->in->n_in + j);
    const Buffer *at = &v->p->buffers.at[b];
    out.bytes = at->bytes;
    out.dtype = (uint8_t)at->dtype;
    if (verify_accumulates(v, s->in, j)) {
        out.shape = v->canon[at->shape];
        out = value_sum(v, s->pc, &old[j], &out);
    }
    value_write(v, s->pc, b, out);
}

/* The kernel has used its scratch memory, so the old value there is lost. */
static void write_scratch(const OpStep *s)
{
    if (s->n_args < s->in->args.n)
        value_write(s->v, s->pc, program_arg(s->v->p, s->in, s->n_args),
                    (Val){.vn = value_leaf("scratch", s->pc)});
}

void value_compute(Verifier *v, Pc pc)
{
    OpStep s = {.v = v, .pc = pc, .in = &v->p->code.at[pc]};
    const Instr *in = s.in;
    Val from[MAX_IN], old[MAX_OUT];
    bool is_node = false, *plain = plain_mark(v, pc);
    s.n_args = verify_n_args(in);
    bool bad = !read_values(&s, from, old);
    if (!bad && plain && *plain && has_inputs_of_node(&s, from)) {
        for (uint32_t j = 0; in->n_in + j < s.n_args; j++)
            write_value(&s, j, (Val){.vn = plain_value(&s, j)}, old);
        write_scratch(&s);
        return;
    }
    Bound *bound = verify_bound(v, pc);
    assert(!bound->fault);
    s.b = &bound->binding;
    for (uint32_t i = 0; i < s.n_args; i++)
        s.shape[i] = v->canon[v->p->buffers.at[program_arg(v->p, in, i)].shape];
    s.has_part = op_whole(in->op) != OP_none;
    if (s.has_part && !bad) bad = !value_hop(v, pc, s.shape, &s.hop);
    if (s.has_part && !bad && op_info(in->op)->flags & OP_MERGES)
        bad = !value_merges(v, pc, &s.hop, from, old);
    s.in_rows = op_of_rows(in->op) != OP_none;
    if (s.in_rows && !bad) bad = !value_rows_part(v, pc, s.shape);
    const bool shares = shares_out(&s);
    if (!bad && !shares && !bound->layouts_are_fine) bad = !check_layouts(&s);
    if (!bad && !shares) bound->layouts_are_fine = true;
    /* always checked, because windows depend on attributes, and the stored binding does not */
    if (!bad) bad = !check_windows(&s);
    bool ok = bad || check_origin(&s, from, &is_node);
    if (plain && !bad && ok && is_node && !shares) *plain = is_plain(&s);
    if (bad && in->origin) is_node = v->g->nodes.at[in->origin].op == in->op;
    if (bad && (s.has_part || s.in_rows)) is_node = false;
    bad = bad || !ok;
    for (uint32_t j = 0; in->n_in + j < s.n_args; j++) {
        const Buffer *at = &v->p->buffers.at[program_arg(v->p, in, in->n_in + j)];
        Val out = {.bad = bad && !is_node};
        if (!out.bad) out.vn = shares ? from[0].vn : output_value(&s, from, j, bad);
        if (at->packed) {
            verify_report(
                v, "verify-layout", pc,
                "output %u is marked as packed, but only the op pack makes packed buffers", j);
            out.bad = true;
        }
        write_value(&s, j, out, old);
    }
    write_scratch(&s);
}
