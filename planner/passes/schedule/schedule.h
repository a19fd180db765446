/* Pipeline schedules: the ordered actions of each pipeline rank, each with stage and
 * micro-batch. */
#ifndef TANDEM_PASSES_SCHEDULE_SCHEDULE_H
#define TANDEM_PASSES_SCHEDULE_SCHEDULE_H

#include "planner/front/config.h"

typedef struct Schedule {
    uint32_t n_ranks, n_stages, n_microbatches;
    uint32_t *rank_of;    /* [stage] */
    Actions *of;          /* [rank] */
    bool splits_backward; /* the schedule computes input gradients (I) and weight gradients (W) as
                             separate actions */
    /* The times at which actions end if F, I and W take time 1 and B takes 2; schedule_check sets
     * them. */
    uint32_t *forward_end, *backward_end; /* [stage * n_microbatches + microbatch] */
    uint32_t makespan;
} Schedule;

/* The lines of the script that define the ranks' lists, for reports. If `own` is NULL, all reports
 * name `loc`. */
typedef struct ScheduleLocs {
    Loc loc;
    const OwnSchedule *own;
} ScheduleLocs;

/* `chunks` is the number of stages of a rank. Sources: GPipe (Huang 2019), 1F1B (Narayanan 2019),
 * interleaved (Narayanan 2021; n_microbatches % n_ranks == 0), ZB-H1 (Qi 2023: the oldest weight
 * gradient runs as soon as more than `rank` of them wait), ZB-V (Qi 2024), DualPipeV (DeepSeek
 * 2025: half of the bidirectional schedule, so that no rank holds a second copy of the parameters;
 * n_microbatches >= 2 n_ranks), V-Half's memory (Qi 2024b). */
void schedule_make(Schedule *s, ScheduleKind kind, uint32_t n_ranks, uint32_t chunks,
                   uint32_t n_microbatches, Arena *arena);
/* schedule_v.c: writes the list of one rank. */
void schedule_zb_v(Schedule *s, Arena *arena, uint32_t rank);
void schedule_dualpipe_v(Schedule *s, Arena *arena, uint32_t rank);
/* Makes a schedule in which each rank runs any action that is possible, but keeps at most `cap`
 * stage activations at a time. Returns false if no rank can proceed. */
bool schedule_greedy(Schedule *s, uint32_t n_ranks, uint32_t cap, uint32_t n_microbatches,
                     Arena *arena);
/* schedule_v_half makes a schedule by the greedy rule, with half as many activations as 1F1B;
 * schedule_v_half_cap returns this number of stage activations. With two ranks, half would not
 * suffice, so all of 1F1B's activations are allowed. */
void schedule_v_half(Schedule *s, uint32_t n_ranks, uint32_t n_microbatches, Arena *arena);
uint32_t schedule_v_half_cap(uint32_t n_ranks);
/* Returns the smallest cap with which schedule_greedy succeeds. */
uint32_t schedule_greedy_least(uint32_t n_ranks, uint32_t n_microbatches, Arena *scratch);
/* Makes a schedule from the script's own lists. Reports "schedule-ranks" if there is not one list
 * for each rank. Reports "schedule-placement" if a stage is on no rank, on several ranks or on
 * another rank than the script demands. Also reports it if a rank has no stage. Returns false after
 * a report. */
bool schedule_own(Schedule *s, const PpOptions *o, uint32_t n_ranks, uint32_t n_microbatches,
                  const ScheduleLocs *locs, Arena *arena, Diag *d);
/* Starts a schedule with empty lists and the stage placement of `kind`. */
void schedule_start(Schedule *s, ScheduleKind kind, uint32_t n_ranks, uint32_t chunks,
                    uint32_t n_microbatches, Arena *arena);
static inline void schedule_add(Schedule *s, Arena *arena, uint32_t rank, ActionKind kind,
                                uint32_t stage, uint32_t microbatch)
{
    Action a = {kind, stage, microbatch};
    list_push(arena, &s->of[rank], a);
}

/* Simulates the schedule and sets the end times. Checks that every F and every backward happens
 * exactly once, on the rank that holds the stage, and that no rank waits for ever. Reports
 * "schedule-incomplete", or "schedule-stuck" with the cycle of ranks and the action for which each
 * rank waits. */
bool schedule_check(Schedule *s, const ScheduleLocs *locs, Arena *arena, Diag *d);
/* Returns the largest number of stage activations in flight on a rank: forward actions whose
 * backward (or separate weight gradient) has not run yet. */
uint32_t schedule_peak(const Schedule *s, uint32_t rank);
/* Returns the largest schedule_peak of all ranks, and sets *rank to a rank that has it. */
uint32_t schedule_most(const Schedule *s, uint32_t *rank);
/* Returns true if the schedule runs to its end with at most `cap` stage activations in flight on
 * each rank. */
bool schedule_runs_under(const Schedule *s, uint32_t cap, Arena *scratch);
const char *action_name(ActionKind kind); /* returns "F", "B", "I" or "W" */

#endif
