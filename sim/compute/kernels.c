/* Computes the times of kernels from their sizes: products by tiles and waves, attention by its own
 * model (attention.c), all other ops by their bytes (traffic.c). This file knows devices, but no
 * plans. */
#include "sim/compute/kernels.h"

#include <math.h>
#include <string.h>

bool kernel_on_processor(const Device *device)
{
    return device->arch != NULL && strcmp(device->arch, "cpu") == 0;
}

double kernel_peak(const Device *device, DType dtype)
{
    double peak = device->peak_flops[dtype];
    if (peak <= 0) peak = device->peak_flops[DT_f32];
    return peak > 0 ? peak : 1e9;
}

double kernel_memory_s(const Device *device, double bytes)
{
    double part = device->memory_efficiency > 0 ? device->memory_efficiency : .8;
    return bytes / (fmax(device->hbm_bytes_per_s, 1) * part);
}

bool kernel_is_young(const Device *device)
{
    return device->arch != NULL &&
           (strcmp(device->arch, "Hopper") == 0 || strcmp(device->arch, "Blackwell") == 0);
}

bool kernel_is_blackwell(const Device *device)
{
    return device->arch != NULL && strcmp(device->arch, "Blackwell") == 0;
}

/* Constants of Blackwell's products, from the design of their kernels. Sums lie in tensor memory,
 * which has room for two tiles, so one tile is written while the next one is computed. A tile then
 * needs no extra time before and after its products. Two multiprocessors share operands, so their
 * common tile of 256 x 128 reads as little as one of 128 x 256. cuBLAS on a B200 agrees within 0.5
 * % (1,006, 1,532 and 1,610 TFLOP/s for products of size 2048, 4096 and 8192 in all dimensions).
 * `eight` is the rate of the fastest 8-bit products in dev-cal on B200, B300 and GB200, relative to
 * 16-bit products. Scales for blocks take no extra time. */
static const GemmFit blackwell = {.large = .73,
                                  .eight = .975,
                                  .block = .975,
                                  .split_us = 2.22,
                                  .efficiency = {1, .945, .974, .795}};

