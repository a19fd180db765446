/* The groups of ranks that communicate in a plan's programs, in the same order on all ranks. */
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

/* Collects the groups of all ranks' programs, so that all ranks create the same groups in the
 * same order. with_ends: includes the groups of sends and receives. */
void groups_collect(const Plan *plan, bool with_ends, Arena *arena, GroupKeys *keys);
/* Returns the index of a group; UINT32_MAX if there is none. */
uint32_t groups_find(const GroupKeys *keys, AxisSet axes, Stream stream);

#endif
