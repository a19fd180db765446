/* See torch_memory.h. */
#include "sim/memory/torch_memory.h"

#include <assert.h>
#include <string.h>

#include "sim/memory/model_bytes.h"
#include "sim/memory/torch_kept.h"
#include "sim/memory/torch_tape.h"
#include "sim/memory/update_memory.h"
#include "sim/memory/zero_memory.h"

/* An entry of a list: a tensor that is freed after some instruction. block: the tensor's id on the
 * tape. */
typedef struct PendingFree {
    uint32_t block, next;
} PendingFree;

typedef struct Replay {
    const Plan *plan;
    const Program *program;
    const Runtime *runtime;
    TorchAllocator *allocator;
    TorchTape *tape;     /* what a step allocates and releases */
    uint32_t microbatch; /* micro-batch of the present instruction */
    Arena *arena;
    /* [pc]: the first buffer that is allocated at pc; next_buffer[buffer]: the next one; 0: none */
    uint32_t *first;
    uint32_t *next_buffer;
    uint32_t *last; /* [pc]: first entry of `pending` that is freed after pc */
    /* [pc], [buffer]: the same for optimizer states, which the first step makes */
    uint32_t *first_state, *next_state;
    TorchKept kept;
    uint32_t *block; /* [buffer]: id of its tensor on the tape, while it is allocated */
    ZeroMemory zero;
    uint32_t *first_zero, *next_zero; /* [pc], [zero.tensors]: the same for tensors of ZeRO */
    LIST(PendingFree) pending;        /* entry 0 is unused */
    LIST(uint64_t) returned;          /* sizes for which one tensor is kept for ever */
    bool *has_second; /* [gradient's buffer]: true if its weight has a second gradient by now */
    UpdateMemory update;
} Replay;

/* Value in Replay.block: the first step will make this tensor. */
static const uint32_t LATER = UINT32_MAX;

/* Returns true for the gradient or the optimizer state of a weight that is not trained. */
static bool is_frozen(const Replay *r, const Buffer *b)
{
    return r->runtime->frozen_base && b->unit != 0 &&
           (b->category == CATEGORY_gradient || b->category == CATEGORY_optimizer);
}

/* Returns true for optimizer states and fp32 weights that are kept in host memory. (For DeepSpeed,
 * zero_memory.c does this.) */
static bool is_on_host(const Replay *r, const Buffer *b)
{
    if (!r->runtime->host_optimizer || !b->persistent || b->unit == 0) return false;
    return b->category == CATEGORY_optimizer ||
           (b->category == CATEGORY_parameter && b->dtype == DT_f32);
}

/* Returns true for a gradient that lies in the framework's permanent buffer for whole gradients. A
 * gradient that is scattered in each micro-batch does not lie there. */
static bool is_held(const Replay *r, const Buffer *b)
{
    if (b->category != CATEGORY_gradient || !r->runtime->holds_gradients) return false;
    return !r->runtime->scatters_gradients || r->plan->graph.units.at[b->unit].shard == 0;
}

/* Returns true for a rank's part of a gradient that lies inside the buffer of the whole gradient,
 * because the reduction writes its result there. */
static bool is_part_of_held(const Replay *r, const Buffer *b)
{
    return is_held(r, b) && r->program->code.at[b->first].op == OP_reduce_scatter;
}

/* Returns true if the framework allocates a tensor for this buffer of the plan. */
static bool has_tensor(const Replay *r, BufferId id)
{
    const Buffer *b = &r->program->buffers.at[id];
    if (is_frozen(r, b) || is_part_of_held(r, b) || is_on_host(r, b)) return false;
    return b->parent == 0 && b->space == SPACE_device && b->bytes > 0 && !r->zero.replaced[id];
}

/* Returns true if the buffer lives as long as the process. Temporary buffers do not, nor do
 * gradients that each step makes again. */
static bool stays(const Replay *r, const Buffer *b)
{
    if (is_held(r, b)) return b->persistent || b->unit != 0;
    return b->persistent && b->category != CATEGORY_gradient;
}

