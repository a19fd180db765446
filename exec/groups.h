/* Lists the groups of ranks that communicate, in the same order on all ranks. */
#ifndef TANDEM_EXEC_GROUPS_H
#define TANDEM_EXEC_GROUPS_H

#include "planner/ir/plan.h"

/* A communicator. All its members issue its communications in one order. */
typedef struct GroupKey {
    AxisSet axes;
    Stream stream;
} GroupKey;

typedef struct GroupKeys {
    LIST(GroupKey) all; /* sorted */
} GroupKeys;

/* Lists the groups of all programs. All ranks get the same list. with_ends: also lists the groups
 * of sends and receives. */
void groups_collect(const Plan *plan, bool with_ends, Arena *arena, GroupKeys *keys);
/* Returns the index of a group; UINT32_MAX: there is none. */
uint32_t groups_find(const GroupKeys *keys, AxisSet axes, Stream stream);

#endif
