/* Leaves out micro-batches that would only repeat the ones before them. A period lasts from the
 * first backward instruction of one micro-batch on class 0 to that of the next micro-batch. Suppose
 * that three successive periods are equal to the picosecond in all classes, and that the programs
 * go on in the same way. Then the next periods are equal, too. The reason is that all decisions of
 * the engine and of its models depend only on the instructions in progress and on differences of
 * times. So the simulation continues at the instructions that come n periods later, and fills in
 * the times of the periods between.
 *
 * The clock of the engine and of its models does not jump, because no model could follow. Instead
 * the start of the step moves back. Everything is verified before anything is changed. */
#include <string.h>

#include "sim/leap/leap.h"

/* With fewer micro-batches, an attempt would cost more than it saves. */
enum { LEAST_MARKS = 16 };

/* ---- marks ---- */

Leap *leap_new(const Engine *e)
{
    const Program *p = plan_program(e->plan, e->fold->rank_of[0]);
    const uint32_t n_classes = e->fold->n_classes, n = e->plan->step.n_microbatches;
    if (n < LEAST_MARKS) return NULL;
    Leap *l = arena_alloc(e->arena, sizeof *l);
    bool *seen = arena_array(e->arena, n, sizeof *seen);
    uint32_t n_marks = 0;
    l->marks = arena_array(e->arena, (size_t)n + 1, sizeof *l->marks);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (in->stream != STREAM_compute || in->microbatch >= n || seen[in->microbatch] ||
            (in->phase != PHASE_backward && in->phase != PHASE_recompute))
            continue;
        seen[in->microbatch] = true;
        l->marks[n_marks++] = pc;
    }
    if (n_marks < LEAST_MARKS) return NULL;
    l->begun = arena_array(e->arena, n_classes, sizeof *l->begun);
    l->n_begun = arena_array(e->arena, n_classes, sizeof *l->n_begun);
    for (uint32_t c = 0; c < n_classes; c++) {
        uint32_t room = 0;
        l->begun[c] = list_grow(e->arena, NULL, 0, &room, e->code_of[c]->n, sizeof *l->begun[c]);
    }
    for (uint32_t i = 0; i < LEAP_MARKS; i++) {
        l->mark[i].begun = arena_array(e->arena, n_classes, sizeof *l->mark[i].begun);
        l->mark[i].bursts = arena_array(e->arena, n_classes, sizeof *l->mark[i].bursts);
    }
    l->next_try = LEAP_MARKS;
    return l;
}

static void set_mark(Engine *e)
{
    Leap *l = e->leap;
    const LeapMark oldest = l->mark[0];
    memmove(l->mark, l->mark + 1, (LEAP_MARKS - 1) * sizeof *l->mark);
    LeapMark *m = &l->mark[LEAP_MARKS - 1];
    *m = oldest;
    m->at = e->now - e->step_start;
    memcpy(m->begun, l->n_begun, e->fold->n_classes * sizeof *m->begun);
    for (uint32_t c = 0; c < e->fold->n_classes; c++) m->bursts[c] = e->host[c].n;
    l->n_passed++;
    l->marks++;
    l->due = false;
}

/* ---- instructions in progress ---- */

static void add_event(const Attempt *t, InProgressList *list, Ps time, uint32_t class_, Pc *pc)
{
    const bool issue = (*pc & ISSUE) != 0;
    list_push(t->scratch, list,
              ((InProgress){issue ? STATE_pending : STATE_runs, class_, pc, *pc & ISSUE,
                            time - t->e->step_start}));
}

static void add_arrivals(const Attempt *t, InProgressList *list, uint32_t first, LeapState state)
{
    for (uint32_t i = first; i != 0; i = t->e->arrivals.at[i].next) {
        Arrival *a = &t->e->arrivals.at[i];
        list_push(t->scratch, list, ((InProgress){state, a->class_, &a->pc, 0, 0}));
    }
}

