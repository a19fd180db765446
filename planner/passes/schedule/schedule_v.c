/* V schedules: each of p ranks has two stages. Rank r has stage r (chunk 0, the way down the V) and
 * stage 2p - 1 - r (chunk 1, the way up). So rank 0 has the first and the last stage. F, B, I and W
 * are the kinds of actions (schedule.h). */
#include <assert.h>

#include "planner/passes/schedule/schedule.h"

/* Appends actions to the list of one rank. */
typedef struct RankWriter {
    Schedule *s;
    Arena *arena;
    uint32_t rank, stage[2];
    /* [chunk]: how many F, and how many B or I, have been appended */
    uint32_t n_forward[2], n_backward[2];
    Actions waiting; /* the W of all I; the first n_taken of them have been appended */
    uint32_t n_taken;
    uint32_t limit; /* drops the actions of micro-batches `limit` and later */
} RankWriter;

static RankWriter writer(Schedule *s, Arena *arena, uint32_t rank)
{
    RankWriter w = {.s = s, .arena = arena, .rank = rank, .limit = s->n_microbatches};
    w.stage[0] = rank;
    w.stage[1] = 2 * s->n_ranks - 1 - rank;
    return w;
}

static void put(RankWriter *w, ActionKind kind, uint32_t stage, uint32_t microbatch)
{
    if (microbatch < w->limit) schedule_add(w->s, w->arena, w->rank, kind, stage, microbatch);
}

static void forward(RankWriter *w, int chunk)
{
    put(w, ACTION_F, w->stage[chunk], w->n_forward[chunk]++);
}

static void backward(RankWriter *w, int chunk)
{
    put(w, ACTION_B, w->stage[chunk], w->n_backward[chunk]++);
}

/* Appends the next I of a chunk. Its W waits until `weight` is called. */
static void input(RankWriter *w, int chunk)
{
    Action a = {ACTION_W, w->stage[chunk], w->n_backward[chunk]++};
    put(w, ACTION_I, a.stage, a.microbatch);
    list_push(w->arena, &w->waiting, a);
}

/* Appends the oldest W that waits. */
static void weight(RankWriter *w)
{
    assert(w->n_taken < w->waiting.n);
    Action a = w->waiting.at[w->n_taken++];
    put(w, ACTION_W, a.stage, a.microbatch);
}

/* Appends the W of a chunk for micro-batches *done to up_to - 1, and advances *done. */
static void weights_of(RankWriter *w, int chunk, uint32_t *done, uint32_t up_to)
{
    while (*done < up_to) put(w, ACTION_W, w->stage[chunk], (*done)++);
}

static void input_and_weight(RankWriter *w, int chunk, uint32_t *done)
{
    put(w, ACTION_I, w->stage[chunk], w->n_backward[chunk]++);
    weights_of(w, chunk, done, w->n_backward[chunk]);
}

/* ZB-V needs at least 2p - 1 micro-batches. With fewer, the list is written for 2p - 1, and the
 * actions of surplus micro-batches are dropped, which cannot make a rank wait for ever. */
void schedule_zb_v(Schedule *s, Arena *arena, uint32_t rank)
{
    RankWriter w = writer(s, arena, rank);
    uint32_t p = s->n_ranks, fill = 2 * p - 1, weights[2] = {0, 0};
    uint32_t m = s->n_microbatches > fill ? s->n_microbatches : fill;
    for (uint32_t i = 0; i + 1 < 2 * (p - rank); i++) forward(&w, 0);
    for (uint32_t i = 0; i < rank; i++) {
        forward(&w, 1);
        forward(&w, 0);
    }
    for (uint32_t i = rank; i < p; i++) {
        forward(&w, 1);
        input_and_weight(&w, 1, &weights[1]);
    }
    while (w.n_forward[1] < w.n_forward[0] || w.n_forward[0] < m) {
        if (w.n_forward[0] < m) forward(&w, 0);
        input_and_weight(&w, 0, &weights[0]);
        forward(&w, 1);
        input_and_weight(&w, 1, &weights[1]);
    }
    for (uint32_t i = 0; i < rank; i++)
        for (int chunk = 0; chunk < 2; chunk++)
            put(&w, ACTION_I, w.stage[chunk], w.n_backward[chunk]++);
    for (uint32_t i = rank; i < p; i++) {
        put(&w, ACTION_I, w.stage[0], w.n_backward[0]++);
        put(&w, ACTION_W, w.stage[0], weights[0]++);
    }
    weights_of(&w, 1, &weights[1], w.n_backward[1]);
    weights_of(&w, 0, &weights[0], w.n_backward[0]);
    assert(w.n_backward[0] == m);
    assert(w.n_backward[1] == m);
}

