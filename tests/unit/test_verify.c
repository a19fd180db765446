/* The classic silent bugs, each put into a good plan: the proof that must see it, and what it must
 * say. And plans made by hand for races, sequences and deadlocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "planner/ir/verify.h"
#include "tests/support/corpus.h"
#include "tests/support/mutate.h"
#include "tests/support/plans.h"

typedef struct Case {
    Arena *arena;
    Plan *plan;
    Program *p;
    Diag d;
} Case;

static Case of_plan(Plan *plan, Arena *arena)
{
    return (Case){arena, plan, &plan->programs.at[0], diag_in(arena)};
}

static Case tiny(const Tiny *t)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    const Plan *plan = tiny_plan(t, false, arena, &d);
    assert_non_null(plan);
    return of_plan(mutate_copy(plan, arena), arena);
}

/* Data parallel 2 (sharded or replicated) x tp 2, three micro-batches. */
static Case sharded(void)
{
    Tiny t = tiny_default();
    t.dp_shard = t.tp = 2;
    t.microbatches = 3;
    return tiny(&t);
}

static Case replicated(void)
{
    Tiny t = tiny_default();
    t.dp_replicate = t.tp = 2;
    t.microbatches = 3;
    return tiny(&t);
}

static const char *all_text(Case *c)
{
    Str s = str_in(c->arena);
    diag_print(&c->d, &s);
    return str_text(&s);
}

/* The first (all NULL: any) report must be of that rule, and some report of it must say `text`. */
static void rejects(Case *c, const char *rule, const char *text)
{
    bool found = false;
    assert_false(verify_plan(c->plan, VERIFY_all, false, &c->d));
    for (uint32_t i = 0; i < c->d.items.n; i++)
        if (strcmp(c->d.items.at[i].rule, rule) == 0 && strstr(c->d.items.at[i].text, text))
            found = true;
    if (!found) fail_msg("no %s that says \"%s\" in:\n%.3000s", rule, text, all_text(c));
    assert_int_equal(diag_exit_code(&c->d), 1);
    arena_free(c->arena);
}

static void accepts(Case *c)
{
    if (!verify_plan(c->plan, VERIFY_all, false, &c->d)) fail_msg("%.3000s", all_text(c));
    arena_free(c->arena);
}

static Pc find(const Case *c, OpKind op, Stream stream, Phase phase, uint32_t mb)
{
    for (Pc pc = 1; pc < c->p->code.n; pc++) {
        const Instr *in = &c->p->code.at[pc];
        if (in->op == op && in->stream == stream && in->phase == phase && in->microbatch == mb)
            return pc;
    }
    fail_msg("the plan has no such instruction");
    return 0;
}

static void edit(Case *c, MutationKind kind, Pc pc, uint32_t choice)
{
    c->plan = mutate(c->plan, (Mutation){kind, 0, pc, choice}, c->arena);
    c->p = &c->plan->programs.at[0];
}

static void set_attrs(Case *c, Pc pc, Attrs a)
{
    c->p->code.at[pc].attrs = (AttrsId)list_push(c->arena, &c->plan->graph.attrs, a);
}

static Attrs attrs_of(const Case *c, Pc pc)
{
    return *graph_attrs_at(&c->plan->graph, c->p->code.at[pc].attrs);
}

/* ---- layouts ---- */

/* The sum over tp of norm-weight gradients under sequence parallelism. */
static void forgotten_norm_gradient_sum(void **state)
{
    (void)state;
    Case c = sharded();
    edit(&c, MUTATE_delete, find(&c, OP_all_reduce, STREAM_tp, PHASE_backward, 0), 0);
    rejects(&c, "verify-layout", "still partial on tp");
}

static void gradients_summed_twice(void **state)
{
    (void)state;
    Case c = replicated();
    edit(&c, MUTATE_duplicate, find(&c, OP_all_reduce, STREAM_dp_replicate, PHASE_backward, 2), 0);
    rejects(&c, "verify-layout", "");
}

