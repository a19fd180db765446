/* Answers questions about a mesh (mesh_view.h) from the coordinates of its ranks. */
#include "planner/ir/layout/mesh_view.h"

#include <assert.h>
#include <string.h>

#include "planner/base/str.h"

static const struct {
    const char *name;
    AxisNames parts;
} flattened[] = {
#define GROUP(name, axes) {#name, axes},
#include "planner/ir/axes.def"
};
enum { N_FLATTENED = sizeof flattened / sizeof *flattened };
const char *const mesh_flattened[N_FLATTENED + 1] = {
#define GROUP(name, axes) #name,
#include "planner/ir/axes.def"
    NULL};

bool mesh_named(const Mesh *mesh, const char *name, AxisSet *axes)
{
    AxisNames parts = 0;
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        if (strcmp(axis_name_text((AxisName)a), name) == 0) parts = 1u << a;
    for (uint32_t i = 0; i < N_FLATTENED; i++)
        if (strcmp(flattened[i].name, name) == 0) parts = flattened[i].parts;
    *axes = mesh_axes_of(mesh, parts);
    return parts != 0;
}

void mesh_place(const Mesh *mesh, Rank rank, uint32_t at[AXIS_NAMES])
{
    assert(rank < mesh->n_ranks);
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        at[a] = mesh_part(mesh, rank, mesh_axes(mesh, (AxisName)a));
}

Rank mesh_rank_at(const Mesh *mesh, const uint32_t at[AXIS_NAMES])
{
    Rank rank = 0;
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        rank = mesh_member(mesh, rank, mesh_axes(mesh, (AxisName)a), at[a]);
    return rank;
}

uint32_t mesh_nodes_of_groups(const Mesh *mesh, AxisSet axes, uint32_t per_node)
{
    uint32_t n = mesh_size(mesh, axes), most = 1;
    assert(per_node > 0);
    for (Rank r = 0; r < mesh->n_ranks; r++) {
        if (mesh_group(mesh, r, axes) != r) continue;
        uint32_t nodes = 0, last = UINT32_MAX;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t node = mesh_rising(mesh, r, axes, i) / per_node;
            nodes += node != last;
            last = node;
        }
        if (nodes > most) most = nodes;
    }
    return most;
}

AxisSet mesh_shard_axes(const Mesh *mesh)
{
    return mesh_axes_of(mesh, axes_with(AXIS_STATES));
}

AxisSet mesh_data_axes(const Mesh *mesh)
{
    return mesh_axes_of(mesh, axes_cutting(INDEX_samples));
}

uint32_t mesh_dp_size(const Mesh *mesh)
{
    return mesh_size(mesh, mesh_data_axes(mesh));
}

uint32_t mesh_dp_rank(const Mesh *mesh, Rank rank)
{
    return mesh_part(mesh, rank, mesh_data_axes(mesh));
}

bool mesh_has_dp(const Mesh *mesh)
{
    return mesh_data_axes(mesh) != 0;
}

bool mesh_dp(const Mesh *mesh, Arena *arena, Loc loc, Diag *d, DpMesh *dp)
{
    const AxisSet samples = mesh_data_axes(mesh), states = mesh_shard_axes(mesh);
    const AxisSet axis[2] = {(AxisSet)(samples & ~states), (AxisSet)(samples & states)};
    static const char *const name[2] = {"replicate", "shard"};
    *dp = (DpMesh){0};
    for (int i = 0; i < 2; i++) {
        if (!axis[i]) continue;
        dp->axes[dp->n_dims] = axis[i];
        dp->name[dp->n_dims++] = name[i];
    }
    if (dp->n_dims) return true;
    Str s = str_in(arena);
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        str_print(&s, "%s%s %u", a ? " x " : "", mesh->axis[a].text, mesh->axis[a].size);
    diag_error(d, FAULT_input, "no-dp-mesh", loc,
               "the mesh %s has neither dp_replicate nor dp_shard, so all ranks would read the "
               "same samples",
               s.n ? str_text(&s) : "of one rank");
    diag_hint(d, "give dp_shard or dp_replicate a size of 2 or more");
    return false;
}

EpFold mesh_fold_ep(const Mesh *mesh, uint32_t ep)
{
    uint32_t stage = mesh->n_ranks / mesh_size(mesh, mesh_axes_of(mesh, axes_with(AXIS_STAGES)));
    assert(ep > 0 && stage % ep == 0);
    return (EpFold){ep, stage / ep};
}

void mesh_ep_place(const Mesh *mesh, const EpFold *fold, Rank rank, uint32_t *ep,
                   uint32_t *ep_shard)
{
    uint32_t stage = fold->ep * fold->ep_shard;
    assert(mesh->n_ranks % stage ==
           0); /* pp is the outermost axis, so the ranks of a pipeline stage are consecutive */
    *ep = rank % stage % fold->ep;
    *ep_shard = rank % stage / fold->ep;
}