/* Appends the eight phases of DeepSeek's DualPipeV. Where it overlaps a forward and a backward
 * action, this list has one after the other. */
void schedule_dualpipe_v(Schedule *s, Arena *arena, uint32_t rank)
{
    RankWriter w = writer(s, arena, rank);
    uint32_t p = s->n_ranks, m = s->n_microbatches, behind = p - 1 - rank;
    assert(m >= 2 * p);
    for (uint32_t i = 0; i < 2 * behind; i++) forward(&w, 0);
    for (uint32_t i = 0; i <= rank; i++) {
        forward(&w, 0);
        forward(&w, 1);
    }
    for (uint32_t i = 0; i < behind; i++) {
        input(&w, 1);
        weight(&w);
        forward(&w, 1);
    }
    for (uint32_t i = 0; i < m - 2 * p + rank + 1; i++) {
        forward(&w, 0);
        backward(&w, 1);
        forward(&w, 1);
        backward(&w, 0);
    }
    for (uint32_t i = 0; i < behind; i++) {
        backward(&w, 1);
        forward(&w, 1);
        backward(&w, 0);
    }
    /* the second half of these 2 (rank + 1) backward actions postpones W */
    for (uint32_t i = 0; i < 2 * (rank + 1); i++) (i > rank ? input : backward)(&w, (i + 1) % 2);
    for (uint32_t i = 0; i < behind; i++) {
        weight(&w);
        input(&w, 0);
    }
    while (w.n_taken < w.waiting.n) weight(&w);
    assert(w.n_forward[0] == m && w.n_forward[1] == m);
    assert(w.n_backward[0] == m && w.n_backward[1] == m);
}

/* ---- the greedy schedule ---- */

typedef struct Greedy {
    Schedule *s;
    Arena *arena;
    RankWriter *ranks;
    uint32_t *alive; /* [rank]: how many stage activations it keeps */
    /* [stage * n_microbatches + microbatch]: 1 + the time step of its F; 0: not yet */
    uint32_t *forward_at;
    uint32_t *backward_at;
    uint32_t now, cap;
    /* [rank]: how many stage activations of chunk 0 it keeps, and may keep; room_down = NULL: no
     * limit */
    uint32_t *alive_down, *room_down;
} Greedy;

static bool is_done(const Greedy *g, const uint32_t *at, uint32_t stage, uint32_t microbatch)
{
    uint32_t when = at[stage * g->s->n_microbatches + microbatch];
    return when && when <= g->now;
}

/* Runs an F if one is possible, and returns true. Prefers chunk 1: its micro-batch is nearer to its
 * backward, which frees activations. */
static bool try_forward(Greedy *g, uint32_t rank)
{
    RankWriter *w = &g->ranks[rank];
    if (g->alive[rank] >= g->cap) return false;
    for (int chunk = 1; chunk >= 0; chunk--) {
        uint32_t stage = w->stage[chunk], mb = w->n_forward[chunk];
        if (mb == w->limit || (stage && !is_done(g, g->forward_at, stage - 1, mb))) continue;
        if (chunk == 0 && g->room_down && g->alive_down[rank] >= g->room_down[rank]) continue;
        g->alive_down[rank] += chunk == 0;
        forward(w, chunk);
        g->forward_at[stage * w->limit + mb] = g->now + 1;
        g->alive[rank]++;
        return true;
    }
    return false;
}

static bool try_input(Greedy *g, uint32_t rank)
{
    RankWriter *w = &g->ranks[rank];
    for (int chunk = 0; chunk < 2; chunk++) {
        uint32_t stage = w->stage[chunk], mb = w->n_backward[chunk];
        bool last = stage + 1 == g->s->n_stages;
        if (mb == w->limit || !is_done(g, g->forward_at, stage, mb)) continue;
        if (!last && !is_done(g, g->backward_at, stage + 1, mb)) continue;
        input(w, chunk);
        g->backward_at[stage * w->limit + mb] = g->now + 1;
        return true;
    }
    return false;
}

static bool try_weight(Greedy *g, uint32_t rank)
{
    RankWriter *w = &g->ranks[rank];
    if (w->n_taken == w->waiting.n) return false;
    g->alive_down[rank] -= w->waiting.at[w->n_taken].stage == w->stage[0];
    weight(w);
    g->alive[rank]--;
    return true;
}

