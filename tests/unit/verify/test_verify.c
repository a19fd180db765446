/* Plants classic silent bugs in good plans, one at a time: wrong layouts, buffers that live too
 * short, and repeated work. The named proof must report each, with the expected message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/verify/verify.h"
#include "tests/support/spoiled.h"

static void good_plans_are_accepted(void **state)
{
    (void)state;
    Spoiled a = spoiled_sharded(), b = spoiled_replicated();
    spoiled_accepted(&a);
    spoiled_accepted(&b);
}

/* A fault in a plan that a user wrote is reported as the user's mistake, at a line of the script,
 * not as a fault of the planner. */
static void a_fault_in_a_users_plan_is_the_users(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
    c.p->code.at[spoiled_find(&c, OP_batch, STREAM_compute, PHASE_forward, 1)].phase =
        PHASE_recompute;
    assert_false(verify_plan(c.plan, VERIFY_all, true, &c.d));
    assert_int_equal(diag_exit_code(&c.d), 3);
    assert_non_null(c.d.items.at[0].loc.file);
    Diag none = diag_in(c.arena); /* other proofs do not report it */
    assert_true(verify_plan(c.plan, VERIFY_races | VERIFY_deadlock, true, &none));
    arena_free(c.arena);
}

/* ---- layouts ---- */

/* Under sequence parallelism, the sum over tp of gradients of norm weights is missing. */
static void a_forgotten_sum_of_norm_gradients_is_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
    spoil(&c, MUTATE_delete, spoiled_find(&c, OP_all_reduce, STREAM_tp, PHASE_backward, 0), 0);
    spoiled_rejected(&c, "verify-layout", "a partial value on tp");
}

static void gradients_summed_twice_are_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_replicated();
    spoil(&c, MUTATE_duplicate,
          spoiled_find(&c, OP_all_reduce, STREAM_dp_replicate, PHASE_backward, 2), 0);
    spoiled_rejected(&c, "verify-layout", "{dp_replicate:sum}, holds another value");
}

static void gradients_never_summed_are_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_replicated();
    spoil(&c, MUTATE_delete,
          spoiled_find(&c, OP_all_reduce, STREAM_dp_replicate, PHASE_backward, 2), 0);
    spoiled_rejected(&c, "verify-layout", "a partial value on dp_");
}

static void a_sum_over_the_wrong_ranks_is_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_replicated();
    Pc pc = spoiled_find(&c, OP_all_reduce, STREAM_dp_replicate, PHASE_backward, 2);
    c.p->code.at[pc].axes = mesh_axes(&c.plan->mesh, AXIS_tp);
    spoiled_rejected(&c, "verify-layout", "reduces a tensor that is no partial sum on its group");
}

/* The shape is right, but the tensor is wrong: the view of one weight is moved to a neighbouring
 * weight. */
static void a_wrong_weight_of_the_right_shape_is_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
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
    spoiled_rejected(&c, "verify-layout", "should be layers.0.");
}

static void a_maximum_instead_of_a_sum_is_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
    spoil(&c, MUTATE_reduce,
          spoiled_find(&c, OP_reduce_scatter, STREAM_dp_reduce, PHASE_backward, 1), 0);
    spoiled_rejected(&c, "verify-layout", "must sum");
}

/* ---- coverage, purity ---- */

static Pc last_of(const Spoiled *c, OpKind op)
{
    for (Pc pc = (Pc)c->p->code.n; pc-- > 1;)
        if (c->p->code.at[pc].op == op) return pc;
    return 0;
}

/* The parameters of a unit lie one after the other, inside the unit. */
static void parameters_outside_their_unit_are_rejected(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        Spoiled c = spoiled_sharded();
        const Unit *unit = &c.plan->graph.units.at[1];
        const TensorId last = unit->params.at[unit->params.n - 1];
        assert_true(unit->params.n > 1);
        uint64_t *offset = &c.plan->graph.tensors.at[last].flat_offset;
        *offset = k == 0 ? *offset - 1 : unit->elements;
        spoiled_rejected(&c, "verify-coverage",
                         k == 0 ? "with the parameter before it" : "does not fit into unit");
    }
}

/* Each number of a unit is set beyond its bound, one at a time. */
static void numbers_of_units_out_of_range_are_rejected(void **state)
{
    (void)state;
    for (int k = 0; k < 6; k++) {
        Spoiled c = spoiled_sharded();
        Unit *unit = &c.plan->graph.units.at[1];
        const AxisSet beyond = (AxisSet)(1u << c.plan->mesh.n_axes);
        assert_true(unit->shard && !unit->replicate);
        switch (k) {
        case 0: unit->shard |= beyond; break;
        case 1: unit->replicate |= beyond; break;
        case 2: unit->replicate |= unit->shard; break;
        case 3: unit->padded = UINT64_MAX - 1; break;
        case 4: unit->padded++; break;
        default: unit->elements = unit->padded + 1; break;
        }
        spoiled_rejected(&c, "verify-structure", "has axes or sizes out of range");
    }
}

