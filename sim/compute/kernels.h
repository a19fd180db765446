/* Times of kernels that run alone on a device, computed from their sizes. */
#ifndef TANDEM_SIM_COMPUTE_KERNELS_H
#define TANDEM_SIM_COMPUTE_KERNELS_H

#include "sim/sim.h"

bool kernel_on_processor(const Device *device);        /* returns true if the device is a CPU (its
                                                          arch is "cpu") */
double kernel_peak(const Device *device, DType dtype); /* peak of dense products in FLOP/s */
/* Returns the device with the clock that large products reach under its power limit, as in a long
 * run (power.c). Kernels that are limited by memory draw less power, so their rates stay. */
Device kernel_sustained(const Device *device);
/* Returns the time of a kernel in a long run. The kernel computes `flops` in products and takes `s`
 * seconds at the clock of `lasting`, which kernel_sustained returned. If it draws less power than
 * large products, its own clock is higher. */
double kernel_lasting_s(const Device *lasting, DType dtype, double flops, double s);
/* Returns true for Hopper and Blackwell. These use the constants that were fitted to Hopper's
 * kernels; all other devices use those of Ampere. */
bool kernel_is_young(const Device *device);
/* The architectures to whose kernels the constants in kernels_fit.def were fitted. */
typedef enum FittedArch { ARCH_Ampere, ARCH_Hopper, ARCH_COUNT } FittedArch;
static inline FittedArch kernel_fitted_arch(const Device *device)
{
    return kernel_is_young(device) ? ARCH_Hopper : ARCH_Ampere;
}
bool kernel_is_blackwell(const Device *device);
double kernel_memory_s(const Device *device, double bytes);

/* Constants of products, one set for each architecture; kernels_fit.def explains them. */
typedef struct GemmFit {
    double large, eight, block, fill_us, split_us, efficiency[4];
    bool timed;        /* the library's algorithm is chosen by timing all candidates */
    bool stores_apart; /* the results of a tile are stored before the products of the next tile
                          begin */
} GemmFit;
const GemmFit *kernel_gemm_fit(const Device *device);
/* Returns true if the kernels of Tandem's executor were measured on a device of this kind
 * (kernels_own.def), which is Hopper. */
bool kernel_is_timed(const Device *device);
/* Returns the constants of the executor's products, whose algorithms are chosen by timing. They
 * already contain the effect of the power limit in a long run. NULL: nothing was measured on a
 * device of this kind. */
const GemmFit *kernel_gemm_timed(const Device *device);
/* Returns a rate in FLOP/s that no product exceeds; tiles and waves only lower it. */
double kernel_gemm_most(const Device *device, DType dtype, const GemmFit *fit);
/* Returns the time in seconds of the arithmetic of a product, without launch and memory traffic. If
 * `fit` is NULL, the constants of the device are used. */
double kernel_gemm_s(const Device *device, DType dtype, double batch, double m, double n, double k,
                     const GemmFit *fit);

/* A product. out_bytes: bytes of memory traffic for each number of the result (2 for a 16-bit
 * result, 8 if the product is added to an fp32 number). kernel_product makes a product with 16-bit
 * results. */
typedef struct GemmWork {
    DType dtype;
    double batch, m, n, k, out_bytes;
} GemmWork;
GemmWork kernel_product(DType dtype, double batch, double m, double n, double k);
/* Returns the time of kernel_gemm_s plus the time to store the results, which depends on out_bytes.
 * Before Hopper, each tile ends with this time. Since Hopper, the time counts only if
 * `stores_apart` is true. */
double kernel_product_s(const Device *device, const GemmWork *work, const GemmFit *fit);

/* Returns the factor by which a product takes longer if its rows do not begin at multiples of 16
 * bytes. */
double kernel_unaligned(const Device *device);

/* Returns the time in seconds of one kernel that multiplies several groups of rows, as for experts.
 * Group i has m[i] rows; n and k are the same for all groups. Uneven groups take longer, because
 * some tiles and the last wave are only partly filled. */
