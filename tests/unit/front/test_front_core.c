/* The library's scripts call core functions, which check their arguments. A mistake in a script of
 * the library, or in a copy that a user changed, ends in an error with a line. */
#define _GNU_SOURCE /* setenv */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "planner/front/front.h"
#include "tests/support/command.h"

typedef struct Case {
    const char *code, *says;
} Case;

static Arena *arena;

/* Copies the library, and adds a script to the copy that gives the core functions to the user's
 * script. */
static int copy_library(void **state)
{
    (void)state;
    arena = arena_new();
    const char *folder = command_new_folder(arena);
    const char *const copy[] = {"cp", "-r", TANDEM_SOURCE_DIR "/scripts", folder, NULL};
    if (command_run_program(arena, 60, copy).exit_code != 0) return -1;
    folder = arena_print(arena, "%s/scripts", folder);
    command_write_file(arena_print(arena, "%s/tandem/probe.lua", folder),
                       "local _, core = ...\nreturn core\n");
    return setenv("TANDEM_SCRIPTS", folder, 1);
}

static int free_arena(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

static const char *errors_of(const char *code, bool shrink)
{
    Diag d = diag_in(arena);
    Config config;
    Graph graph;
    memset(&graph, 0, sizeof graph);
    const FrontOptions options = {.shrink = shrink};
    const bool fine = front_load_text("plan.lua", code, &options, arena, &config, &graph, &d);
    assert_int_equal(fine, d.n_errors == 0);
    Str text = str_in(arena);
    diag_print(&d, &text);
    return str_text(&text);
}

/* Returns 0 if the error is the expected one, at the line of the script that called the function,
 * and 1 otherwise.
 */
static int says(const Case *c, const char *before, const char *after, bool shrink)
{
    const char *script =
        arena_print(arena, "local core = require 'tandem.probe'\n%s %s; error 'accepted' %s\n",
                    before, c->code, after);
    const char *text = errors_of(script, shrink);
    if (strstr(text, c->says) != NULL && strncmp(text, "plan.lua:2: ", 12) == 0) return 0;
    print_error("%s: expected '%s' at line 2 in\n%s", c->code, c->says, text);
    return 1;
}

static void functions_check_their_arguments(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"core.most_of('nothing', 'rows')", "bad argument #1 to 'most_of' (no op)"},
        {"core.most_of('rope', 'nothing')", "#2 to 'most_of' (the op has no such integer)"},
        {"core.most_of('rope', 'theta')", "#2 to 'most_of' (the op has no such integer)"},
        {"core.wrap(1)", "#1 to 'wrap' (function expected, got number)"},
        {"core.near('a', 'b')", "#2 to 'near' (table expected, got string)"},
        {"core.nearest('a', 'b')", "#2 to 'nearest' (table expected, got string)"},
        {"error(core.near('cor', { 7, 'core' }))", "did you mean 'core'?"},
        {"error(core.nearest('cor', { 7, 'core' }))", ": core\n"},
        {"core.fail('a-rule')", "#2 to 'fail' (string expected, got no value)"},
        {"core.report('a-rule', nil)", "#2 to 'report' (string expected, got nil)"},
        {"core.fail('a-rule', 'a text', 'a hint')", "error[a-rule]: a text\n  hint: a hint\n"},
        {"core.key_location(1 << 32 | 1, {})", "#2 to 'key_location' (string expected, got table)"},
        {"core.dims(1)", "error[trace-order]: a module is called outside a forward function"},
        {"core.batch(1)", "error[trace-order]: a module is called outside a forward function"},
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        failed += says(&cases[i], "", "return plan {}", false);
    assert_int_equal(failed, 0);
}

#define SHORT_NAME "'w', 0, core.location(), "
#define REST       ", false, false, 0, core.location()"
#define STATE                                                                                      \
    "local m = core.module('m', 'c', 0, false, false, 0, core.location()) "                        \
    "local t = core.state('w', m, core.location(), nil, 8) "
