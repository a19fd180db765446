/* The functions of tandem.core, on which tandem/nn.lua is built. Each adds to the child's own
 * graph, which checks shapes immediately, and sends a record, from which the parent builds its
 * graph. */
#include <string.h>

#include "planner/front/child/tracer.h"

enum { MOST_DIM = 1 << 30, MOST_NAME = 256 };
static const char core_key[] = "tandem.core";

/* Calls upvalue 1. Without this wrapper, a Lua tail call would remove the caller's stack frame, and
 * the line of the caller would be lost. */
static int call_wrapped(lua_State *L)
{
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
}

static int core_wrap(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_settop(L, 1);
    lua_pushcclosure(L, call_wrapped, 1);
    return 1;
}

static int core_fail(lua_State *L)
{
    Child *c = child_of(L);
    const char *rule = luaL_checkstring(L, 1), *text = luaL_checkstring(L, 2);
    const char *hint = luaL_optstring(L, 3, NULL);
    ScriptLoc loc =
        lua_isnoneornil(L, 4) ? child_loc(c, true) : child_unpack_loc(c, luaL_checkinteger(L, 4));
    child_raise(L, rule, loc, hint, "%s", text);
}

static int core_location(lua_State *L)
{
    Child *c = child_of(L);
    lua_pushinteger(L,
                    child_pack_loc(lua_toboolean(L, 1) ? child_plan_loc(c) : child_loc(c, true)));
    return 1;
}

static int core_near(lua_State *L)
{
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_pushstring(L, child_near(L, luaL_checkstring(L, 1), 2));
    return 1;
}

static int core_nearest(lua_State *L)
{
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_pushstring(L, child_nearest(L, luaL_checkstring(L, 1), 2));
    return 1;
}

