/* Plants bugs that published trainers had, one by one, in good plans. The proofs must report each.
 * Every row stands for a public report of a silent error or a hang, and describes it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "planner/verify/verify.h"
#include "tests/support/plans/mutate.h"
#include "tests/support/plans/tiny.h"

/* ---- looking for an instruction ---- */

typedef struct Want {
    OpKind op;
    Stream stream;      /* STREAM_none: any */
    const char *unit;   /* the unit of the instruction; NULL: any */
    const char *module; /* the end of the path of its node's module; NULL: any */
    Phase phase;        /* PHASE_none: any */
    uint32_t microbatch, nth;
} Want;

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static bool fits(const Plan *plan, const Instr *in, const Want *w)
{
    const Graph *g = &plan->graph;
    const char *path = in->origin ? g->modules.at[g->nodes.at[in->origin].module].path : "";
    return in->op == w->op && (w->stream == STREAM_none || in->stream == w->stream) &&
           (!w->unit || (in->unit && strcmp(g->units.at[in->unit].name, w->unit) == 0)) &&
           (!w->module || (path && ends_with(path, w->module))) &&
           (w->phase == PHASE_none || in->phase == w->phase) && in->microbatch == w->microbatch;
}

static Pc find(const Plan *plan, uint32_t program, Want w)
{
    const Program *p = &plan->programs.at[program];
    uint32_t n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++)
        if (fits(plan, &p->code.at[pc], &w) && n++ == w.nth) return pc;
    fail_msg("no %s in the plan", op_info(w.op)->name);
    return 0;
}

/* ---- planting ---- */

static Arena *arena; /* arena of the running test */

static Attrs *own_attrs(Plan *bad, uint32_t program, Pc pc)
{
    Instr *in = &bad->programs.at[program].code.at[pc];
    Attrs a = *graph_attrs_at(&bad->graph, in->attrs);
    in->attrs = (AttrsId)list_push(arena, &bad->graph.attrs, a);
    return &bad->graph.attrs.at[in->attrs];
}

static BufferId spare(Program *p, BufferId like)
{
    BufferId b = (BufferId)list_push(arena, &p->buffers, p->buffers.at[like]);
    Buffer *at = &p->buffers.at[b];
    at->parent = 0;
    at->persistent = false;
    at->offset = (p->bytes + 255) / 256 * 256;
    p->bytes = at->offset + at->bytes;
    return b;
}

/* Leaves the collective out: its input becomes its result, and all waits stay. */
static Plan *without(const Plan *plan, uint32_t program, Pc pc)
{
    Plan *bad = mutate_copy(plan, arena);
    Program *p = &bad->programs.at[program];
    Instr *in = &p->code.at[pc];
    BufferId *arg = &p->args.at[in->args.first];
    uint64_t from, to;
    BufferId a = program_root(p, arg[0], &from), b = program_root(p, arg[1], &to);
    /* It is copied in place, which has no effect. */
    if (a == b && from == to) arg[1] = spare(p, arg[0]);
    in->op = OP_copy;
    in->axes = 0;
    in->match = in->launch = in->attrs = 0;
    return bad;
}

static Plan *rescale(const Plan *plan, OpKind op, double by)
{
    Plan *bad = mutate_copy(plan, arena);
    for (uint32_t i = 0; i < bad->programs.n; i++)
        for (Pc pc = 1; pc < bad->programs.at[i].code.n; pc++)
            if (bad->programs.at[i].code.at[pc].op == op) own_attrs(bad, i, pc)->scale *= by;
    return bad;
}

/* ---- the bugs ---- */

static const Want norm_sum = {OP_all_reduce, STREAM_tp, "layers.0", NULL, PHASE_backward, 0, 0};

static Plan *norm_gradients_not_summed(const Plan *plan)
{
    return without(plan, 0, find(plan, 0, norm_sum));
}

