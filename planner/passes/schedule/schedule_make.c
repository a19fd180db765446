/* Builds the schedule of a given kind. This file has those whose stages go round in one direction:
 * rank r of p has the stages r, r + p, r + 2p, ... schedule_v.c has the V schedules. */
#include "planner/passes/schedule/schedule.h"

#include <assert.h>

static void gpipe(Schedule *s, Arena *arena, uint32_t rank)
{
    for (uint32_t i = 0; i < s->n_microbatches; i++)
        schedule_add(s, arena, rank, ACTION_F, rank, i);
    for (uint32_t i = 0; i < s->n_microbatches; i++)
        schedule_add(s, arena, rank, ACTION_B, rank, i);
}

static void one_f_one_b(Schedule *s, Arena *arena, uint32_t rank)
{
    uint32_t m = s->n_microbatches, ahead = s->n_ranks - 1 - rank, warm = m < ahead ? m : ahead;
    for (uint32_t i = 0; i < warm; i++) schedule_add(s, arena, rank, ACTION_F, rank, i);
    for (uint32_t i = 0; i < m; i++) {
        if (warm + i < m) schedule_add(s, arena, rank, ACTION_F, rank, warm + i);
        schedule_add(s, arena, rank, ACTION_B, rank, i);
    }
}

/* Appends the k-th forward (or backward) action of a rank in an interleaved schedule: n_ranks
 * micro-batches pass through all of the rank's stages before the next n_ranks begin. */
static void add_chunk(Schedule *s, Arena *arena, uint32_t rank, uint32_t chunks, uint32_t k,
                      bool backward)
{
    uint32_t p = s->n_ranks, group = k / (p * chunks), within = k % (p * chunks),
             chunk = within / p;
    if (backward) chunk = chunks - 1 - chunk;
    schedule_add(s, arena, rank, backward ? ACTION_B : ACTION_F, chunk * p + rank,
                 group * p + within % p);
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
    for (uint32_t i = 0; i < warm; i++) schedule_add(s, arena, rank, ACTION_F, rank, i);
    for (uint32_t i = 0; i < m; i++) {
        if (warm + i < m) schedule_add(s, arena, rank, ACTION_F, rank, warm + i);
        schedule_add(s, arena, rank, ACTION_I, rank, i);
        if (i + 1 - w > rank) schedule_add(s, arena, rank, ACTION_W, rank, w++);
    }
    while (w < m) schedule_add(s, arena, rank, ACTION_W, rank, w++);
}

void schedule_make(Schedule *s, ScheduleKind kind, uint32_t n_ranks, uint32_t chunks,
                   uint32_t n_microbatches, Arena *arena)
{
    if (kind == SCHEDULE_greedy_v) {
        bool ends = schedule_greedy(s, n_ranks, 2 * n_ranks, n_microbatches, arena);
        assert(ends);
        (void)ends;
        return;
    }
    if (kind == SCHEDULE_v_half) {
        schedule_v_half(s, n_ranks, n_microbatches, arena);
        return;
    }
    schedule_start(s, kind, n_ranks, chunks, n_microbatches, arena);
    s->splits_backward =
        kind == SCHEDULE_zb_h1 || kind == SCHEDULE_zb_v || kind == SCHEDULE_dualpipe_v;
    for (uint32_t r = 0; r < n_ranks; r++) {
        switch (kind) {
        case SCHEDULE_gpipe: gpipe(s, arena, r); break;
        case SCHEDULE_1f1b: one_f_one_b(s, arena, r); break;
        case SCHEDULE_interleaved_1f1b: interleaved(s, arena, r, chunks); break;
        case SCHEDULE_zb_h1: zb_h1(s, arena, r); break;
        case SCHEDULE_zb_v: schedule_zb_v(s, arena, r); break;
        case SCHEDULE_dualpipe_v: schedule_dualpipe_v(s, arena, r); break;
        case SCHEDULE_v_half:
        case SCHEDULE_greedy_v:
        case SCHEDULE_COUNT: assert(0 && "a schedule");
        }
    }
}
