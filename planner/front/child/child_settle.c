/* The steps of the child that each request repeats: send the configuration, receive the Answer,
 * trace the model. */
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
