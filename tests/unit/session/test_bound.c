/* A search rejects plans by lower bounds of their memory and time. So no plan of the corpus may
 * need less memory, or take a shorter step, than its bounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session/bound.h"
#include "session/session.h"
#include "tests/support/sample.h"

typedef struct Tally {
    uint32_t plans, near; /* near: bounds of at least a third of the true value */
} Tally;

/* Returns the bytes of the fullest rank. */
static uint64_t most_bytes(const Plan *plan)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < plan->programs.n; i++)
        if (plan->programs.at[i].bytes > most) most = plan->programs.at[i].bytes;
    return most;
}

static void check(const char *path, const char *const *set, uint32_t n_set, Tally *tally)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    const PlanOptions o = {.set = set, .n_set = n_set, .unproven = true};
    Config config;
    Graph graph;
    if (!session_read(path, &o, arena, &config, &graph, &d) || config.cluster.is_local) {
        arena_free(arena);
        return; /* some plans of the corpus exist to be refused */
    }
    const Bounds b = bounds_of(&config, &graph);
    const Ps least_ps = bound_step_ps(&config, &graph);
    PlanFile *file = session_finish(&config, &graph, &o, arena, &d);
    if (file != NULL && d.n_errors == 0) {
        const uint64_t most = most_bytes(file->plan);
        SimReport report;
        const SimOptions how = {.steps = 1};
        assert_true(session_simulate(file, &config.cluster, &how, arena, &report, &d));
        if (b.state_bytes + b.kept_bytes > most)
            fail_msg("%s %s: bound %" PRIu64 " + %" PRIu64 " bytes, needs %" PRIu64, path,
                     n_set > 0 ? set[n_set - 1] : "", b.state_bytes, b.kept_bytes, most);
        if (least_ps > report.step_ps)
            fail_msg("%s %s: bound %lld ps, takes %lld", path, n_set > 0 ? set[n_set - 1] : "",
                     (long long)least_ps, (long long)report.step_ps);
        tally->plans++;
        tally->near += 3 * (b.state_bytes + b.kept_bytes) > most || 3 * least_ps > report.step_ps;
    }
    arena_free(arena);
}

/* Compares the memory of a whole plan with the bound from a shorter plan. Returns the bound divided
 * by the memory. */
static double check_shorter(const char *const *set, uint32_t n_set)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    PlanOptions o = {.set = set, .n_set = n_set, .unproven = true};
    Config config;
    Graph graph;
    assert_true(session_read(TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua", &o, arena, &config,
                             &graph, &d));
    o.fewer = bound_microbatches(&config);
    o.unplaced = true;
    assert_true(o.fewer > 0);
    const PlanFile *few = session_compile(&config, &graph, &o, arena, &d);
    if (few == NULL) fail_msg("%s: %s", set[n_set - 1], d.items.at[0].text);
    const uint64_t bound = bound_bytes(few->plan, false);
    o.fewer = 0;
    o.unplaced = false;
    const PlanFile *whole = session_compile(&config, &graph, &o, arena, &d);
    assert_non_null(whole);
    const uint64_t most = most_bytes(whole->plan);
    if (bound > most)
        fail_msg("%s: bound %" PRIu64 " bytes, needs %" PRIu64, set[n_set - 1], bound, most);
    arena_free(arena);
    return (double)bound / (double)most;
}

/* The plans use 1f1b with at least 48 micro-batches. */
static void a_short_pipeline_bounds_a_long_one(void **state)
{
    (void)state;
    static const char *const meshes[][2] = {{"mesh.pp=2", "mesh.dp_shard=4"},
                                            {"mesh.pp=4", "mesh.dp_shard=2"},
                                            {"mesh.pp=8", "mesh.dp_shard=1"}};
    static const char *const ways[] = {"parallel.ac=none",
                                       "parallel.ac=selective",
                                       "parallel.ac=full",
                                       "parallel.fsdp2.reshard_after_forward=false",
                                       "parallel.zero.strategy=optim",
                                       "parallel.zero.strategy=optim_grads",
                                       "parallel.zero.strategy=optim_grads_params",
                                       "parallel.float8=true",
                                       "precision.reduce=bf16",
                                       "model.vocab=1000"};
    double sum = 0;
    uint32_t n = 0;
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            if ((m + w) % SAMPLE(1, 3) != 0) continue;
            const char *set[] = {"model.layers=8", "batch.global=256", "parallel.pp=1f1b",
                                 meshes[m][0],     meshes[m][1],       ways[w]};
            const double part = check_shorter(set, sizeof set / sizeof *set);
            assert_true(part > .5);
            sum += part;
            n++;
        }
    printf("bounds of %" PRIu32 " pipelines reach %.2f of their memory\n", n, sum / n);
    assert_true(sum / n > .85);
}

