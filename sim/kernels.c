/* What kernels cost by their sizes: products by tiles and waves, attention by the family of its
 * kernel, the rest by bytes. Knows devices, not plans. */
#include "sim/kernels.h"

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

/* Tiles of cuBLAS and their relative efficiency; the best one counts. eta (gemm_efficiency) and
 * the tiles' numbers were fitted to 12,500 cuBLAS timings of Llama projections on A100 and H100
 * (vidur): mean error 8-9 %, 6-7 % from 1,024 rows on. */
double kernel_gemm_s(const Device *device, DType dtype, double batch, double m, double n, double k)
{
    static const struct {
        double m, n, efficiency;
    } tiles[] = {{128, 256, 1},  {256, 128, 1},  {128, 128, .95},
                 {64, 256, .90}, {64, 128, .80}, {64, 64, .60}};
    double eta = device->gemm_efficiency > 0 ? device->gemm_efficiency : .78;
    double peak = kernel_peak(device, dtype) * eta, best = INFINITY;
    if (kernel_on_processor(device) || device->sms == 0) return 2 * batch * m * n * k / peak;
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++) {
        double n_tiles = batch * ceil(m / tiles[i].m) * ceil(n / tiles[i].n);
        for (double split = 1; split <= 4; split *= 2) {
            if (split > 1 && n_tiles * split > device->sms) break;
            double waves = ceil(n_tiles * split / device->sms);
            double s = 2 * tiles[i].m * tiles[i].n * ceil(k / split) * device->sms * waves /
                       (peak * tiles[i].efficiency);
            if (split > 1) s += 2e-6;
            best = fmin(best, s);
        }
    }
    return best;
}

double cost_gemm_s(const Device *device, DType dtype, double batch, double m, double n, double k)
{
    double bytes = dtype_bytes(dtype) * batch * (m * k + k * n + m * n);
    return device->kernel_floor_s +
           fmax(kernel_gemm_s(device, dtype, batch, m, n, k), kernel_memory_s(device, bytes));
}

/* Flash attention by the family of its kernel: part of the dense peak = best * T / (T + half), T
 * keys. Fitted by hand to published rates: FlashAttention-2 forward and backward on A100 and H100,
 * its forward, FlashAttention-3's and cuDNN's on H100 (the FlashAttention repository's plots),
 * cuDNN 9.19's both on H200 (llama 3.1's heads). FlashAttention-3's backward and Blackwell have no
 * rows: assumed. Triton: fitted to dev-cal runs of MPT at 16k to 64k tokens. `full`: what `half`
 * becomes without a causal mask; narrow: heads of 64 as a part of heads of 128. */
typedef struct AttentionRate {
    double forward, forward_half, backward, backward_half, full, narrow;
} AttentionRate;

static const AttentionRate attention_rates[2][ATTENTION_KERNEL_COUNT] = {
    {[ATTENTION_flash2] = {.70, 512, .60, 512, .30, .90}, /* to Ampere */
     [ATTENTION_flash3] = {.70, 512, .60, 512, .30, .90},
     [ATTENTION_cudnn] = {.70, 512, .60, 512, .30, .90},
     [ATTENTION_triton] = {.38, 512, .32, 512, .30, .90}},
    {[ATTENTION_flash2] = {.349, 380, .336, 600, .35, .87}, /* from Hopper on */
     [ATTENTION_flash3] = {.647, 530, .53, 800, .40, .75},
     [ATTENTION_cudnn] = {.62, 440, .60, 1100, .45, .72},
     [ATTENTION_triton] = {.19, 380, .17, 600, .35, .87}},
};

double cost_attention_s(const Device *device, DType dtype, AttentionKernel kernel, double flops,
                        double keys, double head, bool causal, bool backward)
{
    if (kernel_on_processor(device)) return flops / (kernel_peak(device, dtype) * .5);
    bool young = device->arch != NULL &&
                 (strcmp(device->arch, "Hopper") == 0 || strcmp(device->arch, "Blackwell") == 0);
    if (kernel == ATTENTION_unfused) kernel = ATTENTION_flash2; /* its products; see runtime.c */
    const AttentionRate *rate = &attention_rates[young][kernel];
    double best = backward ? rate->backward : rate->forward;
    double half = backward ? rate->backward_half : rate->forward_half;
    if (!causal) half *= rate->full;
    if (head < 128) best *= 1 - (1 - rate->narrow) * (128 - head) / 64;
    return flops / (kernel_peak(device, dtype) * best * keys / (keys + half));
}
