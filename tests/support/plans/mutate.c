/* Lists and applies mutations. */
#include "tests/support/plans/mutate.h"

#include <assert.h>
#include <string.h>

#include "planner/ir/layout/halo.h"
#include "planner/ir/window.h"

static const char *const names[MUTATION_KINDS] = {
#define X(name) #name,
    MUTATIONS(X)
#undef X
};

const char *mutation_name(MutationKind kind)
{
    return names[kind];
}

static bool is_comm(const Instr *in)
{
    return op_info(in->op)->class_ == OP_CLASS_comm;
}

static Pc next_comm(const Program *p, Pc pc)
{
    for (Pc k = pc + 1; k < p->code.n; k++)
        if (is_comm(&p->code.at[k]) && p->code.at[k].stream == p->code.at[pc].stream) return k;
    return 0;
}

static bool is_alike(const Program *p, BufferId a, BufferId b)
{
    const Buffer *x = &p->buffers.at[a], *y = &p->buffers.at[b];
    uint64_t from, to;
    program_root(p, a, &from);
    program_root(p, b, &to);
    return a != b && x->bytes == y->bytes && x->dtype == y->dtype && from != to;
}

/* Returns the nearest similar buffer with a higher number than b (choice 0) or a lower one (other
 * choices). 0: there is none. */
static BufferId other_buffer(const Program *p, BufferId b, uint32_t choice)
{
    if (choice == 0) {
        for (BufferId k = b + 1; k < p->buffers.n; k++)
            if (is_alike(p, b, k)) return k;
    } else {
        for (BufferId k = b; k-- > 1;)
            if (is_alike(p, b, k)) return k;
    }
    return 0;
}

typedef struct Lister {
    const Plan *plan;
    const Program *p;
    uint32_t program;
    Arena *arena;
    Mutations all;
} Lister;

static void add(Lister *l, MutationKind kind, Pc pc, uint32_t choice)
{
    Mutation m = {kind, l->program, pc, choice};
    list_push(l->arena, &l->all.at, m);
}

static bool can_shift(const Program *p, BufferId b)
{
    const Buffer *at = &p->buffers.at[b];
    uint64_t by = 64u * dtype_bytes(at->dtype);
    return at->parent && at->offset + by + at->bytes <= p->buffers.at[at->parent].bytes;
}

static void list_args(Lister *l, Pc pc)
{
    const Instr *in = &l->p->code.at[pc];
    for (uint32_t i = 0; i < in->args.n; i++) {
        BufferId b = program_arg(l->p, in, i);
        bool out = i >= in->n_in;
        for (uint32_t k = 0; k < 2; k++)
            if (other_buffer(l->p, b, k))
                add(l, out ? MUTATE_retarget_out : MUTATE_retarget_in, pc, k);
        if (can_shift(l->p, b)) add(l, out ? MUTATE_shift_out : MUTATE_shift_in, pc, 0);
    }
}

static void list_comm(Lister *l, Pc pc)
{
    const Instr *in = &l->p->code.at[pc];
    Pc next = next_comm(l->p, pc);
    add(l, MUTATE_delete, pc, 0);
    add(l, MUTATE_duplicate, pc, 0);
    add(l, MUTATE_rescale, pc, 0);
    list_args(l, pc);
    for (uint32_t a = 0; a < l->plan->mesh.n_axes; a++)
        if (in->axes != 1u << a) add(l, MUTATE_retarget_axes, pc, a);
    static const Stream streams[] = {STREAM_tp,           STREAM_dp_gather,  STREAM_dp_reduce,
                                     STREAM_dp_replicate, STREAM_ep,         STREAM_cp,
                                     STREAM_pp_forward,   STREAM_pp_backward};
    for (size_t k = 0; k < sizeof streams / sizeof streams[0]; k++)
        if (streams[k] != in->stream && (l->plan->programs.n > 1 || k < 6))
            add(l, MUTATE_restream, pc, streams[k]);
    if (in->hop) add(l, MUTATE_hop, pc, 0);
    if (in->op == OP_all_reduce || in->op == OP_reduce_scatter) add(l, MUTATE_reduce, pc, 0);
    if (in->launch || (next && !l->p->code.at[next].launch)) add(l, MUTATE_launch, pc, 0);
    if (!next) return;
    add(l, MUTATE_swap, pc, 0);
    add(l, MUTATE_match, pc, 0);
    add(l, MUTATE_rename, pc, 0);
}

