/* sweep{}: a script that describes many plans, the points of the sweep. The child sends the table's
 * content once. Then, for one point after another, the parent asks it to call the functions where,
 * require and score. A function may change variables of the script, so the calls always come in the
 * same order, whatever the number of worker processes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "planner/front/child/child.h"

enum { MOST_NESTING = 5, MOST_VALUE = 500, MOST_PAIRS = 512, MOST_TEXT = 4096 };

static const char *const call_names[SWEEP_CALLS] = {"where", "require", "score"};

static void send_text(Child *c, const char *path, ScriptLoc loc, const char *text)
{
    if (++c->n_fields > CHILD_MOST_FIELDS)
        child_raise(c->L, "out-of-range", loc, NULL, "the sweep has more than %d values",
                    CHILD_MOST_FIELDS);
    child_send_files(c);
    record_begin(&c->out, RECORD_text);
    put_text(&c->out, path, strlen(path));
    child_put_loc(c, loc);
    put_text(&c->out, text, strlen(text));
    record_end(&c->out);
}

static ScriptLoc loc_of(Spot spot)
{
    return (ScriptLoc){spot.source, spot.line};
}

/* Calls `visit` for each key of the table on top of the stack, in sorted order, with the key and
 * its value on top of the stack. */
typedef void (*Visit)(Child *c, const char *path, Spot table);
static void for_each(Child *c, const char *path, Spot table, Visit visit)
{
    lua_State *L = c->L;
    luaL_checkstack(L, 12, "sweep");
    lua_getglobal(L, "pairs");
    lua_pushvalue(L, -2);
    lua_call(L, 1, 3);
    for (;;) {
        for (int i = 0; i < 3; i++) lua_pushvalue(L, -3);
        lua_call(L, 2, 2);
        if (lua_isnil(L, -2)) break;
        lua_remove(L, -3); /* the previous key */
        const int top = lua_gettop(L);
        visit(c, path, table);
        lua_settop(L, top - 1);
    }
    lua_pop(L, 5);
}

static const char *value_text(Child *c, const char *path, ScriptLoc loc)
{
    lua_State *L = c->L;
    const int type = lua_type(L, -1);
    if (type == LUA_TBOOLEAN) return lua_toboolean(L, -1) ? "true" : "false";
    if (type != LUA_TNUMBER && type != LUA_TSTRING)
        child_raise(L, "wrong-type", loc, "a value may be a number, a text, true or false",
                    "vary.%s has a value that is a %s", path, luaL_typename(L, -1));
    size_t n;
    /* lua_tolstring would turn a number in the script's table into a string, so convert a copy */
    lua_pushvalue(L, -1);
    const char *text = lua_tolstring(L, -1, &n);
    child_check_text(c, path, text, n, loc);
    if (n == 0 || n > MOST_VALUE)
        child_raise(L, "out-of-range", loc, NULL,
                    "vary.%s has a text of %zu bytes, but only 1 to %d are allowed", path, n,
                    MOST_VALUE);
    text = arena_copy(c->arena, text, n);
    lua_pop(L, 1);
    return text;
}

/* Sends the list of values on top of the stack, each as the text "vary.<path>", value. */
static void send_values(Child *c, const char *path, Spot list)
{
    lua_State *L = c->L;
    const lua_Integer n = (lua_Integer)lua_rawlen(L, -1);
    lua_Integer n_keys = 0;
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) n_keys++;
    if (n_keys != n)
        child_raise(L, "wrong-type", loc_of(list), NULL, "vary.%s has both values and keys", path);
    const char **values = arena_array(c->arena, (uint32_t)n, sizeof *values);
    for (lua_Integer i = 1; i <= n; i++, lua_pop(L, 1)) {
        const ScriptLoc loc = loc_of(scan_item(c, list, i));
        lua_rawgeti(L, -1, i);
        values[i - 1] = value_text(c, path, loc);
        for (lua_Integer k = 1; k < i; k++)
            if (strcmp(values[k - 1], values[i - 1]) == 0)
                child_raise(L, "option-value", loc, NULL, "vary.%s: the value %s comes twice", path,
                            values[i - 1]);
        send_text(c, arena_print(c->arena, "vary.%s", path), loc, values[i - 1]);
    }
}

/* True if the value on top of the stack is not a table, or is an empty one. */
static bool is_empty(lua_State *L)
{
    if (!lua_istable(L, -1)) return true;
    lua_pushnil(L);
    if (lua_next(L, -2) == 0) return true;
    lua_pop(L, 2);
    return false;
}

/* Raises an error if vary names the setting `path` twice, as { mesh = { tp = ... }, ["mesh.tp"] =
 * ... } does. */
