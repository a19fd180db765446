/* Builds meshes and computes the coordinates and groups of ranks from sizes and strides. No table
 * of ranks is stored. */
#include "planner/ir/layout/mesh.h"

#include <assert.h>

#include "planner/base/str.h"

/* Places the axes that have their own stride (Axis.apart). *stride is the number of ranks in the
 * grid so far. If an axis has exactly this `apart`, it comes next: *stride is multiplied by its
 * size. This is repeated until no such axis fits. */
static void place_apart(Mesh *mesh, uint64_t *stride, uint32_t *n_placed)
{
    for (uint32_t a = 0; a < mesh->n_axes && *stride <= UINT32_MAX / 2;) {
        if (mesh->axis[a].apart == 0 || mesh->axis[a].apart != *stride || mesh->axis[a].size < 2) {
            a++;
            continue;
        }
        mesh->axis[a].stride = (uint32_t)*stride;
        *stride *= mesh->axis[a].size;
        ++*n_placed;
        /* starts again, because *stride has grown; the placed axis cannot match it any more */
        a = 0;
    }
}

bool mesh_set_strides(Mesh *mesh)
{
    uint64_t stride = 1;
    uint32_t n_placed = 0;
    place_apart(mesh, &stride, &n_placed);
    for (uint32_t a = mesh->n_axes; a-- > 0 && stride <= UINT32_MAX / 2;) {
        if (mesh->axis[a].apart) continue;
        mesh->axis[a].stride = (uint32_t)stride;
        stride *= mesh->axis[a].size;
        n_placed++;
        if (stride <= UINT32_MAX / 2) place_apart(mesh, &stride, &n_placed);
    }
    if (n_placed != mesh->n_axes || stride > UINT32_MAX / 2) return false;
    mesh->n_ranks = (uint32_t)stride;
    return true;
}

static void set_strides(Mesh *mesh)
{
    const bool fills = mesh_set_strides(mesh);
    assert(fills);
    (void)fills;
}

Mesh mesh_make(const uint32_t sizes[AXIS_NAMES])
{
    Mesh mesh = {.n_axes = 0};
    for (uint32_t name = 0; name < AXIS_NAMES; name++) {
        if (sizes[name] <= 1) continue;
        mesh.axis[mesh.n_axes++] =
            (Axis){axis_name_text((AxisName)name), (AxisName)name, sizes[name], 0, 0};
    }
    set_strides(&mesh);
    return mesh;
}

void mesh_refine(Mesh *mesh, Arena *arena, uint32_t a, uint32_t inner)
{
    assert(a < mesh->n_axes && mesh->n_axes < MAX_AXES);
    assert(inner > 1 && mesh->axis[a].size > inner && mesh->axis[a].size % inner == 0);
    for (uint32_t i = mesh->n_axes; i > a; i--) mesh->axis[i] = mesh->axis[i - 1];
    mesh->n_axes++;
    mesh->axis[a].size /= inner;
    mesh->axis[a + 1].size = inner;
    mesh->axis[a].apart *= inner; /* stays 0 if the axis had no stride of its own */
    AxisName name = mesh->axis[a].name;
    for (uint32_t i = 0, k = 0; i < mesh->n_axes; i++) {
        if (mesh->axis[i].name != name) continue;
        mesh->axis[i].text = arena_print(arena, "%s.%u", axis_name_text(name), k++);
    }
    set_strides(mesh);
}

AxisSet mesh_cut(Mesh *mesh, Arena *arena, AxisName name, uint32_t inner)
{
    AxisSet set = 0;
    for (uint32_t a = mesh->n_axes; a-- > 0 && inner > 1;) {
        if (mesh->axis[a].name != name) continue;
        const uint32_t size = mesh->axis[a].size;
        if (inner % size != 0 && size % inner != 0) return 0;
        if (inner < size) {
            mesh_refine(mesh, arena, a, inner);
            set = (AxisSet)(set << 1); /* the new entry moved all later entries by one */
            return (AxisSet)(set | 1u << (a + 1));
        }
        inner /= size;
        set = (AxisSet)(set | 1u << a);
    }
    return inner == 1 ? set : 0;
}