static void list_scale(Lister *l, Pc pc)
{
    const Instr *in = &l->p->code.at[pc];
    const Attrs *attrs = graph_attrs_at(&l->plan->graph, in->attrs);
    if (attrs->scale != 0) add(l, MUTATE_rescale, pc, 0);
    if (in->args.n > in->n_in && l->p->buffers.at[program_arg(l->p, in, in->n_in)].dtype == DT_f64)
        add(l, MUTATE_retype, pc, in->n_in);
    if (in->op == OP_clip_coef) add(l, MUTATE_clip, pc, 0);
    if (attrs->drop > 0) add(l, MUTATE_attribute, pc, 0), add(l, MUTATE_attribute, pc, 1);
    if (attrs->smoothing > 0) add(l, MUTATE_attribute, pc, 2);
    if (attrs->z_loss > 0) add(l, MUTATE_attribute, pc, 3);
    if (attrs->group > 0) add(l, MUTATE_attribute, pc, 4);
    if (in->op == OP_xent_loss) add(l, MUTATE_attribute, pc, 5);
    if (attrs->beta1 > 0) add(l, MUTATE_attribute, pc, 6), add(l, MUTATE_attribute, pc, 7);
    if (in->op == OP_segment || in->op == OP_segment_grad) add(l, MUTATE_attribute, pc, 8);
    if (op_info(in->op)->flags & OP_TAKES)
        add(l, MUTATE_attribute, pc, 9), add(l, MUTATE_attribute, pc, 10);
    if (attrs->capacity > 0) add(l, MUTATE_attribute, pc, 11), add(l, MUTATE_attribute, pc, 12);
    if (in->op == OP_route || in->op == OP_route_grad) add(l, MUTATE_attribute, pc, 13);
    if (attrs->drop > 0 && in->origin && l->plan->graph.nodes.at[in->origin].forward)
        add(l, MUTATE_forward, pc, 0);
    if (in->op == OP_sumsq)
        for (uint32_t k = 0; k < 3; k++) add(l, MUTATE_count, pc, k);
    if (!(op_info(in->op)->flags & (OP_ACCUMULATES | OP_MERGES))) return;
    for (uint32_t j = 0; j < op_info(in->op)->sig.n_out; j++) add(l, MUTATE_accumulate, pc, j);
}

/* In deal number choice / 2, finds the first part with a halo. Returns its start (choice even) or
 * its end (choice odd). */
static int64_t *halo_end(const Deals *deals, uint32_t choice)
{
    const Deal *d = &deals->deals.at[choice / 2];
    for (uint32_t p = 0; p < d->n_parts; p++) {
        Interval own, *held = &deals->intervals.at[d->first + p];
        if (!deal_interval(deals, 0, d->size, d->n_parts, p, 0, &own)) continue;
        if (choice % 2 ? held->hi > own.hi : held->lo < own.lo)
            return choice % 2 ? &held->hi : &held->lo;
    }
    return NULL;
}

static void list_halo(Lister *l, Pc pc)
{
    const Instr *in = &l->p->code.at[pc];
    for (uint32_t k = 0; k < 2 && in->n_in == 2; k++)
        if (other_buffer(l->p, program_arg(l->p, in, 1), k)) add(l, MUTATE_strips, pc, k);
    add(l, MUTATE_adjoint, pc, 0);
    add(l, MUTATE_dimension, pc, 0), add(l, MUTATE_dimension, pc, 1);
    list_args(l, pc);
    const Shape *held = plan_shape_at(
        l->plan, l->p->buffers.at[program_arg(l->p, in, in->op == OP_halo_join ? 2 : 0)].shape);
    for (int d = 0; d < held->n_dims; d++)
        if (deal_is_around(&l->plan->graph.deals, held->deal[d]))
            for (uint32_t end = 0; end < 2; end++)
                if (halo_end(&l->plan->graph.deals, 2 * held->deal[d] + end))
                    add(l, MUTATE_narrow, pc, 2 * held->deal[d] + end);
}

