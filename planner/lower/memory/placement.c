/* Chooses offsets. The program is walked through once for each of several methods, and the best
 * result is kept. No method is the best for all programs. */
#include "planner/lower/memory/placement.h"

#include <assert.h>
#include <string.h>

#include "planner/lower/expand.h"
#include "planner/lower/memory/gaps.h"
#include "planner/lower/memory/large.h"
#include "planner/lower/memory/slots.h"

typedef enum Fit {
    FIT_first,    /* the lowest gap */
    FIT_tightest, /* the smallest gap that is large enough */
    /* the lowest gap outside the bytes of large buffers, whose offsets are chosen first */
    FIT_around
} Fit;

typedef struct PlacementMethod {
    Fit fit;
    /* For FIT_around. A buffer is large if it has at least 1/share of the most bytes in use. It
     * must be in use while at least the fraction `full` of these bytes is in use. */
    uint32_t share;
    double full;
} PlacementMethod;

/* Each method is the best for some plan of scripts/plans or a variation of one. In most cases the
 * first methods suffice. */
static const PlacementMethod ways[] = {
    {FIT_first, 0, 0},    {FIT_around, 128, 0}, {FIT_around, 256, 0}, {FIT_around, 32, 0},
    {FIT_around, 64, .9}, {FIT_around, 32, .9}, {FIT_tightest, 0, 0}};
enum { N_WAYS = sizeof ways / sizeof *ways };

/* Another method is tried only if it could reduce the arena by more than 1/FINE. */
enum { FINE = 96 };

/* Slots (slots.h) are not used if they make the arena larger than the bytes in use by more than
 * 1/SLOTS_MAY_COST. */
enum { SLOTS_MAY_COST = 16 };

/* With slots, this is the first micro-batch whose backward work uses the same offsets as that of
 * all later ones. */
enum { FULL_BACKWARD = 4 };

typedef LIST(BufferId) BufferList;

typedef struct Placing {
    Lives *l;
    Program *p;
    Arena *scratch;
    const PlacementMethod *way;
    Gaps gaps;
    LargeBuffers large;
    Slots slots; /* slots.slot is NULL if there are no slots */
    /* Slots have the addresses from `lowest` to `bottom`. held: the most bytes in use at the same
     * time. fewest: the smallest arena found so far with equal offsets in all micro-batches. */
    uint64_t lowest, bottom, held, fewest;
    uint64_t *size; /* [buffer]: the bytes that it takes in an arena */
    /* [buffer]: the buffer whose offset it gets, because it takes over that buffer's memory; 0:
     * none */
    BufferId *from;
    bool *handed_on;  /* [buffer]: another buffer takes over its memory */
    uint64_t *in_use; /* [pc]: the bytes in use */
    uint32_t *tight;  /* [pc]: see LargeWanted */
    BufferList *of;   /* [micro-batch]: its buffers, in the order of their first use */
    /* [buffer]: the buffer whose offset it should get in the first round, and in later rounds; 0:
     * there is none. These buffers are the same for all methods. NULL: they are not known yet. */
    BufferId *first_model, *later_model;
    uint64_t *previous; /* [buffer]: the offset that it had in the previous round */
    uint32_t n_microbatches;
    bool periodic;
    bool again; /* this is not the first round */
    /* [buffer]: the offset that it must get; NULL: offsets are chosen */
    const uint64_t *given;
    bool taken;                 /* a given offset was not free */
    LargeBuffers tried[N_WAYS]; /* the large buffers of the methods so far */
    uint32_t n_tried;
} Placing;

/* Returns the buffer of `model` that serves the same purpose as `b`; 0 if there is none. Both lists
 * have the same order, apart from a few buffers. */
static BufferId counterpart(const Program *p, const BufferList *model, uint32_t *next, BufferId b)
{
    enum { LOOK_AHEAD = 16 };
    for (uint32_t i = *next; i < model->n && i < *next + LOOK_AHEAD; i++) {
        if (!slots_same_part(p, model->at[i], b)) continue;
        *next = i + 1;
        return model->at[i];
    }
    return 0;
}

