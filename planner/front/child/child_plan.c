/* Sends the plan table as records, one for each value. The parent checks keys and values. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "planner/front/child/child.h"

enum { MOST_NESTING = 8, MOST_PATH = 240 };

static void begin_field(Child *c, RecordKind kind, const char *path, ScriptLoc loc)
{
    if (strlen(path) > MOST_PATH)
        child_raise(c->L, "out-of-range", loc, "a table may contain itself",
                    "%.60s is nested too deeply", path);
    if (++c->n_fields > CHILD_MOST_FIELDS)
        child_raise(c->L, "out-of-range", loc, NULL, "the plan has more than %d values",
                    CHILD_MOST_FIELDS);
    ScriptLoc set = child_set_loc(c, path);
    if (set.source != 0) loc = set;
    child_send_files(c);
    record_begin(&c->out, kind);
    put_text(&c->out, path, strlen(path));
    child_put_loc(c, loc);
}

static void put_value(Child *c, const char *path, ScriptLoc loc)
{
    lua_State *L = c->L;
    size_t n;
    const char *text;
    switch (lua_type(L, -1)) {
    case LUA_TBOOLEAN:
        begin_field(c, RECORD_bool, path, loc);
        put_u32(&c->out, lua_toboolean(L, -1) != 0);
        break;
    case LUA_TNUMBER:
        begin_field(c, lua_isinteger(L, -1) ? RECORD_int : RECORD_number, path, loc);
        if (lua_isinteger(L, -1))
            put_i64(&c->out, lua_tointeger(L, -1));
        else
            put_f64(&c->out, lua_tonumber(L, -1));
        break;
    case LUA_TSTRING:
        text = lua_tolstring(L, -1, &n);
        if (n > 4096)
            child_raise(L, "out-of-range", loc, NULL,
                        "%s is a text of %zu bytes, but at most 4096 are allowed", path, n);
        child_check_text(c, path, text, n, loc);
        begin_field(c, RECORD_text, path, loc);
        put_text(&c->out, text, n);
        break;
    default:
        begin_field(c, RECORD_other, path, loc);
        text = luaL_typename(L, -1);
        put_text(&c->out, text, strlen(text));
        break;
    }
    record_end(&c->out);
}

static void put_kind(Child *c, const char *path, const char *kind, ScriptLoc loc)
{
    begin_field(c, RECORD_text, path, loc);
    put_text(&c->out, kind, strlen(kind));
    record_end(&c->out);
}

/* True for the table of tp { plan = { ["layers.*.attention.wo"] = "rowwise" } }, whose keys are
 * module paths and may contain dots. */
static bool holds_paths(const char *path)
{
    size_t n = strlen(path);
    return strncmp(path, "parallel.", 9) == 0 && n > 14 && strcmp(path + n - 5, ".plan") == 0 &&
           strspn(path + 9, "0123456789") == n - 14;
}

static const char *key_path(Child *c, const char *path, ScriptLoc loc)
{
    lua_State *L = c->L;
    const char *dot = path[0] != 0 ? "." : "";
    if (lua_isinteger(L, -2))
        return arena_print(c->arena, "%s%s%lld", path, dot, (long long)lua_tointeger(L, -2));
    size_t n;
    const char *key = lua_tolstring(L, -2, &n);
    bool is_name = n > 0 && n <= 64;
    for (size_t i = 0; is_name && i < n; i++)
        is_name = (unsigned char)key[i] >= ' ' && (key[i] != '.' || holds_paths(path));
    if (!is_name)
        child_raise(L, "unknown-key", loc, NULL, "%s has a key that is not a name",
                    path[0] != 0 ? path : "the plan");
    return arena_print(c->arena, "%s%s%s", path, dot, key);
}

/* Sends the table on top of the stack, whose path is `path` ("" for the plan). spot: its braces in
 * the script's text, in which the lines of keys are looked up. */
