/* The exact words for rare mistakes in scripts and settings: exceeded limits, keys that are no
 * names, errors that a script catches and raises again, and unusual arguments of Lua's functions.
 * tests/bad_input has the common mistakes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "tests/support/command.h"
#include "tests/support/loaded.h"

typedef struct Case {
    const char *script, *set; /* set: NULL, or one setting */
    const char *says;         /* a part of the expected diagnostics */
} Case;

/* Returns 0 if the script is refused with the expected words, and 1 otherwise. */
static int refuses(const char *script, const char *set, const char *says)
{
    const FrontOptions options = {.set = &set, .n_set = set != NULL};
    Loaded l = load_text(script, &options);
    const bool fine = !l.fine && strstr(l.errors, says) != NULL;
    if (!fine)
        print_error("%.300s, set %s: expected '%s' in\n%.2000s", script, set != NULL ? set : "none",
                    says, l.errors);
    arena_free(l.arena);
    return fine ? 0 : 1;
}

static void expect_all(const Case *cases, size_t n, const char *before, const char *after)
{
    int failed = 0;
    for (size_t i = 0; i < n; i++) {
        Arena *arena = arena_new();
        const char *script = arena_print(arena, "%s%s%s", before, cases[i].script, after);
        failed += refuses(script, cases[i].set, cases[i].says);
        arena_free(arena);
    }
    assert_int_equal(failed, 0);
}
#define EXPECT(cases, before, after)                                                               \
    expect_all((cases), sizeof(cases) / sizeof *(cases), before, after)

/* Lua's functions that run other code, read files or change the interpreter are missing. */
static void dangerous_functions_of_lua_are_missing(void **state)
{
    (void)state;
    static const char *const names[] = {
        "io",     "os",       "debug", "package",        "load",
        "dofile", "loadfile", "warn",  "collectgarbage", "coroutine"};
    static const Case members[] = {
        {"assert(string.dump == nil and math.randomseed == nil) error('none', 0)", NULL, "none\n"},
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Arena *arena = arena_new();
        failed +=
            refuses(arena_print(arena, "local f = %s", names[i]), NULL,
                    arena_print(arena, ":1: error[not-available]: '%s' is not available in plans",
                                names[i]));
        arena_free(arena);
    }
    assert_int_equal(failed, 0);
    EXPECT(members, "", "");
}

/* A text that looks like "file:line:" names a place only if the file and the line exist. */
static void errors_keep_their_words(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"error('12: words', 0)", NULL, ":1: error[lua-error]: 12: words\n"},
        {"error('1:2 words', 0)", NULL, ":1: error[lua-error]: 1:2 words\n"},
        {"error('1:x: words', 0)", NULL, ":1: error[lua-error]: 1:x: words\n"},
        {"error('1:2:words', 0)", NULL, ":1: error[lua-error]: 1:2:words\n"},
        {"error('0:2: words', 0)", NULL, ":1: error[lua-error]: 0:2: words\n"},
        {"error('99:2: words', 0)", NULL, ":1: error[lua-error]: 99:2: words\n"},
        {"error('1:0: words', 0)", NULL, ":1: error[lua-error]: 1:0: words\n"},
        {"error('1:99999999999: words', 0)", NULL, ":1: error[lua-error]: 1:99999999999: words\n"},
        {"\n\nlocal _, e = pcall(error, 'words', 0)\nerror(e, 0)", NULL,
         ":4: error[lua-error]: words\n"},
        {"error(nil)", NULL, "the script calls error() with a nil, but only a text can be printed"},
        /* An error of a function of Tandem keeps its rule. A script cannot change the rule. */
        {"local _, e = pcall(require, 'nothing') error(tostring(e), 0)", NULL,
         ":1: error[lua-error]: require: there is no script nothing.lua\n"},
        {"local _, e = pcall(require, 'nothing')\nerror(e)", NULL,
         ":1: error[script-open]: require: there is no script nothing.lua\n"},
        {"local _, e = pcall(require, 'nothing') e.rule = 'script-read'", NULL,
         ":1: error[lua-error]: attempt to index a tandem.error value (local 'e')\n"},
        {"local _, e = pcall(require, 'nothing') setmetatable(e, nil)", NULL,
         "#1 to 'setmetatable' (table expected, got tandem.error)"},
        {"local _, e = pcall(require, 'nothing') getmetatable(e).__tostring = nil", NULL,
         "attempt to index a boolean value"},
        {"error(setmetatable({}, { __tostring = error }))", NULL,
         "the script calls error() with a table, but only a text can be printed"},
        {"return plan { a a }", NULL, ":1: error[lua-syntax]: '}' expected near 'a'\n"},
        {"return\nplan { a a }", NULL,
         "'}' expected near 'a'\n  hint: a ',' may be missing on line 1 or before it\n"},
        {"return \033 {", NULL, "unexpected symbol near '<\\27>'\n  hint: only text is read\n"},
    };
    EXPECT(cases, "", "\n");
}

