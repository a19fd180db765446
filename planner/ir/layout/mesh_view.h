/* Questions about a mesh: the coordinates of a rank, which ranks read the same samples, and over
 * which ranks parameters are sharded. */
#ifndef TANDEM_IR_MESH_VIEW_H
#define TANDEM_IR_MESH_VIEW_H

#include "planner/ir/layout/mesh.h"

/* Sets *axes to the axes with the name `name`, which may also be a group in axes.def such as
 * "dp_cp". *axes is empty if all of these have size 1. Returns false if the name is unknown. */
bool mesh_named(const Mesh *mesh, const char *name, AxisSet *axes);
/* names of the groups in axes.def, such as "dp_cp"; ends with NULL */
extern const char *const mesh_flattened[];

/* mesh_place writes the coordinates of `rank`: at[a] is its place along the named axis a, 0 if the
 * axis has size 1. mesh_rank_at is the inverse and returns the rank at these coordinates. */
void mesh_place(const Mesh *mesh, Rank rank, uint32_t at[AXIS_NAMES]);
Rank mesh_rank_at(const Mesh *mesh, const uint32_t at[AXIS_NAMES]);
/* Returns over how many nodes the most widespread group along `axes` extends. A node consists of
 * `per_node` consecutive ranks. */
uint32_t mesh_nodes_of_groups(const Mesh *mesh, AxisSet axes, uint32_t per_node);

/* Returns the axes along which ranks read different samples, such as dp_replicate, dp_shard and
 * ep. */
AxisSet mesh_data_axes(const Mesh *mesh);
/* Returns the axes along which the optimizer state of ordinary parameters may be sharded. */
AxisSet mesh_shard_axes(const Mesh *mesh);
/* the number of groups of ranks that read different samples */
uint32_t mesh_dp_size(const Mesh *mesh);
/* Returns which share of the samples `rank` reads, from 0 to mesh_dp_size - 1. Replicas count most:
 * with dp_replicate = 2 and dp_shard = 4, replica 1 and shard 3 give 7. */
uint32_t mesh_dp_rank(const Mesh *mesh, Rank rank);

/* The mesh of data parallelism, as FSDP2 sees it: "replicate" (plain DDP), "shard" (FSDP), or both
 * in this order (hybrid sharding, HSDP). */
typedef struct DpMesh {
    uint32_t n_dims;
    AxisSet axes[2];
    const char *name[2]; /* "replicate", "shard" */
} DpMesh;
bool mesh_has_dp(const Mesh *mesh);
/* Fills *dp. Reports "no-dp-mesh" and returns false if all ranks read the same samples. */
bool mesh_dp(const Mesh *mesh, Arena *arena, Loc loc, Diag *d, DpMesh *dp);

/* How the experts of a layer are distributed if ep has no ranks of its own, but uses all ranks of a
 * pipeline stage again. `ep` consecutive ranks divide the experts among them. There are `ep_shard`
 * such groups, so `ep_shard` ranks hold the same experts. */
typedef struct EpFold {
    uint32_t ep, ep_shard;
} EpFold;
/* mesh_fold_ep divides the ranks of a pipeline stage into groups of `ep`, which must divide their
 * count. mesh_ep_place computes the place of `rank` in its group (*ep), and which group it is
 * (*ep_shard). */
EpFold mesh_fold_ep(const Mesh *mesh, uint32_t ep);
void mesh_ep_place(const Mesh *mesh, const EpFold *fold, Rank rank, uint32_t *ep,
                   uint32_t *ep_shard);

#endif
