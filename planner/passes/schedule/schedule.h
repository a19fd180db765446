/* Pipeline schedules: for each pipeline rank, which stage does what for which micro-batch, in
 * order. */
#ifndef TANDEM_PASSES_SCHEDULE_SCHEDULE_H
#define TANDEM_PASSES_SCHEDULE_SCHEDULE_H

#include "planner/front/config.h"

typedef struct Schedule {
    uint32_t n_ranks, n_stages, n_microbatches;
    uint32_t *rank_of;    /* [stage] */
    Actions *of;          /* [rank] */
    bool splits_backward; /* has I and W */
    /* When played with F = I = W = 1 and B = 2, set by schedule_check: */
    uint32_t *forward_end, *backward_end; /* [stage * n_microbatches + microbatch] */
    uint32_t makespan;
} Schedule;

/* Each rank's place in the script, for reports; NULL: `loc` for all. */
typedef struct ScheduleLocs {
    Loc loc;
    const OwnSchedule *own;
} ScheduleLocs;

/* `chunks` stages a rank. Sources: GPipe (Huang 2019), 1F1B (Narayanan 2019), interleaved
 * (Narayanan 2021; n_microbatches % n_ranks == 0), ZB-H1 (Qi 2023: the oldest weight gradient runs
 * as soon as more than `rank` of them wait), ZB-V (Qi 2024), DualPipeV (DeepSeek 2025: the
 * bidirectional schedule cut in half, so that no rank holds a second copy of the parameters;
 * n_microbatches >= 2 n_ranks), V-Half's memory (Qi 2024b). */
void schedule_make(Schedule *s, ScheduleKind kind, uint32_t n_ranks, uint32_t chunks,
                   uint32_t n_microbatches, Arena *arena);
/* schedule_v.c: one rank's list. */
void schedule_zb_v(Schedule *s, Arena *arena, uint32_t rank);
void schedule_dualpipe_v(Schedule *s, Arena *arena, uint32_t rank);
/* greedy_v: each rank does what it can, with `cap` activations of stages in flight at most. False:
 * it stands still. */
bool schedule_greedy(Schedule *s, uint32_t n_ranks, uint32_t cap, uint32_t n_microbatches,
                     Arena *arena);
/* The greedy rule with half of 1F1B's activations: n_ranks halves of a stage, one more where that
 * is odd; on two ranks, where that would starve it, with all. */
void schedule_v_half(Schedule *s, uint32_t n_ranks, uint32_t n_microbatches, Arena *arena);
uint32_t schedule_v_half_cap(uint32_t n_ranks);
/* The smallest cap with which schedule_greedy ends. */
uint32_t schedule_greedy_least(uint32_t n_ranks, uint32_t n_microbatches, Arena *scratch);
/* The script's own lists: for every rank one, each stage on one rank, placed as the script demands.
 * Reports "schedule-ranks", "schedule-placement". */
bool schedule_own(Schedule *s, const PpOptions *o, uint32_t n_ranks, uint32_t n_microbatches,
                  const ScheduleLocs *locs, Arena *arena, Diag *d);
/* A schedule's own, empty lists; placed as `kind` places stages. */
void schedule_start(Schedule *s, ScheduleKind kind, uint32_t n_ranks, uint32_t chunks,
                    uint32_t n_microbatches, Arena *arena);
static inline void schedule_add(Schedule *s, Arena *arena, uint32_t rank, ActionKind kind,
                                uint32_t stage, uint32_t microbatch)
{
    Action a = {kind, stage, microbatch};
    list_push(arena, &s->of[rank], a);
}

/* Plays it: every F and every backward exactly once, on the rank that holds the stage, and no rank
 * waits for ever. Reports "schedule-incomplete" or "schedule-stuck" with the circle of ranks and
 * what each waits for. Sets the ends. */
bool schedule_check(Schedule *s, const ScheduleLocs *locs, Arena *arena, Diag *d);
/* Most activations of stages in flight on a rank: forwards whose backward (or weight gradient,
 * where it is apart) has not come. */
uint32_t schedule_peak(const Schedule *s, uint32_t rank);
uint32_t schedule_most(const Schedule *s, uint32_t *rank); /* of all ranks, and where */
/* Plays it with at most `cap` activations of stages in flight on each rank. */
bool schedule_runs_under(const Schedule *s, uint32_t cap, Arena *scratch);
const char *action_name(ActionKind kind);

#endif