/* Returns an interior micro-batch from which on offsets no longer change. Its number does not
 * depend on the number of micro-batches. */
static uint32_t settled(const Placing *m)
{
    return m->n_microbatches - 2 < PLACEMENT_SETTLED ? m->n_microbatches - 2 : PLACEMENT_SETTLED;
}

/* Returns [buffer]: the buffer whose offset it should get, so that all micro-batches use the same
 * offsets; 0: there is none. In the first round, this is the counterpart (the buffer
 * with the same purpose) in the previous micro-batch. In later rounds, it is the counterpart in the
 * micro-batch that settled() returns. */
static BufferId *find_models(Placing *m, bool later)
{
    const Lives *l = m->l;
    const Program *p = m->p;
    BufferId *model = arena_array(m->scratch, p->buffers.n, sizeof *model);
    /* [micro-batch]: where the next search for a counterpart begins */
    uint32_t *next = arena_array(m->scratch, m->n_microbatches, sizeof *next);
    for (uint32_t k = 0; k < m->n_microbatches && !later; k++) m->of[k].n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++)
        for (BufferId b = l->starts[pc]; b; b = l->next_start[b]) {
            const uint32_t microbatch = p->code.at[pc].microbatch;
            if (m->from[b] || (m->slots.slot && m->slots.slot[b])) continue;
            if (!later) list_push(m->scratch, &m->of[microbatch], b);
            if (!later && microbatch < 2) continue;
            const uint32_t of = later ? settled(m) : microbatch - 1;
            model[b] = counterpart(p, &m->of[of], &next[microbatch], b);
        }
    return model;
}

static BufferId model_for(const Placing *m, BufferId b)
{
    if (!m->periodic) return 0;
    return m->again ? m->later_model[b] : m->first_model[b];
}

static uint64_t fit(Placing *m, BufferId b, const Knowledge *now)
{
    const uint64_t size = m->size[b];
    const LargeBuffers *large = &m->large;
    switch (m->way->fit) {
    case FIT_first: break;
    case FIT_tightest: return gaps_take_tightest(&m->gaps, size, now);
    case FIT_around:
        if (large->of[b] && gaps_take_at(&m->gaps, large_offset(large, b), size, now))
            return large_offset(large, b);
        large_ahead(&m->large, b);
        return gaps_take(&m->gaps, size, now, large->ahead.at, large->ahead.n);
    }
    return gaps_take(&m->gaps, size, now, NULL, 0);
}

static uint64_t take_given(Placing *m, BufferId b, const Knowledge *now)
{
    const uint64_t offset = m->given[b], size = m->size[b];
    if (size > 0 && (offset < m->bottom || !gaps_take_at(&m->gaps, offset, size, now)))
        m->taken = true;
    return offset;
}

static uint64_t slot(Placing *m, BufferId b, const Knowledge *now)
{
    if (m->given) return take_given(m, b, now);
    if (m->slots.slot && m->slots.slot[b]) return m->slots.slot[b] - 1;
    const BufferId like = model_for(m, b);
    if (!like) return fit(m, b, now);
    const uint64_t wanted = m->again ? m->previous[like] : m->p->buffers.at[like].offset;
    if (gaps_take_at(&m->gaps, wanted, m->size[b], now)) return wanted;
    return fit(m, b, now);
}

/* Returns a number for the forward work, or the backward work, of the instruction's micro-batch. */
static uint32_t part_of(const Instr *in)
{
    return 2 * in->microbatch + (in->phase == PHASE_backward || in->phase == PHASE_recompute);
}

