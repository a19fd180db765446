/* How the group of a rank is distributed over nodes. */
#ifndef TANDEM_SIM_MEMORY_GROUP_PLACE_H
#define TANDEM_SIM_MEMORY_GROUP_PLACE_H

#include "planner/ir/layout/mesh.h"

/* Where the group of a rank along some axes lies. here: its members on the rank's node. */
typedef struct GroupPlace {
    AxisSet axes;
    uint32_t n_ranks, n_nodes, here;
} GroupPlace;

/* Returns the place of the group along `axes` that contains `rank`. Consecutive ranks fill a node;
 * devices_per_node = 0 stands for a single node. */
GroupPlace group_place(const Mesh *mesh, Rank rank, uint32_t devices_per_node, AxisSet axes);

#endif
