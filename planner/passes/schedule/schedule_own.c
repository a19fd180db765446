/* A schedule that the script lists itself. The lists show which rank has which stage;
 * schedule_check then checks the order of actions. */
#include "planner/passes/schedule/schedule.h"

static Loc loc_of(const ScheduleLocs *locs, uint32_t rank)
{
    return rank < locs->own->n ? locs->own->at[rank].loc : locs->loc;
}

/* Sets s->rank_of of each stage to the rank whose list has its forward actions. */
static bool find_ranks(Schedule *s, const ScheduleLocs *locs, Diag *d)
{
    for (uint32_t stage = 0; stage < s->n_stages; stage++) s->rank_of[stage] = UINT32_MAX;
    for (uint32_t r = 0; r < s->n_ranks; r++)
        for (uint32_t i = 0; i < s->of[r].n; i++) {
            const Action *a = &s->of[r].at[i];
            if (a->kind != ACTION_F || a->stage >= s->n_stages) continue;
            uint32_t *rank = &s->rank_of[a->stage];
            if (*rank != UINT32_MAX && *rank != r) {
                diag_error(
                    d, FAULT_input, "schedule-placement", loc_of(locs, r),
                    "stage %u has actions on rank %u and on rank %u, but must be on one rank",
                    a->stage, *rank, r);
                diag_hint(d, "give each stage its own number, counted over all ranks");
                return false;
            }
            *rank = r;
        }
    return true;
}

static bool has_stage(const Schedule *s, uint32_t rank)
{
    for (uint32_t stage = 0; stage < s->n_stages; stage++)
        if (s->rank_of[stage] == rank) return true;
    return false;
}

static bool check_places(const Schedule *s, const PpOptions *o, const ScheduleLocs *locs, Diag *d)
{
    uint32_t p = s->n_ranks;
    bool v = o->placement == 1 + PLACEMENT_v;
    for (uint32_t stage = 0; stage < s->n_stages; stage++) {
        uint32_t rank = s->rank_of[stage];
        uint32_t wanted = v && stage / p % 2 ? p - 1 - stage % p : stage % p;
        if (rank == UINT32_MAX)
            return diag_error(d, FAULT_input, "schedule-placement", locs->loc,
                              "no rank has actions of stage %u", stage);
        if (!o->placement || rank == wanted) continue;
        diag_error(d, FAULT_input, "schedule-placement", loc_of(locs, rank),
                   "stage %u is on rank %u, but placement = \"%s\" puts it on rank %u", stage, rank,
                   v ? "v" : "loop", wanted);
        diag_hint(d, "leave out placement to use that of the schedule");
        return false;
    }
    for (uint32_t r = 0; r < p; r++)
        if (!has_stage(s, r))
            return diag_error(d, FAULT_input, "schedule-placement", loc_of(locs, r),
                              "rank %u has no stage, so it would be idle for the whole run", r);
    return true;
}

bool schedule_own(Schedule *s, const PpOptions *o, uint32_t n_ranks, uint32_t n_microbatches,
                  const ScheduleLocs *locs, Arena *arena, Diag *d)
{
    if (o->own.n != n_ranks) {
        diag_error(d, FAULT_input, "schedule-ranks", locs->loc,
                   "the schedule lists actions for %u ranks, but mesh.pp = %u", o->own.n, n_ranks);
        diag_hint(d, "set mesh.pp = %u", o->own.n);
        return false;
    }
    schedule_start(s, SCHEDULE_1f1b, n_ranks, o->chunks, n_microbatches, arena);
    for (uint32_t r = 0; r < n_ranks; r++) {
        s->of[r] = o->own.at[r].actions;
        for (uint32_t i = 0; i < s->of[r].n; i++)
            s->splits_backward = s->splits_backward || s->of[r].at[i].kind == ACTION_I;
    }
    return find_ranks(s, locs, d) && check_places(s, o, locs, d);
}
