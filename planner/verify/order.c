/* Finds which instructions have finished before others start, by vector clocks (private.h explains
 * the clocks and their lanes). Then it finds races: if two instructions use the same bytes and one
 * of them writes, one must have finished before the other starts. For each range of bytes, the last
 * writer and the last readers are stored. */
#include <assert.h>
#include <string.h>

#include "planner/verify/private.h"

enum { MAX_LANES_PER_STREAM = 32 };

static void count_lanes(const Program *p, uint32_t most[STREAM_COUNT])
{
    uint32_t launch[STREAM_COUNT] = {0}, n[STREAM_COUNT] = {0};
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        int s = (int)in->stream;
        n[s] = in->launch && in->launch == launch[s] ? n[s] + 1 : 1;
        launch[s] = in->launch;
        if (n[s] > most[s]) most[s] = n[s] < MAX_LANES_PER_STREAM ? n[s] : MAX_LANES_PER_STREAM;
    }
}

static void join(Pc *into, const Pc *from, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        if (from[k] > into[k]) into[k] = from[k];
}

void verify_order(Verifier *v)
{
    const Program *p = v->p;
    HappensBefore *o = &v->order;
    uint32_t most[STREAM_COUNT] = {0}, n = p->code.n;
    count_lanes(p, most);
    o->n_lanes = 0;
    o->any_vague = false;
    for (int s = 0; s < STREAM_COUNT; s++) {
        o->first_lane[s] = o->n_lanes;
        o->n_lanes += most[s];
    }
    uint32_t lanes = o->n_lanes;
    o->lane = arena_array(v->arena, n, sizeof *o->lane);
    o->vague = arena_array(v->arena, n, sizeof *o->vague);
    o->clock = arena_array(v->arena, (size_t)n * lanes + 1, sizeof *o->clock);
    Pc *done = arena_array(v->arena, STREAM_COUNT * (size_t)lanes + 1, sizeof *done);
    Pc *group = arena_array(v->arena, STREAM_COUNT * (size_t)lanes + 1, sizeof *group);
    uint32_t launch[STREAM_COUNT] = {0}, index[STREAM_COUNT] = {0};
    for (Pc pc = 1; pc < n; pc++) {
        const Instr *in = &p->code.at[pc];
        uint32_t s = in->stream;
        Pc *before = done + s * lanes, *now = o->clock + (size_t)pc * lanes;
        if (!in->launch || in->launch != launch[s]) { /* the whole previous group has finished */
            memcpy(before, group + s * lanes, lanes * sizeof *before);
            launch[s] = in->launch;
            index[s] = 0;
        } else {
            index[s]++;
        }
        o->vague[pc] = index[s] >= MAX_LANES_PER_STREAM;
        o->any_vague = o->any_vague || o->vague[pc];
        o->lane[pc] = o->first_lane[s] + (o->vague[pc] ? MAX_LANES_PER_STREAM - 1 : index[s]);
        memcpy(now, before, lanes * sizeof *now);
        for (uint32_t k = 0; k < in->after.n; k++) {
            Pc from = p->after.at[in->after.first + k];
            join(now, o->clock + (size_t)from * lanes, lanes);
            if (!o->vague[from] && now[o->lane[from]] < from) now[o->lane[from]] = from;
        }
        join(group + s * lanes, now, lanes);
        if (!o->vague[pc]) group[s * lanes + o->lane[pc]] = pc;
    }
}

bool order_before(const HappensBefore *o, Pc a, Pc b)
{
    const Pc *clock = o->clock + (size_t)b * o->n_lanes;
    if (!o->vague[a]) return clock[o->lane[a]] >= a;
    /* true if a later launch group of a's stream has finished */
    return clock[o->lane[a] - (MAX_LANES_PER_STREAM - 1)] > a;
}

/* True if, on each lane, the instruction `of_lane` has finished when b starts. It may return false
 * although all have finished; the caller then checks the instructions one by one. */
static bool all_before(const HappensBefore *o, const Pc *of_lane, Pc b)
{
    const Pc *clock = o->clock + (size_t)b * o->n_lanes;
    uint32_t late = o->any_vague;
    for (uint32_t k = 0; k < o->n_lanes; k++) late |= (uint32_t)(clock[k] < of_lane[k]);
    return late == 0;
}

