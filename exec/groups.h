/* Which groups of ranks the programs of a plan communicate in, in an order that all ranks share. */
#ifndef TANDEM_EXEC_GROUPS_H
#define TANDEM_EXEC_GROUPS_H

#include "planner/ir/plan.h"

/* A communicator: (axes, stream). Each has one issue order on all its members. */
typedef struct GroupKey {
    AxisSet axes;
    Stream stream;
} GroupKey;

typedef struct GroupKeys {
    LIST(GroupKey) all; /* ascending */
} GroupKeys;

/* Of the programs of all ranks, so that all ranks make the same ones in the same order. Sends and
 * receives count only `with_ends`. */
void groups_collect(const Plan *plan, bool with_ends, Arena *arena, GroupKeys *keys);
/* Its index; UINT32_MAX: none. */
uint32_t groups_find(const GroupKeys *keys, AxisSet axes, Stream stream);

#endif
