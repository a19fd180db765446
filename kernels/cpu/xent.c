/* Cross-entropy over a vocabulary that may be split over ranks. It has four steps: the maximum, the
 * logit of the label, the sum of exponentials, and the loss. Between the steps, the results of the
 * ranks are combined. Padding beyond the real vocabulary never counts, and its gradient is zero. A
 * token with a negative label is ignored. */
#ifndef REAL
#define KERNEL_FILE "kernels/cpu/xent.c"
#include <assert.h>

#include "kernels/cpu/cpu.h"

/* The labels of a sequence, and the weight of each token that counts. */
typedef struct TokenWeights {
    const int32_t *labels; /* [s] labels of the rank's tokens; [T] labels of the whole sequence if
                              of_whole is true */
    bool of_whole;
    double weight;
} TokenWeights;

/* Returns the labels of sequence b and the weight of its tokens. If labels are [b,s] (`mean` is
 * false), each token that counts has weight 1. If labels are [b,T], they belong to whole sequences,
 * of which this rank may have only some tokens. The weights of all counting tokens in a group of
 * attrs.group sequences then add up to 1. */
static TokenWeights share_of(const KernelArgs *a, const int32_t *labels, int64_t b, bool mean)
{
    if (!mean) return (TokenWeights){labels + b * a->size['s'], false, 1};
    int64_t T = a->size['T'], group = a->attrs.group, n = 0;
    assert(group > 0 && a->size['b'] % group == 0);
    const int32_t *first = labels + b / group * group * T;
    for (int64_t i = 0; i < group * T; i++) n += first[i] >= 0;
    return (TokenWeights){labels + b * T + a->attrs.first, true, n > 0 ? 1.0 / (double)n : 0};
}

/* Returns the label of this rank's token s. */
static int32_t label_of(const KernelArgs *a, const TokenWeights *share, int64_t s)
{
    return share->labels[share->of_whole ? cpu_whole_index(a, 's', s) : s];
}

static void put_scalar(const KernelArgs *a, uint32_t j, double x)
{
    uint32_t i = a->n_in + j;
    if (a->dtype[i] == DT_f64) {
        double *out = a->ptr[i];
        *out = cpu_accumulates(a, j) ? *out + x : x;
    } else {
        float *out = a->ptr[i];
        *out = cpu_accumulates(a, j) ? *out + (float)x : (float)x;
    }
}

#include "kernels/cpu/real.h"

BOTH(xent_max)
BOTH(xent_pick)
BOTH(xent_smooth)
BOTH(xent_sumexp)
BOTH(xent_loss)
BOTH(xent_loss_mean)
BOTH(xent_loss_grad)
BOTH(xent_loss_mean_grad)
BOTH(xent_sumexp_grad)
BOTH(xent_pick_grad)
BOTH(xent_smooth_grad)

#else

/* logits [b,s,v] -> max [b,s]; -infinity if this rank's part of the vocabulary is only padding */
static void F(xent_max)(const KernelArgs *a)
{
    const REAL *z = a->ptr[0];
    REAL *top = a->ptr[1];
    int64_t n = a->size['b'] * a->size['s'];
    for (int64_t i = 0; i < n; i++, z += a->size['v']) {
        REAL lane[LANES], best = -(REAL)INFINITY;
        for (int j = 0; j < LANES; j++) lane[j] = best;
        int64_t v = 0;
        for (; v + LANES <= a->valid['v']; v += LANES)
            for (int j = 0; j < LANES; j++) lane[j] = z[v + j] > lane[j] ? z[v + j] : lane[j];
        for (; v < a->valid['v']; v++) best = z[v] > best ? z[v] : best;
        for (int j = 0; j < LANES; j++) best = lane[j] > best ? lane[j] : best;
        top[i] = best;
    }
}

/* logits [b,s,v], labels [b,s] i32 -> picked [b,s], the logit of the label; 0 if the label lies in
 * another rank's part of the vocabulary */
