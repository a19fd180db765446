/* Memory: an offset in one arena for every root buffer. A program is static, so this is an
 * allocator run once, in program order. Bytes are reused only where every instruction that touched
 * the old buffer happens before the first one that touches the new: stream order and `after`, never
 * luck. */
#include <assert.h>
#include <string.h>

#include "planner/passes/pass.h"
#include "planner/passes/pieces.h"

enum { ALIGN = 256 };

typedef struct Launch {
    Pc first, newest;
    uint32_t n;
} Launch;

typedef LIST(BufferId) BufferList;

typedef struct Memory {
    Program *p;
    Arena *scratch;
    Clock *clocks;           /* [pc]: newest pc of each stream that has finished when pc starts */
    Clock *touched;          /* [buffer]: newest touch by each stream */
    Launch *launches;        /* [pc]: first; [first]: the rest */
    Pc *kernel, *kernel_end; /* [pc]: the first, the last part of its kernel */
    Space space;             /* being placed: each space is an arena of its own */
    uint32_t *starts, *next_start; /* buffers by first pc, linked */
    uint32_t *ends, *next_end;
    Pieces pieces;
    BufferList before, current; /* buffers that began in the last micro-batch, in this one */
    BufferList model;           /* of the interior micro-batch that the others are to repeat */
    uint64_t *wishes;           /* [buffer of model]: its offset in the round before */
    uint32_t microbatch, n_microbatches, next_part;
} Memory;

static uint64_t align_up(uint64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Members of a launch group are neighbours on their stream; the group goes by its first one. */
static void find_launches(Memory *m)
{
    Pc last[STREAM_COUNT] = {0};
    for (Pc pc = 1; pc < m->p->code.n; pc++) {
        const Instr *in = &m->p->code.at[pc];
        const Pc before = last[in->stream];
        const bool joins = before && in->launch && m->p->code.at[before].launch == in->launch;
        const Pc first = joins ? m->launches[before].first : pc;
        m->launches[pc].first = first;
        m->launches[first].newest = pc;
        m->launches[first].n++;
        last[in->stream] = pc;
    }
}

/* Members of a group end at different times: only who waits for all of them knows that everything
 * on their stream up to the newest has finished. Returns that newest one, or 0. */
static Pc finished(const Memory *m, const Instr *in, Pc member)
{
    const Pc first = m->launches[member].first;
    const Pc *after = m->p->after.at + in->after.first;
    uint32_t n = 0;
    if (m->launches[first].n == 1) return member;
    for (uint32_t k = 0; k < in->after.n; k++) {
        bool counts = m->launches[after[k]].first == first;
        for (uint32_t i = 0; i < k; i++) counts = counts && after[i] != after[k];
        n += counts;
    }
    return n == m->launches[first].n ? m->launches[first].newest : 0;
}

/* Communications of one launch start together: none of them waits for another. */
static void find_clocks(Memory *m)
{
    const Program *p = m->p;
    Clock done[STREAM_COUNT], group[STREAM_COUNT];
    memset(done, 0, sizeof done);
    memset(group, 0, sizeof group);
    uint32_t launch[STREAM_COUNT] = {0};
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        int s = (int)in->stream;
        if (!in->launch || in->launch != launch[s]) { /* all of the previous group has finished */
            done[s] = group[s];
            launch[s] = in->launch;
        }
        Clock now = done[s];
        for (uint32_t k = 0; k < in->after.n; k++) {
            Pc before = p->after.at[in->after.first + k];
            clock_join(&now, &m->clocks[before]);
            int stream = (int)p->code.at[before].stream;
            Pc newest = finished(m, in, before);
            if (now.at[stream] < newest) now.at[stream] = newest;
        }
        m->clocks[pc] = now;
        clock_join(&group[s], &now);
        group[s].at[s] = pc;
    }
}

/* What a transient buffer holds is written before anybody else touches it: the lowering's promise,
 * on which "free until first touched" rests. (A member of a launch group is known to have finished
 * in ways that clocks do not show; the verifier looks at those.) */
