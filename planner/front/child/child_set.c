/* --set key.path=value: changes the plan's table before any other code reads it. The parent has
 * checked that each setting has the form path=value. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "planner/front/child/child.h"
#include "planner/front/pass_spec.h"

enum { MOST_PARTS = 6 };

typedef struct Setting {
    const char *part[MOST_PARTS];
    uint32_t n;
    ScriptLoc loc;
    const char *path;
} Setting;

ScriptLoc child_set_loc(Child *c, const char *path)
{
    for (uint32_t i = c->n_sets; i > 0; i--)
        if (strcmp(c->set[i - 1].path, path) == 0) return (ScriptLoc){c->set[i - 1].source, 0};
    return (ScriptLoc){0, 0};
}

static bool is_index(const char *part)
{
    return part[0] >= '1' && part[0] <= '9' && part[strspn(part, "0123456789")] == 0 &&
           strlen(part) < 4;
}

static void push_part(lua_State *L, const char *part)
{
    if (is_index(part))
        lua_pushinteger(L, strtol(part, NULL, 10));
    else
        lua_pushstring(L, part);
}

void child_push_value(lua_State *L, const char *value)
{
    size_t n = strlen(value);
    if (strcmp(value, "true") == 0 || strcmp(value, "false") == 0)
        lua_pushboolean(L, value[0] == 't');
    else if (n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n - 1] == value[0])
        lua_pushlstring(L, value + 1, n - 2);
    else if (n == 0 || lua_stringtonumber(L, value) == 0)
        lua_pushstring(L, value);
}

/* Pushes a list of the string keys of the table at `index`, in order. Returns its stack index. */
static int push_keys(lua_State *L, int index)
{
    lua_Integer n = 0;
    index = lua_absindex(L, index);
    lua_newtable(L);
    lua_getglobal(L, "pairs");
    lua_pushvalue(L, index);
    lua_call(L, 1, 3);
    for (;;) {
        for (int i = 0; i < 3; i++) lua_pushvalue(L, -3);
        lua_call(L, 2, 2);
        if (lua_isnil(L, -2)) break;
        lua_pop(L, 1);
        if (lua_type(L, -1) == LUA_TSTRING) {
            lua_pushvalue(L, -1);
            lua_rawseti(L, -6, ++n);
        }
        lua_replace(L, -2);
    }
    lua_pop(L, 5);
    return lua_gettop(L);
}

/* Replaces the table on top of the stack by a shallow copy. */
static void copy_table(lua_State *L)
{
    lua_newtable(L);
    for (lua_pushnil(L); lua_next(L, -3) != 0;) {
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        lua_rawset(L, -4);
    }
    lua_remove(L, -2);
}

/* Raises an error: the table on top of the stack, called `where` in the message, has no key `part`.
 * The hint lists its keys. */
static _Noreturn void no_such_entry(Child *c, const Setting *s, const char *where, const char *part)
{
    const lua_Integer n = (lua_Integer)lua_rawlen(c->L, -1);
    const int keys = push_keys(c->L, -1);
    const char *hint =
        n > 0 ? arena_print(c->arena, "its entries are numbered 1 to %lld", (long long)n)
              : child_near_or_all(c->L, part, keys);
    child_raise(c->L, "unknown-key", s->loc, hint, "there is no '%s' in %s", part, where);
}

/* For a setting of the model's config: leaves the table that contains its last key on top of the
 * stack. For model.layers = 2 this is model.config, for model.rope_scaling.length = 8192 it is
 * model.config.rope_scaling. The keys must exist. Each table on the way is replaced by a copy,
 * because models may share it. */