static void refuse_second(Child *c, const char *path, ScriptLoc loc)
{
    const char *mark = arena_print(c->arena, "vary.%s", path);
    if (lua_getfield(c->L, LUA_REGISTRYINDEX, mark) != LUA_TNIL)
        child_raise(c->L, "option-value", loc, "write all its values in one list",
                    "vary.%s comes twice", path);
    lua_pop(c->L, 1);
    lua_pushboolean(c->L, 1);
    lua_setfield(c->L, LUA_REGISTRYINDEX, mark);
}

static void vary_key(Child *c, const char *path, Spot table)
{
    lua_State *L = c->L;
    size_t n = 0;
    const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tolstring(L, -2, &n) : NULL;
    if (key == NULL)
        child_raise(L, "wrong-type", loc_of(table),
                    "for example vary = { mesh = { tp = { 1, 2, 4 } } }",
                    "vary%s%s has values, but no setting that would take them",
                    path[0] != 0 ? "." : "", path);
    const Spot spot = scan_key(c, table, key);
    child_check_text(c, "a key of vary", key, n, loc_of(spot));
    if (n == 0 || strpbrk(key, " =") != NULL || strlen(path) + n > 190)
        child_raise(L, "unknown-key", loc_of(spot), NULL, "vary: '%.60s' is not a setting", key);
    const char *inner = arena_print(c->arena, "%s%s%s", path, path[0] != 0 ? "." : "", key);
    uint32_t parts = 1;
    for (const char *at = inner; *at != 0; at++) parts += *at == '.';
    if (parts > MOST_NESTING || is_empty(L))
        child_raise(L, "wrong-type", loc_of(spot), "for example tp = { 1, 2, 4 }",
                    "vary.%s needs a list of values", inner);
    if (lua_rawlen(L, -1) == 0) {
        for_each(c, inner, spot, vary_key);
        return;
    }
    refuse_second(c, inner, loc_of(spot));
    send_values(c, inner, spot);
}

static void keep_call(Child *c, SweepCall call, ScriptLoc loc)
{
    if (!lua_isfunction(c->L, -1))
        child_raise(c->L, "wrong-type", loc, NULL, "%s needs a function, not %s", call_names[call],
                    luaL_typename(c->L, -1));
    lua_pushvalue(c->L, -1);
    c->calls[call] = luaL_ref(c->L, LUA_REGISTRYINDEX);
    if (call != SWEEP_score) send_text(c, call_names[call], loc, "");
}

/* Reads score = function(r) ... end, or with a name, score = { ["GPU days"] = function(r) ... end
 * }. Sends the name and keeps the function. */
static void take_score(Child *c, Spot spot)
{
    lua_State *L = c->L;
    const char *name = call_names[SWEEP_score];
    if (lua_istable(L, -1)) {
        lua_pushnil(L);
        if (lua_next(L, -2) == 0 || lua_type(L, -2) != LUA_TSTRING)
            child_raise(L, "wrong-type", loc_of(spot),
                        "for example score = { [\"GPU days\"] = function(r) ... end }",
                        "score has no name");
        size_t n;
        name = lua_tolstring(L, -2, &n);
        child_check_text(c, "the score's name", name, n, loc_of(spot));
        if (n == 0 || n > 60)
            child_raise(L, "out-of-range", loc_of(spot), NULL,
                        "the score's name has %zu bytes, but only 1 to 60 are allowed", n);
        name = arena_copy(c->arena, name, n);
        lua_pushvalue(L, -2);
        if (lua_next(L, -4) != 0)
            child_raise(L, "wrong-type", loc_of(spot), "give one name and one function",
                        "score has more than one entry");
    }
    send_text(c, "score", loc_of(spot), name);
    keep_call(c, SWEEP_score, loc_of(spot));
}