/* Builds the lists of all ranks, one action for each rank and time step. A rank prefers F, then I,
 * then W, which fills gaps and frees an activation. Sets *took to the number of time steps. Returns
 * false if no rank can proceed. */
static bool run_greedy(Schedule *s, uint32_t n_ranks, uint32_t cap, uint32_t *room_down,
                       uint32_t n_microbatches, Arena *arena, uint32_t *took)
{
    schedule_start(s, SCHEDULE_greedy_v, n_ranks, 2, n_microbatches, arena);
    s->splits_backward = true;
    uint32_t cells = s->n_stages * n_microbatches, left = 3 * cells;
    Greedy g = {.s = s, .arena = arena, .cap = cap, .room_down = room_down};
    g.alive_down = arena_array(arena, n_ranks, sizeof *g.alive_down);
    g.ranks = arena_array(arena, n_ranks, sizeof *g.ranks);
    g.alive = arena_array(arena, n_ranks, sizeof *g.alive);
    g.forward_at = arena_array(arena, cells, sizeof *g.forward_at);
    g.backward_at = arena_array(arena, cells, sizeof *g.backward_at);
    for (uint32_t r = 0; r < n_ranks; r++) g.ranks[r] = writer(s, arena, r);
    for (; left > 0; g.now++) {
        uint32_t before = left;
        for (uint32_t r = 0; r < n_ranks; r++)
            left -= try_forward(&g, r) || try_input(&g, r) || try_weight(&g, r);
        if (left == before) return false;
    }
    *took = g.now;
    return true;
}

bool schedule_greedy(Schedule *s, uint32_t n_ranks, uint32_t cap, uint32_t n_microbatches,
                     Arena *arena)
{
    uint32_t took;
    return run_greedy(s, n_ranks, cap, NULL, n_microbatches, arena, &took);
}

enum { QUARTER = 4, MOST_LESS = 3 * QUARTER + 2, MOST_SLOPE = 3 };

/* Sets room[r], how many activations of chunk 0 rank r may keep: cap - (less + slope * r) / 4,
 * rounded, and between 1 and cap - 1. */
static void make_room(uint32_t *room, uint32_t n_ranks, uint32_t cap, uint32_t less, uint32_t slope)
{
    for (uint32_t r = 0; r < n_ranks; r++) {
        uint32_t off = less + slope * r, all = cap * QUARTER;
        room[r] = off + QUARTER < all ? (all - off + QUARTER / 2) / QUARTER : 1;
        if (room[r] + 1 > cap) room[r] = cap - 1;
    }
}

/* With half of 1F1B's activations, the greedy rule alone gets stuck: F of chunk 0 fills all ranks,
 * and no room is left for F of chunk 1. So chunk 0 gets less room than the cap. Later ranks get
 * still less, because they keep their activations of chunk 1 longer. A few reductions are tried,
 * and the one with the shortest schedule is used. */
void schedule_v_half(Schedule *s, uint32_t n_ranks, uint32_t n_microbatches, Arena *arena)
{
    uint32_t cap = schedule_v_half_cap(n_ranks), shortest = UINT32_MAX, took = 0;
    uint32_t *room = arena_array(arena, n_ranks, sizeof *room), best[2] = {0, 0};
    Arena *scratch = arena_new();
    for (uint32_t less = QUARTER; less <= MOST_LESS; less++)
        for (uint32_t slope = 0; slope <= MOST_SLOPE; slope++) {
            make_room(room, n_ranks, cap, less, slope);
            bool ends = run_greedy(s, n_ranks, cap, room, n_microbatches, scratch, &took);
            arena_reset(scratch);
            if (!ends || took >= shortest) continue;
            shortest = took;
            best[0] = less, best[1] = slope;
        }
    arena_free(scratch);
    assert(shortest < UINT32_MAX);
    make_room(room, n_ranks, cap, best[0], best[1]);
    run_greedy(s, n_ranks, cap, room, n_microbatches, arena, &took);
    assert(took == shortest);
}

uint32_t schedule_v_half_cap(uint32_t n_ranks)
{
    return n_ranks == 2 ? 4 : n_ranks + n_ranks % 2;
}

uint32_t schedule_greedy_least(uint32_t n_ranks, uint32_t n_microbatches, Arena *scratch)
{
    uint32_t cap = 1;
    Schedule s;
    while (!schedule_greedy(&s, n_ranks, cap, n_microbatches, scratch)) cap++;
    return cap;
}