static void enter_model(Child *c, const Setting *s)
{
    lua_State *L = c->L;
    const char *where = "the model's config";
    if (lua_getfield(L, -1, "model") != LUA_TTABLE || lua_getfield(L, -1, "config") != LUA_TTABLE)
        child_raise(L, "unknown-key", s->loc, NULL, "the plan's model has no config to change");
    lua_remove(L, -2);
    for (uint32_t i = 1;; i++) {
        const char *part = s->part[i];
        push_part(L, part);
        const int type = lua_rawget(L, -2);
        if (type == LUA_TNIL) {
            lua_pop(L, 1);
            no_such_entry(c, s, where, part);
        }
        if (i + 1 == s->n) break;
        if (type != LUA_TTABLE)
            child_raise(L, "unknown-key", s->loc, NULL, "'%s' is a %s, so it contains no keys",
                        part, luaL_typename(L, -1));
        copy_table(L);
        push_part(L, part);
        lua_pushvalue(L, -2);
        lua_rawset(L, -4);
        lua_remove(L, -2);
        where = i == 1 ? arena_print(c->arena, "model.%s", part)
                       : arena_print(c->arena, "%s.%s", where, part);
    }
    lua_pop(L, 1);
}

/* Pushes the table that contains the last key of the setting's path: for mesh.tp, the table `mesh`
 * of the table on top of the stack. Begins at part `first` of the path, and creates missing tables.
 */
static void enter_tables(Child *c, const Setting *s, uint32_t first)
{
    lua_State *L = c->L;
    lua_pushvalue(L, -1);
    for (uint32_t i = first; i + 1 < s->n; i++) {
        push_part(L, s->part[i]);
        if (lua_rawget(L, -2) == LUA_TNIL) {
            lua_pop(L, 1);
            lua_newtable(L);
            push_part(L, s->part[i]);
            lua_pushvalue(L, -2);
            lua_rawset(L, -4);
        } else if (!lua_istable(L, -1)) {
            child_raise(L, "unknown-key", s->loc, NULL, "'%s' is a %s, so it contains no keys",
                        s->part[i], luaL_typename(L, -1));
        }
        lua_remove(L, -2);
    }
}

static int pass_row(const char *name)
{
    for (int i = 0; i < PASS_NAME_COUNT; i++)
        if (strcmp(pass_specs[i]->name, name) == 0) return i;
    return -1;
}

/* Returns the index (PassName) of the pass that is element i of the Lua list at `list`, or -1 if
 * the element is not a pass. */
static int listed_row(lua_State *L, int list, lua_Integer i)
{
    ScriptLoc ignored;
    lua_rawgeti(L, list, i);
    const char *kind = child_kind(L, -1, &ignored);
    lua_pop(L, 1);
    return kind != NULL ? pass_row(kind) : -1;
}

static void take_out(lua_State *L, int list, lua_Integer at)
{
    lua_Integer n = (lua_Integer)lua_rawlen(L, list);
    for (lua_Integer i = at; i <= n; i++) {
        lua_rawgeti(L, list, i + 1);
        lua_rawseti(L, list, i);
    }
}

/* Inserts pass `name` with default options into the Lua list of passes at `list`, at its place in
 * the order of passes.def. A plan has at most one data pass (ddp, fsdp2, zero), so a data pass
 * replaces the old one. Returns the index of the new element. */
static lua_Integer put_in(lua_State *L, int list, const char *name)
{
    const int loc = pass_row(name);
    lua_Integer n = (lua_Integer)lua_rawlen(L, list), at = n + 1;
    for (lua_Integer i = n; i >= 1; i--) {
        int other = listed_row(L, list, i);
        if (other < 0) continue;
        if (pass_specs[loc]->is_data && pass_specs[other]->is_data) {
            take_out(L, list, i);
            n--;
            at = i;
        } else if (other > loc) {
            at = i;
        }
    }
    for (lua_Integer i = n; i >= at; i--) {
        lua_rawgeti(L, list, i);
        lua_rawseti(L, list, i + 1);
    }
    /* the global function of this name (tp, ac, ...) makes a table that child_kind recognises */
    lua_getglobal(L, name);
    lua_newtable(L);
    lua_call(L, 1, 1);
    lua_rawseti(L, list, at);
    return at;
}

/* Pushes the list `parallel` of the plan on top of the stack. Creates it if the plan has none. */
static void push_passes(lua_State *L)
{
    if (lua_getfield(L, -1, "parallel") == LUA_TTABLE) return;
    lua_pop(L, 1);
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, "parallel");
}

