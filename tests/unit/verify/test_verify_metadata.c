/* A plan also describes itself: sizes of a step, names of axes, lives and categories of buffers,
 * and more. Reports rely on these fields. Each is changed alone in good plans. The proof must
 * report it with its rule and words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/verify/verify.h"
#include "tests/support/spoiled.h"

enum { SHARDED, PIPELINE, REPLICAS, FLOAT8, OFFLOAD, KINDS };

/* Makes a good plan of this kind. c.p is the last stage's program. */
static Spoiled make(int kind)
{
    Tiny t = tiny_default();
    t.microbatches = 4, t.tp = 2;
    t.compute = DT_bf16;
    t.tp_options.sequence = true;
    t.dp_shard = kind == REPLICAS ? 1 : 2;
    t.dp_replicate = kind == SHARDED || kind == REPLICAS ? 2 : 1;
    t.pp = kind == PIPELINE ? 2 : 1;
    t.use_float8 = kind == FLOAT8;
    t.fsdp2.offload = kind == OFFLOAD;
    Spoiled c = spoiled_of(&t, false);
    assert_true(verify_plan(c.plan, VERIFY_all, false, &c.d));
    c.p = &c.plan->programs.at[c.plan->programs.n - 1];
    return c;
}

static void tells(Spoiled *s, const char *words)
{
    spoiled_rejected(s, "verify-metadata", words);
}

static void wrong_sizes_of_a_step_are_reported(void **state)
{
    (void)state;
    Spoiled c = make(SHARDED); /* twice the sequences, half as long: the same number of tokens */
    c.plan->step.micro_batch *= 2, c.plan->step.global_batch *= 2, c.plan->step.seq /= 2;
    tells(&c, "tokens in a micro-batch, but `step` states");
    /* Without a batch size, the step has one more micro-batch than the program. */
    c = make(SHARDED);
    c.plan->step.micro_batch = 0;
    c.plan->step.n_microbatches++;
    tells(&c, "the instructions belong to 4 micro-batches, but `step` states 5");
}

static void wrong_names_of_axes_are_reported(void **state)
{
    (void)state;
    Spoiled c = make(SHARDED);
    c.plan->mesh.axis[0].text = "dp";
    tells(&c, "has a name that belongs to another kind of axis");
    c = make(SHARDED);
    Mesh *m = &c.plan->mesh;
    for (uint32_t a = 0; a < m->n_axes; a++)
        if (m->axis[a].name == AXIS_tp) m->axis[a].name = AXIS_cp, m->axis[a].text = "cp";
    tells(&c, "has the same tokens on all its ranks");
    c = make(SHARDED);
    m = &c.plan->mesh;
    for (uint32_t a = 0; a < m->n_axes; a++)
        if (m->axis[a].name == AXIS_tp) m->axis[a].name = AXIS_dp_replicate;
    tells(&c, "has the same samples on all its ranks");
    static const struct {
        int kind;
        AxisName from, to;
        const char *words;
    } changes[] = {
        {SHARDED, AXIS_dp_shard, AXIS_dp_replicate, "has shards of units on its ranks"},
        {SHARDED, AXIS_dp_replicate, AXIS_dp_shard, "has no shards on its ranks"},
        {REPLICAS, AXIS_dp_replicate, AXIS_tp, "has gradients that are summed over its ranks"},
        {PIPELINE, AXIS_pp, AXIS_tp, "has different stages on its ranks"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        c = make(changes[i].kind);
        m = &c.plan->mesh;
        for (uint32_t a = 0; a < m->n_axes; a++)
            if (m->axis[a].name == changes[i].from) m->axis[a].name = changes[i].to;
        tells(&c, changes[i].words);
    }
}

/* If the caller does not request the proof of metadata, wrong metadata is accepted. */
static void only_requested_proofs_report(void **state)
{
    (void)state;
    Spoiled c = make(SHARDED);
    c.plan->graph.units.at[1].elements += 1;
    assert_false(verify_plan(c.plan, VERIFY_metadata, false, &c.d));
    Diag d = diag_in(c.arena);
    assert_true(verify_plan(c.plan, VERIFY_deadlock, false, &d));
    assert_int_equal(d.n_errors, 0);
    arena_free(c.arena);
}

static void wrong_lengths_of_units_are_reported(void **state)
{
    (void)state;
    for (int by = -1; by <= 1; by += 2) {
        Spoiled c = make(SHARDED);
        c.plan->graph.units.at[1].elements += (uint64_t)by;
        tells(&c, "elements, but its parameters end at");
    }
}

/* Memory curves depend on these fields. So do the bytes that stay inside a kernel of several
 * ops. */
static void wrong_lives_of_buffers_are_reported(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        Spoiled c = make(kind);
        BufferId b = 1;
        while (c.p->buffers.at[b].first == c.p->buffers.at[b].last) b++;
        c.p->buffers.at[b].last = 0;
        tells(&c, "is used from instruction");
        c = make(kind);
        c.p->buffers.at[b].first++;
        tells(&c, "is used from instruction");
    }
}