static InProgressList all_in_progress(const Attempt *t)
{
    Engine *e = t->e;
    Heap *h = &e->heap;
    InProgressList list = {NULL, 0, 0};
    for (uint32_t i = 0; i < h->n_near; i++)
        add_event(t, &list, h->near[i].time, h->near[i].a, &h->near[i].b);
    for (uint32_t i = 0; i < h->order.n; i++) {
        const Instant *at = &h->instants.at[h->order.at[i].instant];
        for (uint32_t id = at->first; id != 0; id = h->events.at[id].next)
            add_event(t, &list, at->time, h->events.at[id].a, &h->events.at[id].b);
    }
    bool *unused = arena_array(t->scratch, (size_t)e->jobs.n + e->transits.n + 1, sizeof *unused);
    for (uint32_t id = e->free_job; id != 0; id = e->jobs.at[id].next) unused[id] = true;
    for (uint32_t id = 1; id < e->jobs.n; id++) {
        Arrival *job = &e->jobs.at[id];
        if (!unused[id])
            list_push(t->scratch, &list, ((InProgress){STATE_runs, job->class_, &job->pc, 0, 0}));
    }
    unused += e->jobs.n;
    for (uint32_t id = e->free_transit; id != 0; id = e->transits.at[id].next_free)
        unused[id] = true;
    for (uint32_t id = 1; id < e->transits.n; id++)
        if (!unused[id]) add_arrivals(t, &list, e->transits.at[id].arrivals, STATE_runs);
    for (uint32_t slot = 0; slot < e->n_slots; slot++)
        if (e->slots[slot] != 0) add_arrivals(t, &list, e->slots[slot], STATE_waits);
    return list;
}

/* ---- equal periods ---- */

/* True if the times of instruction y are those of x, one period later. y may be in progress. */
static bool same_moments(const Attempt *t, const LeapClass *c, Pc x, Pc y)
{
    const Moment *m = moment_of(c->line, x), *n = moment_of(c->line, y);
    const Ps now = t->mark[LEAP_MARKS - 1].at;
    if (y != x + c->length || c->state[x] != STATE_ended || n->reached != m->reached + t->length ||
        n->by != m->by + c->length)
        return false;
    if (c->state[y] == STATE_ended)
        return n->start == m->start + t->length && n->end == m->end + t->length;
    if (m->end + t->length <= now) return false;
    return c->state[y] == STATE_runs ? n->start == m->start + t->length
                                     : m->start + t->length > now;
}

static bool was_late(const LeapClass *c, Pc pc)
{
    const Moment *at = moment_of(c->line, pc);
    return at->reached > (at->by ? moment_of(c->line, at->by)->end : 0);
}

/* Finds c->old. Returns false if an instruction before it has not ended, or if one that began
 * before the period of c->z ended after the start of the period of c->a. */
static bool find_old(const Attempt *t, uint32_t class_, LeapClass *c)
{
    const Leap *l = t->e->leap;
    const LeapMark *m = t->mark;
    const Pc *begun = l->begun[class_];
    c->old = c->code->n;
    for (uint32_t i = 0; i < m[0].begun[class_]; i++)
        if (moment_of(c->line, begun[i])->end > m[1].at) return false;
    for (uint32_t i = 0; i < c->length; i++) {
        if (c->a[i] < c->old) c->old = c->a[i];
        if (c->z[i] < c->old && moment_of(c->line, c->z[i])->end > m[1].at) c->old = c->z[i];
    }
    for (Pc pc = 1; pc < c->old; pc++)
        if (c->state[pc] != STATE_ended) return false;
    return true;
}

/* True if the bursts that the host began in the newest periods are equal. */
static bool bursts_repeat(const Attempt *t, uint32_t class_, LeapClass *c)
{
    const LeapMark *m = t->mark;
    c->bursts = m[3].bursts[class_] - m[2].bursts[class_];
    if (m[2].bursts[class_] - m[1].bursts[class_] != c->bursts) return false;
    for (uint32_t i = m[1].bursts[class_]; i < m[2].bursts[class_]; i++) {
        const HostStart *x = &c->host->at[i], *y = x + c->bursts;
        if (y->first != x->first + c->length || y->from != x->from + t->length ||
            y->by != (x->by ? x->by + c->length : 0))
            return false;
    }
    return true;
}

static bool class_repeats(const Attempt *t, uint32_t class_, LeapClass *c)
{
    const Leap *l = t->e->leap;
    const LeapMark *m = t->mark;
    c->length = m[3].begun[class_] - m[2].begun[class_];
    if (c->length == 0 || m[2].begun[class_] - m[1].begun[class_] != c->length ||
        m[1].begun[class_] - m[0].begun[class_] != c->length)
        return false;
    c->z = l->begun[class_] + m[0].begun[class_];
    c->a = c->z + c->length;
    c->b = c->a + c->length;
    for (uint32_t i = 0; i < c->length; i++) {
        if (!same_moments(t, c, c->z[i], c->a[i]) || !same_moments(t, c, c->a[i], c->b[i]))
            return false;
        if (c->state[c->a[i]] != STATE_ended) return false;
        c->late = c->late || was_late(c, c->a[i]) || was_late(c, c->b[i]);
    }
    return bursts_repeat(t, class_, c) && find_old(t, class_, c);
}

