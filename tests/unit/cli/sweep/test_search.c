/* `tandem search` does not compute every point, but must find the winner of an exhaustive search.
 * `tandem fit` must find a change that fits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/base/str.h"
#include "tests/support/document.h"

/* Each point of the space has a row, which says why the point lost. */
static void csv_says_why_each_point_lost(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    CommandResult r =
        COMMAND(arena, 400, "search", TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua", "--csv",
                "--db", "none", "--set", "batch.micro=4", "--set", "model.layers=8", "--set",
                "parallel.fsdp2=true", "--set", "parallel.ac=none");
    assert_int_equal(r.exit_code, 0);
    uint32_t n_fit = 0, n_bounded = 0, n = 0;
    const char *line = strchr(r.out, '\n') + 1;
    assert_memory_equal(r.out, "place,status,step_s,", 20);
    for (; *line != 0; line = strchr(line, '\n') + 1, n++) {
        const size_t length = strcspn(line, "\n");
        const char *row = arena_copy(arena, line, length);
        const bool same = strstr(row, "a proposed point makes the same plan") != NULL;
        const bool fits = !same && strstr(row, ",fits,") != NULL;
        if (fits) assert_int_equal(strtoul(row, NULL, 10), ++n_fit);
        if (n_fit > 10 && fits) assert_non_null(strstr(row, "points are faster; the best step is"));
        n_bounded += strstr(row, ",bounded,,,,,bound-") != NULL;
        if (!fits) assert_null(strstr(row, ",,,,,,,"));
        assert_true(same || strstr(row, "mesh.") != NULL);
    }
    assert_true(n_fit >= 5);
    assert_true(n_bounded >= 1);
    assert_true(n >= n_fit + n_bounded);
    arena_free(arena);
}

static json_t *document(Arena *arena, int code, const char *command)
{
    CommandResult r = command_run_program(
        arena, 400,
        (const char *const[]){"sh", "-c",
                              arena_print(arena, "'%s' %s --json", TANDEM_COMMAND, command), NULL});
    return document_of(r, code);
}

static json_int_t number(const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);
    if (!json_is_integer(value)) fail_msg("no number '%s'", key);
    return json_integer_value(value);
}

static const char *write_plan(Arena *arena, const char *folder, const char *name,
                              const char *cluster, int64_t layers, int64_t batch, int64_t seq)
{
    const char *plan = arena_print(arena, "%s/%s.lua", folder, name);
    command_write_file(
        plan, arena_print(arena,
                          "local m = require 'models.llama' '3.1-8b'\n"
                          "return plan { model = m, cluster = require 'clusters.%s' { nodes = 1 "
                          "}, batch = { global = %lld, micro = 1, seq = %lld }, mesh = { dp_shard "
                          "= -1 }, parallel = { ac 'selective', fsdp2 {} }, precision = { param "
                          "= 'fp32', compute = 'bf16', reduce = 'fp32' }, optimizer = adamw {} }"
                          "-- %lld layers\n",
                          cluster, (long long)batch, (long long)seq, (long long)layers));
    return plan;
}

/* Slower builds take every fourth of the spaces. */
#ifdef __SANITIZE_ADDRESS__
enum { SPACE_STEP = 4 };
#else
enum { SPACE_STEP = 1 };
#endif

/* Ten spaces with different depths, batches, sequences and GPUs. Memory, pipeline bubbles and
 * recomputation decide differently in each. */