static void list_stride(Lister *l, Pc pc)
{
    add(l, MUTATE_adjoint, pc, 0);
    add(l, MUTATE_dimension, pc, 0), add(l, MUTATE_dimension, pc, 1);
    list_args(l, pc);
}

/* Changes the windows of a convolution or a pooling: moves them by a row, or gives them another
 * kind of edge. */
static void list_window(Lister *l, Pc pc)
{
    for (uint32_t k = 14; k < 18; k++) add(l, MUTATE_attribute, pc, k);
}

static void list_program(Lister *l)
{
    for (Pc pc = 1; pc < l->p->code.n; pc++) {
        const Instr *in = &l->p->code.at[pc];
        if (is_comm(in))
            list_comm(l, pc);
        else
            list_scale(l, pc);
        if (op_is_halo(in->op)) list_halo(l, pc);
        if (op_is_stride(in->op)) list_stride(l, pc);
        if (op_info(in->op)->flags & OP_WINDOWED) list_window(l, pc);
        if (in->stream == STREAM_compute && pc > 1) add(l, MUTATE_kernel, pc, 0);
        for (uint32_t k = 0; k < in->after.n; k++) {
            add(l, MUTATE_drop_wait, pc, k);
            if (l->p->after.at[in->after.first + k] > 1) add(l, MUTATE_alter_wait, pc, k);
        }
    }
}

Mutations mutate_all(const Plan *plan, Arena *arena)
{
    Lister l = {.plan = plan, .arena = arena};
    for (l.program = 0; l.program < plan->programs.n; l.program++) {
        l.p = &plan->programs.at[l.program];
        list_program(&l);
    }
    return l.all;
}

/* ---- applying ---- */

/* Lets the instruction wait for `before`. Does nothing if it does so already, or if `before` does
 * not come before it. */
static void add_wait(Program *to, Arena *arena, Instr *in, Pc before, Pc self)
{
    if (!before || before >= self) return;
    for (uint32_t k = 0; k < in->after.n; k++)
        if (to->after.at[in->after.first + k] == before) return;
    list_push(arena, &to->after, before);
    in->after.n++;
}

/* Lets the instruction wait for instruction `waits` of the old program. If that one was deleted,
 * the instruction instead waits for everything that the deleted one waited for, and for its
 * predecessor on its stream. So the deletion removes its effect, but keeps the order. */
static void add_waits(const Program *from, Program *to, Arena *arena, const Pc *now, Instr *in,
                      Pc self, Pc waits)
{
    const Instr *old = &from->code.at[waits];
    if (now[waits]) {
        add_wait(to, arena, in, now[waits], self);
        return;
    }
    for (uint32_t k = 0; k < old->after.n; k++)
        add_waits(from, to, arena, now, in, self, from->after.at[old->after.first + k]);
    Pc before = waits - 1;
    while (before && from->code.at[before].stream != old->stream) before--;
    if (before) add_waits(from, to, arena, now, in, self, before);
}

/* Puts the instructions into the order `source` (pcs of the old program), and adapts their
 * waits. */
