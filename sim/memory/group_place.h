/* How the group of a rank is distributed over nodes. */
#ifndef TANDEM_SIM_MEMORY_GROUP_PLACE_H
#define TANDEM_SIM_MEMORY_GROUP_PLACE_H

#include "planner/ir/layout/mesh.h"

/* The group of a rank along `axes`: its number of ranks and of nodes, and how many of the ranks are
 * on the rank's own node (here). */
typedef struct GroupPlace {
    AxisSet axes;
    uint32_t n_ranks, n_nodes, here;
} GroupPlace;

/* Returns the place of the group along `axes` that contains `rank`. Consecutive ranks fill a node;
 * devices_per_node = 0 stands for a single node. */
GroupPlace group_place(const Mesh *mesh, Rank rank, uint32_t devices_per_node, AxisSet axes);

#endif
