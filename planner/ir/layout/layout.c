/* Dtypes, layouts and shapes (layout.h). deal.c has the deals. */
#include "planner/ir/layout/layout.h"

#include <assert.h>
#include <string.h>

#include "planner/base/str.h"
#include "planner/ir/layout/padding.h"
#include "planner/ir/layout/rows.h"

static const char *const dtype_names[DT_COUNT] = {"none",
#define X(name, bytes) #name,
                                                  DTYPES(X)
#undef X
};

uint32_t dtype_bytes(DType t)
{
    static const uint32_t bytes_of[DT_COUNT] = {0,
#define X(name, bytes) bytes,
                                                DTYPES(X)
#undef X
    };
    assert(t < DT_COUNT);
    return bytes_of[t];
}

const char *dtype_name(DType t)
{
    assert(t < DT_COUNT);
    return dtype_names[t];
}

DType dtype_find(const char *name)
{
    static const struct {
        const char *name;
        DType t;
    } alias[] = {{"fp64", DT_f64},        {"float64", DT_f64},   {"fp32", DT_f32},
                 {"float32", DT_f32},     {"bfloat16", DT_bf16}, {"fp16", DT_f16},
                 {"float16", DT_f16},     {"half", DT_f16},      {"float8_e4m3fn", DT_e4m3},
                 {"float8_e5m2", DT_e5m2}};
    for (int t = DT_none + 1; t < DT_COUNT; t++)
        if (strcmp(dtype_names[t], name) == 0) return (DType)t;
    for (size_t i = 0; i < sizeof alias / sizeof alias[0]; i++)
        if (strcmp(alias[i].name, name) == 0) return alias[i].t;
    return DT_none;
}

DTypeMap dtype_map_identity(void)
{
    DTypeMap map;
    for (int t = 0; t < DT_COUNT; t++) map.to[t] = (DType)t;
    return map;
}

DTypeMap dtype_map_all(DType real)
{
    DTypeMap map = dtype_map_identity();
    for (int t = 0; t < DT_COUNT; t++)
        if (dtype_is_real((DType)t)) map.to[t] = real;
    if (real == DT_f64) map.to[DT_e2m1x2] = map.to[DT_f64x2] = DT_f64x2;
    return map;
}

DTypeMap dtype_map_but_eight_bits(DType real)
{
    DTypeMap map = dtype_map_all(real);
    for (int t = 0; t < DT_COUNT; t++)
        if (dtype_is_eight_bits((DType)t)) map.to[t] = (DType)t;
    return map;
}

bool layout_equal(const Layout *a, const Layout *b)
{
    return memcmp(a->on, b->on, sizeof a->on) == 0;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the lowest byte is the first axis");

AxisSet layout_axes_split(const Layout *l, int d)
{
    AxisSet set = 0;
    /* The layout of 8 axes in one word. Most words are 0 (WHOLE), because few axes split a tensor,
     * so one comparison usually skips 8 axes. */
    uint64_t any[MAX_AXES / 8];
    memcpy(any, l->on, sizeof any);
    for (uint32_t part = 0; part < MAX_AXES / 8; part++)
        while (any[part] != 0) {
            const uint32_t byte = (uint32_t)__builtin_ctzll(any[part]) / 8, a = 8 * part + byte;
            any[part] &= ~(UINT64_C(0xff) << (8 * byte));
            if (layout_is_split(l->on[a]) && (d < 0 || layout_dim(l->on[a]) == d))
                set = (AxisSet)(set | 1u << a);
        }
    return set;
}

AxisSet layout_axes_partial(const Layout *l)
{
    AxisSet set = 0;
    for (uint32_t a = 0; a < MAX_AXES; a++)
        if (layout_is_partial(l->on[a])) set = (AxisSet)(set | 1u << a);
    return set;
}

const char *layout_text(Arena *arena, const Mesh *mesh, const Layout *l)
{
    Str s = str_in(arena);
    for (uint32_t a = 0; a < mesh->n_axes; a++) {
        int8_t on = l->on[a];
        if (on == WHOLE) continue;
        if (s.n) str_add(&s, " ");
        if (layout_is_split(on))
            str_print(&s, "%s:%d", mesh->axis[a].text, layout_dim(on));
        else
            str_print(&s, "%s:%s", mesh->axis[a].text, on == PARTIAL_SUM ? "sum" : "max");
    }
    return s.n ? str_text(&s) : "whole";
}

Change layout_change(int8_t from, int8_t to)
{
    if (from == to) return CHANGE_nothing;
    if (layout_is_partial(to)) return CHANGE_impossible;
    if (from == WHOLE) return CHANGE_slice;
    if (layout_is_split(from)) return to == WHOLE ? CHANGE_all_gather : CHANGE_all_to_all;
    return to == WHOLE ? CHANGE_all_reduce : CHANGE_reduce_scatter;
}

/* ---- shapes ---- */

bool shape_equal(const Shape *a, const Shape *b)
{
    if (a->n_dims != b->n_dims || !layout_equal(&a->layout, &b->layout)) return false;
    for (int d = 0; d < a->n_dims; d++)
        if (a->dim[d] != b->dim[d] || a->deal[d] != b->deal[d]) return false;
    return true;
}

Shape shape_under(const Deals *deals, const Layout *layout, int n_dims, const int64_t *dim,
                  const DealId *deal)
{
    Shape s = {.n_dims = (uint8_t)n_dims, .layout = *layout};
    const AxisSet split = layout_axes_split(layout, -1);
    bool cut[MAX_DIMS] = {false};
    for (uint32_t a = 0; split >> a; a++)
        if (split >> a & 1 && layout_dim(layout->on[a]) < MAX_DIMS)
            cut[layout_dim(layout->on[a])] = true;
    for (int d = 0; d < n_dims; d++) {
        s.dim[d] = dim[d];
        if (deal[d]) s.deal[d] = cut[d] ? deal[d] : deal_whole(deals, deal[d]);
    }
    return s;
}

uint32_t shape_parts(const Shape *s, const Mesh *mesh, int d)
{
    return mesh_size(mesh, layout_axes_split(&s->layout, d));
}

uint32_t shape_part(const Shape *s, const Mesh *mesh, int d, Rank rank)
{
    return mesh_part(mesh, rank, layout_axes_split(&s->layout, d));
}

int64_t shape_local_dim(const Shape *s, const Mesh *mesh, const Deals *deals, int d)
{
    assert(d >= 0 && d < s->n_dims);
    uint32_t parts = shape_parts(s, mesh, d);
    DealId deal = parts == 1 ? deal_whole(deals, s->deal[d]) : s->deal[d];
    return parts == 1 && !deal ? s->dim[d] : deal_local(deals, deal, s->dim[d], parts);
}

int64_t shape_start(const Shape *s, const Mesh *mesh, const Deals *deals, int d, Rank rank)
{
    assert(d >= 0 && d < s->n_dims);
    uint32_t parts = shape_parts(s, mesh, d);
    Interval part;
    if (parts == 1) return 0;
    uint32_t mine = shape_part(s, mesh, d, rank);
    return deal_interval(deals, s->deal[d], s->dim[d], parts, mine, 0, &part) ? part.lo : 0;
}

int64_t shape_valid(const Shape *s, const Mesh *mesh, const Deals *deals, int d, Rank rank)
{
    assert(d >= 0 && d < s->n_dims);
    uint32_t parts = shape_parts(s, mesh, d);
    if (parts == 1) return s->dim[d];
    return deal_valid(deals, s->deal[d], s->dim[d], parts, shape_part(s, mesh, d, rank));
}