static void reorder(const Program *from, Program *to, Arena *arena, const Pc *source, uint32_t n)
{
    Pc *now = arena_array(arena, from->code.n, sizeof *now);
    /* If an instruction occurs twice, this takes its first copy. */
    for (Pc pc = n; pc-- > 1;) now[source[pc]] = pc;
    to->code.at = arena_array(arena, n, sizeof *to->code.at);
    to->code.n = to->code.room = n;
    to->after.at = NULL;
    to->after.n = to->after.room = 0;
    for (Pc pc = 1; pc < n; pc++) {
        Instr in = from->code.at[source[pc]];
        Span old = in.after;
        in.after = (Span){to->after.n, 0};
        for (uint32_t k = 0; k < old.n; k++)
            add_waits(from, to, arena, now, &in, pc, from->after.at[old.first + k]);
        to->code.at[pc] = in;
    }
    for (BufferId b = 1; b < to->buffers.n; b++)
        to->buffers.at[b].first = to->buffers.at[b].last = 0;
    for (Pc pc = 1; pc < n; pc++)
        for (uint32_t i = 0; i < to->code.at[pc].args.n; i++) {
            BufferId b = program_arg(to, &to->code.at[pc], i),
                     both[2] = {b, to->buffers.at[b].parent};
            for (int k = 0; k < 2; k++) {
                if (!both[k]) continue;
                if (!to->buffers.at[both[k]].first) to->buffers.at[both[k]].first = pc;
                to->buffers.at[both[k]].last = pc;
            }
        }
}

static void change_order(const Program *from, Program *to, Arena *arena, Mutation m)
{
    Pc *source = arena_array(arena, from->code.n + 1, sizeof *source);
    Pc next = m.kind == MUTATE_swap ? next_comm(from, m.pc) : 0;
    uint32_t n = 1;
    for (Pc pc = 1; pc < from->code.n; pc++) {
        if (pc == next) continue;
        if (pc == m.pc && m.kind == MUTATE_delete) continue;
        if (pc == m.pc && next) source[n++] = next;
        source[n++] = pc;
        if (pc == m.pc && m.kind == MUTATE_duplicate) source[n++] = pc;
    }
    reorder(from, to, arena, source, n);
}

static void *copy(Arena *arena, const void *at, size_t n, size_t size)
{
    void *made = arena_array(arena, n + 1, size);
    if (n) memcpy(made, at, n * size);
    return made;
}

#define COPY_LIST(arena, list)                                                                     \
    ((list)->at = copy((arena), (list)->at, (list)->n, sizeof *(list)->at),                        \
     (list)->room = (list)->n)

Plan *mutate_copy(const Plan *plan, Arena *arena)
{
    Plan *out = arena_alloc(arena, sizeof *out);
    *out = *plan;
    COPY_LIST(arena, &out->shapes);
    COPY_LIST(arena, &out->programs);
    for (uint32_t i = 0; i < out->programs.n; i++) {
        Program *p = &out->programs.at[i];
        COPY_LIST(arena, &p->code);
        COPY_LIST(arena, &p->args);
        COPY_LIST(arena, &p->after);
        COPY_LIST(arena, &p->buffers);
    }
    Graph *g = &out->graph;
    COPY_LIST(arena, &g->tensors);
    COPY_LIST(arena, &g->nodes);
    COPY_LIST(arena, &g->units);
    COPY_LIST(arena, &g->attrs);
    COPY_LIST(arena, &g->deals.deals);
    COPY_LIST(arena, &g->deals.intervals);
    for (UnitId u = 0; u < g->units.n; u++) COPY_LIST(arena, &g->units.at[u].params);
    out->program_of = copy(arena, plan->program_of, plan->mesh.n_ranks, sizeof *out->program_of);
    return out;
}

