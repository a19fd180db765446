/* The key of a prediction, and the way from a script to its prediction. If a value were missing in
 * the key, the store would answer with another plan's prediction. Tests of the key are generated
 * from the table that reads a plan, so they cover a new field automatically. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/front/draft/draft.h"
#include "planner/front/keys/fields.h"
#include "planner/front/parent.h"
#include "session/needs.h"
#include "session/session.h"
#include "tests/support/command.h"
#include "tests/support/fields/change_field.h"
#include "tests/support/test_arena.h"

static bool is_of(const char *path, const char *table)
{
    size_t n = strlen(table);
    return strncmp(path, table, n) == 0 && path[n] == '.';
}

static Draft *draft(void)
{
    static const PlanOptions none = {.unproven = true};
    static const char path[] = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";
    static const char *const set[] = {"runtime=torchtitan"};
    Draft *d = arena_alloc(arena, sizeof *d);
    PlanOptions options = none;
    options.set = set;
    options.n_set = 1;
    Diag diag = diag_in(arena);
    Graph graph;
    bool fine = session_read(path, &options, arena, &d->config, &graph, &diag);
    if (!fine) fail_msg("%s", diag.items.at[0].text);
    assert_non_null(d->config.runtime.name);
    return d;
}

static const char *key_of(const Draft *d)
{
    const Config *c = &d->config;
    return arena_print(arena, "%s, %s", cluster_text(arena, &c->cluster),
                       calibration_id(&c->cluster, &c->runtime, NULL, arena));
}

static void every_field_of_hardware_and_runtime_is_in_the_key(void **state)
{
    (void)state;
    uint32_t n_changed = 0, n_idle = 0;
    const Draft *base = draft();
    const char *key = key_of(base);
    for (uint32_t i = 0; field_at(false, i) != NULL; i++) {
        const Field *f = field_at(false, i);
        if (!is_of(f->path, "cluster") && !is_of(f->path, "runtime")) continue;
        Draft other = *base;
        if (!change_field(f, (char *)&other + f->offset)) continue;
        const char *why = field_why_idle(f->path);
        const bool changes = strcmp(key, key_of(&other)) != 0;
        /* The cluster's name is a part of the key, but not of the hash. */
        if (!changes && why == NULL) fail_msg("%s is not in the key of a prediction", f->path);
        if (why != NULL) assert_true(strlen(why) > 20);
        n_changed += changes;
        n_idle += why != NULL;
    }
    assert_true(n_changed > 500); /* fewer would mean that the table was not found */
    assert_true(n_idle < 5);
}

/* A number out of bounds must be refused both as an integer and as a whole float. */
static void whole_floats_have_the_bounds_of_integers(void **state)
{
    (void)state;
    uint32_t n = 0;
    for (int of_pass = 0; of_pass < 2; of_pass++)
        for (uint32_t i = 0; field_at(of_pass, i) != NULL; i++) {
            const Field *f = field_at(of_pass, i);
            bool is_whole = f->kind == FIELD_i64 || f->kind == FIELD_u32 || f->kind == FIELD_u64 ||
                            f->kind == FIELD_axis;
            if (!is_whole || f->least < -1e9) continue;
            int64_t outside = f->kind == FIELD_axis ? 0 : (int64_t)f->least - 1;
            char at[2][16];
            for (int as_float = 0; as_float < 2; as_float++) {
                Diag d = diag_in(arena);
                Draft draft = draft_new(arena, &d);
                Value v = {.kind = as_float ? RECORD_number : RECORD_int,
                           .integer = as_float ? 0 : outside,
                           .number = as_float ? (double)outside : 0,
                           .text = ""};
                bool taken = draft_store(&draft, f->path, f, (Loc){"p.lua", 1}, &v, at[as_float]);
                if (taken || d.n_errors != 1)
                    fail_msg("%s = %lld as %s is taken", f->path, (long long)outside,
                             as_float ? "a float" : "an integer");
                assert_string_equal(d.items.at[0].rule, "out-of-range");
            }
            n++;
        }
    printf("%u fields of whole numbers\n", n);
    assert_true(n > 40); /* fewer would mean that the tables were not found */
}

