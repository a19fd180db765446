/* Finds when each buffer of a program is in use: its first and last instruction. It also finds
 * which instructions have finished when another one starts. It does not use the offsets of
 * buffers. */
#include "planner/lower/memory/lives.h"

#include <assert.h>
#include <string.h>

#include "planner/lower/memory/gaps.h"

/* A launch group is a sequence of communications on one stream that start together
 * (Instr.launch). Its first member represents it. Finds this member. */
static void find_launches(Lives *l)
{
    Pc last[STREAM_COUNT] = {0};
    for (Pc pc = 1; pc < l->p->code.n; pc++) {
        const Instr *in = &l->p->code.at[pc];
        const Pc before = last[in->stream];
        const bool joins = before && in->launch && l->p->code.at[before].launch == in->launch;
        const Pc first = joins ? l->launches[before].first : pc;
        l->launches[pc].first = first;
        l->launches[first].newest = pc;
        l->launches[first].n++;
        last[in->stream] = pc;
    }
}

/* `in` waits for `member` of a launch group. Returns the newest member if `in` waits for all
 * members, because the whole group has then finished when `in` starts. Returns 0 if it does not. */
static Pc finished(const Lives *l, const Instr *in, Pc member)
{
    const Pc first = l->launches[member].first;
    const Pc *after = l->p->after.at + in->after.first;
    uint32_t n = 0;
    if (l->launches[first].n == 1) return member;
    for (uint32_t k = 0; k < in->after.n; k++) {
        bool counts = l->launches[after[k]].first == first;
        for (uint32_t i = 0; i < k; i++) counts = counts && after[i] != after[k];
        n += counts;
    }
    return n == l->launches[first].n ? l->launches[first].newest : 0;
}

/* Computes the clock of each instruction: which instructions have finished when it starts.
 * Communications of a launch group start together, so none waits for another. */
static void find_clocks(Lives *l)
{
    const Program *p = l->p;
    Clock done[STREAM_COUNT], group[STREAM_COUNT];
    memset(&l->clocks[0], 0, sizeof l->clocks[0]);
    memset(done, 0, sizeof done);
    memset(group, 0, sizeof group);
    uint32_t launch[STREAM_COUNT] = {0};
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        int s = (int)in->stream;
        /* `in` begins a new group or is in none. So the whole previous group of its stream has
         * finished when it starts. */
        if (!in->launch || in->launch != launch[s]) {
            done[s] = group[s];
            launch[s] = in->launch;
        }
        Clock now = done[s];
        for (uint32_t k = 0; k < in->after.n; k++) {
            Pc before = p->after.at[in->after.first + k];
            clock_join(&now, &l->clocks[before]);
            int stream = (int)p->code.at[before].stream;
            Pc newest = finished(l, in, before);
            if (now.at[stream] < newest) now.at[stream] = newest;
        }
        l->clocks[pc] = now;
        clock_join(&group[s], &now);
        group[s].at[s] = pc;
    }
}

/* Checks that no instruction reads a buffer before the buffer is written. Lowering guarantees this,
 * and the choice of offsets relies on it. For launch groups the check is incomplete; the verifier
 * checks them. */
static void check_first(const Lives *l, const Buffer *b, Pc pc)
{
    const Instr *first = &l->p->code.at[b->first];
    if (b->persistent || pc == b->first || first->launch) return;
    assert(l->p->code.at[pc].stream == first->stream ||
           l->clocks[pc].at[first->stream] >= b->first);
}

/* Marks that instruction pc uses the buffer. */
static inline void mark(Buffer *b, Pc pc)
{
    if (!b->first) b->first = pc;
    b->last = pc;
}

static void find_lives(Lives *l, bool checked)
{
    Program *p = l->p;
    for (BufferId b = 1; b < p->buffers.n; b++) p->buffers.at[b].first = p->buffers.at[b].last = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        const BufferId *arg = p->args.at + in->args.first;
        for (uint32_t i = 0; i < in->args.n; i++) {
            BufferId root = arg[i];
            Buffer *at = &p->buffers.at[root];
            if (at->parent) {
                mark(at, pc);
                root = at->parent;
                at = &p->buffers.at[root];
            }
            assert(!checked || at->first || at->persistent || i >= in->n_in);
            if (!at->first) l->touched[root] = (Clock){{0}};
            mark(at, pc);
            if (checked) check_first(l, at, pc);
            l->touched[root].at[in->stream] = pc;
        }
    }
}

void lives_mark(Program *p)
{
    for (BufferId b = 1; b < p->buffers.n; b++) p->buffers.at[b].first = p->buffers.at[b].last = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        for (uint32_t i = 0; i < in->args.n; i++) {
            Buffer *at = &p->buffers.at[program_arg(p, in, i)];
            mark(at, pc);
            if (at->parent) mark(&p->buffers.at[at->parent], pc);
        }
    }
}

/* Finds the instructions that one kernel executes together. The kernel may process rows in any
 * order, so a buffer that one of these instructions uses counts as used during the whole kernel. */