static void functions_of_a_trace_check_their_arguments(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"core.dims(0)", "#1 to 'dims' (no tensor)"},
        {"core.dims(99)", "#1 to 'dims' (no tensor)"},
        {"core.module('m', 'c', 7" REST ")", "#3 to 'module' (no module)"},
        {"core.module('m', 'c', -1" REST ")", "#3 to 'module' (no module)"},
        {"core.module(('m'):rep(257), 'c', 0, false, false, 0, core.location())",
         "#1 to 'module' (longer than 256 bytes)"},
        {"core.module('\\n', 'c', 0, false, false, 0, core.location())",
         "error[unreadable-text]: a module's path: byte 1 of the text is 0x0a"},
        {"core.module('m', '\\xff', 0, false, false, 0, core.location())",
         "error[unreadable-text]: a module's class: byte 1 of the text is 0xff"},
        {"core.state(" SHORT_NAME "nil)", "#5 to 'state' (1 to 6 dimensions)"},
        {"core.state(" SHORT_NAME "nil, 1, 1, 1, 1, 1, 1, 1)", "#5 to 'state' (1 to 6 dimensions)"},
        {"core.state(" SHORT_NAME "nil, 0)", "#5 to 'state' (out of range)"},
        {"core.state(" SHORT_NAME "nil, 8, (1 << 30) + 1)", "#6 to 'state' (out of range)"},
        {"core.state(" SHORT_NAME "nil, 1 << 30, 1 << 30)",
         "error[out-of-range]: w has 1.15292e+18 elements"},
        {"core.state(('w'):rep(257), 0, core.location(), nil, 8)",
         "#1 to 'state' (longer than 256 bytes)"},
        {"core.state('\\0', 0, core.location(), nil, 8)",
         "error[unreadable-text]: a tensor's name: byte 1 of the text is 0x00"},
        {"local long = {} for i = 1, 99 do long[i] = 1 end core.state(" SHORT_NAME "long, 8)",
         "#4 to 'state' (too many segments)"},
        {"core.state(" SHORT_NAME "{ 4, 4 }, 8)", "#4 to 'state' (dim must be an integer)"},
        {"core.state(" SHORT_NAME "{ 4, 'a', dim = 0 }, 8)",
         "#4 to 'state' (a share must be an integer)"},
        {"core.param(" SHORT_NAME "'some', 0, 0, 'zeros', 0, 0, false, nil, 8)",
         "#4 to 'param' (invalid option 'some')"},
        {"core.param(" SHORT_NAME "'none', 0, 0, 'some', 0, 0, false, nil, 8)",
         "#7 to 'param' (invalid option 'some')"},
        {"core.op('nothing', 0, nil, 1)", "#1 to 'op' (no such op)"},
        {"core.op('batch', 0, nil, 1)", "#1 to 'op' (no such op)"},
        {"core.op('silu', 0, nil)", "#4 to 'op' (1 to 8 inputs)"},
        {"core.op('silu', 0, nil, 1, 1, 1, 1, 1, 1, 1, 1, 1)", "#4 to 'op' (1 to 8 inputs)"},
        {"core.op('silu', 0, nil, 0)", "#4 to 'op' (no tensor)"},
        {"core.op('silu', 0, nil, 99)", "#4 to 'op' (no tensor)"},
        {STATE "core.op('add', m, nil, t)", "error[shape-mismatch]: "},
        {STATE "core.op('scale', m, { scale = 'x' }, t)", "number expected, got string"},
        {STATE "core.op('scale', m, { scale = 0 / 0 }, t)", "error[out-of-range]: "},
        {"core.name(('m'):rep(257), core.location())", "#1 to 'name' (longer than 256 bytes)"},
        {"core.batch(core.location()); core.batch(core.location())",
         "the model reads its batch twice"},
        {"core.offsets(0, 4)", "#1 to 'offsets' (out of range)"},
        {"core.offsets(1000, 4)", "#1 to 'offsets' (out of range)"},
        {"core.offsets(4, 0)", "#2 to 'offsets' (out of range)"},
        {"core.offsets(4, 1000)", "#2 to 'offsets' (out of range)"},
        {"core.images(0, 4, 4, 3)", "#1 to 'images' (out of range)"},
        {"core.images(1 << 20, 4, 4, 3)", "#1 to 'images' (out of range)"},
        {"core.images(4, 0, 4, 3)", "#2 to 'images' (out of range)"},
        {"core.images(4, 1 << 20, 4, 3)", "#2 to 'images' (out of range)"},
        {"core.images(4, 4, 0, 3)", "#3 to 'images' (out of range)"},
        {"core.images(4, 4, 1 << 20, 3)", "#3 to 'images' (out of range)"},
        {"core.images(4, 4, 4, 0)", "#4 to 'images' (out of range)"},
        {"core.images(4, 4, 4, 1 << 20)", "#4 to 'images' (out of range)"},
        {"core.seq(0)", "#1 to 'seq' (out of range)"},
        {"core.seq((1 << 30) + 1)", "#1 to 'seq' (out of range)"},
        {"core.seq(8)", "#1 to 'seq' (too late)"}, /* too late, because the model is not shrunk */
        {"core.field(0, 1, 4, 4)", "#1 to 'field' (out of range)"},
        {"core.field(1, 1, 4, 1 << 14)", "#4 to 'field' (out of range)"},
        {"core.field(1, 1, 4, 4)", "#1 to 'field' (too late)"},
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        failed += says(&cases[i], "return plan { model = { build = function()",
                       "end }, batch = { seq = 4 } }", false);
    assert_int_equal(failed, 0);
}