static void sweep_key(Child *c, const char *path, Spot table)
{
    (void)path;
    lua_State *L = c->L;
    if (lua_type(L, -2) != LUA_TSTRING)
        child_raise(L, "wrong-type", loc_of(table),
                    "for example sweep { plan = \"plans/llama3_8b.lua\", vary = { ... } }",
                    "sweep has a %s as a key", luaL_typename(L, -2));
    const char *key = lua_tostring(L, -2);
    const Spot spot = scan_key(c, table, key);
    if (strcmp(key, "plan") == 0) {
        size_t n;
        if (lua_type(L, -1) != LUA_TSTRING)
            child_raise(L, "wrong-type", loc_of(spot), "for example plan = \"plans/llama3_8b.lua\"",
                        "plan needs the path of a script, not %s", luaL_typename(L, -1));
        const char *text = lua_tolstring(L, -1, &n);
        child_check_text(c, "plan", text, n, loc_of(spot));
        if (n == 0 || n > MOST_VALUE)
            child_raise(L, "out-of-range", loc_of(spot), NULL,
                        "plan: the path has %zu bytes, which is too long", n);
        send_text(c, "plan", loc_of(spot), text);
    } else if (strcmp(key, "vary") == 0) {
        if (is_empty(L))
            child_raise(L, "wrong-type", loc_of(spot),
                        "for example vary = { mesh = { tp = { 1, 2, 4 } } }",
                        "vary needs a table of settings with their values");
        for_each(c, "", spot, vary_key);
    } else if (strcmp(key, "score") == 0) {
        take_score(c, spot);
    } else if (strcmp(key, "where") == 0 || strcmp(key, "require") == 0) {
        keep_call(c, key[0] == 'w' ? SWEEP_where : SWEEP_require, loc_of(spot));
    } else {
        lua_newtable(L);
        for (uint32_t i = 0; i < front_n_sweep_keys; i++) {
            lua_pushstring(L, front_sweep_keys[i].name);
            lua_rawseti(L, -2, (lua_Integer)i + 1);
        }
        child_raise(L, "unknown-key", loc_of(spot), child_near_or_all(L, key, lua_gettop(L)),
                    "sweep has no key '%s'", key);
    }
}

static bool has_key(lua_State *L, const char *key)
{
    lua_pushstring(L, key);
    const bool has = lua_rawget(L, -2) != LUA_TNIL;
    lua_pop(L, 1);
    return has;
}

void child_sweep(Child *c, const char *kind, ScriptLoc loc)
{
    lua_State *L = c->L;
    for (int i = 0; i < SWEEP_CALLS; i++) c->calls[i] = LUA_NOREF;
    send_text(c, "kind", loc, kind);
    if (strcmp(kind, "plan") == 0) return;
    for_each(c, "", scan_call(c, loc, kind), sweep_key);
    for (uint32_t i = 0; i < front_n_sweep_keys; i++)
        if (!front_sweep_keys[i].optional && !has_key(L, front_sweep_keys[i].name))
            child_raise(L, "missing-key", loc, NULL, "the sweep has no %s",
                        front_sweep_keys[i].name);
}

/* ---- calls */

typedef struct Call {
    SweepCall call;
    /* [0]: number of settings of the point; [1]: number of values in its result */
    uint32_t n[2];
    const char **pairs[2]; /* for [0] and [1]: name, value, name, value, ... */
} Call;

/* Reads the parent's next request to call a function into *call. Returns false if the parent has
 * closed the socket. */
static bool read_call(Child *c, Call *call)
{
    uint32_t head[3];
    if (!child_receive(c->fd, head, sizeof head) || head[0] >= SWEEP_CALLS) return false;
    call->call = (SweepCall)head[0];
    for (int t = 0; t < 2; t++) {
        call->n[t] = head[1 + t];
        if (call->n[t] > MOST_PAIRS) return false;
        call->pairs[t] = arena_array(c->arena, 2 * call->n[t] + 1, sizeof *call->pairs[t]);
        for (uint32_t i = 0; i < 2 * call->n[t]; i++) {
            uint32_t bytes = 0;
            if (!child_receive(c->fd, &bytes, sizeof bytes) || bytes > MOST_TEXT) return false;
            char *text = arena_alloc(c->arena, bytes + 1);
            if (!child_receive(c->fd, text, bytes)) return false;
            call->pairs[t][i] = text;
        }
    }
    return true;
}

/* For a name that results have only with a certain command-line option: returns the hint to add
 * this option. NULL: an ordinary name. */
static const char *option_of(const char *name)
{
    return strcmp(name, "days") == 0 ? "add --tokens, the length of the training"
           : strcmp(name, "usd_per_token") == 0
               ? "add --price, because the library has no price for these GPUs"
               : NULL;
}

/* __index of the tables that functions receive: raises an error for an unknown name, where nil
 * would hide a spelling mistake. Upvalue 1: what the table is called in the message; upvalue 2: the
 * list of known names. */
static int no_such_value(lua_State *L)
{
    Child *c = child_of(L);
    const char *what = lua_tostring(L, lua_upvalueindex(1));
    const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : luaL_typename(L, 2);
    const char *option = option_of(name);
    child_raise(L, "unknown-name", child_loc(c, true),
                option != NULL ? option : child_near_or_all(L, name, lua_upvalueindex(2)),
                "%s has no '%s'", what, name);
}

/* Pushes a table of call->pairs[t], which raises an error if an unknown name is read. what: its
 * name in messages. */
