/* Finds the line of a script that runs now. */
#include <stdlib.h>
#include <string.h>

#include "planner/front/child/child.h"

Child *child_of(lua_State *L)
{
    Child *c;
    memcpy(&c, lua_getextraspace(L), sizeof(Child *));
    return c;
}

/* Returns the script line that the stack frame `ar` executes; source 0 if it is not a script. The
 * loader names each Lua chunk "=N", where N is its index in Child.source. */
static ScriptLoc loc_of(const Child *c, const lua_Debug *ar)
{
    ScriptLoc loc = {0, 0};
    if (ar->source == NULL || ar->source[0] != '=' || ar->currentline <= 0) return loc;
    char *end;
    unsigned long source = strtoul(ar->source + 1, &end, 10);
    if (*end != 0 || source == 0 || source > c->n_sources) return loc;
    return (ScriptLoc){(uint32_t)source, (uint32_t)ar->currentline};
}

static ScriptLoc find_loc(Child *c, bool library, bool shipped)
{
    lua_Debug ar;
    for (int level = 0; lua_getstack(c->L, level, &ar); level++) {
        if (!lua_getinfo(c->L, "Sl", &ar)) continue;
        ScriptLoc loc = loc_of(c, &ar);
        const Source *source = &c->source[loc.source];
        if (loc.source != 0 && (library || !source->library) && (shipped || !source->shipped))
            return loc;
    }
    return c->set_loc;
}

ScriptLoc child_loc(Child *c, bool user)
{
    return find_loc(c, !user, true);
}

ScriptLoc child_plan_loc(Child *c)
{
    return find_loc(c, false, false);
}