static Plan *gather_backward_is_a_slice(const Plan *plan)
{
    Want w = {OP_reduce_scatter, STREAM_tp, NULL, ".feed_forward", PHASE_backward, 0, 0};
    Plan *bad = mutate_copy(plan, arena);
    Pc pc = find(plan, 0, w);
    Instr *in = &bad->programs.at[0].code.at[pc];
    in->op = OP_slice;
    in->match = 0;
    own_attrs(bad, 0, pc)->parts = mesh_size(&plan->mesh, in->axes);
    in->axes = 0;
    return bad;
}

/* Inserts `in` after pc, and corrects the references to later instructions. */
static Instr *insert(Program *p, Pc pc, Instr in)
{
    list_add(arena, &p->code);
    for (Pc k = p->code.n - 1; k > pc + 1; k--) p->code.at[k] = p->code.at[k - 1];
    for (uint32_t i = 0; i < p->after.n; i++) p->after.at[i] += p->after.at[i] > pc;
    for (BufferId b = 1; b < p->buffers.n; b++) {
        p->buffers.at[b].first += p->buffers.at[b].first > pc;
        p->buffers.at[b].last += p->buffers.at[b].last > pc;
    }
    p->code.at[pc + 1] = in;
    return &p->code.at[pc + 1];
}

/* Every rank has whole logits, but the loss still sums over ranks as it would for split logits. */
static Plan *gathered_logits_into_split_loss(const Plan *plan)
{
    Want w = {OP_xent_sumexp, STREAM_none, NULL, NULL, PHASE_forward, 0, 0};
    Plan *bad = mutate_copy(plan, arena);
    Program *p = &bad->programs.at[0];
    Pc pc = find(plan, 0, w);
    Instr sum = p->code.at[pc];
    BufferId made = program_arg(p, &sum, 2), summed = spare(p, made);
    for (uint32_t i = sum.args.first + 3; i < p->args.n; i++)
        if (p->args.at[i] == made) p->args.at[i] = summed;
    sum.op = OP_all_reduce;
    sum.stream = STREAM_tp;
    sum.fuse = 0;
    sum.axes = mesh_axes(&plan->mesh, AXIS_tp);
    sum.match = bad->n_match++;
    sum.n_in = 1;
    sum.args = (Span){p->args.n, 2};
    sum.after = (Span){p->after.n, 1};
    list_push(arena, &p->after, pc);
    list_push(arena, &p->args, made);
    list_push(arena, &p->args, summed);
    insert(p, pc, sum);
    own_attrs(bad, 0, pc + 1)->reduce = REDUCE_sum;
    return bad;
}

static Plan *gradients_summed_not_averaged(const Plan *plan)
{
    double ranks = mesh_size(&plan->mesh, mesh_axes(&plan->mesh, AXIS_dp_shard));
    return rescale(plan, OP_xent_loss_grad, ranks);
}

static Plan *gradients_averaged_twice(const Plan *plan)
{
    double ranks = mesh_size(&plan->mesh, mesh_axes(&plan->mesh, AXIS_dp_shard));
    return rescale(plan, OP_xent_loss_grad, 1 / ranks);
}

static Plan *microbatches_not_averaged(const Plan *plan)
{
    return rescale(plan, OP_xent_loss_grad, plan->step.n_microbatches);
}

static Plan *replicas_never_meet(const Plan *plan)
{
    Want w = {OP_all_reduce, STREAM_dp_replicate,           NULL, NULL,
              PHASE_none,    plan->step.n_microbatches - 1, 0};
    return without(plan, 0, find(plan, 0, w));
}

static Plan *one_unit_never_reduced(const Plan *plan)
{
    Want w = {OP_all_reduce, STREAM_dp_replicate,           NULL, NULL,
              PHASE_none,    plan->step.n_microbatches - 1, 1};
    return without(plan, 0, find(plan, 0, w));
}

