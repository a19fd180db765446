/* Any legal plan computes the result of one rank. Tries every mesh of data and tensor parallelism
 * up to 8 ranks, with and without sequence parallelism, all kinds of activation checkpointing, one
 * and three micro-batches, and odd sizes. Results are compared in fp64 on loopback, per tensor, on
 * every rank. The highest byte written in the poisoned arena must be the last planned byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "exec/exec.h"
#include "tests/support/plans/tiny.h"
#include "tests/support/sample.h"

#define TOLERANCE 1e-10

/* The seed also decides the interleaving, so it is printed with a failure. */
static void check(const Tiny *t, uint64_t seed)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Tiny one = tiny_one_rank(t);
    const Plan *plan = tiny_plan(t, true, arena, &d);
    const Plan *reference = plan ? tiny_plan(&one, true, arena, &d) : NULL;
    const DataSource *data = data_synthetic(7, t->vocab, 0.1, arena);
    BackendOptions options = {.order_seed = seed};
    VerifyResult result = {.n_tensors = 0};
    bool fine =
        reference && exec_verify(plan, reference, data, &options, TOLERANCE, arena, &result, &d);
    if (!fine || result.highest_touched != result.predicted_bytes) {
        Str s = str_in(arena);
        diag_print(&d, &s);
        print_error("%s dp_shard %u dp_replicate %u tp %u seq %d ac %d micro-batches %u layers %u "
                    "order seed %llu: touched %llu of %llu\n%s",
                    t->gpt2 ? "gpt2" : "llama", t->dp_shard, t->dp_replicate, t->tp,
                    t->tp_options.sequence, (int)t->ac, t->microbatches, t->layers,
                    (unsigned long long)seed, (unsigned long long)result.highest_touched,
                    (unsigned long long)result.predicted_bytes, str_text(&s));
        fail();
    }
    assert_true(result.n_tensors > 10);
    assert_true(result.worst_gradient <= TOLERANCE && result.norm_error <= TOLERANCE);
    arena_free(arena);
}

static Tiny sizes(bool gpt2)
{
    Tiny t = tiny_default();
    t.gpt2 = gpt2;
    t.groups = 8;
    t.head_dim = 2;
    t.dim = 15;
    t.hidden = 24;
    t.vocab = 37;
    return t;
}

static void each(bool gpt2, bool shard)
{
    uint64_t seed = 1;
    for (uint32_t data = 1; data <= 8; data *= 2)
        for (uint32_t tp = 1; tp * data <= 8; tp *= 2)
            for (int sequence = 0; sequence <= (tp > 1); sequence++)
                for (int ac = AC_none; ac <= AC_selective; ac++)
                    for (uint32_t m = 1; m <= 3; m += 2) {
                        Tiny t = sizes(gpt2);
                        if (shard)
                            t.dp_shard = data;
                        else
                            t.dp_replicate = data;
                        t.tp = tp;
                        t.tp_options.sequence = sequence;
                        t.ac = (AcMode)ac;
                        t.microbatches = m;
                        /* with 2 samples, the dimension that is split is not the outermost one */
                        t.micro = 1 + seed % 2;
                        t.repeat = 1 + seed / 2 % 2;
                        if (is_sampled(seed, 3)) check(&t, seed);
                        seed++;
                    }
}

static void llama_under_fsdp2_computes_what_one_rank_does(void **state)
{
    (void)state;
    each(false, true);
}

static void llama_under_ddp_computes_what_one_rank_does(void **state)
{
    (void)state;
    each(false, false);
}

static void gpt2_under_fsdp2_computes_what_one_rank_does(void **state)
{
    (void)state;
    each(true, true);
}

static void gpt2_under_ddp_computes_what_one_rank_does(void **state)
{
    (void)state;
    each(true, false);
}

static void hsdp_computes_what_one_rank_does(void **state)
{
    (void)state;
    for (uint32_t tp = 1; tp <= 2; tp++)
        for (uint32_t m = 1; m <= 3; m += 2) {
            Tiny t = sizes(false);
            t.dp_replicate = 2, t.dp_shard = 2, t.tp = tp, t.microbatches = m;
            t.ac = AC_full;
            check(&t, 11 * tp + m);
        }
}

/* Numbers of ranks that are no power of two, so that no size divides evenly. */
static void odd_meshes_compute_what_one_rank_does(void **state)
{
    (void)state;
    static const uint32_t data[] = {3, 5, 6, 7};
    for (uint32_t i = 0; i < 4; i++)
        for (int shard = 0; shard < 2; shard++) {
            Tiny t = sizes(i % 2);
            *(shard ? &t.dp_shard : &t.dp_replicate) = data[i];
            t.ac = (AcMode)(i % 3), t.microbatches = 2 + i % 2;
            check(&t, 100 + i);
            t.groups = 6, t.tp = i == 0 ? 2 : 1;
            check(&t, 200 + i);
        }
    Tiny t = sizes(false);
    t.groups = 9, t.hidden = 27, t.seq = 9, t.tp = 3, t.dp_shard = 2;
    check(&t, 300);
}