/* parallel.data=zero: replaces the plan's data pass (ddp, fsdp2 or zero) by the named one. */
static void set_data_pass(Child *c, const Setting *s, const char *name)
{
    lua_State *L = c->L;
    const int loc = pass_row(name);
    if (loc < 0 || !pass_specs[loc]->is_data) {
        Str words = str_in(c->arena);
        for (int i = 0; i < PASS_NAME_COUNT; i++)
            if (pass_specs[i]->is_data)
                str_print(&words, "%s%s", words.n > 0 ? ", " : "one of: ", pass_specs[i]->name);
        child_raise(L, "unknown-word", s->loc, str_text(&words), "'%s' is not a data pass", name);
    }
    push_passes(L);
    const int list = lua_gettop(L);
    for (lua_Integer i = 1; i <= (lua_Integer)lua_rawlen(L, list); i++)
        if (listed_row(L, list, i) == loc) return;
    put_in(L, list, name);
}

/* Raises an error for a setting such as parallel.ep=on: the pass has no option that a bare word
 * sets (PassSpec.short_key). */
static _Noreturn void refuse_word(Child *c, const Setting *s, const char *name, const char *value)
{
    const PassOption *option = pass_specs[pass_row(name)]->options;
    const char *path = option != NULL ? option->field.path : NULL;
    const char *other =
        path != NULL ? arena_print(c->arena, "; to set an option, write parallel.%s=...", path)
                     : "";
    child_raise(c->L, "unknown-word", s->loc,
                arena_print(c->arena, "parallel.%s=true adds the pass, and =none removes it%s",
                            name, other),
                "%s{} has no option with the value '%.40s'", name, value);
}

/* For a setting such as parallel.tp.sequence=true: leaves the table of the pass on top of the
 * stack; inserts the pass if the plan lacks it. Returns false if nothing remains to be set:
 * parallel.tp=true only inserts the pass, parallel.tp=none removes it. */
static bool enter_parallel(Child *c, Setting *s, const char *value)
{
    lua_State *L = c->L;
    const char *wanted = s->n > 1 ? s->part[1] : "";
    push_passes(L);
    lua_newtable(L);
    int names = lua_gettop(L), list = names - 1;
    lua_Integer n = (lua_Integer)lua_rawlen(L, list), found = 0;
    for (lua_Integer i = 1; i <= n && i < 100; i++) {
        lua_rawgeti(L, list, i);
        ScriptLoc ignored;
        const char *kind = child_kind(L, -1, &ignored);
        if (kind != NULL && strcmp(kind, wanted) == 0) found = i;
        lua_pushstring(L, kind != NULL ? kind : "");
        lua_rawseti(L, names, i);
        lua_pop(L, 1);
    }
    if (found == 0 && wanted[0] == 0)
        child_raise(L, "unknown-key", s->loc,
                    "name a pass and its option, as in --set parallel.tp.sequence=false",
                    "parallel is a list of passes, so it cannot be set as a whole");
    const bool out = s->n == 2 && strcmp(value, "none") == 0, known = pass_row(wanted) >= 0;
    if (out && known) {
        if (found > 0) take_out(L, list, found);
        return false;
    }
    const char *rest = s->n == 2 && known ? pass_specs[pass_row(wanted)]->short_key : NULL;
    if (s->n == 2 && known && rest == NULL && strcmp(value, "true") != 0)
        refuse_word(c, s, wanted, value);
    if (found == 0 && known) found = put_in(L, list, wanted);
    if (found == 0) {
        const char *near = child_near(L, wanted, names);
        child_raise(L, "unknown-key", s->loc,
                    near != NULL ? near : "`tandem help plans` lists the passes",
                    "the plan's parallel list has no '%s'", wanted);
    }
    lua_pop(L, 1);
    lua_rawgeti(L, list, found);
    lua_remove(L, list);
    /* parallel.tp=true: only insert the pass with its default options */
    if (s->n == 2 && strcmp(value, "true") == 0) return false;
    if (rest != NULL) s->part[s->n++] = rest;
    Str path = str_in(c->arena);
    str_print(&path, "parallel.%lld", (long long)found);
    for (uint32_t i = 2; i < s->n; i++) str_print(&path, ".%s", s->part[i]);
    s->path = str_text(&path);
    if (s->n > 3) enter_tables(c, s, 2);
    return true;
}