/* The second micro-batch sets the accumulator instead of adding to it. */
static Plan *accumulated_gradients_wiped(const Plan *plan)
{
    uint32_t last = plan->programs.n - 1;
    Want w = {OP_linear_d1, STREAM_compute, NULL, NULL, PHASE_backward, 1, 0};
    Plan *bad = mutate_copy(plan, arena);
    Pc pc = find(plan, last, w);
    assert_int_not_equal(own_attrs(bad, last, pc)->accumulate, 0);
    bad->graph.attrs.at[bad->programs.at[last].code.at[pc].attrs].accumulate = 0;
    return bad;
}

/* Returns the sum from which the clip coefficient is computed. */
static Pc find_norm(const Plan *plan, uint32_t program, AxisName over)
{
    const Program *p = &plan->programs.at[program];
    Want w = {
        OP_clip_coef, STREAM_none, NULL, NULL, PHASE_update, plan->step.n_microbatches - 1, 0};
    Pc clip = find(plan, program, w);
    uint64_t wanted, made;
    BufferId table = program_root(p, program_arg(p, &p->code.at[clip], 0), &wanted);
    for (Pc pc = clip; pc-- > 1;) {
        const Instr *in = &p->code.at[pc];
        if (in->op == OP_all_reduce && in->axes & mesh_axes(&plan->mesh, over) &&
            program_root(p, program_arg(p, in, 1), &made) == table)
            return pc;
    }
    fail_msg("the norm is not summed");
    return 0;
}

static Plan *norm_counts_replicas(const Plan *plan)
{
    Plan *bad = mutate_copy(plan, arena);
    Instr *in = &bad->programs.at[0].code.at[find_norm(plan, 0, AXIS_dp_shard)];
    in->axes |= mesh_axes(&plan->mesh, AXIS_dp_replicate);
    return bad;
}

static Plan *norm_of_my_own_shard(const Plan *plan)
{
    return without(plan, 0, find_norm(plan, 0, AXIS_dp_shard));
}

static Plan *norm_without_tensor_ranks(const Plan *plan)
{
    Plan *bad = mutate_copy(plan, arena);
    Instr *in = &bad->programs.at[0].code.at[find_norm(plan, 0, AXIS_tp)];
    in->axes &= (AxisSet)~mesh_axes(&plan->mesh, AXIS_tp);
    return bad;
}

static Plan *stage_clips_by_its_own_norm(const Plan *plan)
{
    Plan *bad = without(plan, 0, find_norm(plan, 0, AXIS_pp));
    Program *p = &bad->programs.at[1];
    Instr *in = &p->code.at[find_norm(plan, 1, AXIS_pp)];
    p->args.at[in->args.first + 1] = spare(p, program_arg(p, in, 0));
    in->op = OP_copy;
    in->axes = 0;
    in->match = in->launch = in->attrs = 0;
    return bad;
}

static Plan *recomputation_draws_a_new_batch(const Plan *plan)
{
    Want w = {OP_batch, STREAM_none, NULL, NULL, PHASE_none, 0, 0};
    Plan *bad = mutate_copy(plan, arena);
    bad->programs.at[0].code.at[find(plan, 0, w)].phase = PHASE_recompute;
    return bad;
}

/* With HSDP, the buffer of the shard is used again before the sum over replicas has read it. */
static Plan *reduced_shard_freed_early(const Plan *plan)
{
    Want w = {OP_all_reduce, STREAM_dp_replicate,           NULL, NULL,
              PHASE_none,    plan->step.n_microbatches - 1, 0};
    Plan *bad = mutate_copy(plan, arena);
    Program *p = &bad->programs.at[0];
    Pc pc = find(plan, 0, w);
    p->code.at[pc].after.n = 0;
    return bad;
}

static Plan *result_lost_in_a_copy(const Plan *plan)
{
    Want w = {OP_reduce_scatter, STREAM_dp_reduce, NULL, NULL, PHASE_none, 0, 0};
    Plan *bad = mutate_copy(plan, arena);
    Program *p = &bad->programs.at[0];
    Instr *in = &p->code.at[find(plan, 0, w)];
    BufferId *out = &p->args.at[in->args.first + 1];
    BufferId copy = spare(p, *out);
    *out = copy;
    return bad;
}

