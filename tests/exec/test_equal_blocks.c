/* Equal blocks are lowered once and then copied. Such plans must compute the result of one rank,
 * whose blocks were all lowered one by one. They run in fp64 on loopback and are compared per
 * tensor, on every rank. --verify cannot test this: its plans have two layers, and so few blocks
 * are not copied. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "exec/exec.h"
#include "planner/base/str.h"
#include "tests/support/corpus/corpus.h"

#define TOLERANCE 1e-10

enum { LAYERS = 14 }; /* blocks in a stage */

/* Compiles a model. With `every_block`, every block is lowered and none is copied. Sets *n_copied
 * to the number of copied instructions. */
static const Plan *compiled(const Tiny *t, bool every_block, uint32_t *n_copied, Arena *arena,
                            Diag *d)
{
    Config *config = arena_alloc(arena, sizeof *config);
    Graph graph;
    LowerOptions options = lower_options_default();
    options.workspace = kernel_cpu_workspace;
    options.dtypes = dtype_map_all(DT_f64);
    options.unpadded = t->unpadded;
    options.every_block = every_block;
    options.n_copied = n_copied;
    tiny_build(t, arena, config, &graph);
    return plan_compile(config, &graph, &options, NULL, arena, d);
}

static void check(const Tiny *small, uint64_t seed)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Tiny t = *small;
    t.layers = LAYERS * t.pp * (t.pp > 1 ? t.pp_options.chunks : 1);
    const Tiny one = tiny_one_rank(&t);
    uint32_t n_copied = 0, none = 0;
    const Plan *plan = compiled(&t, false, &n_copied, arena, &d);
    const Plan *reference = plan ? compiled(&one, true, &none, arena, &d) : NULL;
    const DataSource *data = data_synthetic(7, t.vocab, 0.1, arena);
    const BackendOptions options = {.order_seed = seed, .poison = true, .timeout_s = 20};
    VerifyResult result = {.n_tensors = 0};
    const bool fine =
        reference && exec_verify(plan, reference, data, &options, TOLERANCE, arena, &result, &d);
    if (!fine || result.highest_touched != result.predicted_bytes) {
        Str s = str_in(arena);
        diag_print(&d, &s);
        fail_msg("%s: touched %llu of %llu\n%.2000s", corpus_name(&t, arena),
                 (unsigned long long)result.highest_touched,
                 (unsigned long long)result.predicted_bytes, str_text(&s));
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->programs.n; i++) n += plan->programs.at[i].code.n;
    print_message("%s: %u of %u instructions are copies, worst difference %g\n",
                  corpus_name(&t, arena), n_copied, n, result.worst_gradient);
    assert_int_equal(none, 0);
    assert_true(n_copied > n / 8);
    assert_true(result.n_tensors > LAYERS);
    assert_true(result.worst_gradient <= TOLERANCE && result.norm_error <= TOLERANCE);
    arena_free(arena);
}

/* A training step that recomputes blocks, with several micro-batches. */
static Tiny step(AcMode ac, uint32_t microbatches)
{
    Tiny t = tiny_default();
    t.ac = ac;
    t.microbatches = microbatches;
    return t;
}

static void blocks_under_fsdp2_may_be_copied(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        Tiny t = step((AcMode)(i % 3), 2 + i % 2);
        t.dp_shard = 2 + i % 3, t.gpt2 = i % 2;
        t.fsdp2.prefetch = i % 4;
        t.fsdp2.reshard_after_forward = i == 4 ? RESHARD_false : RESHARD_true;
        t.fsdp2.defer_grad_sync = i == 5;
        check(&t, i);
    }
}

static void blocks_under_tp_may_be_copied(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        Tiny t = step(i % 2 ? AC_full : AC_selective, 3);
        t.tp = 2, t.dp_shard = 2 + i / 2;
        t.tp_options.sequence = i % 2;
        check(&t, 10 + i);
    }
}

static void blocks_of_stages_may_be_copied(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        Tiny t = step(i % 2 ? AC_none : AC_full, 4);
        t.pp = 2, t.dp_shard = 2, t.tp = i == 1 ? 2 : 1;
        t.pp_options.schedule = i == 2 ? SCHEDULE_zb_h1 : SCHEDULE_1f1b;
        check(&t, 20 + i);
    }
}

static void blocks_under_ddp_and_hsdp_may_be_copied(void **state)
{
    (void)state;
    Tiny t = step(AC_full, 2);
    t.dp_replicate = 2; /* data parallelism by ddp */
    check(&t, 30);
    t.dp_shard = 2; /* hsdp */
    check(&t, 31);
    t = step(AC_full, 2);
    t.cp = 2, t.dp_shard = 2;
    check(&t, 32);
    t = step(AC_selective, 2);
    t.experts = 4, t.top_k = 2, t.ep = 2;
    check(&t, 33);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_under_fsdp2_may_be_copied),
        cmocka_unit_test(blocks_under_tp_may_be_copied),
        cmocka_unit_test(blocks_of_stages_may_be_copied),
        cmocka_unit_test(blocks_under_ddp_and_hsdp_may_be_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