/* Applies a setting that replaces a whole table, such as cluster=dgx_h100, or parallel.data=.
 * Returns false for any other setting. */
static bool set_whole(Child *c, const Setting *s, const char *value)
{
    const char *key = s->part[0];
    if (s->n == 1 && strcmp(key, "cluster") == 0) {
        child_set_cluster(c, value);
    } else if (s->n == 1 && strcmp(key, "gpu") == 0) {
        child_set_gpu(c, s->loc, value);
    } else if (s->n == 2 && strcmp(key, "cluster") == 0 && strcmp(s->part[1], "device") == 0) {
        child_refuse_device(c, s->loc, value);
    } else if (s->n == 1 && strcmp(key, "model") == 0) {
        child_set_model(c, value);
    } else if (s->n == 1 && strcmp(key, "runtime") == 0 && strcmp(value, "none") == 0) {
        lua_pushnil(c->L); /* without a runtime, costs are those of Tandem's own executor */
        lua_setfield(c->L, -2, "runtime");
    } else if (s->n == 2 && strcmp(key, "parallel") == 0 && strcmp(s->part[1], "data") == 0) {
        set_data_pass(c, s, value);
    } else {
        return false;
    }
    return true;
}

static void apply(Child *c, const char *text)
{
    lua_State *L = c->L;
    const char *equals = strchr(text, '=');
    assert(equals != NULL);
    Setting s = {.n = 0};
    char *path = arena_copy(c->arena, text, (size_t)(equals - text));
    s.path = arena_dup(c->arena, path);
    Source own = {.name = arena_print(c->arena, "--set %s", text)};
    uint32_t source = child_source(c, &own);
    s.loc = c->set_loc = (ScriptLoc){source, 0};
    for (char *part = path; part != NULL && s.n < MOST_PARTS - 1;) {
        char *dot = strchr(part, '.');
        if (dot != NULL) *dot++ = 0;
        s.part[s.n++] = part;
        part = dot;
    }
    int top = lua_gettop(L);
    bool holds = !set_whole(c, &s, equals + 1);
    if (holds && strcmp(s.part[0], "model") == 0)
        enter_model(c, &s);
    else if (holds && strcmp(s.part[0], "parallel") == 0)
        holds = enter_parallel(c, &s, equals + 1);
    else if (holds)
        enter_tables(c, &s, 0);
    if (holds) {
        push_part(L, s.part[s.n - 1]);
        child_push_value(L, equals + 1);
        lua_rawset(L, -3);
    }
    lua_settop(L, top);
    c->set[c->n_sets].path = s.path;
    c->set[c->n_sets++].source = source;
}

/* The order in which settings are applied: whole tables (cluster=NAME), then the GPU in the
 * cluster's nodes, then single keys (cluster.nodes=2). Otherwise a new table would undo an earlier
 * key. */
enum { SETS_table, SETS_gpu, SETS_key, SETS_ORDER };

static int order_of(const char *text)
{
    const size_t n = strcspn(text, "=");
    if (memchr(text, '.', n) != NULL) return SETS_key;
    return n == 3 && memcmp(text, "gpu", n) == 0 ? SETS_gpu : SETS_table;
}

void child_apply_sets(Child *c)
{
    for (int order = 0; order < SETS_ORDER; order++)
        for (uint32_t i = 0; i < c->options->n_set; i++) {
            if (order_of(c->options->set[i]) != order) continue;
            assert(c->n_sets < CHILD_MOST_SETS);
            apply(c, c->options->set[i]);
        }
    c->set_loc = (ScriptLoc){0, 0};
}