bool verify_ends_in_order(const Plan *plan)
{
    if (plan->programs.n != 1) return false;
    const Program *p = &plan->programs.at[0];
    /* [stream]: the first instruction of its newest launch group (communications that start
     * together, or a single instruction) */
    Pc first[STREAM_COUNT] = {0};
    uint32_t launch[STREAM_COUNT] = {0};
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (verify_is_p2p(in)) return false;
        if (!in->launch || in->launch != launch[in->stream]) first[in->stream] = pc;
        launch[in->stream] = in->launch;
        for (uint32_t k = 0; k < in->after.n; k++)
            if (p->after.at[in->after.first + k] >= first[in->stream]) return false;
    }
    return true;
}

/* ---- races ---- */

typedef struct Touch { /* the data stored for a range of bytes: the last writer, followed by
                          reader[lane] */
    uint32_t state;
    Pc writer;
    BufferId root; /* the root buffer that was written */
} Touch;
enum { TOUCH_empty, TOUCH_initial, TOUCH_written };

typedef struct ClockSweep {
    Verifier *v;
    RangeMap map;
    unsigned char *fresh; /* memory for one Touch */
    Pc *newest;           /* [root * lanes]: the newest instruction that used any byte of the
                             buffer */
    BufferId *heir;       /* [root]: the buffer that has taken its bytes; 0: none */
    uint64_t *lo;         /* [buffer]: its address */
    BufferId *root;       /* [buffer] */
    /* [root]: has_views: some access is to a part of its bytes. is_known: every access is to all
     * its bytes, and `map` says that they belong to this buffer. Then `writer` [root] and `newest`
     * replace the map. */
    bool *has_views, *is_known;
    Pc *writer;
    bool by_root; /* true if races are sought by root buffer, with is_known */
    bool failed;  /* a check by root failed */
} ClockSweep;

static Pc *readers(Touch *t)
{
    return (Pc *)(void *)(t + 1);
}

static void report_race(const ClockSweep *s, Pc a, Pc b, const char *how, BufferId buffer)
{
    const Instr *in = &s->v->p->code.at[a];
    verify_report(s->v, "verify-race", b,
                  "%s bytes of buffer %u that instruction %u %s %s uses, too, but neither waits "
                  "for the other",
                  how, buffer, a, stream_name(in->stream), op_info(in->op)->name);
}

/* Reports an instruction that uses a buffer after another buffer has taken its bytes. */
static void touch_root(ClockSweep *s, Pc pc, BufferId root)
{
    s->newest[(size_t)root * s->v->order.n_lanes + s->v->order.lane[pc]] = pc;
    if (!s->heir[root]) return;
    verify_report(s->v, "verify-race", pc,
                  "uses buffer %u, but some of its bytes already belong to buffer %u", root,
                  s->heir[root]);
    s->heir[root] = 0;
}

/* Checks that buffer `root` may take bytes of buffer `from`: `from` must not keep its value, and
 * all its users must have finished when pc starts. */
static void inherit(ClockSweep *s, Pc pc, BufferId from, BufferId root)
{
    const HappensBefore *o = &s->v->order;
    const Buffer *taken = &s->v->p->buffers.at[from];
    if (taken->persistent || taken->result)
        verify_report(s->v, "verify-race", pc, "overwrites buffer %u, which %s", from,
                      taken->persistent ? "must keep its value between steps"
                                        : "is a result of the step");
    const Pc *newest = s->newest + (size_t)from * o->n_lanes;
    const uint32_t kernel = s->v->p->code.at[pc].fuse;
    const bool told = !kernel && all_before(o, newest, pc);
    for (uint32_t k = 0; k < o->n_lanes && !told; k++) {
        Pc other = newest[k];
        if (!other || other == pc) continue;
        /* the instructions of a kernel process rows in any order */
        const bool split = kernel && s->v->p->code.at[other].fuse == kernel;
        if (order_before(o, other, pc) && (!split || verify_alike(s->v->p, from, root))) continue;
        report_race(s, other, pc, "takes", from);
        break;
    }
    s->heir[from] = root;
}

/* Checks an access to all bytes of a buffer. A write waits for all earlier accesses. (An access
 * before the last write finished before that write.) */