static int core_dims(lua_State *L)
{
    Child *c = child_of(L);
    const Graph *g = &tracer(c)->graph;
    lua_Integer id = luaL_checkinteger(L, 1);
    luaL_argcheck(L, id > 0 && id < g->tensors.n, 1, "no tensor");
    Dims dims = graph_dims(g, (TensorId)id);
    lua_createtable(L, dims.n, 0);
    for (uint8_t i = 0; i < dims.n; i++) {
        lua_pushinteger(L, dims.at[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static ModuleId check_module(lua_State *L, const Graph *g, int arg)
{
    lua_Integer id = luaL_checkinteger(L, arg);
    luaL_argcheck(L, id >= 0 && (id < g->modules.n || id == 0), arg, "no module");
    return (ModuleId)id;
}

static void check_size(Child *c, const Graph *g, ScriptLoc loc)
{
    if (g->nodes.n + g->modules.n + g->tensors.n < CHILD_MOST_NODES) return;
    uint32_t n = c->tracer->n_blocks;
    /* n - 2 blocks: leave room for the layers after the last block */
    const char *hint = n < 3 ? NULL : arena_print(c->arena, "use at most %u of its blocks", n - 2);
    child_raise(c->L, "out-of-range", loc, hint,
                "the model has more than %d modules, tensors and ops", CHILD_MOST_NODES);
}

/* core.module(path, class, parent, is_block, fsdp2_shard, layer, location): adds a module, returns
 * its id. */
static int core_module(lua_State *L)
{
    Child *c = child_of(L);
    Graph *g = &tracer(c)->graph;
    size_t n_path, n_class;
    const char *path = luaL_checklstring(L, 1, &n_path);
    const char *class_ = luaL_checklstring(L, 2, &n_class);
    ModuleId parent = check_module(L, g, 3);
    ScriptLoc loc = child_unpack_loc(c, luaL_checkinteger(L, 7));
    luaL_argcheck(L, n_path <= MOST_NAME, 1, "longer than 256 bytes");
    child_check_text(c, "a module's path", path, n_path, loc);
    child_check_text(c, "a module's class", class_, n_class, loc);
    check_size(c, g, loc);
    uint32_t layer = (uint32_t)luaL_checkinteger(L, 6);
    if (layer > c->tracer->n_blocks) c->tracer->n_blocks = layer;
    list_reserve_none(c->arena, &g->modules);
    ModuleId id = (ModuleId)list_add(c->arena, &g->modules);
    g->modules.at[id].path = ""; /* only the parent's graph needs paths */
    child_send_files(c);
    record_begin(&c->out, RECORD_module);
    put_text(&c->out, path, n_path);
    put_text(&c->out, class_, n_class);
    put_u32(&c->out, parent);
    put_u32(&c->out, (uint32_t)lua_toboolean(L, 4));
    put_u32(&c->out, (uint32_t)lua_toboolean(L, 5));
    put_u32(&c->out, layer);
    child_put_loc(c, loc);
    record_end(&c->out);
    lua_pushinteger(L, id);
    return 1;
}

/* Reads the Lua arguments from `first` to the last as the 1 to 6 sizes of a tensor. Returns their
 * count. */
static int read_dims(Child *c, int first, const char *name, ScriptLoc loc, int64_t dim[MAX_DIMS])
{
    lua_State *L = c->L;
    int n_dims = lua_gettop(L) - first + 1;
    luaL_argcheck(L, n_dims >= 1 && n_dims <= MAX_DIMS, first, "1 to 6 dimensions");
    double elements = 1;
    for (int i = 0; i < n_dims; i++) {
        dim[i] = luaL_checkinteger(L, first + i);
        luaL_argcheck(L, dim[i] > 0 && dim[i] <= MOST_DIM, first + i, "out of range");
        elements *= (double)dim[i];
    }
    if (elements > 1e15)
        child_raise(L, "out-of-range", loc, NULL, "%s has %g elements", name, elements);
    return n_dims;
}

/* A parameter or state tensor whose record is being written. */
typedef struct Named {
    TensorId id;
    int n_dims;
    int64_t dim[MAX_DIMS];
    /* Fused projections, such as q, k and v in one weight: dimension order_dim counts groups, and
     * each group has share[i] features of segment i. n_segments 0: not fused. */
    uint32_t n_segments, order_dim;
    int64_t share[FRONT_MOST_SEGMENTS];
} Named;

/* Reads Lua argument `arg`, the segments of a fused projection: { dim = ..., share, share, ... } or
 * nil. */
static void read_order(lua_State *L, int arg, Named *t)
{
    const lua_Integer n = lua_istable(L, arg) ? luaL_len(L, arg) : 0;
    luaL_argcheck(L, n <= FRONT_MOST_SEGMENTS, arg, "too many segments");
    t->n_segments = (uint32_t)n;
    if (n == 0) return;
    lua_getfield(L, arg, "dim");
    luaL_argcheck(L, lua_isinteger(L, -1), arg, "dim must be an integer");
    t->order_dim = (uint32_t)lua_tointeger(L, -1);
    lua_pop(L, 1);
    for (lua_Integer i = 1; i <= n; i++) {
        lua_geti(L, arg, i);
        luaL_argcheck(L, lua_isinteger(L, -1), arg, "a share must be an integer");
        t->share[i - 1] = lua_tointeger(L, -1);
        lua_pop(L, 1);
    }
}

/* Adds a tensor to the graph and begins its record, from the Lua arguments 1 name, 2 module, 3
 * location, `order` (its segments), `dims` and following (its sizes). Reads all arguments first: an
 * error inside an open record would corrupt the stream. */
static Named begin_tensor(lua_State *L, RecordKind kind, Role role, int order, int dims)
{
    Child *c = child_of(L);
    Graph *g = &tracer(c)->graph;
    Named t;
    size_t n_name;
    const char *name = luaL_checklstring(L, 1, &n_name);
    ModuleId module = check_module(L, g, 2);
    ScriptLoc loc = child_unpack_loc(c, luaL_checkinteger(L, 3));
    luaL_argcheck(L, n_name <= MOST_NAME, 1, "longer than 256 bytes");
    child_check_text(c, "a tensor's name", name, n_name, loc);
    check_size(c, g, loc);
    t.n_dims = read_dims(c, dims, name, loc, t.dim);
    read_order(L, order, &t);
    t.id = graph_tensor(g, c->arena, arena_dup(c->arena, name), role, DT_f32, (uint32_t)t.n_dims,
                        t.dim, tracer_loc(c, loc));
    child_send_files(c);
    record_begin(&c->out, kind);
    put_u32(&c->out, t.id);
    put_text(&c->out, name, n_name);
    put_u32(&c->out, module);
    child_put_loc(c, loc);
    return t;
}

/* Ends the record with the tensor's sizes and segments, and returns its id to Lua. */
static int end_tensor(lua_State *L, const Named *t)
{
    Child *c = child_of(L);
    put_u32(&c->out, (uint32_t)t->n_dims);
    for (int i = 0; i < t->n_dims; i++) put_i64(&c->out, t->dim[i]);
    put_u32(&c->out, t->n_segments);
    if (t->n_segments > 0) put_u32(&c->out, t->order_dim);
    for (uint32_t i = 0; i < t->n_segments; i++) put_i64(&c->out, t->share[i]);
    record_end(&c->out);
    lua_pushinteger(L, t->id);
    return 1;
}

/* core.param(name, module, location, tp, column_dim, row_dim, init, a, b, input_embedding, segments
 * or nil, sizes...): adds a parameter, returns its id. */
static int core_param(lua_State *L)
{
    static const char *const styles[] = {"none", "column", "row", "vocab", NULL};
    static const char *const inits[] = {"none", "zeros", "ones", "normal", "uniform", NULL};
    Child *c = child_of(L);
    uint32_t tp = (uint32_t)luaL_checkoption(L, 4, "none", styles);
    uint32_t column = (uint32_t)luaL_checkinteger(L, 5), row = (uint32_t)luaL_checkinteger(L, 6);
    uint32_t init = (uint32_t)luaL_checkoption(L, 7, "none", inits);
    double a = luaL_checknumber(L, 8), b = luaL_checknumber(L, 9);
    Named t = begin_tensor(L, RECORD_param, ROLE_param, 11, 12);
    put_u32(&c->out, tp);
    put_u32(&c->out, column);
    put_u32(&c->out, row);
    put_u32(&c->out, init);
    put_f64(&c->out, a);
    put_f64(&c->out, b);
    put_u32(&c->out, (uint32_t)lua_toboolean(L, 10));
    return end_tensor(L, &t);
}

/* core.state(name, module, location, segments or nil, sizes...): adds a tensor that lives between
 * steps. */
static int core_state(lua_State *L)
{
    Named t = begin_tensor(L, RECORD_state, ROLE_state, 4, 5);
    return end_tensor(L, &t);
}

static double double_attribute(lua_State *L, int table, const char *name)
{
    lua_getfield(L, table, name);
    double value = lua_isnil(L, -1) ? 0 : luaL_checknumber(L, -1);
    lua_pop(L, 1);
    return value;
}

static int64_t int64_t_attribute(lua_State *L, int table, const char *name)
{
    lua_getfield(L, table, name);
    int64_t value = lua_isnil(L, -1) ? 0 : luaL_checkinteger(L, -1);
    lua_pop(L, 1);
    return value;
}

static void read_pairs(lua_State *L, int table, Attrs *attrs)
{
    lua_getfield(L, table, "rope_pair");
    for (int i = 0; lua_istable(L, -1) && i < ROPE_PAIRS; i++) {
        lua_rawgeti(L, -1, i + 1);
        attrs->rope_pair[i] = lua_isnil(L, -1) ? 0 : luaL_checknumber(L, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

static Attrs read_attrs(lua_State *L, int table)
{
    Attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    if (!lua_istable(L, table)) return attrs;
#define X(type, name) attrs.name = type##_attribute(L, table, #name);
    ATTRIBUTES(X)
#undef X
    read_pairs(L, table, &attrs);
    return attrs;
}

/* Checks the attributes of an op against their bounds. tandem/nn.lua has checked its arguments, but
 * not the values that it computes from them. */
static void check_attrs(lua_State *L, OpKind op, const Attrs *attrs, ScriptLoc loc)
{
    Attrs full = *attrs;
    Str why = str_in(child_of(L)->arena);
    if (op_makes_loss(op)) full.scale = 1; /* the parent sets the divisor of the loss */
    if (!op_attrs_fit(op, &full, &why))
        child_raise(L, "out-of-range", loc, NULL, "%s", str_text(&why));
}

/* core.op(name, module, attrs or nil, inputs...): adds a node, returns the id of its first output;
 * further outputs have the next ids. */
static int core_op(lua_State *L)
{
    Child *c = child_of(L);
    Graph *g = &tracer(c)->graph;
    OpKind op = op_find(luaL_checkstring(L, 1));
    ModuleId module = check_module(L, g, 2);
    luaL_argcheck(L, op != OP_none && !(op_info(op)->flags & OP_SOURCE), 1, "no such op");
    int n_in = lua_gettop(L) - 3;
    luaL_argcheck(L, n_in >= 1 && n_in <= MAX_IN, 4, "1 to 8 inputs");
    ScriptLoc loc = child_loc(c, true);
    check_size(c, g, loc);
    TensorId in[MAX_IN];
    for (int i = 0; i < n_in; i++) {
        lua_Integer id = luaL_checkinteger(L, 4 + i);
        luaL_argcheck(L, id > 0 && id < g->tensors.n, 4 + i, "no tensor");
        in[i] = (TensorId)id;
    }
    Attrs attrs = read_attrs(L, 3);
    Diag d = diag_in(c->arena);
    TensorId out = graph_op(g, c->arena, op, in, (uint32_t)n_in, DT_f32, &attrs, module,
                            tracer_loc(c, loc), &d);
    if (out == 0 || d.n_errors > 0) {
        const Diagnostic *item = d.items.n > 0 ? &d.items.at[0] : NULL;
        child_raise(L, "shape-mismatch", loc, item != NULL ? item->hint : NULL, "%s",
                    item != NULL ? item->text : "these shapes do not match");
    }
    check_attrs(L, op, &attrs, loc);
    tracer_put_op(c, op, out, module, loc, in, (uint32_t)n_in, &attrs);
    lua_pushinteger(L, out);
    return 1;
}

static int core_loss(lua_State *L)
{
    Child *c = child_of(L);
    lua_Integer id = luaL_checkinteger(L, 1);
    record_begin(&c->out, RECORD_loss);
    put_u32(&c->out, (uint32_t)id);
    record_end(&c->out);
    return 0;
}

static int core_name(lua_State *L)
{
    Child *c = child_of(L);
    size_t n;
    const char *name = luaL_checklstring(L, 1, &n);
    luaL_argcheck(L, n <= MOST_NAME, 1, "longer than 256 bytes");
    ScriptLoc loc = child_unpack_loc(c, luaL_checkinteger(L, 2));
    child_check_text(c, "the model's name", name, n, loc);
    record_begin(&c->out, RECORD_name);
    put_text(&c->out, name, n);
    record_end(&c->out);
    return 0;
}

void child_push_core(Child *c)
{
    static const luaL_Reg functions[] = {
        {"wrap", core_wrap},   {"fail", core_fail},       {"location", core_location},
        {"near", core_near},   {"nearest", core_nearest}, {"dims", core_dims},
        {"param", core_param}, {"op", core_op},           {"module", core_module},
        {"loss", core_loss},   {"name", core_name},       {"state", core_state},
        {NULL, NULL}};
    lua_State *L = c->L;
    if (!luaL_newmetatable(L, core_key)) return;
    luaL_setfuncs(L, functions, 0);
    tracer_add_data(L);
    child_add_bounds(L);
    child_add_reports(L);
}

/* Calls trace(model, mesh, shrink, seq, location), which tandem/nn.lua has put into tandem.core.
 * Expects the plan on top of the stack. */
void child_trace(Child *c)
{
    lua_State *L = c->L;
    c->tracer = arena_alloc(c->arena, sizeof *c->tracer);
    graph_init(&c->tracer->graph, c->arena);
    lua_getglobal(L, "require");
    lua_pushliteral(L, "tandem.nn");
    lua_call(L, 1, 0);
    child_push_core(c);
    lua_getfield(L, -1, "trace");
    lua_getfield(L, -3, "model");
    lua_createtable(L, 0, AXIS_NAMES);
    for (int a = 0; a < AXIS_NAMES; a++) {
        lua_pushinteger(L, c->answer.axis_size[a]);
        lua_setfield(L, -2, axis_name_text((AxisName)a));
    }
    lua_pushinteger(L, c->answer.stages);
    lua_setfield(L, -2, "stages");
    lua_pushinteger(L, c->answer.multiple);
    lua_setfield(L, -2, "multiple");
    lua_pushinteger(L, c->answer.block);
    lua_setfield(L, -2, "block");
    lua_pushinteger(L, c->answer.full_tp);
    lua_setfield(L, -2, "full_tp");
    lua_pushboolean(L, c->answer.shrink);
    lua_pushinteger(L, c->answer.seq);
    ScriptLoc loc = {0, 0};
    child_kind(L, -7, &loc);
    ScriptLoc model =
        scan_call(c, loc, "plan").open != 0
            ? (ScriptLoc){loc.source, scan_key(c, scan_call(c, loc, "plan"), "model").line}
            : loc;
    c->model_loc = model;
    lua_pushinteger(L, child_pack_loc(model));
    lua_call(L, 5, 0);
}
