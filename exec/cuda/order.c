/* Makes the order of issue. In it, each instruction comes after all instructions that it waits for,
 * and communications that start together are neighbours. An event must be recorded before another
 * stream can wait for it. The order of instruction numbers is not enough for this. Some
 * communications start together in a group, and a later one of them may wait for an instruction
 * whose number is larger than that of the first one. */
#include "exec/cuda/order.h"

#include <assert.h>
#include <string.h>

/* A heap of instructions, ordered by (first instruction of the launch, instruction). */
typedef struct PcHeap {
    Pc *at, *leader;
    uint32_t n;
} PcHeap;

static bool is_before(const PcHeap *h, Pc a, Pc b)
{
    return h->leader[a] != h->leader[b] ? h->leader[a] < h->leader[b] : a < b;
}

static void heap_push(PcHeap *h, Pc pc)
{
    uint32_t i = h->n++;
    for (; i > 0 && is_before(h, pc, h->at[(i - 1) / 2]); i = (i - 1) / 2)
        h->at[i] = h->at[(i - 1) / 2];
    h->at[i] = pc;
}

static Pc heap_pop(PcHeap *h)
{
    Pc top = h->at[0], last = h->at[--h->n];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= h->n) break;
        if (child + 1 < h->n && is_before(h, h->at[child + 1], h->at[child])) child++;
        if (!is_before(h, h->at[child], last)) break;
        h->at[i] = h->at[child];
        i = child;
    }
    h->at[i] = last;
    return top;
}

/* Finds, for each instruction, the first instruction of its launch, by following the streams. */
static void find_leaders(const Program *p, Pc *leader)
{
    Pc end[STREAM_COUNT] = {0};
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = program_instr(p, pc);
        Pc before = end[in->stream];
        bool joins =
            before != 0 && in->launch != 0 && program_instr(p, before)->launch == in->launch;
        leader[pc] = joins ? leader[before] : pc;
        end[in->stream] = pc;
    }
}

void order_make(const ProgramInfo *info, Arena *arena, IssueOrder *order)
{
    Arena *scratch = arena_new();
    uint32_t n = info->n_instr;
    *order = (IssueOrder){.pc = arena_array(arena, (size_t)n + 1, sizeof(Pc)),
                          .at = arena_array(arena, (size_t)n + 1, sizeof(uint32_t))};
    PcHeap heap = {.at = arena_array(scratch, (size_t)n + 1, sizeof(Pc)),
                   .leader = arena_array(scratch, (size_t)n + 1, sizeof(Pc))};
    uint32_t *n_before = arena_array(scratch, (size_t)n + 1, sizeof *n_before);
    memcpy(n_before, info->n_before, ((size_t)n + 1) * sizeof *n_before);
    find_leaders(info->p, heap.leader);
    for (Pc pc = 1; pc <= n; pc++)
        if (n_before[pc] == 0) heap_push(&heap, pc);
    while (heap.n > 0) {
        Pc first = heap_pop(&heap), leader = heap.leader[first];
        uint32_t from = order->n;
        order->pc[order->n++] = first;
        /* all members of a launch wait for the same instructions, so all of them are in the heap */
        while (heap.n > 0 && heap.leader[heap.at[0]] == leader)
            order->pc[order->n++] = heap_pop(&heap);
        for (uint32_t i = from; i < order->n; i++) {
            Pc pc = order->pc[i];
            order->at[pc] = i;
            for (uint32_t k = info->first[pc]; k < info->first[pc + 1]; k++)
                if (--n_before[info->then[k]] == 0) heap_push(&heap, info->then[k]);
        }
    }
    /* no instruction is missing: `after` only names smaller numbers, and the verifier has checked
     * the launches */
    assert(order->n == n);
    arena_free(scratch);
}

void order_whole(IssueOrder *order, Arena *arena)
{
    order->segment = arena_array(arena, 1, sizeof *order->segment);
    order->segment[0] = (Segment){.n = order->n};
    order->n_segments = 1;
}

/* Returns the position at which a micro-batch begins: its first instruction of the forward or start
 * phase on the compute stream; order->n if there is none. */
static uint32_t begin_of(const RankState *r, const IssueOrder *order, uint32_t microbatch)
{
    const Program *p = r->info->p;
    for (uint32_t i = 0; i < order->n; i++) {
        const Instr *in = program_instr(p, order->pc[i]);
        bool counts = in->phase == PHASE_forward || in->phase == PHASE_start;
        if (in->stream == STREAM_compute && counts && in->microbatch == microbatch) return i;
    }
    return order->n;
}

static bool same_comm(const Comm *a, const Comm *b)
{
    return a->op == b->op && a->reduce == b->reduce && a->dtype == b->dtype &&
           a->stream == b->stream && a->axes == b->axes && a->leader == b->leader &&
           a->peer == b->peer && a->in == b->in && a->out == b->out && a->in_bytes == b->in_bytes &&
           a->out_bytes == b->out_bytes && a->wraps == b->wraps;
}

