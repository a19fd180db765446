/* Finds the period of a step. A step repeats itself once its pipeline is full, or once its first
 * micro-batches have passed. Two periods are compared, because an instruction may begin in one and
 * end in the next. All decisions of the engine depend only on the instructions in progress and on
 * differences of times. So if two successive periods are equal, each further group of micro-batches
 * makes the step longer by this period. The rest of the step stays the same. */
#include "sim/period.h"

#include <string.h>

typedef struct PeriodSearch {
    const Plan *plan;
    const CostModel *cost;
    const Program *p;
    const Timeline *line;
    const HostLine *host;
    Ps from, length; /* beginning and length of the first period */
    uint32_t step;   /* number of micro-batches in a period */
    Pc shift; /* pc of an instruction's counterpart, which does the same work one period later,
                 minus its own pc */
} PeriodSearch;

static bool same_args(const Program *p, const Instr *x, const Instr *y)
{
    if (x->args.n != y->args.n || x->n_in != y->n_in) return false;
    for (uint32_t i = 0; i < x->args.n; i++) {
        const Buffer *a = &p->buffers.at[program_arg(p, x, i)];
        const Buffer *b = &p->buffers.at[program_arg(p, y, i)];
        if (a->shape != b->shape || a->dtype != b->dtype || a->bytes != b->bytes ||
            a->space != b->space)
            return false;
    }
    return true;
}

/* Returns true if instruction b does the same work as instruction a, for a later micro-batch. */
static bool is_counterpart(const PeriodSearch *s, Pc a, Pc b)
{
    const Instr *x = &s->p->code.at[a], *y = &s->p->code.at[b];
    return y->microbatch == x->microbatch + s->step && x->op == y->op && x->stream == y->stream &&
           (x->launch != 0) == (y->launch != 0) && x->axes == y->axes && x->hop == y->hop &&
           x->phase == y->phase && x->attrs == y->attrs && x->origin == y->origin &&
           x->unit == y->unit && (x->fuse != 0) == (y->fuse != 0) && same_args(s->p, x, y);
}

/* Returns true if a and b wait for corresponding instructions. These are either counterparts, too,
 * or the same instruction at the beginning of the step. */
static bool same_order(const PeriodSearch *s, Pc a, Pc b)
{
    const Instr *x = &s->p->code.at[a], *y = &s->p->code.at[b];
    if (x->after.n != y->after.n) return false;
    for (uint32_t i = 0; i < x->after.n; i++) {
        const Pc of_x = s->p->after.at[x->after.first + i],
                 of_y = s->p->after.at[y->after.first + i];
        if (of_y != of_x + s->shift && of_y != of_x) return false;
    }
    return true;
}

/* Returns true if the host issued the instruction only after everything else that it waits for had
 * ended. */
static bool was_late(const Timeline *line, Pc pc)
{
    const Moment *at = moment_of(line, pc);
    return at->reached > (at->by ? moment_of(line, at->by)->end : 0);
}

/* Returns true if the time `second` corresponds to the time `first`: a time in the first period
 * must occur again one period later. If `first` lies after the first period, `second` only has to
 * lie after the second one. */
static bool follows(const PeriodSearch *s, Ps first, Ps second)
{
    const Ps middle = s->from + s->length;
    return first <= middle ? second == first + s->length : second > middle + s->length;
}

static bool repeats(const PeriodSearch *s, Pc pc)
{
    const Pc next = pc + s->shift;
    const Timeline *t = s->line;
    if (next >= s->p->code.n || !is_counterpart(s, pc, next) || !same_order(s, pc, next))
        return false;
    const Moment *x = moment_of(t, pc), *y = moment_of(t, next);
    return y->reached == x->reached + s->length && was_late(t, pc) == was_late(t, next) &&
           follows(s, x->start, y->start) && follows(s, x->end, y->end) &&
           x->end - x->reached <= s->length;
}

/* Returns how long the host takes to issue the `shift` instructions of a period. */
static Ps issue_time(const PeriodSearch *s, Pc first)
{
    Ps sum = 0;
    for (Pc pc = first; pc < first + s->shift && s->cost->issue != NULL; pc++)
        sum += s->cost->issue(s->cost->self, s->plan, s->p, &s->p->code.at[pc]);
    return sum;
}

/* Returns true if the host waits for the device in a period. The host goes on when that wait ends,
 * so if the instructions have equal times, the host has, too. */
static bool host_waits(const PeriodSearch *s, Pc first)
{
    for (uint32_t i = 1; i < s->host->n; i++)
        if (s->host->at[i].first >= first && s->host->at[i].first < first + s->shift) return true;
    return false;
}

/* Returns true if further periods will take the same time for host and device. There are three
 * cases.
 *   1. The host waits for the device in each period.
 *   2. The host takes exactly one period to issue the instructions of a period.
 *   3. The host takes less, and no instruction has waited for it in these periods or after them.
 * With more periods, the host would be further ahead, and instructions would wait for it less. */
