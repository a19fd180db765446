/* tandem sweep FILE.lua: vary, where, require and score of a script give the same points and
 * ranking as the same values on the command line. Mistakes in the script are reported with their
 * line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "planner/base/str.h"
#include "tests/support/document.h"
#include "tests/support/test_arena.h"

/* Writes "return sweep { plan = ..., <body> }" with two layers of Llama 8B; the body begins on
 * line 3. */
static const char *script(const char *body)
{
    const char *path = arena_print(arena, "%s/s.lua", command_new_folder(arena));
    command_write_file(
        path, arena_print(arena, "return sweep {\n  plan = 'plans/llama3_8b.lua',\n%s\n}\n", body));
    return path;
}

#define SWEEP(path, ...)                                                                           \
    COMMAND(arena, 120, "sweep", path, "--set", "model.layers=2", "--set", "mesh.dp_shard=-1",     \
            "--db", "none", __VA_ARGS__)

/* The documents that a test has read; it releases them at its end. */
static json_t *documents[8];
static uint32_t n_documents;

static json_t *kept(json_t *root)
{
    assert_true(n_documents < sizeof documents / sizeof *documents);
    documents[n_documents++] = root;
    return root;
}

static int teardown(void **state)
{
    while (n_documents > 0) json_decref(documents[--n_documents]);
    return test_arena_teardown(state);
}

static json_t *rows_of(CommandResult r, int code)
{
    return json_object_get(kept(document_of(r, code)), "rows");
}

static const char *text_of(const json_t *rows, size_t i, const char *key)
{
    return json_string_value(json_object_get(json_array_get(rows, i), key));
}

static double number_of(const json_t *rows, size_t i, const char *key)
{
    return json_number_value(json_object_get(json_array_get(rows, i), key));
}

/* Nested tables and dotted keys name the same settings. */
static void a_script_gives_the_points_of_the_command_line(void **state)
{
    (void)state;
    const char *nested =
        script("vary = { batch = { micro = { 1, 2 } }, mesh = { tp = { 2, 4 } } }");
    const char *dotted = script("vary = { ['batch.micro'] = { 1, 2 }, ['mesh.tp'] = { 2, 4 } }");
    const char *plan = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";
    const json_t *a = rows_of(SWEEP(nested, "--json"), 0), *b = rows_of(SWEEP(dotted, "--json"), 0),
                 *c = rows_of(
                     SWEEP(plan, "--try", "batch.micro=1,2", "--try", "mesh.tp=2,4", "--json"), 0);
    assert_int_equal(json_array_size(a), 4);
    assert_true(json_equal(a, b));
    assert_true(json_equal(a, c));
}

/* All kinds of values arrive as themselves in the functions. */
static void where_sees_settings_and_sizes(void **state)
{
    (void)state;
    const char *path =
        script("vary = { mesh = { tp = { 1, 2, 4 } }, parallel = { ac = { 'none', 'full' },\n"
               "  fsdp2 = { reshard_after_forward = { true, false } } } },\n"
               "where = function(s)\n"
               "  assert(s['mesh.tp'] == s.tp and s.pp == 1 and s.ac == s['parallel.ac'])\n"
               "  return s.tp + s.pp <= 3 and s.ac == 'full' and not s.reshard_after_forward\n"
               "end");
    CommandResult r = SWEEP(path, "--dry-run");
    assert_int_equal(r.exit_code, 0);
    assert_string_equal(r.out, "--set mesh.tp=1 --set parallel.ac=full --set "
                               "parallel.fsdp2.reshard_after_forward=false\n"
                               "--set mesh.tp=2 --set parallel.ac=full --set "
                               "parallel.fsdp2.reshard_after_forward=false\n");
    r = SWEEP(path, "--try", "mesh.tp=2", "--where", "tp > 1", "--dry-run");
    assert_string_equal(r.out, "--set mesh.tp=2 --set parallel.ac=full --set "
                               "parallel.fsdp2.reshard_after_forward=false\n");
    r = SWEEP(path, "--try", "mesh.tp=4", "--dry-run");
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.err, "`where` leaves none of 4 combinations"));
}

