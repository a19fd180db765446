/* Finds for how many more periods the programs go on as in the newest ones. */
#include "sim/leap/leap.h"

enum { LEAST_LEAP = 2 };

/* Returns the i-th instruction for which pc waits; 0: none, or no more. */
static Pc awaited_by(const LeapClass *c, Pc pc, uint32_t i)
{
    const Span after = c->program->code.at[pc].after;
    if (i < after.n) return c->program->after.at[after.first + i];
    return i == after.n ? c->previous[pc] : 0;
}

static bool waits_for(const LeapClass *c, Pc pc, Pc of)
{
    const uint32_t n = c->program->code.at[pc].after.n + 1;
    for (uint32_t i = 0; i < n; i++)
        if (awaited_by(c, pc, i) == of) return true;
    return false;
}

/* True if both instructions wait for equally many others, and those in the same place of the two
 * lists are one period apart. This is usual, and then same_waits is true. */
static bool lists_correspond(const LeapClass *c, Pc x, Span of_x, Span of_y)
{
    const Pc *a = c->program->after.at + of_x.first, *b = c->program->after.at + of_y.first;
    if (of_x.n != of_y.n || c->previous[x + c->length] != c->previous[x] + c->length) return false;
    for (uint32_t i = 0; i < of_x.n; i++)
        if (b[i] != a[i] + c->length) return false;
    return true;
}

/* True if x and the instruction one period later wait for instructions that are also one period
 * apart. Instructions before `old` have ended, so they are not compared. */
static bool same_waits(const LeapClass *c, Pc x, Pc old)
{
    const Pc y = x + c->length;
    const Span of_x = c->program->code.at[x].after, of_y = c->program->code.at[y].after;
    if (lists_correspond(c, x, of_x, of_y)) return true;
    for (uint32_t i = 0; i <= of_x.n; i++) {
        const Pc of = awaited_by(c, x, i);
        if (of >= old && !waits_for(c, y, of + c->length)) return false;
    }
    for (uint32_t i = 0; i <= of_y.n; i++) {
        const Pc of = awaited_by(c, y, i);
        if (of >= old + c->length && !waits_for(c, x, of - c->length)) return false;
    }
    return true;
}

static bool same_comm(Attempt *t, const Code *code, uint32_t x, uint32_t y)
{
    const SimComm *a = &code->comms.at[x], *b = &code->comms.at[y];
    if (a->op != b->op || a->axes != b->axes || a->axis_set != b->axis_set || a->hop != b->hop ||
        a->bytes != b->bytes || a->dtype != b->dtype || a->registered != b->registered ||
        a->back != b->back || a->layer != b->layer)
        return false;
    /* members that meet here must meet one period later, too */
    uint32_t *next = &t->next_slot[a->slot];
    if (*next == 0) *next = b->slot + 1;
    return *next == b->slot + 1;
}

static Pc shifted(Pc pc, Pc by)
{
    return pc != 0 ? pc + by : 0;
}

/* True if the instruction one period after x does the same as x. */
static bool step_repeats(Attempt *t, LeapClass *c, Pc x, Pc old)
{
    const Pc y = x + c->length;
    const Code *code = c->code;
    if (y >= code->n) return false;
    const Step *s = &code->step[x], *u = &code->step[y];
    const Ps grows = u->issued - s->issued;
    if (!c->knows_issue) c->issue = grows;
    c->knows_issue = true;
    return s->duration == u->duration && s->layer == u->layer && s->left_out == u->left_out &&
           s->on_host == u->on_host && grows == c->issue && u->burst == s->burst + c->bursts &&
           u->lets == (s->lets ? s->lets + c->bursts : 0) && u->leader == s->leader + c->length &&
           u->next_in_launch == shifted(s->next_in_launch, c->length) &&
           c->program->code.at[x].stream == c->program->code.at[y].stream && !s->comm == !u->comm &&
           (s->comm == 0 || same_comm(t, code, s->comm, u->comm)) && same_waits(c, x, old);
}

/* True if the host's bursts in period k after `a` equal its bursts in the next period. */
static bool host_goes_on(const Attempt *t, uint32_t class_, const LeapClass *c, uint32_t k)
{
    const LeapMark *m = t->mark;
    for (uint32_t i = m[1].bursts[class_]; i < m[2].bursts[class_]; i++) {
        const uint32_t at = i + k * c->bursts;
        if (at + c->bursts >= c->code->bursts.n) return false;
        const HostBurst *x = &c->code->bursts.at[at], *y = x + c->bursts;
        if (y->first != x->first + c->length || y->length != x->length ||
            y->n_awaited != x->n_awaited)
            return false;
    }
    return true;
}

/* True if period k after `a` and the next one are equal in the program of the class. */
static bool period_goes_on(Attempt *t, uint32_t class_, uint32_t k)
{
    LeapClass *c = &t->of[class_];
    for (uint32_t i = 0; i < c->length; i++) {
        const Pc x = c->a[i] + k * c->length;
        if (!step_repeats(t, c, x, c->old + k * c->length)) return false;
        /* no instruction after `b` may have begun, except that those of the next period may be
         * pending */
        const LeapState next = c->state[x + c->length];
        if (k > 0 && next != STATE_none && !(k == 1 && next == STATE_pending)) return false;
    }
    return host_goes_on(t, class_, c, k);
}

/* True if the host does not change the length of further periods. There are three cases. The host
 * waits for the device in each period. Or it issues a period in exactly the time of a period. Or it
 * needs less time and no instruction waits for it; then it only gets further ahead. */
static bool host_keeps_pace(const Attempt *t, const LeapClass *c)
{
    if (t->e->options->cost->issue == NULL) return true;
    if (c->bursts > 0) return c->issue == 0;
    return c->issue == t->length || (c->issue < t->length && !c->late);
}

bool leap_find_number(Attempt *t)
{
    uint32_t k = 0;
    for (bool fine = true; fine; k += fine)
        for (uint32_t c = 0; c < t->e->fold->n_classes && fine; c++) fine = period_goes_on(t, c, k);
    for (uint32_t c = 0; c < t->e->fold->n_classes; c++)
        if (!host_keeps_pace(t, &t->of[c])) return false;
    /* the simulation goes on with instructions of the last two of these periods */
    if (k < LEAST_LEAP + 2) return false;
    t->n = k - 2;
    return t->mark[LEAP_MARKS - 1].at < PS_MOST / 4 && t->length < PS_MOST / 4 / t->n;
}
