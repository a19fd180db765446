/* Questions about a mesh: where each rank is, which ranks read the same samples, and over which
 * ranks parameters are sharded. */
#ifndef TANDEM_IR_MESH_VIEW_H
#define TANDEM_IR_MESH_VIEW_H

#include "planner/ir/layout/mesh.h"

/* Sets *axes to the mesh axes with this name, which may also be a GROUP of axes.def. Returns false
 * if the name is unknown. *axes is empty if the axis has size 1. */
bool mesh_named(const Mesh *mesh, const char *name, AxisSet *axes);
extern const char *const mesh_flattened[]; /* the names of groups of axes; ends in NULL */

/* mesh_place writes the coordinates of a rank by axis name. mesh_rank_at returns the rank at these
 * coordinates. */
void mesh_place(const Mesh *mesh, Rank rank, uint32_t at[AXIS_NAMES]);
Rank mesh_rank_at(const Mesh *mesh, const uint32_t at[AXIS_NAMES]);
/* Returns the largest number of nodes over which any group along `axes` extends. A node has
 * `per_node` consecutive ranks. */
uint32_t mesh_nodes_of_groups(const Mesh *mesh, AxisSet axes, uint32_t per_node);

/* Returns the axes along which ranks read different samples. */
AxisSet mesh_data_axes(const Mesh *mesh);
/* Returns the axes over which optimizer states of ordinary parameters are sharded. */
AxisSet mesh_shard_axes(const Mesh *mesh);
uint32_t mesh_dp_size(const Mesh *mesh); /* returns the product of the sizes of mesh_data_axes */
/* Returns replica * shards + shard: the index of the rank among the ranks that read different
 * samples. `replica` and `shard` are its coordinates, and `shards` is the size of the sharding
 * axis. */
uint32_t mesh_dp_rank(const Mesh *mesh, Rank rank);

/* The mesh of data parallelism. A mesh with one axis either shards or replicates. A mesh with both
 * axes is hybrid: it replicates over the first axis and shards over the second. */
typedef struct DpMesh {
    uint32_t n_dims;
    AxisSet axes[2];
    const char *name[2]; /* "replicate", "shard" */
} DpMesh;
bool mesh_has_dp(const Mesh *mesh);
/* Finds the data-parallel mesh. Reports "no-dp-mesh" if there is none. */
bool mesh_dp(const Mesh *mesh, Arena *arena, Loc loc, Diag *d, DpMesh *dp);

/* Experts that are folded into the ranks of a pipeline stage. `ep` consecutive ranks divide the
 * experts of a layer, and ep_shard ranks hold the same experts. */
typedef struct EpFold {
    uint32_t ep, ep_shard;
} EpFold;
/* Divides the ranks of a stage into groups of `ep` ranks. `ep` must divide the number of these
 * ranks. */
EpFold mesh_fold_ep(const Mesh *mesh, uint32_t ep);
void mesh_ep_place(const Mesh *mesh, const EpFold *fold, Rank rank, uint32_t *ep,
                   uint32_t *ep_shard);

#endif