static void access_root(ClockSweep *s, Pc pc, BufferId root, bool writes)
{
    const HappensBefore *o = &s->v->order;
    const Pc *clock = o->clock + (size_t)pc * o->n_lanes,
             *newest = s->newest + (size_t)root * o->n_lanes, last = s->writer[root];
    uint32_t late = 0;
    if (writes) {
        for (uint32_t k = 0; k < o->n_lanes; k++)
            late |= (uint32_t)(clock[k] < newest[k]) & (uint32_t)(newest[k] != pc);
        s->writer[root] = pc;
    } else if (last && last != pc) {
        late = clock[o->lane[last]] < last;
    }
    if (late) s->failed = true;
    touch_root(s, pc, root);
}

static void read_range(ClockSweep *s, Pc pc, BufferId b)
{
    const uint64_t lo = s->lo[b], hi = lo + s->v->p->buffers.at[b].bytes;
    if (lo == hi) return;
    const BufferId root = s->root[b];
    if (s->is_known[root]) {
        access_root(s, pc, root, false);
        return;
    }
    touch_root(s, pc, root);
    RangeAt at = range_cut(&s->map, lo, hi);
    Pc reported = 0;
    bool empty = false;
    do {
        Touch *t = range_payload(&s->map, at);
        if ((t->state == TOUCH_empty || t->root != root) && !empty) {
            empty = true;
            if (t->state == TOUCH_empty)
                verify_report(s->v, "verify-read-before-write", pc,
                              "reads bytes of buffer %u that no instruction wrote", b);
            else
                verify_report(s->v, "verify-read-before-write", pc,
                              "reads bytes of buffer %u that were overwritten by buffer %u", b,
                              t->root);
        }
        if (t->state == TOUCH_written && t->writer != pc && t->writer != reported &&
            !order_before(&s->v->order, t->writer, pc)) {
            report_race(s, t->writer, pc, "reads", b);
            reported = t->writer;
        }
        readers(t)[s->v->order.lane[pc]] = pc;
    } while (range_next(&s->map, &at) && range_lo(&s->map, at) < hi);
}

static void write_range(ClockSweep *s, Pc pc, BufferId b)
{
    const HappensBefore *o = &s->v->order;
    const uint64_t lo = s->lo[b], hi = lo + s->v->p->buffers.at[b].bytes;
    if (lo == hi) return;
    BufferId root = s->root[b], from = root;
    if (s->is_known[root]) {
        access_root(s, pc, root, true);
        return;
    }
    RangeAt at = range_find(&s->map, lo);
    Pc reported = 0;
    touch_root(s, pc, root);
    do {
        Touch *t = range_payload(&s->map, at);
        if (t->state != TOUCH_empty && t->root != root && t->root != from)
            inherit(s, pc, from = t->root, root);
        if (t->root == from && s->is_known[from]) continue; /* all its accesses were checked */
        Pc other = t->state == TOUCH_written ? t->writer : 0;
        if ((!other || order_before(o, other, pc)) && all_before(o, readers(t), pc)) continue;
        for (uint32_t k = 0; k <= o->n_lanes; k++) {
            if (other && other != pc && other != reported && !order_before(o, other, pc)) {
                report_race(s, other, pc, "writes", b);
                reported = other;
            }
            other = k < o->n_lanes ? readers(t)[k] : 0;
        }
    } while (range_next(&s->map, &at) && range_lo(&s->map, at) < hi);
    Touch *fresh = (Touch *)(void *)s->fresh;
    *fresh = (Touch){TOUCH_written, pc, root};
    range_assign(&s->map, lo, hi, fresh);
    s->is_known[root] = s->by_root && !s->has_views[root];
    s->writer[root] = pc;
}

/* True if output j may lie in the bytes of input i: they must be exactly the same bytes, and the op
 * must allow this. */
static bool may_share(const ClockSweep *s, const Instr *in, uint32_t i, uint32_t j)
{
    const Verifier *v = s->v;
    const BufferId a = program_arg(v->p, in, i), b = program_arg(v->p, in, in->n_in + j);
    if (s->lo[a] != s->lo[b] || v->p->buffers.at[a].bytes != v->p->buffers.at[b].bytes)
        return false;
    uint32_t flags = op_info(in->op)->flags;
    if (flags & OP_UPDATES) return i == j;
    if (verify_accumulates(v, in, j)) return false;
    return in->op == OP_all_reduce || (flags & OP_IN_PLACE && i == 0 && j == 0);
}