static void F(xent_pick)(const KernelArgs *a)
{
    const REAL *z = a->ptr[0];
    const int32_t *labels = a->ptr[1];
    REAL *picked = a->ptr[2];
    int64_t n = a->size['b'] * a->size['s'];
    for (int64_t i = 0; i < n; i++) {
        int64_t v = labels[i] - a->start['v'];
        bool mine = labels[i] >= 0 && v >= 0 && v < a->valid['v'];
        picked[i] = mine ? z[i * a->size['v'] + v] : 0;
    }
}

/* logits [b,s,v], labels [b,s] i32 -> picked [b,s]: this rank's contribution to (1 - a) z_label + a
 * / V (sum of all z), where z are the logits, a is the smoothing, and V is the size of the whole
 * vocabulary */
static void F(xent_smooth)(const KernelArgs *a)
{
    const REAL *z = a->ptr[0];
    const int32_t *labels = a->ptr[1];
    REAL *picked = a->ptr[2], keep = (REAL)(1 - a->attrs.smoothing);
    REAL each = (REAL)(a->attrs.smoothing / (double)a->binding->size['v']);
    int64_t n = a->size['b'] * a->size['s'];
    for (int64_t i = 0; i < n; i++, z += a->size['v']) {
        picked[i] = 0;
        if (labels[i] < 0) continue;
        int64_t v = labels[i] - a->start['v'];
        if (v >= 0 && v < a->valid['v']) picked[i] = keep * z[v];
        picked[i] += each * F(sum)(z, a->valid['v']);
    }
}

/* logits [b,s,v], max [b,s] -> sum [b,s] of exp(logit - max) */
static void F(xent_sumexp)(const KernelArgs *a)
{
    const REAL *z = a->ptr[0], *top = a->ptr[1];
    REAL *total = a->ptr[2];
    int64_t n = a->size['b'] * a->size['s'];
    for (int64_t i = 0; i < n; i++, z += a->size['v']) {
        REAL lane[LANES] = {0};
        int64_t v = 0;
        for (; v + LANES <= a->valid['v']; v += LANES)
            for (int j = 0; j < LANES; j++) lane[j] += F(exponential)(z[v + j] - top[i]);
        for (int j = 0; v < a->valid['v']; v++, j++) lane[j] += F(exponential)(z[v] - top[i]);
        total[i] = F(fold)(lane);
    }
}

/* max, sum, picked [b,s], labels i32 -> loss [], count []. The sums are made in fp64. loss and
 * count may be f64 even if the inputs are not, and may accumulate over micro-batches. */
static void F(any_loss)(const KernelArgs *a, bool mean)
{
    const REAL *top = a->ptr[0], *total = a->ptr[1], *picked = a->ptr[2];
    double loss = 0, count = 0, z = a->attrs.z_loss;
    int64_t S = a->size['s'];
    for (int64_t b = 0; b < a->size['b']; b++) {
        TokenWeights share = share_of(a, a->ptr[3], b, mean);
        for (int64_t s = 0; s < S; s++) {
            if (label_of(a, &share, s) < 0) continue;
            int64_t i = b * S + s;
            double lse = (double)top[i] + log((double)total[i]);
            loss += share.weight * (lse - (double)picked[i] + z * lse * lse);
            count += share.weight;
        }
    }
    if (a->attrs.count_all) count = (double)(a->size['b'] * S);
    put_scalar(a, 0, a->attrs.scale * loss);
    put_scalar(a, 1, count);
}

static void F(xent_loss)(const KernelArgs *a)
{
    F(any_loss)(a, false);
}

static void F(xent_loss_mean)(const KernelArgs *a)
{
    F(any_loss)(a, true);
}

/* max, sum [b,s], labels i32 -> dsum [b,s] = scale (1 + 2 z lse) / sum, dpicked [b,s] = -scale;
 * both are 0 for an ignored token. z is attrs.z_loss. */
