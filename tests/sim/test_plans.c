/* The shipped plans, loaded from their scripts. A folded simulation equals the unfolded one to the
 * picosecond, ten runs give the same bytes, and times stay within bounds that hold for any
 * schedule. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "planner/front/front.h"
#include "planner/lower/compile.h"
#include "sim/sim.h"

typedef struct Loaded {
    Arena *arena;
    Diag diag;
    Config config;
    Plan *plan;
} Loaded;

static void load(Loaded *l, const char *script, const char *const *set, uint32_t n_set)
{
    memset(l, 0, sizeof *l);
    l->arena = arena_new();
    l->diag = diag_in(l->arena);
    Graph graph;
    memset(&graph, 0, sizeof graph);
    FrontOptions front = {.set = set, .n_set = n_set};
    LowerOptions lower = lower_options_default();
    const char *path = arena_print(l->arena, "%s/scripts/plans/%s", TANDEM_SOURCE_DIR, script);
    bool ok = front_load(path, &front, l->arena, &l->config, &graph, &l->diag);
    if (ok) l->plan = plan_compile(&l->config, &graph, &lower, NULL, l->arena, &l->diag);
    if (l->plan == NULL) {
        Str text = str_in(l->arena);
        diag_print(&l->diag, &text);
        fail_msg("%s: %s", script, str_text(&text));
    }
}

static void simulate(Loaded *l, bool unfolded, SimReport *report)
{
    SimOptions options = {.unfolded = unfolded, .trace = true};
    memset(report, 0, sizeof *report);
    assert_true(sim_run(l->plan, &l->config.cluster, &options, l->arena, report, &l->diag));
}

static void check_report(const Loaded *l, const SimReport *r)
{
    Ps comm = 0;
    for (uint32_t i = 0; i < r->axes.n; i++) {
        const AxisTime *axis = &r->axes.at[i];
        assert_true(axis->exposed_ps >= 0);
        assert_true(axis->exposed_ps <= axis->total_ps);
        comm += axis->total_ps;
    }
    assert_true(r->compute_ps <= r->step_ps);
    assert_true(r->step_ps == r->compute_ps + r->idle_ps);
    /* If all ranks do the same work, no rank waits for another. */
    if (l->plan->programs.n == 1) assert_true(r->step_ps <= r->compute_ps + comm);
    assert_true(r->exposed_ps <= r->idle_ps);
    assert_true(r->mfu > 0);
    assert_true(r->mfu < 1);
    uint64_t live = r->memory_holes;
    for (uint32_t c = 0; c < CATEGORY_COUNT; c++) live += r->memory[c];
    assert_int_equal(live, r->peak_bytes);
    const Program *p = plan_program(l->plan, r->slowest);
    uint32_t rows = 0;
    for (uint32_t i = 0; i < r->trace.rows.n; i++) {
        const TraceRow *row = &r->trace.rows.at[i];
        assert_true(row->start_ps >= 0);
        assert_true(row->end_ps >= row->start_ps);
        assert_true(row->end_ps <= r->step_ps);
        if (row->rank == r->slowest) rows++;
    }
    assert_int_equal(rows, p->code.n - 1);
}

static const char *const llama_meshes[][3] = {
    {"mesh.dp_shard=8", "mesh.tp=2", "batch.global=24"},
    {"mesh.dp_shard=4", "mesh.tp=4", "batch.global=8"},
    {"mesh.dp_shard=2", "mesh.tp=8", "batch.global=2"},
    {"mesh.dp_shard=16", "mesh.tp=1", "batch.global=32"},
};

static const char *const pipeline = "batch.global=12"; /* 6 micro-batches on 4 stages */

