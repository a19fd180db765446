/* Computes the time of flash attention from its sizes. A block of the kernel keeps a tile of
 * queries (backward: of keys). It walks tile by tile over the keys (queries) that the mask leaves
 * for its tile. Blocks are dealt to multiprocessors. The backward kernel computes the scores again,
 * so it has five products a score where forward has two. One pass before it sums the rows of the
 * gradients. One pass after it converts the gradients of queries, which blocks accumulate in fp32.
 * With a window, a tile of queries walks over at most the window plus the tile's width. Biases are
 * not modelled. */
#include <math.h>
#include <string.h>

#include "sim/compute/kernels.h"

enum { ARCH_Ampere, ARCH_Hopper, ARCH_COUNT };

const AttentionFit *kernel_attention_fit(const Device *device, AttentionKernel kernel,
                                         bool backward)
{
    static const AttentionFit fits[ARCH_COUNT][ATTENTION_KERNEL_COUNT][2] = {
#define forward  0
#define backward 1
#define GEMM(...)
#define TRAFFIC(...)
#define ATTENTION(arch, kernel, direction, ...)                                                    \
    [ARCH_##arch][ATTENTION_##kernel][direction] = {__VA_ARGS__},
#include "sim/compute/kernels_fit.def"
#undef ATTENTION
#undef TRAFFIC
#undef GEMM
#undef forward
#undef backward
    };
    uint32_t arch = kernel_is_young(device) ? ARCH_Hopper : ARCH_Ampere;
    if (fits[arch][kernel][backward].own <= 0) kernel = ATTENTION_flash2;
    return &fits[arch][kernel][backward];
}

static double sixteen_bit_peak(const Device *device)
{
    double peak = fmax(device->peak_flops[DT_bf16], device->peak_flops[DT_f16]);
    return peak > 0 ? peak : kernel_peak(device, DT_f32);
}

/* FlashAttention-2 pads both head widths to one multiple of 32. */
static double padded(AttentionKernel kernel, double width, double other)
{
    bool one = kernel == ATTENTION_flash2 || kernel == ATTENTION_triton;
    return one ? 32 * ceil(fmax(width, other) / 32) : width;
}

/* FLOP/s of the products on one multiprocessor. An architecture without fitted rows uses those of a
 * related one, scaled by the ratio of their efficiencies in large products. FlashAttention-2 and
 * Triton's first kernels use only Ampere's instructions. A multiprocessor of Blackwell runs these
 * as fast as one of Hopper, whose peak for them is 7.5 TFLOP/s. */
static double rate_of(const Device *device, const AttentionWork *w, const AttentionFit *fit)
{
    static const double hopper = 989.4e12 / 132;
    double rate = fit->part * kernel_peak(device, w->dtype) / fmax(device->sms, 1);
    const char *arch = device->arch != NULL ? device->arch : "Ampere";
    if (strcmp(arch, "Ampere") == 0 || strcmp(arch, "Hopper") == 0) return rate;
    bool old = w->kernel == ATTENTION_flash2 || w->kernel == ATTENTION_triton;
    if (old && strcmp(arch, "Blackwell") == 0) return fmin(rate, fit->part * hopper);
    double large = device->gemm_efficiency > 0 ? device->gemm_efficiency : .78;
    return rate * large / kernel_gemm_fit(device)->large;
}

/* Seconds for one score on a fully occupied multiprocessor. */
static double score_s(const Device *device, const AttentionWork *w, const AttentionFit *fit)
{
    double sms = fmax(device->sms, 1), rate = rate_of(device, w, fit);
    double head = padded(w->kernel, w->head, w->value);
    double value = padded(w->kernel, w->value, w->head);
    double flops = 2 * (w->backward ? 3 * head + 2 * value : head + value);
    if (dtype_bytes(w->dtype) == 1) rate *= fit->eight;
    if (head > 128) rate *= fmax(1 - (1 - fit->wide) * (head - 128) / 128, .1);
    return flops / rate + fit->softmax * sms / sixteen_bit_peak(device);
}

/* The blocks of one head: their number, the sum of their seconds, and the longest. */
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

/* Equal blocks run in waves. Unequal ones are dealt as multiprocessors become free, and at the end
 * half a block's time is idle on average. */
static double dealt_s(const Device *device, const AttentionWork *w, const AttentionFit *fit,
                      const Blocks *head)
{
    double sms = fmax(device->sms, 1), n = head->n * w->heads;
    double last_s = head->longest_s / fit->alone;
    if (w->causal) {
        double even = head->sum_s * w->heads / sms;
        return n <= sms ? last_s : fmax(even + head->sum_s / head->n / 2, last_s);
    }
    double slots = sms * fit->resident, waves = floor(n / slots), rest = n - waves * slots;
    double full_s = fit->resident * head->longest_s;
    return waves * full_s + (rest <= 0 ? 0 : rest <= sms ? fmin(last_s, full_s) : full_s);
}

double kernel_attention_s(const Device *device, const AttentionWork *w, const AttentionFit *fit)
{
    double half = 2, keys = w->keys * (w->causal ? .5 : 1);
    double pairs = w->heads * w->queries * (w->window > 0 ? fmin(w->window, keys) : keys);
    double flops = 2 * pairs * (w->backward ? 3 * w->head + 2 * w->value : w->head + w->value);
    if (kernel_on_processor(device)) return flops / (kernel_peak(device, w->dtype) * .5);
    if (fit == NULL) fit = kernel_attention_fit(device, w->kernel, w->backward);
    Blocks blocks = blocks_of_head(w, fit, score_s(device, w, fit));
    double s = dealt_s(device, w, fit, &blocks);
    if (!w->backward) return s;
    /* reads outputs and their gradients; zeroes, accumulates and reads the sums of query
     * gradients */
    double bytes = w->heads * w->queries * (2 * half * w->value + (4 + 4 + half) * w->head);
    /* gradients of keys and values are made for each query head, then added up */
    if (w->kv_heads < w->heads) bytes += w->heads * w->keys * (w->head + w->value) * 2 * half;
    return s + 2 * device->kernel_floor_s + kernel_memory_s(device, bytes);
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
    return scores * kernel_attention_fit(device, kernel, false)->softmax / sixteen_bit_peak(device);
}
