/* Draws a schedule by running it: in each step, a random rank executes an action that is
 * possible. */
#include "tests/support/plans/schedules.h"

#include "planner/base/rng.h"

enum { F = 1, I = 2, W = 4 };

typedef struct Run {
    uint64_t seed, n_drawn;
    uint32_t n_stages, n_microbatches;
    uint32_t *rank_of; /* [stage] */
    uint8_t *done;     /* [stage * n_microbatches + microbatch] */
} Run;

static uint32_t draw(Run *r, uint32_t n)
{
    return (uint32_t)rng_below(r->seed, 77, r->n_drawn++, n);
}

static void place(Run *r, uint32_t chunks)
{
    for (uint32_t s = 0; s < r->n_stages; s++) r->rank_of[s] = s / chunks;
    for (uint32_t s = r->n_stages; s-- > 1;) {
        uint32_t other = draw(r, s + 1), rank = r->rank_of[s];
        r->rank_of[s] = r->rank_of[other];
        r->rank_of[other] = rank;
    }
}

/* Returns an action that is possible for a micro-batch on a stage. ACTION_COUNT: there is none. */
static ActionKind possible(Run *r, uint32_t stage, uint32_t mb)
{
    uint32_t m = r->n_microbatches;
    const uint8_t *own = &r->done[stage * m + mb];
    if (!(*own & F)) return stage == 0 || (own[-(int)m] & F) ? ACTION_F : ACTION_COUNT;
    if (!(*own & I)) {
        bool ready = stage + 1 == r->n_stages || (own[m] & I);
        return !ready ? ACTION_COUNT : draw(r, 2) ? ACTION_B : ACTION_I;
    }
    return *own & W ? ACTION_COUNT : ACTION_W;
}

OwnSchedule schedule_random(uint64_t seed, uint32_t n_ranks, uint32_t chunks,
                            uint32_t n_microbatches, Arena *arena)
{
    static const uint8_t effect[ACTION_COUNT] = {F, I | W, I, W};
    uint32_t n_stages = n_ranks * chunks, n = n_stages * n_microbatches, left = n * (F + I + W);
    Run r = {.seed = seed, .n_stages = n_stages, .n_microbatches = n_microbatches};
    OwnSchedule own = {0};
    r.rank_of = arena_array(arena, n_stages, sizeof *r.rank_of);
    r.done = arena_array(arena, n, 1);
    place(&r, chunks);
    for (uint32_t k = 0; k < n_ranks; k++) list_add(arena, &own);
    for (uint32_t k = 0; k < n_ranks; k++) own.at[k] = (OwnRank){.loc = {"own.csv", k + 1}};
    while (left > 0) {
        uint32_t at = draw(&r, n);
        Action a = {possible(&r, at / n_microbatches, at % n_microbatches), at / n_microbatches,
                    at % n_microbatches};
        if (a.kind == ACTION_COUNT) continue;
        r.done[at] |= effect[a.kind];
        left -= effect[a.kind];
        list_push(arena, &own.at[r.rank_of[a.stage]].actions, a);
    }
    return own;
}