/* Allocates a tensor in each step, and returns its id on the tape. */
static uint32_t have(const Replay *r, uint64_t bytes, Stream stream)
{
    return torch_tape_allocate(r->tape, bytes, stream, r->microbatch, false);
}

/* Does the same as have(), but only in the first step. */
static uint32_t have_once(const Replay *r, uint64_t bytes, Stream stream)
{
    return torch_tape_allocate(r->tape, bytes, stream, r->microbatch, true);
}

static void give_back_after(Replay *r, Pc pc, uint32_t block)
{
    r->last[pc] = list_push(r->arena, &r->pending, ((PendingFree){block, r->last[pc]}));
}

static bool reads_buffer(const Program *p, Pc pc, const Buffer *b)
{
    const Instr *in = &p->code.at[pc];
    uint64_t offset;
    for (uint32_t i = 0; i < in->n_in; i++)
        if (&p->buffers.at[program_root(p, program_arg(p, in, i), &offset)] == b) return true;
    return false;
}

/* Returns the instruction at whose issue the buffer is allocated. In the backward pass, hooks
 * gather the units, even if the plan gathers earlier. The first hook runs when the gradient of the
 * loss exists. */
static Pc allocated_at(const Replay *r, const Buffer *b)
{
    const Program *p = r->program;
    if (p->code.at[b->first].op != OP_all_gather || b->persistent) return b->first;
    Pc at = b->first;
    for (Pc pc = b->first + 1; pc < b->last && !reads_buffer(p, pc, b); pc++)
        if (runtime_is_loss(p->code.at[pc].op)) at = pc + 1;
    return at;
}

/* Allocates the gradient of a received tensor. Autograd makes it as a separate tensor and keeps it
 * with the received tensor until the next step. The plan instead writes it into the memory of the
 * gradient that the stage received for its output. */
static void gradient_of_received(Replay *r, const Instr *in)
{
    if (!r->runtime->keeps_received || in->op != OP_send || in->phase != PHASE_backward) return;
    uint64_t offset;
    BufferId id = program_root(r->program, program_arg(r->program, in, 0), &offset);
    if (!r->kept.received[id]) return;
    const Buffer *b = &r->program->buffers.at[id];
    give_back_after(r, r->program->code.n - 1, have(r, b->bytes, STREAM_compute));
}

static void prepare_zero(Replay *r)
{
    ZeroMemory *zero = &r->zero;
    r->first_zero = arena_array(r->arena, (size_t)r->program->code.n + 1, sizeof *r->first_zero);
    r->next_zero = arena_array(r->arena, (size_t)zero->tensors.n + 1, sizeof *r->next_zero);
    for (uint32_t i = zero->tensors.n; i-- > 1;) {
        r->next_zero[i] = r->first_zero[zero->tensors.at[i].from];
        r->first_zero[zero->tensors.at[i].from] = i;
    }
    const uint32_t n = sizeof zero->resident_bytes / sizeof *zero->resident_bytes;
    for (uint32_t i = 0; i < n && zero->resident_bytes[i] != 0; i++)
        torch_allocate(r->allocator, zero->resident_bytes[i], STREAM_compute);
}

/* Lists the optimizer states that the first step makes. Optimizers of PyTorch and Apex make their
 * states in the first step, after its backward pass (torch.optim.Adam: _init_group;
 * apex.optimizers.FusedAdam: step). So states take memory that the allocator has used for
 * activations, and in the following steps, activations must go elsewhere. */
static void prepare_states(Replay *r)
{
    const Program *p = r->program;
    r->first_state = arena_array(r->arena, (size_t)p->code.n + 1, sizeof *r->first_state);
    r->next_state = arena_array(r->arena, (size_t)p->buffers.n + 1, sizeof *r->next_state);
    bool *known = arena_array(r->arena, (size_t)p->buffers.n + 1, sizeof *known);
    for (Pc pc = p->code.n; r->runtime->makes_states && pc-- > 1;) {
        const Instr *in = &p->code.at[pc];
        if (!op_is_optimizer(in->op)) continue;
        for (uint32_t i = in->args.n; i-- > 0;) {
            uint64_t offset;
            BufferId id = program_root(p, program_arg(p, in, i), &offset);
            const Buffer *b = &p->buffers.at[id];
            if (known[id] || b->category != CATEGORY_optimizer || !b->persistent) continue;
            known[id] = true;
            r->next_state[id] = r->first_state[pc];
            r->first_state[pc] = id;
            r->block[id] = LATER;
        }
    }
}

