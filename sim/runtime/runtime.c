/* See runtime.h. */
#include "sim/runtime/runtime.h"

#include <math.h>
#include <string.h>

#include "sim/compute/kernels.h"

/* Returns true for ops of the loss. The loss is a function outside of the model, so a compiled
 * model may not contain it. */
bool runtime_is_loss(OpKind op)
{
    return strncmp(op_info(op)->name, "xent_", 5) == 0;
}

bool runtime_compiles(const Runtime *runtime, const Plan *plan, const Instr *in)
{
    if (runtime_is_own(runtime) || !runtime->is_compiled || in->origin == 0) return false;
    if (in->phase == PHASE_update || in->phase == PHASE_start) return false;
    if (runtime_is_loss(in->op)) return runtime->compiles_loss;
    if (runtime->compiled == COMPILE_model) return true;
    return plan->graph.modules.at[plan->graph.nodes.at[in->origin].module].layer > 0;
}

/* Returns true for a reduction of the largest magnitudes of 8-bit operands. */
static bool is_scale(const Plan *plan, const Program *p, const Instr *in)
{
    const Attrs *attrs = graph_attrs_at(&plan->graph, in->attrs);
    return in->op == OP_all_reduce && attrs->reduce == REDUCE_max && in->args.n > 0 &&
           p->buffers.at[program_arg(p, in, 0)].bytes <= sizeof(float);
}

/* Returns true if the instruction makes or sums the gradient of a weight, or updates a weight. */
static bool is_training(const Program *p, const Instr *in)
{
    if (in->phase == PHASE_update) return true;
    if (op_info(in->op)->class_ == OP_CLASS_comm)
        return in->unit != 0 && (in->op == OP_reduce_scatter || in->op == OP_all_reduce);
    if (in->phase != PHASE_backward || in->args.n <= in->n_in) return false;
    const Buffer *made = &p->buffers.at[program_arg(p, in, in->n_in)];
    return made->category == CATEGORY_gradient && made->unit != 0;
}

bool runtime_quantises_weight(const Program *p, const Instr *in)
{
    if (strncmp(op_info(in->op)->name, "quantise", 8) != 0 || in->n_in == 0) return false;
    Category of = p->buffers.at[program_arg(p, in, 0)].category;
    return of == CATEGORY_parameter || of == CATEGORY_gathered;
}

/* Returns true if the instruction finds the largest magnitude of a whole tensor of 4-bit numbers
 * (nvfp4), or reduces it over ranks. (The node after it quantises the tensor.) Frameworks find this
 * magnitude in every step, but each rank uses only its own part of the tensor. In Transformer
 * Engine, the ranks of tp use one magnitude if sequences are gathered. */
static bool finds_whole(const Plan *plan, const Instr *in)
{
    const Graph *g = &plan->graph;
    return in->origin != 0 && in->origin + 1 < g->nodes.n &&
           op_scales_whole(g->nodes.at[in->origin].op) &&
           op_has_pairs(g->nodes.at[in->origin + 1].op);
}

/* Returns true for a copy before a reduction over tp, or after a gather over tp, that brings the
 * parts of a sequence into order. The plan's activations begin with the batch, so they need this
 * copy. Activations that begin with the sequence do not. */
static bool orders_sequence(const Plan *plan, const Instr *in)
{
    enum { SEQUENCE = 1 };
    if (in->op != OP_pack && in->op != OP_unpack) return false;
    const Instr *comm = in->op == OP_pack ? in + 1 : in - 1;
    const AxisSet tp = mesh_axes_of(&plan->mesh, axes_with(AXIS_WEIGHTS));
    return comm->op == (in->op == OP_pack ? OP_reduce_scatter : OP_all_gather) && comm->unit == 0 &&
           (comm->axes & ~tp) == 0 && graph_attrs_at(&plan->graph, in->attrs)->dim == SEQUENCE;
}

bool runtime_leaves_out(const Runtime *runtime, const Plan *plan, const Program *p, const Instr *in)
{
    if (runtime_is_own(runtime)) return false;
    if (runtime->frozen_base && is_training(p, in)) return true;
    if (finds_whole(plan, in)) return is_scale(plan, p, in);
    if (runtime->sequence_first && orders_sequence(plan, in)) return true;
    if (!runtime->delayed) return false;
    const char *name = op_info(in->op)->name;
    if (strncmp(name, "amax", 4) == 0 || is_scale(plan, p, in)) return true;
    const bool once = in->microbatch == 0 && !runtime->frozen_base;
    return !once && runtime_quantises_weight(p, in);
}

AttentionKernel runtime_attention(const Runtime *runtime, const Device *device)
{
    if (!runtime_is_own(runtime)) return runtime->attention;
    bool old = device->arch == NULL || strcmp(device->arch, "Ampere") == 0;
    if (kernel_is_timed(device)) return ATTENTION_tandem;
    return old ? ATTENTION_flash2 : ATTENTION_cudnn;
}

const GemmFit *runtime_products(const Runtime *runtime, const Device *device)
{
    return runtime_is_own(runtime) ? kernel_gemm_timed(device) : NULL;
}

double runtime_unfused_s(const Device *device, DType dtype, double heads, double queries,
                         double keys, double head, bool backward)
{
    double scores = heads * queries * keys;
    double products = 2 * kernel_gemm_s(device, dtype, heads, queries, keys, head, NULL) +
                      2 * kernel_gemm_s(device, dtype, heads, queries, head, keys, NULL);
    return (backward ? products : products / 2) +
           kernel_memory_s(device, scores * (backward ? 19 : 13));
}