static void find_kernels(Lives *l)
{
    Pc last = 0;
    for (Pc pc = 1; pc < l->p->code.n; pc++) {
        const Instr *in = &l->p->code.at[pc];
        l->kernel[pc] = l->kernel_end[pc] = pc;
        if (in->stream != STREAM_compute) continue;
        if (last && in->fuse && l->p->code.at[last].fuse == in->fuse)
            l->kernel[pc] = l->kernel[last];
        l->kernel_end[l->kernel[pc]] = pc;
        last = pc;
    }
}

static BufferId root_of(const Program *p, BufferId b)
{
    return p->buffers.at[b].parent ? p->buffers.at[b].parent : b;
}

/* Returns the buffer of in[0] if out[0] may use its memory, and 0 if not. This requires that the
 * instruction is the last user of that buffer, and that no other argument lies in it. */
BufferId lives_taken_over(const Lives *l, Pc pc, BufferId out)
{
    const Program *p = l->p;
    const Instr *in = &p->code.at[pc];
    if (!(op_info(in->op)->flags & OP_IN_PLACE) || in->n_in == 0 || in->args.n == in->n_in)
        return 0;
    if (program_arg(p, in, in->n_in) != out) return 0;
    BufferId from = program_arg(p, in, 0);
    const Buffer *a = &p->buffers.at[from], *b = &p->buffers.at[out];
    bool fits = !a->parent && !a->persistent && !a->result && a->last == pc && a->first != pc &&
                a->bytes == b->bytes && a->dtype == b->dtype && a->space == b->space;
    for (uint32_t i = 1; i < in->args.n; i++)
        if (i != in->n_in) fits = fits && root_of(p, program_arg(p, in, i)) != from;
    Clock others = l->touched[from];
    others.at[in->stream] = 0; /* waits between instructions of one stream are not needed */
    return fits && clock_passed(&others, &l->clocks[pc]) ? from : 0;
}

/* returns the bytes that buffer b takes in an arena */
static uint64_t bytes_of(const Lives *l, BufferId b)
{
    return gaps_round(l->p->buffers.at[b].bytes);
}

static void list_steady(Lives *l)
{
    for (Pc pc = 1; pc < l->p->code.n; pc++) {
        l->n_steady[pc] = l->steady.n;
        if (lives_knows(l, pc).steady) list_push(l->scratch, &l->steady, pc);
    }
}

/* Steady instructions are the computations outside of launch groups; they run in order (Knowledge
 * in clock.h). Finds the first of them that starts after all users of buffer b have finished. The
 * users have then also finished when any later one starts. So the search doubles its steps and then
 * bisects. */
static End find_end(const Lives *l, BufferId b)
{
    const Pc behind = (Pc)l->p->code.n;
    const Clock *busy = &l->touched[b];
    if (l->p->buffers.at[b].result) return (End){&l->never, behind};
    const Pc last = l->p->buffers.at[b].last;
    uint32_t lo = l->n_steady[last], hi;
    if (lo < l->steady.n && l->steady.at[lo] == last) lo++;
    hi = lo;
    for (uint32_t step = 1; hi < l->steady.n; step *= 2) {
        if (clock_passed(busy, &l->clocks[l->steady.at[hi]])) break;
        lo = hi + 1;
        hi += step;
    }
    if (hi > l->steady.n) hi = l->steady.n;
    while (lo < hi) {
        const uint32_t i = lo + (hi - lo) / 2;
        if (clock_passed(busy, &l->clocks[l->steady.at[i]]))
            hi = i;
        else
            lo = i + 1;
    }
    return (End){busy, lo < l->steady.n ? l->steady.at[lo] : behind};
}

/* Lists the temporary buffers of the space by their first and by their last instruction. */
static void list_lives(Lives *l)
{
    const Program *p = l->p;
    memset(l->starts, 0, p->code.n * sizeof *l->starts);
    memset(l->ends, 0, p->code.n * sizeof *l->ends);
    for (BufferId b = (BufferId)p->buffers.n; b-- > 1;) {
        const Buffer *at = &p->buffers.at[b];
        if (at->parent || at->persistent || !at->first || at->space != l->space) continue;
        const Pc first = l->kernel[at->first], last = l->kernel_end[l->kernel[at->last]];
        l->taken_over[b] = lives_taken_over(l, at->first, b);
        l->end[b] = find_end(l, b);
        l->next_start[b] = l->starts[first];
        l->starts[first] = b;
        if (at->result) continue; /* its memory is never used again */
        l->next_end[b] = l->ends[last];
        l->ends[last] = b;
    }
}

/* Finds the last buffer of each chain of buffers that use the same memory one after the other. The
 * loop runs backwards, so the last buffer is known first. */
static void find_heirs(Lives *l)
{
    for (Pc pc = l->p->code.n; pc-- > 1;)
        for (BufferId b = l->starts[pc]; b; b = l->next_start[b]) {
            if (!l->heir[b]) l->heir[b] = b;
            if (l->taken_over[b]) l->heir[l->taken_over[b]] = l->heir[b];
        }
}