/* A shrunk model chooses its sizes before its batch is made. */
static void sizes_of_a_shrunk_model_are_chosen_before_the_batch(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"core.batch(core.location()); core.seq(8)", "#1 to 'seq' (too late)"},
        {"core.batch(core.location()); core.field(1, 1, 4, 4)", "#1 to 'field' (too late)"},
        /* too late, because the model reads tokens */
        {"core.field(1, 1, 4, 4)", "#1 to 'field' (too late)"},
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        failed += says(&cases[i], "return plan { model = { build = function()",
                       "end }, batch = { seq = 4 } }", true);
    assert_int_equal(failed, 0);
}

/* An error may name a place by a number that stands for no place. The error then has no line. */
static void an_unknown_place_has_no_line(void **state)
{
    (void)state;
    const char *text = errors_of("local core = require 'tandem.probe'\n"
                                 "core.fail('a-rule', 'a text', nil, 99 << 32 | 1)\n",
                                 false);
    assert_string_equal(text, "plan.lua: error[a-rule]: a text\n");
}

/* Without a library, a script without `require` still loads. Any other script gets an error that
 * names the library. */
static void a_missing_library_is_named(void **state)
{
    (void)state;
    const char *before = arena_dup(arena, getenv("TANDEM_SCRIPTS"));
    assert_int_equal(setenv("TANDEM_SCRIPTS", "/nothing/there", 1), 0);
    command_write_file("library.lua", "\nreturn require 'models.llama' 'tiny'\n");
    CommandResult r = COMMAND(arena, 60, "check", "library.lua", "--db", "none");
    assert_int_equal(r.exit_code, 3);
    assert_string_equal(
        r.err,
        "library.lua:2: error[script-open]: require: models/llama.lua is not in the script's "
        "folder, and the library at /nothing/there cannot be opened: No such file or directory\n"
        "  hint: set TANDEM_SCRIPTS to the folder of the library\n");
    command_write_file("library.lua", "error 'own words'\n");
    r = COMMAND(arena, 60, "check", "library.lua", "--db", "none");
    assert_string_equal(r.err, "library.lua:1: error[lua-error]: own words\n");
    assert_int_equal(setenv("TANDEM_SCRIPTS", before, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_check_their_arguments),
        cmocka_unit_test(functions_of_a_trace_check_their_arguments),
        cmocka_unit_test(sizes_of_a_shrunk_model_are_chosen_before_the_batch),
        cmocka_unit_test(an_unknown_place_has_no_line),
        cmocka_unit_test(a_missing_library_is_named),
    };
    return cmocka_run_group_tests_name("front_core", tests, copy_library, free_arena);
}
