/* Questions about a mesh: who is where, who reads the same samples, which submesh shards. */
#ifndef TANDEM_IR_MESH_VIEW_H
#define TANDEM_IR_MESH_VIEW_H

#include "planner/ir/mesh.h"

/* Axes by a name: an axis's own, or a flattened one: dp (dp_replicate, dp_shard), dp_shard_cp,
 * dp_cp. False: there is no such name. An absent axis is empty: size 1. */
bool mesh_named(const Mesh *mesh, const char *name, AxisSet *axes);
extern const char *const mesh_flattened[]; /* these names; ends in NULL */

/* Coordinates by axis name (a refined axis is one number again), and back. */
void mesh_place(const Mesh *mesh, Rank rank, uint32_t at[AXIS_NAMES]);
Rank mesh_rank_at(const Mesh *mesh, const uint32_t at[AXIS_NAMES]);
/* How many nodes of `per_node` consecutive ranks the groups along `axes` reach over, at most. */
uint32_t mesh_nodes_of_groups(const Mesh *mesh, AxisSet axes, uint32_t per_node);

/* The axes along which ranks have different samples: all others read the same. */
AxisSet mesh_data_axes(const Mesh *mesh);
/* The axes that share the states of what all of them train alike: ranks that share experts have
 * samples of their own, those of cp tokens of the same, and share all else as those of dp_shard do.
 */
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
/* Reports "no-dp-mesh", with the mesh, when there is none. */
bool mesh_dp(const Mesh *mesh, Arena *arena, Loc loc, Diag *d, DpMesh *dp);

/* Experts folded into the ranks of a pipeline stage, innermost: ep ranks share a layer's experts,
 * ep_shard hold the same ones. */
typedef struct EpFold {
    uint32_t ep, ep_shard;
} EpFold;
/* Reports "ep-fold" when ep does not divide the ranks of a stage. */
bool mesh_fold_ep(const Mesh *mesh, uint32_t ep, Loc loc, Diag *d, EpFold *fold);
void mesh_ep_place(const Mesh *mesh, const EpFold *fold, Rank rank, uint32_t *ep,
                   uint32_t *ep_shard);

#endif