static void gradients_never_summed(void **state)
{
    (void)state;
    Case c = replicated();
    edit(&c, MUTATE_delete, find(&c, OP_all_reduce, STREAM_dp_replicate, PHASE_backward, 2), 0);
    rejects(&c, "verify-layout", "still partial on dp_");
}

static void summed_over_the_wrong_ranks(void **state)
{
    (void)state;
    Case c = replicated();
    Pc pc = find(&c, OP_all_reduce, STREAM_dp_replicate, PHASE_backward, 2);
    c.p->code.at[pc].axes = mesh_axes(&c.plan->mesh, AXIS_tp);
    rejects(&c, "verify-layout", "");
}

/* Right shape, wrong tensor: the view of one weight moved onto its neighbour. */
static void wrong_weight_of_the_right_shape(void **state)
{
    (void)state;
    Case c = sharded();
    const Graph *g = &c.plan->graph;
    BufferId found = 0;
    for (BufferId b = 1; b < c.p->buffers.n && !found; b++) {
        Buffer *at = &c.p->buffers.at[b];
        if (!at->parent || !at->tensor || g->tensors.at[at->tensor].role != ROLE_param) continue;
        const Unit *u = &g->units.at[g->tensors.at[at->tensor].unit];
        for (uint32_t i = 0; i < u->params.n && !found; i++) {
            const Tensor *x = &g->tensors.at[at->tensor], *y = &g->tensors.at[u->params.at[i]];
            bool same = x != y && x->n_dims == y->n_dims && layout_equal(&x->use, &y->use);
            for (int d = 0; same && d < x->n_dims; d++) same = x->dim[d] == y->dim[d];
            if (!same) continue;
            at->offset = y->flat_offset * dtype_bytes(at->dtype);
            found = b;
        }
    }
    assert_true(found);
    rejects(&c, "verify-layout", "should be layers.0.");
}

static void maximum_of_sums(void **state)
{
    (void)state;
    Case c = sharded();
    edit(&c, MUTATE_reduce, find(&c, OP_reduce_scatter, STREAM_dp_reduce, PHASE_backward, 1), 0);
    rejects(&c, "verify-layout", "does not sum");
}

/* ---- scales ---- */

static void loss_divided_per_rank(void **state)
{
    (void)state;
    Case c = sharded();
    Pc pc = find(&c, OP_xent_loss_grad, STREAM_compute, PHASE_backward, 1);
    Attrs a = attrs_of(&c, pc);
    a.scale *= 2;
    set_attrs(&c, pc, a);
    rejects(&c, "verify-scale", "scales by");
}

static void graph_with_a_wrong_loss_scale(void **state)
{
    (void)state;
    Case c = sharded();
    c.plan->step.global_tokens *= 2;
    c.plan->step.seq *= 2;
    rejects(&c, "verify-scale", "1 / global tokens");
}

static void report_that_divides_by_others(void **state)
{
    (void)state;
    Case c = sharded();
    c.plan->step.global_tokens *= 2;
    rejects(&c, "verify-structure", "tokens");
    c = sharded();
    c.plan->step.n_microbatches--;
    rejects(&c, "verify-structure", "micro-steps");
    c = sharded();
    c.plan->graph.info.n_params = 5;
    rejects(&c, "verify-structure", "parameters");
}

static void accumulation_that_forgets(void **state)
{
    (void)state;
    Case c = sharded();
    Pc pc = find(&c, OP_pass, STREAM_compute, PHASE_backward, 1);
    while (!attrs_of(&c, pc).accumulate || !c.p->code.at[pc].unit) pc++;
    edit(&c, MUTATE_accumulate, pc, 0);
    rejects(&c, "verify-scale", "is not the step's: micro-batch 0 is missing");
}

static void contribution_that_overwrites(void **state)
{
    (void)state;
    Case c = replicated();
    Pc pc = find(&c, OP_linear_d1, STREAM_compute, PHASE_backward, 2);
    assert_true(attrs_of(&c, pc).accumulate);
    edit(&c, MUTATE_accumulate, pc, 0);
    rejects(&c, "verify-scale", "is not the step's");
}

