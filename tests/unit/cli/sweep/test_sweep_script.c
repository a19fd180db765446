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

/* The documents that a test has read. teardown releases them. */
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
    /* With two processes, chance decides whether both prove their best plan. */
    const json_t *a = rows_of(SWEEP(nested, "-j1", "--json"), 0),
                 *b = rows_of(SWEEP(dotted, "-j1", "--json"), 0),
                 *c = rows_of(SWEEP(plan, "-j1", "--try", "batch.micro=1,2", "--try", "mesh.tp=2,4",
                                    "--json"),
                              0);
    assert_int_equal(json_array_size(a), 4);
    assert_true(json_equal(a, b));
    assert_true(json_equal(a, c));
}

/* Values of all types reach `where` unchanged. */
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
static void score_ranks_points_and_require_rejects_points(void **state)
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

/* Under another score, stored points are ranked again without a new simulation. */
static void stored_points_are_used_under_another_score(void **state)
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

static void mistakes_are_reported_with_their_line(void **state)
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

/* Runs a script that returns sweep { ... } with these keys. Returns 0 if the command refuses it
 * with the expected words, and 1 otherwise. */
static int refuses(const char *keys, const char *expected)
{
    const char *path = arena_print(arena, "%s/s.lua", command_new_folder(arena));
    command_write_file(path, arena_print(arena, "return sweep {\n%s\n}\n", keys));
    CommandResult r = SWEEP(path, "-q");
    if (r.exit_code == 3 && strstr(r.err, expected) != NULL) return 0;
    print_error("%s: code %d, expected '%s' in\n%s", keys, r.exit_code, expected, r.err);
    return 1;
}

static void every_key_and_value_is_checked(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"3",
         "s.lua:1: error[wrong-type]: sweep has a number as a key\n  hint: for example sweep {"},
        {"[true] = 3", "s.lua:1: error[wrong-type]: sweep has a boolean as a key"},
        {"plan = 3", "s.lua:2: error[wrong-type]: plan needs the path of a script, not number"},
        {"plan = ''", "s.lua:2: error[out-of-range]: plan: the path has 0 bytes"},
        {"plan = ('p'):rep(501)", "plan: the path has 501 bytes, which is too long"},
        {"plan = 'a\\nb'", "error[unreadable-text]: plan: byte 2 of the text is 0x0a"},
        {"vary = 3", "s.lua:2: error[wrong-type]: vary needs a table of settings"},
        {"vary = { [true] = { 1 } }", "vary has values, but no setting that would take them"},
        {"vary = { mesh = { [true] = { 1 } } }", "vary.mesh has values, but no setting that"},
        {"vary = { [''] = { 1 } }", "s.lua:2: error[unknown-key]: vary: '' is not a setting"},
        {"vary = { ['a b'] = { 1 } }", "vary: 'a b' is not a setting"},
        {"vary = { ['a=b'] = { 1 } }", "vary: 'a=b' is not a setting"},
        {"vary = { [('k'):rep(191)] = { 1 } }", "error[unknown-key]: vary: 'kkkkkkkk"},
        {"vary = { ['\\xff'] = { 1 } }", "error[unreadable-text]: a key of vary: byte 1"},
        {"vary = { ['a.b.c.d.e.f'] = { 1 } }", "vary.a.b.c.d.e.f needs a list of values"},
        {"vary = { mesh = {\n} }", "s.lua:2: error[wrong-type]: vary.mesh needs a list of values"},
        {"vary = { seed = {\n'' } }",
         "s.lua:3: error[out-of-range]: vary.seed has a text of 0 bytes, but only 1 to 500 are"},
        {"vary = { seed = { ('x'):rep(501) } }", "vary.seed has a text of 501 bytes"},
        {"vary = (function() local v = {} for i = 1, 41 do local at = {} v['k' .. i] = at\n"
         "for j = 1, 500 do at[j] = j end end return v end)()",
         "error[out-of-range]: the sweep has more than 20000 values"},
        {"score = {}", "s.lua:2: error[wrong-type]: score has no name"},
        {"score = 3", "s.lua:2: error[wrong-type]: score needs a function, not number"},
        {"score = { a = 3 }", "score needs a function, not number"},
        {"score = { [''] = print }", "the score's name has 0 bytes, but only 1 to 60 are allowed"},
        {"score = { [('n'):rep(61)] = print }", "the score's name has 61 bytes"},
        {"score = { ['\\n'] = print }", "error[unreadable-text]: the score's name: byte 1"},
        {"score = { a = print, b = print }", "score has more than one entry"},
        {"plan = 'plans/llama3_8b.lua'", "s.lua:1: error[missing-key]: the sweep has no vary"},
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        failed += refuses(wrong[i][0], wrong[i][1]);
    assert_int_equal(failed, 0);
}

/* The functions get tables in which an unknown name is an error, and each must return a value of
 * its type. A function of Lua itself has no line. */
static void every_result_of_a_function_is_checked(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"where = function(s) return s[1] end",
         "s.lua:4: error[unknown-name]: the point has no 'number'"},
        {"where = function(s) return s.usd_per_token end",
         "no 'usd_per_token' (point: seed=1)\n  hint: add --price"},
        {"where = function(s) setmetatable(s, nil) end", "cannot change a protected metatable"},
        {"where = type", "error[wrong-type]: where returns string, but must return true or false"},
        {"require = function(r) return 'yes' end", "require returns string, but must return true"},
        {"require = function(r) return false, 'a\\nb' end",
         "s.lua:4: error[unreadable-text]: the reason of require: byte 2 of the text is 0x0a"},
        {"score = function(r) return 'fast' end",
         "s.lua:4: error[wrong-type]: score returns string, but must return a finite number"},
        {"score = function(r) return 0 / 0 end", "score returns a number that is not finite"},
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        failed += refuses(arena_print(arena,
                                      "plan = 'plans/llama3_8b.lua',\nvary = { seed = { 1 } },\n%s",
                                      wrong[i][0]),
                          wrong[i][1]);
    assert_int_equal(failed, 0);
}

/* A sweep names a script below its folder or in the library, and no other file. */
static void a_sweep_names_only_scripts_below_its_folder_or_of_the_library(void **state)
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
        TEST(score_ranks_points_and_require_rejects_points),
        TEST(stored_points_are_used_under_another_score),
        TEST(mistakes_are_reported_with_their_line),
        TEST(every_key_and_value_is_checked),
        TEST(every_result_of_a_function_is_checked),
        TEST(a_sweep_names_only_scripts_below_its_folder_or_of_the_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
