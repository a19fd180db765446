/* See torch_tape.h. A period lasts from the backward work of one micro-batch to that of the next.
 * Two successive periods are equal if each event of the second one does for the next micro-batch
 * the same as in the first one: it allocates the same size, or releases the same allocation. An
 * allocation is identified by its micro-batch, and by its place among all allocations of that
 * micro-batch.
 *
 * If M micro-batches have memory at one time, they use it in turn. So the states of the allocator
 * are compared M periods apart. Suppose that it has the same blocks at the same addresses, now for
 * micro-batches M later. Then the next M equal periods will do the same as the last M. They bring
 * the allocator to this state again, and reach no new peak. So any multiple of M equal periods may
 * be left out: only the names of the allocations change. */
#include "sim/memory/torch_tape.h"

TorchTape *torch_tape_new(uint32_t n, Arena *arena)
{
    TorchTape *t = arena_alloc(arena, sizeof *t);
    *t = (TorchTape){.arena = arena};
    list_reserve(arena, &t->events, n);
    return t;
}

/* ---- equal periods */

/* True if event y does for the next micro-batch the same as event x. */
static bool is_next(const TorchTape *t, uint32_t x, uint32_t y)
{
    const TapeEvent *all = t->events.at;
    if (!all[x].of != !all[y].of) return false;
    if (all[x].of != 0) x = all[x].of - 1, y = all[y].of - 1;
    const TapeEvent *a = &all[x], *b = &all[y];
    return a->bytes == b->bytes && a->stream == b->stream && t->place[x] == t->place[y] &&
           a->microbatch + 1 == b->microbatch && !a->only_first && !b->only_first;
}

/* True if periods k and k + 1 are equal. */
static bool periods_equal(const TorchTape *t, uint32_t k)
{
    const uint32_t *begin = &t->begins.at[k], n = begin[1] - begin[0];
    if (begin[2] - begin[1] != n) return false;
    for (uint32_t i = 0; i < n; i++)
        if (!is_next(t, begin[0] + i, begin[1] + i)) return false;
    return true;
}

static void name_allocations(TorchTape *t)
{
    const TapeEvent *all = t->events.at;
    for (uint32_t i = 0; i < t->events.n; i++)
        if (all[i].microbatch >= t->n_microbatches) t->n_microbatches = all[i].microbatch + 1;
    t->made = arena_array(t->arena, t->n_microbatches, sizeof *t->made);
    t->place = arena_array(t->arena, t->events.n, sizeof *t->place);
    t->until = arena_array(t->arena, t->events.n, sizeof *t->until);
    for (uint32_t i = 0; i < t->events.n; i++) {
        t->until[i] = UINT32_MAX;
        if (all[i].of != 0) {
            t->until[all[i].of - 1] = i;
            continue;
        }
        EventNumbers *made = &t->made[all[i].microbatch];
        t->place[i] = made->n;
        list_push(t->arena, made, i);
    }
}

/* True if some periods may be left out. The micro-batches that begin before all backward work use
 * their memory in turn, so there must be more than twice as many periods as such micro-batches.
 * Also, a period in the middle must have as many releases as allocations, or no state occurs
 * again. */
static bool may_repeat(const TorchTape *t)
{
    const uint32_t n = t->begins.n, middle = n / 2;
    uint32_t n_alive = 0, balance = 0;
    if (n < 2) return false;
    for (uint32_t i = 0; i < t->begins.at[0]; i++) {
        const TapeEvent *e = &t->events.at[i];
        if (e->of == 0 && e->microbatch >= n_alive) n_alive = e->microbatch + 1;
    }
    for (uint32_t i = t->begins.at[middle - 1]; i < t->begins.at[middle]; i++)
        balance += t->events.at[i].of == 0 ? 1 : UINT32_MAX; /* UINT32_MAX stands for -1 */
    return n > 2 * n_alive + 1 && balance == 0;
}

void torch_tape_find_periods(TorchTape *t)
{
    EqualPeriods *best = &t->equal;
    if (!may_repeat(t)) return;
    name_allocations(t);
    for (uint32_t k = 0, first = 0; k + 2 < t->begins.n; k++) {
        if (!periods_equal(t, k))
            first = k + 1;
        else if (k + 2 - first > best->end - best->first)
            *best = (EqualPeriods){first, k + 2};
    }
}

/* ---- playing */

typedef struct TapePlayer {
    const TorchTape *tape;
    TorchAllocator *allocator;
    Arena *scratch;
    bool first, knows;   /* knows: event_of is kept up to date */
    uint32_t *block_of;  /* [event]: the block of an allocation */
    EventNumbers blocks; /* memory of block_of, which need not be cleared */
    EventNumbers
        event_of; /* [block]: 1 + index of the event that allocated it; 0: it is not on the tape */
} TapePlayer;

static void play(TapePlayer *p, uint32_t from, uint32_t to)
{
    const TapeEvent *events = p->tape->events.at;
    for (uint32_t i = from; i < to; i++) {
        const TapeEvent *e = &events[i];
        if (!p->first && (e->of ? &events[e->of - 1] : e)->only_first) continue;
        if (e->of != 0) {
            torch_release(p->allocator, p->block_of[e->of - 1]);
            continue;
        }
        const uint32_t id = torch_allocate(p->allocator, e->bytes, e->stream);
        p->block_of[i] = id;
        if (!p->knows) continue;
        while (p->event_of.n <= id) list_add(p->scratch, &p->event_of);
        p->event_of.at[id] = i + 1;
    }
}

/* Returns 1 + the index of the event that allocated a block. Returns 0 if this event is not on the
 * tape, or if the block lives from before all equal periods until after them. */