static void search_finds_the_exhaustive_winner(void **state)
{
    (void)state;
    static const struct {
        const char *cluster;
        int layers, batch, seq;
        const char *fixed;
    } spaces[] = {
        {"dgx_h100", 2, 8, 2048, ""},
        {"dgx_h100", 2, 16, 8192, ""},
        {"dgx_h100", 4, 16, 4096, "--set parallel.ac=full"},
        {"dgx_h100", 4, 32, 2048, "--set mesh.tp=2"},
        {"dgx_a100", 2, 8, 4096, ""},
        {"dgx_a100", 4, 16, 16384, "--set parallel.fsdp2=true"},
        {"dgx_a100", 8, 16, 8192, "--set mesh.pp=4 --set parallel.pp=1f1b"},
        {"dgx_a100", 8, 64, 2048, "--set mesh.tp=1"},
        {"dgx_h100", 8, 16, 16384, "--set batch.micro=1"},
        {"dgx_h100", 16, 16, 32768, "--set mesh.tp=8 --set mesh.dp_shard=1 --set mesh.pp=1"},
    };
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    json_int_t points = 0, bounded = 0;
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i += SPACE_STEP) {
        const char *plan =
            write_plan(arena, folder, arena_print(arena, "p%zu", i), spaces[i].cluster,
                       spaces[i].layers, spaces[i].batch, spaces[i].seq);
        const char *command = arena_print(arena, "search %s --db none --set model.layers=%d %s",
                                          plan, spaces[i].layers, spaces[i].fixed);
        json_t *pruned = document(arena, 0, command),
               *all = document(arena, 0, arena_print(arena, "%s --exhaustive", command));
        const json_t *a = json_array_get(json_object_get(pruned, "best"), 0),
                     *b = json_array_get(json_object_get(all, "best"), 0);
        assert_int_equal(number(a, "step_ps"), number(b, "step_ps"));
        assert_string_equal(json_string_value(json_object_get(a, "settings")),
                            json_string_value(json_object_get(b, "settings")));
        assert_int_equal(number(pruned, "points"), number(all, "points"));
        assert_int_equal(number(all, "bound_memory") + number(all, "bound_time"), 0);
        points += number(pruned, "points");
        bounded += number(pruned, "bound_memory") + number(pruned, "bound_time");
        json_decref(pruned);
        json_decref(all);
    }
    printf("%lld points, %lld decided by a bound\n", (long long)points, (long long)bounded);
    assert_true(bounded > 0);
    arena_free(arena);
}

/* `sim` gives the same numbers for the winner as `search`. */
static void sim_gives_the_same_numbers_for_the_winner(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena),
               *plan = write_plan(arena, folder, "p", "dgx_h100", 2, 8, 2048),
               *db = arena_print(arena, "%s/t.db", folder);
    json_t *found =
        document(arena, 0, arena_print(arena, "search %s --db %s --set model.layers=2", plan, db));
    const json_t *best = json_array_get(json_object_get(found, "best"), 0);
    json_t *sim = document(arena, 0,
                           arena_print(arena, "sim %s --db %s --set model.layers=2 %s", plan, db,
                                       json_string_value(json_object_get(best, "settings"))));
    assert_int_equal(number(sim, "step_ps"), number(best, "step_ps"));
    assert_int_equal(number(sim, "run"), number(best, "run"));
    const json_t *front = json_object_get(found, "front");
    for (size_t i = 1; i < json_array_size(front); i++) {
        assert_true(number(json_array_get(front, i), "step_ps") >=
                    number(json_array_get(front, i - 1), "step_ps"));
        assert_true(number(json_array_get(front, i), "peak_bytes") <
                    number(json_array_get(front, i - 1), "peak_bytes"));
    }
    json_decref(found);
    json_decref(sim);
    arena_free(arena);
}

static void the_plan_without_changes_is_a_point(void **state)
{
    (void)state;
    static const char plan[] = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";
    Arena *arena = arena_new();
    json_t *list = document(
        arena, 0,
        arena_print(arena, "search %s --dry-run --where 'tp*pp <= 2 and micro == 1'", plan));
    const json_t *points = json_object_get(list, "settings");
    const size_t n = json_array_size(points);
    bool four = false;
    assert_true(n > 1);
    for (size_t i = 0; i < n; i++)
        four = four || strstr(json_string_value(json_array_get(points, i)), "mesh.tp=4") != NULL;
    assert_false(four);
    assert_string_equal(json_string_value(json_array_get(points, n - 1)), "");
    json_decref(list);
    list = document(arena, 0, arena_print(arena, "search %s --dry-run --where 'tp == 4'", plan));
    points = json_object_get(list, "settings");
    for (size_t i = 0; i < json_array_size(points); i++)
        assert_string_not_equal(json_string_value(json_array_get(points, i)), "");
    json_decref(list);
    CommandResult r = COMMAND(arena, 100, "search", plan, "--dry-run", "--set", "mesh.pp=8",
                              "--set", "mesh.tp=1", "--set", "model.layers=36");
    assert_int_equal(r.exit_code, 0);
    assert_non_null(strstr(r.err, "mesh.pp = 8 does not divide the 36 layers: only the plan"));
    assert_string_equal(r.out, "--set mesh.dp_shard=-1\n");
    arena_free(arena);
}

