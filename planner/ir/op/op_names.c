/* A hash table from the names of ops to ops. */
#include <pthread.h>
#include <string.h>

#include "planner/ir/op/op.h"

enum { SLOTS = 1024 };
_Static_assert(2 * OP_COUNT <= SLOTS, "at least half of the slots are empty");

static uint16_t op_at[SLOTS]; /* [slot]: an op; 0: empty */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Returns the slot of the op with this name, or the empty slot where it would be stored. */
static uint32_t slot_of(const char *name)
{
    uint32_t h = 2166136261U; /* FNV-1a */
    for (const char *at = name; *at != 0; at++) h = (h ^ (unsigned char)*at) * 16777619U;
    uint32_t slot = (h ^ h >> 16) % SLOTS;
    while (op_at[slot] != 0 && strcmp(op_info((OpKind)op_at[slot])->name, name) != 0)
        slot = (slot + 1) % SLOTS;
    return slot;
}

static void fill(void)
{
    for (int op = OP_none + 1; op < OP_COUNT; op++) {
        const char *name = op_info((OpKind)op)->name;
        const uint32_t slot = name != NULL ? slot_of(name) : 0;
        if (name != NULL && op_at[slot] == 0) op_at[slot] = (uint16_t)op;
    }
}

OpKind op_find(const char *name)
{
    pthread_once(&once, fill);
    return (OpKind)op_at[slot_of(name)];
}
