/* Core functions for dialects: library scripts that check another system's configuration before it
 * becomes a plan. Errors, warnings and notes are reported one by one, each with the line of its
 * key. The script ends after all of them. */
#include <string.h>

#include "planner/front/child/child.h"

lua_Integer child_pack_place(Place place)
{
    return (lua_Integer)((uint64_t)place.source << 32 | place.line);
}

Place child_unpack_place(const Child *c, lua_Integer packed)
{
    Place place = {(uint32_t)((uint64_t)packed >> 32), (uint32_t)packed};
    return place.source <= c->n_sources ? place : (Place){0, 0};
}

/* (rule, text, hint or nil, place or nil) */
static int report(lua_State *L, Severity severity)
{
    Child *c = child_of(L);
    const char *rule = luaL_checkstring(L, 1), *text = luaL_checkstring(L, 2);
    const char *hint = luaL_optstring(L, 3, NULL);
    Place place = lua_isnoneornil(L, 4) ? child_place(c, true)
                                        : child_unpack_place(c, luaL_checkinteger(L, 4));
    if (++c->n_reports > CHILD_MOST_REPORTS)
        child_raise(L, "out-of-range", place, NULL,
                    "there are more than %d errors, and the others are not shown",
                    CHILD_MOST_REPORTS);
    child_write_error(c, rule, place, text, hint, severity);
    return 0;
}

static int core_report(lua_State *L)
{
    return report(L, SEVERITY_error);
}

static int core_warn(lua_State *L)
{
    return report(L, SEVERITY_warning);
}

static int core_note(lua_State *L)
{
    return report(L, SEVERITY_note);
}

/* Ends the script here if an error has been reported. */
static int core_stop(lua_State *L)
{
    Child *c = child_of(L);
    if (c->failed) child_raise(L, "", (Place){0, 0}, NULL, "stopped");
    return 0;
}

/* key_place(place, "distributed", "tp"): the line of that key in the table given to the call at
 * `place`. If the key is not found, returns the nearest line around it. */
static int core_key_place(lua_State *L)
{
    Child *c = child_of(L);
    Spot spot = scan_any_call(c, child_unpack_place(c, luaL_checkinteger(L, 1)));
    for (int i = 2; i <= lua_gettop(L); i++) spot = scan_key(c, spot, luaL_checkstring(L, i));
    lua_pushinteger(L, child_pack_place((Place){spot.source, spot.line}));
    return 1;
}

void child_add_reports(lua_State *L)
{
    static const luaL_Reg functions[] = {{"report", core_report},       {"warn", core_warn},
                                         {"note", core_note},           {"stop", core_stop},
                                         {"key_place", core_key_place}, {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
}