static void push_values(lua_State *L, const char *what, const Call *call, int t)
{
    lua_createtable(L, 0, (int)call->n[t]);
    lua_createtable(L, 0, 2);
    lua_pushstring(L, what);
    lua_createtable(L, (int)call->n[t], 0);
    for (uint32_t i = 0; i < call->n[t]; i++) {
        const char *const *pair = &call->pairs[t][2 * i];
        lua_pushstring(L, pair[0]);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
        child_push_value(L, pair[1]);
        lua_setfield(L, -5, pair[0]);
    }
    lua_pushcclosure(L, no_such_value, 2);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
}

/* Returns the line on which the function on top of the stack begins. */
static ScriptLoc function_loc(Child *c)
{
    lua_Debug ar;
    lua_pushvalue(c->L, -1);
    if (!lua_getinfo(c->L, ">S", &ar) || ar.source == NULL || ar.source[0] != '=')
        return (ScriptLoc){0, 0};
    const unsigned long source = strtoul(ar.source + 1, NULL, 10);
    if (source == 0 || source > c->n_sources || ar.linedefined <= 0) return (ScriptLoc){0, 0};
    return (ScriptLoc){(uint32_t)source, (uint32_t)ar.linedefined};
}

static void send_answer(Child *c, SweepCall call, ScriptLoc loc)
{
    lua_State *L = c->L;
    const char *name = call_names[call];
    if (call == SWEEP_score) {
        const double score = lua_type(L, -2) == LUA_TNUMBER ? lua_tonumber(L, -2) : NAN;
        if (!isfinite(score))
            child_raise(L, "wrong-type", loc, NULL,
                        "score returns %s, but must return a finite number",
                        lua_type(L, -2) == LUA_TNUMBER ? "a number that is not finite"
                                                       : luaL_typename(L, -2));
        record_begin(&c->out, RECORD_number);
        put_text(&c->out, "", 0);
        child_put_loc(c, (ScriptLoc){0, 0});
        put_f64(&c->out, score);
        record_end(&c->out);
        return;
    }
    if (!lua_isboolean(L, -2))
        child_raise(L, "wrong-type", loc, "check that the function has a return",
                    "%s returns %s, but must return true or false", name, luaL_typename(L, -2));
    if (call == SWEEP_require && !lua_isnil(L, -1) && lua_type(L, -1) != LUA_TSTRING)
        child_raise(L, "wrong-type", loc, NULL,
                    "the second value of require is %s, but must be a text with the reason",
                    luaL_typename(L, -1));
    record_begin(&c->out, RECORD_bool);
    put_text(&c->out, "", 0);
    child_put_loc(c, (ScriptLoc){0, 0});
    put_u32(&c->out, lua_toboolean(L, -2) != 0);
    record_end(&c->out);
    if (call == SWEEP_require && lua_type(L, -1) == LUA_TSTRING) {
        size_t n;
        const char *why = lua_tolstring(L, -1, &n);
        child_check_text(c, "the reason of require", why, n, loc);
        send_text(c, "why", (ScriptLoc){0, 0}, arena_copy(c->arena, why, n < 400 ? n : 400));
    }
}

/* Calls the function that the request names, and sends what it returns. Upvalue 1: the Call. */
static int answer(lua_State *L)
{
    Child *c = child_of(L);
    const Call *call = lua_touserdata(L, lua_upvalueindex(1));
    lua_rawgeti(L, LUA_REGISTRYINDEX, c->calls[call->call]);
    const ScriptLoc loc = function_loc(c);
    if (call->call != SWEEP_where) push_values(L, "the result", call, 1);
    push_values(L, "the point", call, 0);
    lua_call(L, call->call != SWEEP_where ? 2 : 1, 2);
    send_answer(c, call->call, loc);
    return 0;
}

_Noreturn void child_serve_sweep(Child *c)
{
    if (!child_finish(c, LUA_OK)) _exit(1);
    Arena *own = c->arena = arena_new(); /* memory of one call */
    Call call;
    while (read_call(c, &call)) {
        c->out.bytes.n = 0;
        c->n_fields = 0;
        c->expired = c->fired = c->fired_before = 0;
        child_limit_again(c);
        lua_settop(c->L, 0);
        lua_pushcfunction(c->L, child_on_error);
        lua_pushlightuserdata(c->L, &call);
        lua_pushcclosure(c->L, answer, 1);
        const int status = lua_pcall(c->L, 0, 0, 1);
        if (!child_finish(c, status)) _exit(1);
        /* the time limit has interrupted the interpreter, whose state is now unknown */
        if (c->expired > 0) break;
        arena_reset(own);
    }
    _exit(0);
}