static void fit_changes_one_thing(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena),
               *plan = write_plan(arena, folder, "p", "dgx_h100", 8, 32, 8192);
    json_t *out =
        document(arena, 0, arena_print(arena, "fit %s --db none --set model.layers=8", plan));
    assert_true(json_is_true(json_object_get(out, "fits")));
    const json_int_t most = number(json_object_get(out, "micro"), "most");
    assert_true(most >= 1);
    json_decref(out);
    if (most < 4) { /* Twice this micro-batch does not fit, so `fit` must propose a smaller one. */
        const char *larger =
            arena_print(arena, "fit %s --db none --set model.layers=8 --set batch.micro=%lld", plan,
                        (long long)most * 2);
        out = document(arena, 0, larger);
        assert_true(json_is_false(json_object_get(out, "fits")));
        const json_t *changes = json_object_get(out, "changes");
        assert_true(json_array_size(changes) > 0);
        const char *settings =
            json_string_value(json_object_get(json_array_get(changes, 0), "settings"));
        json_t *sim = document(arena, 0,
                               arena_print(arena,
                                           "sim %s --db none --set model.layers=8 --set "
                                           "batch.micro=%lld %s",
                                           plan, (long long)most * 2, settings));
        assert_true(json_is_true(json_object_get(sim, "fits")));
        json_decref(sim);
        json_decref(out);
    }
    arena_free(arena);
}

/* A field model splits rows and columns over ranks instead of tokens. The shipped plan lists no
 * domain{}. */
static void a_field_model_is_searched_over_its_rows_and_columns(void **state)
{
    (void)state;
    static const char *const axes[] = {"domain", "domain_w"};
    Arena *arena = arena_new();
    const char *plan = TANDEM_SOURCE_DIR "/scripts/plans/unet_wave.lua";
    for (size_t a = 0; a < 2; a++) {
        json_t *found = document(
            arena, 0,
            arena_print(arena, "search %s --db none --cluster dgx_a100 --nodes 1 --set mesh.%s=2",
                        plan, axes[a]));
        const json_t *best = json_array_get(json_object_get(found, "best"), 0);
        const char *settings = json_string_value(json_object_get(best, "settings"));
        assert_non_null(settings);
        assert_non_null(strstr(settings, "parallel.domain=true"));
        assert_null(strstr(settings, "mesh.cp"));
        json_t *sim = document(
            arena, 0,
            arena_print(arena, "sim %s --db none --cluster dgx_a100 --nodes 1 --set mesh.%s=2 %s",
                        plan, axes[a], settings));
        const json_t *mesh = json_object_get(sim, "mesh");
        assert_int_equal(number(mesh, axes[a]), 2);
        assert_int_equal(number(sim, "step_ps"), number(best, "step_ps"));
        json_decref(sim);
        json_decref(found);
    }
    arena_free(arena);
}

static void fit_proposes_to_split_rows_over_ranks(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    json_t *out = document(arena, 0,
                           "fit " TANDEM_SOURCE_DIR "/scripts/plans/wxformer_domain.lua --db none "
                           "--set cluster.device.memory_bytes=13e9 --set parallel.ac=none "
                           "--set mesh.domain=1 --set parallel.domain=none --set mesh.dp_shard=8");
    const json_t *changes = json_object_get(out, "changes");
    bool rows = false;
    assert_true(json_is_false(json_object_get(out, "fits")));
    for (size_t i = 0; i < json_array_size(changes); i++) {
        const char *settings =
            json_string_value(json_object_get(json_array_get(changes, i), "settings"));
        rows = rows || strstr(settings, "mesh.domain=2") != NULL;
    }
    assert_true(rows);
    json_decref(out);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(csv_says_why_each_point_lost),
        cmocka_unit_test(search_finds_the_exhaustive_winner),
        cmocka_unit_test(sim_gives_the_same_numbers_for_the_winner),
        cmocka_unit_test(the_plan_without_changes_is_a_point),
        cmocka_unit_test(fit_changes_one_thing),
        cmocka_unit_test(a_field_model_is_searched_over_its_rows_and_columns),
        cmocka_unit_test(fit_proposes_to_split_rows_over_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
