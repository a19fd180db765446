/* Initialises schedules, and names the kinds of actions. */
#include "planner/passes/schedule/schedule.h"

const char *action_name(ActionKind kind)
{
    static const char *const names[] = {
#define X(name) #name,
        ACTIONS(X)
#undef X
    };
    return names[kind];
}

void schedule_start(Schedule *s, ScheduleKind kind, uint32_t n_ranks, uint32_t chunks,
                    uint32_t n_microbatches, Arena *arena)
{
    bool is_v = schedule_traits(kind).placement == PLACEMENT_v;
    *s = (Schedule){
        .n_ranks = n_ranks, .n_stages = n_ranks * chunks, .n_microbatches = n_microbatches};
    s->rank_of = arena_array(arena, s->n_stages, sizeof *s->rank_of);
    s->of = arena_array(arena, n_ranks, sizeof *s->of);
    for (uint32_t stage = 0; stage < s->n_stages; stage++)
        s->rank_of[stage] = is_v && stage >= n_ranks ? 2 * n_ranks - 1 - stage : stage % n_ranks;
}
