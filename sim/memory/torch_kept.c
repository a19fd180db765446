/* See torch_kept.h. */
#include "sim/memory/torch_kept.h"

#include "sim/runtime/runtime.h"

typedef struct Keeper {
    const Plan *plan;
    const Program *program;
    const Runtime *runtime;
    Arena *arena;
    BufferId *root; /* [buffer]: the buffer that contains it, or itself */
    TorchKept *kept;
} Keeper;

static BufferId root_of(const Keeper *k, const Instr *in, uint32_t arg)
{
    return k->root[program_arg(k->program, in, arg)];
}

/* Roots are asked for often, so they are found once. */
static void find_roots(Keeper *k)
{
    const Program *p = k->program;
    uint32_t room = 0;
    k->root = list_grow(k->arena, NULL, 0, &room, p->buffers.n + 1, sizeof *k->root);
    for (BufferId b = 0; b < p->buffers.n; b++)
        k->root[b] = p->buffers.at[b].parent ? program_root(p, b, NULL) : b;
}

static void keep_until(const Keeper *k, BufferId id, Pc pc)
{
    if (k->kept->needed[id] < pc) k->kept->needed[id] = pc;
}

/* Returns an array [module]: true if the module lies inside one of the first blocks, whose
 * activations are kept in host memory. */
static const bool *offloaded_modules(const Keeper *k)
{
    const Graph *g = &k->plan->graph;
    bool *is = arena_array(k->arena, (size_t)g->modules.n + 1, sizeof *is);
    double n_blocks = 0;
    for (ModuleId m = 1; m < g->modules.n;
         m++) { /* a module has a larger index than the modules that contain it */
        const Module *at = &g->modules.at[m];
        is[m] = at->parent != 0 && is[at->parent];
        if (at->is_block && !is[m]) is[m] = n_blocks++ < k->runtime->offloaded_blocks;
    }
    return is;
}

/* Returns true if the framework recomputes the instruction's output in the backward pass. It then
 * recomputes the quantised form of the output, too. */
static bool is_remade(const Keeper *k, const Instr *in)
{
    const Program *p = k->program;
    if (!(op_info(in->op)->flags & OP_QUANTISES)) return k->runtime->op[in->op].remade;
    return k->runtime->op[p->code.at[p->buffers.at[root_of(k, in, 0)].first].op].remade;
}

/* Returns true if the buffer's bytes are in host memory between the forward and the backward
 * pass. */
static bool leaves(const Keeper *k, BufferId id)
{
    const Buffer *b = &k->program->buffers.at[id];
    const Instr *maker = &k->program->code.at[b->first];
    const ModuleId at = maker->origin ? k->plan->graph.nodes.at[maker->origin].module : 0;
    return k->kept->offloaded[at] && b->category == CATEGORY_activation &&
           maker->phase == PHASE_forward && b->parent == 0;
}

/* Sets needed[buffer] to the last use of each buffer. If the op that makes it is recomputed, the
 * last use outside of the backward pass counts. If its bytes are in host memory, uses that
 * recompute its block do not count, either. */
static void find_needed(const Keeper *k)
{
    const Program *p = k->program;
    for (BufferId id = 1; id < p->buffers.n; id++) {
        const Buffer *b = &p->buffers.at[id];
        bool remade = b->parent == 0 && (leaves(k, id) || is_remade(k, &p->code.at[b->first]));
        k->kept->needed[id] = remade ? b->first : b->last;
    }
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        for (uint32_t i = 0; in->phase != PHASE_backward && i < in->n_in; i++) {
            BufferId id = root_of(k, in, i);
            if (in->phase == PHASE_recompute && leaves(k, id)) continue;
            if (pc <= p->buffers.at[id].last) keep_until(k, id, pc);
        }
    }
}

/* Returns true if the framework reads no output of `in`: no output is persistent, and the framework
 * runs no instruction that reads one. read[buffer] is true if it runs an instruction that reads the
 * buffer. */
static bool only_absent_read(const Keeper *k, const Instr *in, const bool *read)
{
    for (uint32_t i = in->n_in; i < in->args.n; i++) {
        const BufferId id = root_of(k, in, i);
        if (read[id] || k->program->buffers.at[id].persistent) return false;
    }
    return in->args.n > in->n_in;
}

/* Returns an array [pc], which is true if the instruction is absent: the framework does not run it.
 * An instruction is absent if the framework computes its gradient from other tensors
 * (`reads_none`), or if it only moves inputs of absent instructions. */
