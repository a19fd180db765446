/* Cross-entropy over a vocabulary that may be split over ranks, in the steps between which its
 * parts are combined: maximum, picked logit, sum of exponentials, loss. Rows of the vocabulary
 * beyond the valid ones are padding: they never count, and their gradient is zero. A negative label
 * is an ignored position. */
#ifndef REAL
#define KERNEL_FILE "kernels/cpu/xent.c"
#include "kernels/cpu/real.h"

BOTH(xent_max)
BOTH(xent_pick)
BOTH(xent_sumexp)
BOTH(xent_loss)
BOTH(xent_loss_grad)
BOTH(xent_sumexp_grad)
BOTH(xent_pick_grad)

#else

/* logits [b,s,v] -> max [b,s]; -infinity from a part that has no valid row */
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

/* logits [b,s,v], labels [b,s] i32 -> picked [b,s]; 0 where the label lies in another part */
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

/* max, sum, picked [b,s], labels [b,s] i32 -> loss []; added in double. The loss may be f64 though
 * its inputs are not, and may accumulate over micro-batches. */
static void F(xent_loss)(const KernelArgs *a)
{
    const REAL *top = a->ptr[0], *total = a->ptr[1], *picked = a->ptr[2];
    const int32_t *labels = a->ptr[3];
    int64_t n = a->size['b'] * a->size['s'];
    double loss = 0;
    for (int64_t i = 0; i < n; i++)
        if (labels[i] >= 0) loss += (double)top[i] + log((double)total[i]) - (double)picked[i];
    loss *= a->attrs.scale;
    if (a->dtype[4] == DT_f64) {
        double *out = a->ptr[4];
        *out = cpu_accumulates(a, 0) ? *out + loss : loss;
    } else {
        float *out = a->ptr[4];
        *out = cpu_accumulates(a, 0) ? *out + (float)loss : (float)loss;
    }
}

/* sum [b,s], labels [b,s] i32 -> dsum [b,s] = scale / sum, dpicked [b,s] = -scale; 0 if ignored */
static void F(xent_loss_grad)(const KernelArgs *a)
{
    const REAL *total = a->ptr[0];
    const int32_t *labels = a->ptr[1];
    int64_t n = a->size['b'] * a->size['s'];
    REAL *dtotal = F(summed)(a, 0, n), *dpicked = F(summed)(a, 1, n), scale = (REAL)a->attrs.scale;
    for (int64_t i = 0; i < n; i++) {
        if (labels[i] < 0) continue;
        dtotal[i] += scale / total[i];
        dpicked[i] -= scale;
    }
}

/* dsum [b,s], logits [b,s,v], max [b,s] -> dlogits [b,s,v] = dsum exp(logit - max) */
static void F(xent_sumexp_grad)(const KernelArgs *a)
{
    const REAL *dtotal = a->ptr[0], *z = a->ptr[1], *top = a->ptr[2];
    int64_t n = a->size['b'] * a->size['s'], V = a->size['v'], valid = a->valid['v'];
    REAL *restrict dz = F(summed)(a, 0, n * V);
    for (int64_t i = 0; i < n; i++, z += V, dz += V) {
        REAL d = dtotal[i], m = top[i];
        if (d == 0) continue; /* an ignored position */
        for (int64_t v = 0; v < valid; v++) dz[v] += d * F(exponential)(z[v] - m);
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

#endif