/* Returns the bytes of a buffer that stays until the end of the run. A weight takes `part` times
 * its bytes in the plan. A profile may give moments and master weights bytes of their own. */
static uint64_t permanent_bytes(const Replay *r, const Buffer *b, double part)
{
    const bool weight = b->category == CATEGORY_parameter, master = weight && b->unit != 0;
    double own = b->category == CATEGORY_optimizer ? r->runtime->moment_bytes : 0;
    if (master && b->dtype == DT_f32) own = r->runtime->master_bytes;
    if (!b->persistent || (!weight && own <= 0)) part = 1;
    if (b->persistent && own > 0) part = own / dtype_bytes(b->dtype);
    return (uint64_t)((double)b->bytes * part);
}

static void prepare(Replay *r)
{
    const Program *p = r->program;
    const double part = model_weight_part(r->plan, p, r->runtime);
    r->first = arena_array(r->arena, (size_t)p->code.n + 1, sizeof *r->first);
    r->last = arena_array(r->arena, (size_t)p->code.n + 1, sizeof *r->last);
    r->next_buffer = arena_array(r->arena, (size_t)p->buffers.n + 1, sizeof *r->next_buffer);
    r->block = arena_array(r->arena, (size_t)p->buffers.n + 1, sizeof *r->block);
    r->has_second = arena_array(r->arena, (size_t)p->buffers.n + 1, sizeof *r->has_second);
    prepare_states(r);
    list_reserve_none(r->arena, &r->pending);
    zero_memory(r->plan, p, r->runtime, r->arena, &r->zero);
    r->kept = torch_kept(r->plan, p, r->runtime, r->arena);
    prepare_zero(r);
    for (BufferId id = p->buffers.n; id-- > 1;) {
        const Buffer *b = &p->buffers.at[id];
        if (!has_tensor(r, id) || r->block[id] == LATER) continue;
        if (stays(r, b) || r->kept.received[id]) {
            torch_allocate(r->allocator, permanent_bytes(r, b, part), STREAM_compute);
        } else {
            Pc at = allocated_at(r, b);
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

/* Returns the number of scores of an attention: sequences x heads x queries x keys. */
static double scores_of(const Plan *plan, const Program *p, const Instr *in)
{
    if (!op_attends(in->op)) return 0;
    Binding b;
    int64_t size['z' + 1] = {0};
    Rank rank = 0;
    while (plan_program(plan, rank) != p) rank++;
    if (!plan_bind(plan, p, in, rank, &b, size, NULL, NULL)) return 0;
    const HeadsSizes is = op_heads_sizes(in->op, size);
    return (double)is.samples * (double)is.groups * (double)is.heads * (double)is.queries *
           (double)is.keys;
}

static Pc last_of(const Program *p, const Instr *in, uint32_t arg)
{
    uint64_t offset;
    return p->buffers.at[program_root(p, program_arg(p, in, arg), &offset)].last;
}

/* Returns the bytes that the framework's op (RuntimeOp) saves in addition to its arguments. */
static double saved_of(const Replay *r, const Instr *in, bool compiled)
{
    const RuntimeOp *as = &r->runtime->op[in->op];
    const Program *p = r->program;
    double saved = as->saved > 0 && !compiled ? as->saved * most_elements(p, in) : 0;
    if (as->scores > 0) saved += as->scores * scores_of(r->plan, p, in);
    if (!compiled && r->runtime->expands_kv && op_attends(in->op)) { /* repeated keys and values */
        const Graph *g = &r->plan->graph;
        const Tensor *queries = &g->tensors.at[g->nodes.at[in->origin].in[0]]; /* [b,s,g,r,E] */
        saved += 2. * (double)p->buffers.at[program_arg(p, in, 1)].bytes *
                 (double)(queries->dim[op_dim(in->op, 0, INDEX_heads)] - 1);
    }
    if (!compiled && as->stacks && op_dim(in->op, 1, INDEX_experts) >= 0)
        saved += (double)p->buffers.at[program_arg(p, in, 1)].bytes;
    return saved;
}

/* Allocates the tensors that only the framework's op (RuntimeOp) makes. A compiled op makes only
 * scores. None of them is kept in the first pass through a recomputed region, or in a module with
 * offloaded tensors. */
static void own_tensors(Replay *r, Pc pc, const Instr *in)
{
    const RuntimeOp *as = &r->runtime->op[in->op];
    if (op_info(in->op)->class_ == OP_CLASS_comm) return;
    const bool compiled = runtime_compiles(r->runtime, r->plan, in);
    const double saved = saved_of(r, in, compiled);
    if (saved > 0 && in->args.n > in->n_in) {
        const Node *node = &r->plan->graph.nodes.at[in->origin];
        bool again = in->phase == PHASE_forward &&
                     ((node->region != 0 && !node->keep) || r->kept.offloaded[node->module]);
        Pc of_input = last_of(r->program, in, 0), of_output = last_of(r->program, in, in->n_in);
        Pc until = of_input > of_output ? of_input : of_output;
        if (r->kept.in_graph[pc]) until = r->program->code.n - 1;
        uint32_t block = have(r, (uint64_t)saved, STREAM_compute);
        give_back_after(r, until > pc && !again ? until : pc, block);
    }
    for (double i = 0; !compiled && as->scratch > 0 && i < as->tensors; i++) {
        uint64_t bytes = (uint64_t)(as->scratch * most_elements(r->program, in) / as->tensors);
        give_back_after(r, pc, have(r, bytes, STREAM_compute));
    }
}

/* Lets an output take over the first input of its size that is not needed after this instruction.
 * Returns its block; 0: there is none. */
static uint32_t take_over(Replay *r, Pc pc, const Instr *in, const Buffer *b)
{
    const InPlace when = r->runtime->op[in->op].in_place;
    const bool backward = in->phase == PHASE_backward;
    if (b->first != pc || when == IN_PLACE_never || (when == IN_PLACE_backward && !backward))
        return 0;
    uint64_t offset;
    for (uint32_t i = 0; i < in->n_in; i++) {
        BufferId id = program_root(r->program, program_arg(r->program, in, i), &offset);
        uint32_t block = r->block[id];
        if (block == 0 || r->kept.needed[id] != pc || r->program->buffers.at[id].bytes != b->bytes)
            continue;
        for (uint32_t at = r->last[pc]; at != 0; at = r->pending.at[at].next)
            if (r->pending.at[at].block == block) r->pending.at[at].block = 0;
        r->block[id] = 0;
        return block;
    }
    return 0;
}

/* Returns true for an output that is never stored as a tensor, because the op that reads it
 * computes it. */
static bool is_folded(const Replay *r, Pc pc, const Buffer *b)
{
    const Instr *in = &r->program->code.at[pc];
    return b->first == pc && r->runtime->op[in->op].folded;
}

static uint64_t reduced_bytes(const Replay *r, const Instr *in, const Buffer *b)
{
    const bool sharded =
        in->op == OP_reduce_scatter && b->persistent && b->category == CATEGORY_gradient;
    if (!sharded || b->unit == 0 || !r->runtime->casts_gradients) return b->bytes;
    return b->bytes / dtype_bytes(b->dtype) *
           dtype_bytes(r->plan->graph.units.at[b->unit].rest_dtype);
}

/* Returns the bytes of the buffer's tensor, in the types that the framework uses. */
static uint64_t bytes_of(const Replay *r, const Instr *in, BufferId id)
{
    const Buffer *b = &r->program->buffers.at[id];
    const bool narrow = r->kept.narrow[id], eight = dtype_is_eight_bits(b->dtype);
    const uint64_t bytes = reduced_bytes(r, in, b), numbers = bytes / dtype_bytes(b->dtype);
    if (b->category == CATEGORY_parameter || !(narrow || eight)) return bytes;
    const double each = r->runtime->quantised_bytes > 0 ? r->runtime->quantised_bytes : 1;
    return (uint64_t)((double)numbers * each);
}

static void allocate_buffers(Replay *r, Pc pc, const Instr *in)
{
    const Program *p = r->program;
    for (BufferId id = r->first[pc]; id != 0; id = r->next_buffer[id]) {
        const Buffer *b = &p->buffers.at[id];
        if (is_folded(r, pc, b)) continue;
        uint32_t block = take_over(r, pc, in, b);
        if (block == 0) block = have(r, bytes_of(r, in, id), in->stream);
        r->block[id] = block;
        give_back_after(r, b->persistent ? p->code.n - 1 : r->kept.needed[id], block);
    }
}

/* bytes of an element: activations have 16 bits, whatever the dtype of the accumulator */
enum { RETURNED_BYTES = 2 };

/* Returns the gradient of a weight that a product of the backward pass makes; 0: it makes none. */
static BufferId made_gradient(const Replay *r, const Instr *in)
{
    if (in->args.n <= in->n_in || in->phase != PHASE_backward || in->origin == 0) return 0;
    const BufferId id = program_arg(r->program, in, in->n_in);
    const Buffer *b = &r->program->buffers.at[id];
    return b->category == CATEGORY_gradient && b->unit != 0 ? id : 0;
}

/* Allocates the 16-bit gradient that a weight has besides the one that the optimizer reads. Its
 * first product in a step makes it, and the end of the step releases it. Further products add to
 * it. (DeepSpeed, runtime/bf16_optimizer.py: clear_lp_grads keeps the tensor until zero_grad.) */
static void second_gradient(Replay *r, const Instr *in)
{
    const BufferId id = r->runtime->two_gradients ? made_gradient(r, in) : 0;
    if (id == 0) return;
    uint64_t offset;
    const BufferId root = program_root(r->program, id, &offset);
    if (r->has_second[root]) return;
    r->has_second[root] = true;
    const Buffer *b = &r->program->buffers.at[root];
    const uint64_t bytes = b->bytes / dtype_bytes(b->dtype) * RETURNED_BYTES;
    give_back_after(r, r->program->code.n - 1, have(r, bytes, STREAM_compute));
}

/* Allocates the tensor that the product for a weight's gradient makes besides the permanent buffer
 * of the gradient. Either a hook adds this tensor to the buffer and releases it. Or the product
 * itself adds to the buffer, and autograd gets a tensor that nothing reads. Transformer Engine
 * keeps one such tensor for each size of a block's weights (get_dummy_wgrad). */
static void returned_gradient(Replay *r, Pc pc, const Instr *in)
{
    const BufferId id = r->runtime->makes_gradients ? made_gradient(r, in) : 0;
    if (id == 0) return;
    const Buffer *b = &r->program->buffers.at[id];
    const uint64_t bytes = b->bytes / dtype_bytes(b->dtype) * RETURNED_BYTES;
    if (!r->runtime->keeps_returned || r->plan->graph.nodes.at[in->origin].layer == 0) {
        give_back_after(r, pc, have(r, bytes, STREAM_compute));
        return;
    }
    for (uint32_t i = 0; i < r->returned.n; i++)
        if (r->returned.at[i] == bytes) return;
    list_push(r->arena, &r->returned, bytes);
    have_once(r, bytes, STREAM_compute);
}

/* Allocates the temporary product that an eager op adds to the gradient of a weight. */
static void added_product(Replay *r, Pc pc, const Instr *in)
{
    if (r->runtime->added_bytes <= 0 || in->args.n <= in->n_in || in->phase != PHASE_backward)
        return;
    const Buffer *b = &r->program->buffers.at[program_arg(r->program, in, in->n_in)];
    const Attrs *attrs = graph_attrs_at(&r->plan->graph, in->attrs);
    if (b->category != CATEGORY_gradient || b->unit == 0 || !(attrs->accumulate & 1)) return;
    double elements = (double)b->bytes / dtype_bytes(b->dtype);
    give_back_after(r, pc, have(r, b->bytes, STREAM_compute));
    give_back_after(r, pc, have(r, (uint64_t)(elements * r->runtime->added_bytes), STREAM_compute));
}

/* Writes the tape of a step. */
static void write_tape(Replay *r)
{
    const Program *p = r->program;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        r->microbatch = in->microbatch;
        if (in->stream == STREAM_compute &&
            (in->phase == PHASE_backward || in->phase == PHASE_recompute))
            torch_tape_backward(r->tape, in->microbatch);
        for (uint32_t i = r->first_zero[pc]; i != 0; i = r->next_zero[i]) {
            const ZeroTensor *own = &r->zero.tensors.at[i];
            give_back_after(r, own->to,
                            own->only_at_first ? have_once(r, own->bytes, own->stream)
                                               : have(r, own->bytes, own->stream));
        }
        for (BufferId id = r->first_state[pc]; id != 0; id = r->next_state[id])
            if (has_tensor(r, id))
                have_once(r, permanent_bytes(r, &p->buffers.at[id], 1), STREAM_compute);
        allocate_buffers(r, pc, in);
        added_product(r, pc, in);
        returned_gradient(r, pc, in);
        second_gradient(r, in);
        for (uint32_t i = 0; pc == r->update.first && i < r->update.tensors.n; i++)
            give_back_after(r, r->update.last, have(r, r->update.tensors.at[i], STREAM_compute));
        gradient_of_received(r, in);
        own_tensors(r, pc, in);
        for (uint32_t at = r->last[pc]; at != 0; at = r->pending.at[at].next)
            if (r->pending.at[at].block != 0) torch_tape_release(r->tape, r->pending.at[at].block);
    }
}

static void at_least(uint64_t *peak, uint64_t bytes)
{
    if (*peak < bytes) *peak = bytes;
}

TorchStats torch_memory(const Plan *plan, const Program *p, const Runtime *runtime,
                        const Device *device, uint64_t limit_bytes)
{
    return torch_memory_how(plan, p, runtime, device, limit_bytes, false, NULL);
}

TorchStats torch_memory_how(const Plan *plan, const Program *p, const Runtime *runtime,
                            const Device *device, uint64_t limit_bytes, bool in_full,
                            uint32_t *n_left_out)
{
    assert(!runtime_is_own(runtime));
    Arena *arena = arena_new();
    Replay r = {.plan = plan, .program = p, .runtime = runtime, .arena = arena};
    bool old = device->arch == NULL || strcmp(device->arch, "Ampere") == 0;
    /* On ROCm, PyTorch has no expandable segments before 2026 (pytorch/pytorch #173330). */
    bool rocm = device->arch != NULL && strncmp(device->arch, "CDNA", 4) == 0;
    r.allocator = torch_allocator_new(limit_bytes, runtime->expandable && !rocm, arena);
    const uint64_t usual = old ? 8519680 : UINT64_C(32) << 20,
                   own = (uint64_t)runtime->workspace_bytes;
    const double n_workspaces = runtime->n_workspaces > 1 ? runtime->n_workspaces : 1;
    for (double i = 0; i < n_workspaces; i++)
        torch_allocate(r.allocator, own > 0 ? own : usual,
                       STREAM_compute); /* workspace of cuBLAS */
    if (runtime->library_bytes > 0)
        torch_allocate(r.allocator, (uint64_t)runtime->library_bytes, STREAM_compute);
    prepare(&r);
    r.update = update_memory(plan, p, runtime, arena);
    r.tape = torch_tape_new(4 * p->code.n, arena);
    write_tape(&r);
    if (!in_full) torch_tape_find_periods(r.tape);
    torch_tape_play(r.tape, r.allocator, true);
    torch_reset_peaks(r.allocator);
    const uint32_t left_out = torch_tape_play(r.tape, r.allocator, false);
    if (n_left_out != NULL) *n_left_out = left_out;
    TorchStats stats = torch_stats(r.allocator);
    const uint64_t whole = model_whole_bytes(plan, runtime);
    at_least(&stats.peak_allocated, whole);
    at_least(&stats.peak_reserved, whole);
    stats.failed = stats.failed || (limit_bytes > 0 && whole > limit_bytes);
    arena_free(arena);
    return stats;
}
