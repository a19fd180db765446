/* See torch_memory.h. */
#include "sim/torch_memory.h"

#include <assert.h>
#include <string.h>

/* A tensor that is to be given back after an instruction; a list through `next`. */
typedef struct Pending {
    uint32_t block, next;
} Pending;

typedef struct Replay {
    const Plan *plan;
    const Program *program;
    const Runtime *runtime;
    TorchAllocator *allocator;
    Arena *arena;
    uint32_t *first; /* [pc] 1 + first buffer that is had there; through next_buffer */
    uint32_t *next_buffer;
    uint32_t *last;        /* [pc] first Pending that is given back after it */
    Pc *needed;            /* [buffer] the last instruction that it is kept for */
    LIST(Pending) pending; /* [0] none */
} Replay;

static bool is_had(const Buffer *b)
{
    return b->parent == 0 && b->space == SPACE_device && b->bytes > 0;
}

/* Lives as long as the process: what is neither a gradient nor of one step. */
static bool stays(const Buffer *b)
{
    return b->persistent && b->category != CATEGORY_gradient;
}

static void give_back_after(Replay *r, Pc pc, uint32_t block)
{
    r->last[pc] = list_push(r->arena, &r->pending, ((Pending){block, r->last[pc]}));
}

static bool reads_buffer(const Program *p, Pc pc, const Buffer *b)
{
    const Instr *in = &p->code.at[pc];
    uint64_t offset;
    for (uint32_t i = 0; i < in->n_in; i++)
        if (&p->buffers.at[program_root(p, program_arg(p, in, i), &offset)] == b) return true;
    return false;
}

/* When the host issues what makes the buffer. Units for the backward pass are gathered by its
 * hooks, the first of them after the loss has its gradient, however early the plan gathers. */
static Pc had_at(const Replay *r, const Buffer *b)
{
    const Program *p = r->program;
    if (p->code.at[b->first].op != OP_all_gather || b->persistent) return b->first;
    Pc at = b->first;
    for (Pc pc = b->first + 1; pc < b->last && !reads_buffer(p, pc, b); pc++)
        if (runtime_is_loss(p->code.at[pc].op)) at = pc + 1;
    return at;
}

/* Until when a buffer is kept: to its last use; if its op is remade, to the last use that is not of
 * the backward pass. */
static void find_needed(Replay *r)
{
    const Program *p = r->program;
    r->needed = arena_array(r->arena, (size_t)p->buffers.n + 1, sizeof *r->needed);
    for (BufferId id = 1; id < p->buffers.n; id++) {
        const Buffer *b = &p->buffers.at[id];
        bool remade = is_had(b) && r->runtime->op[p->code.at[b->first].op].remade;
        r->needed[id] = remade ? b->first : b->last;
    }
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        uint64_t offset;
        for (uint32_t i = 0; in->phase != PHASE_backward && i < in->n_in; i++) {
            BufferId id = program_root(p, program_arg(p, in, i), &offset);
            if (r->needed[id] < pc && pc <= p->buffers.at[id].last) r->needed[id] = pc;
        }
    }
}

static void prepare(Replay *r)
{
    const Program *p = r->program;
    r->first = arena_array(r->arena, (size_t)p->code.n + 1, sizeof *r->first);
    r->last = arena_array(r->arena, (size_t)p->code.n + 1, sizeof *r->last);
    r->next_buffer = arena_array(r->arena, (size_t)p->buffers.n + 1, sizeof *r->next_buffer);
    list_reserve_none(r->arena, &r->pending);
    find_needed(r);
    for (BufferId id = p->buffers.n; id-- > 1;) {
        const Buffer *b = &p->buffers.at[id];
        if (!is_had(b)) continue;
        if (stays(b)) {
            torch_allocate(r->allocator, b->bytes, STREAM_compute);
        } else {
            Pc at = had_at(r, b);
            r->next_buffer[id] = r->first[at];
            r->first[at] = id;
        }
    }
}

