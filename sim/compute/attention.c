/* Computes the time of flash attention from its sizes. Each block of the kernel keeps one tile of
 * queries. It reads, tile by tile, all keys that the mask does not hide from them. In the backward
 * kernel, keys and queries change places. Blocks are assigned to multiprocessors. The backward
 * kernel computes the scores again, so it needs five matrix products for each score, where forward
 * needs two. Before the backward kernel, another kernel sums the rows of the gradients. After it, a
 * third kernel converts the gradients of queries, which blocks add up in fp32. With a window, a
 * tile of queries sees at most window + tile keys. Biases are not modelled.
 *
 * Tandem's own executor has several kernels. It times those that accept a call and uses the fastest
 * one. The model does the same.
 *
 * There are no fitted constants for Blackwell's kernels. Their times follow from their published
 * design. On AMD's CDNA, FlashAttention-2 has published rates of its own. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/attention_tiles.h"
#include "sim/compute/kernels.h"

/* Returns true for kernels that use only instructions of Ampere. */
static bool is_old(AttentionKernel kernel)
{
    return kernel == ATTENTION_flash2 || kernel == ATTENTION_triton;
}

/* On Blackwell a block keeps two tiles of 128 queries, each with its own warps. The time before and
 * after its steps is assumed to be the same as for cuDNN's kernel on Hopper. */
static const AttentionFit blackwell_fits[2] = {
    {.own = 256, .step = 128, .resident = 1, .part = 1, .wide = 1, .fill_us = 2.5, .alone = 1},
    {.own = 128, .step = 128, .resident = 1, .part = 1, .wide = 1, .fill_us = 6.45, .alone = 1}};

/* FlashAttention-2 on CDNA is another program: Composable Kernel's. An MI300X ran it at 340 TFLOP/s
 * forward and 202 TFLOP/s backward (ROCm/flash-attention #142: the means over four batch sizes,
 * 16,384 tokens, heads of 128, no mask). The constants are these rates divided by the peak of 1,307
 * TFLOP/s. CDNA3's and CDNA4's other GPUs are assumed to reach the same parts of their peaks. CDNA2
 * has no rates. PyTorch's attention on ROCm is AOTriton's kernel. It is assumed to be as fast.
 * Tiles are Ampere's. */
static const AttentionFit cdna_fits[2] = {
    {.own = 128, .step = 64, .resident = 1, .part = .26, .wide = 1, .alone = 1, .eight = 1},
    {.own = 128, .step = 64, .resident = 1, .part = .155, .wide = 1, .alone = 1, .eight = 1}};

static bool is_cdna(const Device *device)
{
    return device->arch != NULL &&
           (strcmp(device->arch, "CDNA3") == 0 || strcmp(device->arch, "CDNA4") == 0);
}

const AttentionFit *kernel_attention_fit(const Device *device, AttentionKernel kernel,
                                         bool backward)
{
    static const AttentionFit fits[ARCH_COUNT][ATTENTION_KERNEL_COUNT][2] = {
#define forward  0
#define backward 1
#define GEMM(...)
#define TRAFFIC(...)
#define ATTENTION(arch, kernel, direction,                                                         \
                  ...) /* the columns `grouped` and `beside` are missing here */                   \
    [ARCH_##arch][ATTENTION_##kernel][direction] = {__VA_ARGS__, 0, 0},
#include "sim/compute/kernels_fit.def"
#undef ATTENTION
#undef TRAFFIC
#undef GEMM
#undef forward
#undef backward
    };
    assert(kernel != ATTENTION_tandem);
    if (kernel_is_blackwell(device) && !is_old(kernel)) return &blackwell_fits[backward];
    if (is_cdna(device) && kernel == ATTENTION_flash2) return &cdna_fits[backward];
    uint32_t arch = kernel_fitted_arch(device);
    if (fits[arch][kernel][backward].own <= 0) kernel = ATTENTION_flash2;
    return &fits[arch][kernel][backward];
}

static double sixteen_bit_peak(const Device *device)
{
    double peak = fmax(device->peak_flops[DT_bf16], device->peak_flops[DT_f16]);
    return peak > 0 ? peak : kernel_peak(device, DT_f32);
}

/* Returns the width to which a kernel pads heads. FlashAttention-2 pads queries, keys and values to
 * one multiple of 32. Tandem's executor pads them to the head size of its tiles. */
static double padded(AttentionKernel kernel, double width, double other)
{
    const double both = fmax(width, other);
    const int tile = kernel == ATTENTION_tandem ? attention_tile_head((int64_t)both) : 0;
    if (tile > 0) return tile;
    return is_old(kernel) ? 32 * ceil(both / 32) : width;
}

/* Returns the FLOP/s of matrix products on one multiprocessor. An architecture without fitted
 * constants uses those of a related one, scaled by the ratio of their efficiencies in large
 * products. FlashAttention-2 and Triton's first kernels use only instructions of Ampere. A
 * multiprocessor of Blackwell is assumed to run these instructions at most as fast as one of
 * Hopper, whose peak is 7.5 TFLOP/s. */
