/* A step of many micro-batches that follows from few is equal to the one that simulates all of
 * them: to the picosecond, and to the byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "planner/base/rng.h"
#include "planner/verify/verify.h"
#include "session/session.h"

enum { MOST_SET = 8 };

typedef struct Tally {
    uint32_t compared, aperiodic;
} Tally;

static SimReport simulate(const Config *config, const Graph *graph, uint32_t fewer, bool placed,
                          Arena *arena, const char *name)
{
    Diag d = diag_in(arena);
    Graph own = graph_copy(graph, arena);
    const PlanOptions o = {.unproven = true, .unplaced = !placed, .fewer = fewer};
    const SimOptions how = {.steps = 1};
    const PlanFile *file = session_compile(config, &own, &o, arena, &d);
    SimReport report;
    if (file == NULL || !session_simulate(file, &config->cluster, &how, arena, &report, &d))
        fail_msg("%s: %s", name, d.items.n > 0 ? d.items.at[0].text : "no plan");
    if (placed && fewer > 0 && !report.aperiodic)
        assert_true(verify_plan(file->plan, VERIFY_all, false, &d));
    return report;
}

static void same_collectives(const SimReport *a, const SimReport *b)
{
    assert_int_equal(a->collectives.n, b->collectives.n);
    for (uint32_t i = 0; i < a->collectives.n; i++) {
        const CollectiveRow *x = &a->collectives.at[i], *y = &b->collectives.at[i];
        assert_int_equal(x->op, y->op);
        assert_string_equal(x->axes, y->axes);
        assert_string_equal(x->stream, y->stream);
        assert_int_equal(x->bytes, y->bytes);
        assert_int_equal(x->n, y->n);
        assert_int_equal(x->total_ps, y->total_ps);
        assert_int_equal(x->exposed_ps, y->exposed_ps);
    }
    assert_int_equal(a->axes.n, b->axes.n);
    for (uint32_t i = 0; i < a->axes.n; i++)
        assert_memory_equal(&a->axes.at[i], &b->axes.at[i], sizeof a->axes.at[i]);
}

static void same_memory(const SimReport *a, const SimReport *b)
{
    assert_int_equal(a->peak_bytes, b->peak_bytes);
    assert_int_equal(a->total_bytes, b->total_bytes);
    assert_int_equal(a->peak_rank, b->peak_rank);
    assert_int_equal(a->fits, b->fits);
    assert_memory_equal(a->memory, b->memory, sizeof a->memory);
    assert_int_equal(a->memory_rows.n, b->memory_rows.n);
    for (uint32_t i = 0; i < a->memory_rows.n; i++) {
        assert_int_equal(a->memory_rows.at[i].category, b->memory_rows.at[i].category);
        assert_int_equal(a->memory_rows.at[i].bytes, b->memory_rows.at[i].bytes);
    }
    assert_int_equal(a->held.allocated_bytes, b->held.allocated_bytes);
    assert_int_equal(a->held.reserved_bytes, b->held.reserved_bytes);
    assert_int_equal(a->held.process_bytes, b->held.process_bytes);
}

/* Compares both ways, unless the step has few micro-batches. */
static void compare(const char *path, const char *const *set, uint32_t n_set, Tally *tally)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    const PlanOptions o = {.set = set, .n_set = n_set};
    Config config;
    Graph graph;
    char name[512] = "";
    for (uint32_t i = 0; i < n_set; i++)
        snprintf(name + strlen(name), sizeof name - strlen(name), "%s ", set[i]);
    if (!session_read(path, &o, arena, &config, &graph, &d))
        fail_msg("%s %s: %s", path, name, d.items.at[0].text);
    const bool placed = config_ranks(&config, axes_with(AXIS_STAGES)) == 1;
    const uint32_t fewer = session_fewer(&config, !placed);
    if (fewer == 0) {
        arena_free(arena);
        return;
    }
    const SimReport all = simulate(&config, &graph, 0, placed, arena, name);
    const SimReport few = simulate(&config, &graph, fewer, placed, arena, name);
    tally->compared++;
    tally->aperiodic += few.aperiodic;
    if (!few.aperiodic) {
        if (few.step_ps != all.step_ps)
            fail_msg("%s %s: %lld ps from few, %lld from all", path, name, (long long)few.step_ps,
                     (long long)all.step_ps);
        assert_int_equal(few.compute_ps, all.compute_ps);
        assert_int_equal(few.exposed_ps, all.exposed_ps);
        assert_int_equal(few.idle_ps, all.idle_ps);
        assert_int_equal(few.host_ps, all.host_ps);
        assert_int_equal(few.slowest, all.slowest);
        assert_int_equal(few.n_events, all.n_events);
        assert_true(few.tokens_per_s == all.tokens_per_s);
        assert_true(few.mfu == all.mfu);
        assert_memory_equal(&few.counts, &all.counts, sizeof few.counts);
        same_collectives(&few, &all);
        if (placed && few.peak_bytes != all.peak_bytes)
            fail_msg("%s %s: %llu bytes from few, %llu from all", path, name,
                     (unsigned long long)few.peak_bytes, (unsigned long long)all.peak_bytes);
        if (placed) same_memory(&few, &all);
    }
    arena_free(arena);
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