/* The first stage has only the embedding. The last stage has only the head, which gpt2 ties to the
 * embedding. */
static void stages_without_blocks_compute_what_one_rank_does(void **state)
{
    (void)state;
    static const struct {
        ScheduleKind schedule;
        uint32_t pp, chunks, layers;
    } cases[] = {{SCHEDULE_1f1b, 3, 1, 2},
                 {SCHEDULE_1f1b, 4, 1, 3},
                 {SCHEDULE_interleaved_1f1b, 2, 2, 3},
                 {SCHEDULE_zb_v, 2, 2, 3}};
    for (uint64_t i = 0; i < 4 * sizeof cases / sizeof *cases; i++) {
        Tiny t = sizes(i % 2);
        t.layers = cases[i / 4].layers;
        t.pp = cases[i / 4].pp, t.dp_shard = 2, t.microbatches = 4;
        t.pp_options.schedule = cases[i / 4].schedule;
        t.pp_options.chunks = cases[i / 4].chunks;
        t.pp_options.empty_first = true, t.pp_options.empty_last = i / 2 % 2;
        check(&t, 500 + i);
    }
}

/* Tries the options that change which collectives run. */
static void options_compute_what_one_rank_does(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 256; bits++) {
        if (bits * 2654435761u >> 28 != 3) continue; /* takes a sample of the combinations */
        Tiny t = sizes(bits & 1);
        t.dp_shard = 2, t.tp = 2, t.microbatches = bits & 2 ? 3 : 2, t.layers = bits & 4 ? 3 : 1;
        t.tp_options.sequence = bits & 8;
        t.tp_options.loss_parallel = bits & 16;
        t.tp_options.keep_gathered = bits & 32;
        t.tp_options.share_gathers = !(bits & 64);
        t.fsdp2.reshard_root = bits & 128;
        t.fsdp2.prefetch = bits % 3;
        t.fsdp2.defer_grad_sync = bits % 5 == 1;
        t.fsdp2.reshard_after_forward = bits % 7 > 3 ? RESHARD_false : RESHARD_true;
        t.sgd = bits % 11 == 3;
        check(&t, bits + 1);
    }
}

static void partly_resharded_weights_compute_what_one_rank_does(void **state)
{
    (void)state;
    Tiny t = sizes(false);
    t.dp_shard = 4, t.layers = 3, t.microbatches = 2;
    t.fsdp2.reshard_after_forward = RESHARD_to, t.fsdp2.reshard_to = 2;
    check(&t, 3);
    t.tp = 2;
    check(&t, 4);
}

/* Runs one plan that uses every feature, in many interleavings. */
static void all_interleavings_compute_what_one_rank_does(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        Tiny t = sizes(false);
        t.dp_shard = 2, t.tp = 2, t.microbatches = 3, t.ac = AC_selective;
        check(&t, seed * 7919);
    }
}

/* Frozen parameters have no gradient, so no gradient of theirs is compared. */
static void frozen_tensors_do_not_count(void **state)
{
    (void)state;
    uint32_t n[2] = {0, 0};
    for (uint32_t k = 0; k < 2; k++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        Tiny t = tiny_default();
        t.dp_shard = 2, t.freeze = k * TINY_FROZEN_TABLE;
        Tiny one = tiny_one_rank(&t);
        const Plan *plan = tiny_plan(&t, true, arena, &d);
        const Plan *reference = tiny_plan(&one, true, arena, &d);
        const DataSource *data = data_synthetic(7, t.vocab, 0.1, arena);
        BackendOptions options = {.order_seed = 1};
        VerifyResult result = {.n_tensors = 0};
        assert_true(exec_verify(plan, reference, data, &options, TOLERANCE, arena, &result, &d));
        n[k] = result.n_tensors;
        arena_free(arena);
    }
    assert_int_equal(n[1], n[0] - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frozen_tensors_do_not_count),
        cmocka_unit_test(llama_under_fsdp2_computes_what_one_rank_does),
        cmocka_unit_test(llama_under_ddp_computes_what_one_rank_does),
        cmocka_unit_test(gpt2_under_fsdp2_computes_what_one_rank_does),
        cmocka_unit_test(gpt2_under_ddp_computes_what_one_rank_does),
        cmocka_unit_test(hsdp_computes_what_one_rank_does),
        cmocka_unit_test(odd_meshes_compute_what_one_rank_does),
        cmocka_unit_test(stages_without_blocks_compute_what_one_rank_does),
        cmocka_unit_test(options_compute_what_one_rank_does),
        cmocka_unit_test(partly_resharded_weights_compute_what_one_rank_does),
        cmocka_unit_test(all_interleavings_compute_what_one_rank_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