void mesh_nest_last(Mesh *mesh, uint32_t a)
{
    assert(a < mesh->n_axes);
    Axis axis = mesh->axis[a];
    axis.apart = axis.stride;
    for (; a + 1 < mesh->n_axes; a++) mesh->axis[a] = mesh->axis[a + 1];
    mesh->axis[a] = axis;
    set_strides(mesh);
}

AxisSet mesh_axes(const Mesh *mesh, AxisName name)
{
    return mesh_axes_of(mesh, 1u << name);
}

AxisSet mesh_axes_of(const Mesh *mesh, AxisNames names)
{
    AxisSet set = 0;
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        if (axes_have(names, mesh->axis[a].name)) set = (AxisSet)(set | 1u << a);
    return set;
}

uint32_t mesh_size(const Mesh *mesh, AxisSet axes)
{
    uint32_t n = 1;
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        if (axes >> a & 1) n *= mesh->axis[a].size;
    return n;
}

uint32_t mesh_coordinate(const Mesh *mesh, Rank rank, uint32_t axis)
{
    assert(axis < mesh->n_axes);
    return rank / mesh->axis[axis].stride % mesh->axis[axis].size;
}

uint32_t mesh_part(const Mesh *mesh, Rank rank, AxisSet axes)
{
    uint32_t part = 0;
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        if (axes >> a & 1) part = part * mesh->axis[a].size + mesh_coordinate(mesh, rank, a);
    return part;
}

uint32_t mesh_hop(uint32_t part, int32_t hop, uint32_t size)
{
    int64_t at = ((int64_t)part + hop) % (int64_t)size;
    return (uint32_t)(at < 0 ? at + size : at);
}

Rank mesh_group(const Mesh *mesh, Rank rank, AxisSet axes)
{
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        if (axes >> a & 1) rank -= mesh_coordinate(mesh, rank, a) * mesh->axis[a].stride;
    return rank;
}

Rank mesh_member(const Mesh *mesh, Rank rank, AxisSet axes, uint32_t i)
{
    assert(i < mesh_size(mesh, axes));
    Rank member = mesh_group(mesh, rank, axes);
    for (uint32_t a = mesh->n_axes; a-- > 0;) {
        if (!(axes >> a & 1)) continue;
        member += i % mesh->axis[a].size * mesh->axis[a].stride;
        i /= mesh->axis[a].size;
    }
    return member;
}

/* Returns the axis of the non-empty set `axes` with the smallest stride. */
static uint32_t closest(const Mesh *mesh, AxisSet axes)
{
    uint32_t found = MAX_AXES;
    for (uint32_t a = mesh->n_axes; a-- > 0;) {
        if (!(axes >> a & 1)) continue;
        if (found == MAX_AXES || mesh->axis[a].stride < mesh->axis[found].stride) found = a;
    }
    assert(found < MAX_AXES);
    return found;
}

Rank mesh_rising(const Mesh *mesh, Rank rank, AxisSet axes, uint32_t i)
{
    Rank member = mesh_group(mesh, rank, axes);
    while (axes) {
        const uint32_t a = closest(mesh, axes);
        member += i % mesh->axis[a].size * mesh->axis[a].stride;
        i /= mesh->axis[a].size;
        axes = (AxisSet)(axes & ~(1u << a));
    }
    assert(i == 0);
    return member;
}

Rank mesh_next(const Mesh *mesh, Rank member, AxisSet axes)
{
    while (axes) {
        const uint32_t a = closest(mesh, axes);
        const uint32_t at = mesh_coordinate(mesh, member, a), stride = mesh->axis[a].stride;
        if (at + 1 < mesh->axis[a].size) return member + stride;
        member -= at * stride;
        axes = (AxisSet)(axes & ~(1u << a));
    }
    return member;
}

const char *mesh_axes_text(Arena *arena, const Mesh *mesh, AxisSet axes)
{
    Str s = str_in(arena);
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        if (axes >> a & 1) str_print(&s, "%s%s", s.n ? "," : "", mesh->axis[a].text);
    return s.n ? str_text(&s) : "-";
}
