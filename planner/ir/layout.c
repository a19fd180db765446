/* Layouts, deals and shapes: which part of a tensor a rank holds. */
#include "planner/ir/layout.h"

#include <assert.h>
#include <string.h>

#include "planner/base/str.h"

static const struct {
    const char *name;
    uint32_t bytes;
} dtypes[DT_COUNT] = {[DT_none] = {"none", 0},
#define X(name, bytes) [DT_##name] = {#name, bytes},
                      DTYPES(X)
#undef X
};

uint32_t dtype_bytes(DType t)
{
    assert(t < DT_COUNT);
    return dtypes[t].bytes;
}

const char *dtype_name(DType t)
{
    assert(t < DT_COUNT);
    return dtypes[t].name;
}

DType dtype_find(const char *name)
{
    static const struct {
        const char *name;
        DType t;
    } alias[] = {{"fp64", DT_f64},    {"fp32", DT_f32},    {"fp16", DT_f16},
                 {"float64", DT_f64}, {"float32", DT_f32}, {"bfloat16", DT_bf16},
                 {"float16", DT_f16}};
    for (int t = DT_none + 1; t < DT_COUNT; t++)
        if (strcmp(dtypes[t].name, name) == 0) return (DType)t;
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
    for (int t = DT_f64; t <= DT_e5m2; t++) map.to[t] = real;
    return map;
}

bool layout_equal(const Layout *a, const Layout *b)
{
    return memcmp(a->on, b->on, sizeof a->on) == 0;
}

AxisSet layout_axes_split(const Layout *l, int d)
{
    AxisSet set = 0;
    for (uint32_t a = 0; a < MAX_AXES; a++)
        if (layout_is_split(l->on[a]) && (d < 0 || layout_dim(l->on[a]) == d))
            set = (AxisSet)(set | 1u << a);
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

/* ---- deals ---- */

static DealId find_deal(const Deals *deals, const Deal *want, const Interval *intervals)
{
    for (DealId i = 1; i < deals->deals.n; i++) {
        const Deal *d = &deals->deals.at[i];
        if (d->kind != want->kind || d->n_parts != want->n_parts || d->size != want->size ||
            d->n != want->n)
            continue;
        if (d->n &&
            memcmp(&deals->intervals.at[d->first], intervals, d->n * sizeof *intervals) != 0)
            continue;
        return i;
    }
    return 0;
}

static DealId add_deal(Deals *deals, Arena *arena, Deal deal, const Interval *intervals)
{
    list_reserve_none(arena, &deals->deals);
    DealId found = find_deal(deals, &deal, intervals);
    if (found) return found;
    deal.first = deals->intervals.n;
    for (uint32_t i = 0; i < deal.n; i++) list_push(arena, &deals->intervals, intervals[i]);
    return (DealId)list_push(arena, &deals->deals, deal);
}

DealId deal_ceil(Deals *deals, Arena *arena, int64_t size, uint32_t n_parts)
{
    assert(n_parts > 0);
    if (size % n_parts == 0) return 0;
    return add_deal(deals, arena, (Deal){.kind = DEAL_ceil, .n_parts = n_parts, .size = size},
                    NULL);
}

DealId deal_listed(Deals *deals, Arena *arena, int64_t size, uint32_t n_parts, uint32_t per_part,
                   const Interval *intervals)
{
    Deal deal = {.kind = DEAL_listed,
                 .n_parts = n_parts,
                 .size = size,
                 .n = n_parts * per_part,
                 .per_part = per_part};
    return add_deal(deals, arena, deal, intervals);
}

static const Deal *deal_at(const Deals *deals, DealId id)
{
    static const Deal equal = {.kind = DEAL_equal};
    if (id == 0) return &equal;
    assert(id < deals->deals.n);
    return &deals->deals.at[id];
}

static Interval clip(int64_t lo, int64_t hi, int64_t size)
{
    Interval i = {lo < size ? lo : size, hi < size ? hi : size};
    return i;
}

bool deal_interval(const Deals *deals, DealId id, int64_t size, uint32_t n_parts, uint32_t part,
                   uint32_t k, Interval *out)
{
    const Deal *d = deal_at(deals, id);
    assert(part < n_parts);
    if (d->kind == DEAL_listed) {
        if (k >= d->per_part) return false;
        *out = deals->intervals.at[d->first + part * d->per_part + k];
        return true;
    }
    if (k > 0) return false;
    int64_t each = (size + n_parts - 1) / n_parts;
    *out = clip(part * each, (part + (int64_t)1) * each, size);
    return true;
}

int64_t deal_valid(const Deals *deals, DealId id, int64_t size, uint32_t n_parts, uint32_t part)
{
    Interval i;
    int64_t n = 0;
    for (uint32_t k = 0; deal_interval(deals, id, size, n_parts, part, k, &i); k++)
        n += i.hi - i.lo;
    return n;
}

int64_t deal_local(const Deals *deals, DealId id, int64_t size, uint32_t n_parts)
{
    if (deal_at(deals, id)->kind != DEAL_listed) return (size + n_parts - 1) / n_parts;
    int64_t most = 0;
    for (uint32_t p = 0; p < n_parts; p++) {
        int64_t n = deal_valid(deals, id, size, n_parts, p);
        if (n > most) most = n;
    }
    return most;
}

/* ---- shapes ---- */

bool shape_equal(const Shape *a, const Shape *b)
{
    if (a->n_dims != b->n_dims || !layout_equal(&a->layout, &b->layout)) return false;
    for (int d = 0; d < a->n_dims; d++)
        if (a->dim[d] != b->dim[d] || a->deal[d] != b->deal[d]) return false;
    return true;
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
    assert(d < s->n_dims);
    uint32_t parts = shape_parts(s, mesh, d);
    return parts == 1 ? s->dim[d] : deal_local(deals, s->deal[d], s->dim[d], parts);
}

int64_t shape_local_elements(const Shape *s, const Mesh *mesh, const Deals *deals)
{
    int64_t n = 1;
    for (int d = 0; d < s->n_dims; d++) n *= shape_local_dim(s, mesh, deals, d);
    return n;
}

int64_t shape_start(const Shape *s, const Mesh *mesh, const Deals *deals, int d, Rank rank)
{
    uint32_t parts = shape_parts(s, mesh, d);
    Interval i;
    if (parts == 1 ||
        !deal_interval(deals, s->deal[d], s->dim[d], parts, shape_part(s, mesh, d, rank), 0, &i))
        return 0;
    return i.lo;
}

int64_t shape_valid(const Shape *s, const Mesh *mesh, const Deals *deals, int d, Rank rank)
{
    uint32_t parts = shape_parts(s, mesh, d);
    if (parts == 1) return s->dim[d];
    return deal_valid(deals, s->deal[d], s->dim[d], parts, shape_part(s, mesh, d, rank));
}

Change layout_change(int8_t from, int8_t to)
{
    if (from == to) return CHANGE_nothing;
    if (from == WHOLE) return layout_is_split(to) ? CHANGE_slice : CHANGE_impossible;
    if (layout_is_split(from))
        return to == WHOLE           ? CHANGE_all_gather
               : layout_is_split(to) ? CHANGE_all_to_all
                                     : CHANGE_impossible;
    if (to == WHOLE) return CHANGE_all_reduce;
    return layout_is_split(to) && from == PARTIAL_SUM ? CHANGE_reduce_scatter : CHANGE_impossible;
}
