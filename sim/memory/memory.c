/* Live bytes of device memory at each instruction of a program, for each category of buffers. */
#include <assert.h>

#include "planner/lower/memory/gaps.h"
#include "planner/lower/memory/lives.h"
#include "sim/sim.h"

static bool is_root(const Program *p, BufferId id)
{
    const Buffer *b = &p->buffers.at[id];
    return id != 0 && b->parent == 0 && b->space == SPACE_device && b->bytes > 0;
}

/* Returns the root buffer of an input whose memory output `out` of instruction pc takes over: the
 * input ends with pc, and the output begins at its offset. During pc, the two count as one buffer.
 * Returns 0 if there is none. */
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
static void find_in_use(const Program *p, Arena *arena, MemoryCurve *curve)
{
    Lives lives;
    uint64_t bottom = 0, alive;
    curve->in_use = p->in_use;
    curve->waiting = p->in_use - p->alive;
    if (p->in_use > 0) return;
    for (BufferId id = 1; id < p->buffers.n; id++)
        if (is_root(p, id) && p->buffers.at[id].persistent)
            bottom += gaps_round(p->buffers.at[id].bytes);
    curve->in_use = bottom;
    curve->waiting = 0;
    if (p->code.n == 0) return;
    lives_read(&lives, p, arena);
    lives_of_space(&lives, SPACE_device);
    uint64_t *at = arena_array(arena, p->code.n, sizeof *at);
    curve->in_use = lives_in_use(&lives, bottom, at, &alive);
    curve->waiting = curve->in_use - alive;
}

void memory_curve(const Plan *plan, const Program *p, Arena *arena, MemoryCurve *curve)
{
    (void)plan;
    uint32_t n = p->code.n == 0 ? 1 : p->code.n;
    /* differences may wrap around below 0, but their sums do not */
    curve->at = arena_array(arena, (size_t)n + 1, sizeof *curve->at);
    curve->n = n;
    curve->peak = 0;
    find_in_use(p, arena, curve);
    for (BufferId id = 1; id < p->buffers.n; id++) {
        const Buffer *b = &p->buffers.at[id];
        if (!is_root(p, id)) continue;
        Pc first = b->persistent ? 0 : b->first;
        Pc last = b->persistent || b->result ? n - 1 : b->last;
        assert(first <= last);
        assert(last < n);
        curve->at[first][b->category] += b->bytes;
        curve->at[last + 1][b->category] -= b->bytes;
    }
    for (Pc pc = 1; pc < n; pc++) {
        BufferId input = taken_over(p, pc);
        if (input == 0) continue;
        const Buffer *b = &p->buffers.at[input];
        curve->at[pc][b->category] -= b->bytes;
        curve->at[pc + 1][b->category] += b->bytes;
    }
    uint64_t highest = 0;
    for (Pc pc = 0; pc < n; pc++) {
        uint64_t sum = 0;
        for (uint32_t c = 0; c < CATEGORY_COUNT; c++) {
            if (pc > 0) curve->at[pc][c] += curve->at[pc - 1][c];
            sum += curve->at[pc][c];
        }
        if (sum <= highest) continue;
        highest = sum;
        curve->peak = pc;
    }
}
