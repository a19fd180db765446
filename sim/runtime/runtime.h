/* Charges for another system's execution (Runtime, planner/front/config.h): the memory that its
 * kernels move and the time that its host takes to issue them. A profile without a name is
 * Tandem's own executor: one kernel an instruction, no issue time. */
#ifndef TANDEM_SIM_RUNTIME_RUNTIME_H
#define TANDEM_SIM_RUNTIME_RUNTIME_H

#include "sim/sim.h"

static inline bool runtime_is_own(const Runtime *runtime)
{
    return runtime == NULL || runtime->name == NULL;
}

bool runtime_is_loss(OpKind op);

/* True if the system compiles the instruction. Its kernel is then not the one that `op`
 * suggests. */
bool runtime_compiles(const Runtime *runtime, const Plan *plan, const Instr *in);

/* Does the system not do it at all? Where scales are those of past steps (`delayed`), a kernel that
 * writes 8 bits takes the maximum on its way, maxima are reduced once a step in one go, and weights
 * are made for all micro-batches in the first. */
bool runtime_leaves_out(const Runtime *runtime, const Plan *plan, const Program *p,
                        const Instr *in);

/* Which kernel computes attention on the device. Our own executor chooses among kernels when it
 * runs; what it is charged for is cuDNN's from Hopper on, forward and backward, FlashAttention-2's
 * before: nobody has measured our own. */
AttentionKernel runtime_attention(const Runtime *runtime, const Device *device);

/* Attention that writes its scores, `heads` of them (sequences times heads), alone on the device:
 * no launches. Products over the whole square of scores, and per score in bytes of two: forward the
 * write (2), scale, mask and softmax (4), dropout with its mask (5), the read (2); backward the
 * read for dV (2), dP (2), dropout (5), softmax (6), the reads for dQ and dK (4). */
double runtime_unfused_s(const Device *device, DType dtype, double heads, double queries,
                         double keys, double head, bool backward);

/* The host's time to issue an instruction. Kernels of one run (`fuse`) are issued with the first.
 */
Ps runtime_issue_ps(const Runtime *runtime, const Plan *plan, const Program *p, const Instr *in);

#endif
