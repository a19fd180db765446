/* The costs that another framework causes (Runtime, planner/front/runtime_config.h): memory that
 * its kernels move, and time that its host takes to issue them. A profile without a name stands for
 * Tandem's own executor: one kernel for each instruction, and no time to issue it. */
#ifndef TANDEM_SIM_RUNTIME_RUNTIME_H
#define TANDEM_SIM_RUNTIME_RUNTIME_H

#include "sim/compute/kernels.h"
#include "sim/sim.h"

static inline bool runtime_is_own(const Runtime *runtime)
{
    return runtime == NULL || runtime->name == NULL;
}

bool runtime_is_loss(OpKind op);

/* Returns true if the framework compiles the instruction. The costs of its op in the profile then
 * do not apply. */
bool runtime_compiles(const Runtime *runtime, const Plan *plan, const Instr *in);

/* Returns true if the framework does not run the instruction at all. With scales from past steps
 * (`delayed`), kernels that write 8-bit numbers also compute the maximum, and all maxima are
 * reduced together once a step. The first micro-batch quantises the weights for all micro-batches;
 * the weights of a frozen base are in 8 bits already. */
bool runtime_leaves_out(const Runtime *runtime, const Plan *plan, const Program *p,
                        const Instr *in);

bool runtime_quantises_weight(const Program *p, const Instr *in);

/* Returns the kernel that computes attention on the device. Tandem's executor chooses its kernel at
 * run time. For it, the function returns Tandem's own kernels on Hopper (where they were measured),
 * cuDNN's on Blackwell, and FlashAttention-2's on older devices. */
AttentionKernel runtime_attention(const Runtime *runtime, const Device *device);
/* Returns the constants of products whose algorithm the executor chooses by timing. NULL: the
 * runtime chooses in another way, or nothing was measured on the device. */
const GemmFit *runtime_products(const Runtime *runtime, const Device *device);

/* Returns the time in seconds of attention that writes its scores to memory, alone on the device,
 * without launches. `heads` is sequences times heads. Products cover the whole square of scores,
 * even those that a mask hides. A score has 2 bytes. Bytes moved for each score, forward: write
 * (2), scale, mask and softmax (4), dropout with its mask (5), read (2). Backward: read for dV (2),
 * dP (2), dropout (5), softmax (6), reads for dQ and dK (4). */
double runtime_unfused_s(const Device *device, DType dtype, double heads, double queries,
                         double keys, double head, bool backward);

/* Returns the fraction of a communication for which products wait, in (0, 1]. With `overlaps_tp`, a
 * product next to a gather or a reduction over tp is cut into as many pieces as there are ranks. It
 * waits only for one piece, and the other pieces are sent while it computes. For an exchange
 * between the ranks of experts, the fraction is `exchange_part` of the profile. */
double runtime_waited(const Runtime *runtime, const Plan *plan, const Instr *in);
/* Returns true if the host waits for messages between stages. Megatron's host does if each rank has
 * one stage (batch_p2p_sync); with several stages, only the device waits. */
bool runtime_waits_messages(const Runtime *runtime, const Plan *plan);

/* Returns true if the host reads a result of the instruction before it goes on (`waits` of its
 * op). */
bool runtime_waits(const Runtime *runtime, const Instr *in);

static inline double runtime_host_factor(const Runtime *runtime)
{
    return runtime->host_factor > 0 ? runtime->host_factor : 1;
}

/* Returns the time between two steps, in which the host issues nothing. */
static inline Ps runtime_step_ps(const Runtime *runtime)
{
    return ps_of(runtime->step_s * runtime_host_factor(runtime) * (double)PS_PER_S);
}

/* Returns how long the host takes to issue an instruction. All kernels of a fused sequence (`fuse`)
 * are issued with its first instruction. */
Ps runtime_issue_ps(const Runtime *runtime, const Plan *plan, const Program *p, const Instr *in);

#endif