static void compare_random(const char *path, const char *const *choices, uint64_t seed,
                           Tally *tally)
{
    char text[MOST_SET][64];
    const char *set[MOST_SET];
    uint32_t n = 0;
    for (uint32_t i = 0; choices[i] != NULL; i++) choose(seed, i, choices[i], text[i], set, &n);
    compare(path, set, n, tally);
}

static void accumulated_gradients(void **state)
{
    (void)state;
    static const char *const llama[] = {
        "mesh.dp_shard=-1",
        "mesh.tp=1|mesh.tp=2|mesh.tp=4|mesh.tp=8",
        "batch.global=128|batch.global=192|batch.global=256",
        "parallel.ac=none|parallel.ac=selective|parallel.ac=full",
        "|parallel.fsdp2.reshard_after_forward=false|parallel.fsdp2.defer_grad_sync=true",
        "|runtime=torchtitan|runtime=megatron|runtime=deepspeed",
        "|precision.reduce=bf16",
        NULL};
    static const char *const mixtral[] = {"batch.global=256|batch.global=512",
                                          "parallel.ac=none|parallel.ac=full", NULL};
    static const char *const gpt2[] = {"batch.global=1024|batch.global=2048",
                                       "batch.micro=4|batch.micro=8", NULL};
    Tally tally = {0, 0};
    for (uint64_t seed = 1; seed <= 24; seed++)
        compare_random(TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua", llama, seed, &tally);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        compare_random(TANDEM_SOURCE_DIR "/scripts/plans/mixtral_8x7b.lua", mixtral, seed, &tally);
        compare_random(TANDEM_SOURCE_DIR "/scripts/plans/gpt2_1558m.lua", gpt2, seed, &tally);
    }
    print_message("%u compared, %u of them aperiodic\n", tally.compared, tally.aperiodic);
    assert_true(tally.compared >= 25);
    assert_true(8 * tally.aperiodic <= tally.compared);
}

static void pipelines(void **state)
{
    (void)state;
    static const char *const all[] = {
        "mesh.dp_shard=-1",
        "mesh.pp=2|mesh.pp=4",
        "mesh.tp=1|mesh.tp=2",
        "batch.global=128|batch.global=256",
        "parallel.ac=none|parallel.ac=full",
        "parallel.pp=1f1b|parallel.pp=interleaved_1f1b|parallel.pp=zb_h1|"
        "parallel.pp=dualpipe_v|parallel.pp=zb_v",
        NULL};
    static const char *const gpipe[] = {"mesh.dp_shard=-1", "mesh.pp=4", "mesh.tp=2",
                                        "batch.global=128", "parallel.pp=gpipe"};
    Tally tally = {0, 0}, forward_first = {0, 0};
    for (uint64_t seed = 1; seed <= 16; seed++)
        compare_random(TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua", all, seed, &tally);
    print_message("%u compared, %u of them aperiodic\n", tally.compared, tally.aperiodic);
    assert_true(tally.compared >= 12);
    assert_true(2 * tally.aperiodic <= tally.compared);
    /* a period of gpipe's forward work lacks the backward work */
    compare(TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua", gpipe, 5, &forward_first);
    assert_int_equal(forward_first.compared, 1);
    assert_int_equal(forward_first.aperiodic, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accumulated_gradients),
        cmocka_unit_test(pipelines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
