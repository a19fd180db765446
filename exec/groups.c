/* Lists the communicators of a plan, which are pairs (axes, stream). */
#include "exec/groups.h"

#include <stdlib.h>

static int by_key(const void *a, const void *b)
{
    const GroupKey *x = a, *y = b;
    if (x->axes != y->axes) return x->axes < y->axes ? -1 : 1;
    return (x->stream > y->stream) - (x->stream < y->stream);
}

uint32_t groups_find(const GroupKeys *keys, AxisSet axes, Stream stream)
{
    for (uint32_t k = 0; k < keys->all.n; k++)
        if (keys->all.at[k].axes == axes && keys->all.at[k].stream == stream) return k;
    return UINT32_MAX;
}

void groups_collect(const Plan *plan, bool with_ends, Arena *arena, GroupKeys *keys)
{
    *keys = (GroupKeys){{NULL, 0, 0}};
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        const Program *p = &plan->programs.at[i];
        for (Pc pc = 1; pc < p->code.n; pc++) {
            const Instr *in = program_instr(p, pc);
            if (op_info(in->op)->class_ != OP_CLASS_comm) continue;
            if (!with_ends && (in->op == OP_send || in->op == OP_recv)) continue;
            GroupKey key = {in->axes, in->stream};
            if (groups_find(keys, key.axes, key.stream) == UINT32_MAX)
                list_push(arena, &keys->all, key);
        }
    }
    if (keys->all.n > 0) qsort(keys->all.at, keys->all.n, sizeof *keys->all.at, by_key);
}