/* Returns true for the first instruction of a micro-batch's forward or backward pass through the
 * stage. */
static bool begins_pass(const Program *p, const Instr *in)
{
    if (in->stream != STREAM_compute) return false;
    if (in->phase != PHASE_forward && in->phase != PHASE_backward) return false;
    for (const Instr *at = in - 1; at > p->code.at; at--) {
        if (at->stream != STREAM_compute) continue;
        if (at->phase == PHASE_recompute && in->phase == PHASE_backward) return false;
        return at->microbatch != in->microbatch || at->phase != in->phase;
    }
    return true;
}

static double comm_s(const Runtime *runtime, const Instr *in)
{
    if (in->op == OP_send || in->op == OP_recv) return runtime->collective_s + runtime->message_s;
    bool of_unit = in->unit != 0 && (in->op == OP_all_gather || in->op == OP_reduce_scatter ||
                                     in->op == OP_all_reduce);
    return runtime->collective_s + (of_unit ? runtime->unit_s : 0);
}

double runtime_waited(const Runtime *runtime, const Plan *plan, const Instr *in)
{
    if (op_exchanges(in->op) && runtime->exchange_part > 0) {
        const AxisSet ep = mesh_axes_of(&plan->mesh, axes_trading(INDEX_experts));
        if ((in->axes & ~ep) == 0) return runtime->exchange_part;
    }
    const bool moves = in->op == OP_all_gather || in->op == OP_reduce_scatter;
    if (!runtime->overlaps_tp || !moves || in->unit != 0) return 1;
    const AxisSet tp = mesh_axes_of(&plan->mesh, axes_with(AXIS_WEIGHTS));
    return (in->axes & ~tp) != 0 ? 1 : 1. / mesh_size(&plan->mesh, in->axes);
}

bool runtime_waits_messages(const Runtime *runtime, const Plan *plan)
{
    uint32_t stages = 0;
    if (runtime_is_own(runtime) || !runtime->waits_messages) return false;
    for (NodeId id = 1; id < plan->graph.nodes.n; id++)
        if (plan->graph.nodes.at[id].stage >= stages) stages = plan->graph.nodes.at[id].stage + 1;
    return stages <= mesh_size(&plan->mesh, mesh_axes_of(&plan->mesh, axes_with(AXIS_STAGES)));
}

bool runtime_waits(const Runtime *runtime, const Instr *in)
{
    return op_info(in->op)->class_ != OP_CLASS_comm && runtime->op[in->op].waits &&
           (in->phase == PHASE_forward || in->phase == PHASE_recompute);
}

/* Returns how many ranks of cp hold the keys that one attention instruction reads: all of them if
 * the plan gathers keys, and one if the plan has a ring, which reads the keys of one rank after the
 * other. */
static double ring_steps(const Plan *plan, const Program *p, const Instr *in)
{
    enum { KEYS = 1 };
    const AxisSet cp = mesh_axes_of(&plan->mesh, axes_cutting(INDEX_tokens));
    if (cp == 0 || in->origin == 0 || in->n_in <= KEYS) return 1;
    const NodeId forward = plan->graph.nodes.at[in->origin].forward;
    const OpKind op = forward != 0 ? plan->graph.nodes.at[forward].op : in->op;
    if (!op_mixes_tokens(op)) return 1;
    const uint32_t keys = forward != 0 && in->phase == PHASE_backward ? KEYS + 1 : KEYS;
    const Layout *layout =
        &plan_shape_at(plan, p->buffers.at[program_arg(p, in, keys)].shape)->layout;
    return layout_axes_split(layout, 1) & cp ? 1 : mesh_size(&plan->mesh, cp);
}

/* Returns how many calls besides its kernels the framework makes for an instruction. A profile
 * gives the calls of a product for its forward pass and both gradients together, and the forward
 * pass counts all of them. So a recomputed product makes only a third of them. */
static double calls_of(const Runtime *runtime, const Instr *in)
{
    const double calls = runtime->op[in->op].calls;
    return in->phase == PHASE_recompute && op_is_product(in->op) ? calls / 3 : calls;
}

Ps runtime_issue_ps(const Runtime *runtime, const Plan *plan, const Program *p, const Instr *in)
{
    const OpInfo *info = op_info(in->op);
    double s = 0;
    if (runtime_leaves_out(runtime, plan, p, in)) return 0;
    if (info->class_ == OP_CLASS_comm) {
        s = comm_s(runtime, in);
    } else if (runtime_compiles(runtime, plan, in)) {
        s = plan_begins_kernel(p, in) ? runtime->compiled_s : 0;
    } else if (info->flags & OP_UPDATES && !(info->flags & OP_ONCE)) {
        s = runtime->update_s;
    } else {
        double kernels = runtime->op[in->op].kernels;
        const double ring =
            in->phase == PHASE_backward ? runtime->ring_grad_kernels : runtime->ring_kernels;
        const double steps = ring > 0 ? ring_steps(plan, p, in) : 1;
        s = calls_of(runtime, in) * runtime->call_s;
        if (steps > 1) kernels = steps * ring;
        bool cut = runtime->tensor_s != 0 && in->origin != 0 && in->phase != PHASE_update &&
                   mesh_axes_of(&plan->mesh, axes_with(AXIS_WEIGHTS)) != 0;
        s += kernels * runtime->kernel_s + (cut && kernels > 0 ? runtime->tensor_s : 0);
    }
    if (runtime->pass_s > 0 && begins_pass(p, in)) s += runtime->pass_s;
    return ps_of(s * runtime_host_factor(runtime) * (double)PS_PER_S);
}