static Plan *wrong_scatter_dimension(const Plan *plan)
{
    Want w = {OP_reduce_scatter, STREAM_tp, NULL, ".feed_forward", PHASE_forward, 0, 0};
    Plan *bad = mutate_copy(plan, arena);
    Program *p = &bad->programs.at[0];
    Buffer *out = &p->buffers.at[program_arg(p, &p->code.at[find(plan, 0, w)], 1)];
    Shape s = *plan_shape_at(plan, out->shape);
    for (uint32_t a = 0; a < MAX_AXES; a++)
        if (s.layout.on[a] == SPLIT(1)) s.layout.on[a] = SPLIT(2);
    out->shape = (ShapeId)list_push(arena, &bad->shapes, s);
    return bad;
}

static Plan *all_ranks_read_the_same_samples(const Plan *plan)
{
    Want w = {OP_batch, STREAM_none, NULL, NULL, PHASE_none, 0, 0};
    Plan *bad = mutate_copy(plan, arena);
    Program *p = &bad->programs.at[0];
    const Instr *in = &p->code.at[find(plan, 0, w)];
    /* all samples exist, but every rank reads the first ones */
    for (uint32_t i = 0; i < 2; i++) {
        BufferId part = program_arg(p, in, i), all = spare(p, part);
        Shape s = *plan_shape_at(plan, p->buffers.at[part].shape);
        uint32_t n = mesh_size(&plan->mesh, layout_axes_split(&s.layout, 0));
        memset(&s.layout, 0, sizeof s.layout);
        p->buffers.at[all].shape = (ShapeId)list_push(arena, &bad->shapes, s);
        p->buffers.at[all].bytes *= n;
        p->bytes = p->buffers.at[all].offset + p->buffers.at[all].bytes;
        p->buffers.at[part].parent = all;
        p->buffers.at[part].offset = 0;
        p->args.at[in->args.first + i] = all;
    }
    return bad;
}

/* A size is sizeof(float) instead of the number of elements. */
static Plan *four_elements_for_one(const Plan *plan)
{
    Plan *bad = mutate_copy(plan, arena);
    Program *p = &bad->programs.at[0];
    const Instr *in = &p->code.at[find_norm(plan, 0, AXIS_dp_shard)];
    for (uint32_t i = 0; i < 2; i++) {
        BufferId *at = &p->args.at[in->args.first + i];
        Buffer wide = p->buffers.at[*at];
        Shape s = *plan_shape_at(plan, wide.shape);
        s.n_dims = 1;
        s.dim[0] = 4 * (s.dim[0] > 0 ? s.dim[0] : 1);
        wide.shape = (ShapeId)list_push(arena, &bad->shapes, s);
        wide.bytes *= 4;
        *at = (BufferId)list_push(arena, &p->buffers, wide);
    }
    return bad;
}

/* Two programs issue two reductions in different orders, as if the buckets came from an unordered
 * set.
 */
static Plan *buckets_in_another_order(const Plan *plan)
{
    Plan *bad = mutate_copy(plan, arena);
    uint32_t last = bad->programs.n - 1;
    Want w = {OP_recv, STREAM_pp_forward, NULL, NULL, PHASE_none, 0, 0};
    Instr *a = &bad->programs.at[last].code.at[find(plan, last, w)];
    w.microbatch = 1;
    Instr *b = &bad->programs.at[last].code.at[find(plan, last, w)];
    uint32_t match = a->match;
    a->match = b->match;
    b->match = match;
    return bad;
}

