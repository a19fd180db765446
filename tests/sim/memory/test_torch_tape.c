/* The simulator replays a step for PyTorch's allocator, and may leave out micro-batches that equal
 * earlier ones. This must change nothing: neither the peaks, nor the place of any block at the end
 * of a step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "planner/base/rng.h"
#include "planner/front/front.h"
#include "planner/lower/compile.h"
#include "sim/memory/torch_memory.h"
#include "sim/memory/torch_tape.h"
#include "tests/support/sample.h"

#define MIB (UINT64_C(1) << 20)

static int by_address(const void *a, const void *b)
{
    const TorchPlace *x = a, *y = b;
    return x->address < y->address ? -1 : x->address > y->address;
}

/* Returns the blocks of an allocator in the order of their addresses. */
static TorchPlace *places(const TorchAllocator *a, uint32_t *n, Arena *arena)
{
    LIST(TorchPlace) all = {NULL, 0, 0};
    TorchPlace at;
    for (uint32_t id = 1; torch_place(a, id, &at); id++)
        if (at.bytes > 0) list_push(arena, &all, at);
    qsort(all.at, all.n, sizeof *all.at, by_address);
    *n = all.n;
    return all.at;
}

static void same_stats(const TorchStats *x, const TorchStats *y)
{
    assert_int_equal(x->allocated, y->allocated);
    assert_int_equal(x->reserved, y->reserved);
    assert_int_equal(x->peak_allocated, y->peak_allocated);
    assert_int_equal(x->peak_reserved, y->peak_reserved);
    assert_int_equal(x->n_retries, y->n_retries);
    assert_int_equal(x->n_segments, y->n_segments);
    assert_int_equal(x->failed, y->failed);
}

static void same_allocators(const TorchAllocator *x, const TorchAllocator *y, Arena *arena)
{
    uint32_t n, m;
    const TorchPlace *a = places(x, &n, arena), *b = places(y, &m, arena);
    const TorchStats s = torch_stats(x), t = torch_stats(y);
    same_stats(&s, &t);
    assert_int_equal(n, m);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(a[i].address, b[i].address);
        assert_int_equal(a[i].bytes, b[i].bytes);
        assert_int_equal(a[i].used, b[i].used);
        assert_int_equal(a[i].unmapped, b[i].unmapped);
    }
}

/* A random step with `depth` micro-batches in flight. The forward work of a micro-batch makes
 * tensors that its backward work releases. Both make other tensors that they soon release. */
typedef struct RandomStep {
    uint64_t seed, draw;
    TorchTape *tape;
    uint64_t bytes[16]; /* sizes of the tensors that one micro-batch makes */
    uint32_t n_sizes;
    uint32_t *kept; /* [micro-batch * n_sizes + i] */
    bool keeps;     /* each micro-batch keeps a tensor until the end of the step */
} RandomStep;

static uint64_t drawn(RandomStep *r, uint64_t below)
{
    return rng_below(r->seed, 7, r->draw++, below);
}

static void forward(RandomStep *r, uint32_t k)
{
    for (uint32_t i = 0; i < r->n_sizes; i++) {
        r->kept[k * r->n_sizes + i] =
            torch_tape_allocate(r->tape, r->bytes[i], i % 3 == 2 ? 1 : 0, k, false);
        torch_tape_release(r->tape, torch_tape_allocate(r->tape, r->bytes[i] / 2 + 7, 0, k, false));
    }
}

static void backward(RandomStep *r, uint32_t k)
{
    torch_tape_backward(r->tape, k);
    for (uint32_t i = r->n_sizes; i-- > 0;) {
        const uint32_t grad = torch_tape_allocate(r->tape, r->bytes[i] + 513, 0, k, false);
        torch_tape_release(r->tape, r->kept[k * r->n_sizes + i]);
        torch_tape_release(r->tape, grad);
    }
    if (r->keeps) torch_tape_allocate(r->tape, 3 * MIB, 0, k, false);
}

