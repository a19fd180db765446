/* The steps of the child: load and run the script, send the configuration, receive the Answer,
 * trace the model, end. A held script runs once; the steps after it are repeated for each request.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "planner/front/child/child.h"

/* True if the plan on top of the stack has a model with a function `shrink`. */
static bool can_shrink(lua_State *L)
{
    lua_getfield(L, -1, "model");
    bool can = lua_istable(L, -1);
    if (can) {
        lua_pushliteral(L, "shrink");
        can = lua_rawget(L, -2) == LUA_TFUNCTION;
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return can;
}

/* Returns model.config.experts of the plan on top of the stack, the number of experts in each
 * layer; 0: unknown. */
static uint32_t experts_named(lua_State *L)
{
    static const char *const path[] = {"model", "config", "experts"};
    const int top = lua_gettop(L);
    lua_pushvalue(L, -1);
    for (size_t i = 0; i < sizeof path / sizeof path[0] && lua_istable(L, -1); i++) {
        lua_pushstring(L, path[i]);
        lua_rawget(L, -2);
    }
    const lua_Integer n = lua_isinteger(L, -1) ? lua_tointeger(L, -1) : 0;
    lua_settop(L, top);
    return n >= 1 && n <= MOST_EXPERTS ? (uint32_t)n : 0;
}

/* True if settings loaded a script of the user after the script's only run. Its functions may read
 * any table, so a trace cannot be shared. */
static bool loaded_own(const Child *c)
{
    for (uint32_t i = c->n_held_sources + 1; i <= c->n_sources; i++)
        if (c->source[i].text != NULL && !c->source[i].shipped) return true;
    return false;
}

/* Sends all records so far and waits for the parent's Answer. */
static void ask(Child *c)
{
    child_send_files(c);
    child_send_sources(c); /* send them before the parent's check: it may refuse the plan */
    record_begin(&c->out, RECORD_ask);
    put_u32(&c->out, can_shrink(c->L));
    put_u32(&c->out, c->shares && !loaded_own(c));
    put_u32(&c->out, experts_named(c->L));
    record_end(&c->out);
    if (!writer_send(&c->out, c->fd)) _exit(1);
    unsigned char *at = (unsigned char *)&c->answer;
    for (size_t n = 0; n < sizeof c->answer;) {
        ssize_t got = read(c->fd, at + n, sizeof c->answer - n);
        if (got <= 0) _exit(0); /* the parent has closed the socket and needs no more records */
        n += (size_t)got;
    }
}

void child_settle(Child *c)
{
    child_apply_sets(c);
    /* a setting such as --set runtime=torchtitan may have replaced the runtime by a name */
    child_named_runtime(c);
    child_runtime_defaults(c);
    child_flatten(c);
    child_schedule_file(c);
    ask(c);
}

void child_model(Child *c)
{
    child_schedule_call(c);
    child_trace(c);
}

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
