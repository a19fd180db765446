/* Gives library scripts the limits that C code checks, such as the greatest number of experts. A
 * script that checks a value itself can report the error at the user's line. */
#include <string.h>

#include "planner/front/child/tracer.h"
#include "planner/ir/op/rope_pairs.h"

/* core.most_of(op, attribute): returns the largest value of an integer attribute of an op, as
 * attrs.def allows it. */
static int core_most_of(lua_State *L)
{
    const OpKind op = op_find(luaL_checkstring(L, 1));
    const char *name = luaL_checkstring(L, 2);
    uint32_t attr = 0;
    AttrBounds b;
    while (attr < ATTRS && strcmp(attr_name(attr), name) != 0) attr++;
    luaL_argcheck(L, op != OP_none, 1, "no op");
    luaL_argcheck(L, attr < ATTRS && attr_is_int(attr) && op_attr_bounds(op, attr, &b), 2,
                  "the op has no such integer");
    lua_pushinteger(L, (lua_Integer)b.hi);
    return 1;
}

void child_add_bounds(lua_State *L)
{
    const struct {
        const char *name;
        double value;
        bool is_int;
    } bounds[] = {{"most", CHILD_MOST_NODES, true},
                  {"most_experts", MOST_EXPERTS, true},
                  {"most_rope_pairs", ROPE_PAIRS, true},
                  {"least_rope_pair", ROPE_PAIR_LEAST, false},
                  {"most_rope_pair", ROPE_PAIR_MOST, false}};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        if (bounds[i].is_int)
            lua_pushinteger(L, (lua_Integer)bounds[i].value);
        else
            lua_pushnumber(L, bounds[i].value);
        lua_setfield(L, -2, bounds[i].name);
    }
    lua_pushcfunction(L, core_most_of);
    lua_setfield(L, -2, "most_of");
}
