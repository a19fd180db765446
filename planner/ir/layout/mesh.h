/* Ranks as a grid of named axes. The order is row-major: peers along the last (innermost) axis are
 * consecutive ranks. The list of axes is also the order in which parts of one dimension nest. The
 * order of ranks may differ for single axes: an axis listed later may vary more slowly among the
 * ranks than an axis listed before it (Axis.apart). */
#ifndef TANDEM_IR_MESH_H
#define TANDEM_IR_MESH_H

#include <stdbool.h>
#include <stdint.h>

#include "planner/base/diag.h"
#include "planner/ir/layout/axes.h"

enum { MAX_AXES = 16 };
typedef uint32_t Rank;
typedef uint16_t AxisSet; /* bit a: mesh axis a */

/* An atomic axis. A user's axis consists of one or several atomic axes. dp_shard = 8 refined as 2 x
 * 4 for reshard_after_forward = 4 becomes dp_shard.0 (2) and dp_shard.1 (4). */
typedef struct Axis {
    const char *text; /* "tp", "dp_shard.1" */
    AxisName name;
    uint32_t size, stride; /* stride in ranks */
    /* 0: the stride follows from the order of the axes: the last axis has the smallest stride.
     * Otherwise this is the stride itself, and it is larger than the strides of some axes listed
     * before. */
    uint32_t apart;
} Axis;

typedef struct Mesh {
    uint32_t n_axes, n_ranks; /* only axes of size > 1 are kept */
    Axis axis[MAX_AXES];
} Mesh;

/* Builds a mesh from one size for each axis name; 0 or 1: the axis is absent. The caller has
 * checked that there are at most 2^31 ranks; an assertion fails if there are more. */
Mesh mesh_make(const uint32_t sizes[AXIS_NAMES]);
/* Splits atomic axis `a` into outer x inner (outer first). */
void mesh_refine(Mesh *mesh, Arena *arena, uint32_t a, uint32_t inner);
/* Refines the axis of that name so that its innermost atomic axes have `inner` ranks together.
 * Returns these atomic axes. Returns the empty set if earlier cuts of the axis do not nest with
 * this cut. */
AxisSet mesh_cut(Mesh *mesh, Arena *arena, AxisName name, uint32_t inner);
/* Moves atomic axis `a` to the end of the list, so that its parts nest inside the parts of all
 * other axes. Every rank keeps its coordinates. Axes listed after `a` move one place forward. */
void mesh_nest_last(Mesh *mesh, uint32_t a);
/* Computes strides and the number of ranks from the sizes. Returns false if the axes do not fill a
 * grid of at most 2^31 ranks. */
bool mesh_set_strides(Mesh *mesh);
AxisSet mesh_axes(const Mesh *mesh, AxisName name); /* all atomic axes of that name; 0: size 1 */
AxisSet mesh_axes_of(const Mesh *mesh, AxisNames names); /* all atomic axes of these names */
uint32_t mesh_size(const Mesh *mesh, AxisSet axes);      /* product; 1 for none */
uint32_t mesh_coordinate(const Mesh *mesh, Rank rank, uint32_t axis);
/* Index of `rank` within its group along `axes` (mixed radix in mesh order, outermost first). */
uint32_t mesh_part(const Mesh *mesh, Rank rank, AxisSet axes);
/* The part `hop` places after `part` in a ring of `size` parts: the peer of a send or receive. */
uint32_t mesh_hop(uint32_t part, int32_t hop, uint32_t size);
/* The i-th member of rank's group along `axes`; i = mesh_part(rank) gives rank itself. */
Rank mesh_member(const Mesh *mesh, Rank rank, AxisSet axes, uint32_t i);
/* The member at place i among the group's ranks in rising order. */
Rank mesh_rising(const Mesh *mesh, Rank rank, AxisSet axes, uint32_t i);
/* Returns the next member after `member` in rising order; after the last member, the first. A walk
 * over a large group costs one step for each member. */
Rank mesh_next(const Mesh *mesh, Rank member, AxisSet axes);
/* Returns the smallest rank of rank's group along `axes`, which identifies the group. */
Rank mesh_group(const Mesh *mesh, Rank rank, AxisSet axes);
const char *mesh_axes_text(Arena *arena, const Mesh *mesh,
                           AxisSet axes); /* "dp_shard,tp"; "-" for none */

#endif
