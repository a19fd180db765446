/* Pipeline schedules: for each pipeline rank the list of its actions, in order. An action is F
 * (forward), B (whole backward), I (gradient of the input) or W (gradient of the weights) of one
 * stage for one micro-batch. A stage is a group of layers; a rank may have several (chunks). A
 * stage activation is what F keeps until B or W of the same stage and micro-batch. */
#ifndef TANDEM_PASSES_SCHEDULE_SCHEDULE_H
#define TANDEM_PASSES_SCHEDULE_SCHEDULE_H

#include "planner/front/config.h"

typedef struct Schedule {
    uint32_t n_ranks, n_stages, n_microbatches;
    uint32_t *rank_of;    /* [stage] */
    Actions *of;          /* [rank] */
    bool splits_backward; /* it has I and W in place of B */
    /* When actions end if F, I and W take time 1 and B takes 2. schedule_check computes these. */
    uint32_t *forward_end, *backward_end; /* [stage * n_microbatches + microbatch] */
    uint32_t makespan;
} Schedule;

/* The place in the script that reports name: for a schedule that the script lists (`own`), the line
 * of the rank's list. If `own` is NULL, reports name `loc`. */
typedef struct ScheduleLocs {
    Loc loc;
    const OwnSchedule *own;
} ScheduleLocs;

/* Builds a schedule in which each rank has `chunks` stages. The kinds and their sources:
 *   GPipe        Huang 2019
 *   1F1B         Narayanan 2019
 *   interleaved  Narayanan 2021; n_ranks must divide n_microbatches
 *   ZB-H1        Qi 2023; rank r runs its oldest W when more than r of its W wait
 *   ZB-V         Qi 2024
 *   V-Half       Qi 2024b
 *   DualPipeV    DeepSeek 2025: half of the bidirectional schedule, so that no rank has a second
 *                copy of parameters; n_microbatches >= 2 n_ranks */
void schedule_make(Schedule *s, ScheduleKind kind, uint32_t n_ranks, uint32_t chunks,
                   uint32_t n_microbatches, Arena *arena);
/* schedule_v.c: append the list of one rank. */
void schedule_zb_v(Schedule *s, Arena *arena, uint32_t rank);
void schedule_dualpipe_v(Schedule *s, Arena *arena, uint32_t rank);
/* In a V schedule (schedule_v.c), rank r has two stages, the r-th from the first and the r-th from
 * the last. Builds such a schedule greedily: in each time step, a rank runs some action that is
 * possible, but keeps at most `cap` stage activations. Returns false if all ranks get stuck. */
bool schedule_greedy(Schedule *s, uint32_t n_ranks, uint32_t cap, uint32_t n_microbatches,
                     Arena *arena);
/* schedule_v_half builds a greedy schedule with half as many stage activations as 1F1B.
 * schedule_v_half_cap returns this number. With two ranks, half would be too few, so it is the
 * number of 1F1B. */
void schedule_v_half(Schedule *s, uint32_t n_ranks, uint32_t n_microbatches, Arena *arena);
uint32_t schedule_v_half_cap(uint32_t n_ranks);
/* Returns the smallest `cap` with which schedule_greedy succeeds. */
uint32_t schedule_greedy_least(uint32_t n_ranks, uint32_t n_microbatches, Arena *scratch);
/* Builds a schedule from the lists of a script. Reports "schedule-ranks" if there is not one list
 * for each rank. Reports "schedule-placement" if a stage is on no rank, on several ranks, or on
 * another rank than the script demands, or if a rank has no stage. Returns false after a report. */
bool schedule_own(Schedule *s, const PpOptions *o, uint32_t n_ranks, uint32_t n_microbatches,
                  const ScheduleLocs *locs, Arena *arena, Diag *d);
/* Initialises a schedule with empty lists, and assigns stages to ranks as `kind` does. */
void schedule_start(Schedule *s, ScheduleKind kind, uint32_t n_ranks, uint32_t chunks,
                    uint32_t n_microbatches, Arena *arena);
static inline void schedule_add(Schedule *s, Arena *arena, uint32_t rank, ActionKind kind,
                                uint32_t stage, uint32_t microbatch)
{
    Action a = {kind, stage, microbatch};
    list_push(arena, &s->of[rank], a);
}

/* Simulates the schedule and sets the end times. Checks that F and the backward of every stage and
 * micro-batch run exactly once, on the stage's rank, and that no rank waits for ever. Reports
 * "schedule-incomplete", or "schedule-stuck" with the ranks that wait for each other and their
 * actions. */
bool schedule_check(Schedule *s, const ScheduleLocs *locs, Arena *arena, Diag *d);
/* Returns the most stage activations that `rank` keeps at once. */
uint32_t schedule_peak(const Schedule *s, uint32_t rank);
/* Returns the largest schedule_peak, and sets *rank to the rank that has it. */
uint32_t schedule_most(const Schedule *s, uint32_t *rank);
/* True if the schedule still ends if no rank may keep more than `cap` stage activations. */
bool schedule_runs_under(const Schedule *s, uint32_t cap, Arena *scratch);
const char *action_name(ActionKind kind); /* returns "F", "B", "I" or "W" */

#endif