static const bool *absent_instructions(const Keeper *k)
{
    const Program *p = k->program;
    bool *absent = arena_array(k->arena, (size_t)p->code.n + 1, sizeof *absent);
    bool *read = arena_array(k->arena, (size_t)p->buffers.n + 1, sizeof *read);
    for (Pc pc = p->code.n; pc-- > 1;) {
        const Instr *in = &p->code.at[pc];
        const OpClass class_ = op_info(in->op)->class_;
        const bool moves = class_ == OP_CLASS_comm || class_ == OP_CLASS_reshape;
        absent[pc] = k->runtime->op[in->op].reads_none ||
                     (moves && in->phase == PHASE_backward && only_absent_read(k, in, read));
        for (uint32_t i = 0; !absent[pc] && i < in->n_in; i++) read[root_of(k, in, i)] = true;
    }
    return absent;
}

/* In the plan, an absent instruction has inputs, which are kept until it runs. The framework does
 * not keep them for it. */
static void spare_inputs(const Keeper *k)
{
    const Program *p = k->program;
    const bool *absent = absent_instructions(k);
    bool *spared = arena_array(k->arena, (size_t)p->buffers.n + 1, sizeof *spared);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        for (uint32_t i = 0; absent[pc] && i < in->n_in; i++) {
            const BufferId id = root_of(k, in, i);
            if (p->buffers.at[id].category != CATEGORY_activation) continue;
            spared[id] = true;
            k->kept->needed[id] = p->buffers.at[id].first;
        }
    }
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (k->runtime->frozen_base && runtime_leaves_out(k->runtime, k->plan, p, in)) continue;
        for (uint32_t i = 0; !absent[pc] && i < in->args.n; i++) {
            const BufferId id = root_of(k, in, i);
            const bool remade = k->runtime->op[p->code.at[p->buffers.at[id].first].op].remade;
            if (spared[id] && !(remade && in->phase == PHASE_backward)) keep_until(k, id, pc);
        }
    }
}

/* If weights are frozen, does not keep tensors that only the gradients of these weights would
 * read. */
static void forget_untrained(const Keeper *k)
{
    const Program *p = k->program;
    for (BufferId id = 1; id < p->buffers.n; id++) k->kept->needed[id] = p->buffers.at[id].first;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (runtime_leaves_out(k->runtime, k->plan, p, in)) continue;
        for (uint32_t i = 0; i < in->args.n; i++) {
            const BufferId id = root_of(k, in, i);
            const bool remade = k->runtime->op[p->code.at[p->buffers.at[id].first].op].remade;
            if (!remade || in->phase != PHASE_backward) keep_until(k, id, pc);
        }
    }
}

/* Returns true for a value that one op passes to another: an activation, or a copy of an activation
 * that was sorted for an exchange. */
static bool is_value(const Buffer *b)
{
    return b->category == CATEGORY_activation || b->category == CATEGORY_communication;
}

/* Marks inputs that some op saves in 8 bits (`keeps_bytes`), unless another op keeps them in their
 * own dtype. */
static void narrow_inputs(const Keeper *k)
{
    const Program *p = k->program;
    bool any = false;
    for (OpKind op = 0; op < OP_COUNT && !any; op++) any = k->runtime->op[op].keeps_bytes;
    if (!any) return;
    for (int others = 0; others < 2; others++)
        for (Pc pc = 1; pc < p->code.n; pc++) {
            const Instr *in = &p->code.at[pc];
            const NodeId of = in->origin == 0 ? 0 : k->plan->graph.nodes.at[in->origin].forward;
            const OpKind op = of == 0 ? in->op : k->plan->graph.nodes.at[of].op;
            const bool reads = k->runtime->op[op].keeps_bytes;
            if (others ? reads || in->phase != PHASE_backward || op == OP_none
                       : !reads || in->phase != PHASE_forward)
                continue;
            for (uint32_t i = 0; i < in->n_in; i++) {
                const BufferId id = root_of(k, in, i);
                if (others && k->kept->needed[id] < pc) continue;
                k->kept->narrow[id] = !others && is_value(&p->buffers.at[id]);
            }
        }
}

/* An autograd node releases its inputs when all of its gradients exist. In Tandem's plans, separate
 * instructions compute these gradients, so inputs are kept until the last of them. This does not
 * apply to compiled code, which plans its own buffers. */