static void norm_counts_twice(void **state)
{
    (void)state;
    Case c = sharded();
    Pc pc = find(&c, OP_sumsq, STREAM_compute, PHASE_update, 2), next = pc + 1;
    while (c.p->code.at[next].op != OP_sumsq || c.p->code.at[next].unit != c.p->code.at[pc].unit)
        next++;
    Attrs a = attrs_of(&c, next);
    a.lo = attrs_of(&c, pc).lo;
    set_attrs(&c, next, a);
    rejects(&c, "verify-scale", "");
}

static void norm_over_replicas(void **state)
{
    (void)state;
    Case c = replicated();
    Pc pc = find(&c, OP_all_reduce, STREAM_dp_reduce, PHASE_update, 2);
    while (c.p->code.at[pc].axes != mesh_axes(&c.plan->mesh, AXIS_tp)) pc++;
    c.p->code.at[pc].axes |= mesh_axes(&c.plan->mesh, AXIS_dp_replicate);
    rejects(&c, "verify-layout", "reduces what is not partial on its group");
}

static void norm_of_one_rank(void **state)
{
    (void)state;
    Case c = sharded();
    Pc pc = find(&c, OP_all_reduce, STREAM_dp_reduce, PHASE_update, 2);
    edit(&c, MUTATE_delete, pc + 1, 0);
    rejects(&c, "verify-layout", "still partial on dp_");
}

/* ---- coverage, purity ---- */

static Pc last_of(const Case *c, OpKind op)
{
    for (Pc pc = (Pc)c->p->code.n; pc-- > 1;)
        if (c->p->code.at[pc].op == op) return pc;
    return 0;
}

static void unit_not_updated(void **state)
{
    (void)state;
    Case c = sharded();
    assert_int_equal(last_of(&c, OP_adamw), c.p->code.n - 1);
    c.p->code.n--;
    rejects(&c, "verify-coverage", "is not updated");
}

static void unit_updated_twice(void **state)
{
    (void)state;
    Case c = sharded();
    Instr again = c.p->code.at[last_of(&c, OP_adamw)];
    again.after.n = 0;
    list_push(c.arena, &c.p->code, again);
    rejects(&c, "verify-coverage", "is no parameter of this step");
}

static void states_exchanged(void **state)
{
    (void)state;
    Case c = sharded();
    Pc one = last_of(&c, OP_adamw), other = one - 1;
    assert_int_equal(c.p->code.at[other].op, OP_adamw);
    for (uint32_t i = 1; i < 8; i++) {
        if (i > 2 && i < 6) continue;
        BufferId *a = &c.p->args.at[c.p->code.at[one].args.first + i],
                 *b = &c.p->args.at[c.p->code.at[other].args.first + i];
        BufferId was = *a;
        *a = *b;
        *b = was;
    }
    assert_false(verify_plan(c.plan, VERIFY_all, false, &c.d));
    arena_free(c.arena);
}

static void recomputation_draws_samples(void **state)
{
    (void)state;
    Case c = sharded();
    c.p->code.at[find(&c, OP_batch, STREAM_compute, PHASE_forward, 1)].phase = PHASE_recompute;
    rejects(&c, "verify-purity", "draw new samples");
}

static void same_micro_batch_twice(void **state)
{
    (void)state;
    Case c = sharded();
    c.p->code.at[find(&c, OP_batch, STREAM_compute, PHASE_forward, 1)].microbatch = 0;
    rejects(&c, "verify-layout", "tokens");
}

/* ---- order ---- */

static void gather_without_wait(void **state)
{
    (void)state;
    Case c = sharded();
    for (Pc pc = 1; pc < c.p->code.n; pc++) {
        const Instr *in = &c.p->code.at[pc];
        if (in->stream != STREAM_compute || !in->after.n) continue;
        if (c.p->code.at[c.p->after.at[in->after.first]].op != OP_all_gather) continue;
        edit(&c, MUTATE_drop_wait, pc, 0);
        break;
    }
    rejects(&c, "verify-race", "neither waits for the other");
}