static void check_first(const Memory *m, const Buffer *b, Pc pc)
{
    const Instr *first = &m->p->code.at[b->first];
    if (b->persistent || pc == b->first || first->launch) return;
    assert(m->p->code.at[pc].stream == first->stream ||
           m->clocks[pc].at[first->stream] >= b->first);
}

static void find_lives(Memory *m)
{
    Program *p = m->p;
    for (BufferId b = 1; b < p->buffers.n; b++) p->buffers.at[b].first = p->buffers.at[b].last = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        for (uint32_t i = 0; i < in->args.n; i++) {
            BufferId b = program_arg(p, in, i);
            BufferId pair[2] = {b, p->buffers.at[b].parent};
            for (int k = 0; k < 2; k++) {
                if (!pair[k]) continue;
                Buffer *at = &p->buffers.at[pair[k]];
                if (!at->first) {
                    at->first = pc;
                    assert(at->parent || at->persistent || i >= in->n_in);
                }
                if (!at->parent) check_first(m, at, pc);
                at->last = pc;
                m->touched[pair[k]].at[in->stream] = pc;
            }
        }
    }
}

/* Parts of a kernel do their rows in any order: what one of them touches is in use for all of it.
 */
static void find_kernels(Memory *m)
{
    Pc last = 0;
    for (Pc pc = 1; pc < m->p->code.n; pc++) {
        const Instr *in = &m->p->code.at[pc];
        m->kernel[pc] = m->kernel_end[pc] = pc;
        if (in->stream != STREAM_compute) continue;
        if (last && in->fuse && m->p->code.at[last].fuse == in->fuse)
            m->kernel[pc] = m->kernel[last];
        m->kernel_end[m->kernel[pc]] = pc;
        last = pc;
    }
}

/* Lists the transient buffers of the space by their first and by their last instruction. */
static void list_lives(Memory *m)
{
    const Program *p = m->p;
    memset(m->starts, 0, p->code.n * sizeof *m->starts);
    memset(m->ends, 0, p->code.n * sizeof *m->ends);
    for (BufferId b = (BufferId)p->buffers.n; b-- > 1;) {
        const Buffer *at = &p->buffers.at[b];
        if (at->parent || at->persistent || !at->first || at->space != m->space) continue;
        const Pc first = m->kernel[at->first], last = m->kernel_end[m->kernel[at->last]];
        m->next_start[b] = m->starts[first];
        m->starts[first] = b;
        m->next_end[b] = m->ends[last];
        m->ends[last] = b;
    }
}

/* Two buffers that play the same part in their micro-batches. */
static bool same_part(const Program *p, BufferId a, BufferId b)
{
    const Buffer *x = &p->buffers.at[a], *y = &p->buffers.at[b];
    const Instr *i = &p->code.at[x->first], *k = &p->code.at[y->first];
    return x->shape == y->shape && x->bytes == y->bytes && x->tensor == y->tensor &&
           x->unit == y->unit && x->category == y->category && i->op == k->op &&
           i->stream == k->stream && i->origin == k->origin && i->phase == k->phase;
}

/* The buffer of the model micro-batch that plays the part of `b`: they come in the same order, but
 * for a few that only some micro-batches have. 0: none. */
static BufferId counterpart(Memory *m, const BufferList *model, BufferId b)
{
    enum { LOOK_AHEAD = 16 };
    for (uint32_t i = m->next_part; i < model->n && i < m->next_part + LOOK_AHEAD; i++) {
        if (!same_part(m->p, model->at[i], b)) continue;
        m->next_part = i + 1;
        return model->at[i];
    }
    return 0;
}

/* Interior micro-batches repeat: each buffer asks for the place of its counterpart in the model,
 * which is the micro-batch before, or one of an earlier round. */