static void check_overlap_within(const ClockSweep *s, Pc pc)
{
    Verifier *v = s->v;
    const Instr *in = &v->p->code.at[pc];
    uint64_t lo[MAX_ARGS], hi[MAX_ARGS];
    for (uint32_t i = 0; i < in->args.n; i++) {
        BufferId b = program_arg(v->p, in, i);
        lo[i] = s->lo[b];
        hi[i] = lo[i] + v->p->buffers.at[b].bytes;
    }
    for (uint32_t j = in->n_in; j < in->args.n; j++)
        for (uint32_t i = 0; i < j; i++) {
            if (lo[i] >= hi[j] || lo[j] >= hi[i]) continue;
            if (i < in->n_in && may_share(s, in, i, j - in->n_in)) continue;
            verify_report(v, "verify-race", pc, "%s %u and output %u overlap",
                          i < in->n_in ? "input" : "output", i < in->n_in ? i : i - in->n_in,
                          j - in->n_in);
        }
}

bool *verify_has_views(const Program *p, Arena *arena)
{
    bool *has = arena_array(arena, p->buffers.n, sizeof *has);
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const Buffer *at = &p->buffers.at[b], *parent = &p->buffers.at[at->parent];
        if (at->parent && (at->offset || at->bytes != parent->bytes)) has[at->parent] = true;
    }
    return has;
}

static ClockSweep sweep_new(Verifier *v, bool by_root)
{
    const Program *p = v->p;
    ClockSweep s = {.v = v, .by_root = by_root};
    const size_t size = sizeof(Touch) + v->order.n_lanes * sizeof(Pc);
    range_map_init(&s.map, v->arena, size);
    s.fresh = arena_alloc(v->arena, size);
    s.newest = arena_array(v->arena, (size_t)p->buffers.n * v->order.n_lanes + 1, sizeof *s.newest);
    s.heir = arena_array(v->arena, p->buffers.n, sizeof *s.heir);
    s.lo = arena_array(v->arena, p->buffers.n, sizeof *s.lo);
    s.root = arena_array(v->arena, p->buffers.n, sizeof *s.root);
    s.has_views = verify_has_views(p, v->arena);
    s.is_known = arena_array(v->arena, p->buffers.n, sizeof *s.is_known);
    s.writer = arena_array(v->arena, p->buffers.n, sizeof *s.writer);
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const BufferId parent = p->buffers.at[b].parent;
        s.lo[b] = verify_address(p, b);
        s.root[b] = parent ? parent : b; /* no view is inside another view */
    }
    return s;
}

/* Reports races. Returns true if there are none. */
static bool check_races(Verifier *v, bool by_root)
{
    const Program *p = v->p;
    ClockSweep s = sweep_new(v, by_root);
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const Buffer *at = &p->buffers.at[b];
        if (at->parent || !at->persistent || !at->bytes) continue;
        uint64_t lo = verify_address(p, b);
        RangeAt there = range_find(&s.map, lo);
        do {
            if (((Touch *)range_payload(&s.map, there))->state != TOUCH_empty) {
                verify_report(v, "verify-race", 0,
                              "buffer %u shares bytes with another buffer, and both keep values "
                              "between steps",
                              b);
                break;
            }
        } while (range_next(&s.map, &there) && range_lo(&s.map, there) < lo + at->bytes);
        *(Touch *)(void *)s.fresh = (Touch){TOUCH_initial, 0, b};
        range_assign(&s.map, lo, lo + at->bytes, s.fresh);
        s.is_known[b] = by_root && !s.has_views[b];
    }
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        for (uint32_t i = 0; i < in->args.n; i++)
            if (i < in->n_in || verify_accumulates(v, in, i - in->n_in))
                read_range(&s, pc, program_arg(p, in, i));
        for (uint32_t i = in->n_in; i < in->args.n; i++) write_range(&s, pc, program_arg(p, in, i));
        check_overlap_within(&s, pc);
    }
    return !s.failed && v->n_reported == 0;
}

/* Most buffers are only accessed as a whole, so races are first sought buffer by buffer, without
 * reports. If there is one, the search is repeated byte by byte, with reports. */
void verify_races(Verifier *v)
{
    Diag unheard = diag_in(v->arena);
    Verifier quiet = *v;
    quiet.d = &unheard;
    quiet.n_reported = 0;
    if (!v->by_root || v->order.any_vague || !check_races(&quiet, true)) check_races(v, false);
}