static void F(any_loss_grad)(const KernelArgs *a, bool mean)
{
    const REAL *top = a->ptr[0], *total = a->ptr[1];
    int64_t S = a->size['s'], n = a->size['b'] * S;
    REAL *dtotal = F(summed)(a, 0, n), *dpicked = F(summed)(a, 1, n);
    REAL z = (REAL)(2 * a->attrs.z_loss);
    for (int64_t b = 0; b < a->size['b']; b++) {
        TokenWeights share = share_of(a, a->ptr[2], b, mean);
        REAL scale = (REAL)(a->attrs.scale * share.weight);
        for (int64_t s = 0; s < S; s++) {
            if (label_of(a, &share, s) < 0) continue;
            int64_t i = b * S + s;
            REAL slope = z == 0 ? 1 : 1 + z * (top[i] + log(total[i]));
            dtotal[i] += scale * slope / total[i];
            dpicked[i] -= scale;
        }
    }
}

static void F(xent_loss_grad)(const KernelArgs *a)
{
    F(any_loss_grad)(a, false);
}

static void F(xent_loss_mean_grad)(const KernelArgs *a)
{
    F(any_loss_grad)(a, true);
}

/* logits [b,s,v], dsum [b,s], max [b,s] -> dlogits [b,s,v] = dsum exp(logit - max); dlogits may
 * overwrite the logits */
static void F(xent_sumexp_grad)(const KernelArgs *a)
{
    const REAL *z = a->ptr[0], *dtotal = a->ptr[1], *top = a->ptr[2];
    int64_t n = a->size['b'] * a->size['s'], V = a->size['v'], valid = a->valid['v'];
    bool adds = cpu_accumulates(a, 0);
    REAL *dz = a->ptr[3];
    for (int64_t i = 0; i < n; i++, z += V, dz += V) {
        REAL d = dtotal[i], m = top[i];
        int64_t end = d == 0 ? 0 : valid; /* dsum is 0 for an ignored token */
        if (adds) {
            SAME_OR_APART
            for (int64_t v = 0; v < end; v++) dz[v] += d * F(exponential)(z[v] - m);
        } else {
            SAME_OR_APART
            for (int64_t v = 0; v < end; v++) dz[v] = d * F(exponential)(z[v] - m);
            memset(dz + end, 0, (size_t)(V - end) * sizeof *dz);
        }
    }
}

/* dpicked [b,s], labels [b,s] i32 -> dlogits [b,s,v] */
static void F(xent_pick_grad)(const KernelArgs *a)
{
    const REAL *dpicked = a->ptr[0];
    const int32_t *labels = a->ptr[1];
    int64_t n = a->size['b'] * a->size['s'], V = a->size['v'];
    REAL *dz = F(summed)(a, 0, n * V);
    for (int64_t i = 0; i < n; i++) {
        int64_t v = labels[i] - a->start['v'];
        if (labels[i] >= 0 && v >= 0 && v < a->valid['v']) dz[i * V + v] += dpicked[i];
    }
}

/* dpicked [b,s], labels [b,s] i32 -> dlogits [b,s,v] */
static void F(xent_smooth_grad)(const KernelArgs *a)
{
    const REAL *dpicked = a->ptr[0];
    const int32_t *labels = a->ptr[1];
    REAL keep = (REAL)(1 - a->attrs.smoothing);
    REAL each = (REAL)(a->attrs.smoothing / (double)a->binding->size['v']);
    int64_t n = a->size['b'] * a->size['s'], V = a->size['v'];
    REAL *dz = F(summed)(a, 0, n * V);
    for (int64_t i = 0; i < n; i++, dz += V) {
        if (labels[i] < 0) continue;
        int64_t v = labels[i] - a->start['v'];
        for (int64_t k = 0; k < a->valid['v']; k++) dz[k] += dpicked[i] * each;
        if (v >= 0 && v < a->valid['v']) dz[v] += dpicked[i] * keep;
    }
}

#endif