static uint64_t place(Memory *m, Pc pc, BufferId b)
{
    Program *p = m->p;
    const Clock *now = &m->clocks[pc];
    const uint64_t size = align_up(p->buffers.at[b].bytes);
    if (p->code.at[pc].microbatch != m->microbatch) {
        BufferList spare = m->before;
        m->microbatch = p->code.at[pc].microbatch;
        m->before = m->current;
        m->current = spare;
        m->current.n = 0;
        m->next_part = 0;
    }
    list_push(m->scratch, &m->current, b);
    const bool in_round = m->model.n > 0;
    if (!in_round && m->microbatch < 2) return pieces_take(&m->pieces, size, now);
    const BufferId like = counterpart(m, in_round ? &m->model : &m->before, b);
    if (!like) return pieces_take(&m->pieces, size, now);
    const uint64_t wish = in_round ? m->wishes[like] : p->buffers.at[like].offset;
    return pieces_take_at(&m->pieces, wish, size, now) ? wish : pieces_take(&m->pieces, size, now);
}

static BufferId root_of(const Program *p, BufferId b)
{
    return p->buffers.at[b].parent ? p->buffers.at[b].parent : b;
}

/* out[0] may take the memory of an in[0] that dies here. Returns that buffer, 0 if none. Another
 * argument that lies in the same memory would be read after it was overwritten. */
static BufferId in_place(const Memory *m, Pc pc, BufferId out)
{
    const Program *p = m->p;
    const Instr *in = &p->code.at[pc];
    if (!(op_info(in->op)->flags & OP_IN_PLACE) || in->n_in == 0 || in->args.n == in->n_in)
        return 0;
    if (program_arg(p, in, in->n_in) != out) return 0;
    BufferId from = program_arg(p, in, 0);
    const Buffer *a = &p->buffers.at[from], *b = &p->buffers.at[out];
    bool fits = !a->parent && !a->persistent && a->last == pc && a->first != pc &&
                a->bytes == b->bytes && a->dtype == b->dtype && a->space == b->space;
    for (uint32_t i = 1; i < in->args.n; i++)
        if (i != in->n_in) fits = fits && root_of(p, program_arg(p, in, i)) != from;
    Clock others = m->touched[from];
    others.at[in->stream] = 0; /* own stream: in order */
    return fits && clock_passed(&others, &m->clocks[pc]) ? from : 0;
}

static void place_transient(Memory *m)
{
    bool *handed_on = arena_array(m->scratch, m->p->buffers.n, sizeof *handed_on);
    bool *is_placed = arena_array(m->scratch, m->p->buffers.n, sizeof *is_placed);
    for (Pc pc = 1; pc < m->p->code.n; pc++) {
        for (BufferId b = m->starts[pc]; b; b = m->next_start[b]) {
            Buffer *at = &m->p->buffers.at[b];
            BufferId from = in_place(m, at->first, b);
            if (from && !is_placed[from]) from = 0; /* a later part of this very kernel makes it */
            is_placed[b] = true;
            at->offset = from ? m->p->buffers.at[from].offset : place(m, pc, b);
            if (from) handed_on[from] = true;
        }
        for (BufferId b = m->ends[pc]; b; b = m->next_end[b])
            if (!handed_on[b] && m->p->buffers.at[b].bytes)
                pieces_give(&m->pieces, m->p->buffers.at[b].offset,
                            align_up(m->p->buffers.at[b].bytes), &m->touched[b], &m->clocks[pc]);
    }
}

/* Do all interior micro-batches of the same length use the same offsets? */
static bool repeats(const Memory *m)
{
    const Program *p = m->p;
    const uint32_t n = m->n_microbatches;
    if (n < 4) return true;
    uint64_t *sum = arena_array(m->scratch, n, sizeof *sum);
    uint32_t *count = arena_array(m->scratch, n, sizeof *count);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        for (uint32_t i = 0; i < in->args.n; i++) {
            uint64_t offset;
            program_root(p, program_arg(p, in, i), &offset);
            sum[in->microbatch] = sum[in->microbatch] * UINT64_C(0x9e3779b97f4a7c15) + offset + 1;
            count[in->microbatch]++;
        }
    }
    for (uint32_t k = 1; k < n - 2; k++)
        if (count[k] == count[n - 2] && sum[k] != sum[n - 2]) return false;
    return true;
}