/* Both directions use one communicator, and the first stage receives before it sends. */
static Plan *first_stage_listens_first(const Plan *plan)
{
    Want send = {OP_send, STREAM_pp_forward, NULL, NULL, PHASE_none, 0, 0};
    Want recv = {OP_recv, STREAM_pp_forward, NULL, NULL, PHASE_none, 0, 0};
    Plan *bad = mutate_copy(plan, arena);
    for (uint32_t i = 0; i < bad->programs.n; i++)
        for (Pc pc = 1; pc < bad->programs.at[i].code.n; pc++) {
            Instr *in = &bad->programs.at[i].code.at[pc];
            if (in->stream == STREAM_pp_backward) in->stream = STREAM_pp_forward;
        }
    Program *p = &bad->programs.at[0];
    Pc s = find(bad, 0, send), r = find(bad, 0, recv);
    Instr was = p->code.at[s];
    p->code.at[s] = p->code.at[r];
    p->code.at[r] = was;
    for (uint32_t i = 0; i < p->after.n; i++)
        if (p->after.at[i] == r)
            p->after.at[i] = s;
        else if (p->after.at[i] == s)
            p->after.at[i] = r;
    return bad;
}

static Tensor *fused_weight(Plan *bad)
{
    for (TensorId t = 1; t < bad->graph.tensors.n; t++)
        if (strstr(bad->graph.tensors.at[t].name, "wqkv.weight")) return &bad->graph.tensors.at[t];
    fail_msg("no fused projection");
    return NULL;
}

/* The weight of a checkpoint is cut in halves. Without `order`, nothing records that its features
 * are stored by groups. */
static Plan *fused_cut_as_one_matrix(const Plan *plan)
{
    Plan *bad = mutate_copy(plan, arena);
    fused_weight(bad)->order = 0;
    return bad;
}

static Plan *fused_cut_within_groups(const Plan *plan)
{
    Plan *bad = mutate_copy(plan, arena);
    Program *p = &bad->programs.at[0];
    Instr *in = &p->code.at[find(plan, 0, (Want){.op = OP_part_heads})];
    Buffer *b = &p->buffers.at[program_arg(p, in, 0)];
    Shape s = *plan_shape_at(bad, b->shape);
    for (uint32_t a = 0; a < bad->mesh.n_axes; a++)
        if (s.layout.on[a] == SPLIT(2)) s.layout.on[a] = SPLIT(3);
    b->shape = (ShapeId)list_push(arena, &bad->shapes, s);
    return bad;
}

/* The fault is in the graph, so every rank and every micro-batch has it. */
static Plan *key_for_value(const Plan *plan)
{
    Plan *bad = mutate_copy(plan, arena);
    for (AttrsId i = 1; i < bad->graph.attrs.n; i++)
        if (bad->graph.attrs.at[i].count == 1) bad->graph.attrs.at[i].first = 1;
    return bad;
}

/* ---- the table ---- */

typedef enum Where { ON_SP_FSDP, ON_HSDP, ON_DDP, ON_LOGITS, ON_PP, ON_AC, ON_FUSED } Where;

typedef struct Bug {
    const char *name;
    Where where;
    Plan *(*plant)(const Plan *plan);
    const char *rule; /* a proof that must report the bug */
} Bug;