/* Gives each communication of each program another micro-batch: two further on, or two back. */
static void wrong_micro_batches_of_communications_are_reported(void **state)
{
    (void)state;
    for (int kind = SHARDED; kind <= PIPELINE; kind++) {
        Spoiled c = make(kind);
        uint32_t n = 0, n_told = 0;
        for (Pc pc = 1; pc < c.p->code.n; pc++) {
            Instr *in = &c.p->code.at[pc];
            if (op_info(in->op)->class_ != OP_CLASS_comm) continue;
            const uint32_t was = in->microbatch;
            in->microbatch = (was + 2) % 4;
            n++;
            n_told += !verify_plan(c.plan, VERIFY_metadata, false, &c.d);
            in->microbatch = was;
        }
        assert_true(n > 40);
        assert_int_equal(n_told, n);
        arena_free(c.arena);
    }
}

/* The buffer of a node's first output names the tensor that the node makes. Another name must be
 * reported. */
static void wrong_tensors_of_first_outputs_are_reported(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        Spoiled c = make(kind);
        uint32_t n = 0, n_told = 0;
        for (Pc pc = 1; pc < c.p->code.n; pc += 1 + c.p->code.n / 200) {
            const Instr *in = &c.p->code.at[pc];
            if (!in->origin || in->args.n <= in->n_in) continue;
            const Node *node = &c.plan->graph.nodes.at[in->origin];
            Buffer *at = &c.p->buffers.at[program_arg(c.p, in, in->n_in)];
            if (node->op != in->op || at->first != pc || at->parent || at->tensor != node->out[0])
                continue;
            const TensorId was = at->tensor;
            at->tensor = was == 1 ? 2 : 1;
            n++;
            Diag d = diag_in(c.arena);
            n_told += !verify_plan(c.plan, VERIFY_metadata, false, &d);
            at->tensor = was;
        }
        assert_true(n > 10);
        assert_int_equal(n_told, n);
        arena_free(c.arena);
    }
}

/* Gives each root buffer that the program uses every other category. A proof must report it. Only
 * buffers made between two layouts, or for a unit, may have several categories (activation,
 * communication, gradient). */
static void wrong_categories_of_buffers_are_reported(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        Spoiled c = make(kind);
        uint32_t n = 0, n_open = 0;
        for (BufferId b = 1; b < c.p->buffers.n; b += 1 + c.p->buffers.n / 150) {
            Buffer *at = &c.p->buffers.at[b];
            if (!at->first) continue;
            const Category was = at->category;
            for (int k = 0; k < CATEGORY_COUNT; k++) {
                if ((Category)k == was) continue;
                at->category = (Category)k;
                c.d.items.n = c.d.n_errors = 0;
                n++;
                n_open += verify_plan(c.plan, VERIFY_structure | VERIFY_metadata, false, &c.d);
            }
            at->category = was;
        }
        print_message("kind %d: %u of %u changes of a category are not told\n", kind, n_open, n);
        assert_true(n_open * 10 < n);
        arena_free(c.arena);
    }
}

/* Returns the last program's last instruction with this op. */
static Pc last_of(const Spoiled *c, OpKind op)
{
    for (Pc pc = c->p->code.n - 1; pc > 0; pc--)
        if (c->p->code.at[pc].op == op) return pc;
    fail_msg("no %s", op_info(op)->name);
    return 0;
}

/* One optimizer updates all parameters of all programs, and one bound clips all gradients. An
 * update with other settings must be reported. */
static void unequal_settings_of_updates_are_reported(void **state)
{
    (void)state;
    for (int kind = 0; kind <= PIPELINE; kind++) {
        for (int k = 0; k < 5; k++) {
            Spoiled c = make(kind);
            const Pc pc = last_of(&c, OP_adamw);
            Attrs a = spoiled_attrs(&c, pc);
            double *const at[] = {&a.eps, &a.beta1, &a.beta2, &a.weight_decay};
            if (k < 4)
                *at[k] = *at[k] * .5 + .01;
            else
                a.stochastic = !a.stochastic;
            spoil_attrs(&c, pc, a);
            tells(&c, "has other settings than the first update");
        }
        Spoiled c = make(kind);
        const Pc pc = last_of(&c, OP_adamw);
        Attrs a = spoiled_attrs(&c, pc);
        a.eps = 0;
        spoil_attrs(&c, pc, a);
        tells(&c, "has eps=0, but eps must be above 0");
    }
}