/* Places all buffers once. Returns false if the result is not better than the best so far. */
static bool place_all(Placing *m)
{
    Lives *l = m->l;
    Program *p = m->p;
    uint32_t part = 0;
    /* Gaps are joined at the same points of each period, so that all periods get the same offsets.
     */
    if (m->slots.slot) m->gaps.many = UINT32_MAX;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        if (m->slots.slot) {
            const uint32_t of = part_of(&p->code.at[pc]);
            const Knowledge now = lives_knows(l, pc);
            if (of != part) gaps_compact(&m->gaps, &now);
            part = of;
        }
        if (!l->starts[pc] && !l->ends[pc]) continue;
        const Knowledge now = lives_knows(l, pc);
        for (BufferId b = l->starts[pc]; b; b = l->next_start[b]) {
            const BufferId from = m->from[b];
            p->buffers.at[b].offset = from ? p->buffers.at[from].offset : slot(m, b, &now);
        }
        if (m->gaps.top >= m->fewest) return false;
        for (BufferId b = l->ends[pc]; b; b = l->next_end[b]) {
            if (m->handed_on[b] || !m->size[b]) continue;
            const uint64_t offset = p->buffers.at[b].offset;
            if (offset >= m->bottom) gaps_give(&m->gaps, offset, m->size[b], l->end[b], &now);
        }
    }
    return true;
}

uint32_t placement_microbatches(const Program *p)
{
    uint32_t n = 1;
    for (Pc pc = 1; pc < p->code.n; pc++)
        if (p->code.at[pc].microbatch >= n) n = p->code.at[pc].microbatch + 1;
    return n;
}

bool placement_periodic(const Program *p)
{
    uint32_t newest = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        if (p->code.at[pc].microbatch < newest) return false;
        newest = p->code.at[pc].microbatch;
    }
    return newest + 1 >= 4; /* there are at least two interior micro-batches */
}

/* A hash of the offsets of all arguments in the forward work, or the backward work, of a
 * micro-batch. */
typedef struct Offsets {
    uint64_t sum; /* depends on the order of the arguments, too */
    uint32_t n;   /* the number of arguments */
} Offsets;

/* Hashes the offsets of the forward work and of the backward work of each interior micro-batch.
 * Offsets in [lo, hi) count as 0. */
static Offsets *sum_offsets(const Program *p, uint32_t n, uint64_t lo, uint64_t hi, Arena *scratch)
{
    Offsets *all = arena_array(scratch, 2 * n, sizeof *all);
    uint64_t *offset = arena_array(scratch, p->buffers.n, sizeof *offset);
    for (BufferId b = 1; b < p->buffers.n; b++) {
        program_root(p, b, &offset[b]);
        if (offset[b] >= lo && offset[b] < hi) offset[b] = 0;
    }
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (in->microbatch == 0 || in->microbatch + 1 == n) continue;
        Offsets *of = &all[part_of(in)];
        for (uint32_t i = 0; i < in->args.n; i++) {
            const uint64_t at = offset[program_arg(p, in, i)];
            of->sum = of->sum * UINT64_C(0x9e3779b97f4a7c15) + at + 1;
        }
        of->n += in->args.n;
    }
    return all;
}

bool placement_repeats(const Program *p, Arena *scratch)
{
    const uint32_t n = placement_microbatches(p);
    if (n < 4) return true;
    const Offsets *all = sum_offsets(p, n, 0, 0, scratch), *last = &all[2 * (n - 2)];
    for (uint32_t k = 1; k + 2 < n; k++) {
        const Offsets *of = &all[2 * k];
        if (of[0].n + of[1].n == last[0].n + last[1].n &&
            (of[0].sum != last[0].sum || of[1].sum != last[1].sum))
            return false;
    }
    return true;
}

/* True if all micro-batches use the same offsets while the pipeline is full, except slots. The
 * first backward work may differ. */
static bool repeats_full(const Placing *m)
{
    const uint32_t n = m->n_microbatches, most = m->slots.most;
    const Offsets *all = sum_offsets(m->p, n, m->lowest, m->bottom, m->scratch);
    const uint32_t first[2] = {most + 2, FULL_BACKWARD}, last[2] = {n - 3, n - most - 2};
    for (uint32_t part = 0; part < 2; part++)
        for (uint32_t k = first[part]; k < last[part]; k++) {
            const Offsets *a = &all[2 * k + part], *b = a + 2;
            if (a->n != b->n || a->sum != b->sum) return false;
        }
    return true;
}

static bool repeats_now(const Placing *m)
{
    return m->slots.slot ? repeats_full(m) : placement_repeats(m->p, m->scratch);
}