/* The score reverses the ranking. A point that `require` rejects comes last, with its reason. */
static void score_ranks_and_require_sorts_out(void **state)
{
    (void)state;
    const char *path = script("vary = { mesh = { tp = { 1, 2, 4 } } },\n"
                              "require = function(r, s) return s.tp ~= 2, 'tp is ' .. s.tp end,\n"
                              "score = { hurry = function(r) return r.tokens_per_s end }");
    const json_t *rows = rows_of(SWEEP(path, "--json"), 0);
    assert_int_equal(json_array_size(rows), 3);
    assert_string_equal(text_of(rows, 0, "status"), "fits");
    assert_string_equal(text_of(rows, 2, "status"), "unmet");
    assert_string_equal(text_of(rows, 2, "reason"), "tp is 2");
    assert_true(number_of(rows, 0, "tokens_per_s") < number_of(rows, 1, "tokens_per_s"));
    for (size_t i = 0; i < 3; i++)
        assert_true(number_of(rows, i, "score") == number_of(rows, i, "tokens_per_s"));
    CommandResult r = SWEEP(path, "-q");
    assert_non_null(strstr(r.out, "3 fit (1 short of `require`), 0 do not"));
    assert_non_null(strstr(r.out, "best by hurry first"));
    assert_non_null(strstr(r.out, "  mesh.tp=2: tp is 2\n"));
    rows = rows_of(SWEEP(path, "--json", "--by", "tokens"), 0);
    assert_true(number_of(rows, 0, "tokens_per_s") > number_of(rows, 1, "tokens_per_s"));
    const char *none = script("vary = { mesh = { tp = { 1 } } },\n"
                              "require = function(r) return r.mfu > 2 end");
    r = SWEEP(none, "-q");
    assert_int_equal(r.exit_code, 4);
    assert_non_null(strstr(r.err, "of 1 combination that fits, none fulfils `require`"));
}

/* A changed score ranks the stored points anew. */
static void points_are_found_again_under_another_score(void **state)
{
    (void)state;
    const char *store = arena_print(arena, "%s/x.db", command_new_folder(arena));
    for (int i = 0; i < 2; i++) {
        const char *path =
            script(i == 0 ? "vary = { mesh = { tp = { 1, 2 } } }"
                          : "vary = { mesh = { tp = { 2 } } }, score = function(r) return r.step_s "
                            "end");
        CommandResult r = COMMAND(arena, 120, "sweep", path, "--set", "model.layers=2", "--set",
                                  "mesh.dp_shard=-1", "--db", store, "--json");
        const json_t *rows = rows_of(r, 0);
        assert_int_equal(json_array_size(rows), i == 0 ? 2 : 1);
        assert_true(number_of(rows, 0, "run") <= 2);
    }
    CommandResult r = COMMAND(arena, 60, "runs", "--db", store, "--json");
    assert_int_equal(json_array_size(json_object_get(kept(document_of(r, 0)), "runs")), 2);
}