static void check_folder(const char *folder, Tally *tally)
{
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        const size_t n = strlen(e->d_name);
        char path[4096];
        if (n < 5 || strcmp(e->d_name + n - 4, ".lua") != 0) continue;
        if (strstr(e->d_name, "405b") != NULL) continue; /* slow, and it shows no more than 70b */
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        check(path, NULL, 0, tally);
    }
    closedir(dir);
}

static uint32_t n_of(const char *const set[4])
{
    uint32_t n = 0;
    while (n < 4 && set[n] != NULL) n++;
    return n;
}

static void bounds_are_never_above_the_truth(void **state)
{
    (void)state;
    Tally tally = {0, 0};
    check_folder(TANDEM_SOURCE_DIR "/scripts/plans", &tally);
    check_folder(TANDEM_SOURCE_DIR "/scripts/plans/one_gpu", &tally);
    check_folder(TANDEM_SOURCE_DIR "/tests/golden", &tally);
    /* These are the kinds of sharding. Each is applied to llama3_8b.lua. */
    static const char *const ways[][4] = {
        {"parallel.ac=none", "mesh.tp=1", "mesh.dp_shard=16"},
        {"parallel.ac=full", "mesh.tp=8", "mesh.dp_shard=2"},
        {"parallel.ddp=true", "mesh.tp=8", "mesh.dp_shard=2"},
        {"parallel.zero.strategy=optim", "mesh.tp=2", "mesh.dp_shard=8"},
        {"parallel.zero.strategy=optim_grads", "mesh.tp=2", "mesh.dp_shard=8"},
        {"parallel.fsdp2.offload=true", "mesh.tp=2", "mesh.dp_shard=8"},
        {"parallel.float8=true", "mesh.tp=2", "mesh.dp_shard=8"},
        {"parallel.pp=1f1b", "mesh.pp=4", "mesh.dp_shard=2"},
        {"parallel.pp=gpipe", "mesh.pp=8", "mesh.dp_shard=1"},
        {"parallel.pp.schedule=interleaved_1f1b", "mesh.pp=2", "mesh.dp_shard=4"},
        {"optimizer.clip_norm=0", "mesh.dp_replicate=2", "mesh.dp_shard=4"},
        {"precision.param=bf16", "precision.reduce=bf16", "mesh.tp=2"},
        /* With one micro-step, gradients take the place of activations. */
        {"batch.global=8", "parallel.ac=none"},
        {"batch.global=8", "parallel.ac=full"},
        {"batch.global=16", "parallel.ac=selective", "mesh.tp=1", "mesh.dp_shard=16"},
        {"parallel.ac=none", "parallel.tp.sequence=false", "batch.micro=2"},
        {"parallel.ac=full", "parallel.tp.sequence=false", "batch.micro=4"},
        {"parallel.ac=none", "mesh.pp=4", "mesh.dp_shard=2", "parallel.pp=gpipe"},
        {"parallel.ac=full", "mesh.pp=4", "mesh.dp_shard=2", "parallel.pp=1f1b"},
        {"parallel.ac=none", "mesh.pp=2", "mesh.dp_shard=4", "parallel.zero.strategy=optim"},
        {"parallel.zero.strategy=optim", "parallel.zero.preserve_fp32_weights=false"},
        {"parallel.zero.strategy=optim_grads_params", "parallel.ac=none"},
        {"parallel.ddp=true", "parallel.ac=none", "optimizer.kind=sgd"},
        {"parallel.tile=true", "parallel.ac=none"},
        {"parallel.compile=true", "parallel.ac=none"},
        {"model.layers=4", "parallel.ac=full", "mesh.tp=1", "mesh.dp_shard=16"},
        {"model.layers=4", "parallel.ac.mode=selective", "parallel.ac.every=2"},
        {"runtime=torchtitan", "parallel.ac=none"},
    };
    const uint32_t before = tally.plans;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        check(TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua", ways[i], n_of(ways[i]), &tally);
    printf("%" PRIu32 " plans, %" PRIu32 " of the ways; a bound within 3 of the truth on %" PRIu32
           "\n",
           tally.plans, tally.plans - before, tally.near);
    assert_true(tally.plans - before >= 22);
    assert_true(tally.plans > 30);
    assert_true(tally.near >= 10); /* smaller bounds would reject no plan */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bounds_are_never_above_the_truth),
                                       cmocka_unit_test(a_short_pipeline_bounds_a_long_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