static void weights_never_gathered(void **state)
{
    (void)state;
    Case c = sharded();
    edit(&c, MUTATE_delete, find(&c, OP_all_gather, STREAM_dp_gather, PHASE_forward, 0), 0);
    rejects(&c, "verify-read-before-write", "reads buffer");
}

static void memory_reused_too_early(void **state)
{
    (void)state;
    Case c = sharded();
    Pc pc = find(&c, OP_attention, STREAM_compute, PHASE_forward, 0);
    BufferId q = program_arg(c.p, &c.p->code.at[pc], 0), k = program_arg(c.p, &c.p->code.at[pc], 1);
    c.p->buffers.at[k].offset = c.p->buffers.at[q].offset;
    assert_false(verify_plan(c.plan, VERIFY_all, false, &c.d));
    arena_free(c.arena);
}

/* ---- structure ---- */

static void beyond_the_arena(void **state)
{
    (void)state;
    Case c = sharded();
    c.p->bytes -= 256;
    rejects(&c, "verify-structure", "lies outside of the arena");
}

static void wait_for_the_future(void **state)
{
    (void)state;
    Case c = sharded();
    Pc pc = 20;
    while (!c.p->code.at[pc].after.n) pc++;
    c.p->after.at[c.p->code.at[pc].after.first] = pc + 1;
    rejects(&c, "verify-structure", "out of range");
}

static void gather_of_the_wrong_size(void **state)
{
    (void)state;
    Case c = sharded();
    Pc pc = find(&c, OP_all_gather, STREAM_dp_gather, PHASE_forward, 0);
    c.p->code.at[pc].axes |= mesh_axes(&c.plan->mesh, AXIS_tp);
    rejects(&c, "verify-structure", "in a group of 4");
}

/* Host memory is reached by copies, one stream each way, and by the host's own stream. */
static void spaces(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.dp_shard = 2, t.microbatches = 2, t.fsdp2.offload = true;
    Case c = tiny(&t);
    c.p->code.at[find(&c, OP_copy, STREAM_copy_in, PHASE_forward, 0)].stream = STREAM_compute;
    rejects(&c, "verify-structure", "copies into the device on stream compute");
    c = tiny(&t);
    c.p->code.at[find(&c, OP_copy, STREAM_copy_out, PHASE_backward, 0)].stream = STREAM_copy_in;
    rejects(&c, "verify-structure", "copies out of the device on stream copy_in");
    c = tiny(&t);
    c.p->code.at[find(&c, OP_adamw, STREAM_host, PHASE_update, 1)].stream = STREAM_compute;
    rejects(&c, "verify-structure", "touches host memory on stream compute");
    c = tiny(&t);
    c.p->code.at[find(&c, OP_silu, STREAM_compute, PHASE_forward, 0)].stream = STREAM_host;
    rejects(&c, "verify-structure", "touches device memory on the host's stream");
    c = tiny(&t);
    Pc pc = find(&c, OP_reduce_scatter, STREAM_dp_reduce, PHASE_backward, 0);
    c.p->buffers.at[program_arg(c.p, &c.p->code.at[pc], 1)].space = SPACE_host;
    rejects(&c, "verify-structure", "host");
}

/* A user's plan is the user's fault. */
static void user_plan(void **state)
{
    (void)state;
    Case c = sharded();
    c.p->code.at[find(&c, OP_batch, STREAM_compute, PHASE_forward, 1)].phase = PHASE_recompute;
    assert_false(verify_plan(c.plan, VERIFY_all, true, &c.d));
    assert_int_equal(diag_exit_code(&c.d), 3);
    assert_non_null(c.d.items.at[0].loc.file);
    Diag none = diag_in(c.arena); /* not asked for: not reported */
    assert_true(verify_plan(c.plan, VERIFY_races | VERIFY_deadlock, true, &none));
    arena_free(c.arena);
}

static bool fits(Case *c, uint64_t device_bytes, uint64_t reserved_bytes)
{
    const Capacity capacity = {device_bytes, reserved_bytes, 0, 0};
    return verify_fit(c->plan, &capacity, &c->d);
}

