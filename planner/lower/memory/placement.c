/* Chooses offsets: an allocator runs in program order with several methods, and the best result is
 * kept. No method is the best for all programs. The holes that stay open depend on the buffers that
 * are alive when the large ones are placed. Each method is one pass over the program, so planning
 * takes linear time. */
#include "planner/lower/memory/placement.h"

#include <assert.h>
#include <string.h>

#include "planner/lower/memory/rocks.h"
#include "planner/lower/pieces.h"

typedef enum Fit {
    FIT_first,    /* the lowest hole */
    FIT_tightest, /* the smallest hole that fits */
    /* the lowest hole that leaves room for large buffers, whose places are fixed first */
    FIT_around
} Fit;

typedef struct PlacementWay {
    Fit fit;
    /* FIT_around: a buffer is large if it has at least 1/share of the most bytes in use, and is in
     * use while at least the fraction `full` of these bytes is in use. */
    uint32_t share;
    double full;
} PlacementWay;

/* Each method is the best one for some plans of scripts/plans or their variations. The first
 * methods suffice for most plans. */
static const PlacementWay ways[] = {{FIT_first, 0, 0},   {FIT_around, 128, 0}, {FIT_around, 256, 0},
                                    {FIT_around, 32, 0}, {FIT_around, 64, .9}, {FIT_around, 32, .9},
                                    {FIT_tightest, 0, 0}};
enum { N_WAYS = sizeof ways / sizeof *ways };

/* No further pass is made to save less than 1/FINE of the arena. */
enum { FINE = 96 };

typedef LIST(BufferId) BufferList;

typedef struct Placing {
    Lives *l;
    Program *p;
    Arena *scratch;
    const PlacementWay *way;
    Pieces pieces;
    Rocks rocks;
    /* held: the most bytes in use at once. fewest: the least bytes so far of a method in which
     * micro-batches repeat */
    uint64_t bottom, held, fewest;
    uint64_t *in_use;   /* [pc]: bytes in use when it runs */
    uint32_t *tight;    /* [pc]: see RocksWanted */
    BufferList *of;     /* [micro-batch]: buffers in the order in which they begin */
    BufferList *before; /* [micro-batch]: the same list in the previous round */
    uint32_t *next;     /* [micro-batch]: position in the list of its counterpart */
    uint64_t *wish;     /* [buffer]: its offset in the previous round */
    uint32_t n_microbatches;
    bool periodic;
    bool again; /* a later round */
} Placing;

/* True if two buffers have the same purpose in their micro-batches. */
static bool same_part(const Program *p, BufferId a, BufferId b)
{
    const Buffer *x = &p->buffers.at[a], *y = &p->buffers.at[b];
    const Instr *i = &p->code.at[x->first], *k = &p->code.at[y->first];
    return x->shape == y->shape && x->bytes == y->bytes && x->tensor == y->tensor &&
           x->unit == y->unit && x->category == y->category && i->op == k->op &&
           i->stream == k->stream && i->origin == k->origin && i->phase == k->phase;
}

/* Returns the buffer of `model` with the same purpose as `b`; 0: none. Both lists have the same
 * order, apart from a few buffers that only some micro-batches have. */
static BufferId counterpart(const Program *p, const BufferList *model, uint32_t *next, BufferId b)
{
    enum { LOOK_AHEAD = 16 };
    for (uint32_t i = *next; i < model->n && i < *next + LOOK_AHEAD; i++) {
        if (!same_part(p, model->at[i], b)) continue;
        *next = i + 1;
        return model->at[i];
    }
    return 0;
}

/* Returns the number of an interior micro-batch from which on offsets no longer change. It does not
 * depend on the number of micro-batches, so further micro-batches do not change any offset. */
static uint32_t settled(const Placing *m)
{
    enum { SETTLED = 4 };
    return m->n_microbatches - 2 < SETTLED ? m->n_microbatches - 2 : SETTLED;
}

/* Returns the buffer whose offset `b` tries first, so that interior micro-batches repeat: its
 * counterpart in the previous micro-batch. In a later round it is the counterpart in a settled
 * micro-batch of the previous round. */
static BufferId asks_like(Placing *m, uint32_t microbatch, BufferId b)
{
    if (!m->periodic) return 0;
    list_push(m->scratch, &m->of[microbatch], b);
    uint32_t *next = &m->next[microbatch];
    if (m->again) return counterpart(m->p, &m->before[settled(m)], next, b);
    if (microbatch < 2) return 0;
    return counterpart(m->p, &m->of[microbatch - 1], next, b);
}

static uint64_t fit(Placing *m, BufferId b, const Knowledge *now)
{
    const uint64_t size = pieces_round(m->p->buffers.at[b].bytes);
    const Rocks *rocks = &m->rocks;
    switch (m->way->fit) {
    case FIT_first: break;
    case FIT_tightest: return pieces_take_tightest(&m->pieces, size, now);
    case FIT_around:
        if (rocks->of[b] && pieces_take_at(&m->pieces, rocks_offset(rocks, b), size, now))
            return rocks_offset(rocks, b);
        rocks_ahead(&m->rocks, b);
        return pieces_take(&m->pieces, size, now, rocks->ahead.at, rocks->ahead.n);
    }
    return pieces_take(&m->pieces, size, now, NULL, 0);
}