double kernel_grouped_gemm_s(const Device *device, DType dtype, uint32_t n_groups, const double *m,
                             double n, double k, const GemmFit *fit);

/* A kernel whose time is mostly memory traffic (TrafficKernel, planner/front/config.h). */
typedef struct TrafficWork {
    TrafficKernel kernel;
    double rows;  /* number of rows, if the kernel processes row by row; 0: it does not */
    double bytes; /* bytes of inputs and outputs, each counted once */
} TrafficWork;

/* Constants of a kernel that mostly moves memory; kernels_fit.def explains them. */
typedef struct TrafficFit {
    double start_us, part, row_us, near;
} TrafficFit;
const TrafficFit *kernel_traffic_fit(const Device *device, TrafficKernel kernel);
/* Returns the time in seconds of the kernel, without the gap between kernels. If `fit` is NULL, the
 * constants of the device are used. */
double kernel_traffic_s(const Device *device, const TrafficWork *work, const TrafficFit *fit);

/* An instruction that computes flash attention. `heads` is the number of heads times the number of
 * sequences. */
typedef struct AttentionWork {
    AttentionKernel kernel;
    DType dtype;
    double heads, kv_heads;
    double queries, keys; /* numbers of tokens */
    double head, value;   /* width of a head in queries and keys; its width in values */
    bool causal, backward;
    double window; /* largest number of keys that a query sees; 0: all */
    bool in_parts; /* the instruction sees only a part of all keys */
    bool special;  /* dropout, or any addition to plain attention */
} AttentionWork;

/* Constants of a flash attention kernel in one direction; kernels_fit.def explains them. */
typedef struct AttentionFit {
    double own, step, resident, part, softmax, wide, fill_us, alone, eight, unskipped;
    double grouped, beside; /* see OWN_ATTENTION in kernels_own.def */
} AttentionFit;
const AttentionFit *kernel_attention_fit(const Device *device, AttentionKernel kernel,
                                         bool backward);
/* These return the time in seconds of a kernel that runs alone on the device, with launches and
 * memory traffic. If `fit` is NULL, the constants of the device are used. */
double cost_gemm_s(const Device *device, DType dtype, double batch, double m, double n, double k,
                   const GemmFit *fit);
double cost_product_s(const Device *device, const GemmWork *work, const GemmFit *fit);
double cost_attention_s(const Device *device, const AttentionWork *work, const AttentionFit *fit);
/* The same times in a long run. `lasting` was returned by kernel_sustained. The time of attention
 * does not include its launch. */
double cost_lasting_gemm_s(const Device *lasting, DType dtype, double m, double n, double k,
                           const GemmFit *timed);
double cost_lasting_product_s(const Device *lasting, const GemmWork *work, const GemmFit *fit);
double kernel_lasting_attention_s(const Device *lasting, const AttentionWork *work);
/* Returns the FLOPs of the products of attention. A causal mask halves them. */
double kernel_attention_flops(const AttentionWork *work);
/* Returns cost_attention_s without the launch of the first kernel. */
double kernel_attention_s(const Device *device, const AttentionWork *work, const AttentionFit *fit);
/* Returns the time in seconds that the softmax of `scores` scores adds, if scores stay in registers
 * between products, as in flash attention. */
double kernel_softmax_s(const Device *device, double scores);

/* A scan of a state-space layer on one device, computed in chunks of tokens as in the published
 * kernels. */
typedef enum ScanPart { SCAN_forward, SCAN_backward, SCAN_shared } ScanPart;
typedef struct ScanWork {
    DType dtype;
    ScanPart part; /* SCAN_shared: gradients of B and C */
    double samples, tokens, groups, heads, head, state, chunk; /* heads: number of heads in a group;
                                                                  head, state, chunk: numbers of
                                                                  features, states and tokens */
} ScanWork;
double kernel_scan_s(const Device *device, const ScanWork *w);

#endif