/* Fills in the states of all instructions. Returns false if an instruction in progress was not
 * begun in the newest period. */
static bool find_states(const Attempt *t, const InProgressList *list)
{
    const Leap *l = t->e->leap;
    const uint32_t *before = t->mark[LEAP_MARKS - 2].begun;
    uint32_t n_running = 0;
    for (uint32_t c = 0; c < t->e->fold->n_classes; c++)
        for (uint32_t i = 0; i < l->n_begun[c]; i++) t->of[c].state[l->begun[c][i]] = STATE_ended;
    for (uint32_t i = 0; i < list->n; i++) {
        const InProgress *x = &list->at[i];
        t->of[x->class_].state[*x->pc & ~x->flag] = (uint8_t)x->state;
        n_running += x->state != STATE_pending;
    }
    for (uint32_t c = 0; c < t->e->fold->n_classes; c++)
        for (uint32_t i = before[c]; i < l->n_begun[c]; i++)
            n_running -= t->of[c].state[l->begun[c][i]] != STATE_ended;
    return n_running == 0;
}

/* True if each pending instruction was also pending one period before. */
static bool pending_repeats(const Attempt *t, const InProgressList *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        const InProgress *x = &list->at[i];
        if (x->state != STATE_pending) continue;
        LeapClass *c = &t->of[x->class_];
        const Pc pc = *x->pc & ~x->flag, first = c->code->step[pc].leader;
        c->late = true;
        if (pc != first || pc <= c->length || c->state[pc - c->length] < STATE_waits) return false;
        const Moment *m = moment_of(c->line, pc - c->length);
        if (m->reached + t->length != x->when || m->reached <= t->mark[LEAP_MARKS - 2].at ||
            moment_of(c->line, pc)->by != m->by + c->length)
            return false;
    }
    return true;
}

/* ---- the attempt ---- */

static void prepare(Attempt *t)
{
    Engine *e = t->e;
    t->of = arena_array(t->scratch, e->fold->n_classes, sizeof *t->of);
    t->next_slot = arena_array(t->scratch, e->n_slots, sizeof *t->next_slot);
    for (uint32_t i = 0; i < e->fold->n_classes; i++) {
        LeapClass *c = &t->of[i];
        c->code = e->code_of[i];
        c->program = plan_program(e->plan, e->fold->rank_of[i]);
        c->line = &e->line[i];
        c->host = &e->host[i];
        c->state = arena_array(t->scratch, c->code->n, sizeof *c->state);
        c->previous = arena_array(t->scratch, c->code->n, sizeof *c->previous);
        Pc last[STREAM_COUNT] = {0};
        for (Pc pc = 1; pc < c->code->n; pc++) {
            const Stream stream = c->program->code.at[pc].stream;
            c->previous[pc] = last[stream];
            last[stream] = pc;
        }
    }
}

/* Returns true if periods were left out. *over becomes true if no later attempt can succeed. */
static bool try_leap(Engine *e, bool *over)
{
    Attempt t = {.e = e, .mark = e->leap->mark, .scratch = arena_new()};
    t.length = t.mark[3].at - t.mark[2].at;
    prepare(&t);
    const InProgressList list = all_in_progress(&t);
    bool fine = find_states(&t, &list) && pending_repeats(&t, &list);
    for (uint32_t c = 0; c < e->fold->n_classes && fine; c++) fine = class_repeats(&t, c, &t.of[c]);
    *over = fine;
    fine = fine && leap_find_number(&t) && leap_go(&t, &list);
    arena_free(t.scratch);
    return fine;
}

/* True if class 0 has passed the newest marks at equal distances, and every class has begun equally
 * many instructions between them. */
static bool looks_equal(const Engine *e)
{
    const LeapMark *m = e->leap->mark;
    const Ps length = m[3].at - m[2].at;
    if (length <= 0 || m[2].at - m[1].at != length || m[1].at - m[0].at != length) return false;
    for (uint32_t c = 0; c < e->fold->n_classes; c++) {
        const uint32_t n = m[3].begun[c] - m[2].begun[c];
        if (n == 0 || m[2].begun[c] - m[1].begun[c] != n || m[1].begun[c] - m[0].begun[c] != n)
            return false;
    }
    return true;
}

void leap_pass(Engine *e)
{
    Leap *l = e->leap;
    bool over = false;
    set_mark(e);
    if (l->n_passed < l->next_try || !looks_equal(e)) return;
    over = try_leap(e, &over) || over;
    if (over) e->leap = NULL;
    l->n_failed++;
    l->next_try = l->n_passed + l->n_failed;
}