/* The last interior micro-batch, where things have settled, is the next round's model. */
static void choose_model(Memory *m)
{
    m->model.n = 0;
    for (Pc pc = 1; pc < m->p->code.n; pc++) {
        if (m->p->code.at[pc].microbatch != m->n_microbatches - 2) continue;
        for (BufferId b = m->starts[pc]; b; b = m->next_start[b]) {
            list_push(m->scratch, &m->model, b);
            m->wishes[b] = m->p->buffers.at[b].offset;
        }
    }
}

/* Persistent buffers at the bottom, then what comes and goes. A few rounds look for a placement in
 * which micro-batches repeat: training does in the first one; that any program would is not
 * promised, so whoever captures a micro-batch compares offsets. Returns the end of the highest. */
static uint64_t place_space(Memory *m, Space space)
{
    enum { ROUNDS = 6 };
    Program *p = m->p;
    uint64_t bottom = 0;
    m->space = space;
    m->model.n = 0;
    for (BufferId b = 1; b < p->buffers.n; b++) {
        Buffer *at = &p->buffers.at[b];
        if (at->parent || !at->persistent || at->space != space) continue;
        at->offset = bottom;
        bottom += align_up(at->bytes);
    }
    list_lives(m);
    for (int round = 0; round < ROUNDS; round++) {
        pieces_init(&m->pieces, bottom, m->scratch);
        m->before.n = m->current.n = m->microbatch = m->next_part = 0;
        place_transient(m);
        if (repeats(m)) break;
        choose_model(m);
    }
    uint64_t bytes = 0;
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const Buffer *at = &p->buffers.at[b];
        const bool placed = !at->parent && at->space == space && (at->persistent || at->first);
        if (placed && at->offset + at->bytes > bytes) bytes = at->offset + at->bytes;
    }
    return bytes;
}

static void place_program(Program *p, Arena *scratch)
{
    Memory m = {.p = p, .scratch = scratch};
    if (!p->code.n) return;
    m.clocks = arena_array(scratch, p->code.n, sizeof *m.clocks);
    m.launches = arena_array(scratch, p->code.n, sizeof *m.launches);
    m.touched = arena_array(scratch, p->buffers.n, sizeof *m.touched);
    m.kernel = arena_array(scratch, p->code.n, sizeof *m.kernel);
    m.kernel_end = arena_array(scratch, p->code.n, sizeof *m.kernel_end);
    m.starts = arena_array(scratch, p->code.n, sizeof *m.starts);
    m.ends = arena_array(scratch, p->code.n, sizeof *m.ends);
    m.next_start = arena_array(scratch, p->buffers.n, sizeof *m.next_start);
    m.next_end = arena_array(scratch, p->buffers.n, sizeof *m.next_end);
    m.wishes = arena_array(scratch, p->buffers.n, sizeof *m.wishes);
    for (Pc pc = 1; pc < p->code.n; pc++)
        if (p->code.at[pc].microbatch >= m.n_microbatches)
            m.n_microbatches = p->code.at[pc].microbatch + 1;
    find_launches(&m);
    find_clocks(&m);
    find_kernels(&m);
    find_lives(&m);
    bool host = false;
    for (BufferId b = 1; b < p->buffers.n; b++) host |= p->buffers.at[b].space == SPACE_host;
    p->bytes = place_space(&m, SPACE_device);
    p->host_bytes = host ? place_space(&m, SPACE_host) : 0;
}

bool pass_memory(Job *job)
{
    for (uint32_t i = 0; i < job->plan->programs.n; i++)
        place_program(&job->plan->programs.at[i], job->scratch);
    return true;
}
