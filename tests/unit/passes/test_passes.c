/* Tensor and sequence parallelism: the collectives and their bytes equal Megatron's closed forms,
 * also with recomputation. Orders and sizes that do not work are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/front/pass_spec.h"
#include "tests/support/compiled.h"

/* With sequence parallelism, a layer has 6 all_gathers and 4 reduce_scatters (4 and 4 if the
 * gathered input is kept). The embedding has a reduce_scatter, and an all_gather in the backward
 * pass. The head has an all_gather, again in the backward pass unless it is kept, and a
 * reduce_scatter in the backward pass. Each one moves micro x seq x dim. */
static void sequence_parallelism_has_megatrons_collectives(void **state)
{
    (void)state;
    for (uint32_t tp = 2; tp <= 4; tp += 2)
        for (int keep = 0; keep <= 1; keep++)
            for (uint32_t L = 1; L <= 3; L++) {
                Tiny t = tiny_default();
                t.tp = tp, t.layers = L, t.microbatches = 3, t.micro = 2;
                t.tp_options.keep_gathered = keep;
                const Plan *plan = compile(&t);
                uint32_t gathers = keep ? 4 * L + 2 : 6 * L + 3, scatters = 4 * L + 2;
                CommCount g = comm_count(plan, OP_all_gather, AXIS_tp),
                          s = comm_count(plan, OP_reduce_scatter, AXIS_tp);
                uint64_t bytes = (uint64_t)(t.micro * t.seq * t.dim) * 4;
                assert_int_equal(g.n, 3 * gathers);
                assert_int_equal(s.n, 3 * scatters);
                assert_int_equal(g.bytes, 3 * gathers * bytes);
                assert_int_equal(s.bytes, 3 * scatters * bytes);
                /* Each micro-batch reduces three numbers of the loss: maximum, picked logit and sum
                 * of exponentials. The partial gradients of norm weights are summed once. */
                assert_int_equal(comm_count(plan, OP_all_reduce, AXIS_tp).n, 3 * 3 + 1);
            }
}

static void plain_tensor_parallelism_has_megatrons_collectives(void **state)
{
    (void)state;
    for (uint32_t L = 1; L <= 3; L++) {
        Tiny t = tiny_default();
        t.tp = 2, t.layers = L;
        t.tp_options.sequence = false;
        const Plan *plan = compile(&t);
        assert_int_equal(comm_count(plan, OP_all_gather, AXIS_tp).n, 0);
        assert_int_equal(comm_count(plan, OP_reduce_scatter, AXIS_tp).n, 0);
        /* Each layer sums the outputs of o and down, and the gradients of the inputs of qkv and
         * gate-up. The embedding is summed forward and the head backward. The loss has three
         * sums. */
        assert_int_equal(comm_count(plan, OP_all_reduce, AXIS_tp).n, 4 * L + 2 + 3);
    }
}

/* Full recomputation repeats both gathers and the scatter of o, but not the scatter of down. The
 * gradients of weights read the outputs of the repeated gathers. */
static void full_recomputation_repeats_its_collectives(void **state)
{
    (void)state;
    for (uint32_t L = 1; L <= 3; L++) {
        Tiny t = tiny_default();
        t.tp = 2, t.layers = L, t.ac = AC_full;
        const Plan *plan = compile(&t);
        assert_int_equal(comm_count(plan, OP_all_gather, AXIS_tp).n, 6 * L + 3);
        assert_int_equal(comm_count(plan, OP_reduce_scatter, AXIS_tp).n, 5 * L + 2);
    }
}

/* KempnerForge's DTensor plan gathers separately for q, k, v, gate and up: 7 gathers and 7 scatters
 * a layer. */
static void unshared_gathers_are_made_for_each_linear(void **state)
{
    (void)state;
    for (uint32_t L = 1; L <= 2; L++) {
        Tiny t = tiny_default();
        t.tp = 2, t.layers = L;
        t.tp_options.share_gathers = false, t.tp_options.keep_gathered = true;
        const Plan *plan = compile(&t);
        assert_int_equal(comm_count(plan, OP_all_gather, AXIS_tp).n, 7 * L + 2);
        assert_int_equal(comm_count(plan, OP_reduce_scatter, AXIS_tp).n, 7 * L + 2);
    }
}

static void fsdp_first(Config *c)
{
    PassConfig tp = c->passes[0];
    c->passes[0] = c->passes[1], c->passes[1] = tp;
}

static void no_passes(Config *c)
{
    c->n_passes = 0;
}

static void tp_twice(Config *c)
{
    c->passes[c->n_passes++] = c->passes[0];
}

static void with_cp(Config *c)
{
    c->axis_size[AXIS_cp] = 2;
}

static void orders_and_sizes_that_do_not_work_are_refused(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.tp = 2, t.dp_shard = 2;
    const Diagnostic *d = compile_refused(&t, fsdp_first);
    assert_string_equal(d->rule, "pass-order");
    assert_non_null(strstr(d->text, "wrong part"));
    assert_non_null(strstr(d->hint, "tp{...}, fsdp2{...}"));
    assert_string_equal(compile_refused(&t, tp_twice)->rule, "pass-twice");
    assert_string_equal(compile_refused(&t, no_passes)->rule, "axis-unused");
    /* The errors are about tp and about dp_shard. */
    assert_int_equal(compile_diag()->n_errors, 2);
    assert_string_equal(compile_refused(&t, with_cp)->rule, "axis-unused");
    t = tiny_default();
    t.groups = 25, t.seq = 50, t.hidden = 100, t.tp = 2;
    d = compile_refused(&t, NULL);
    assert_string_equal(d->rule, "divides-heads");
    assert_non_null(strstr(d->text, "heads = 25 cannot be split evenly over tp = 2"));
    assert_non_null(strstr(d->hint, "1, 5, 25"));
    t = tiny_default();
    t.seq = 9, t.tp = 2;
    assert_string_equal(compile_refused(&t, NULL)->rule, "divides-seq");
    t = tiny_default();
    t.dp_shard = 6, t.fsdp2.reshard_after_forward = RESHARD_to, t.fsdp2.reshard_to = 4;
    d = compile_refused(&t, NULL);
    assert_string_equal(d->rule, "reshard-divides");
    assert_non_null(strstr(d->hint, "2, 3"));
}

static void print_options(const PassConfig *pass, Str *out)
{
    str_print(out, "pass(%g MiB)", pass->ddp.bucket_mib);
}

/* A pass without options needs no function that prints options. */
static void a_pass_is_printed_by_name(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Str out = str_in(arena);
    const PassConfig config = {.ddp.bucket_mib = 25};
    pass_print(&(PassSpec){.name = "pass"}, &config, &out);
    str_add(&out, ", ");
    pass_print(&(PassSpec){.name = "pass", .print = print_options}, &config, &out);
    assert_string_equal(str_text(&out), "pass, pass(25 MiB)");
    arena_free(arena);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, compile_setup, compile_teardown)
    const struct CMUnitTest tests[] = {TEST(sequence_parallelism_has_megatrons_collectives),
                                       TEST(plain_tensor_parallelism_has_megatrons_collectives),
                                       TEST(full_recomputation_repeats_its_collectives),
                                       TEST(unshared_gathers_are_made_for_each_linear),
                                       TEST(orders_and_sizes_that_do_not_work_are_refused),
                                       cmocka_unit_test(a_pass_is_printed_by_name)};
    return cmocka_run_group_tests_name("passes", tests, NULL, NULL);
}