static void put_table(Child *c, const char *path, Spot spot, int nesting)
{
    lua_State *L = c->L;
    ScriptLoc here = {spot.source, spot.line};
    if (nesting > MOST_NESTING)
        child_raise(L, "out-of-range", here, "a table may contain itself",
                    "%s is nested too deeply", path);
    luaL_checkstack(L, 8, "plan");
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1))
        if (lua_type(L, -2) != LUA_TSTRING && !lua_isinteger(L, -2))
            child_raise(L, "wrong-type", here, NULL, "%s has a %s as a key",
                        path[0] != 0 ? path : "the plan", luaL_typename(L, -2));
    lua_getglobal(L, "pairs");
    lua_pushvalue(L, -2);
    lua_call(L, 1, 3);
    for (;;) {
        lua_pushvalue(L, -3);
        lua_pushvalue(L, -3);
        lua_pushvalue(L, -3);
        lua_call(L, 2, 2);
        if (lua_isnil(L, -2)) break;
        Spot at = lua_isinteger(L, -2)             ? scan_item(c, spot, lua_tointeger(L, -2))
                  : lua_type(L, -2) == LUA_TSTRING ? scan_key(c, spot, lua_tostring(L, -2))
                                                   : spot;
        ScriptLoc loc = {at.source, at.line};
        const char *inner = key_path(c, path, here);
        if (lua_type(L, -1) != LUA_TTABLE) {
            put_value(c, inner, loc);
        } else {
            ScriptLoc own;
            const char *kind = child_kind(L, -1, &own);
            if (kind != NULL) at = scan_call(c, own, kind);
            begin_field(c, RECORD_table, inner, kind != NULL ? own : loc);
            record_end(&c->out);
            if (kind != NULL) put_kind(c, arena_print(c->arena, "%s.kind", inner), kind, own);
            if (strcmp(inner, "model") != 0) put_table(c, inner, at, nesting + 1);
        }
        lua_pop(L, 1);
        /* leave only the key on the stack, from which next continues */
        lua_replace(L, -2);
    }
    lua_pop(L, 5);
}

void child_flatten(Child *c)
{
    lua_State *L = c->L;
    ScriptLoc loc = {0, 0};
    const char *kind = child_kind(L, -1, &loc);
    assert(kind != NULL && strcmp(kind, "plan") == 0);
    begin_field(c, RECORD_table, "", loc);
    record_end(&c->out);
    put_table(c, "", scan_call(c, loc, kind), 0);
}

/* Replaces runtime = "torchtitan" by runtime = require "runtimes.torchtitan". */
void child_named_runtime(Child *c)
{
    lua_State *L = c->L;
    if (lua_getfield(L, -1, "runtime") == LUA_TSTRING) {
        c->set_loc = child_set_loc(c, "runtime");
        lua_getglobal(L, "require");
        lua_pushfstring(L, "runtimes.%s", lua_tostring(L, -2));
        lua_call(L, 1, 1);
        lua_setfield(L, -3, "runtime");
        c->set_loc = (ScriptLoc){0, 0};
    }
    lua_pop(L, 1);
}

static bool is_true(lua_State *L, int table, const char *key)
{
    lua_getfield(L, table, key);
    const bool yes = lua_isboolean(L, -1) && lua_toboolean(L, -1);
    lua_pop(L, 1);
    return yes;
}

/* Sets `option` of the pass on top of the stack to true, unless the plan gives it a value. */
static void set_default(lua_State *L, const char *option)
{
    if (lua_getfield(L, -1, option) == LUA_TNIL) {
        lua_pushboolean(L, true);
        lua_setfield(L, -3, option);
    }
    lua_pop(L, 1);
}

/* If the runtime's profile asks for it, turns on keep_gathered of tp{ sequence = true } and
 * keep_quantised of float8{}. Values that the plan itself gives stay. */
void child_runtime_defaults(Child *c)
{
    lua_State *L = c->L;
    const int plan = lua_gettop(L);
    bool gathered = false, quantised = false;
    if (lua_getfield(L, plan, "runtime") == LUA_TTABLE) {
        gathered = is_true(L, lua_gettop(L), "keeps_gathered");
        quantised = is_true(L, lua_gettop(L), "keeps_quantised");
    }
    if ((gathered || quantised) && lua_getfield(L, plan, "parallel") == LUA_TTABLE) {
        for (lua_Integer i = 1; lua_rawgeti(L, plan + 2, i) == LUA_TTABLE; i++, lua_pop(L, 1)) {
            ScriptLoc loc;
            const char *kind = child_kind(L, -1, &loc);
            if (kind == NULL) continue;
            if (gathered && strcmp(kind, "tp") == 0 && is_true(L, plan + 3, "sequence"))
                set_default(L, "keep_gathered");
            if (quantised && strcmp(kind, "float8") == 0) set_default(L, "keep_quantised");
        }
    }
    lua_settop(L, plan);
}

/* Gives a plan without a cluster the cluster clusters.local_cpu: the machine on which Tandem runs.
 */
void child_default_cluster(Child *c)
{
    lua_State *L = c->L;
    if (lua_getfield(L, -1, "cluster") == LUA_TNIL) {
        lua_getglobal(L, "require");
        lua_pushliteral(L, "clusters.local_cpu");
        lua_call(L, 1, 1);
        lua_newtable(L);
        lua_call(L, 1, 1);
        lua_setfield(L, -3, "cluster");
    }
    lua_pop(L, 1);
}
