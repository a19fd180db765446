/* Costs of kernels by their sizes, alone on a device. */
#ifndef TANDEM_SIM_COMPUTE_KERNELS_H
#define TANDEM_SIM_COMPUTE_KERNELS_H

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

/* Products of groups of rows in one kernel, as of experts: group i has m[i] rows, all share n and
 * k. An uneven deal costs the tiles that are not full, and the last wave. */
double kernel_grouped_gemm_s(const Device *device, DType dtype, uint32_t n_groups, const double *m,
                             double n, double k, const GemmFit *fit);

/* A kernel that does little but move memory (TrafficKernel, planner/front/config.h). */
typedef struct TrafficWork {
    TrafficKernel kernel;
    double rows;  /* that it goes through one by one; 0: it has none */
    double bytes; /* inputs and outputs, once each */
} TrafficWork;

/* What was fitted of such a kernel; see kernels_fit.def. */
typedef struct TrafficFit {
    double start_us, part, row_us, near;
} TrafficFit;
const TrafficFit *kernel_traffic_fit(const Device *device, TrafficKernel kernel);
/* Seconds on the device, without the gap between kernels. fit NULL: the device's. */
double kernel_traffic_s(const Device *device, const TrafficWork *work, const TrafficFit *fit);

/* Flash attention of one instruction. Heads are counted with the sequences. */
typedef struct AttentionWork {
    AttentionKernel kernel;
    DType dtype;
    double heads, kv_heads;
    double queries, keys; /* tokens */
    double head, value;   /* widths of a head of queries and keys, and of values */
    bool causal, backward;
    double window; /* keys that a query sees at most; 0: all */
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
/* What a softmax adds to products that keep their scores in registers, as flash attention's does.
 */
double kernel_softmax_s(const Device *device, double scores);

#endif