/* Each name that the key leaves out must be that of a field. A misspelt name would excuse no field.
 */
static void fields_without_effect_exist(void **state)
{
    (void)state;
    uint32_t n = 0;
    for (uint32_t i = 0; field_at(false, i) != NULL; i++)
        n += field_why_idle(field_at(false, i)->path) != NULL;
    assert_int_equal(n, 3);
}

/* The simulator interpolates between measured sizes. So a measurement at a neighbouring size
 * changes the key. */
static void a_neighbouring_measurement_changes_the_key(void **state)
{
    (void)state;
    static const char path[] = TANDEM_SOURCE_DIR "/scripts/plans/tiny_text.lua";
    Diag d = diag_in(arena);
    const PlanOptions options = {.unproven = true, .unfitted = true};
    PlanFile *file = session_load(path, &options, arena, &d);
    assert_non_null(file);
    Store *store = store_open(":memory:", false, &d);
    assert_non_null(store);
    Needs needs;
    needs_find(file->plan, store, "here", "mpi", arena, &needs, &d);
    assert_true(needs.collectives.n > 0);
    const CollectiveNeed need = needs.collectives.at[0];
    const Config *c = &file->config;
    const char *before = calibration_id(&c->cluster, &c->runtime, &needs, arena);
    assert_true(store_put_collective(store, "here", "mpi", need.op, need.n_ranks, 2 * need.bytes,
                                     12345, &d));
    needs_find(file->plan, store, "here", "mpi", arena, &needs, &d);
    assert_int_equal(needs.collectives.at[0].known_ps, -1);
    const char *after = calibration_id(&c->cluster, &c->runtime, &needs, arena);
    assert_string_not_equal(before, after);
    store_close(store);
}

/* Two scenarios that differ only in the ninth digit must have two keys. */
static void the_key_contains_all_digits_of_a_scenario(void **state)
{
    (void)state;
    static const char path[] = TANDEM_SOURCE_DIR "/scripts/plans/tiny_text.lua";
    Diag d = diag_in(arena);
    const PlanOptions load = {.unproven = true, .unfitted = true};
    PlanFile *file = session_load(path, &load, arena, &d);
    Store *store = store_open(":memory:", false, &d);
    assert_true(file != NULL && store != NULL);
    const double factors[] = {1.10000001, 1.10000002, 1.10000001}, jitters[] = {.1, .1, .1};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        const Unevenness uneven = {
            .jitter = jitters[i], .straggler_factor = factors[i], .seed = file->config.seed};
        const PredictOptions options = {.cluster = &file->config.cluster,
                                        .backend = "mpi",
                                        .keep = true,
                                        .unfolded = true,
                                        .imbalance = 1,
                                        .uneven = &uneven};
        Predicted out;
        assert_true(session_predict(file, store, &options, arena, &out, &d));
        assert_int_equal(out.found, i == 2);
    }
    store_close(store);
}

/* A report that was made ahead may serve only a plain prediction. The test marks the report with a
 * wrong time.
 */
static void a_simulation_made_ahead_serves_only_plain_predictions(void **state)
{
    (void)state;
    static const char path[] = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";
    Diag d = diag_in(arena);
    const PlanOptions load = {.unproven = true, .unfitted = true, .unplaced = true};
    PlanFile *file = session_load(path, &load, arena, &d);
    assert_non_null(file);
    const Cluster copy = file->config.cluster;
    const PredictOptions plain = session_plain_options(file);
    PredictOptions other[4] = {plain, plain, plain, plain};
    other[0].trace = true;
    other[1].unfolded = true;
    other[2].imbalance = 2;
    other[3].cluster = &copy;
    Predicted before, after;
    assert_true(session_predict(file, NULL, &plain, arena, &before, &d));
    assert_false(session_has_prediction(file, NULL, &plain, arena));
    session_simulate_ahead(file, arena);
    assert_true(file->ahead->known);
    assert_int_equal(file->ahead->report.step_ps, before.record.step_ps);
    file->ahead->report.step_ps++;
    assert_true(session_predict(file, NULL, &plain, arena, &after, &d));
    assert_int_equal(after.record.step_ps, before.record.step_ps + 1);
    assert_int_equal(after.n_events, before.n_events);
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        assert_true(session_predict(file, NULL, &other[i], arena, &after, &d));
        assert_int_equal(after.record.step_ps, before.record.step_ps);
    }
}