static void hold_nodes(const Keeper *k)
{
    const Program *p = k->program;
    const Graph *g = &k->plan->graph;
    uint32_t n_micro = 1;
    for (Pc pc = 1; pc < p->code.n; pc++)
        if (p->code.at[pc].microbatch >= n_micro) n_micro = p->code.at[pc].microbatch + 1;
    /* [forward node][micro-batch]: the last instruction of its gradients. Each micro-batch has an
     * entry, because schedules that postpone weight gradients mix micro-batches. */
    Pc *last = arena_array(k->arena, (size_t)g->nodes.n * n_micro, sizeof *last);
    for (Pc pc = p->code.n; pc-- > 1;) {
        const Instr *in = &p->code.at[pc];
        const bool comm = op_info(in->op)->class_ == OP_CLASS_comm;
        if (in->phase != PHASE_backward || in->origin == 0 || comm) continue;
        const NodeId of = g->nodes.at[in->origin].forward;
        if (of == 0 || runtime_compiles(k->runtime, k->plan, in)) continue;
        Pc *until = &last[(size_t)of * n_micro + in->microbatch];
        if (*until == 0) *until = pc;
        for (uint32_t i = 0; i < in->n_in; i++) {
            const BufferId id = root_of(k, in, i);
            /* a buffer that is not kept until `pc` is recomputed, so nothing holds it */
            if (k->kept->needed[id] >= pc) keep_until(k, id, *until);
        }
    }
}

/* Keeps tensors that are sent between pipeline stages. PyTorch's schedules keep the output of each
 * micro-batch on the last stage until the next step. Until May 2025, they did this on every stage
 * (pytorch/pytorch #153383). A stage also has permanent tensors for the activations and gradients
 * that each micro-batch receives. */
static void keep_sent_tensors(const Keeper *k)
{
    const Program *p = k->program;
    const Runtime *how = k->runtime;
    if (mesh_axes_of(&k->plan->mesh, axes_with(AXIS_STAGES)) == 0) return;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        const bool forward = in->phase == PHASE_forward;
        const bool returned = how->keeps_outputs && forward && op_starts_loss(in->op);
        const bool sent = in->op == OP_send && (forward ? how->keeps_sent : how->keeps_received);
        if (returned || sent) keep_until(k, root_of(k, in, 0), p->code.n - 1);
        if (how->keeps_received && in->op == OP_recv)
            k->kept->received[root_of(k, in, in->n_in)] = true;
    }
}

static bool lies_in(const Plan *plan, const Instr *in, ModuleId module)
{
    ModuleId m = in->origin != 0 ? plan->graph.nodes.at[in->origin].module : 0;
    while (m != 0 && m != module) m = plan->graph.modules.at[m].parent;
    return m == module;
}

/* Instruction `in` reads the output of `made`. Returns the module to which this output was passed
 * as an argument; 0: it was passed to a function. */
static ModuleId called_with(const Plan *plan, const Instr *made, const Instr *in)
{
    if (made->origin == 0 || in->origin == 0) return 0;
    const ModuleId caller =
        plan->graph.modules.at[plan->graph.nodes.at[made->origin].module].parent;
    ModuleId m = plan->graph.nodes.at[in->origin].module;
    while (m != 0 && plan->graph.modules.at[m].parent != caller)
        m = plan->graph.modules.at[m].parent;
    return caller != 0 ? m : 0;
}

/* Keeps the arguments of a module until its call returns, because the caller in Python holds
 * them. */
static void hold_arguments(const Keeper *k)
{
    const Program *p = k->program;
    for (Pc pc = 1; k->runtime->holds_arguments && pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        for (uint32_t i = 0; in->phase == PHASE_forward && i < in->n_in; i++) {
            BufferId id = root_of(k, in, i);
            const Buffer *b = &p->buffers.at[id];
            if (b->category != CATEGORY_activation || b->first >= pc) continue;
            ModuleId m = called_with(k->plan, &p->code.at[b->first], in);
            Pc last = pc;
            for (Pc at = pc + 1; m != 0 && at < p->code.n; at++) {
                if (p->code.at[at].stream != STREAM_compute || p->code.at[at].unit != 0) continue;
                if (!lies_in(k->plan, &p->code.at[at], m)) break;
                last = at;
            }
            keep_until(k, id, last);
        }
    }
}

/* A framework with a buffer of whole gradients also has one of whole weights, which exists while
 * the optimizer runs. A plan may gather the weights of a unit several times a step; then the last
 * gathered copy stands for that buffer. */
