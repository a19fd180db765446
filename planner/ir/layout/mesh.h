/* A mesh arranges the ranks as a grid of named axes. Ranks along the last (innermost) axis are
 * consecutive. If several axes split a dimension, its parts nest in the order of this list.
 * Axis.apart is for an axis whose stride does not follow from its place in this list. */
#ifndef TANDEM_IR_MESH_H
#define TANDEM_IR_MESH_H

#include <stdbool.h>
#include <stdint.h>

#include "planner/base/diag.h"
#include "planner/ir/layout/axes.h"

enum { MAX_AXES = 16 };
typedef uint32_t Rank;
typedef uint16_t AxisSet; /* bit a: mesh axis a */

/* An atomic axis. An axis that the user names consists of one or more atomic axes. For example,
 * reshard_after_forward = 4 splits dp_shard = 8 into dp_shard.0 (2) and dp_shard.1 (4). */
typedef struct Axis {
    const char *text; /* for example "tp" or "dp_shard.1" */
    AxisName name;
    uint32_t size, stride; /* stride: the difference of the numbers of two ranks that are neighbours
                              along the axis */
    /* 0: the stride follows from the order of the axes. Otherwise `apart` is the stride itself. It
     * is then larger than the strides of some axes before it in the list. */
    uint32_t apart;
} Axis;

typedef struct Mesh {
    uint32_t n_axes, n_ranks; /* the mesh keeps only axes of size > 1 */
    Axis axis[MAX_AXES];
} Mesh;

/* Builds a mesh from the size of each named axis. Sizes 0 and 1 leave out the axis. The caller has
 * checked that there are at most 2^31 ranks. */
Mesh mesh_make(const uint32_t sizes[AXIS_NAMES]);
/* Splits atomic axis `a` into an outer and an inner axis. The inner axis has size `inner`. */
void mesh_refine(Mesh *mesh, Arena *arena, uint32_t a, uint32_t inner);
/* Splits the axis of that name so that its innermost part has `inner` ranks. Returns the atomic
 * axes of that part. Returns the empty set if earlier splits do not allow it. */
AxisSet mesh_cut(Mesh *mesh, Arena *arena, AxisName name, uint32_t inner);
/* Moves atomic axis `a` to the end of the list, so that its parts nest inside all others. No rank
 * changes its coordinates. */
void mesh_nest_last(Mesh *mesh, uint32_t a);
/* Computes strides and the number of ranks from the sizes. Returns false if the axes form no grid
 * of at most 2^31 ranks. */
bool mesh_set_strides(Mesh *mesh);
/* returns all atomic axes of that name; the empty set for an axis of size 1 */
AxisSet mesh_axes(const Mesh *mesh, AxisName name);
AxisSet mesh_axes_of(const Mesh *mesh, AxisNames names); /* returns all atomic axes of these
                                                            names */
/* returns the product of the axes' sizes; 1 for the empty set */
uint32_t mesh_size(const Mesh *mesh, AxisSet axes);
uint32_t mesh_coordinate(const Mesh *mesh, Rank rank, uint32_t axis); /* along atomic `axis` */
/* Returns the index of `rank` in its group along `axes`. The outermost axis counts most. */
uint32_t mesh_part(const Mesh *mesh, Rank rank, AxisSet axes);
/* Returns the part that is `hop` steps after `part` in a ring of `size` parts. */
uint32_t mesh_hop(uint32_t part, int32_t hop, uint32_t size);
/* Returns member i of the group along `axes` that contains `rank`. i = mesh_part(rank) gives `rank`
 * itself. */
Rank mesh_member(const Mesh *mesh, Rank rank, AxisSet axes, uint32_t i);
/* Returns the i-th smallest rank (counted from 0) of the group along `axes` that contains
 * `rank`. */
Rank mesh_rising(const Mesh *mesh, Rank rank, AxisSet axes, uint32_t i);
/* Returns the next larger rank of the member's group. After the largest rank comes the smallest. To
 * visit a whole group, call this once for each member. */
Rank mesh_next(const Mesh *mesh, Rank member, AxisSet axes);
/* Returns the smallest rank of the group along `axes` that contains `rank`. This number identifies
 * the group. */
Rank mesh_group(const Mesh *mesh, Rank rank, AxisSet axes);
/* Returns for example "dp_shard,tp"; "-" for the empty set. */
const char *mesh_axes_text(Arena *arena, const Mesh *mesh, AxisSet axes);

#endif
