/* The engine leaves out micro-batches that repeat the ones before them. The report, with the times
 * of all instructions and the critical path, must be the one that the simulation of all gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "planner/base/rng.h"
#include "session/session.h"
#include "tests/support/sample.h"

enum { MOST_SET = 8 };

static void simulate(const PlanFile *file, bool exact, Arena *arena, const char *name, SimReport *r)
{
    Diag d = diag_in(arena);
    const SimOptions how = {.steps = 1, .trace = true, .explain = true, .exact = exact};
    if (!sim_run(file->plan, &file->config.cluster, &how, arena, r, &d))
        fail_msg("%s: %s", name, d.items.at[0].text);
}

static void same_path(const SimReport *a, const SimReport *b, const char *name)
{
    if (a->path.n != b->path.n)
        fail_msg("%s: the path has %u and %u parts", name, a->path.n, b->path.n);
    for (uint32_t i = 0; i < a->path.n; i++) {
        const PathPart *x = &a->path.at[i], *y = &b->path.at[i];
        if (x->rank != y->rank || x->pc != y->pc || x->host != y->host || x->data != y->data ||
            x->from_ps != y->from_ps || x->to_ps != y->to_ps)
            fail_msg("%s: part %u of the path differs", name, i);
    }
}

/* Compares the two simulations of a plan. Returns how many periods were left out. */
static uint32_t compare(const char *path, const char *const *set, uint32_t n_set)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    const PlanOptions o = {.set = set, .n_set = n_set, .unproven = true, .unplaced = true};
    Config config;
    Graph graph;
    char name[512] = "";
    for (uint32_t i = 0; i < n_set; i++)
        snprintf(name + strlen(name), sizeof name - strlen(name), "%s ", set[i]);
    if (!session_read(path, &o, arena, &config, &graph, &d))
        fail_msg("%s %s: %s", path, name, d.items.at[0].text);
    const PlanFile *file = session_compile(&config, &graph, &o, arena, &d);
    if (file == NULL) fail_msg("%s: %s", name, d.items.at[0].text);
    SimReport all, few;
    simulate(file, true, arena, name, &all);
    simulate(file, false, arena, name, &few);
    assert_int_equal(all.n_left_out, 0);
    if (few.step_ps != all.step_ps)
        fail_msg("%s: %lld ps instead of %lld", name, (long long)few.step_ps,
                 (long long)all.step_ps);
    assert_int_equal(few.n_events, all.n_events);
    assert_int_equal(few.trace.rows.n, all.trace.rows.n);
    for (uint32_t i = 0; i < all.trace.rows.n; i++) {
        const TraceRow *x = &all.trace.rows.at[i], *y = &few.trace.rows.at[i];
        if (x->rank != y->rank || x->pc != y->pc || x->start_ps != y->start_ps ||
            x->end_ps != y->end_ps)
            fail_msg("%s: the times of instruction %u on rank %u differ", name, x->pc, x->rank);
    }
    assert_int_equal(few.exposed_ps, all.exposed_ps);
    assert_int_equal(few.host_ps, all.host_ps);
    same_path(&all, &few, name);
    const uint32_t n = few.n_left_out;
    arena_free(arena);
    return n;
}

/* Chooses one of texts that '|' separates; an empty one sets nothing. */
static void choose(uint64_t seed, uint64_t index, const char *texts, char into[64],
                   const char **set, uint32_t *n)
{
    uint32_t count = 1;
    for (const char *c = texts; *c != 0; c++) count += *c == '|';
    for (uint32_t skip = (uint32_t)rng_below(seed, 0, index, count); skip > 0; skip--)
        texts = strchr(texts, '|') + 1;
    const size_t length = strcspn(texts, "|");
    assert_true(length < 64 && *n < MOST_SET);
    memcpy(into, texts, length);
    into[length] = 0;
    if (length > 0) set[(*n)++] = into;
}

/* Compares plans with random settings. Returns for how many of them something was left out. */
static uint32_t compare_random(const char *path, const char *const *texts, uint64_t n)
{
    uint32_t n_left_out = 0, n_leaps = 0;
    for (uint64_t seed = 1; seed <= n; seed++) {
        char text[MOST_SET][64];
        const char *set[MOST_SET];
        uint32_t n_set = 0;
        for (uint32_t i = 0; texts[i] != NULL; i++) choose(seed, i, texts[i], text[i], set, &n_set);
        const uint32_t left_out = compare(path, set, n_set);
        n_left_out += left_out;
        n_leaps += left_out > 0;
    }
    print_message("%u of %u simulations have left out %u periods\n", n_leaps, (uint32_t)n,
                  n_left_out);
    return n_leaps;
}

static void accumulated_gradients(void **state)
{
    (void)state;
    static const char *const llama[] = {
        "mesh.dp_shard=-1",
        "model.layers=4",
        "mesh.tp=1|mesh.tp=2|mesh.tp=8",
        "batch.global=256|batch.global=512",
        "parallel.ac=none|parallel.ac=selective|parallel.ac=full",
        "|parallel.fsdp2.reshard_after_forward=false|parallel.fsdp2.defer_grad_sync=true",
        "|runtime=torchtitan|runtime=megatron|runtime=deepspeed",
        NULL};
    const uint64_t n = SAMPLE(12, 4);
    assert_true(2 * compare_random(TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua", llama, n) > n);
}

static void pipelines(void **state)
{
    (void)state;
    static const char *const llama[] = {
        "mesh.dp_shard=-1",
        "model.layers=16",
        "parallel.pp=1f1b|parallel.pp=1f1b|parallel.pp=gpipe|parallel.pp=interleaved_1f1b|"
        "parallel.pp=zb_h1",
        "mesh.pp=2|mesh.pp=4|mesh.pp=8",
        "mesh.tp=1|mesh.tp=2",
        "batch.global=256|batch.global=384",
        "parallel.ac=none|parallel.ac=full",
        "|runtime=torchtitan|runtime=megatron|parallel.compile=true"};
    static const char *texts[MOST_SET + 1];
    memcpy(texts, llama, sizeof llama);
    const uint64_t n = SAMPLE(16, 6);
    assert_true(4 * compare_random(TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua", texts, n) > n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accumulated_gradients),
        cmocka_unit_test(pipelines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
