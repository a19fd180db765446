/* The library's scripts are compiled when Tandem is built. Every script must have its compiled
 * code. A plan must be the same whether the library is read as code or as text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <glob.h>
#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "planner/base/arena.h"
#include "planner/front/shipped/shipped.h"
#include "tests/support/command.h"

#define LIBRARY TANDEM_SOURCE_DIR "/scripts"
enum { LEAST_SCRIPTS = 60 };
static const char *const folders[] = {"tandem",   "tandem/published", "models",
                                      "dialects", "clusters",         "runtimes"};

/* Calls visit() for each script of the library. Returns the number of scripts. */
static uint32_t each_script(Arena *arena, void (*visit)(Arena *arena, const char *path))
{
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        glob_t found;
        const char *pattern = arena_print(arena, LIBRARY "/%s/*.lua", folders[i]);
        assert_int_equal(glob(pattern, 0, NULL, &found), 0);
        for (size_t k = 0; k < found.gl_pathc; k++, n++) visit(arena, found.gl_pathv[k]);
        globfree(&found);
    }
    return n;
}

/* A lua_Writer that adds to a Str. */
static int add_code(lua_State *L, const void *from, size_t n, void *self)
{
    (void)L;
    str_add_bytes(self, from, n);
    return 0;
}

/* Pops a function from Lua's stack. Returns its compiled code, with the names and lines of all
 * inner functions.
 */
static Str pop_code(Arena *arena, lua_State *L)
{
    Str code = str_in(arena);
    assert_int_equal(lua_dump(L, add_code, &code, 0), 0);
    lua_pop(L, 1);
    return code;
}

static void has_code(Arena *arena, const char *path)
{
    size_t n;
    const char *text = command_read_file(arena, path, &n);
    lua_State *L = luaL_newstate();
    assert_non_null(L);
    if (shipped_load(L, hash_bytes(text, n), "=1234567") != LUA_OK)
        fail_msg("%s has no code", path);
    const Str shipped = pop_code(arena, L);
    assert_int_equal(luaL_loadbufferx(L, text, n, "=1234567", "t"), LUA_OK);
    const Str made = pop_code(arena, L);
    if (shipped.n != made.n || memcmp(str_text(&shipped), str_text(&made), made.n) != 0)
        fail_msg("%s has other code than its text", path);
    lua_close(L);
}

static void every_script_has_its_code(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    assert_true(each_script(arena, has_code) >= LEAST_SCRIPTS);
    arena_free(arena);
}

static void a_changed_text_has_no_compiled_code(void **state)
{
    (void)state;
    lua_State *L = luaL_newstate();
    assert_non_null(L);
    assert_int_equal(shipped_load(L, hash_bytes("return 1", 8), "=1"), LUA_ERRSYNTAX);
    assert_int_equal(lua_gettop(L), 0);
    lua_close(L);
}

/* ---- plans with the library as text ---- */

/* Copies the script into the folder `library` and adds a line at its end, so that it has no
 * compiled code. */
static void copy_changed(Arena *arena, const char *path)
{
    size_t n;
    const char *text = command_read_file(arena, path, &n);
    const char *to = arena_print(arena, "library%s", path + strlen(LIBRARY));
    command_write_file(to, arena_print(arena, "%s\n-- changed\n", text));
}

/* Includes scripts of tests/bad_input with mistakes that the library finds. Their messages name
 * lines of the library.
 */
static const char *const plans[] = {
    LIBRARY "/plans/tiny_text.lua",
    LIBRARY "/plans/wxformer_domain.lua",
    LIBRARY "/plans/mixtral_8x7b.lua",
    TANDEM_SOURCE_DIR "/tests/bad_input/blame_model.lua",
    TANDEM_SOURCE_DIR "/tests/bad_input/conv_channels.lua",
    TANDEM_SOURCE_DIR "/tests/bad_input/device_name.lua",
};
enum { N_PLANS = sizeof plans / sizeof *plans };

static void make_folder(const char *path)
{
    if (mkdir(path, 0777) != 0) assert_int_equal(errno, EEXIST);
}

static const char *check(Arena *arena, const char *plan)
{
    CommandResult r = COMMAND(arena, 60, "check", plan);
    assert_false(r.timed_out);
    return arena_print(arena, "%d\n%s%s", r.exit_code, r.out, r.err);
}

static void a_plan_is_the_same_with_the_library_as_text(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *from_code[N_PLANS];
    for (uint32_t i = 0; i < N_PLANS; i++) from_code[i] = check(arena, plans[i]);
    make_folder("library");
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        make_folder(arena_print(arena, "library/%s", folders[i]));
    each_script(arena, copy_changed);
    assert_int_equal(setenv("TANDEM_SCRIPTS", "library", 1), 0);
    for (uint32_t i = 0; i < N_PLANS; i++)
        assert_string_equal(check(arena, plans[i]), from_code[i]);
    assert_int_equal(unsetenv("TANDEM_SCRIPTS"), 0);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_script_has_its_code),
        cmocka_unit_test(a_changed_text_has_no_compiled_code),
        cmocka_unit_test(a_plan_is_the_same_with_the_library_as_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
