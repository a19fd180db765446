/* Finds the instruction of a program at which the most bytes of device memory are live, and how
 * many of these bytes belong to each category of buffers. */
#include <assert.h>

#include "planner/lower/memory/gaps.h"
#include "planner/lower/memory/lives.h"
#include "sim/sim.h"

static bool is_root(const Program *p, BufferId id)
{
    const Buffer *b = &p->buffers.at[id];
    return id != 0 && b->parent == 0 && b->space == SPACE_device && b->bytes > 0;
}

/* Returns the root buffer of the first input of instruction pc, if the first output takes over its
 * memory. The life of such an input ends with pc, and the output begins at its offset. During pc,
 * the two count as one buffer. Returns 0 if the output takes over nothing. */
static BufferId taken_over(const Program *p, Pc pc)
{
    const Instr *in = program_instr(p, pc);
    if (in->n_in == 0 || in->args.n <= in->n_in) return 0;
    uint64_t from, to;
    BufferId input = program_root(p, program_arg(p, in, 0), &from);
    BufferId output = program_root(p, program_arg(p, in, in->n_in), &to);
    const Buffer *x = &p->buffers.at[input], *y = &p->buffers.at[output];
    bool handed = input != output && x->offset == y->offset && x->last == pc && y->first == pc &&
                  x->first < pc && !x->persistent && !x->result && !y->persistent;
    return handed && is_root(p, input) && is_root(p, output) ? input : 0;
}

/* Finds the largest number of bytes in use. The pass that places buffers has computed it already,
 * unless the plan was read from text. */
static void find_in_use(const Program *p, Arena *arena, MemoryPeak *peak)
{
    Lives lives;
    uint64_t bottom = 0, alive;
    peak->in_use = p->in_use;
    peak->waiting = p->in_use - p->alive;
    if (p->in_use > 0) return;
    for (BufferId id = 1; id < p->buffers.n; id++)
        if (is_root(p, id) && p->buffers.at[id].persistent)
            bottom += gaps_round(p->buffers.at[id].bytes);
    peak->in_use = bottom;
    peak->waiting = 0;
    if (p->code.n == 0) return;
    lives_read(&lives, p, arena);
    lives_of_space(&lives, SPACE_device);
    uint64_t *at = arena_array(arena, p->code.n, sizeof *at);
    peak->in_use = lives_in_use(&lives, bottom, at, &alive);
    peak->waiting = peak->in_use - alive;
}

/* The first and the last instruction at which a root buffer counts as live. */
static Pc live_from(const Buffer *b)
{
    return b->persistent ? 0 : b->first;
}

static Pc live_to(const Buffer *b, uint32_t n)
{
    return b->persistent || b->result ? n - 1 : b->last;
}

void memory_peak(const Program *p, Arena *arena, MemoryPeak *peak)
{
    const uint32_t n = p->code.n == 0 ? 1 : p->code.n;
    /* [pc]: how much the live bytes grow. Differences may wrap around below 0, but their sums do
     * not. */
    uint64_t *more = arena_array(arena, (size_t)n + 1, sizeof *more), sum = 0, highest = 0;
    *peak = (MemoryPeak){.pc = 0};
    find_in_use(p, arena, peak);
    for (BufferId id = 1; id < p->buffers.n; id++) {
        const Buffer *b = &p->buffers.at[id];
        if (!is_root(p, id)) continue;
        const Pc first = live_from(b), last = live_to(b, n);
        assert(first <= last);
        assert(last < n);
        more[first] += b->bytes;
        more[last + 1] -= b->bytes;
    }
    for (Pc pc = 1; pc < n; pc++) {
        const uint64_t bytes = p->buffers.at[taken_over(p, pc)].bytes;
        more[pc] -= bytes;
        more[pc + 1] += bytes;
    }
    for (Pc pc = 0; pc < n; pc++) {
        sum += more[pc];
        if (sum <= highest) continue;
        highest = sum;
        peak->pc = pc;
    }
    for (BufferId id = 1; id < p->buffers.n; id++) {
        const Buffer *b = &p->buffers.at[id];
        if (is_root(p, id) && live_from(b) <= peak->pc && peak->pc <= live_to(b, n))
            peak->at[b->category] += b->bytes;
    }
    if (peak->pc == 0) return;
    const Buffer *input = &p->buffers.at[taken_over(p, peak->pc)];
    peak->at[input->category] -= input->bytes;
}