static void change_attrs(const Plan *plan, Plan *out, Arena *arena, Mutation m)
{
    Instr *in = &out->programs.at[m.program].code.at[m.pc];
    Attrs a = *graph_attrs_at(&plan->graph, in->attrs);
    int64_t half = (a.hi - a.lo) / 2;
    if (m.kind == MUTATE_rescale) a.scale = a.scale != 0 ? 2 * a.scale : 2;
    if (m.kind == MUTATE_clip) a.clip /= 2;
    if (m.kind == MUTATE_attribute) {
        if (m.choice == 0) a.site++;
        if (m.choice == 1) a.drop /= 2;
        if (m.choice == 2) a.smoothing /= 2;
        if (m.choice == 3) a.z_loss *= 2;
        if (m.choice == 4) a.group = a.group % 2 + 1;
        if (m.choice == 5) a.count_all = !a.count_all;
        if (m.choice == 6) a.beta1 = 1 + a.beta1;
        if (m.choice == 7) a.beta2 /= 2;
        if (m.choice == 8) a.segment ^= 1;
        if (m.choice == 9) a.first += a.first > 0 ? -1 : 1;
        if (m.choice == 10) a.count += a.count > 1 ? -1 : 1;
        if (m.choice == 11) a.capacity++;
        if (m.choice == 12) a.experts++;
        if (m.choice == 13) a.normalise = !a.normalise;
        if (m.choice == 14) a.h_before++, a.h_after--;
        if (m.choice == 15) a.w_before++, a.w_after--;
        if (m.choice == 16) a.h_mode = (a.h_mode + 1) % WINDOW_edge;
        if (m.choice == 17) a.w_mode = (a.w_mode + 1) % WINDOW_edge;
    }
    if (m.kind == MUTATE_dimension && m.choice == 0) a.dim = a.dim == 2 ? 3 : 2;
    if (m.kind == MUTATE_dimension && m.choice == 1) a.parts++;
    if (m.kind == MUTATE_reduce) a.reduce = a.reduce == REDUCE_sum ? REDUCE_max : REDUCE_sum;
    if (m.kind == MUTATE_accumulate) a.accumulate ^= INT64_C(1) << m.choice;
    if (m.kind == MUTATE_count) {
        if (m.choice == 0) a.lo += half;
        if (m.choice == 1) a.hi -= half;
        if (m.choice == 2) a.hi += 2 * half, a.lo -= half > a.lo ? a.lo : half;
    }
    /* The attributes are not interned, because that would change tables that the plan shares with
     * the mutant. */
    in->attrs = (AttrsId)list_push(arena, &out->graph.attrs, a);
}

/* Gives a gradient another mask than that of its forward node, and removes its link to the forward
 * node. Changes the graph and the programs alike. */
static void change_forward(Plan *out, Arena *arena, NodeId id)
{
    Node *n = &out->graph.nodes.at[id];
    Attrs a = *graph_attrs_at(&out->graph, n->attrs);
    AttrsId was = n->attrs;
    a.site = (int64_t)out->graph.nodes.n;
    n->forward = 0;
    n->attrs = (AttrsId)list_push(arena, &out->graph.attrs, a);
    for (uint32_t i = 0; i < out->programs.n; i++)
        for (Pc pc = 1; pc < out->programs.at[i].code.n; pc++) {
            Instr *in = &out->programs.at[i].code.at[pc];
            if (in->origin == id && in->attrs == was) in->attrs = n->attrs;
        }
}

static void change_launch(Program *p, Pc pc)
{
    Instr *in = &p->code.at[pc];
    uint32_t top = 0;
    for (Pc k = 1; k < p->code.n; k++)
        if (p->code.at[k].launch > top) top = p->code.at[k].launch;
    if (in->launch) {
        /* The members behind this one become a launch of their own, so they get a new number. */
        uint32_t was = in->launch;
        in->launch = 0;
        for (Pc k = pc + 1; k < p->code.n; k++)
            if (p->code.at[k].launch == was) p->code.at[k].launch = top + 1;
        return;
    }
    in->launch = p->code.at[next_comm(p, pc)].launch = top + 1;
}

/* Takes an instruction out of its kernel, or puts it into the kernel of the computation before
 * it. */
static void change_kernel(Program *p, Pc pc)
{
    Instr *in = &p->code.at[pc], *before = in - 1;
    if (in->fuse) {
        in->fuse = 0;
        return;
    }
    while (before > p->code.at && before->stream != STREAM_compute) before--;
    /* No kernel has this number, because there are fewer kernels than instructions. */
    if (!before->fuse) before->fuse = p->code.n;
    in->fuse = before->fuse;
}

static void shift_view(Program *p, Arena *arena, Pc pc, uint32_t arg)
{
    BufferId *at = &p->args.at[p->code.at[pc].args.first + arg];
    Buffer moved = p->buffers.at[*at];
    moved.offset += 64u * dtype_bytes(moved.dtype);
    moved.first = moved.last = pc;
    *at = (BufferId)list_push(arena, &p->buffers, moved);
}