static Ps step_of(const char *script, const char *db, const char *setting)
{
    CommandResult r = COMMAND(arena, 60, "sim", script, "--db", db, "--json", "--set", setting);
    const char *at = strstr(r.out, "\n  \"step_ps\":");
    if (r.exit_code != 0 && r.exit_code != 4) fail_msg("%s: %s", setting, r.err);
    assert_non_null(at);
    return strtoll(at + strlen("\n  \"step_ps\":"), NULL, 10);
}

/* From one store, the second plan once got the first plan's number. */
static void a_store_distinguishes_settings(void **state)
{
    (void)state;
    const char *folder = command_new_folder(arena);
    const char *db = arena_print(arena, "%s/a.db", folder);
    const char *script = arena_print(arena, "%s/a.lua", folder);
    command_write_file(script, "return plan { model = require 'models.llama' '3.1-8b',\n"
                               "cluster = require 'clusters.dgx_h100' { nodes = 1 },\n"
                               "batch = { global = 16, micro = 1, seq = 2048 },\n"
                               "mesh = { dp_shard = 8 }, parallel = { fsdp2 {} },\n"
                               "precision = { compute = 'bf16' },\n"
                               "runtime = require 'runtimes.torchtitan' }\n");
    static const char *const settings[] = {"runtime.step_s=0.5", "runtime.step_s=0.25",
                                           "cluster.collective_launch_s=1e-3",
                                           "runtime.kernel_s=1e-4"};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        Ps kept = step_of(script, db, settings[i]), fresh = step_of(script, "none", settings[i]);
        assert_int_equal(kept, fresh);
        /* the prediction is found in the store */
        assert_int_equal(kept, step_of(script, db, settings[i]));
    }
}

static void refuses(const char *const *words, const char *rule)
{
    CommandResult r = command_run(arena, 60, words);
    if (r.exit_code != 3 || strstr(r.err, arena_print(arena, "error[%s]", rule)) == NULL)
        fail_msg("%s: exit %d: %s", rule, r.exit_code, r.err);
}

/* The named cluster is read first, and then the settings change it. */
static void settings_change_a_named_cluster(void **state)
{
    (void)state;
    static const char path[] = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";
    static const char *const slow[] = {"cluster.nic_bytes_per_s=1e9",
                                       "cluster.device.hbm_bytes_per_s=1e11"};
    Config named, set;
    Graph graph;
    Diag d = diag_in(arena);
    PlanOptions options = {.cluster = "dgx_a100"};
    assert_true(session_read(path, &options, arena, &named, &graph, &d));
    options.set = slow;
    options.n_set = 2;
    assert_true(session_read(path, &options, arena, &set, &graph, &d));
    assert_string_equal(set.cluster.name, named.cluster.name);
    assert_true(set.cluster.nic_bytes_per_s == 1e9 && named.cluster.nic_bytes_per_s > 2e9);
    assert_true(set.cluster.device.hbm_bytes_per_s == 1e11);
    assert_true(set.cluster.intra_bytes_per_s == named.cluster.intra_bytes_per_s);
    assert_int_equal(set.cluster.nodes, named.cluster.nodes);
    static const char *const nodes[] = {"cluster.nodes=4", "mesh.dp_shard=-1"};
    options.set = nodes;
    assert_true(session_read(path, &options, arena, &set, &graph, &d));
    assert_int_equal(set.cluster.nodes, 4);
    assert_int_equal(set.axis_size[AXIS_dp_shard] * set.axis_size[AXIS_tp], 32);
}

