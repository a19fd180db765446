/* Views of a mesh: the position of each rank, the ranks that read the same samples, the submesh
 * over which parameters are sharded. */
#ifndef TANDEM_IR_MESH_VIEW_H
#define TANDEM_IR_MESH_VIEW_H

#include "planner/ir/layout/mesh.h"

/* Sets *axes to the axes of that name: a mesh axis, or a GROUP of axes.def. Returns false if the
 * name is unknown. For an axis that the mesh does not have, *axes is the empty set. */
bool mesh_named(const Mesh *mesh, const char *name, AxisSet *axes);
extern const char *const mesh_flattened[]; /* the combined names; ends in NULL */

/* mesh_place writes the coordinates of a rank by axis name; the parts of a refined axis give one
 * number. mesh_rank_at returns the rank at given coordinates. */
void mesh_place(const Mesh *mesh, Rank rank, uint32_t at[AXIS_NAMES]);
Rank mesh_rank_at(const Mesh *mesh, const uint32_t at[AXIS_NAMES]);
/* The largest number of nodes [per_node consecutive ranks each] that a group along `axes` spans. */
uint32_t mesh_nodes_of_groups(const Mesh *mesh, AxisSet axes, uint32_t per_node);

/* The axes along which ranks read different samples. Ranks that differ only in other axes read
 * the same samples. */
AxisSet mesh_data_axes(const Mesh *mesh);
/* The axes over which the optimizer states of ordinary parameters are sharded (AXIS_STATES). */
AxisSet mesh_shard_axes(const Mesh *mesh);
uint32_t mesh_dp_size(const Mesh *mesh);
uint32_t mesh_dp_rank(const Mesh *mesh, Rank rank); /* replica * shards + shard */

/* The mesh that data parallelism works on: 1-D (shard, or replicate) or 2-D (replicate, shard),
 * which is hybrid sharding. */
typedef struct DpMesh {
    uint32_t n_dims;
    AxisSet axes[2];
    const char *name[2]; /* "replicate", "shard" */
} DpMesh;
bool mesh_has_dp(const Mesh *mesh);
/* Finds the data-parallel mesh; reports "no-dp-mesh" with the mesh if there is none. */
bool mesh_dp(const Mesh *mesh, Arena *arena, Loc loc, Diag *d, DpMesh *dp);

/* Expert parallelism folded into the ranks of a pipeline stage, innermost. The ep ranks of a group
 * split a layer's experts; ep_shard ranks hold the same experts. */
typedef struct EpFold {
    uint32_t ep, ep_shard;
} EpFold;
/* An assertion fails unless ep divides the ranks of a stage. */
EpFold mesh_fold_ep(const Mesh *mesh, uint32_t ep);
void mesh_ep_place(const Mesh *mesh, const EpFold *fold, Rank rank, uint32_t *ep,
                   uint32_t *ep_shard);

#endif
