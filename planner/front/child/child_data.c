/* The functions of tandem.core that create a micro-batch's input tensors: tokens and labels,
 * fields, images, and offsets in attention windows. Also those that set the sizes of a small model
 * for --verify. */
#include <string.h>

#include "planner/front/child/tracer.h"
#include "planner/ir/window.h"

enum { MOST_SEQ = 1 << 30 };

/* Adds a node without inputs and with the tensors out [n] as outputs to the graph, and sends it. */
static void add_source(Child *c, OpKind op, const TensorId *out, uint32_t n, ModuleId module,
                       ScriptLoc loc, const Attrs *attrs)
{
    graph_node(&tracer(c)->graph, c->arena, op, NULL, 0, out, n, attrs, module, tracer_loc(c, loc));
    tracer_put_op(c, op, out[0], module, loc, NULL, 0, attrs);
}

static TensorId add_input(Child *c, const char *name, DType dtype, uint32_t n_dims,
                          const int64_t *dim, ScriptLoc loc)
{
    return graph_tensor(&tracer(c)->graph, c->arena, name, ROLE_input, dtype, n_dims, dim,
                        tracer_loc(c, loc));
}

/* core.batch(location): returns the ids of two input tensors, tokens and labels, or an input and a
 * target field. */
static int core_batch(lua_State *L)
{
    Child *c = child_of(L);
    Tracer *t = tracer(c);
    if (t->has_batch) return luaL_error(L, "the model reads its batch twice");
    t->has_batch = true;
    ScriptLoc loc = child_unpack_loc(c, luaL_checkinteger(L, 1));
    const Answer *a = &c->answer;
    const int64_t tokens[] = {a->batch, a->seq};
    const int64_t input[] = {a->batch, a->channels, a->height, a->width};
    const int64_t target[] = {a->batch, a->targets, a->height, a->width};
    TensorId out[2];
    static const Attrs none;
    if (a->height) {
        out[0] = add_input(c, "input", DT_f32, 4, input, loc);
        out[1] = add_input(c, "target", DT_f32, 4, target, loc);
        add_source(c, OP_field, out, 2, 0, loc, &none);
    } else {
        out[0] = add_input(c, "tokens", DT_i32, 2, tokens, loc);
        out[1] = add_input(c, "labels", DT_i32, 2, tokens, loc);
        add_source(c, OP_batch, out, 2, 0, loc, &none);
    }
    lua_pushinteger(L, out[0]);
    lua_pushinteger(L, out[1]);
    return 2;
}

/* core.offsets(rows, columns): returns a tensor with the relative offset (rows, columns) between
 * each two points of an attention window of rows x columns points, for each sample. */
static int core_offsets(lua_State *L)
{
    Child *c = child_of(L);
    lua_Integer rows = luaL_checkinteger(L, 1), columns = luaL_checkinteger(L, 2);
    luaL_argcheck(L, rows > 0 && rows <= WINDOW_MOST_POINTS, 1, "out of range");
    luaL_argcheck(L, columns > 0 && columns <= WINDOW_MOST_POINTS, 2, "out of range");
    Attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.h_kernel = rows, attrs.w_kernel = columns;
    ScriptLoc loc = child_loc(c, true);
    const int64_t dim[] = {c->answer.batch, (2 * rows - 1) * (2 * columns - 1), 2};
    TensorId out = add_input(c, "offsets", DT_f32, 3, dim, loc);
    add_source(c, OP_offsets, &out, 1, 0, loc,
               /* module 0: the node belongs to no block, so it is never recomputed */
               &attrs);
    lua_pushinteger(L, out);
    return 1;
}

/* core.images(rows, columns, patch, channels): returns a tensor [batch, rows x columns, channels x
 * patch x patch]: for each sample an image, cut into patches. */
static int core_images(lua_State *L)
{
    Child *c = child_of(L);
    const lua_Integer rows = luaL_checkinteger(L, 1), columns = luaL_checkinteger(L, 2);
    const lua_Integer patch = luaL_checkinteger(L, 3), channels = luaL_checkinteger(L, 4);
    luaL_argcheck(L, rows > 0 && rows <= IMAGE_MOST, 1, "out of range");
    luaL_argcheck(L, columns > 0 && columns <= IMAGE_MOST, 2, "out of range");
    luaL_argcheck(L, patch > 0 && patch <= IMAGE_MOST_PATCH, 3, "out of range");
    luaL_argcheck(L, channels > 0 && channels <= IMAGE_MOST, 4, "out of range");
    Attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.rows = rows, attrs.columns = columns, attrs.h_kernel = patch, attrs.count = channels;
    ScriptLoc loc = child_loc(c, true);
    const int64_t dim[] = {c->answer.batch, rows * columns, channels * patch * patch};
    TensorId out = add_input(c, "image", DT_f32, 3, dim, loc);
    add_source(c, OP_image, &out, 1, 0, loc, &attrs);
    lua_pushinteger(L, out);
    return 1;
}

/* core.seq(n): a model's function `shrink` sets the sequence length. Must come before core.batch.
 */
static int core_seq(lua_State *L)
{
    Child *c = child_of(L);
    lua_Integer seq = luaL_checkinteger(L, 1);
    luaL_argcheck(L, seq > 0 && seq <= MOST_SEQ, 1, "out of range");
    luaL_argcheck(L, !tracer(c)->has_batch && c->answer.shrink, 1, "too late");
    c->answer.seq = seq;
    record_begin(&c->out, RECORD_seq);
    put_i64(&c->out, seq);
    record_end(&c->out);
    return 0;
}

/* core.field(channels, targets, height, width): a model's function `shrink` sets the sizes of
 * fields. Must come before core.batch. */
static int core_field(lua_State *L)
{
    Child *c = child_of(L);
    int64_t size[4];
    for (int i = 0; i < 4; i++) {
        size[i] = luaL_checkinteger(L, i + 1);
        luaL_argcheck(L, size[i] > 0 && size[i] <= 1 << 13, i + 1, "out of range");
    }
    luaL_argcheck(L, !tracer(c)->has_batch && c->answer.shrink && c->answer.height, 1, "too late");
    c->answer.channels = size[0], c->answer.targets = size[1];
    c->answer.height = size[2], c->answer.width = size[3];
    record_begin(&c->out, RECORD_field);
    for (int i = 0; i < 4; i++) put_i64(&c->out, size[i]);
    record_end(&c->out);
    return 0;
}

void tracer_add_data(lua_State *L)
{
    static const luaL_Reg functions[] = {{"batch", core_batch},   {"offsets", core_offsets},
                                         {"images", core_images}, {"seq", core_seq},
                                         {"field", core_field},   {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
}