static void change_wait(Program *p, Mutation m)
{
    Span *after = &p->code.at[m.pc].after;
    Pc *wait = &p->after.at[after->first + m.choice];
    if (m.kind == MUTATE_alter_wait) {
        --*wait;
        return;
    }
    memmove(wait, wait + 1, (after->n - m.choice - 1) * sizeof *wait);
    after->n--;
}

static void change_match(Program *p, Mutation m)
{
    Instr *in = &p->code.at[m.pc], *next = &p->code.at[next_comm(p, m.pc)];
    uint32_t was = in->match;
    in->match = next->match;
    if (m.kind == MUTATE_rename) next->match = was;
}

static OpKind adjoint(OpKind op)
{
    if (op_is_stride(op)) return op == OP_stride_pack ? OP_stride_unpack : OP_stride_pack;
    if (op == OP_halo_pack || op == OP_halo_cut)
        return op == OP_halo_pack ? OP_halo_cut : OP_halo_pack;
    return op == OP_halo_join ? OP_halo_fold : OP_halo_join;
}

Plan *mutate(const Plan *plan, Mutation m, Arena *arena)
{
    Plan *out = mutate_copy(plan, arena);
    Program *p = &out->programs.at[m.program];
    const Program *was = &plan->programs.at[m.program];
    Instr *in = &p->code.at[m.pc];
    BufferId *arg = &p->args.at[in->args.first];
    switch (m.kind) {
    case MUTATE_delete:
    case MUTATE_swap: change_order(was, p, arena, m); break;
    case MUTATE_duplicate: /* The copy gets its own match number. */
        change_order(was, p, arena, m);
        p->code.at[m.pc + 1].match = out->n_match++;
        break;
    case MUTATE_retarget_axes: in->axes = (AxisSet)(in->axes ^ 1u << m.choice); break;
    case MUTATE_retarget_in: arg[0] = other_buffer(p, arg[0], m.choice); break;
    case MUTATE_retarget_out: arg[in->n_in] = other_buffer(p, arg[in->n_in], m.choice); break;
    case MUTATE_shift_in: shift_view(p, arena, m.pc, 0); break;
    case MUTATE_shift_out: shift_view(p, arena, m.pc, in->n_in); break;
    case MUTATE_hop: in->hop = -in->hop; break;
    case MUTATE_strips: arg[1] = other_buffer(p, arg[1], m.choice); break;
    case MUTATE_adjoint: in->op = adjoint(in->op); break;
    case MUTATE_narrow: *halo_end(&out->graph.deals, m.choice) += m.choice % 2 ? -1 : 1; break;
    case MUTATE_restream: in->stream = (Stream)m.choice; break;
    case MUTATE_reduce:
    case MUTATE_rescale:
    case MUTATE_clip:
    case MUTATE_attribute:
    case MUTATE_dimension:
    case MUTATE_accumulate:
    case MUTATE_count: change_attrs(plan, out, arena, m); break;
    case MUTATE_forward: change_forward(out, arena, in->origin); break;
    case MUTATE_retype: p->buffers.at[arg[m.choice]].dtype = DT_i64; break;
    case MUTATE_drop_wait:
    case MUTATE_alter_wait: change_wait(p, m); break;
    case MUTATE_launch: change_launch(p, m.pc); break;
    case MUTATE_kernel: change_kernel(p, m.pc); break;
    case MUTATE_match:
    case MUTATE_rename: change_match(p, m); break;
    case MUTATION_KINDS: assert(false);
    }
    return out;
}

const char *mutation_text(const Plan *plan, Mutation m, Arena *arena)
{
    const Instr *in = &plan->programs.at[m.program].code.at[m.pc];
    return arena_print(arena, "%s %u of program %u, %u %s %s (mb%u, %s)", mutation_name(m.kind),
                       m.choice, m.program, m.pc, stream_name(in->stream), op_info(in->op)->name,
                       in->microbatch, phase_name(in->phase));
}
