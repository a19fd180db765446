/* Gives slots (offsets) to buffers that several micro-batches of a pipeline need at the same time.
 * An activation of micro-batch k exists together with the same activation of the next M - 1
 * micro-batches. These M buffers get M slots, which micro-batches use in turn. So the slots do not
 * depend on the number of micro-batches, and all other buffers can have the same offsets in each
 * micro-batch. */
#include "planner/lower/memory/slots.h"

#include "planner/lower/alike.h"
#include "planner/lower/memory/gaps.h"

typedef LIST(BufferId) Began;

typedef struct Finder {
    const Lives *l;
    Began *of;       /* [micro-batch]: its buffers, in the order of their first use */
    uint32_t n;      /* the number of micro-batches */
    BufferId *chain; /* [micro-batch]: its buffer for the purpose that is being examined; 0: it has
                        none */
} Finder;

bool slots_same_part(const Program *p, BufferId a, BufferId b)
{
    const Buffer *x = &p->buffers.at[a], *y = &p->buffers.at[b];
    return buffers_alike(x, y) && instrs_same(&p->code.at[x->first], &p->code.at[y->first]);
}

static void list_began(Finder *f)
{
    const Lives *l = f->l;
    for (Pc pc = 1; pc < l->p->code.n; pc++)
        for (BufferId b = l->starts[pc]; b; b = l->next_start[b])
            if (!l->taken_over[b] && l->p->buffers.at[b].bytes > 0 && !l->p->buffers.at[b].result)
                list_push(l->scratch, &f->of[l->p->code.at[pc].microbatch], b);
}

/* Fills `chain` with the buffers that serve the same purpose as `b`, which begins in micro-batch 1.
 * Returns false if an interior micro-batch has no such buffer. */
static bool find_chain(const Finder *f, uint32_t *next, BufferId b)
{
    enum { LOOK_AHEAD = 16 };
    for (uint32_t k = 0; k < f->n; k++) {
        f->chain[k] = 0;
        for (uint32_t i = next[k]; i < f->of[k].n && i < next[k] + LOOK_AHEAD; i++) {
            if (!slots_same_part(f->l->p, f->of[k].at[i], b)) continue;
            f->chain[k] = f->of[k].at[i];
            next[k] = i + 1;
            break;
        }
        if (f->chain[k] == 0 && k > 0 && k + 1 < f->n) return false;
    }
    return true;
}

/* True if the buffer of micro-batch k is free when the buffer of micro-batch k + m begins. */
static bool passed(const Finder *f, uint32_t k, uint32_t m)
{
    const Lives *l = f->l;
    if (!f->chain[k] || !f->chain[k + m]) return true;
    const Knowledge now = lives_knows(l, lives_first(l, f->chain[k + m]));
    return lives_passed(l, l->heir[f->chain[k]], &now);
}

/* Returns the number of buffers of the chain that are in use at the same time. */
static uint32_t in_flight(const Finder *f)
{
    uint32_t m = 1;
    for (uint32_t k = 0; k + m < f->n; k++)
        while (k + m < f->n && !passed(f, k, m)) m++;
    return m;
}

void slots_find(Slots *s, const Lives *l, uint32_t n_microbatches, uint64_t bottom)
{
    Finder f = {.l = l, .n = n_microbatches};
    f.of = arena_array(l->scratch, f.n, sizeof *f.of);
    f.chain = arena_array(l->scratch, f.n, sizeof *f.chain);
    uint32_t *next = arena_array(l->scratch, f.n, sizeof *next);
    *s = (Slots){.slot = arena_array(l->scratch, l->p->buffers.n, sizeof *s->slot),
                 .end = bottom,
                 .most = 1};
    list_began(&f);
    for (uint32_t i = 0; i < f.of[1].n; i++) {
        const BufferId b = f.of[1].at[i];
        const uint64_t size = gaps_round(l->p->buffers.at[b].bytes);
        if (!find_chain(&f, next, b)) continue;
        const uint32_t m = in_flight(&f);
        if (m == 1) continue;
        for (uint32_t k = 0; k < f.n; k++)
            if (f.chain[k]) s->slot[f.chain[k]] = 1 + s->end + k % m * size;
        s->end += m * size;
        if (m > s->most) s->most = m;
    }
}