const GemmFit *kernel_gemm_fit(const Device *device)
{
    static const GemmFit fits[ARCH_COUNT] = {
#define GEMM(arch, large, eight, block, fill_us, split_us, ...)                                    \
    [ARCH_##arch] = {large, eight, block, fill_us, split_us, {__VA_ARGS__}, .timed = false},
#define ATTENTION(...)
#define TRAFFIC(...)
#include "sim/compute/kernels_fit.def"
#undef TRAFFIC
#undef ATTENTION
#undef GEMM
    };
    if (kernel_is_blackwell(device)) return &blackwell;
    return &fits[kernel_fitted_arch(device)];
}

/* The tiles of cuBLAS' kernels; fits have the relative efficiency of each. The fastest tile is
 * used. A tile takes time for its products, and for its start and end, which matter if K is small.
 * Large products reach gemm_efficiency times the device's peak. */
enum { N_TILES = 6, N_TIMED_TILES = 6 };
static const struct {
    double m, n;
} tiles[N_TILES + N_TIMED_TILES] = {{128, 256},
                                    {256, 128},
                                    {128, 128},
                                    {64, 256},
                                    {64, 128},
                                    {64, 64},
                                    /* more tiles, which only a choice by timing uses; the sizes
                                     * come from names of cuBLASLt 13's kernels on an H200 */
                                    {192, 192},
                                    {192, 128},
                                    {128, 192},
                                    {256, 96},
                                    {96, 256},
                                    {128, 160}};

bool kernel_is_timed(const Device *device)
{
    return device->arch != NULL && strcmp(device->arch, "Hopper") == 0;
}

const GemmFit *kernel_gemm_timed(const Device *device)
{
    static const GemmFit own = {
        .timed = true,
#define TIMED_GEMM(...) __VA_ARGS__,
#include "sim/compute/kernels_own.def"
#define GEMM_Ampere(...)
#define GEMM_Hopper(rate, as_blocks, ...)                                                          \
    .eight = rate, .block = as_blocks, .efficiency = {__VA_ARGS__},
#define GEMM(arch, large, eight, block, fill_us, split_us, ...)                                    \
    GEMM_##arch(eight, block, __VA_ARGS__)
#define ATTENTION(...)
#define TRAFFIC(...)
#include "sim/compute/kernels_fit.def"
#undef TRAFFIC
#undef ATTENTION
#undef GEMM
    };
    return kernel_is_timed(device) ? &own : NULL;
}

static size_t tiles_of(const GemmFit *fit)
{
    return fit->timed ? N_TILES + N_TIMED_TILES : N_TILES;
}

/* Returns the rate of the i-th tile relative to the first two tiles. */
static double tile_rate(const GemmFit *fit, size_t i)
{
    return i < 2 || i >= N_TILES ? 1 : fit->efficiency[i - 2];
}

/* Returns how many tiles of a multiprocessor add the time of their start and end. Since Hopper, a
 * block of cuBLAS stays on its multiprocessor. While it computes a tile, it loads the operands of
 * the next tile and stores the results of the previous one. So only the start of the first tile and
 * the end of the last one take extra time. The constants of Tandem's executor (`timed`) were
 * measured as a time of each tile, so they count for each. */
static double exposed_tiles(const Device *device, double waves, const GemmFit *fit)
{
    return kernel_is_young(device) && !fit->timed ? fmin(waves, 1) : waves;
}

/* Returns the time [s] of `n_tiles` tiles of the i-th size. */
static double tiled_s(const Device *device, double peak, size_t i, double n_tiles, double k,
                      const GemmFit *fit)
{
    double efficiency = tile_rate(fit, i), best = INFINITY;
    const double most = fit->timed ? 32 : 4;
    double fill_s = fit->fill_us * 1e-6 * tiles[i].m * tiles[i].n / (128 * 256);
    for (double split = 1; split <= most; split *= 2) {
        if (split > 1 && n_tiles * split > device->sms) break;
        double waves = ceil(n_tiles * split / device->sms);
        double tile_s =
            2 * tiles[i].m * tiles[i].n * ceil(k / split) * device->sms / (peak * efficiency);
        double s = waves * tile_s + exposed_tiles(device, waves, fit) * fill_s;
        if (split > 1) s += fit->split_us * 1e-6;
        best = fmin(best, s);
    }
    return best;
}

/* Returns the fraction of the peak that large 16-bit products reach. */
static double large_of(const Device *device, const GemmFit *fit)
{
    if (fit->timed) return fit->large;
    return device->gemm_efficiency > 0 ? device->gemm_efficiency : .78;
}

static double gemm_peak(const Device *device, DType dtype, const GemmFit *fit)
{
    const double eight = dtype_bytes(dtype) == 1 ? fit->eight : 1;
    return kernel_peak(device, dtype) * large_of(device, fit) * eight;
}

double kernel_gemm_most(const Device *device, DType dtype, const GemmFit *fit)
{
    if (fit == NULL) fit = kernel_gemm_fit(device);
    double most = 1;
    for (size_t i = 0; i < tiles_of(fit); i++) most = fmax(most, tile_rate(fit, i));
    return fmax(1, fit->eight) * most * kernel_peak(device, dtype) * large_of(device, fit);
}

double kernel_gemm_s(const Device *device, DType dtype, double batch, double m, double n, double k,
                     const GemmFit *fit)
{
    static const GemmFit plain = {.eight = 1};
    double best = INFINITY;
    if (kernel_on_processor(device) || device->sms == 0)
        return 2 * batch * m * n * k / gemm_peak(device, dtype, &plain);
    if (fit == NULL) fit = kernel_gemm_fit(device);
    double peak = gemm_peak(device, dtype, fit);
    for (size_t i = 0; i < tiles_of(fit); i++) {
        double n_tiles = batch * ceil(m / tiles[i].m) * ceil(n / tiles[i].n);
        best = fmin(best, tiled_s(device, peak, i, n_tiles, k, fit));
    }
    return best;
}

/* Returns by which factor a product takes longer if its rows do not begin at multiples of 16 bytes.
 * Tensor memory access needs such multiples; for other rows, cuBLAS uses a kernel for Ampere on
 * newer devices, too. The factor was measured on one H200 with the three products of GPT-2's head
 * in bf16 (cublasLt 13.1 under PyTorch 2.11). A vocabulary of 50257 is not aligned, one of 50304
 * is. For 65536 x 768, the products take 49.1, 35.8 and 33.5 ms instead of 8.2, 7.1 and 7.0 ms. For
 * 16384 x 1600, they take 27.4, 20.7 and 18.8 ms instead of 3.9, 3.7 and 3.7 ms. The mean ratio is
 * 5.5. No source was found for Ampere, so the factor is 1 there. Blackwell is assumed to be like
 * Hopper. */
double kernel_unaligned(const Device *device)
{
    return kernel_is_young(device) ? 5.5 : 1;
}

double kernel_grouped_gemm_s(const Device *device, DType dtype, uint32_t n_groups, const double *m,
                             double n, double k, const GemmFit *fit)
{
    double rows = 0, best = INFINITY;
    for (uint32_t g = 0; g < n_groups; g++) rows += m[g];
    if (kernel_on_processor(device) || device->sms == 0)
        return kernel_gemm_s(device, dtype, 1, rows, n, k, fit);
    if (fit == NULL) fit = kernel_gemm_fit(device);
    double peak = gemm_peak(device, dtype, fit);
    for (size_t i = 0; i < tiles_of(fit); i++) {
        double n_tiles = 0;
        for (uint32_t g = 0; g < n_groups; g++)
            n_tiles += ceil(m[g] / tiles[i].m) * ceil(n / tiles[i].n);
        best = fmin(best, tiled_s(device, peak, i, n_tiles, k, fit));
    }
    return best;
}

/* A tile stores its results at its end, so the time of the end (part of fill_us) grows with their
 * bytes. Since Hopper, the results of one tile are stored during the products of the next one.
 * Kernels with scales for blocks are an exception (`stores_apart`). A block of DeepGEMM (a6d97a1)
 * stores a tile's results before it multiplies again. So all stores add to the time, at the rate of
 * memory. */
double kernel_product_s(const Device *device, const GemmWork *w, const GemmFit *fit)
{
    GemmFit own = fit != NULL ? *fit : *kernel_gemm_fit(device);
    const bool young = kernel_is_young(device);
    if (!young) own.fill_us *= w->out_bytes / 2;
    const double stored = young && own.stores_apart ? w->batch * w->m * w->n * w->out_bytes : 0;
    return kernel_gemm_s(device, w->dtype, w->batch, w->m, w->n, w->k, &own) +
           kernel_memory_s(device, stored);
}

double cost_product_s(const Device *device, const GemmWork *w, const GemmFit *fit)
{
    const double size = dtype_bytes(w->dtype) / (double)dtype_numbers(w->dtype);
    double bytes = w->batch * (size * (w->m * w->k + w->k * w->n) + w->out_bytes * w->m * w->n);
    return device->kernel_floor_s +
           fmax(kernel_product_s(device, w, fit), kernel_memory_s(device, bytes));
}

GemmWork kernel_product(DType dtype, double batch, double m, double n, double k)
{
    return (GemmWork){dtype, batch, m, n, k, 2}; /* 8-bit operands give a 16-bit result as well */
}

double cost_gemm_s(const Device *device, DType dtype, double batch, double m, double n, double k,
                   const GemmFit *fit)
{
    const GemmWork work = kernel_product(dtype, batch, m, n, k);
    return cost_product_s(device, &work, fit);
}