static void a_unit_without_update_is_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
    assert_int_equal(last_of(&c, OP_adamw), c.p->code.n - 1);
    c.p->code.n--;
    spoiled_rejected(&c, "verify-coverage", "is not updated");
}

static void a_unit_updated_twice_is_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
    Instr again = c.p->code.at[last_of(&c, OP_adamw)];
    again.after.n = 0;
    list_push(c.arena, &c.p->code, again);
    spoiled_rejected(&c, "verify-coverage", "is not a trained parameter");
}

static void exchanged_optimizer_states_are_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
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

static void recomputation_that_draws_samples_is_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
    c.p->code.at[spoiled_find(&c, OP_batch, STREAM_compute, PHASE_forward, 1)].phase =
        PHASE_recompute;
    spoiled_rejected(&c, "verify-purity", "draw new samples");
}

static void a_micro_batch_used_twice_is_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
    c.p->code.at[spoiled_find(&c, OP_batch, STREAM_compute, PHASE_forward, 1)].microbatch = 0;
    spoiled_rejected(&c, "verify-layout", "tokens");
}

/* Only the op pack may mark its output as packed. Without a report, the proofs would no longer look
 * at the values of such an output. */
static void an_output_wrongly_marked_as_packed_is_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
    const Instr *silu = &c.p->code.at[spoiled_find(&c, OP_silu, STREAM_compute, PHASE_forward, 0)];
    c.p->buffers.at[program_arg(c.p, silu, 1)].packed = true;
    spoiled_rejected(&c, "verify-layout", "output 0 is marked as packed");
}

/* The gradients of two parameters with equally many elements but different shapes have exchanged
 * their places in the unit. */
static void gradients_in_exchanged_places_are_rejected(void **state)
{
    (void)state;
    const Tiny t = tiny_default();
    Spoiled c = spoiled_of(&t, false);
    Buffer *first = c.p->buffers.at, *end = first + c.p->buffers.n, *other = end;
    for (first++; first < end; first++) {
        if (!first->parent || c.p->buffers.at[first->parent].category != CATEGORY_gradient)
            continue;
        for (other = first + 1; other < end; other++)
            if (other->parent == first->parent && other->bytes == first->bytes &&
                other->shape != first->shape)
                break;
        if (other < end) break;
    }
    assert_true(first < end);
    const uint64_t was = first->offset;
    first->offset = other->offset, other->offset = was;
    spoiled_rejected(&c, "verify-layout", "does not have the layout of its parameter");
}

/* ---- order ---- */

/* The report names the micro-batch of the value that is there, and of the value that should be
 * there. */
static void a_value_of_another_micro_batch_is_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
    Instr *silu = &c.p->code.at[spoiled_find(&c, OP_silu, STREAM_compute, PHASE_forward, 1)];
    const Graph *g = &c.plan->graph;
    const char *name = g->tensors.at[g->nodes.at[silu->origin].in[0]].name;
    silu->microbatch = 0;
    spoiled_rejected(
        &c, "verify-layout",
        arena_print(c.arena, "input 0 should be %s of micro-batch 0, but is %s of micro-batch 1",
                    name, name));
}

static void a_missing_wait_for_a_gather_is_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
    for (Pc pc = 1; pc < c.p->code.n; pc++) {
        const Instr *in = &c.p->code.at[pc];
        if (in->stream != STREAM_compute || !in->after.n) continue;
        if (c.p->code.at[c.p->after.at[in->after.first]].op != OP_all_gather) continue;
        spoil(&c, MUTATE_drop_wait, pc, 0);
        break;
    }
    spoiled_rejected(&c, "verify-race", "neither waits for the other");
}

static void weights_never_gathered_are_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
    spoil(&c, MUTATE_delete, spoiled_find(&c, OP_all_gather, STREAM_dp_gather, PHASE_forward, 0),
          0);
    spoiled_rejected(&c, "verify-read-before-write", "that no instruction wrote");
}

static void memory_reused_too_early_is_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
    Pc pc = spoiled_find(&c, OP_attention, STREAM_compute, PHASE_forward, 0);
    BufferId q = program_arg(c.p, &c.p->code.at[pc], 0), k = program_arg(c.p, &c.p->code.at[pc], 1);
    c.p->buffers.at[k].offset = c.p->buffers.at[q].offset;
    spoiled_rejected(&c, "verify-race", "but some of its bytes already belong to buffer");
}

/* ---- structure ---- */

static void a_buffer_beyond_the_arena_is_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
    c.p->bytes -= 256;
    spoiled_rejected(&c, "verify-structure", "does not fit into the arena");
}

static void a_wait_for_a_later_instruction_is_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
    Pc pc = 20;
    while (!c.p->code.at[pc].after.n) pc++;
    c.p->after.at[c.p->code.at[pc].after.first] = pc + 1;
    spoiled_rejected(&c, "verify-structure", "out of range");
}

