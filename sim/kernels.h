/* Costs of kernels by their sizes, alone on a device. */
#ifndef TANDEM_SIM_KERNELS_H
#define TANDEM_SIM_KERNELS_H

#include "sim/sim.h"

bool kernel_on_processor(const Device *device);        /* the arch is "cpu" */
double kernel_peak(const Device *device, DType dtype); /* FLOP/s, dense */
/* Hopper or Blackwell, whose kernels are Hopper's; others take Ampere's. */
bool kernel_is_young(const Device *device);
double kernel_memory_s(const Device *device, double bytes);

/* What was fitted of products, by architecture; see kernels_fit.def. */
typedef struct GemmFit {
    double large, eight, block, fill_us, split_us, efficiency[4];
} GemmFit;
const GemmFit *kernel_gemm_fit(const Device *device);
/* Seconds of the arithmetic of a product alone: no launch, no memory. fit NULL: the device's. */
double kernel_gemm_s(const Device *device, DType dtype, double batch, double m, double n, double k,
                     const GemmFit *fit);

/* Flash attention of one instruction. Heads are counted with the sequences. */
typedef struct AttentionWork {
    AttentionKernel kernel;
    DType dtype;
    double heads, kv_heads;
    double queries, keys; /* tokens */
    double head, value;   /* widths of a head of queries and keys, and of values */
    bool causal, backward;
} AttentionWork;

/* What was fitted of a flash kernel in one direction; see kernels_fit.def. */
typedef struct AttentionFit {
    double own, step, resident, part, softmax, wide, fill_us, alone, eight, unskipped;
} AttentionFit;
const AttentionFit *kernel_attention_fit(const Device *device, AttentionKernel kernel,
                                         bool backward);
/* Alone on the device, with launches and memory traffic; fit NULL: the device's. */
double cost_gemm_s(const Device *device, DType dtype, double batch, double m, double n, double k,
                   const GemmFit *fit);
double cost_attention_s(const Device *device, const AttentionWork *work, const AttentionFit *fit);
/* Without its first launch. fit NULL: the device's. */
double kernel_attention_s(const Device *device, const AttentionWork *work, const AttentionFit *fit);

#endif
