/* A compiled plan may serve another cluster or runtime if the key is equal. It must then be the
 * plan that a new load would have made. Tests of the key are generated from the tables that read a
 * plan, so they miss no field. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "planner/front/parent.h"
#include "planner/front/pass_spec.h"
#include "planner/front/planned.h"
#include "session/session.h"
#include "tests/support/fields/change_field.h"
#include "tests/support/test_arena.h"

static const char llama[] = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";
enum { MOST_SET = 8, MOST_POINTS = 64 };
enum { TOGETHER = 12 }; /* how many fields change together in one plan */

static bool is_of(const Field *f, const char *table)
{
    return field_is_in(f->path, strlen(f->path), table, strlen(table));
}

static bool in_config(const Field *f)
{
    const size_t from = offsetof(Draft, config);
    return f->offset >= from && f->offset < from + sizeof(Config);
}

/* ---- the key */

static const Config *config_of(const char *const *set, uint32_t n_set, Graph *graph)
{
    const PlanOptions o = {.set = set, .n_set = n_set, .script = front_open(llama, NULL, 0, arena)};
    Config *config = arena_alloc(arena, sizeof *config);
    Diag d = diag_in(arena);
    if (!session_read(llama, &o, arena, config, graph, &d)) fail_msg("%s", d.items.at[0].text);
    front_close(o.script);
    return config;
}

static Str key_of(const Config *config)
{
    Planned *planned = arena_alloc(arena, sizeof *planned);
    Arena *other = arena_new();
    Str key = str_in(arena);
    config_planned(config, planned);
    assert_true(planned_key(planned, other, &key));
    arena_free(other);
    return key;
}

static bool same_key(const Config *a, const Config *b)
{
    const Str x = key_of(a), y = key_of(b);
    return x.n == y.n && memcmp(x.at, y.at, x.n) == 0;
}

/* With float8{}, a plan depends on the architecture. Every plan depends on whether it names a
 * runtime. */
static bool may_matter(const Field *f)
{
    return strcmp(f->path, "cluster.device.arch") == 0 || strcmp(f->path, "runtime.name") == 0;
}

/* A change of the hardware keeps the key. A change of any other value of the plan gives another
 * key. */
static void the_key_contains_what_the_planner_reads(void **state)
{
    (void)state;
    static const char *const set[] = {"parallel.float8=rowwise"};
    Graph graph;
    const Config *base = config_of(set, 1, &graph);
    uint32_t n_in = 0, n_out = 0;
    for (uint32_t i = 0; field_at(false, i) != NULL; i++) {
        const Field *f = field_at(false, i);
        Draft *other = arena_alloc(arena, sizeof *other);
        other->config = *base;
        if (!in_config(f) || !change_field(f, (char *)other + f->offset)) continue;
        const bool hardware = is_of(f, "cluster") || is_of(f, "runtime");
        const bool matters = !hardware || may_matter(f);
        if (same_key(base, &other->config) == matters)
            fail_msg("%s is %s the key", f->path, matters ? "not in" : "in");
        n_in += matters;
        n_out += !matters;
    }
    assert_true(n_in > 20);
    assert_true(n_out > 500); /* fewer would mean that the table was not found */
}

/* For a plan with one pass, the key must contain every option of the pass. */
static void the_key_contains_every_option_of_passes(void **state)
{
    (void)state;
    Graph graph;
    Config *base = arena_alloc(arena, sizeof *base);
    *base = *config_of(NULL, 0, &graph);
    uint32_t n = 0;
    base->n_passes = 1;
    for (uint32_t k = 0; k < PASS_NAME_COUNT; k++) {
        base->passes[0] = draft_pass_default((PassName)k, (Loc){llama, 1});
        for (const PassOption *o = pass_specs[k]->options; o && o->field.path; o++) {
            if (o->field.kind == FIELD_table) continue;
            Config *other = arena_alloc(arena, sizeof *other);
            *other = *base;
            char *at = (char *)&other->passes[0] + o->field.offset;
            const Pattern one = {.path = "layers.*", .loc = {llama, 2}};
            if (o->field.kind == FIELD_split)
                other->passes[0].pp.split[other->passes[0].pp.n_split++] = 1;
            else if (!change_field(&o->field, at))
                list_push(arena, (Patterns *)(void *)at, one);
            if (same_key(base, other)) fail_msg("%s is not in the key", o->field.path);
            n++;
        }
    }
    assert_true(n > 50);
}

