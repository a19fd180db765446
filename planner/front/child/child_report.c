/* Functions of tandem.core with which dialects report errors. A dialect is a library script that
 * reads another framework's configuration and returns a plan. It reports each mistake with the line
 * of its key and continues; core.stop then ends the script, so the user sees all mistakes at once.
 */
#include <string.h>

#include "planner/front/child/child.h"

lua_Integer child_pack_loc(ScriptLoc loc)
{
    return (lua_Integer)((uint64_t)loc.source << 32 | loc.line);
}

ScriptLoc child_unpack_loc(const Child *c, lua_Integer packed)
{
    ScriptLoc loc = {(uint32_t)((uint64_t)packed >> 32), (uint32_t)packed};
    return loc.source <= c->n_sources ? loc : (ScriptLoc){0, 0};
}

/* Implements core.report (an error), core.warn and core.note: (rule, text, hint or nil, location or
 * nil). */
static int report(lua_State *L, Severity severity)
{
    Child *c = child_of(L);
    const char *rule = luaL_checkstring(L, 1), *text = luaL_checkstring(L, 2);
    const char *hint = luaL_optstring(L, 3, NULL);
    ScriptLoc loc =
        lua_isnoneornil(L, 4) ? child_loc(c, true) : child_unpack_loc(c, luaL_checkinteger(L, 4));
    if (++c->n_reports > CHILD_MOST_REPORTS)
        child_raise(L, "out-of-range", loc, NULL,
                    "there are more than %d errors, and the others are not shown",
                    CHILD_MOST_REPORTS);
    child_write_error(c, rule, loc, text, hint, severity);
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

/* core.stop(): ends the script if an error was reported. */
static int core_stop(lua_State *L)
{
    Child *c = child_of(L);
    if (c->failed) child_raise(L, "", (ScriptLoc){0, 0}, NULL, "stopped");
    return 0;
}

/* core.key_location(location, "distributed", "tp"): returns the line of distributed = { tp = ... }
 * in the braces of the call at `location`. If a key is not found, returns the line of the last key
 * that was. */
static int core_key_location(lua_State *L)
{
    Child *c = child_of(L);
    Spot spot = scan_any_call(c, child_unpack_loc(c, luaL_checkinteger(L, 1)));
    for (int i = 2; i <= lua_gettop(L); i++) spot = scan_key(c, spot, luaL_checkstring(L, i));
    lua_pushinteger(L, child_pack_loc((ScriptLoc){spot.source, spot.line}));
    return 1;
}

void child_add_reports(lua_State *L)
{
    static const luaL_Reg functions[] = {{"report", core_report},
                                         {"warn", core_warn},
                                         {"note", core_note},
                                         {"stop", core_stop},
                                         {"key_location", core_key_location},
                                         {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
}