static bool find_large(Placing *m)
{
    const double full = m->way->full * (double)m->held;
    const LargeWanted wanted = {.least = m->held / m->way->share,
                                .n_microbatches = m->periodic ? 3 : UINT32_MAX,
                                .full = m->slots.slot ? m->slots.most : 0,
                                .tight = m->way->full > 0 ? m->tight : NULL,
                                .placed = m->slots.slot,
                                .earlier = m->tried,
                                .n_earlier = m->n_tried};
    for (Pc pc = 1; wanted.tight && pc < m->p->code.n; pc++)
        m->tight[pc] = m->tight[pc - 1] + ((double)m->in_use[pc] >= full);
    if (!large_find(&m->large, m->l, &wanted, m->bottom)) return false;
    m->tried[m->n_tried++] = m->large;
    return true;
}

static uint64_t end_of_all(const Lives *l)
{
    uint64_t end = 0;
    for (BufferId b = 1; b < l->p->buffers.n; b++) {
        const Buffer *at = &l->p->buffers.at[b];
        const bool placed = !at->parent && at->space == l->space && (at->persistent || at->first);
        if (placed && at->offset + at->bytes > end) end = at->offset + at->bytes;
    }
    return end;
}

/* Stores the offsets of this round, which the next round tries to repeat. Returns true if any has
 * changed. */
static bool keep_offsets(Placing *m)
{
    bool any = false;
    for (BufferId b = 1; b < m->p->buffers.n; b++) {
        const uint64_t offset = m->p->buffers.at[b].offset;
        any = any || m->previous[b] != offset;
        m->previous[b] = offset;
    }
    return any;
}

/* Tries one method, in rounds, until all micro-batches use the same offsets. Returns false if the
 * result is not better than the best so far. This includes a method with the same large buffers as
 * an earlier one, because both give the same result. */
static bool try_way(Placing *m, bool *repeats)
{
    enum { ROUNDS = 6 };
    if (m->way->fit == FIT_around && !find_large(m)) return false;
    if (m->periodic && !m->first_model) m->first_model = find_models(m, false);
    for (int round = 0; round < ROUNDS; round++) {
        m->again = round > 0;
        gaps_init(&m->gaps, m->bottom, m->scratch);
        if (m->periodic && m->again && !m->later_model) m->later_model = find_models(m, true);
        m->large.next = 0;
        /* from the second round on, a round depends only on the offsets of the round before it */
        if (m->again && !keep_offsets(m) && round > 1) return true;
        if (!place_all(m)) return false;
        *repeats = !m->periodic || repeats_now(m);
        /* with slots, another round would move the buffers that are in use while the pipeline
         * fills */
        if (*repeats || m->slots.slot) return true;
    }
    return true;
}

/* Finds the buffers that take over the memory of another buffer, and the sizes of all buffers. */
static void find_taken_over(Placing *m)
{
    const Lives *l = m->l;
    const Program *p = m->p;
    bool *begun = arena_array(m->scratch, p->buffers.n, sizeof *begun);
    m->size = arena_array(m->scratch, p->buffers.n, sizeof *m->size);
    m->from = arena_array(m->scratch, p->buffers.n, sizeof *m->from);
    m->handed_on = arena_array(m->scratch, p->buffers.n, sizeof *m->handed_on);
    for (Pc pc = 1; pc < p->code.n; pc++)
        for (BufferId b = l->starts[pc]; b; b = l->next_start[b]) {
            const BufferId from = l->taken_over[b];
            m->size[b] = gaps_round(p->buffers.at[b].bytes);
            begun[b] = true;
            /* a buffer that is written later in the same kernel has no offset yet */
            if (!from || !begun[from]) continue;
            m->from[b] = from;
            m->handed_on[from] = true;
        }
}