static double rate_of(const Device *device, const AttentionWork *w, const AttentionFit *fit)
{
    static const double hopper = 989.4e12 / 132;
    double rate = fit->part * kernel_peak(device, w->dtype) / fmax(device->sms, 1);
    const char *arch = device->arch != NULL ? device->arch : "Ampere";
    if (strcmp(arch, "Ampere") == 0 || strcmp(arch, "Hopper") == 0) return rate;
    if (kernel_is_blackwell(device)) return fmin(rate, fit->part * hopper);
    if (is_cdna(device) && w->kernel == ATTENTION_flash2) return rate;
    double large = device->gemm_efficiency > 0 ? device->gemm_efficiency : .78;
    return rate * large / kernel_gemm_fit(device)->large;
}

/* FLOPs of 16-bit products in a clock cycle of one multiprocessor. */
static const double blackwell_flops_per_clock = 8192;

static double exponentials(const Device *device)
{
    return device->exponentials > 0 ? device->exponentials : 16;
}

/* Returns the time of one score [s] for Blackwell's kernels that use its own instructions, from
 * their published design (FlashAttention-4). Products, exponentials and shared memory work in
 * parallel and overlap almost fully, so the slowest of them dominates. Their times are combined by
 * a norm of order 3, which is an assumption. With it, the forward pass on a B200 lies between the
 * two published kernels and close to the rate of large products. Tiles are 128 x 128. The forward
 * kernel reads both operands of the first product and the values from shared memory. The backward
 * kernel reads both operands of two products, and one operand of each other product. It also writes
 * and reads the gradient of scores and the fp32 gradient of queries. Sums lie in tensor memory. */
static double blackwell_score_s(const Device *device, const AttentionWork *w)
{
    static const double shared_bytes_per_clock = 128, tile = 128;
    double size = dtype_bytes(w->dtype), head = w->head, value = w->value;
    double flops = 2 * (w->backward ? 3 * head + 2 * value : head + value);
    double large = device->gemm_efficiency > 0 ? device->gemm_efficiency : .73;
    if (size == 1) large *= 2 * kernel_gemm_fit(device)->eight;
    double products = flops / (blackwell_flops_per_clock * large);
    double exps = 1 / exponentials(device);
    double operands = w->backward ? 4 * head + 3 * value : 2 * head + value;
    double bytes = size * operands / tile;
    if (w->backward) bytes += 2 * size + 8 * head / tile;
    double shared = bytes / shared_bytes_per_clock;
    double clocks = cbrt(pow(products, 3) + pow(exps, 3) + pow(shared, 3));
    return clocks * blackwell_flops_per_clock * fmax(device->sms, 1) / sixteen_bit_peak(device);
}

/* Returns the time of one score [s] on a fully occupied multiprocessor. */
static double score_s(const Device *device, const AttentionWork *w, const AttentionFit *fit)
{
    if (kernel_is_blackwell(device) && !is_old(w->kernel)) return blackwell_score_s(device, w);
    double sms = fmax(device->sms, 1), rate = rate_of(device, w, fit);
    double head = padded(w->kernel, w->head, w->value);
    double value = padded(w->kernel, w->value, w->head);
    double flops = 2 * (w->backward ? 3 * head + 2 * value : head + value);
    if (dtype_bytes(w->dtype) == 1) rate *= fit->eight;
    if (head > 128) rate *= fmax(1 - (1 - fit->wide) * (head - 128) / 128, .1);
    const double products = flops / rate, softmax = fit->softmax * sms / sixteen_bit_peak(device);
    return fit->beside > 0 ? fmax(products, softmax) : products + softmax;
}

/* The blocks of one head: how many there are, the sum of their times [s], and the longest of their
 * times [s]. */
typedef struct Blocks {
    double n, sum_s, longest_s;
} Blocks;

static Blocks blocks_of_head(const AttentionWork *w, const AttentionFit *fit, double of_score_s)
{
    double own = w->backward ? w->keys : w->queries, other = w->backward ? w->queries : w->keys;
    double step_s = fit->own * fit->step * of_score_s, all = ceil(other / fit->step);
    Blocks b = {.n = fmax(ceil(own / fit->own), 1)};
    double unskipped = dtype_bytes(w->dtype) == 1 ? fit->unskipped : 0;
    for (double i = 1; i <= b.n; i++) {
        double steps = w->causal ? ceil(other * i / b.n / fit->step) : all;
        if (w->window > 0) steps = fmin(steps, ceil((w->window + fit->own) / fit->step));
        steps += unskipped * (all - steps);
        double s = fit->fill_us * 1e-6 + steps * step_s;
        b.sum_s += s;
        b.longest_s = fmax(b.longest_s, s);
    }
    return b;
}

/* Returns the time [s] of all blocks. Equal blocks run in waves. Unequal blocks are assigned to
 * multiprocessors as these become free; at the end, half of a block's time is idle on average. A
 * block does the work of `together` heads. */
