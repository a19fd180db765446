/* Lists the groups of ranks that communicate. All ranks make the same list in the same order. */
#ifndef TANDEM_EXEC_GROUPS_H
#define TANDEM_EXEC_GROUPS_H

#include "planner/ir/plan.h"

/* Identifies a communicator: the mesh axes along which its members differ, and the stream. All
 * members issue their communications on it in the same order. */
typedef struct GroupKey {
    AxisSet axes;
    Stream stream;
} GroupKey;

typedef struct GroupKeys {
    LIST(GroupKey) all; /* sorted */
} GroupKeys;

/* Lists the groups that occur in any program of the plan. If `with_ends` is true, the list includes
 * the groups of sends and receives. */
void groups_collect(const Plan *plan, bool with_ends, Arena *arena, GroupKeys *keys);
/* Returns the index of a group in the list; UINT32_MAX: it is not in the list. */
uint32_t groups_find(const GroupKeys *keys, AxisSet axes, Stream stream);

#endif
