/* A lower bound of a pipeline's memory, from a plan with few micro-batches. Under 1f1b, the
 * programs of any number of micro-batches begin with the same instructions. Buffers that are alive
 * at the same time in this beginning are so in the whole plan, too, whatever their offsets. */
#include "session/bound.h"
#include "session/session.h"

/* micro-batches at the end of a step that passes treat differently from the others */
enum { LAST = 2 };

uint32_t bound_microbatches(const Config *c)
{
    const uint32_t few = session_fewer(c, true);
    if (few == 0 || session_microbatches(c) < 2 * few)
        return 0; /* the short plan would take nearly as long as the whole plan */
    for (uint32_t i = 0; i < c->n_passes; i++) {
        const PassConfig *p = &c->passes[i];
        if (p->name == PASS_pp && p->pp.schedule == SCHEDULE_1f1b && !p->pp.is_own &&
            !p->pp.has_split && p->pp.round == 0)
            return few;
    }
    return 0;
}

static bool is_counted(const Buffer *b)
{
    return b->parent == 0 && b->space == SPACE_device && (b->persistent || b->first != 0);
}

/* Returns the first instruction of the last LAST micro-batches. The program before it is the same
 * for any number of micro-batches. */
static Pc end_of_start(const Program *p, uint32_t n_microbatches)
{
    Pc pc = 1;
    while (pc < p->code.n && p->code.at[pc].microbatch + LAST < n_microbatches) pc++;
    return pc;
}

/* Returns the largest number of bytes alive at one time before instruction `stop`. A buffer's
 * memory counts as free from its last reader on, so that an output may reuse it. */
static uint64_t most_alive(const Program *p, Pc stop, Arena *scratch)
{
    uint64_t *begin = arena_array(scratch, p->code.n + 1, sizeof *begin),
             *end = arena_array(scratch, p->code.n + 1, sizeof *end), now = 0, most;
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const Buffer *at = &p->buffers.at[b];
        if (!is_counted(at)) continue;
        if (at->persistent) {
            now += at->bytes;
            continue;
        }
        begin[at->first] += at->bytes;
        end[at->result ? p->code.n : at->last] += at->bytes;
    }
    most = now;
    for (Pc pc = 1; pc < stop; pc++) {
        now += begin[pc];
        now -= end[pc];
        if (now > most) most = now;
    }
    return most;
}

uint64_t bound_bytes(const Plan *few, bool all)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < few->programs.n; i++) {
        Arena *scratch = arena_new();
        const Program *p = &few->programs.at[i];
        const Pc stop = all ? p->code.n : end_of_start(p, few->step.n_microbatches);
        const uint64_t bytes = most_alive(p, stop, scratch);
        if (bytes > most) most = bytes;
        arena_free(scratch);
    }
    return most;
}