static void does_not_fit(void **state)
{
    (void)state;
    Case c = sharded();
    assert_true(fits(&c, c.p->bytes + 1000, 1000));
    assert_int_equal(c.d.items.n, 0);
    assert_false(fits(&c, c.p->bytes + 1000, 1001));
    assert_int_equal(diag_exit_code(&c.d), 4);
    assert_string_equal(c.d.items.at[0].rule, "does-not-fit");
    assert_non_null(c.d.items.at[0].hint);
    assert_non_null(strstr(c.d.items.at[0].text, "rank 0"));
    assert_false(fits(&c, 10, 1001));
    arena_free(c.arena);
}

/* The ranks of a node share its memory; the node that needs most is named. */
static void host_does_not_fit(void **state)
{
    (void)state;
    Case c = sharded();
    const uint32_t n = c.plan->mesh.n_ranks;
    assert_true(n >= 2);
    c.p->host_bytes = 100;
    for (uint32_t per_node = 0; per_node <= n; per_node += n / 2) {
        const uint64_t need = 100 * (per_node ? per_node : n);
        Capacity fine = {c.p->bytes, 0, need, per_node},
                 short_ = {c.p->bytes, 0, need - 1, per_node};
        c.d.items.n = c.d.n_errors = 0;
        assert_true(verify_fit(c.plan, &fine, &c.d));
        assert_false(verify_fit(c.plan, &short_, &c.d));
        assert_int_equal(c.d.items.n, 1);
        assert_int_equal(diag_exit_code(&c.d), 4);
        assert_string_equal(c.d.items.at[0].rule, "host-does-not-fit");
        assert_non_null(strstr(c.d.items.at[0].text, "node 0"));
        assert_non_null(strstr(c.d.items.at[0].hint, "dp_shard = "));
    }
    Capacity both = {10, 0, 10, 0}; /* and both are told at once */
    c.d.items.n = c.d.n_errors = 0;
    assert_false(verify_fit(c.plan, &both, &c.d));
    assert_int_equal(c.d.items.n, 2);
    arena_free(c.arena);
}

static Attrs with(Attrs a, double beta1, double beta2, double eps, double weight_decay)
{
    a.beta1 = beta1, a.beta2 = beta2, a.eps = eps, a.weight_decay = weight_decay;
    return a;
}

static void set_all_updates(Case *c, Attrs a)
{
    for (Pc pc = 1; pc < c->p->code.n; pc++)
        if (op_info(c->p->code.at[pc].op)->flags & OP_UPDATES) set_attrs(c, pc, a);
}

/* Rules that no optimizer has, alike everywhere; and another rule for one unit. */
static void optimizers_attributes(void **state)
{
    (void)state;
    const double nan = strtod("nan", NULL), inf = strtod("inf", NULL);
    const struct {
        Attrs a;
        const char *text;
    } rows[] = {
        {with((Attrs){0}, 1.8, 0.9, 1e-8, 0), "not in [0, 1)"},
        {with((Attrs){0}, 0.9, -3, 1e-8, 0), "not in [0, 1)"},
        {with((Attrs){0}, 0.9, 1, 1e-8, 0), "not in [0, 1)"},
        {with((Attrs){0}, nan, 0.9, 1e-8, 0), "not in [0, 1)"},
        {with((Attrs){0}, 0.9, 0.9, -1e-8, 0), "adds an eps"},
        {with((Attrs){0}, 0.9, 0.9, inf, 0), "adds an eps"},
        {with((Attrs){0}, 0.9, 0.9, 1e-8, -0.1), "decays weights"},
        {with((Attrs){0}, 0.9, 0.9, 1e-8, nan), "decays weights"},
        {with((Attrs){.theta = 1e4}, 0.9, 0.9, 1e-8, 0), "another op"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Case c = sharded();
        set_all_updates(&c, rows[i].a);
        rejects(&c, "verify-scale", rows[i].text);
    }
    for (int k = 0; k < 4; k++) {
        Case c = sharded();
        Pc pc = find(&c, OP_adamw, STREAM_compute, PHASE_update, 2);
        Attrs a = attrs_of(&c, pc);
        *(double *[]){&a.beta1, &a.beta2, &a.eps, &a.weight_decay}[k] += 0.01;
        set_attrs(&c, pc, a);
        rejects(&c, "verify-scale", "by another rule than the rest");
    }
    Case c = sharded();
    Pc pc = find(&c, OP_clip_coef, STREAM_compute, PHASE_update, 2);
    Attrs a = attrs_of(&c, pc);
    a.clip = -1;
    set_attrs(&c, pc, a);
    rejects(&c, "verify-scale", "which is no bound");
}

/* Each pipeline rank has its own clip_coef and its own updates: all must be alike. */
static void ranks_of_a_pipeline_disagree(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        Tiny t = tiny_default();
        t.pp = 2, t.microbatches = 2, t.clip = 0.5;
        Case c = tiny(&t);
        assert_int_equal(c.plan->programs.n, 2);
        c.p = &c.plan->programs.at[1];
        for (Pc pc = 1; pc < c.p->code.n; pc++) {
            OpKind op = c.p->code.at[pc].op;
            Attrs a = attrs_of(&c, pc);
            if (op == OP_clip_coef && k == 0) a.clip = 0.25, set_attrs(&c, pc, a);
            if (op == OP_adamw && k == 1) a.beta2 = 0.5, set_attrs(&c, pc, a);
        }
        rejects(&c, "verify-scale", k ? "by another rule" : "clips at 0.25, others at 0.5");
    }
}