static void start(Placing *m, Lives *l, uint64_t bottom)
{
    Program *p = l->p;
    *m = (Placing){.l = l,
                   .p = p,
                   .scratch = l->scratch,
                   .lowest = bottom,
                   .bottom = bottom,
                   .fewest = UINT64_MAX};
    find_taken_over(m);
    m->in_use = arena_array(l->scratch, p->code.n, sizeof *m->in_use);
    m->tight = arena_array(l->scratch, p->code.n, sizeof *m->tight);
    uint64_t alive;
    m->held = lives_in_use(l, bottom, m->in_use, &alive);
    if (l->space == SPACE_device) {
        p->in_use = m->held;
        p->alive = alive;
    }
    m->periodic = placement_periodic(p);
    m->n_microbatches = placement_microbatches(p);
    m->of = arena_array(l->scratch, m->n_microbatches, sizeof *m->of);
    m->previous = arena_array(l->scratch, p->buffers.n, sizeof *m->previous);
}

/* Tries all methods and writes the best offsets to `best`. Returns the end of the highest buffer.
 * Returns UINT64_MAX if `must_repeat` is true and no method gives all micro-batches the same
 * offsets. */
static uint64_t try_ways(Placing *m, bool must_repeat, uint64_t *best)
{
    Program *p = m->p;
    uint64_t fewest = UINT64_MAX;
    m->fewest = UINT64_MAX;
    m->first_model = m->later_model = NULL;
    m->n_tried = 0;
    for (uint32_t k = 0; k < N_WAYS; k++) {
        bool repeats = true;
        m->way = &ways[k];
        if (!try_way(m, &repeats)) continue;
        const uint64_t bytes = end_of_all(m->l);
        if (!repeats && (must_repeat || m->fewest != UINT64_MAX || bytes >= fewest)) continue;
        fewest = bytes;
        if (repeats) m->fewest = bytes;
        for (BufferId b = 1; b < p->buffers.n; b++) best[b] = p->buffers.at[b].offset;
        if (repeats && bytes <= m->held + m->held / FINE) break;
    }
    return fewest;
}

/* True if slots are used. This requires some micro-batches after the pipeline is full. The short
 * step from which a long step is made has enough of them, so that both are placed in the same
 * way. */
static bool takes_slots(Placing *m)
{
    slots_find(&m->slots, m->l, m->n_microbatches, m->lowest);
    if (m->n_microbatches >= m->slots.most + PLAN_BEHIND_FILLING - 1) return true;
    m->slots.slot = NULL;
    return false;
}

bool placement_follow(Lives *l, uint64_t bottom, const uint64_t *given, uint64_t *bytes)
{
    Placing m;
    start(&m, l, bottom);
    m.given = given;
    /* A joined gap counts as free only when all its parts are free. So the given bytes of a buffer
     * may seem to be taken. A second try then joins no gaps, which takes more time. */
    for (int k = 0; k < 2 && (k == 0 || m.taken); k++) {
        gaps_init(&m.gaps, bottom, m.scratch);
        if (k > 0) m.gaps.many = UINT32_MAX;
        m.taken = false;
        place_all(&m);
    }
    for (BufferId b = 1; b < m.p->buffers.n; b++)
        m.taken |= l->taken_over[b] && m.p->buffers.at[b].offset != given[b];
    *bytes = end_of_all(l);
    return !m.taken;
}

uint64_t placement_choose(Lives *l, uint64_t bottom, bool in_slots, bool *repeats)
{
    Program *p = l->p;
    Placing m;
    start(&m, l, bottom);
    uint64_t *best = arena_array(l->scratch, p->buffers.n, sizeof *best), bytes = UINT64_MAX;
    if (in_slots && !m.periodic && takes_slots(&m)) {
        m.periodic = true;
        m.bottom = m.slots.end;
        bytes = try_ways(&m, true, best);
        if (bytes > m.held + m.held / SLOTS_MAY_COST) bytes = UINT64_MAX;
    }
    if (bytes == UINT64_MAX) {
        m.slots.slot = NULL;
        m.periodic = placement_periodic(p);
        m.bottom = bottom;
        bytes = try_ways(&m, false, best);
    }
    *repeats = m.periodic && m.fewest != UINT64_MAX;
    for (BufferId b = 1; b < p->buffers.n; b++) p->buffers.at[b].offset = best[b];
    return bytes;
}