static void folded_equals_unfolded(void **state)
{
    (void)state;
    uint32_t n = sizeof llama_meshes / sizeof llama_meshes[0];
    for (uint32_t i = 0; i <= n; i++) {
        Loaded l;
        if (i < n)
            load(&l, "llama3_8b.lua", llama_meshes[i], 3);
        else
            load(&l, "llama3_70b_pp.lua", &pipeline, 1);
        SimReport folded, whole;
        simulate(&l, false, &folded);
        simulate(&l, true, &whole);
        check_report(&l, &folded);
        check_report(&l, &whole);
        assert_int_equal(whole.n_classes, l.plan->mesh.n_ranks);
        assert_true(folded.n_classes < whole.n_classes);
        assert_int_equal(folded.step_ps, whole.step_ps);
        assert_int_equal(folded.compute_ps, whole.compute_ps);
        assert_int_equal(folded.exposed_ps, whole.exposed_ps);
        /* The folded run recorded only a few ranks. Compares their rows. */
        uint32_t k = 0;
        for (uint32_t j = 0; j < folded.trace.rows.n; j++) {
            const TraceRow *row = &folded.trace.rows.at[j];
            while (whole.trace.rows.at[k].rank != row->rank ||
                   whole.trace.rows.at[k].pc != row->pc) {
                k++;
            }
            assert_int_equal(whole.trace.rows.at[k].start_ps, row->start_ps);
            assert_int_equal(whole.trace.rows.at[k].end_ps, row->end_ps);
        }
        arena_free(l.arena);
    }
}

/* Compares field by field, because a row contains padding bytes. */
static void same_row(const TraceRow *a, const TraceRow *b)
{
    assert_int_equal(a->rank, b->rank);
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->pc, b->pc);
    assert_int_equal(a->start_ps, b->start_ps);
    assert_int_equal(a->end_ps, b->end_ps);
    assert_int_equal(a->bytes, b->bytes);
}

static void ten_runs_give_the_same_numbers(void **state)
{
    (void)state;
    Loaded l;
    const char *set[] = {"batch.global=128"};
    load(&l, "gpt2_124m.lua", set, 1);
    SimReport first;
    simulate(&l, false, &first);
    check_report(&l, &first);
    for (uint32_t i = 0; i < 10; i++) {
        SimReport again;
        simulate(&l, i % 2 == 1, &again);
        assert_int_equal(again.step_ps, first.step_ps);
        if (i % 2 == 1) continue;
        assert_int_equal(again.trace.rows.n, first.trace.rows.n);
        for (uint32_t k = 0; k < first.trace.rows.n; k++)
            same_row(&again.trace.rows.at[k], &first.trace.rows.at[k]);
        assert_memory_equal(again.memory, first.memory, sizeof first.memory);
    }
    arena_free(l.arena);
}

/* A slower machine never makes a step faster. */
static void worse_hardware_is_slower(void **state)
{
    (void)state;
    Loaded l;
    const char *set[] = {"batch.global=16"};
    load(&l, "llama3_8b.lua", set, 1);
    SimReport base, report;
    simulate(&l, false, &base);
    Cluster cluster = l.config.cluster;
    l.config.cluster.nic_bytes_per_s /= 8;
    simulate(&l, false, &report);
    assert_true(report.step_ps > base.step_ps);
    l.config.cluster = cluster;
    l.config.cluster.oversubscription = 8;
    simulate(&l, false, &report);
    assert_true(report.step_ps > base.step_ps);
    l.config.cluster = cluster;
    l.config.cluster.device.peak_flops[DT_bf16] /= 2;
    simulate(&l, false, &report);
    assert_true(report.step_ps > base.step_ps);
    assert_true(report.compute_ps > base.compute_ps);
    arena_free(l.arena);
}

/* Four ranks of this machine. On one core, all their work runs one after the other. */
static void local_ranks_share_cores(void **state)
{
    (void)state;
    Loaded l;
    load(&l, "tiny_text.lua", NULL, 0);
    Ps before = 0;
    for (uint32_t cores = 4; cores >= 1; cores /= 2) {
        SimReport report;
        l.config.cluster.cores_per_node = cores;
        simulate(&l, false, &report);
        check_report(&l, &report);
        assert_int_equal(report.n_classes, 4);
        assert_true(report.step_ps > before);
        before = report.step_ps;
    }
    arena_free(l.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folded_equals_unfolded),
        cmocka_unit_test(ten_runs_give_the_same_numbers),
        cmocka_unit_test(worse_hardware_is_slower),
        cmocka_unit_test(local_ranks_share_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
