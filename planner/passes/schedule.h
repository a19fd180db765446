/* Pipeline schedules: for each pipeline rank, which stage does what for which micro-batch, in
 * order. F: forward. B: the whole backward. I: the backward's input gradients only, W: its weight
 * gradients. */
#ifndef TANDEM_PASSES_SCHEDULE_H
#define TANDEM_PASSES_SCHEDULE_H

#include "planner/front/config.h"

typedef enum ActionKind { ACTION_F, ACTION_B, ACTION_I, ACTION_W } ActionKind;
typedef struct Action {
    ActionKind kind;
    uint32_t stage, microbatch;
} Action;
typedef LIST(Action) Actions;

typedef struct Schedule {
    uint32_t n_ranks, n_stages, n_microbatches;
    uint32_t *rank_of;    /* [stage] */
    Actions *of;          /* [rank] */
    bool splits_backward; /* has I and W */
} Schedule;

/* `chunks` stages a rank (interleaved; 1 for the others). Sources: GPipe (Huang 2019), 1F1B
 * (Narayanan 2019), interleaved (Narayanan 2021; n_microbatches % n_ranks == 0), ZB-H1 (Qi 2023:
 * the oldest weight gradient runs as soon as more than `rank` of them wait). */
void schedule_make(Schedule *s, ScheduleKind kind, uint32_t n_ranks, uint32_t chunks,
                   uint32_t n_microbatches, Arena *arena);
/* Plays it: every F and every backward exactly once, and no rank waits for ever. Reports
 * "schedule-incomplete" or "schedule-stuck" with the rank and the action it cannot start. */
bool schedule_check(const Schedule *s, Loc loc, Arena *scratch, Diag *d);

#endif