/* For these arguments, the results of Lua's functions differ from plain Lua's, or the call is
 * refused. */
static void functions_of_lua_are_bounded(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"('x'):rep(0) .. ('x'):rep(-1) .. ('x'):rep(2, '-')", NULL, "result: x-x\n"},
        {"('x'):rep(2, ('-'):rep(1 << 20))", NULL,
         "#1 to 'rep' (the result may have at most a million repeats and 1 MiB)"},
        {"(('x'):rep(1 << 16) .. 'x'):find('y')", NULL,
         "calling 'find' on bad self (longer than 64 KiB)"},
        {"('x'):find(('y'):rep(257))", NULL, "#1 to 'find' (a pattern longer than 256 bytes)"},
        {"('x'):find(('y'):rep(256))", NULL, "result: nil\n"},
        {"('%s %s %s'):format({}, print, 'x')", NULL, "result: table function x\n"},
        {"('%'):format(1)", NULL, "invalid conversion '%' to 'format'"},
        {"('%5.1p'):format({})", NULL, "%p is not available, because addresses differ"},
        {"tostring(setmetatable({}, nil))", NULL, "result: table\n"},
        {"tostring(setmetatable({}, { __tostring = function() return 'mine' end }))", NULL,
         "result: mine\n"},
        {"select('#', table.unpack({}, 1, 1000000))", NULL, "too many results to unpack"},
        {"table.unpack({}, -1000001, 1)", NULL, "#2 to 'unpack' (-1000001 is more than 1000000)"},
        {"table.concat({ 1, 2, 3 }, ',', 2, 3)", NULL, "result: 2,3\n"},
        {"_G[1]", NULL, "error[unknown-name]: there is no variable 'number'"},
        {"(function() _G[7] = 1 for i = 1, 99 do _G['longname' .. i] = i end return longnam end)()",
         NULL, "there is no variable 'longnam'\n  hint: did you mean 'longname"},
        {"next({}, 'x')", NULL, "result: nil\n"},
    };
    EXPECT(cases, "local result = ", " error('result: ' .. tostring(result), 0)\n");
}

/* Keys come in a fixed order: numbers by value, then texts, then booleans. */
static void pairs_and_next_have_a_fixed_order(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"{ b = 1, ba = 1, [true] = 1, [false] = 1, [2] = 1, [2.5] = 1, [-1] = 1, a = 1 }", NULL,
         "keys: -1 2 2.5 a b ba false true\n"},
        {"{ [1.5] = 1, [0.5] = 1, [1e300] = 1, [math.mininteger] = 1 }", NULL,
         "keys: -9223372036854775808 0.5 1.5 1e+300\n"},
        {"{ [{}] = 1 }", NULL, "a table with a table as a key cannot be traversed"},
        {"{ [print] = 1 }", NULL, "a table with a function as a key cannot be traversed"},
    };
    EXPECT(cases, "local keys = 'keys:' for k in pairs(",
           ") do keys = keys .. ' ' .. tostring(k) end\n"
           "error(keys, 0)\n");
    EXPECT(cases, "local keys, t = 'keys:', ",
           " local k = next(t)\n"
           "while k ~= nil do keys = keys .. ' ' .. tostring(k)\n"
           "k = next(t, k) end error(keys, 0)\n");
}

