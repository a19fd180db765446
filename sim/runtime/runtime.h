/* The costs of execution by another framework (Runtime, planner/front/runtime_config.h): the memory
 * that its kernels move, and the time that its host takes to issue them. A profile without a name
 * is Tandem's own executor: one kernel for each instruction, no issue time. */
#ifndef TANDEM_SIM_RUNTIME_RUNTIME_H
#define TANDEM_SIM_RUNTIME_RUNTIME_H

#include "sim/compute/kernels.h"
#include "sim/sim.h"

static inline bool runtime_is_own(const Runtime *runtime)
{
    return runtime == NULL || runtime->name == NULL;
}

bool runtime_is_loss(OpKind op);

/* True if the framework compiles the instruction. The costs of `op` in the profile then do not
 * apply. */
bool runtime_compiles(const Runtime *runtime, const Plan *plan, const Instr *in);

/* True if the framework does not run the instruction at all. With scales of past steps (`delayed`),
 * a kernel that writes 8 bits also computes the maximum. All maxima are reduced together once a
 * step. The first micro-batch quantises the weights for all micro-batches; the weights of a frozen
 * base are in 8 bits already. */
bool runtime_leaves_out(const Runtime *runtime, const Plan *plan, const Program *p,
                        const Instr *in);

bool runtime_quantises_weight(const Program *p, const Instr *in);

/* Returns the kernel that computes attention on the device. Tandem's executor chooses a
 * kernel at run time. For this executor the function returns: on Hopper, Tandem's own kernels
 * (measured there); on Blackwell, cuDNN's; on older devices, FlashAttention-2's. */
AttentionKernel runtime_attention(const Runtime *runtime, const Device *device);
/* Returns the constants of products that the executor chooses by timing; NULL: the runtime or the
 * device has none. */
const GemmFit *runtime_products(const Runtime *runtime, const Device *device);

/* Returns the time [seconds] of attention that writes its scores to memory, alone on the device,
 * without launches. heads: sequences times heads. Products cover the whole square of scores, masked
 * or not. Bytes for each 2-byte score: forward: the write (2), scale, mask and softmax (4), dropout
 * with its mask (5), the read (2). Backward: the read for dV (2), dP (2), dropout (5), softmax (6),
 * the reads for dQ and dK (4). */
double runtime_unfused_s(const Device *device, DType dtype, double heads, double queries,
                         double keys, double head, bool backward);

/* Returns the fraction of a communication for which products wait, in (0, 1]. With `overlaps_tp`, a
 * product next to a gather or a reduction over tp is cut into as many pieces as there are ranks. It
 * waits for one piece; the other pieces move while it computes. For an exchange between the ranks
 * of experts, the fraction is the profile's `exchange_part`. */
double runtime_waited(const Runtime *runtime, const Plan *plan, const Instr *in);
/* True if the host waits for messages between stages. Megatron's host waits if each rank has one
 * stage (batch_p2p_sync). With several stages only the device waits. */
bool runtime_waits_messages(const Runtime *runtime, const Plan *plan);

/* True if the host reads a result of the instruction before it goes on (`waits` of its op). */
bool runtime_waits(const Runtime *runtime, const Instr *in);

static inline double runtime_host_factor(const Runtime *runtime)
{
    return runtime->host_factor > 0 ? runtime->host_factor : 1;
}

/* Returns the time between steps, in which the host issues nothing. */
static inline Ps runtime_step_ps(const Runtime *runtime)
{
    return ps_of(runtime->step_s * runtime_host_factor(runtime) * (double)PS_PER_S);
}

/* Returns the host's time to issue an instruction. All kernels of one fused run (`fuse`) are issued
 * with the first one. */
Ps runtime_issue_ps(const Runtime *runtime, const Plan *plan, const Program *p, const Instr *in);

#endif