static uint32_t made_by(const TapePlayer *p, uint32_t id)
{
    const TorchTape *t = p->tape;
    const uint32_t event = id < p->event_of.n ? p->event_of.at[id] : 0;
    if (event == 0) return 0;
    const bool fixed = event - 1 < t->begins.at[t->equal.first] &&
                       t->until[event - 1] >= t->begins.at[t->equal.end];
    return fixed ? 0 : event;
}

/* The state of an allocator at the beginning of period k. sum: two sums over hashes of its blocks.
 * A hash counts micro-batches from k, so states that differ only in the micro-batches are equal. */
typedef struct AllocatorState {
    uint64_t sum[2];
    TorchStats stats;
    uint32_t
        n_alive; /* number of micro-batches from k up to the last one that has memory; at least 1 */
} AllocatorState;

static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static AllocatorState state_at(const TapePlayer *p, uint32_t k)
{
    AllocatorState s = {.stats = torch_stats(p->allocator), .n_alive = 1};
    TorchPlace at;
    for (uint32_t id = 1; torch_place(p->allocator, id, &at); id++) {
        if (at.bytes == 0) continue;
        const uint32_t event = at.used ? made_by(p, id) : 0;
        uint64_t name = at.used ? (uint64_t)id << 2 | 1 : 0;
        if (event != 0) {
            /* micro-batches are counted from k; those before k count backwards from 2^32 */
            const uint32_t from_k = p->tape->events.at[event - 1].microbatch - k;
            name = (uint64_t)from_k << 32 | (uint64_t)p->tape->place[event - 1] << 2 | 2;
            if (from_k < INT32_MAX && from_k + 1 > s.n_alive) s.n_alive = from_k + 1;
        }
        const uint64_t h = mixed(at.address + mixed(at.bytes + mixed(name << 1 | at.unmapped)));
        s.sum[0] += h;
        s.sum[1] += mixed(h + UINT64_C(0x9e3779b97f4a7c15));
    }
    return s;
}

static bool states_equal(const AllocatorState *x, const AllocatorState *y)
{
    return x->sum[0] == y->sum[0] && x->sum[1] == y->sum[1] && x->n_alive == y->n_alive &&
           x->stats.allocated == y->stats.allocated && x->stats.reserved == y->stats.reserved &&
           x->stats.n_retries == y->stats.n_retries && x->stats.n_segments == y->stats.n_segments;
}

/* Returns the index of the event that corresponds to `event` for the micro-batch that is n later.
 * Returns UINT32_MAX if there is none. */
static uint32_t later(const TorchTape *t, uint32_t event, uint32_t n)
{
    const uint32_t microbatch = t->events.at[event].microbatch + n, place = t->place[event];
    if (microbatch >= t->n_microbatches || place >= t->made[microbatch].n) return UINT32_MAX;
    return t->made[microbatch].at[place];
}

/* True if each allocation that is alive at period k corresponds (see later()) to one that is alive
 * n periods later. */
static bool may_leap(const TapePlayer *p, uint32_t k, uint32_t n)
{
    const TorchTape *t = p->tape;
    const uint32_t to = t->begins.at[k + n];
    TorchPlace at;
    for (uint32_t id = 1; torch_place(p->allocator, id, &at); id++) {
        const uint32_t event = at.used ? made_by(p, id) : 0;
        if (event == 0) continue;
        const uint32_t other = later(t, event - 1, n);
        if (other >= to || t->until[other] < to || t->events.at[other].only_first ||
            t->events.at[other].bytes != t->events.at[event - 1].bytes)
            return false;
    }
    return true;
}

/* Gives each block to the allocation that has it n periods later. */
static void leap(TapePlayer *p, uint32_t n)
{
    TorchPlace at;
    for (uint32_t id = 1; torch_place(p->allocator, id, &at); id++) {
        const uint32_t event = at.used ? made_by(p, id) : 0;
        if (event == 0) continue;
        const uint32_t other = later(p->tape, event - 1, n);
        p->block_of[other] = id;
        p->event_of.at[id] = other + 1;
    }
}

/* Plays equal periods until the allocator repeats its state, and leaves out as many as possible of
 * the rest. Returns the next period; *n_left_out: how many were left out. */
static uint32_t play_periods(TapePlayer *p, uint32_t *n_left_out)
{
    const uint32_t *begin = p->tape->begins.at, end = p->tape->equal.end;
    uint32_t k = p->tape->equal.first;
    AllocatorState before = state_at(p, k);
    for (uint32_t n; (n = before.n_alive, k + 2 * n <= end);) {
        play(p, begin[k], begin[k + n]);
        k += n;
        const AllocatorState now = state_at(p, k);
        const uint32_t most = (end - k) / n * n;
        if (states_equal(&before, &now) && may_leap(p, k, most)) {
            leap(p, most);
            *n_left_out = most;
            return k + most;
        }
        before = now;
    }
    return k;
}

uint32_t torch_tape_play(const TorchTape *t, TorchAllocator *a, bool first)
{
    TapePlayer p = {.tape = t, .allocator = a, .scratch = arena_new(), .first = first};
    uint32_t from = 0, n_left_out = 0;
    list_reserve(p.scratch, &p.blocks, t->events.n);
    p.block_of = p.blocks.at;
    if (t->equal.end > t->equal.first) {
        p.knows = true;
        play(&p, 0, t->begins.at[t->equal.first]);
        from = t->begins.at[play_periods(&p, &n_left_out)];
        p.knows = false;
    }
    play(&p, from, t->events.n);
    arena_free(p.scratch);
    return n_left_out;
}