/* If an entry of a list changes, the key changes. */
static void the_key_contains_the_entries_of_lists(void **state)
{
    (void)state;
    Graph graph;
    Config *a = arena_alloc(arena, sizeof *a), *b = arena_alloc(arena, sizeof *b);
    *a = *config_of(NULL, 0, &graph);
    a->n_passes = 1;
    a->passes[0] = draft_pass_default(PASS_fsdp2, (Loc){llama, 1});
    *b = *a;
    Pattern one = {.path = "layers.*", .loc = {llama, 2}};
    list_push(arena, &a->passes[0].fsdp2.units, one);
    list_push(arena, &b->passes[0].fsdp2.units, one);
    /* the keys are equal, although the lists lie at different addresses */
    assert_true(same_key(a, b));
    b->passes[0].fsdp2.units.at[0].path = "layers.0";
    assert_false(same_key(a, b));
    b->passes[0].fsdp2.units.at[0] = one;
    b->passes[0].fsdp2.units.at[0].loc.line = 3;
    assert_false(same_key(a, b));
}

/* A text in the memory of the load must give no key: its address could belong to another text at
 * the next load. */
static void texts_in_memory_of_the_load_give_no_key(void **state)
{
    (void)state;
    Graph graph;
    Planned *planned = arena_alloc(arena, sizeof *planned);
    Arena *load = arena_new();
    const Config *config = config_of(NULL, 0, &graph);
    Str key = str_in(arena);
    config_planned(config, planned);
    assert_true(planned_key(planned, load, &key));
    planned->config.data_file = arena_dup(load, "tokens.bin");
    assert_false(planned_key(planned, load, &key));
    planned->config.data_file = NULL;
    const Pattern one = {.path = arena_dup(load, "layers.*"), .loc = {llama, 2}};
    planned->config.passes[0] = draft_pass_default(PASS_fsdp2, (Loc){llama, 1});
    assert_true(planned_key(planned, load, &key));
    list_push(arena, &planned->config.passes[0].fsdp2.units, one);
    assert_false(planned_key(planned, load, &key));
    planned->config.passes[0] = draft_pass_default(PASS_pp, (Loc){llama, 1});
    planned->config.passes[0].pp.is_own = true;
    assert_false(planned_key(planned, load, &key)); /* the script computes this schedule */
    arena_free(load);
}

/* ---- plans */

static const char *id_of(const Config *config, const Graph *graph)
{
    const PlanOptions o = {.unproven = true, .unfitted = true};
    Arena *own = arena_new();
    Diag d = diag_in(own);
    Graph copy = graph_copy(graph, own);
    PlanFile *file = session_compile(config, &copy, &o, own, &d);
    if (file == NULL) fail_msg("%s", d.items.at[0].text);
    session_identify(file);
    const char *id = arena_dup(arena, hash_hex(own, file->id));
    arena_free(own);
    return id;
}

/* `last` is the last field that was changed, or NULL for the last field of the table. */
static void check_id(const char *id, const Config *base, Draft *other, const Graph *graph,
                     const Field *last)
{
    other->config.cluster.is_local = base->cluster.is_local;
    if (strcmp(id, id_of(&other->config, graph)) != 0)
        fail_msg("a change of %s, or of a field before it, changes the plan",
                 last != NULL ? last->path : "the last field");
}

/* Compiles plans after a change of each field of the hardware and of the runtime. Several
 * neighbouring fields change together. `is_local` keeps its value: it chooses kernels, whose
 * workspace is part of the plan. */
static void hardware_outside_the_key_does_not_change_a_plan(void **state)
{
    (void)state;
    static const char *const set[] = {"model=llama:tiny", "batch.seq=64", "mesh.tp=2",
                                      "parallel.compile=block", "mesh.dp_shard=8"};
    Graph graph;
    const Config *base = config_of(set, sizeof set / sizeof *set, &graph);
    const char *id = id_of(base, &graph);
    uint32_t n = 0, n_changed = 0;
    Draft *other = NULL;
    for (uint32_t i = 0; field_at(false, i) != NULL; i++) {
        const Field *f = field_at(false, i);
        if (!is_of(f, "cluster") && !is_of(f, "runtime")) continue;
        if (n_changed == 0) {
            other = arena_alloc(arena, sizeof *other);
            other->config = *base;
        }
        if (may_matter(f) || !change_field(f, (char *)other + f->offset)) continue;
        n++;
        if (++n_changed < TOGETHER) continue;
        check_id(id, base, other, &graph, f);
        n_changed = 0;
    }
    if (n_changed > 0) check_id(id, base, other, &graph, NULL);
    assert_true(n > 500);
}

/* ---- loads of many points */

typedef struct Point {
    const char *set[MOST_SET];
    uint32_t n_set;
} Point;