static bool host_keeps_pace(const PeriodSearch *s, Pc first)
{
    if (host_waits(s, first)) return true;
    const Ps end = s->from + 2 * s->length, each = issue_time(s, first);
    bool late = false, late_behind = false;
    for (Pc pc = 1; pc < s->p->code.n && s->cost->issue != NULL; pc++) {
        const Ps at = moment_of(s->line, pc)->reached;
        if (at < s->from || !was_late(s->line, pc)) continue;
        if (at < end)
            late = true;
        else
            late_behind = true;
    }
    if (each == s->length) return true;
    return each < s->length && !late && !late_behind;
}

/* Returns true if the period contains all instructions of its micro-batches. It does not if a
 * schedule does all forward work first: a period then lacks the backward work. */
static bool is_complete(const PeriodSearch *s, uint32_t microbatch)
{
    uint32_t n = 0;
    for (Pc pc = 1; pc < s->p->code.n; pc++) {
        const uint32_t of = s->p->code.at[pc].microbatch;
        n += of >= microbatch && of < microbatch + s->step;
    }
    return n == s->shift;
}

/* Finds s->shift, from the first instruction of the period and its counterpart. Returns this first
 * instruction; 0: it has no counterpart. */
static Pc find_shift(PeriodSearch *s)
{
    Pc first = 0;
    for (Pc pc = 1; pc < s->p->code.n && !first; pc++) {
        const Ps reached = moment_of(s->line, pc)->reached;
        if (reached >= s->from && reached < s->from + s->length) first = pc;
    }
    const Ps next = moment_of(s->line, first)->reached + s->length;
    for (Pc pc = first + 1; first && pc < s->p->code.n; pc++) {
        if (moment_of(s->line, pc)->reached != next) continue;
        if (!is_counterpart(s, first, pc)) continue;
        s->shift = pc - first;
        return first;
    }
    return 0;
}

static bool class_repeats(PeriodSearch *s, uint32_t microbatch)
{
    const Ps middle = s->from + s->length, end = middle + s->length;
    const Timeline *t = s->line;
    const Pc first = find_shift(s);
    if (!first || !is_complete(s, microbatch)) return false;
    for (Pc pc = 1; pc < s->p->code.n; pc++) {
        const Ps at = moment_of(t, pc)->reached;
        if (at < middle && (at >= s->from || moment_of(t, pc)->end > s->from)) {
            if (!repeats(s, pc)) return false;
        } else if (at >= middle && at < end) { /* it must be the counterpart of an instruction in
                                                  the first period */
            if (pc <= s->shift || moment_of(t, pc - s->shift)->reached != at - s->length)
                return false;
        }
    }
    return host_keeps_pace(s, first);
}

/* Lists the times at which rank 0 begins to compute each micro-batch. */
static uint32_t list_begins(const Program *p, const Timeline *line, Arena *scratch, Ps **out)
{
    uint32_t n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++)
        if (p->code.at[pc].microbatch >= n) n = p->code.at[pc].microbatch + 1;
    *out = arena_array(scratch, n, sizeof **out);
    bool *seen = arena_array(scratch, n, sizeof *seen);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (in->stream != STREAM_compute || seen[in->microbatch]) continue;
        seen[in->microbatch] = true;
        (*out)[in->microbatch] = moment_of(line, pc)->reached;
    }
    return n;
}

static bool repeats_every(const Plan *plan, const Fold *fold, const CostModel *cost,
                          const EngineResult *result, const Ps *begin, uint32_t n, uint32_t step,
                          Period *out)
{
    if (step == 0 || n < 4 * step) return false;
    const Ps end = begin[n - step], middle = begin[n - 2 * step], from = begin[n - 3 * step];
    if (middle <= from || end - middle != middle - from) return false;
    *out = (Period){from, middle - from, step};
    for (uint32_t c = 0; c < fold->n_classes; c++) {
        PeriodSearch s = {.plan = plan,
                          .cost = cost,
                          .p = plan_program(plan, fold->rank_of[c]),
                          .line = &result->line[c],
                          .host = &result->host[c],
                          .from = from,
                          .length = out->length,
                          .step = step};
        if (!class_repeats(&s, n - 2 * step)) return false;
    }
    return true;
}

bool period_find(const Plan *plan, const Fold *fold, const CostModel *cost,
                 const EngineResult *result, Arena *scratch, Period *out)
{
    Ps *begin;
    const Program *p = plan_program(plan, fold->rank_of[0]);
    const uint32_t n = list_begins(p, &result->line[0], scratch, &begin);
    const uint32_t stages =
        mesh_size(&plan->mesh, mesh_axes_of(&plan->mesh, axes_with(AXIS_STAGES)));
    return repeats_every(plan, fold, cost, result, begin, n, 1, out) ||
           (stages > 1 && repeats_every(plan, fold, cost, result, begin, n, stages, out));
}