static void plans_have_limits(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"model = model, parallel = (function() local t = {} return { tp(t), ep(t) } end)()", NULL,
         "error[wrong-type]: ep uses a table that tp{} uses already"},
        {"model = model, parallel = { fsdp2(), tp(nil), 3 }", NULL,
         "error[wrong-type]: parallel.3 "},
        {"extra = (function() local t = {} for i = 1, 20001 do t[i] = i end return t end)()", NULL,
         "error[out-of-range]: the plan has more than 20000 values"},
        {"name = ('x'):rep(4097)", NULL,
         ":2: error[out-of-range]: name is a text of 4097 bytes, but at most 4096 are allowed"},
        {"extra = { ['a.b'] = 1 }", NULL, "error[unknown-key]: extra has a key that is not a name"},
        {"['a.b'] = 1", NULL, "error[unknown-key]: the plan has a key that is not a name"},
        {"['a\\n'] = 1", NULL, "error[unknown-key]: the plan has a key that is not a name"},
        {"[('k'):rep(65)] = 1", NULL, "error[unknown-key]: the plan has a key that is not a name"},
        {"parallel = { x = { plan = { ['a.b'] = 1 } } }", NULL,
         "x.plan has a key that is not a name"},
        {"parallel = { tp { plam = { ['a.b'] = 1 } } }", NULL,
         "1.plam has a key that is not a name"},
        {"[true] = 1", NULL, "error[wrong-type]: the plan has a boolean as a key"},
        {"extra = { [1.5] = 1 }", NULL, "error[wrong-type]: extra has a number as a key"},
        {"a = { a = { a = { a = { a = { a = { a = { a = { a = { a = 1 } } } } } } } } }", NULL,
         "error[out-of-range]: a.a.a.a.a.a.a.a.a is nested too deeply"},
        {"[('k'):rep(64)] = { [('k'):rep(64)] = { [('k'):rep(64)] = { [('k'):rep(64)] = {} } } }",
         NULL, "kkk is nested too deeply\n  hint: a table may contain itself"},
        {"extra = print", NULL, "error["},
        {"parallel = (function() local t = {} for i = 1, 17 do t[i] = ac() end return t end)()",
         NULL, ":2: error[out-of-range]: parallel lists more than 16 passes\n"},
        {"parallel = { pp { split = (function() local t = {} for i = 1, 257 do t[i] = 1 end return "
         "t "
         "end)() } }",
         NULL, ":2: error[out-of-range]: pp.split has more than 256 stages\n"},
        {"model = model, cluster = require 'clusters.dgx_h100' { nodes = 64 }, mesh = { pp = 512 "
         "},\n"
         "batch = { seq = 4, global = 512 }, parallel = { pp { schedule = function() return {} end "
         "} }",
         NULL, ":3: error[out-of-range]: schedule: there are more than 256 ranks\n"},
    };
    EXPECT(cases,
           "local model = require 'models.llama' 'tiny'\nreturn plan { batch = { seq = 4 }, ",
           " }\n");
}

/* The line of a key is found after any text, comment or operator. */
static void lines_of_keys_are_found(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"seed = #[[ { batch = \n ]] + #[==[ ]] ]=] \n ]==],\nseqq = 1", NULL,
         ":5: error[unknown-key]: unknown key 'seqq'"},
        {"--[[ } , \n ]]\n--[=[ ]] \n]=] -- } \nseqq = 1", NULL, ":6: error[unknown-key]"},
        {"name = 'a\\'}' .. \"b\\\"}\",\nseqq = 1", NULL, ":3: error[unknown-key]"},
        {"seed = (function(a) if a <= 1 then return 1 end return 1 ~= 2 and 1 or 2 end)(1),\n"
         "['seqq'] = 1",
         NULL, ":3: error[unknown-key]"},
        {"seed = (function() repeat until 1 >= 1 while false do end return 1 end)();\nseqq = 1",
         NULL, ":3: error[unknown-key]"},
        {"[ [[seqq]] ] = 1", NULL, ":2: error[unknown-key]"},
        {"name = ({ 'x' })[1],\nseqq = 1", NULL, ":3: error[unknown-key]"},
    };
    EXPECT(cases,
           "local model = require 'models.llama' 'tiny'\n"
           "return plan({ model = model, batch = { seq = 4 }, ",
           " })\n");
}

