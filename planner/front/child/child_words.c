/* The global functions with which plans are written: plan, sweep, adamw, sgd, and one for each
 * pass. Each records which function received the table. So the parent later knows that the table in
 * `tp { sequence = true }` has options of tp. */
#include <string.h>

#include "planner/front/child/child.h"
#include "planner/front/pass_spec.h"

static const char locs_key[] = "tandem.places";
static const char *const words[] = {"plan",
#define PASS(name) #name,
#include "planner/front/passes.def"
                                    "adamw", "sgd", "sweep"};
enum { N_WORDS = sizeof words / sizeof *words, FIRST_PASS = 1 };

const char *child_kind(lua_State *L, int index, ScriptLoc *loc)
{
    index = lua_absindex(L, index);
    if (lua_type(L, index) != LUA_TTABLE) return NULL;
    luaL_getmetatable(L, locs_key);
    lua_pushvalue(L, index);
    const char *kind = NULL;
    if (lua_rawget(L, -2) == LUA_TNUMBER) {
        uint64_t packed = (uint64_t)lua_tointeger(L, -1);
        *loc = (ScriptLoc){(uint32_t)(packed >> 8 & 0xff), (uint32_t)(packed >> 16)};
        kind = words[packed & 0xff];
    }
    lua_pop(L, 2);
    return kind;
}

/* Returns the option that a bare word sets: "mode" for "ac", because `ac "full"` is short for ac {
 * mode = "full" }. NULL: the function needs a table. */
static const char *short_key(const char *word)
{
    for (uint32_t i = 0; i < PASS_NAME_COUNT; i++)
        if (strcmp(pass_specs[i]->name, word) == 0) return pass_specs[i]->short_key;
    return NULL;
}

/* Implements all these functions. Upvalue 1: index of the function's name in `words`. */
static int mark_table(lua_State *L)
{
    Child *c = child_of(L);
    int word = (int)lua_tointeger(L, lua_upvalueindex(1));
    ScriptLoc loc = child_loc(c, true);
    int type = lua_type(L, 1);
    if (type == LUA_TSTRING && short_key(words[word])) {
        lua_createtable(L, 0, 1);
        lua_pushvalue(L, 1);
        lua_setfield(L, -2, short_key(words[word]));
    } else if (type == LUA_TTABLE) {
        lua_pushvalue(L, 1);
    } else if ((type == LUA_TNIL || type == LUA_TNONE) && word >= FIRST_PASS) {
        lua_newtable(L);
    } else {
        child_raise(L, "wrong-type", loc, arena_print(c->arena, "write %s { ... }", words[word]),
                    "%s needs a table, not %s", words[word], luaL_typename(L, 1));
    }
    ScriptLoc old;
    const char *already = child_kind(L, -1, &old);
    if (already != NULL)
        child_raise(L, "wrong-type", loc, NULL, "%s uses a table that %s{} uses already",
                    words[word], already);
    luaL_getmetatable(L, locs_key);
    lua_pushvalue(L, -2);
    lua_pushinteger(
        L, (lua_Integer)((uint64_t)word | (uint64_t)loc.source << 8 | (uint64_t)loc.line << 16));
    lua_rawset(L, -3);
    lua_pop(L, 1);
    return 1;
}

void child_open_words(Child *c)
{
    lua_State *L = c->L;
    luaL_newmetatable(L, locs_key);
    /* The list of recorded tables has weak keys: a held script (child.h) makes new tables in each
     * request, and those of old requests must be forgotten. */
    lua_createtable(L, 0, 1);
    lua_pushliteral(L, "k");
    lua_setfield(L, -2, "__mode");
    lua_setmetatable(L, -2);
    lua_pop(L, 1);
    for (int i = 0; i < N_WORDS; i++) {
        lua_pushinteger(L, i);
        lua_pushcclosure(L, mark_table, 1);
        lua_setglobal(L, words[i]);
    }
}