void lives_of_space(Lives *l, Space space)
{
    l->space = space;
    list_lives(l);
    find_heirs(l);
}

/* A buffer whose last use has passed, and how many of its bytes no other buffer has taken. */
typedef struct Ended {
    BufferId buffer;
    uint64_t bytes;
} Ended;
typedef LIST(Ended) EndedList;

/* Takes up to `wanted` bytes of the listed buffers, if their users have certainly finished at pc.
 * Returns the number of bytes taken. */
static uint64_t take_free(const Lives *l, EndedList *list, Pc pc, uint64_t wanted)
{
    const Knowledge now = lives_knows(l, pc);
    uint32_t left = 0;
    uint64_t taken = 0;
    for (uint32_t i = 0; i < list->n; i++) {
        Ended *at = &list->at[i];
        if (taken < wanted && lives_passed(l, at->buffer, &now)) {
            const uint64_t more = at->bytes < wanted - taken ? at->bytes : wanted - taken;
            at->bytes -= more;
            taken += more;
        }
        if (at->bytes > 0) list->at[left++] = *at;
    }
    list->n = left;
    return taken;
}

uint64_t lives_in_use(const Lives *l, uint64_t bottom, uint64_t *in_use, uint64_t *alive)
{
    EndedList waiting = {0};
    uint64_t now = bottom, most = bottom, ended = 0, most_alive = bottom;
    for (Pc pc = 1; pc < l->p->code.n; pc++) {
        uint64_t begin = 0;
        for (BufferId b = l->starts[pc]; b; b = l->next_start[b])
            if (!l->taken_over[b]) begin += bytes_of(l, b);
        /* What has finished when a computation starts has also finished when any later one starts.
         * So a computation takes all finished buffers off the list. */
        const bool computes = l->p->code.at[pc].stream == STREAM_compute;
        if (waiting.n && (computes || begin)) {
            const uint64_t taken = take_free(l, &waiting, pc, computes ? UINT64_MAX : begin);
            now -= taken;
            ended -= taken;
        }
        now += begin;
        in_use[pc] = now;
        if (now > most) most = now;
        if (now - ended > most_alive) most_alive = now - ended;
        for (BufferId b = l->ends[pc]; b; b = l->next_end[b]) {
            if (l->heir[b] != b) continue;
            list_push(l->scratch, &waiting, ((Ended){b, bytes_of(l, b)}));
            ended += bytes_of(l, b);
        }
    }
    *alive = most_alive;
    return most;
}

/* Returns an array whose elements have no defined value yet. */
static void *bare(Arena *scratch, uint32_t n, size_t size)
{
    uint32_t room = 0;
    return list_grow(scratch, NULL, 0, &room, n, size);
}

static void find(Lives *l, Program *p, Arena *scratch, bool checked)
{
    *l = (Lives){.p = p, .scratch = scratch};
    /* The bare arrays have an entry for each instruction, or for each buffer that is used. All
     * these entries are written before they are read. */
    l->clocks = bare(scratch, p->code.n, sizeof *l->clocks);
    l->launches = arena_array(scratch, p->code.n, sizeof *l->launches);
    l->touched = bare(scratch, p->buffers.n, sizeof *l->touched);
    l->n_steady = bare(scratch, p->code.n, sizeof *l->n_steady);
    l->end = arena_array(scratch, p->buffers.n, sizeof *l->end);
    for (int s = 0; s < CLOCK_ROOM; s++) l->never.at[s] = INT32_MAX;
    l->kernel = bare(scratch, p->code.n, sizeof *l->kernel);
    l->kernel_end = bare(scratch, p->code.n, sizeof *l->kernel_end);
    l->starts = bare(scratch, p->code.n, sizeof *l->starts);
    l->ends = bare(scratch, p->code.n, sizeof *l->ends);
    l->next_start = bare(scratch, p->buffers.n, sizeof *l->next_start);
    l->taken_over = arena_array(scratch, p->buffers.n, sizeof *l->taken_over);
    l->heir = arena_array(scratch, p->buffers.n, sizeof *l->heir);
    l->next_end = bare(scratch, p->buffers.n, sizeof *l->next_end);
    if (p->code.n > 0) l->n_steady[0] = l->kernel[0] = l->kernel_end[0] = 0;
    find_launches(l);
    find_clocks(l);
    list_steady(l);
    find_kernels(l);
    find_lives(l, checked);
}

void lives_find(Lives *l, Program *p, Arena *scratch)
{
    find(l, p, scratch, true);
}

void lives_read(Lives *l, const Program *p, Arena *scratch)
{
    Program *own = arena_alloc(scratch, sizeof *own);
    *own = *p;
    own->buffers.at = arena_array(scratch, p->buffers.n, sizeof *own->buffers.at);
    memcpy(own->buffers.at, p->buffers.at, p->buffers.n * sizeof *own->buffers.at);
    find(l, own, scratch, false);
}