static void mistakes_are_told_with_their_line(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"", "s.lua:1: error[missing-key]: the sweep has no vary"},
        {"vry = {}",
         "s.lua:3: error[unknown-key]: sweep has no key 'vry'\n  hint: did you mean 'vary'?"},
        {"vary = {}", "s.lua:3: error[wrong-type]: vary needs a table of settings"},
        {"vary = { mesh = { tp = 3 } }", "s.lua:3: error[wrong-type]: vary.mesh.tp needs a list"},
        {"vary = { mesh = { tp = { 1, x = 2 } } }", "vary.mesh.tp has both values and keys"},
        {"vary = { mesh = { tp = {\n1, {} } } }", "vary.mesh.tp has a value that is a table"},
        {"vary = { mesh = {\ntpp = { 1, 2 } } }",
         "s.lua:4: error[unknown-key]: unknown key 'tpp' in mesh{} (in each of 2 combinations)\n"
         "  hint: did you mean 'pp'?"},
        {"vary = { { 1 } }", "vary has values, but no setting that would take them"},
        {"vary = { mesh = { tp = {\n1, 1 } } }",
         "s.lua:4: error[option-value]: vary.mesh.tp: the value 1 comes twice"},
        {"vary = { ['mesh.tp'] = { 1 },\nmesh = { tp = { 1, 2 } } }",
         "s.lua:3: error[option-value]: vary.mesh.tp comes twice"},
        {"vary = { mesh = { tp = { 1 } } }, where = 3", "where needs a function, not number"},
        {"vary = { mesh = { tp = { 1 } } },\nscore = { function() return 1 end }",
         "s.lua:4: error[wrong-type]: score has no name"},
        {"vary = { mesh = { tp = { 1 } } },\nwhere = function(s)\nreturn s.tpx == 1 end",
         "s.lua:5: error[unknown-name]: the point has no 'tpx' (point: mesh.tp=1)\n  hint: did you "
         "mean 'tp'?"},
        {"vary = { mesh = { tp = { 1 } } },\nwhere = function(s) local x = s.tp == 1 end",
         "s.lua:4: error[wrong-type]: where returns nil, but must return true or false (point: "
         "mesh.tp=1)"},
        {"vary = { mesh = { tp = { 1 } } },\nscore = function(r) return r.speed end",
         "s.lua:4: error[unknown-name]: the result has no 'speed' (point: mesh.tp=1)\n  hint: "
         "names: "
         "step_s, exposed_s, tokens_per_s,"},
        {"varies = {}",
         "s.lua:3: error[unknown-key]: sweep has no key 'varies'\n  hint: names: plan, vary,"},
        {"vary = { mesh = { tp = { 1 } } },\nscore = function(r) return r.days end",
         "no 'days' (point: mesh.tp=1)\n  hint: add --tokens"},
        {"vary = { mesh = { tp = { 1 } } },\nscore = function(r) return 1 / 0 end",
         "s.lua:4: error[wrong-type]: score returns a number that is not finite"},
        {"vary = { mesh = { tp = { 1 } } },\nrequire = function(r) return false, 3 end",
         "s.lua:4: error[wrong-type]: the second value of require is number"},
        {"vary = { mesh = { tp = { 1 } } },\nwhere = function(s) while true do end end",
         "s.lua:4: error[no-progress]: the script was stopped after 5 s"},
        {"vary = { mesh = { tp = { 1 } } },\nwhere = function(s) error('own words') end",
         "s.lua:4: error[lua-error]: own words (point: mesh.tp=1)"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CommandResult r = SWEEP(script(wrong[i][0]), "-q");
        if (r.exit_code != 3 || strstr(r.err, wrong[i][1]) == NULL)
            fail_msg("%s: code %d\n%s", wrong[i][0], r.exit_code, r.err);
    }
}

/* A sweep names a script below its folder or in the library, and no other file. */
static void the_plan_is_confined(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"/etc/passwd", "is neither below the folder of the sweep"},
        {"../plans/x.lua", "is neither below the folder of the sweep"},
        {"plans/../../x.lua", "is neither below the folder of the sweep"},
        {"none.lua", "there is no script none.lua in the folder"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *path = arena_print(arena, "%s/s.lua", command_new_folder(arena));
        command_write_file(path, arena_print(arena,
                                             "return sweep {\n  plan = '%s',\n  vary = { seed = { "
                                             "1 } } }\n",
                                             wrong[i][0]));
        CommandResult r = SWEEP(path, "-q");
        assert_int_equal(r.exit_code, 3);
        if (strstr(r.err, wrong[i][1]) == NULL || strstr(r.err, "s.lua:2: ") == NULL)
            fail_msg("%s", r.err);
    }
    CommandResult r = COMMAND(arena, 60, "check", script("vary = { seed = { 1 } }"));
    assert_int_equal(r.exit_code, 3);
    assert_non_null(strstr(r.err, "the script returns a sweep, but a plan is needed"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_arena_setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_script_gives_the_points_of_the_command_line),
        TEST(where_sees_settings_and_sizes),
        TEST(score_ranks_and_require_sorts_out),
        TEST(points_are_found_again_under_another_score),
        TEST(mistakes_are_told_with_their_line),
        TEST(the_plan_is_confined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