static void settings_without_a_place_in_the_plan_are_refused(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"model = tiny", "model.layers.x=1",
         "error[unknown-key]: 'layers' is a number, so it contains no keys"},
        {"model = tiny", "model.a.b.c.d=1",
         "error[unknown-key]: there is no 'a' in the model's config"},
        {"model = tiny", "model.1234=1", "there is no '1234' in the model's config"},
        {"model = tiny", "model.0=1", "there is no '0' in the model's config"},
        {"model = 3", "model.layers=1",
         "error[unknown-key]: the plan's model has no config to change"},
        {"model = { build = print }", "model.layers=1", "the plan's model has no config to change"},
        {"model = { config = {}, build = print }", "model.layers=1",
         "there is no 'layers' in the model's config\n"},
        {"model = { config = { 5, 6 }, build = print }", "model.3=1",
         "  hint: its entries are numbered 1 to 2\n"},
        {"model = { config = { 5 }, build = print }", "model.3=1",
         "  hint: its entries are numbered 1 to 1\n"},
        {"model = tiny", "parallel=tp",
         "error[unknown-key]: parallel is a list of passes, so it cannot be set as a whole"},
        {"model = tiny", "parallel.tpp.sequence=true", "the plan's parallel list has no 'tpp'"},
        {"model = tiny, parallel = { tp {} }", "parallel.tpp.sequence=true",
         "  hint: did you mean 'tp'?"},
        {"model = tiny", "parallel.tp=word",
         "error[unknown-word]: tp{} has no option with the value 'word'"},
        {"model = tiny", "parallel.data=fsdp", "'fsdp' is not a data pass\n  hint: one of: "},
        {"model = tiny", "parallel.data=tp", "'tp' is not a data pass\n  hint: one of: "},
        {"model = tiny, parallel = { 3, tp {} }", "parallel.ep=true", "error["},
        {"model = tiny, cluster = 3", "gpu=h100",
         "error[unknown-key]: the plan has no cluster to change"},
        {"model = tiny, cluster = {}", "gpu=h999", "error[unknown-word]: there is no GPU 'h999'"},
        {"model = tiny, cluster = {}", "gpu=h100", "error[missing-key]"},
        {"model = tiny, cluster = 3", "cluster=dgx_h1000",
         "there is no script clusters/dgx_h1000.lua\n  hint: did you mean 'clusters.dgx_h100'?"},
        {"model = tiny", "cluster.device=dgx",
         "  hint: --set cluster=NAME uses other nodes, such as dgx_a100"},
        {"model = tiny", "cluster.device=h100",
         "  hint: use --set gpu=h100 to put this GPU into the plan's nodes; --set cluster=NAME"},
    };
    EXPECT(cases,
           "local tiny = require 'models.llama' 'tiny'\n"
           "return plan { batch = { seq = 4 }, ",
           " }\n");
}

static void more_than_64_settings_are_refused(void **state)
{
    (void)state;
    const char *set[65];
    for (size_t i = 0; i < 65; i++) set[i] = "seed=1";
    const FrontOptions options = {.set = set, .n_set = 65};
    Loaded l = load_text("return 1\n", &options);
    assert_string_equal(l.errors, "error[set-syntax]: there are more than 64 --set options\n");
    arena_free(l.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dangerous_functions_of_lua_are_missing),
        cmocka_unit_test(errors_keep_their_words),
        cmocka_unit_test(functions_of_lua_are_bounded),
        cmocka_unit_test(pairs_and_next_have_a_fixed_order),
        cmocka_unit_test(plans_have_limits),
        cmocka_unit_test(lines_of_keys_are_found),
        cmocka_unit_test(settings_without_a_place_in_the_plan_are_refused),
        cmocka_unit_test(more_than_64_settings_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