static uint64_t place(Placing *m, BufferId b, Pc pc)
{
    const Knowledge now = lives_knows(m->l, pc);
    const BufferId like = asks_like(m, m->p->code.at[pc].microbatch, b);
    if (!like) return fit(m, b, &now);
    const uint64_t wish = m->again ? m->wish[like] : m->p->buffers.at[like].offset;
    const uint64_t size = pieces_round(m->p->buffers.at[b].bytes);
    if (pieces_take_at(&m->pieces, wish, size, &now)) return wish;
    return fit(m, b, &now);
}

/* Returns false if the result does not need fewer bytes than the best so far. */
static bool place_all(Placing *m)
{
    Lives *l = m->l;
    Program *p = m->p;
    bool *handed_on = arena_array(m->scratch, p->buffers.n, sizeof *handed_on);
    bool *is_placed = arena_array(m->scratch, p->buffers.n, sizeof *is_placed);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        for (BufferId b = l->starts[pc]; b; b = l->next_start[b]) {
            Buffer *at = &p->buffers.at[b];
            BufferId from = l->taken_over[b];
            if (from && !is_placed[from]) from = 0; /* a later part of the same kernel makes it */
            is_placed[b] = true;
            at->offset = from ? p->buffers.at[from].offset : place(m, b, pc);
            if (from) handed_on[from] = true;
        }
        if (m->pieces.top >= m->fewest) return false;
        const Knowledge now = lives_knows(l, pc);
        for (BufferId b = l->ends[pc]; b; b = l->next_end[b])
            if (!handed_on[b] && p->buffers.at[b].bytes)
                pieces_give(&m->pieces, p->buffers.at[b].offset,
                            pieces_round(p->buffers.at[b].bytes), l->end[b], &now);
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
    return newest + 1 >= 4; /* two interior micro-batches */
}

bool placement_repeats(const Program *p, Arena *scratch)
{
    const uint32_t n = placement_microbatches(p);
    uint64_t *sum = arena_array(scratch, n, sizeof *sum);
    uint32_t *count = arena_array(scratch, n, sizeof *count);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        for (uint32_t i = 0; i < in->args.n; i++) {
            uint64_t offset;
            program_root(p, program_arg(p, in, i), &offset);
            sum[in->microbatch] = sum[in->microbatch] * UINT64_C(0x9e3779b97f4a7c15) + offset + 1;
            count[in->microbatch]++;
        }
    }
    for (uint32_t k = 1; k + 2 < n; k++)
        if (count[k] == count[n - 2] && sum[k] != sum[n - 2]) return false;
    return true;
}

static bool find_rocks(Placing *m)
{
    const double full = m->way->full * (double)m->held;
    const RocksWanted wanted = {.least = m->held / m->way->share,
                                .n_microbatches = m->periodic ? 3 : UINT32_MAX,
                                .tight = m->way->full > 0 ? m->tight : NULL};
    for (Pc pc = 1; wanted.tight && pc < m->p->code.n; pc++)
        m->tight[pc] = m->tight[pc - 1] + ((double)m->in_use[pc] >= full);
    return rocks_find(&m->rocks, m->l, &wanted, m->bottom);
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

/* Tries one method, in rounds until micro-batches repeat. Returns false if it is not better. */
static bool try_way(Placing *m, bool *repeats)
{
    enum { ROUNDS = 6 };
    if (m->way->fit == FIT_around && !find_rocks(m)) return false;
    for (int round = 0; round < ROUNDS; round++) {
        m->again = round > 0;
        pieces_init(&m->pieces, m->bottom, m->scratch);
        for (uint32_t k = 0; k < m->n_microbatches; k++) {
            const BufferList spared = m->before[k];
            m->before[k] = m->of[k];
            m->of[k] = spared;
            m->of[k].n = m->next[k] = 0;
        }
        m->rocks.next = 0;
        for (BufferId b = 1; b < m->p->buffers.n; b++) m->wish[b] = m->p->buffers.at[b].offset;
        if (!place_all(m)) return false;
        *repeats = !m->periodic || placement_repeats(m->p, m->scratch);
        if (*repeats) return true;
    }
    return true;
}

static void start(Placing *m, Lives *l, uint64_t bottom)
{
    Program *p = l->p;
    *m = (Placing){.l = l, .p = p, .scratch = l->scratch, .bottom = bottom, .fewest = UINT64_MAX};
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
    m->before = arena_array(l->scratch, m->n_microbatches, sizeof *m->before);
    m->next = arena_array(l->scratch, m->n_microbatches, sizeof *m->next);
    m->wish = arena_array(l->scratch, p->buffers.n, sizeof *m->wish);
}

uint64_t placement_choose(Lives *l, uint64_t bottom)
{
    Program *p = l->p;
    Placing m;
    start(&m, l, bottom);
    uint64_t *best = arena_array(l->scratch, p->buffers.n, sizeof *best), fewest = UINT64_MAX;
    for (uint32_t k = 0; k < N_WAYS; k++) {
        bool repeats = true;
        m.way = &ways[k];
        if (!try_way(&m, &repeats)) continue;
        const uint64_t bytes = end_of_all(l);
        if (!repeats && (m.fewest != UINT64_MAX || bytes >= fewest)) continue;
        fewest = bytes;
        if (repeats) m.fewest = bytes;
        for (BufferId b = 1; b < p->buffers.n; b++) best[b] = p->buffers.at[b].offset;
        if (repeats && bytes <= m.held + m.held / FINE) break;
    }
    for (BufferId b = 1; b < p->buffers.n; b++) p->buffers.at[b].offset = best[b];
    return fewest;
}