/* Each instruction, one at a time, loses its last argument, which is an output. */
static void an_instruction_without_its_output_is_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
    for (Pc pc = 1; pc < c.p->code.n; pc++) {
        Instr *in = &c.p->code.at[pc];
        const uint32_t n = in->args.n, n_out = op_info(in->op)->sig.n_out;
        in->args.n = in->n_in + (n_out > 0 ? n_out - 1 : 0);
        c.d = diag_in(c.arena);
        if (in->args.n < n && verify_plan(c.plan, VERIFY_structure, false, &c.d))
            fail_msg("instruction %u, %s, is accepted without its output", pc,
                     op_info(in->op)->name);
        in->args.n = n;
    }
    spoiled_accepted(&c);
}

static void a_gather_of_the_wrong_size_is_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
    Pc pc = spoiled_find(&c, OP_all_gather, STREAM_dp_gather, PHASE_forward, 0);
    c.p->code.at[pc].axes |= mesh_axes(&c.plan->mesh, AXIS_tp);
    spoiled_rejected(&c, "verify-structure", "a group of 4 ranks");
}

/* Only copies (one stream for each direction) and the host's stream may access host memory. */
static void host_memory_on_other_streams_is_rejected(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.dp_shard = 2, t.microbatches = 2, t.fsdp2.offload = true;
    Spoiled c = spoiled_of(&t, false);
    c.p->code.at[spoiled_find(&c, OP_copy, STREAM_copy_in, PHASE_forward, 0)].stream =
        STREAM_compute;
    spoiled_rejected(&c, "verify-structure", "copies into the device on stream compute");
    c = spoiled_of(&t, false);
    c.p->code.at[spoiled_find(&c, OP_copy, STREAM_copy_out, PHASE_backward, 0)].stream =
        STREAM_copy_in;
    spoiled_rejected(&c, "verify-structure", "copies out of the device on stream copy_in");
    c = spoiled_of(&t, false);
    c.p->code.at[spoiled_find(&c, OP_adamw, STREAM_host, PHASE_update, 1)].stream = STREAM_compute;
    spoiled_rejected(&c, "verify-structure", "uses host memory on stream compute");
    c = spoiled_of(&t, false);
    c.p->code.at[spoiled_find(&c, OP_silu, STREAM_compute, PHASE_forward, 0)].stream = STREAM_host;
    spoiled_rejected(&c, "verify-structure", "uses device memory on the host's stream");
    c = spoiled_of(&t, false);
    Pc pc = spoiled_find(&c, OP_reduce_scatter, STREAM_dp_reduce, PHASE_backward, 0);
    c.p->buffers.at[program_arg(c.p, &c.p->code.at[pc], 1)].space = SPACE_host;
    spoiled_rejected(&c, "verify-structure", "host");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_plans_are_accepted),
        cmocka_unit_test(a_fault_in_a_users_plan_is_the_users),
        cmocka_unit_test(a_forgotten_sum_of_norm_gradients_is_rejected),
        cmocka_unit_test(gradients_summed_twice_are_rejected),
        cmocka_unit_test(gradients_never_summed_are_rejected),
        cmocka_unit_test(a_sum_over_the_wrong_ranks_is_rejected),
        cmocka_unit_test(a_wrong_weight_of_the_right_shape_is_rejected),
        cmocka_unit_test(a_maximum_instead_of_a_sum_is_rejected),
        cmocka_unit_test(parameters_outside_their_unit_are_rejected),
        cmocka_unit_test(numbers_of_units_out_of_range_are_rejected),
        cmocka_unit_test(a_unit_without_update_is_rejected),
        cmocka_unit_test(a_unit_updated_twice_is_rejected),
        cmocka_unit_test(exchanged_optimizer_states_are_rejected),
        cmocka_unit_test(recomputation_that_draws_samples_is_rejected),
        cmocka_unit_test(a_micro_batch_used_twice_is_rejected),
        cmocka_unit_test(an_output_wrongly_marked_as_packed_is_rejected),
        cmocka_unit_test(gradients_in_exchanged_places_are_rejected),
        cmocka_unit_test(a_value_of_another_micro_batch_is_rejected),
        cmocka_unit_test(a_missing_wait_for_a_gather_is_rejected),
        cmocka_unit_test(weights_never_gathered_are_rejected),
        cmocka_unit_test(memory_reused_too_early_is_rejected),
        cmocka_unit_test(a_buffer_beyond_the_arena_is_rejected),
        cmocka_unit_test(a_wait_for_a_later_instruction_is_rejected),
        cmocka_unit_test(an_instruction_without_its_output_is_rejected),
        cmocka_unit_test(a_gather_of_the_wrong_size_is_rejected),
        cmocka_unit_test(host_memory_on_other_streams_is_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