/* Sets an attribute that the op lacks, in the last of several nodes with this op. All its
 * instructions have it, too, so that no comparison shows a difference. */
static void attributes_that_an_op_lacks_are_reported(void **state)
{
    (void)state;
    Spoiled c = make(SHARDED);
    Graph *g = &c.plan->graph;
    NodeId last = 0;
    uint32_t n = 0;
    for (NodeId id = 1; id < g->nodes.n; id++)
        if (g->nodes.at[id].op == OP_mul) last = id, n++;
    assert_true(n >= 2);
    Attrs a = *graph_attrs_at(g, g->nodes.at[last].attrs);
    a.eps = .5;
    g->nodes.at[last].attrs = (AttrsId)list_push(c.arena, &g->attrs, a);
    for (Pc pc = 1; pc < c.p->code.n; pc++) {
        if (c.p->code.at[pc].origin != last || c.p->code.at[pc].op != OP_mul) continue;
        a = spoiled_attrs(&c, pc);
        a.eps = .5;
        spoil_attrs(&c, pc, a);
    }
    spoiled_rejected(&c, "verify-structure", "eps");
}

/* Two linears may have the same input, so both need its 8-bit form. But only one of them is its
 * forward node. */
static void wrong_forward_nodes_are_reported(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        Tiny t = tiny_default();
        t.spectral = kind == 0;
        t.use_float8 = kind == 1, t.float8.recipe = FLOAT8_rowwise;
        Spoiled c = spoiled_of(&t, false);
        Graph *g = &c.plan->graph;
        for (NodeId id = g->n_forward + 1; id < g->nodes.n; id++) {
            Node *n = &g->nodes.at[id];
            const NodeId own = n->forward;
            for (NodeId of = 1; of <= g->n_forward; of++) {
                if (of == own || g->nodes.at[of].op != g->nodes.at[own].op) continue;
                Diag d = diag_in(c.plan->arena);
                n->forward = of;
                if (verify_plan(c.plan, VERIFY_metadata, true, &d))
                    fail_msg("node %u (%s) may state %u instead of %u", id, op_info(n->op)->name,
                             of, own);
            }
            n->forward = own;
        }
        spoiled_accepted(&c);
    }
}

/* Under tp with sequence parallelism, the gradients of two linears share an 8-bit form. Each has a
 * separate transposed form, made from the shared one. */
static void gradients_that_share_an_8_bit_form_are_accepted(void **state)
{
    (void)state;
    for (uint32_t layers = 1; layers <= 2; layers++) {
        Tiny t = tiny_default();
        t.layers = layers, t.tp = 2, t.tp_options.sequence = true,
        t.tp_options.loss_parallel = true;
        t.dim = 14, t.groups = 1, t.repeat = 4, t.vocab = 30, t.tp_options.share_gathers = true;
        t.use_float8 = true, t.float8.recipe = FLOAT8_rowwise;
        Spoiled c = spoiled_of(&t, false);
        spoiled_accepted(&c);
    }
}

/* A copy computes the same as a pass that adds nothing, so only one of these ops is allowed. */
static void copies_called_pass_are_reported(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.dp_shard = 2, t.fsdp2.copy = true;
    Spoiled c = spoiled_of(&t, false);
    Pc pc = 1;
    while (c.plan->programs.at[0].code.at[pc].op != OP_copy) pc++;
    c.plan->programs.at[0].code.at[pc].op = OP_pass;
    tells(&c, "its op must be copy");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_forward_nodes_are_reported),
        cmocka_unit_test(gradients_that_share_an_8_bit_form_are_accepted),
        cmocka_unit_test(copies_called_pass_are_reported),
        cmocka_unit_test(wrong_sizes_of_a_step_are_reported),
        cmocka_unit_test(wrong_names_of_axes_are_reported),
        cmocka_unit_test(only_requested_proofs_report),
        cmocka_unit_test(wrong_lengths_of_units_are_reported),
        cmocka_unit_test(wrong_lives_of_buffers_are_reported),
        cmocka_unit_test(wrong_micro_batches_of_communications_are_reported),
        cmocka_unit_test(wrong_tensors_of_first_outputs_are_reported),
        cmocka_unit_test(wrong_categories_of_buffers_are_reported),
        cmocka_unit_test(unequal_settings_of_updates_are_reported),
        cmocka_unit_test(attributes_that_an_op_lacks_are_reported),
    };
    return cmocka_run_group_tests_name("verify metadata", tests, NULL, NULL);
}