static const Bug bugs[] = {
    {"norm gradients under sequence parallelism not summed over tp", ON_SP_FSDP,
     norm_gradients_not_summed, "verify-layout"},
    {"backward of a gather is a slice, not a reduce_scatter", ON_SP_FSDP,
     gather_backward_is_a_slice, "verify-layout"},
    {"gathered logits fed to the split loss: log(tp) too much", ON_LOGITS,
     gathered_logits_into_split_loss, "verify-layout"},
    {"data ranks summed, not averaged", ON_SP_FSDP, gradients_summed_not_averaged, "verify-scale"},
    {"data ranks averaged twice", ON_SP_FSDP, gradients_averaged_twice, "verify-scale"},
    {"micro-batches summed, not averaged", ON_SP_FSDP, microbatches_not_averaged, "verify-scale"},
    {"a pipeline scales by micro-batches once too often", ON_PP, microbatches_not_averaged,
     "verify-scale"},
    {"replicas never synchronised", ON_HSDP, replicas_never_meet, "verify-layout"},
    {"one bucket never reduced", ON_DDP, one_unit_never_reduced, "verify-layout"},
    {"gradients of earlier micro-batches wiped", ON_PP, accumulated_gradients_wiped,
     "verify-scale"},
    {"the gradient norm counts replicas", ON_HSDP, norm_counts_replicas, "verify-layout"},
    {"the gradient norm of my own shard", ON_SP_FSDP, norm_of_my_own_shard, "verify-layout"},
    {"the gradient norm without the tensor ranks", ON_SP_FSDP, norm_without_tensor_ranks,
     "verify-layout"},
    {"each stage clips by its own norm", ON_PP, stage_clips_by_its_own_norm, "verify-layout"},
    {"recomputation draws new data", ON_AC, recomputation_draws_a_new_batch, "verify-purity"},
    {"HSDP: the shard is reduced over replicas before it is complete", ON_HSDP,
     reduced_shard_freed_early, "verify-race"},
    {"a collective's result lost in a copy", ON_SP_FSDP, result_lost_in_a_copy, "verify-redundant"},
    {"scattered along the wrong dimension", ON_SP_FSDP, wrong_scatter_dimension, "verify-layout"},
    {"all ranks read the same samples", ON_SP_FSDP, all_ranks_read_the_same_samples,
     "verify-layout"},
    {"sizeof(float) elements reduced instead of one", ON_SP_FSDP, four_elements_for_one,
     "verify-structure"},
    {"fused q, k, v lie side by side and are cut as one matrix: q and half of k", ON_FUSED,
     fused_cut_as_one_matrix, "verify-segments"},
    {"fused q, k, v cut within the heads of a group", ON_FUSED, fused_cut_within_groups,
     "verify-layout"},
    {"keys and values taken from among the queries", ON_FUSED, key_for_value, "verify-segments"},
    {"two stages count their messages differently", ON_PP, buckets_in_another_order,
     "verify-deadlock"},
    {"both directions of a pipeline on one communicator, out of order", ON_PP,
     first_stage_listens_first, "verify-deadlock"},
};

static Plan *right_plan(Where where)
{
    Tiny t = tiny_default();
    t.layers = 2, t.microbatches = 2, t.clip = 1;
    switch (where) {
    case ON_SP_FSDP: t.tp = 2, t.dp_shard = 2, t.tp_options.sequence = true; break;
    case ON_HSDP: t.dp_replicate = 2, t.dp_shard = 2; break;
    case ON_DDP: t.dp_replicate = 2; break;
    case ON_LOGITS: t.tp = 2, t.tp_options.loss_parallel = false; break;
    case ON_PP: t.pp = 2; break;
    case ON_AC: t.ac = AC_full; break;
    case ON_FUSED: t.tp = 2, t.fused = true, t.groups = t.repeat = 2; break;
    }
    Diag d = diag_in(arena);
    Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    assert_true(verify_plan(plan, VERIFY_all, false, &d));
    return plan;
}

static bool names_it(const Bug *bug)
{
    Diag d = diag_in(arena);
    bool refused = !verify_plan(bug->plant(right_plan(bug->where)), VERIFY_all, false, &d);
    bool named = false;
    for (uint32_t i = 0; i < d.items.n; i++)
        named = named || strcmp(d.items.at[i].rule, bug->rule) == 0;
    if (!refused || !named || getenv("TANDEM_SHOW"))
        print_error("%s: expected %s, got\n", bug->name, bug->rule);
    for (uint32_t i = 0; i < d.items.n && i < 3 && (!refused || !named || getenv("TANDEM_SHOW"));
         i++)
        print_error("    %s: %s\n", d.items.at[i].rule, d.items.at[i].text);
    return refused && named;
}

static void each_planted_bug_is_reported(void **state)
{
    (void)state;
    uint32_t n_missed = 0;
    for (size_t i = 0; i < sizeof bugs / sizeof *bugs; i++) {
        arena = arena_new();
        n_missed += !names_it(&bugs[i]);
        arena_free(arena);
    }
    assert_int_equal(n_missed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_planted_bug_is_reported)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