static void hold_weights(const Keeper *k)
{
    const Program *p = k->program;
    if (!k->runtime->holds_gradients || k->runtime->scatters_gradients) return;
    bool *held = arena_array(k->arena, k->plan->graph.units.n, sizeof *held);
    for (BufferId id = p->buffers.n; id-- > 1;) {
        const Buffer *b = &p->buffers.at[id];
        const bool in_use = b->category == CATEGORY_gathered || b->category == CATEGORY_parameter;
        if (!in_use || b->persistent || b->parent != 0 || b->unit == 0 || held[b->unit]) continue;
        held[b->unit] = true;
        keep_until(k, id, p->code.n - 1);
    }
}

/* Keeps the logits of a micro-batch until the next logits exist, because a variable of the training
 * loop holds them. */
static void hold_logits(const Keeper *k)
{
    const Program *p = k->program;
    BufferId before = 0;
    for (Pc pc = 1; k->runtime->holds_logits && pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (!op_starts_loss(in->op) || in->phase != PHASE_forward) continue;
        BufferId id = root_of(k, in, 0);
        if (before != 0) keep_until(k, before, p->buffers.at[id].first);
        before = id;
    }
    if (before != 0) keep_until(k, before, p->code.n - 1);
}

/* Returns an array [node]. It is true for each node whose result leads to a value that a module
 * keeps (`keeps_graph`), if both nodes belong to the same recomputed region. */
static bool *nodes_of_kept_graphs(const Keeper *k)
{
    const Graph *g = &k->plan->graph;
    bool *kept = arena_array(k->arena, (size_t)g->nodes.n + 1, sizeof *kept);
    for (NodeId id = g->nodes.n; id-- > 1;) {
        const Node *n = &g->nodes.at[id];
        if (n->forward != 0 || n->region == 0) continue;
        kept[id] = kept[id] || k->runtime->op[n->op].keeps_graph;
        for (uint32_t i = 0; kept[id] && i < n->n_in; i++) {
            NodeId from = g->tensors.at[n->in[i]].producer;
            if (from != 0 && g->nodes.at[from].region == n->region) kept[from] = true;
        }
    }
    return kept;
}

/* Keeps tensors that the graph of a recomputation saves, if a module refers to this graph. A graph
 * releases its saved tensors step by step while it is differentiated. The graph of a recomputation
 * is never differentiated, so each reference to it keeps its tensors alive. */
static void keep_graphs(const Keeper *k)
{
    const Program *p = k->program;
    bool any = false;
    for (OpKind op = 0; op < OP_COUNT && !any; op++) any = k->runtime->op[op].keeps_graph;
    if (!any) return;
    const bool *node = nodes_of_kept_graphs(k);
    bool *made = arena_array(k->arena, (size_t)p->buffers.n + 1, sizeof *made);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        bool again = in->phase == PHASE_recompute && in->origin != 0 && node[in->origin];
        k->kept->in_graph[pc] = again;
        bool saves = again && !k->runtime->op[in->op].remade;
        for (uint32_t i = in->n_in; saves && i < in->args.n; i++) made[root_of(k, in, i)] = true;
        for (uint32_t i = 0; in->phase == PHASE_backward && i < in->n_in; i++)
            if (made[root_of(k, in, i)]) keep_until(k, root_of(k, in, i), p->code.n - 1);
    }
}

TorchKept torch_kept(const Plan *plan, const Program *p, const Runtime *runtime, Arena *arena)
{
    TorchKept kept = {
        .needed = arena_array(arena, (size_t)p->buffers.n + 1, sizeof *kept.needed),
        .narrow = arena_array(arena, (size_t)p->buffers.n + 1, sizeof *kept.narrow),
        .received = arena_array(arena, (size_t)p->buffers.n + 1, sizeof *kept.received),
        .in_graph = arena_array(arena, (size_t)p->code.n + 1, sizeof *kept.in_graph),
    };
    Keeper k = {.plan = plan, .program = p, .runtime = runtime, .arena = arena, .kept = &kept};
    find_roots(&k);
    kept.offloaded = offloaded_modules(&k);
    if (runtime->frozen_base)
        forget_untrained(&k);
    else
        find_needed(&k);
    spare_inputs(&k);
    if (!runtime->frozen_base) hold_nodes(&k);
    narrow_inputs(&k);
    hold_arguments(&k);
    keep_sent_tensors(&k);
    hold_logits(&k);
    hold_weights(&k);
    keep_graphs(&k);
    return kept;
}
