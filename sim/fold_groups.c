/* The groups of ranks: which rank leads the group of each rank, and how a group is distributed over
 * nodes, NICs and pods. */
#include <string.h>

#include "sim/fold_private.h"

uint32_t fold_axes(const Fold *fold, AxisSet axes)
{
    for (uint32_t i = 0; i < fold->axes.n; i++) {
        if (fold->axes.at[i].axes == axes) return i;
    }
    return UINT32_MAX;
}

/* Subtracts from each leader[rank] the coordinate of `rank` along the axis times the axis's stride.
 * Ranks with equal coordinates are consecutive, so the loop needs no division. */
static void step_back(const Fold *f, const Axis *axis, Rank *leader)
{
    for (Rank r = 0, at = 0; r < f->n_ranks; at = at + 1 < axis->size ? at + 1 : 0)
        for (uint32_t k = 0; k < axis->stride && r < f->n_ranks; k++, r++)
            leader[r] -= at * axis->stride;
}

void fold_leaders(const Fold *f, AxisSet axes, Rank *leader)
{
    for (Rank r = 0; r < f->n_ranks; r++) leader[r] = r;
    for (uint32_t a = 0; a < f->mesh->n_axes; a++)
        if (axes >> a & 1) step_back(f, &f->mesh->axis[a], leader);
}

/* True if a place has `span` consecutive ranks (0: all ranks are in one place), and a move by
 * `stride` ranks brings all ranks of a place to the same place. */
static bool moves_whole(const Fold *f, uint32_t span, uint32_t stride)
{
    return span == 0 || span >= f->n_ranks || stride % span == 0;
}

bool fold_repeats(const Fold *f, uint32_t a, const uint32_t *program_of)
{
    const uint32_t stride = f->mesh->axis[a].stride, size = f->mesh->axis[a].size;
    if (!moves_whole(f, f->devices_per_node, stride) ||
        !moves_whole(f, f->nodes_per_pod * f->devices_per_node, stride))
        return false;
    for (Rank first = 0; first < f->n_ranks; first += stride * size)
        for (uint32_t k = 1; k < size; k++)
            if (memcmp(program_of + first, program_of + first + k * stride,
                       stride * sizeof *program_of) != 0)
                return false;
    return true;
}

void fold_describe_group(const Fold *f, FoldGroup *g, Rank first, Arena *arena)
{
    const Mesh *mesh = f->mesh;
    g->first = first;
    g->n_ranks = mesh_size(mesh, g->axes);
    g->members = arena_array(arena, g->n_ranks, sizeof *g->members);
    g->min_per_node = UINT32_MAX;
    uint32_t run = 0, nics = 0, last_nic = UINT32_MAX, in_pod = 0;
    Rank next = mesh_group(mesh, first, g->axes);
    for (uint32_t k = 0; k < g->n_ranks; k++) {
        const Rank m = next;
        next = mesh_next(mesh, m, g->axes);
        uint32_t c = f->class_of[m], i = 0;
        while (i < g->n_members && g->members[i].class_ != c) i++;
        if (i == g->n_members) g->members[g->n_members++].class_ = c;
        g->members[i].n++;
        run++;
        in_pod++;
        if (in_pod > g->max_per_pod) g->max_per_pod = in_pod;
        if (fold_nic_of(f, m) != last_nic) nics++;
        last_nic = fold_nic_of(f, m);
        bool ends = k + 1 == g->n_ranks || fold_node_of(f, next) != fold_node_of(f, m);
        if (!ends) continue;
        g->n_nodes++;
        if (k + 1 == g->n_ranks || fold_pod_of(f, next) != fold_pod_of(f, m)) {
            g->n_pods++;
            in_pod = 0;
        }
        if (run < g->min_per_node) g->min_per_node = run;
        if (run > g->max_per_node) g->max_per_node = run;
        if (nics > g->n_nics) g->n_nics = nics;
        run = nics = 0;
        last_nic = UINT32_MAX;
    }
    if (g->n_nodes < 2) g->n_nics = 0;
}