static double most_elements(const Program *p, const Instr *in)
{
    double most = 0;
    for (uint32_t i = 0; i < in->args.n; i++) {
        const Buffer *b = &p->buffers.at[program_arg(p, in, i)];
        double elements = (double)b->bytes / dtype_bytes(b->dtype);
        if (elements > most) most = elements;
    }
    return most;
}

/* Of attention: sequences, times heads, queries and keys. */
static double scores_of(const Plan *plan, const Program *p, const Instr *in)
{
    if (in->op != OP_attention) return 0;
    Binding b;
    int64_t size['z' + 1] = {0};
    Rank rank = 0;
    while (plan_program(plan, rank) != p) rank++;
    if (!plan_bind(plan, p, in, rank, &b, size, NULL, NULL)) return 0;
    return (double)size['b'] * (double)size['g'] * (double)size['r'] * (double)size['s'] *
           (double)size['T'];
}

static Pc last_of(const Program *p, const Instr *in, uint32_t arg)
{
    uint64_t offset;
    return p->buffers.at[program_root(p, program_arg(p, in, arg), &offset)].last;
}

/* The profile's own tensors of this op. In the first pass through a region that is computed again
 * nothing lives on. */
static void own_tensors(Replay *r, Pc pc, const Instr *in)
{
    const RuntimeOp *as = &r->runtime->op[in->op];
    bool is_comm = op_info(in->op)->class_ == OP_CLASS_comm;
    if (is_comm || (as->saved <= 0 && as->scratch <= 0 && as->scores <= 0)) return;
    if (runtime_compiles(r->runtime, r->plan, in)) return;
    double elements = most_elements(r->program, in);
    const Node *node = &r->plan->graph.nodes.at[in->origin];
    bool again = in->phase == PHASE_forward && node->region != 0 && !node->keep;
    double saved = as->saved * elements + as->scores * scores_of(r->plan, r->program, in);
    if (saved > 0 && !again && in->args.n > in->n_in) {
        Pc of_input = last_of(r->program, in, 0), of_output = last_of(r->program, in, in->n_in);
        Pc until = of_input > of_output ? of_input : of_output;
        uint32_t block = torch_allocate(r->allocator, (uint64_t)saved, STREAM_compute);
        give_back_after(r, until > pc ? until : pc, block);
    }
    for (double i = 0; as->scratch > 0 && i < as->tensors; i++) {
        uint64_t bytes = (uint64_t)(as->scratch * elements / as->tensors);
        give_back_after(r, pc, torch_allocate(r->allocator, bytes, STREAM_compute));
    }
}

static void step(Replay *r)
{
    const Program *p = r->program;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        for (BufferId id = r->first[pc]; id != 0; id = r->next_buffer[id]) {
            const Buffer *b = &p->buffers.at[id];
            uint32_t block = torch_allocate(r->allocator, b->bytes, in->stream);
            give_back_after(r, b->persistent ? p->code.n - 1 : r->needed[id], block);
        }
        own_tensors(r, pc, in);
        for (uint32_t at = r->last[pc]; at != 0; at = r->pending.at[at].next)
            torch_release(r->allocator, r->pending.at[at].block);
        r->last[pc] = 0;
    }
}

TorchStats torch_memory(const Plan *plan, const Program *p, const Runtime *runtime,
                        const Device *device, uint64_t limit_bytes)
{
    assert(!runtime_is_own(runtime));
    Arena *arena = arena_new();
    Replay r = {.plan = plan, .program = p, .runtime = runtime, .arena = arena};
    r.allocator = torch_allocator_new(limit_bytes, runtime->expandable, arena);
    bool old = device->arch == NULL || strcmp(device->arch, "Ampere") == 0;
    torch_allocate(r.allocator, old ? 8519680 : UINT64_C(32) << 20, STREAM_compute); /* cuBLAS's */
    prepare(&r);
    step(&r);
    r.pending.n = 1;
    torch_reset_peaks(r.allocator);
    step(&r);
    TorchStats stats = torch_stats(r.allocator);
    arena_free(arena);
    return stats;
}