static bool same_args(const KernelArgs *a, const KernelArgs *b)
{
    /* random draws depend on the index of the micro-batch, and a graph contains this index as a
     * constant */
    if (a->attrs.drop > 0 && a->microbatch != b->microbatch) return false;
    return a->n_in == b->n_in && a->n_args == b->n_args && a->rows == b->rows &&
           memcmp(a->ptr, b->ptr, a->n_args * sizeof a->ptr[0]) == 0 &&
           memcmp(a->dtype, b->dtype, a->n_args * sizeof a->dtype[0]) == 0 &&
           memcmp(a->elements, b->elements, a->n_args * sizeof a->elements[0]) == 0 &&
           memcmp(a->size, b->size, sizeof a->size) == 0 &&
           memcmp(a->start, b->start, sizeof a->start) == 0 &&
           memcmp(a->second, b->second, sizeof a->second) == 0 &&
           memcmp(a->valid, b->valid, sizeof a->valid) == 0 && a->outer == b->outer &&
           a->middle == b->middle && a->inner == b->inner && a->part_start == b->part_start &&
           a->part_size == b->part_size && memcmp(&a->halo, &b->halo, sizeof a->halo) == 0 &&
           memcmp(&a->strides, &b->strides, sizeof a->strides) == 0;
}

/* Returns true if instruction i of segment s waits for instruction `wanted` of the same segment. */
static bool waits_for(const Program *p, const IssueOrder *o, const Segment *s, uint32_t i,
                      uint32_t wanted)
{
    const Instr *in = program_instr(p, o->pc[s->first + i]);
    for (uint32_t k = 0; k < in->after.n; k++)
        if (o->at[p->after.at[in->after.first + k]] == s->first + wanted) return true;
    return false;
}

/* Returns true if instruction i of segment s waits for the same instructions within s as
 * instruction i of segment t does within t. Instructions before a segment do not matter, because
 * they have ended when the segment begins. */
static bool same_waits(const Program *p, const IssueOrder *o, const Segment *s, const Segment *t,
                       uint32_t i)
{
    const Segment *of[2] = {s, t};
    for (int side = 0; side < 2; side++) {
        const Instr *in = program_instr(p, o->pc[of[side]->first + i]);
        for (uint32_t k = 0; k < in->after.n; k++) {
            uint32_t at = o->at[p->after.at[in->after.first + k]];
            if (at < of[side]->first) continue;
            if (!waits_for(p, o, of[1 - side], i, at - of[side]->first)) return false;
        }
    }
    return true;
}

static bool joins_previous(const Program *p, const IssueOrder *o, const Segment *s, uint32_t i)
{
    if (i == 0) return false;
    const Instr *a = program_instr(p, o->pc[s->first + i]);
    const Instr *b = program_instr(p, o->pc[s->first + i - 1]);
    return a->launch != 0 && a->launch == b->launch && a->stream == b->stream;
}

static bool same_segment(const RankState *r, const IssueOrder *o, const Segment *s,
                         const Segment *t)
{
    const Program *p = r->info->p;
    if (s->n != t->n) return false;
    for (uint32_t i = 0; i < s->n; i++) {
        Pc x = o->pc[s->first + i], y = o->pc[t->first + i];
        const Instr *a = program_instr(p, x), *b = program_instr(p, y);
        bool alike = a->op == b->op && a->stream == b->stream && a->attrs == b->attrs &&
                     joins_previous(p, o, s, i) == joins_previous(p, o, t, i) &&
                     (a->fuse != 0) == (b->fuse != 0) && same_waits(p, o, s, t, i);
        if (!alike) return false;
        const Comm *c = r->at[x].comm, *d = r->at[y].comm;
        if (c ? !same_comm(c, d) : !same_args(r->at[x].args, r->at[y].args)) return false;
    }
    return true;
}

bool order_cut(const RankState *r, IssueOrder *order, Arena *arena)
{
    uint32_t n = r->plan->step.n_microbatches, before = 0;
    if (n < 2) return false;
    Segment *segment = arena_array(arena, n, sizeof *segment);
    for (uint32_t m = 0; m < n; m++) {
        uint32_t at = m == 0 ? 0 : begin_of(r, order, m);
        if (at == order->n || (m > 0 && at <= before)) return false;
        if (m > 0) segment[m - 1].n = at - before;
        segment[m] = (Segment){.first = at, .n = order->n - at, .same = m};
        before = at;
    }
    for (uint32_t m = 1; m < n; m++)
        for (uint32_t k = 0; k < m && segment[m].same == m; k++) {
            if (segment[k].same != k || !same_segment(r, order, &segment[k], &segment[m])) continue;
            segment[m].same = k;
            segment[k].shared = true;
        }
    order->segment = segment;
    order->n_segments = n;
    return true;
}
