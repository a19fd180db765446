/* Continues a simulation n periods later. First computes the state that the engine then has, and
 * verifies it. The instructions in progress are those of the newest period, n periods later.
 * Counters of ended instructions are counted again, because instructions of the rest of the step
 * also wait for the ones that are left out. */
#include <assert.h>
#include <string.h>

#include "sim/leap/leap.h"

/* ---- the state after the leap ---- */

static void raise_state(LeapClass *c, Pc pc, LeapState state)
{
    if (c->state[pc] < state) c->state[pc] = (uint8_t)state;
}

/* Fills in the states after the leap. */
static void move_states(const Attempt *t, LeapClass *c, const InProgressList *list)
{
    const Pc by = t->n * c->length;
    Pc first = 1;
    while (first < c->code->n && c->state[first] == STATE_ended) first++;
    uint8_t *newest = arena_array(t->scratch, c->length, sizeof *newest);
    for (uint32_t i = 0; i < c->length; i++) newest[i] = c->state[c->b[i]];
    for (Pc pc = first; pc < c->code->n; pc++)
        if (pc < first + by)
            c->state[pc] = STATE_ended;
        else if (c->state[pc] != STATE_ended)
            c->state[pc] = STATE_none;
    for (uint32_t i = 0; i < c->length; i++) {
        c->state[c->z[i] + by] = c->state[c->a[i] + by] = STATE_ended;
        raise_state(c, c->b[i] + by, (LeapState)newest[i]);
    }
    for (uint32_t i = 0; i < list->n; i++) {
        const InProgress *x = &list->at[i];
        if (&t->of[x->class_] == c) raise_state(c, (*x->pc & ~x->flag) + by, x->state);
    }
}

/* Counts for each instruction and each burst how many of the instructions that it waits for have
 * ended. Returns false if one that has not begun could begin, because the engine would not notice
 * that. */
static bool count_ended(const Attempt *t, LeapClass *c)
{
    const Code *code = c->code;
    const uint32_t n_bursts = c->host->n + t->n * c->bursts;
    c->met = arena_array(t->scratch, code->n, sizeof *c->met);
    c->awaits = arena_array(t->scratch, code->bursts.n, sizeof *c->awaits);
    for (uint32_t i = 0; i < code->bursts.n; i++) c->awaits[i] = code->bursts.at[i].n_awaited;
    for (Pc pc = 1; pc < code->n; pc++) {
        if (c->state[pc] != STATE_ended) continue;
        for (uint32_t i = code->step[pc].successors; i < code->step[pc + 1].successors; i++)
            c->met[code->successors[i]]++;
        if (code->step[pc].lets != 0) c->awaits[code->step[pc].lets]--;
    }
    for (Pc pc = 1; pc < code->n; pc++) {
        if (code->step[pc].leader != pc) continue;
        const uint32_t burst = code->step[pc].burst;
        if (burst > 0 && burst < n_bursts) c->met[pc]++;
        const bool has_begun = c->state[pc] != STATE_none;
        if ((c->met[pc] == code->need[pc]) != has_begun) return false;
    }
    for (uint32_t i = 1; i < code->bursts.n; i++)
        if (i == n_bursts ? c->awaits[i] == 0 : i < n_bursts && c->awaits[i] != 0) return false;
    return true;
}

/* ---- changes ---- */

static Moment later(Moment m, Ps time, Pc by)
{
    m.reached += time;
    m.start += time;
    m.end += time;
    m.by += by;
    return m;
}

/* Writes down the times of the periods that are left out, and moves those of the newest period. */
static void move_moments(const Attempt *t, const LeapClass *c, const InProgressList *list)
{
    const Pc by = t->n * c->length;
    for (uint32_t i = 0; i < c->length; i++) {
        const Moment x = *moment_of(c->line, c->a[i]), y = *moment_of(c->line, c->b[i]);
        for (uint32_t k = 1; k <= t->n; k++)
            *moment_of(c->line, c->a[i] + k * c->length) = later(x, k * t->length, k * c->length);
        *moment_of(c->line, c->b[i] + by) = later(y, t->n * t->length, by);
    }
    for (uint32_t i = 0; i < list->n; i++) {
        const InProgress *x = &list->at[i];
        if (&t->of[x->class_] != c || x->state != STATE_pending) continue;
        for (Pc pc = *x->pc & ~x->flag; pc != 0; pc = c->code->step[pc].next_in_launch)
            moment_of(c->line, pc + by)->by = moment_of(c->line, *x->pc & ~x->flag)->by + by;
    }
    for (Pc pc = 1; pc < c->code->n; pc++) moment_of(c->line, pc)->met = c->met[pc];
}

static void move_host(const Attempt *t, uint32_t class_, LeapClass *c)
{
    const LeapMark *m = t->mark;
    for (uint32_t k = 1; k <= t->n; k++)
        for (uint32_t i = m[2].bursts[class_]; i < m[3].bursts[class_]; i++) {
            HostStart at = c->host->at[i];
            at.first += k * c->length;
            at.from += k * t->length;
            if (at.by != 0) at.by += k * c->length;
            c->host->at[i + k * c->bursts] = at;
        }
    c->host->n += t->n * c->bursts;
    memcpy(t->e->awaited[class_], c->awaits, c->code->bursts.n * sizeof *c->awaits);
}

/* Moves members that wait for others of their communication to the slot of the communication n
 * periods later. */
static void move_slots(const Attempt *t)
{
    typedef struct Waiting {
        uint32_t slot, first, n;
    } Waiting;
    Engine *e = t->e;
    LIST(Waiting) all = {NULL, 0, 0};
    for (uint32_t slot = 0; slot < e->n_slots; slot++) {
        if (e->slots[slot] == 0) continue;
        list_push(t->scratch, &all, ((Waiting){slot, e->slots[slot], e->gathered[slot]}));
        e->slots[slot] = e->gathered[slot] = 0;
    }
    for (uint32_t i = 0; i < all.n; i++) {
        const Arrival *a = &e->arrivals.at[all.at[i].first];
        const LeapClass *c = &t->of[a->class_];
        const Step *from = &c->code->step[a->pc], *to = from + t->n * c->length;
        const uint32_t slot =
            all.at[i].slot - c->code->comms.at[from->comm].slot + c->code->comms.at[to->comm].slot;
        assert(e->slots[slot] == 0);
        e->slots[slot] = all.at[i].first;
        e->gathered[slot] = all.at[i].n;
    }
}

bool leap_go(Attempt *t, const InProgressList *list)
{
    Engine *e = t->e;
    const uint32_t n_classes = e->fold->n_classes;
    for (uint32_t c = 0; c < n_classes; c++) {
        move_states(t, &t->of[c], list);
        if (!count_ended(t, &t->of[c])) return false;
    }
    for (uint32_t c = 0; c < n_classes; c++) {
        move_moments(t, &t->of[c], list);
        move_host(t, c, &t->of[c]);
        e->n_ended += (uint64_t)t->n * t->of[c].length;
    }
    move_slots(t);
    for (uint32_t i = 0; i < list->n; i++)
        *list->at[i].pc += t->n * t->of[list->at[i].class_].length;
    e->step_start -= t->n * t->length;
    e->n_left_out = t->n;
    return true;
}