static double dealt_s(const Device *device, const AttentionWork *w, const AttentionFit *fit,
                      const Blocks *head, double together)
{
    double sms = fmax(device->sms, 1), n = head->n * w->heads / together;
    double longest_s = together * head->longest_s, last_s = longest_s / fit->alone;
    if (w->causal) {
        double even = head->sum_s * w->heads / sms;
        return n <= sms ? last_s : fmax(even + together * head->sum_s / head->n / 2, last_s);
    }
    double slots = sms * fit->resident, waves = floor(n / slots), rest = n - waves * slots;
    double full_s = fit->resident * longest_s;
    return waves * full_s + (rest <= 0 ? 0 : rest <= sms ? fmin(last_s, full_s) : full_s);
}

double kernel_attention_flops(const AttentionWork *w)
{
    double keys = w->keys * (w->causal ? .5 : 1);
    double pairs = w->heads * w->queries * (w->window > 0 ? fmin(w->window, keys) : keys);
    return 2 * pairs * (w->backward ? 3 * w->head + 2 * w->value : w->head + w->value);
}

static double flash_s(const Device *device, const AttentionWork *w, const AttentionFit *fit)
{
    const double half = 2;
    Blocks blocks = blocks_of_head(w, fit, score_s(device, w, fit));
    const double group = fmax(w->heads / fmax(w->kv_heads, 1), 1);
    double s = (1 - fit->grouped) * dealt_s(device, w, fit, &blocks, 1);
    if (fit->grouped > 0) s += fit->grouped * dealt_s(device, w, fit, &blocks, group);
    if (!w->backward) return s;
    /* the two small kernels: the first one reads outputs and their gradients, and clears the fp32
     * sums of query gradients; the second one reads these sums and writes them in 16 bits */
    double bytes = w->heads * w->queries * (2 * half * w->value + (4 + 4 + half) * w->head);
    /* gradients of keys and values are first made for each query head, then added up over the heads
     * of a group */
    if (w->kv_heads < w->heads && fit->grouped <= 0)
        bytes += w->heads * w->keys * (w->head + w->value) * 2 * half;
    return s + 2 * device->kernel_floor_s + kernel_memory_s(device, bytes);
}

/* The kernels of Tandem's executor (kernels/cuda/choose). OWN_mma uses mma.sync. OWN_hopper uses
 * Hopper's instructions. OWN_one uses these, too, and computes the whole gradient in one kernel.
 * Whether cuDNN may be chosen is an option of a run, which is not modelled. */
typedef enum OwnAttention { OWN_mma, OWN_hopper, OWN_one, OWN_ATTENTIONS } OwnAttention;

/* Returns true if the kernel accepts the call. */
static bool own_takes(OwnAttention own, const AttentionWork *w)
{
    const int tile = attention_tile_head((int64_t)w->head);
    const bool hopper = !w->special && attention_has_hopper_tile(tile) && w->head == w->value &&
                        dtype_bytes(w->dtype) == 2;
    if (own == OWN_mma) return true;
    if (own == OWN_hopper || !hopper) return hopper;
    /* if attention sees only a part of the keys, the executor does not reserve the scratch memory
     * that OWN_one needs */
    return w->backward && !w->in_parts &&
           attention_in_whole_tiles(tile, (int64_t)w->queries, (int64_t)w->keys);
}

static double own_s(const Device *device, const AttentionWork *w)
{
#define forward  0
#define backward 1
    static const AttentionFit fits[OWN_ATTENTIONS][2] = {
#define OWN_ATTENTION(own, direction, ...)                                                         \
    [OWN_##own][direction] = {__VA_ARGS__, .resident = 1, .wide = 1, .alone = 1, .eight = 1},
#include "sim/compute/kernels_own.def"
    };
#undef forward
#undef backward
    double best = INFINITY;
    for (int own = 0; own < OWN_ATTENTIONS; own++)
        if (own_takes((OwnAttention)own, w))
            best = fmin(best, flash_s(device, w, &fits[own][w->backward]));
    return best;
}

double kernel_attention_s(const Device *device, const AttentionWork *w, const AttentionFit *fit)
{
    if (kernel_on_processor(device))
        return kernel_attention_flops(w) / (kernel_peak(device, w->dtype) * .5);
    if (fit == NULL && w->kernel == ATTENTION_tandem) return own_s(device, w);
    if (fit == NULL) fit = kernel_attention_fit(device, w->kernel, w->backward);
    return flash_s(device, w, fit);
}

double cost_attention_s(const Device *device, const AttentionWork *w, const AttentionFit *fit)
{
    double q = w->heads * w->queries, k = w->kv_heads * w->keys;
    double bytes = dtype_bytes(w->dtype) * (q + k) * (w->head + w->value) * (w->backward ? 2 : 1);
    double s = kernel_attention_s(device, w, fit);
    return device->kernel_floor_s + fmax(s, kernel_memory_s(device, bytes));
}

double kernel_softmax_s(const Device *device, double scores)
{
    AttentionKernel kernel = kernel_is_young(device) ? ATTENTION_flash3 : ATTENTION_flash2;
    double flops = kernel_attention_fit(device, kernel, false)->softmax;
    if (kernel_is_blackwell(device)) flops = blackwell_flops_per_clock / exponentials(device);
    return scores * flops / sixteen_bit_peak(device);
}
