/* The Lua functions that a script may call: the standard ones, except those for files, processes,
 * loading code, finalizers and coroutines. Arguments of functions that could run long inside C
 * code, such as string.rep, are limited. Functions whose result depends on an address or a clock
 * return a fixed result. */
#include <assert.h>
#include <lualib.h>
#include <string.h>
#include <unistd.h>

#include "planner/front/child/child.h"

enum {
    MOST_REPEATS = 1000000,
    MOST_SUBJECT = 64 << 10,
    MOST_PATTERN = 256,
    MOST_PRINTED = 1 << 16
};

static int call_original(lua_State *L)
{
    return lua_tocfunction(L, lua_upvalueindex(1))(L);
}

static void check_bound(lua_State *L, int arg, lua_Integer most)
{
    lua_Integer value = luaL_optinteger(L, arg, 0);
    if (value > most || value < -most)
        luaL_argerror(
            L, arg,
            lua_pushfstring(L, "%I is more than %I", (LUAI_UACINT)value, (LUAI_UACINT)most));
}

static int safe_rep(lua_State *L)
{
    size_t n, between = 0;
    luaL_checklstring(L, 1, &n);
    luaL_optlstring(L, 3, "", &between);
    lua_Integer times = luaL_checkinteger(L, 2);
    if (times > MOST_REPEATS || (times > 0 && (n + between) > (1u << 20) / (size_t)times + 64))
        return luaL_argerror(L, 2, "the result may have at most a million repeats and 1 MiB");
    return call_original(L);
}

static int safe_pattern(lua_State *L)
{
    size_t subject, pattern;
    luaL_checklstring(L, 1, &subject);
    luaL_checklstring(L, 2, &pattern);
    if (subject > MOST_SUBJECT) return luaL_argerror(L, 1, "longer than 64 KiB");
    if (pattern > MOST_PATTERN) return luaL_argerror(L, 2, "a pattern longer than 256 bytes");
    return call_original(L);
}

static int safe_table(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_Integer n = luaL_len(L, 1);
    if (n > MOST_REPEATS || n < 0) return luaL_argerror(L, 1, "more than a million items");
    return call_original(L);
}

static int safe_unpack(lua_State *L)
{
    check_bound(L, 2, MOST_REPEATS);
    check_bound(L, 3, MOST_REPEATS);
    return safe_table(L);
}

static int safe_concat(lua_State *L)
{
    check_bound(L, 3, MOST_REPEATS);
    check_bound(L, 4, MOST_REPEATS);
    return safe_table(L);
}

static int safe_move(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    for (int arg = 2; arg <= 4; arg++) check_bound(L, arg, MOST_REPEATS);
    return call_original(L);
}

/* True if Lua would print the value as an address, such as "table: 0x55d0". Addresses differ from
 * run to run, so only the type is printed. */
static bool has_address(lua_State *L, int arg)
{
    switch (lua_type(L, arg)) {
    case LUA_TTABLE:
    case LUA_TUSERDATA:
        if (luaL_getmetafield(L, arg, "__tostring") == LUA_TNIL) return true;
        lua_pop(L, 1);
        return false;
    case LUA_TFUNCTION:
    case LUA_TTHREAD:
    case LUA_TLIGHTUSERDATA: return true;
    default: return false;
    }
}

static int safe_tostring(lua_State *L)
{
    luaL_checkany(L, 1);
    if (has_address(L, 1))
        lua_pushstring(L, luaL_typename(L, 1));
    else
        luaL_tolstring(L, 1, NULL);
    return 1;
}

static int safe_format(lua_State *L)
{
    const char *format = luaL_checkstring(L, 1);
    for (const char *p = strchr(format, '%'); p != NULL; p = strchr(p + 1, '%')) {
        p += 1 + strspn(p + 1, "-+ #0123456789.");
        if (*p == 'p')
            return luaL_argerror(L, 1,
                                 "%p is not available, because addresses differ from run to run");
        if (*p == 0) break;
    }
    for (int arg = 2; arg <= lua_gettop(L); arg++)
        if (has_address(L, arg)) {
            lua_pushstring(L, luaL_typename(L, arg));
            lua_replace(L, arg);
        }
    return call_original(L);
}

static int safe_setmetatable(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    if (lua_type(L, 2) == LUA_TTABLE) {
        lua_pushliteral(L, "__gc");
        if (lua_rawget(L, 2) != LUA_TNIL)
            return luaL_argerror(L, 2, "finalizers (__gc) are not available in plans");
        lua_pop(L, 1);
    }
    return call_original(L);
}

