/* Simulates a schedule to prove that it ends. Otherwise reports the ranks that wait for each
 * other. */
#include <assert.h>

#include "planner/passes/schedule/schedule.h"

enum { DONE_F = 1, DONE_I = 2, DONE_W = 4, DONE_all = 7 };

typedef struct SchedulePlayer {
    const Schedule *s;
    /* [stage * n_microbatches + microbatch]: which of its actions have run (bits DONE_F, DONE_I,
     * DONE_W) */
    uint8_t *done;
    uint32_t *forward_end, *backward_end; /* [stage * n_microbatches + microbatch] */
    /* [rank]: index of its next action; the time when its last action ended; how many stage
     * activations it keeps */
    uint32_t *at, *clock, *alive;
    uint32_t cap; /* the most stage activations that a rank may keep; 0: no limit */
} SchedulePlayer;

static SchedulePlayer player(const Schedule *s, uint32_t cap, Arena *arena)
{
    size_t n = (size_t)s->n_stages * s->n_microbatches;
    SchedulePlayer p = {.s = s, .cap = cap};
    p.done = arena_array(arena, n, sizeof *p.done);
    p.forward_end = arena_array(arena, n, sizeof *p.forward_end);
    p.backward_end = arena_array(arena, n, sizeof *p.backward_end);
    p.at = arena_array(arena, s->n_ranks, sizeof *p.at);
    p.clock = arena_array(arena, s->n_ranks, sizeof *p.clock);
    p.alive = arena_array(arena, s->n_ranks, sizeof *p.alive);
    return p;
}

static uint32_t cell(const Schedule *s, uint32_t stage, uint32_t microbatch)
{
    return stage * s->n_microbatches + microbatch;
}

static uint8_t effect(ActionKind kind)
{
    switch (kind) {
    case ACTION_F: return DONE_F;
    case ACTION_I: return DONE_I;
    case ACTION_W: return DONE_W;
    case ACTION_B: return DONE_I | DONE_W;
    case ACTION_COUNT: break;
    }
    assert(0 && "an action");
    return 0;
}

/* If action `a` cannot run yet, sets *what to an action, perhaps of another rank, for which it
 * waits, and returns true. */
static bool waits_for(const SchedulePlayer *p, const Action *a, Action *what)
{
    const Schedule *s = p->s;
    uint8_t own = p->done[cell(s, a->stage, a->microbatch)];
    bool last = a->stage + 1 == s->n_stages;
    *what = *a;
    switch (a->kind) {
    case ACTION_F:
        what->stage--;
        return a->stage && !(p->done[cell(s, a->stage - 1, a->microbatch)] & DONE_F);
    case ACTION_W: what->kind = ACTION_I; return !(own & DONE_I);
    case ACTION_B:
    case ACTION_I:
        what->kind = ACTION_F;
        if (!(own & DONE_F)) return true;
        what->kind = ACTION_I;
        what->stage++;
        return !last && !(p->done[cell(s, a->stage + 1, a->microbatch)] & DONE_I);
    case ACTION_COUNT: break;
    }
    return false;
}

