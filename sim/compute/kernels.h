/* Time of a kernel alone on a device, from its sizes. */
#ifndef TANDEM_SIM_COMPUTE_KERNELS_H
#define TANDEM_SIM_COMPUTE_KERNELS_H

#include "sim/sim.h"

bool kernel_on_processor(const Device *device);        /* the arch is "cpu" */
double kernel_peak(const Device *device, DType dtype); /* FLOP/s, dense */
/* Returns the device with the clock of large products under its power limit, which a long run meets
 * (power.c). Kernels bound by memory draw less power, so their rates stay. */
Device kernel_sustained(const Device *device);
/* Returns the time in a long run of a kernel that computes `flops` in products and takes `s` at the
 * clock of the device that kernel_sustained returns. Its own clock is higher if it draws less power
 * than large products. */
double kernel_lasting_s(const Device *lasting, DType dtype, double flops, double s);
/* True for Hopper and Blackwell. Both use the constants fitted to Hopper's kernels; other devices
 * use Ampere's. */
bool kernel_is_young(const Device *device);
bool kernel_is_blackwell(const Device *device);
double kernel_memory_s(const Device *device, double bytes);

/* The fitted constants of products, one set for each architecture; see kernels_fit.def. */
typedef struct GemmFit {
    double large, eight, block, fill_us, split_us, efficiency[4];
    bool timed;        /* the library's algorithm is chosen by timing all of them */
    bool stores_apart; /* a tile's results are stored before the next tile's products begin */
} GemmFit;
const GemmFit *kernel_gemm_fit(const Device *device);
/* True if the kernels of Tandem's executor were measured on such a device (kernels_own.def): on
 * Hopper. */
bool kernel_is_timed(const Device *device);
/* Returns the constants of the executor's products, whose algorithm is chosen by timing. They
 * include the power limit of a long run. NULL: none were measured on such a device. */
const GemmFit *kernel_gemm_timed(const Device *device);
/* Returns the rate that no product exceeds [FLOP/s]; tiles and waves only lower it. */
double kernel_gemm_most(const Device *device, DType dtype, const GemmFit *fit);
/* Returns the time of a product's arithmetic [seconds], without launch and memory traffic. fit
 * NULL: the device's own constants. */
double kernel_gemm_s(const Device *device, DType dtype, double batch, double m, double n, double k,
                     const GemmFit *fit);

/* A product. out_bytes: the bytes moved for each number of its result. kernel_product writes 16
 * bits; a sum into fp32 moves 8 bytes. */
typedef struct GemmWork {
    DType dtype;
    double batch, m, n, k, out_bytes;
} GemmWork;
GemmWork kernel_product(DType dtype, double batch, double m, double n, double k);
/* Like kernel_gemm_s, but also counts the time that depends on out_bytes. Before Hopper, this is
 * time at the end of each tile. Since Hopper, it counts only if the kernel stores the result
 * separately. */
double kernel_product_s(const Device *device, const GemmWork *work, const GemmFit *fit);

/* Returns the factor by which a product takes longer if its rows do not begin at multiples of 16
 * bytes.
 */
double kernel_unaligned(const Device *device);

/* Returns the time [seconds] of one kernel that multiplies several groups of rows, as for experts:
 * group i has m[i] rows, and all groups have the same n and k. Uneven groups cost more, because
 * some tiles and the last wave are only partly filled. */
double kernel_grouped_gemm_s(const Device *device, DType dtype, uint32_t n_groups, const double *m,
                             double n, double k, const GemmFit *fit);

/* A kernel whose time is mostly memory traffic (TrafficKernel, planner/front/config.h). */
typedef struct TrafficWork {
    TrafficKernel kernel;
    double rows;  /* number of rows if the kernel processes rows one by one; 0: none */
    double bytes; /* bytes of inputs and outputs, each counted once */
} TrafficWork;

/* The fitted constants of a kernel that moves memory; see kernels_fit.def. */
typedef struct TrafficFit {
    double start_us, part, row_us, near;
} TrafficFit;
const TrafficFit *kernel_traffic_fit(const Device *device, TrafficKernel kernel);
/* Returns the time of the kernel on the device [seconds], without the gap between kernels. fit
 * NULL: the device's own constants. */
double kernel_traffic_s(const Device *device, const TrafficWork *work, const TrafficFit *fit);

/* Flash attention of one instruction. `heads` is heads times sequences. */
typedef struct AttentionWork {
    AttentionKernel kernel;
    DType dtype;
    double heads, kv_heads;
    double queries, keys; /* tokens */
    double head, value;   /* widths of a head of queries and keys, and of values */
    bool causal, backward;
    double window; /* the most keys that a query sees; 0: all */
    bool in_parts; /* the keys are a part of all keys */
    bool special;  /* dropout, or another kind than plain attention */
} AttentionWork;

/* The fitted constants of a flash kernel in one direction; see kernels_fit.def. */
typedef struct AttentionFit {
    double own, step, resident, part, softmax, wide, fill_us, alone, eight, unskipped;
    double grouped, beside; /* see OWN_ATTENTION in kernels_own.def */
} AttentionFit;
const AttentionFit *kernel_attention_fit(const Device *device, AttentionKernel kernel,
                                         bool backward);
/* Both return the time of a kernel alone on the device [seconds], with launches and memory traffic.
 * fit NULL: the device's own constants. */
double cost_gemm_s(const Device *device, DType dtype, double batch, double m, double n, double k,
                   const GemmFit *fit);
double cost_product_s(const Device *device, const GemmWork *work, const GemmFit *fit);
double cost_attention_s(const Device *device, const AttentionWork *work, const AttentionFit *fit);
/* The same times in a long run, on a device that kernel_sustained returned. The time of attention
 * leaves out its launch. */
double cost_lasting_gemm_s(const Device *lasting, DType dtype, double m, double n, double k,
                           const GemmFit *timed);
double cost_lasting_product_s(const Device *lasting, const GemmWork *work, const GemmFit *fit);
double kernel_lasting_attention_s(const Device *lasting, const AttentionWork *work);
/* FLOPs of its products, of a causal mask the half. */
double kernel_attention_flops(const AttentionWork *work);
/* Does the work of cost_attention_s, without the launch of the first kernel. */
double kernel_attention_s(const Device *device, const AttentionWork *work, const AttentionFit *fit);
/* Returns the time [seconds] that the softmax of `scores` scores adds to products whose scores stay
 * in registers, as in flash attention. */
double kernel_softmax_s(const Device *device, double scores);

/* A scan of a state-space layer on one device, in the published chunks. */
typedef enum ScanPart { SCAN_forward, SCAN_backward, SCAN_shared } ScanPart;
typedef struct ScanWork {
    DType dtype;
    ScanPart part; /* shared: the gradients of B and C */
    double samples, tokens, groups, heads, head, state, chunk; /* heads: of a group */
} ScanWork;
double kernel_scan_s(const Device *device, const ScanWork *w);

#endif
