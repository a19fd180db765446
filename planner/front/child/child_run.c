/* The steps of the child: load and run the script, send the configuration, receive the Answer,
 * trace the model, end. The process of a held script answers many requests: it runs the script
 * once, and repeats the steps after it for each request. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "planner/front/child/child.h"

/* Loads and runs the script, then sends its plan and its model. Sweeps and held scripts instead
 * keep their table for the requests that follow. */
static int evaluate(lua_State *L)
{
    Child *c = child_of(L);
    child_open_library(c);
    child_open_require(c);
    child_open_words(c);
    if (c->code != NULL)
        child_load_text(c, &(Source){.name = c->script, .text = c->code, .n = strlen(c->code)});
    else
        child_load_file(c, c->script);
    lua_call(L, 0, 1);
    ScriptLoc loc;
    const char *kind = child_kind(L, -1, &loc);
    const bool is_sweep = kind != NULL && strcmp(kind, "sweep") == 0;
    if (c->sweeps && (is_sweep || (kind != NULL && strcmp(kind, "plan") == 0))) {
        child_sweep(c, kind, loc);
        return 0;
    }
    if (is_sweep)
        child_raise(L, "no-plan", loc, "use `tandem sweep FILE`",
                    "the script returns a sweep, but a plan is needed");
    if (kind == NULL || strcmp(kind, "plan") != 0)
        child_raise(L, "no-plan", (ScriptLoc){1, 0}, "end the script with `return plan { ... }`",
                    "the script returns %s, but must return a plan",
                    kind != NULL ? kind : luaL_typename(L, -1));
    child_default_cluster(c);
    child_named_runtime(c);
    if (c->held) {
        child_keep_plan(c);
        return 0;
    }
    child_settle(c);
    child_model(c);
    return 0;
}

/* Lua calls this if an error occurs outside of lua_pcall; there, only an allocation can fail. */
static int on_panic(lua_State *L)
{
    if (child_of(L)->system_refused) child_out_of_memory(NULL);
    abort();
}

_Noreturn void child_run(Child *c)
{
    lua_State *L = lua_newstate(child_allocate, c);
    if (L == NULL) _exit(CHILD_NO_MEMORY);
    lua_atpanic(L, on_panic);
    c->L = L;
    memcpy(lua_getextraspace(L), &c, sizeof(Child *));
    /* A script runs only briefly, so garbage is collected rarely. At the memory limit, Lua collects
     * it in any case. */
    lua_gc(L, LUA_GCINC, 800, 0, 0);
    child_open_errors(L);
    child_limit(c);
    lua_pushcfunction(L, child_on_error);
    lua_pushcfunction(L, evaluate);
    const int status = lua_pcall(L, 0, 0, 1);
    if (c->held && status == LUA_OK && c->fired == 0) {
        if (c->sweeps) child_serve_sweep(c);
        child_serve(c);
    }
    _exit(child_finish(c, status) ? 0 : 1);
}