static uint32_t later(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Runs action `a`, whose inputs exist, on `rank`. */
static void perform(SchedulePlayer *p, uint32_t rank, const Action *a)
{
    const Schedule *s = p->s;
    uint32_t own = cell(s, a->stage, a->microbatch), *clock = &p->clock[rank];
    if (a->kind == ACTION_F && a->stage)
        *clock = later(*clock, p->forward_end[own - s->n_microbatches]);
    if ((a->kind == ACTION_B || a->kind == ACTION_I) && a->stage + 1 < s->n_stages)
        *clock = later(*clock, p->backward_end[own + s->n_microbatches]);
    *clock += a->kind == ACTION_B ? 2 : 1;
    if (a->kind == ACTION_F) p->forward_end[own] = *clock;
    if (a->kind == ACTION_B || a->kind == ACTION_I) p->backward_end[own] = *clock;
    p->done[own] |= effect(a->kind);
    p->alive[rank] += a->kind == ACTION_F;
    p->alive[rank] -= (effect(a->kind) & DONE_W) != 0;
    p->at[rank]++;
}

static const Action *next_of(const SchedulePlayer *p, uint32_t rank)
{
    return p->at[rank] < p->s->of[rank].n ? &p->s->of[rank].at[p->at[rank]] : NULL;
}

static bool is_full(const SchedulePlayer *p, uint32_t rank, const Action *a)
{
    return p->cap && a->kind == ACTION_F && p->alive[rank] >= p->cap;
}

/* Returns an action as text: "pipeline rank 1: F of stage 1, micro-batch 0". */
static Str text_of(Diag *d, uint32_t rank, const Action *a)
{
    Str s = str_in(d->arena);
    str_print(&s, "pipeline rank %u: %s of stage %u, micro-batch %u", rank, action_name(a->kind),
              a->stage, a->microbatch);
    return s;
}

static Loc loc_of(const ScheduleLocs *locs, uint32_t rank)
{
    return locs->own && rank < locs->own->n ? locs->own->at[rank].loc : locs->loc;
}

/* Returns why action `a` is wrong and waiting would not help, such as a stage of another rank, or
 * an action that has already run; NULL if it is not wrong. */
static const char *mistake(const SchedulePlayer *p, uint32_t rank, const Action *a, Arena *arena)
{
    const Schedule *s = p->s;
    if (a->stage >= s->n_stages)
        return arena_print(arena, ", but there are only stages 0 to %u", s->n_stages - 1);
    if (a->microbatch >= s->n_microbatches)
        return arena_print(arena, ", but there are only micro-batches 0 to %u",
                           s->n_microbatches - 1);
    if (s->rank_of[a->stage] != rank)
        return arena_print(arena, ", but this stage is on rank %u", s->rank_of[a->stage]);
    if (p->done[cell(s, a->stage, a->microbatch)] & effect(a->kind)) return " comes twice";
    return NULL;
}

static bool report_mistake(const ScheduleLocs *locs, uint32_t rank, const Action *a,
                           const char *what, Diag *d)
{
    Str text = text_of(d, rank, a);
    return diag_error(d, FAULT_input, "schedule-incomplete", loc_of(locs, rank), "%s%s",
                      str_text(&text), what);
}

/* Goes from `rank` to the rank for which it waits, and so on, until a rank comes up again. Reports
 * the cycle as "schedule-stuck". */
static bool report_stuck(const SchedulePlayer *p, const ScheduleLocs *locs, uint32_t rank, Diag *d)
{
    const uint32_t begin = rank;
    Str text = text_of(d, rank, next_of(p, rank)), circle = str_in(d->arena);
    for (uint32_t k = 0; k < p->s->n_ranks; k++) {
        const Action *a = next_of(p, rank);
        Action what;
        if (!a || !waits_for(p, a, &what)) break;
        uint32_t on = p->s->rank_of[what.stage];
        str_print(&circle, "%s%s%u.%u on rank %u waits for %s%u.%u on rank %u", k ? "; " : "",
                  action_name(a->kind), a->stage, a->microbatch, rank, action_name(what.kind),
                  what.stage, what.microbatch, on);
        rank = on;
        if (rank == begin) break;
    }
    diag_error(d, FAULT_input, "schedule-stuck", loc_of(locs, begin), "%s waits for ever",
               str_text(&text));
    diag_hint(d, "%s", str_text(&circle));
    return false;
}

/* Runs actions until no rank can proceed. If `mistake` finds one wrong, reports it and returns
 * false. */
static bool play(SchedulePlayer *p, const ScheduleLocs *locs, Diag *d)
{
    Action what;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t r = 0; r < p->s->n_ranks; r++)
            for (const Action *a; (a = next_of(p, r)) != NULL;) {
                const char *wrong = d ? mistake(p, r, a, d->arena) : NULL;
                if (wrong) return report_mistake(locs, r, a, wrong, d);
                if (waits_for(p, a, &what) || is_full(p, r, a)) break;
                perform(p, r, a);
                moved = true;
            }
    }
    return true;
}

bool schedule_check(Schedule *s, const ScheduleLocs *locs, Arena *arena, Diag *d)
{
    SchedulePlayer p = player(s, 0, arena);
    if (!play(&p, locs, d)) return false;
    for (uint32_t i = 0; i < s->n_stages * s->n_microbatches; i++) {
        uint32_t stage = i / s->n_microbatches, rank = s->rank_of[stage];
        Action a = {!(p.done[i] & DONE_F)   ? ACTION_F
                    : !(p.done[i] & DONE_I) ? ACTION_B
                                            : ACTION_W,
                    stage, i % s->n_microbatches};
        bool listed = false;
        for (uint32_t k = p.at[rank]; k < s->of[rank].n; k++) {
            const Action *at = &s->of[rank].at[k];
            listed = listed || (at->stage == a.stage && at->microbatch == a.microbatch &&
                                (effect(at->kind) & effect(a.kind)));
        }
        if (p.done[i] != DONE_all && !listed)
            return report_mistake(locs, rank, &a, " never comes", d);
    }
    for (uint32_t r = 0; r < s->n_ranks; r++)
        if (next_of(&p, r)) return report_stuck(&p, locs, r, d);
    for (uint32_t r = 0; r < s->n_ranks; r++) s->makespan = later(s->makespan, p.clock[r]);
    s->forward_end = p.forward_end;
    s->backward_end = p.backward_end;
    return true;
}

uint32_t schedule_peak(const Schedule *s, uint32_t rank)
{
    uint32_t alive = 0, most = 0;
    for (uint32_t i = 0; i < s->of[rank].n; i++) {
        ActionKind kind = s->of[rank].at[i].kind;
        alive += kind == ACTION_F;
        if (alive > most) most = alive;
        alive -= (effect(kind) & DONE_W) != 0;
    }
    return most;
}

uint32_t schedule_most(const Schedule *s, uint32_t *rank)
{
    uint32_t most = 0;
    for (uint32_t r = 0; r < s->n_ranks; r++)
        if (schedule_peak(s, r) > most) most = schedule_peak(s, *rank = r);
    return most;
}

bool schedule_runs_under(const Schedule *s, uint32_t cap, Arena *scratch)
{
    SchedulePlayer p = player(s, cap, scratch);
    play(&p, NULL, NULL);
    for (uint32_t r = 0; r < s->n_ranks; r++)
        if (next_of(&p, r)) return false;
    return true;
}
