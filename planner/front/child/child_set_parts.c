/* Settings that replace a table of the plan by one of the library: cluster=NAME, gpu=NAME,
 * model=NAME. */
#include <string.h>

#include "planner/front/child/child.h"

/* Pushes the value of require "<folder>.<name>". If `name` contains a dot, as in "models.llama", it
 * already includes the folder. */
static void push_script(Child *c, const char *folder, const char *name)
{
    lua_getglobal(c->L, "require");
    lua_pushstring(c->L,
                   strchr(name, '.') != NULL ? name : arena_print(c->arena, "%s.%s", folder, name));
    lua_call(c->L, 1, 1);
}

static lua_Integer count_in(lua_State *L, const char *key)
{
    lua_getfield(L, -1, key);
    const lua_Integer n = lua_isinteger(L, -1) ? lua_tointeger(L, -1) : 0;
    lua_pop(L, 1);
    return n > 0 ? n : 1;
}

/* cluster=dgx_h200: replaces the plan's cluster by one of the library, with enough nodes to have at
 * least as many devices. */
void child_set_cluster(Child *c, const char *name)
{
    lua_State *L = c->L;
    const int plan = lua_gettop(L);
    lua_Integer devices = 1, nodes = 1;
    if (lua_getfield(L, plan, "cluster") == LUA_TTABLE) {
        nodes = count_in(L, "nodes");
        devices = nodes * count_in(L, "devices_per_node");
    }
    lua_settop(L, plan);
    for (int again = 0; again < 2; again++) {
        push_script(c, "clusters", name);
        lua_createtable(L, 0, 1);
        lua_pushinteger(L, nodes);
        lua_setfield(L, -2, "nodes");
        lua_call(L, 1, 1);
        if (!lua_istable(L, -1))
            /* stop: the parent reports the wrong type when it reads the plan */
            break;
        const lua_Integer each = count_in(L, "devices_per_node");
        if (nodes == (devices + each - 1) / each) break;
        nodes = (devices + each - 1) / each;
    }
    lua_setfield(L, plan, "cluster");
    lua_settop(L, plan);
}

/* Stack: the plan's device, then the new device on top. If both have the same name, copies the
 * price. */
static void keep_price(lua_State *L)
{
    lua_getfield(L, -2, "name");
    lua_getfield(L, -2, "name");
    const bool same = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
    if (!same) return;
    lua_getfield(L, -2, "usd_per_hour");
    lua_setfield(L, -2, "usd_per_hour");
}

/* gpu=b200: replaces the device in the plan's cluster. The nodes with the other GPU have no known
 * price, so it is removed. */
void child_set_gpu(Child *c, ScriptLoc loc, const char *name)
{
    lua_State *L = c->L;
    const int plan = lua_gettop(L);
    if (lua_getfield(L, plan, "cluster") != LUA_TTABLE)
        child_raise(L, "unknown-key", loc, NULL, "the plan has no cluster to change");
    push_script(c, "tandem", "gpus");
    lua_getfield(L, -1, "device");
    lua_getfield(L, -2, "known");
    lua_pushstring(L, name);
    lua_call(L, 1, 2);
    if (lua_isnil(L, -2))
        child_raise(L, "unknown-word", loc, lua_tostring(L, -1), "there is no GPU '%s'", name);
    lua_pop(L, 1);
    lua_call(L, 1, 1);
    if (lua_getfield(L, plan + 1, "device") == LUA_TTABLE) {
        lua_insert(L, -2);
        keep_price(L);
    } else {
        lua_pop(L, 1);
    }
    lua_setfield(L, plan + 1, "device");
    lua_settop(L, plan);
}

/* Returns the library's key of the GPU `name`, such as "h200" for "H200", or NULL. Then *hint lists
 * the known GPUs. */
static const char *known_gpu(Child *c, const char *name, const char **hint)
{
    lua_State *L = c->L;
    const int top = lua_gettop(L);
    push_script(c, "tandem", "gpus");
    lua_getfield(L, -1, "known");
    lua_pushstring(L, name);
    lua_call(L, 1, 2);
    const char *key = lua_isstring(L, -2) ? arena_dup(c->arena, lua_tostring(L, -2)) : NULL;
    *hint = lua_isstring(L, -1) ? arena_dup(c->arena, lua_tostring(L, -1)) : NULL;
    lua_settop(L, top);
    return key;
}

_Noreturn void child_refuse_device(Child *c, ScriptLoc loc, const char *name)
{
    const char *hint;
    const char *clusters = child_clusters_with(c, name);
    const bool is_known = known_gpu(c, name, &hint) != NULL;
    const char *nodes =
        clusters[0] != 0
            ? arena_print(c->arena, "--set cluster=NAME uses other nodes, such as %s", clusters)
            : NULL;
    if (is_known)
        hint = arena_print(c->arena, "use --set gpu=%s to put this GPU into the plan's nodes%s%s",
                           name, nodes != NULL ? "; " : "", nodes != NULL ? nodes : "");
    else if (nodes != NULL)
        hint = nodes;
    else
        hint = arena_print(c->arena,
                           "use --set gpu=NAME to put another GPU into the plan's nodes: %s", hint);
    child_raise(c->L, "wrong-type", loc, hint,
                "cluster.device must be a table of properties, not the name '%.64s'", name);
}

/* model=llama:3.1-8b: sets a model of the library in one of its named sizes. */
void child_set_model(Child *c, const char *name)
{
    lua_State *L = c->L;
    const int plan = lua_gettop(L);
    const char *colon = strchr(name, ':');
    push_script(c, "models",
                colon != NULL ? arena_copy(c->arena, name, (size_t)(colon - name)) : name);
    if (colon != NULL || lua_isfunction(L, -1)) {
        lua_pushstring(L, colon != NULL ? colon + 1 : NULL);
        lua_call(L, 1, 1);
    }
    lua_setfield(L, plan, "model");
    lua_settop(L, plan);
}