/* Returns all results of a load as text: the plan, the diagnostics and the prediction. */
static const char *loaded(const Point *point, FrontScript *script, PlanReuse *reuse, bool few)
{
    Arena *own = arena_new();
    Diag d = diag_in(own);
    PlanOptions o = {.set = point->set, .n_set = point->n_set, .script = script, .reuse = reuse};
    Config *config = arena_alloc(own, sizeof *config);
    Graph graph;
    Str out = str_in(own);
    PlanFile *file = NULL;
    if (session_read(llama, &o, own, config, &graph, &d)) {
        o.fewer = few ? session_fewer(config, false) : 0;
        file = session_finish(config, &graph, &o, own, &d);
    }
    if (file != NULL) {
        const SimOptions plain = {.steps = 1};
        SimReport report;
        str_print(&out, "%s %s\n", hash_hex(own, file->id), session_text(file, own));
        assert_true(session_simulate(file, &config->cluster, &plain, own, &report, &d));
        str_print(&out, "%lld %lld %llu %u %d %llu %g\n", (long long)report.step_ps,
                  (long long)report.exposed_ps, (unsigned long long)report.peak_bytes,
                  report.collectives.n, report.fits, (unsigned long long)report.held.process_bytes,
                  report.mfu);
        str_print(&out, "%s\n", file->recipe.head);
        for (uint32_t i = 0; i < file->recipe.scripts.n; i++)
            str_print(&out, "%s\n", file->recipe.scripts.at[i].name);
    }
    diag_print(&d, &out);
    const char *all = arena_dup(arena, str_text(&out));
    arena_free(own);
    return all;
}

/* Checks that each point gives the same result with and without plans of other points. Returns how
 * many points used another point's plan. `together` points differ only in the setting that was
 * varied last, and are loaded one after the other. `without` stores the results without plans of
 * other points; NULL: not loaded yet. */
static uint32_t compare(const Point *points, uint32_t n, uint32_t together, bool few,
                        const char **without)
{
    FrontScript *script = front_open(llama, NULL, 0, arena);
    PlanReuse *reuse = reuse_new(arena);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t at = i % together * (n / together) + i / together;
        const Point *point = &points[at];
        const char *with = loaded(point, script, reuse, few);
        if (without[at] == NULL) {
            FrontScript *alone = front_open(llama, NULL, 0, arena);
            without[at] = loaded(point, alone, NULL, few);
            front_close(alone);
        }
        if (strcmp(with, without[at]) == 0) continue;
        Str name = str_in(arena);
        for (uint32_t k = 0; k < point->n_set; k++) str_print(&name, "%s ", point->set[k]);
        fail_msg("%s", str_text(&name));
    }
    const uint32_t n_found = reuse_count(reuse);
    reuse_free(reuse);
    front_close(script);
    return n_found;
}

/* Adds each of the settings to copies of `n` points. Returns the new number of points. */
static uint32_t vary(Point *points, uint32_t n, const char *const *settings, uint32_t n_settings)
{
    assert_true(n * n_settings <= MOST_POINTS);
    for (uint32_t k = n_settings; k-- > 0;)
        for (uint32_t i = 0; i < n; i++) {
            Point p = points[i];
            assert_true(p.n_set < MOST_SET);
            p.set[p.n_set++] = settings[k];
            points[k * n + i] = p;
        }
    return n * n_settings;
}
#define VARY(points, n, ...)                                                                       \
    vary(points, n, (const char *const[]){__VA_ARGS__},                                            \
         sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

static void points_of_a_sweep_are_the_same_with_reused_plans(void **state)
{
    (void)state;
    Point points[MOST_POINTS] = {{{"mesh.dp_shard=-1", "model=llama:3.2-1b", "model.layers=6"}, 3}};
    uint32_t n = VARY(points, 1, "mesh.tp=1", "mesh.tp=2");
    n = VARY(points, n, "runtime=none", "runtime=torchtitan", "runtime=nosuch");
    n = VARY(points, n, "cluster=dgx_h100", "cluster=dgx_a100", "cluster.nodes=4",
             "cluster.nic_bytes_per_s=1e9");
    const char *without[MOST_POINTS] = {NULL};
    compare(points, n, 1, true, without);
    assert_true(compare(points, n, 4, true, without) >= 5);
}

/* The architecture decides the layout of 8-bit copies. So plans for two architectures must differ,
 * also if --cluster names them. */
static void plans_of_two_architectures_are_not_shared(void **state)
{
    (void)state;
    Point points[MOST_POINTS] = {{{"mesh.dp_shard=-1", "model=llama:3.2-1b", "model.layers=6"}, 3}};
    uint32_t n = VARY(points, 1, "parallel.float8=rowwise", "parallel.ac=none");
    n = VARY(points, n, "runtime=none", "runtime=torchtitan");
    n = VARY(points, n, "gpu=h100", "gpu=b200", "gpu=h200", "cluster=hgx_b200");
    /* Three of four points use the first one's plan, except with float8{} on Tandem's own
     * executor. */
    const char *without[MOST_POINTS] = {NULL};
    assert_int_equal(compare(points, n, 4, false, without), 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, test_arena_setup, test_arena_teardown)
        TEST(the_key_contains_what_the_planner_reads),
        TEST(the_key_contains_every_option_of_passes),
        TEST(the_key_contains_the_entries_of_lists),
        TEST(texts_in_memory_of_the_load_give_no_key),
        TEST(hardware_outside_the_key_does_not_change_a_plan),
        TEST(points_of_a_sweep_are_the_same_with_reused_plans),
        TEST(plans_of_two_architectures_are_not_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
