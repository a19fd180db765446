/* A mesh arranges the ranks as a grid, as torch's DeviceMesh does. Each axis of the grid has a
 * name, such as tp, for one kind of parallelism. For example, the mesh dp_shard = 4, tp = 2 has 8
 * ranks. Rank 5 has the coordinates dp_shard 2 and tp 1. A group along tp is a pair of ranks, such
 * as {4, 5}; a group along dp_shard has 4 ranks, such as {1, 3, 5, 7}.
 *
 * Ranks along the last (innermost) axis are consecutive, except along an axis with its own stride
 * (Axis.apart). If several axes split the same dimension of a tensor, a part of an outer axis is
 * cut further by the inner axes. */
#ifndef TANDEM_IR_MESH_H
#define TANDEM_IR_MESH_H

#include <stdbool.h>
#include <stdint.h>

#include "planner/base/diag.h"
#include "planner/ir/layout/axes.h"

enum { MAX_AXES = 16 };
typedef uint32_t Rank;
typedef uint16_t AxisSet; /* a set of entries of Mesh.axis: bit a is axis[a] */

/* One axis of the grid. An axis that the user names, such as dp_shard = 8, is usually one entry. It
 * becomes several if something needs only a part of it: reshard_after_forward = 4 shards weights
 * over 4 of the 8 ranks, so the entries are dp_shard.0 of size 2 and dp_shard.1 of size 4. */
typedef struct Axis {
    const char *text; /* "tp", or "dp_shard.1" if the named axis has several entries */
    AxisName name;
    /* neighbours along the axis are `stride` ranks apart: in dp_shard = 4, tp = 2 the strides are 2
     * and 1 */
    uint32_t size, stride;
    /* Usually 0: the stride is the product of the sizes of all later axes. Otherwise it is `apart`.
     * This is set if the axis was moved to the end of the list, where its parts nest innermost,
     * although its ranks are not consecutive (mesh_nest_last). */
    uint32_t apart;
} Axis;

typedef struct Mesh {
    uint32_t n_axes, n_ranks; /* all axes have sizes above 1 */
    Axis axis[MAX_AXES];
} Mesh;

/* Builds a mesh from the size of each named axis, outermost first. An axis of size 0 or 1 is left
 * out. The caller has checked that there are at most 2^31 ranks. */
Mesh mesh_make(const uint32_t sizes[AXIS_NAMES]);
/* Replaces axis[a] by an outer axis and an inner axis of size `inner`, such as 8 by 2 and 4. */
void mesh_refine(Mesh *mesh, Arena *arena, uint32_t a, uint32_t inner);
/* Returns the innermost entries of the named axis, whose sizes multiply to `inner`. Splits an entry
 * if necessary: dp_shard = 8 and inner = 4 give dp_shard.0 (2) and dp_shard.1 (4), of which
 * dp_shard.1 is returned. Returns the empty set if the sizes do not allow it, as for inner = 3. */
AxisSet mesh_cut(Mesh *mesh, Arena *arena, AxisName name, uint32_t inner);
/* Moves axis[a] to the end of the list. Where several axes split a dimension, its parts are then
 * the innermost. No rank changes its coordinates: the axis keeps its stride in `apart`. */
void mesh_nest_last(Mesh *mesh, uint32_t a);
/* Computes all strides and n_ranks from the sizes and from Axis.apart. Returns false if these do
 * not form a grid of at most 2^31 ranks. */
bool mesh_set_strides(Mesh *mesh);
/* Both return the entries of Mesh.axis with these names; the empty set if the named axis has size
 * 1. */
AxisSet mesh_axes(const Mesh *mesh, AxisName name);
AxisSet mesh_axes_of(const Mesh *mesh, AxisNames names);
/* Returns how many ranks a group along `axes` has: the product of the sizes; 1 for no axes. */
uint32_t mesh_size(const Mesh *mesh, AxisSet axes);
/* the rank's place along axis[axis], from 0 */
uint32_t mesh_coordinate(const Mesh *mesh, Rank rank, uint32_t axis);
/* Returns the place of `rank` in its group along `axes`, from 0. The outermost axis counts most. */
uint32_t mesh_part(const Mesh *mesh, Rank rank, AxisSet axes);
/* Returns the place that is `hop` places after `part` in a ring of `size` places. `hop` may be
 * negative: mesh_hop(0, -1, 4) is 3. */
uint32_t mesh_hop(uint32_t part, int32_t hop, uint32_t size);
/* Returns the rank at place i of the group along `axes` that contains `rank`. This is the inverse
 * of mesh_part: mesh_member(m, r, axes, mesh_part(m, r, axes)) is r. */
Rank mesh_member(const Mesh *mesh, Rank rank, AxisSet axes, uint32_t i);
/* Returns the i-th smallest rank (from 0) of the group along `axes` that contains `rank`. It
 * differs from mesh_member(i) only if an axis has its own stride (Axis.apart). */
Rank mesh_rising(const Mesh *mesh, Rank rank, AxisSet axes, uint32_t i);
/* Returns the next larger rank of the group along `axes` that contains `member`; the smallest rank
 * after the largest. To visit a whole group, call it mesh_size(mesh, axes) times. */
Rank mesh_next(const Mesh *mesh, Rank member, AxisSet axes);
/* Returns the smallest rank of the group along `axes` that contains `rank`. It serves as the id of
 * the group. */
Rank mesh_group(const Mesh *mesh, Rank rank, AxisSet axes);
/* Returns the names of `axes`, such as "dp_shard,tp"; "-" for the empty set. */
const char *mesh_axes_text(Arena *arena, const Mesh *mesh, AxisSet axes);

#endif
