/* pairs and next with a fixed order of keys: numbers, then strings, then booleans, each in
 * ascending order. In plain Lua the order depends on addresses and differs from run to run. */
#include <stdlib.h>
#include <string.h>

#include "planner/front/child/child.h"

typedef struct PairKey {
    int type;
    bool is_integer;
    lua_Integer integer;
    lua_Number number;
    /* points into the Lua string, which a list or a stack slot keeps alive */
    const char *text;
    size_t n;
    lua_Integer at; /* index of the key in the unsorted list */
} PairKey;

static int order_of_type(int type)
{
    return type == LUA_TNUMBER ? 0 : type == LUA_TSTRING ? 1 : 2;
}

static int compare(const void *left, const void *right)
{
    const PairKey *a = left, *b = right;
    if (a->type != b->type) return order_of_type(a->type) - order_of_type(b->type);
    if (a->type == LUA_TSTRING) {
        int by_bytes = memcmp(a->text, b->text, a->n < b->n ? a->n : b->n);
        return by_bytes != 0 ? by_bytes : (a->n > b->n) - (a->n < b->n);
    }
    if (a->is_integer && b->is_integer)
        return (a->integer > b->integer) - (a->integer < b->integer);
    /* 2^63 as a double equals the integer 2^63 - 1 after rounding; the integer goes first */
    if (a->number == b->number) return b->is_integer - a->is_integer;
    return (a->number > b->number) - (a->number < b->number);
}

static PairKey key_at(lua_State *L, int index)
{
    PairKey key = {.type = lua_type(L, index)};
    switch (key.type) {
    case LUA_TNUMBER:
        key.is_integer = lua_isinteger(L, index);
        key.integer = lua_tointeger(L, index);
        key.number = lua_tonumber(L, index);
        break;
    case LUA_TSTRING: key.text = lua_tolstring(L, index, &key.n); break;
    case LUA_TBOOLEAN:
        key.is_integer = true;
        key.integer = lua_toboolean(L, index);
        break;
    default:
        luaL_error(
            L,
            "a table with a %s as a key cannot be traversed, because such keys have no fixed order",
            luaL_typename(L, index));
    }
    return key;
}

/* Pushes a sorted list of the keys of the table at `index`. A first walk copies the keys into a
 * list: if the table is weak, an allocation may start the garbage collector, which removes entries,
 * so a second walk could see fewer. */
static void push_keys(lua_State *L, int index)
{
    lua_newtable(L);
    int found = lua_gettop(L);
    lua_Integer n = 0;
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
        lua_pushvalue(L, -2);
        lua_rawseti(L, found, ++n);
    }
    PairKey *keys = lua_newuserdatauv(L, (size_t)n * sizeof *keys + 1, 0);
    for (lua_Integer i = 0; i < n; i++) {
        lua_rawgeti(L, found, i + 1);
        keys[i] = key_at(L, -1);
        keys[i].at = i + 1;
        lua_pop(L, 1);
    }
    qsort(keys, (size_t)n, sizeof *keys, compare);
    lua_createtable(L, n < 1 << 20 ? (int)n : 1 << 20, 0);
    for (lua_Integer i = 0; i < n; i++) {
        lua_rawgeti(L, found, keys[i].at);
        lua_rawseti(L, -2, i + 1);
    }
    lua_replace(L, found);
    lua_settop(L, found);
}

/* The iterator of pairs. Upvalue 1: the sorted list of keys. Upvalue 2: how many of them were
 * visited. */
static int step(lua_State *L)
{
    lua_Integer i = lua_tointeger(L, lua_upvalueindex(2));
    for (;;) {
        i++;
        lua_pushinteger(L, i);
        lua_copy(L, -1, lua_upvalueindex(2));
        lua_pop(L, 1);
        if (lua_rawgeti(L, lua_upvalueindex(1), i) == LUA_TNIL) return 1;
        lua_pushvalue(L, -1);
        if (lua_rawget(L, 1) != LUA_TNIL) return 2;
        lua_pop(L, 2); /* the loop's body has removed this key; skip it */
    }
}

static int sorted_pairs(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    push_keys(L, 1);
    lua_pushinteger(L, 0);
    lua_pushcclosure(L, step, 2);
    lua_pushvalue(L, 1);
    lua_pushnil(L);
    return 3;
}

static int sorted_next(lua_State *L)
{
    enum { TABLE = 1, AFTER, BEST };
    luaL_checktype(L, TABLE, LUA_TTABLE);
    lua_settop(L, AFTER);
    lua_pushnil(L); /* slot BEST keeps the best key's string alive while Lua allocates memory */
    bool first = lua_isnil(L, AFTER), found = false;
    PairKey best = {0}, after = {0};
    if (!first) after = key_at(L, AFTER);
    for (lua_pushnil(L); lua_next(L, TABLE); lua_pop(L, 1)) {
        PairKey key = key_at(L, -2);
        if (!first && compare(&key, &after) <= 0) continue;
        if (found && compare(&key, &best) >= 0) continue;
        best = key;
        found = true;
        lua_pushvalue(L, -2);
        lua_replace(L, BEST);
    }
    if (!found) {
        lua_pushnil(L);
        return 1;
    }
    lua_pushvalue(L, BEST);
    lua_rawget(L, TABLE);
    return 2;
}

void child_open_pairs(lua_State *L)
{
    lua_register(L, "pairs", sorted_pairs);
    lua_register(L, "next", sorted_next);
}