static void rates_out_of_bounds_are_refused(void **state)
{
    (void)state;
    static const char path[] = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";
    static const char *const cases[][2] = {
        {"cluster.nic_bytes_per_s=0", "cluster-network"},
        {"cluster.nics_per_node=0", "cluster-network"},
        {"cluster.nic_bytes_per_s=5", "out-of-range"},
        {"cluster.nic_bytes_per_s=1e300", "out-of-range"},
        {"cluster.intra_bytes_per_s=0", "out-of-range"},
        {"cluster.device.hbm_bytes_per_s=1", "out-of-range"},
        {"cluster.device.peak_flops.bf16=1", "out-of-range"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const words[] = {"sim", path, "--db", "none", "--set", cases[i][0], NULL};
        refuses(words, cases[i][1]);
    }
}

/* With these rates at their bounds, the step takes more than an hour, and its parts still fit into
 * it. */
static void the_slowest_network_overflows_nothing(void **state)
{
    (void)state;
    static const char path[] = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";
    static const char *const set[] = {"cluster.nic_bytes_per_s=1e6", "cluster.oversubscription=15"};
    PlanOptions options = {.set = set, .n_set = 2, .unproven = true};
    Diag d = diag_in(arena);
    const PlanFile *file = session_load(path, &options, arena, &d);
    assert_non_null(file);
    SimReport report;
    const SimOptions how = {.steps = 1};
    assert_true(session_simulate(file, &file->config.cluster, &how, arena, &report, &d));
    assert_true(report.step_ps > 3600 * PS_PER_S);
    assert_true(report.compute_ps > 0 && report.exposed_ps > report.step_ps / 2);
    assert_true(report.compute_ps + report.exposed_ps <= report.step_ps);
}

static void a_step_too_long_to_count_is_an_error(void **state)
{
    (void)state;
    static const char path[] = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";
    const char *const words[] = {"sim",   path,
                                 "--db",  "none",
                                 "--set", "cluster.nic_bytes_per_s=1e6",
                                 "--set", "cluster.oversubscription=1e6",
                                 NULL};
    refuses(words, "step-too-long");
}

static void picoseconds_saturate(void **state)
{
    (void)state;
    assert_int_equal(ps_of(0), 0);
    assert_int_equal(ps_of(-1), 0);
    assert_int_equal(ps_of(0.0 / 1e-300 * -1), 0);
    assert_int_equal(ps_of(1.5), 2);
    assert_int_equal(ps_of(0x1p56), INT64_C(1) << 56);
    assert_int_equal(ps_of(1e300), PS_MOST);
    assert_int_equal(ps_of(1.0 / 0.0), PS_MOST);
    assert_true(9 * PS_MOST > 0);
}

/* A list is read to its last byte, even if that is not the end of a line. Lines of another form are
 * skipped.
 */
static void a_list_of_scripts_is_read_to_its_end(void **state)
{
    (void)state;
    static const RecipeScript two[] = {
        {.name = "models/b.lua", .shipped = true, .hash = {1, UINT64_MAX}}, {.name = "a b.lua"}};
    Recipe written = {.head = NULL}, read = {.head = NULL}, cut = {.head = NULL};
    for (size_t i = 0; i < 2; i++) recipe_add(&written, &two[i], arena);
    const char *list = store_script_list(&written, arena);
    recipe_add_list(&read, list, arena);
    recipe_add_list(&cut, arena_copy(arena, list, strlen(list) - 1), arena);
    assert_string_equal(store_script_list(&read, arena), list);
    assert_string_equal(store_script_list(&cut, arena), list);
    assert_true(recipe_was_absent(&read.scripts.at[1]));
    assert_false(recipe_was_absent(&read.scripts.at[0]));
    recipe_add_list(&read, arena_print(arena, "own 12\n\nlibrary \n"), arena);
    assert_int_equal(read.scripts.n, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, test_arena_setup, test_arena_teardown)
        TEST(every_field_of_hardware_and_runtime_is_in_the_key),
        TEST(fields_without_effect_exist),
        TEST(whole_floats_have_the_bounds_of_integers),
        TEST(a_neighbouring_measurement_changes_the_key),
        TEST(the_key_contains_all_digits_of_a_scenario),
        TEST(a_simulation_made_ahead_serves_only_plain_predictions),
        TEST(a_store_distinguishes_settings),
        TEST(settings_change_a_named_cluster),
        TEST(rates_out_of_bounds_are_refused),
        TEST(the_slowest_network_overflows_nothing),
        TEST(a_step_too_long_to_count_is_an_error),
        TEST(picoseconds_saturate),
        TEST(a_list_of_scripts_is_read_to_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