static int safe_print(lua_State *L)
{
    Child *c = child_of(L);
    Str line = str_in(c->arena);
    for (int arg = 1; arg <= lua_gettop(L); arg++) {
        lua_pushcfunction(L, safe_tostring);
        lua_pushvalue(L, arg);
        lua_call(L, 1, 1);
        size_t n;
        const char *text = lua_tolstring(L, -1, &n);
        if (arg > 1) str_add(&line, "\t");
        if (line.n < MOST_PRINTED) str_add_bytes(&line, text, n < MOST_PRINTED ? n : MOST_PRINTED);
        lua_pop(L, 1);
    }
    str_add(&line, "\n");
    if (line.n > (size_t)CHILD_MOST_PRINTED - c->printed) {
        c->flooded = true;
        child_stop(c);
    }
    c->printed += line.n;
    ssize_t written = write(STDERR_FILENO, line.at, line.n);
    (void)written; /* ignore a failed write: a closed stderr must not end the script */
    return 0;
}

/* Replaces function `name` in the table on top of the stack by `safe`, whose upvalue is the
 * original. */
static void wrap(lua_State *L, const char *name, lua_CFunction safe)
{
    int type = lua_getfield(L, -1, name);
    assert(type == LUA_TFUNCTION);
    (void)type;
    lua_pushcclosure(L, safe, 1);
    lua_setfield(L, -2, name);
}

static void remove_all(lua_State *L, const char *const *names)
{
    for (; *names != NULL; names++) {
        lua_pushnil(L);
        lua_setfield(L, -2, *names);
    }
}

/* __index of the table of globals: raises an error for an unknown name. Plain Lua would return nil
 * for a misspelt name. */
static int no_such_name(lua_State *L)
{
    static const char *const gone[] = {"io",   "os",       "debug",  "package",
                                       "load", "loadfile", "dofile", "collectgarbage",
                                       "warn", "coroutine"};
    Child *c = child_of(L);
    const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : luaL_typename(L, 2);
    ScriptLoc loc = child_loc(c, true);
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        if (strcmp(name, gone[i]) == 0)
            child_raise(L, "not-available", loc,
                        "plans have the libraries base, string, table, math and utf8, and read "
                        "other scripts by require",
                        "'%s' is not available in plans", name);
    const char *const *names = NULL;
    size_t n = 0, room = 0;
    for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING) continue;
        if (n == room) {
            room = room * 2 + 64;
            const char **more = arena_array(c->arena, room, sizeof *more);
            if (n > 0) memcpy(more, names, n * sizeof *more);
            names = more;
        }
        ((const char **)names)[n++] = lua_tostring(L, -2);
    }
    const char *near = str_nearest(name, names, n);
    const char *hint = near == NULL ? NULL : arena_print(c->arena, "did you mean '%s'?", near);
    child_raise(L, "unknown-name", loc, hint, "there is no variable '%s'", name);
}

static void guard_globals(lua_State *L)
{
    lua_pushglobaltable(L);
    lua_createtable(L, 0, 2);
    lua_pushcfunction(L, no_such_name);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_pop(L, 1);
}

static void open_string(lua_State *L)
{
    static const char *const gone[] = {"dump", NULL};
    luaL_requiref(L, LUA_STRLIBNAME, luaopen_string, 1);
    wrap(L, "rep", safe_rep);
    wrap(L, "format", safe_format);
    wrap(L, "find", safe_pattern);
    wrap(L, "match", safe_pattern);
    wrap(L, "gmatch", safe_pattern);
    wrap(L, "gsub", safe_pattern);
    remove_all(L, gone);
    lua_pop(L, 1);
    lua_pushliteral(L, "");
    int has = lua_getmetatable(L, -1);
    assert(has);
    (void)has;
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 2);
}

static void open_math(lua_State *L)
{
    static const char *const gone[] = {"randomseed", NULL};
    luaL_requiref(L, LUA_MATHLIBNAME, luaopen_math, 1);
    lua_getfield(L, -1, "randomseed");
    lua_pushinteger(L, 1);
    lua_call(L, 1, 0);
    remove_all(L, gone);
    lua_pop(L, 1);
}

void child_open_library(Child *c)
{
    static const char *const gone[] = {"dofile",         "loadfile", "load",
                                       "collectgarbage", "warn",     NULL};
    lua_State *L = c->L;
    luaL_requiref(L, LUA_GNAME, luaopen_base, 1);
    remove_all(L, gone);
    wrap(L, "setmetatable", safe_setmetatable);
    wrap(L, "tostring", safe_tostring);
    wrap(L, "print", safe_print);
    lua_pop(L, 1);
    child_open_pairs(L);
    open_string(L);
    luaL_requiref(L, LUA_TABLIBNAME, luaopen_table, 1);
    wrap(L, "insert", safe_table);
    wrap(L, "remove", safe_table);
    wrap(L, "sort", safe_table);
    wrap(L, "concat", safe_concat);
    wrap(L, "unpack", safe_unpack);
    wrap(L, "move", safe_move);
    lua_pop(L, 1);
    open_math(L);
    luaL_requiref(L, LUA_UTF8LIBNAME, luaopen_utf8, 1);
    lua_pop(L, 1);
    guard_globals(L);
}