static void micro_steps_and_tokens(void **state)
{
    (void)state;
    Case c = sharded();
    StepInfo *s = &c.plan->step;
    const double was = s->global_tokens;
    s->global_tokens = 2 * was; /* of twice the sequences; the loss is scaled for them */
    s->global_batch *= 2, s->micro_batch *= 2;
    for (AttrsId i = 1; i < c.plan->graph.attrs.n; i++) {
        Attrs *a = &c.plan->graph.attrs.at[i];
        if (a->scale == 1 / was)
            a->scale /= 2;
        else if (a->scale == was)
            a->scale *= 2;
    }
    rejects(&c, "verify-scale", "tokens are not the step's");
}

static void good_plans(void **state)
{
    (void)state;
    Case a = sharded(), b = replicated();
    accepts(&a);
    accepts(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_plans),
        cmocka_unit_test(forgotten_norm_gradient_sum),
        cmocka_unit_test(gradients_summed_twice),
        cmocka_unit_test(gradients_never_summed),
        cmocka_unit_test(summed_over_the_wrong_ranks),
        cmocka_unit_test(wrong_weight_of_the_right_shape),
        cmocka_unit_test(maximum_of_sums),
        cmocka_unit_test(loss_divided_per_rank),
        cmocka_unit_test(graph_with_a_wrong_loss_scale),
        cmocka_unit_test(report_that_divides_by_others),
        cmocka_unit_test(accumulation_that_forgets),
        cmocka_unit_test(contribution_that_overwrites),
        cmocka_unit_test(norm_counts_twice),
        cmocka_unit_test(norm_over_replicas),
        cmocka_unit_test(norm_of_one_rank),
        cmocka_unit_test(unit_not_updated),
        cmocka_unit_test(unit_updated_twice),
        cmocka_unit_test(states_exchanged),
        cmocka_unit_test(recomputation_draws_samples),
        cmocka_unit_test(same_micro_batch_twice),
        cmocka_unit_test(gather_without_wait),
        cmocka_unit_test(weights_never_gathered),
        cmocka_unit_test(memory_reused_too_early),
        cmocka_unit_test(beyond_the_arena),
        cmocka_unit_test(wait_for_the_future),
        cmocka_unit_test(gather_of_the_wrong_size),
        cmocka_unit_test(spaces),
        cmocka_unit_test(optimizers_attributes),
        cmocka_unit_test(ranks_of_a_pipeline_disagree),
        cmocka_unit_test(micro_steps_and_tokens),
        cmocka_unit_test(user_plan),
        cmocka_unit_test(does_not_fit),
        cmocka_unit_test(host_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
