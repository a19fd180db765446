/* The schedules, and a player that proves that one ends. */
#include "planner/passes/schedule.h"

#include <assert.h>

static void add(Schedule *s, Arena *arena, uint32_t rank, ActionKind kind, uint32_t stage,
                uint32_t microbatch)
{
    Action a = {kind, stage, microbatch};
    list_push(arena, &s->of[rank], a);
}

static void gpipe(Schedule *s, Arena *arena, uint32_t rank)
{
    for (uint32_t i = 0; i < s->n_microbatches; i++) add(s, arena, rank, ACTION_F, rank, i);
    for (uint32_t i = 0; i < s->n_microbatches; i++) add(s, arena, rank, ACTION_B, rank, i);
}

static void one_f_one_b(Schedule *s, Arena *arena, uint32_t rank)
{
    uint32_t m = s->n_microbatches, ahead = s->n_ranks - 1 - rank, warm = m < ahead ? m : ahead;
    for (uint32_t i = 0; i < warm; i++) add(s, arena, rank, ACTION_F, rank, i);
    for (uint32_t i = 0; i < m; i++) {
        if (warm + i < m) add(s, arena, rank, ACTION_F, rank, warm + i);
        add(s, arena, rank, ACTION_B, rank, i);
    }
}

/* The k-th chunk-forward (or backward) of a rank: groups of n_ranks micro-batches go through all
 * chunks. */
static void add_chunk(Schedule *s, Arena *arena, uint32_t rank, uint32_t chunks, uint32_t k,
                      bool backward)
{
    uint32_t p = s->n_ranks, group = k / (p * chunks), within = k % (p * chunks),
             chunk = within / p;
    if (backward) chunk = chunks - 1 - chunk;
    add(s, arena, rank, backward ? ACTION_B : ACTION_F, chunk * p + rank, group * p + within % p);
}

static void interleaved(Schedule *s, Arena *arena, uint32_t rank, uint32_t chunks)
{
    uint32_t p = s->n_ranks, n = s->n_microbatches * chunks,
             warm = 2 * (p - rank - 1) + (chunks - 1) * p;
    if (warm > n) warm = n;
    for (uint32_t k = 0; k < warm; k++) add_chunk(s, arena, rank, chunks, k, false);
    for (uint32_t k = 0; k < n; k++) {
        if (warm + k < n) add_chunk(s, arena, rank, chunks, warm + k, false);
        add_chunk(s, arena, rank, chunks, k, true);
    }
}

static void zb_h1(Schedule *s, Arena *arena, uint32_t rank)
{
    uint32_t m = s->n_microbatches, ahead = s->n_ranks - 1 - rank, warm = m < ahead ? m : ahead,
             w = 0;
    for (uint32_t i = 0; i < warm; i++) add(s, arena, rank, ACTION_F, rank, i);
    for (uint32_t i = 0; i < m; i++) {
        if (warm + i < m) add(s, arena, rank, ACTION_F, rank, warm + i);
        add(s, arena, rank, ACTION_I, rank, i);
        if (i + 1 - w > rank) add(s, arena, rank, ACTION_W, rank, w++);
    }
    while (w < m) add(s, arena, rank, ACTION_W, rank, w++);
}

void schedule_make(Schedule *s, ScheduleKind kind, uint32_t n_ranks, uint32_t chunks,
                   uint32_t n_microbatches, Arena *arena)
{
    *s = (Schedule){
        .n_ranks = n_ranks, .n_stages = n_ranks * chunks, .n_microbatches = n_microbatches};
    s->splits_backward = kind == SCHEDULE_zb_h1;
    s->rank_of = arena_array(arena, s->n_stages, sizeof *s->rank_of);
    s->of = arena_array(arena, n_ranks, sizeof *s->of);
    for (uint32_t stage = 0; stage < s->n_stages; stage++) s->rank_of[stage] = stage % n_ranks;
    for (uint32_t r = 0; r < n_ranks; r++) {
        switch (kind) {
        case SCHEDULE_gpipe: gpipe(s, arena, r); break;
        case SCHEDULE_1f1b: one_f_one_b(s, arena, r); break;
        case SCHEDULE_interleaved_1f1b: interleaved(s, arena, r, chunks); break;
        case SCHEDULE_zb_h1: zb_h1(s, arena, r); break;
        case SCHEDULE_COUNT: assert(!"a schedule");
        }
    }
}

/* ---- the player ---- */

enum { DONE_F = 1, DONE_I = 2, DONE_W = 4 };

static bool can_start(const Schedule *s, const uint8_t *done, const Action *a)
{
    uint32_t m = s->n_microbatches, at = a->stage * m + a->microbatch;
    switch (a->kind) {
    case ACTION_F: return a->stage == 0 || (done[at - m] & DONE_F);
    case ACTION_B:
    case ACTION_I:
        return (done[at] & DONE_F) && (a->stage + 1 == s->n_stages || (done[at + m] & DONE_I));
    case ACTION_W: return done[at] & DONE_I;
    }
    return false;
}

static uint8_t effect(ActionKind kind)
{
    return kind == ACTION_F   ? DONE_F
           : kind == ACTION_I ? DONE_I
           : kind == ACTION_W ? DONE_W
                              : DONE_I | DONE_W;
}

static bool report(Diag *d, Loc loc, const char *rule, uint32_t rank, const Action *a,
                   const char *what)
{
    static const char *const names[] = {"F", "B", "I", "W"};
    return diag_error(d, FAULT_input, rule, loc,
                      "pipeline rank %u: %s of stage %u, micro-batch %u %s", rank, names[a->kind],
                      a->stage, a->microbatch, what);
}

static bool is_fresh(const Schedule *s, const uint8_t *done, const Action *a, uint32_t rank)
{
    if (a->stage >= s->n_stages || a->microbatch >= s->n_microbatches ||
        s->rank_of[a->stage] != rank)
        return false;
    return !(done[a->stage * s->n_microbatches + a->microbatch] & effect(a->kind));
}

bool schedule_check(const Schedule *s, Loc loc, Arena *scratch, Diag *d)
{
    uint8_t *done = arena_array(scratch, (size_t)s->n_stages * s->n_microbatches, 1);
    uint32_t *at = arena_array(scratch, s->n_ranks, sizeof *at);
    bool moved = true;
    while (moved) {
        moved = false;
        for (uint32_t r = 0; r < s->n_ranks; r++)
            while (at[r] < s->of[r].n) {
                const Action *a = &s->of[r].at[at[r]];
                if (!is_fresh(s, done, a, r))
                    return report(d, loc, "schedule-incomplete", r, a,
                                  "is not this rank's, or done twice");
                if (!can_start(s, done, a)) break;
                done[a->stage * s->n_microbatches + a->microbatch] |= effect(a->kind);
                at[r]++;
                moved = true;
            }
    }
    for (uint32_t r = 0; r < s->n_ranks; r++)
        if (at[r] < s->of[r].n)
            return report(d, loc, "schedule-stuck", r, &s->of[r].at[at[r]], "waits for ever");
    for (uint32_t i = 0; i < s->n_stages * s->n_microbatches; i++) {
        Action a = {done[i] & DONE_F ? ACTION_B : ACTION_F, i / s->n_microbatches,
                    i % s->n_microbatches};
        if (done[i] != (DONE_F | DONE_I | DONE_W))
            return report(d, loc, "schedule-incomplete", s->rank_of[a.stage], &a, "never runs");
    }
    return true;
}