static void random_steps_are_replayed_exactly(void **state)
{
    (void)state;
    uint32_t left_out = 0;
    for (uint64_t seed = 1; seed <= SAMPLE(200, 40); seed++) {
        Arena *arena = arena_new();
        RandomStep r = {.seed = seed};
        const uint32_t depth = 1 + (uint32_t)drawn(&r, 6), n = depth + 1 + (uint32_t)drawn(&r, 30);
        r.n_sizes = 1 + (uint32_t)drawn(&r, 12);
        r.keeps = drawn(&r, 5) == 0;
        r.kept = arena_array(arena, (size_t)n * r.n_sizes, sizeof *r.kept);
        for (uint32_t i = 0; i < r.n_sizes; i++)
            r.bytes[i] = drawn(&r, 2) ? 1 + drawn(&r, 2 * MIB) : 1 + drawn(&r, 60 * MIB);
        r.tape = torch_tape_new(0, arena);
        const uint32_t weight = torch_tape_allocate(r.tape, 5 * MIB, 0, 0, false);
        torch_tape_allocate(r.tape, 9 * MIB, 0, 0, true);
        for (uint32_t k = 0; k < depth; k++) forward(&r, k);
        for (uint32_t k = 0; k < n; k++) {
            backward(&r, k);
            if (k + depth < n) forward(&r, k + depth);
        }
        torch_tape_release(r.tape, weight);
        const uint64_t limit = drawn(&r, 3) ? UINT64_MAX / 2 : 200 * MIB + drawn(&r, 400 * MIB);
        const bool expandable = drawn(&r, 2);
        TorchAllocator *all = torch_allocator_new(limit, expandable, arena),
                       *few = torch_allocator_new(limit, expandable, arena);
        TorchTape in_full = *r.tape;
        torch_tape_find_periods(r.tape);
        for (int step = 0; step < (r.keeps ? 1 : 3); step++) {
            assert_int_equal(torch_tape_play(&in_full, all, step == 0), 0);
            left_out += torch_tape_play(r.tape, few, step == 0);
            same_allocators(all, few, arena);
        }
        arena_free(arena);
    }
    assert_true(left_out >= SAMPLE(3000, 600));
}

/* Compares a replay of all micro-batches with one that leaves equal ones out: for all programs of
 * a plan, with enough memory and with too little. */
static uint32_t compare_plan(const char *code)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Config config;
    Graph graph;
    memset(&config, 0, sizeof config);
    memset(&graph, 0, sizeof graph);
    const FrontOptions options = {.n_set = 0};
    if (!front_load_text("plan", code, &options, arena, &config, &graph, &d))
        fail_msg("%s: %s", code, d.items.at[0].text);
    const LowerOptions lower = lower_options_default();
    const Plan *plan = plan_compile(&config, &graph, &lower, NULL, arena, &d);
    if (plan == NULL) fail_msg("%s: %s", code, d.items.at[0].text);
    const Device *device = &config.cluster.device;
    uint32_t left_out = 0;
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        const Program *p = &plan->programs.at[i];
        uint64_t limit = UINT64_C(1) << 50;
        for (int tight = 0; tight < 2; tight++) {
            uint32_t n, none;
            const TorchStats all = torch_memory_how(plan, p, &config.runtime, device, limit, true,
                                                    &none),
                             few = torch_memory_how(plan, p, &config.runtime, device, limit, false,
                                                    &n);
            assert_int_equal(none, 0);
            same_stats(&all, &few);
            left_out += n;
            limit = all.peak_reserved - all.peak_reserved / 8;
        }
    }
    arena_free(arena);
    return left_out;
}

static void plans_are_replayed_exactly(void **state)
{
    (void)state;
    static const char *const runtimes[] = {"torchtitan", "megatron", "deepspeed"};
    static const char *const passes[] = {"fsdp2 {}",
                                         "ac 'full', fsdp2 { reshard_after_forward = false }",
                                         "ac 'selective', fsdp2 {}"};
    static const char *const deep[] = {"pp '1f1b', fsdp2 { reshard_after_forward = false }",
                                       "pp '1f1b', ac 'full', fsdp2 {}",
                                       "pp 'gpipe', fsdp2 { reshard_after_forward = false }"};
    uint32_t left_out = 0;
    for (uint32_t i = 0; i < SAMPLE(18, 6); i++) {
        Arena *arena = arena_new();
        const bool piped = i % 2 == 1;
        const char *code = arena_print(
            arena,
            "return plan { model = require 'models.gpt2' { size = '124m', layers = 4, dim = 64,\n"
            "  heads = 4, positions = 64, vocab = 256 },\n"
            "cluster = require 'clusters.dgx_h100' { nodes = 1 },\n"
            "mesh = { pp = %d, dp_shard = %d }, batch = { global = %u, micro = 1, seq = 64 },\n"
            "precision = { compute = 'bf16' }, runtime = '%s', parallel = { %s } }",
            piped ? 4 : 1, piped ? 2 : 8, (piped ? 2 : 8) * (10 + 3 * i), runtimes[i / 2 % 3],
            (piped ? deep : passes)[i / 6 % 3]);
        left_out += compare_plan(code);
        arena_free(arena);
    }
    print_message("%u micro-batches left out\n", left_out);
    assert_true(left_out >= SAMPLE(100, 20));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_steps_are_replayed_exactly),
                                       cmocka_unit_test(plans_are_replayed_exactly)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
