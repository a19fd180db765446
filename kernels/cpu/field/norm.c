/* Norms of fields: of each point over its channels, and of groups of channels over the whole field.
 * Also the bias of each channel. A group has N elements in the whole field. Let
 * m = sum / N, spread = the sum of (x - m)^2, and r = 1 / sqrt(spread / N + eps). With weight w and
 * bias b of the channel:
 *   y = (x - m) r w + b     dx = dy w r     dsum = -(r / N) sum dy w
 *   dspread = -(r^3 / 2N) sum dy w (x - m) */
#ifndef REAL
#include "kernels/cpu/cpu.h"

/* The planes of a field, and its groups of channels. */
typedef struct Planes {
    int64_t batch, channels, points, groups, each; /* each: number of channels in a group */
    int64_t runs, run, pitch; /* the real points of a plane: `runs` runs of `run` points, whose
                                 beginnings are `pitch` apart */
    double all;               /* number of elements of a group on all ranks together */
} Planes;

static Planes planes_of(const KernelArgs *a)
{
    const char c = a->size['c'] ? 'c' : 'C';
    Planes p = {.batch = a->size['b'],
                .channels = a->size[(int)c],
                .points = a->size['h'] * a->size['w'],
                .groups = a->size['G'] ? a->size['G'] : 1,
                .runs = a->valid['h'],
                .run = a->valid['w'],
                .pitch = a->size['w']};
    if (p.runs * p.run == p.points) p.runs = 1, p.run = p.pitch = p.points;
    p.each = p.channels / p.groups;
    p.all = (double)p.each * (double)a->binding->size['h'] * (double)a->binding->size['w'];
    return p;
}

/* Returns the index of the first element of run r of group i. On the last rank, a field may be
 * shorter than its buffer; sums over the field and their gradients leave out the padding. */
static int64_t run_at(const Planes *p, int64_t i, int64_t r)
{
    return (i * p->each + r / p->runs) * p->points + r % p->runs * p->pitch;
}

#define KERNEL_FILE "kernels/cpu/field/norm.c"
#include "kernels/cpu/real.h"

BOTH(channel_bias)
BOTH(channel_bias_grad)
BOTH(channel_norm)
BOTH(channel_norm_grad)
BOTH(group_sum)
BOTH(group_sum_grad)
BOTH(group_spread)
BOTH(group_spread_grad)
BOTH(group_norm)
BOTH(group_norm_grad)
BOTH(group_norm_weight)

#else

static void F(channel_bias)(const KernelArgs *a)
{
    const Planes p = planes_of(a);
    const REAL *x = a->ptr[0], *bias = a->ptr[1];
    REAL *y = a->ptr[2];
    for (int64_t i = 0; i < p.batch * p.channels; i++) {
        REAL b = bias[i % p.channels];
        SAME_OR_APART
        for (int64_t k = i * p.points; k < (i + 1) * p.points; k++) y[k] = x[k] + b;
    }
}

static void F(channel_bias_grad)(const KernelArgs *a)
{
    const Planes p = planes_of(a);
    const REAL *dy = a->ptr[0];
    REAL *dbias = F(summed)(a, 0, p.channels);
    for (int64_t i = 0; i < p.batch * p.channels; i++)
        dbias[i % p.channels] += F(sum)(dy + i * p.points, p.points);
}

/* x [b,C,h,w], weight [C], bias [C] -> y, mean [b,h,w], r [b,h,w] */
static void F(channel_norm)(const KernelArgs *a)
{
    const Planes p = planes_of(a);
    const REAL *x = a->ptr[0], *weight = a->ptr[1], *bias = a->ptr[2];
    REAL *y = a->ptr[3], *mean = a->ptr[4], *r = a->ptr[5];
    for (int64_t b = 0; b < p.batch; b++, mean += p.points, r += p.points) {
        memset(mean, 0, (size_t)p.points * sizeof *mean);
        memset(r, 0, (size_t)p.points * sizeof *r);
        const REAL *from = x + b * p.channels * p.points;
        REAL *to = y + b * p.channels * p.points;
        for (int64_t c = 0; c < p.channels; c++)
            for (int64_t k = 0; k < p.points; k++) mean[k] += from[c * p.points + k];
        for (int64_t k = 0; k < p.points; k++) mean[k] /= (REAL)p.channels;
        for (int64_t c = 0; c < p.channels; c++)
            for (int64_t k = 0; k < p.points; k++) {
                REAL away = from[c * p.points + k] - mean[k];
                r[k] += away * away;
            }
        for (int64_t k = 0; k < p.points; k++)
            r[k] = (REAL)1 / sqrt(r[k] / (REAL)p.channels + (REAL)a->attrs.eps);
        for (int64_t c = 0; c < p.channels; c++)
            for (int64_t k = 0; k < p.points; k++)
                to[c * p.points + k] =
                    (from[c * p.points + k] - mean[k]) * r[k] * weight[c] + bias[c];
    }
}

/* Computes dx of one point, and adds the contributions of the point to dweight and dbias. */
static void F(point_norm_grad)(const Planes *p, const REAL *dy, const REAL *x, const REAL *weight,
                               REAL mean, REAL r, REAL *dx, REAL *dweight, REAL *dbias)
{
    REAL of_g = 0, of_gx = 0;
    for (int64_t c = 0; c < p->channels; c++) {
        REAL g = dy[c * p->points] * weight[c];
        of_g += g;
        of_gx += g * (x[c * p->points] - mean) * r;
    }
    of_g /= (REAL)p->channels;
    of_gx /= (REAL)p->channels;
    for (int64_t c = 0; c < p->channels; c++) {
        REAL xh = (x[c * p->points] - mean) * r, d = dy[c * p->points];
        dx[c * p->points] += r * (d * weight[c] - of_g - xh * of_gx);
        dweight[c] += d * xh;
        dbias[c] += d;
    }
}

static void F(channel_norm_grad)(const KernelArgs *a)
{
    const Planes p = planes_of(a);
    const REAL *dy = a->ptr[0], *x = a->ptr[1], *weight = a->ptr[2], *mean = a->ptr[3];
    const REAL *r = a->ptr[4];
    REAL *dx = F(summed)(a, 0, p.batch * p.channels * p.points);
    REAL *dweight = F(summed)(a, 1, p.channels), *dbias = F(summed)(a, 2, p.channels);
    for (int64_t i = 0; i < p.batch * p.points; i++) {
        int64_t at = i / p.points * p.channels * p.points + i % p.points;
        F(point_norm_grad)(&p, dy + at, x + at, weight, mean[i], r[i], dx + at, dweight, dbias);
    }
}

/* x [b,C,h,w] -> sum [b,G] */
static void F(group_sum)(const KernelArgs *a)
{
    const Planes p = planes_of(a);
    const REAL *x = a->ptr[0];
    REAL *sum = a->ptr[1];
    for (int64_t i = 0; i < p.batch * p.groups; i++) {
        sum[i] = 0;
        for (int64_t r = 0; r < p.each * p.runs; r++) sum[i] += F(sum)(x + run_at(&p, i, r), p.run);
    }
}

static void F(group_sum_grad)(const KernelArgs *a)
{
    const Planes p = planes_of(a);
    const REAL *dsum = a->ptr[0];
    REAL *dx = F(summed)(a, 0, p.batch * p.channels * p.points);
    for (int64_t i = 0; i < p.batch * p.groups; i++)
        for (int64_t r = 0; r < p.each * p.runs; r++)
            for (int64_t k = 0; k < p.run; k++) dx[run_at(&p, i, r) + k] += dsum[i];
}

/* x [b,C,h,w], sum [b,G] -> spread [b,G] */
static void F(group_spread)(const KernelArgs *a)
{
    const Planes p = planes_of(a);
    const REAL *x = a->ptr[0], *sum = a->ptr[1];
    REAL *spread = a->ptr[2];
    for (int64_t i = 0; i < p.batch * p.groups; i++) {
        REAL lane[LANES] = {0}, mean = sum[i] / (REAL)p.all;
        for (int64_t r = 0; r < p.each * p.runs; r++) {
            const REAL *from = x + run_at(&p, i, r);
            for (int64_t k = 0; k < p.run; k++)
                lane[k % LANES] += (from[k] - mean) * (from[k] - mean);
        }
        spread[i] = F(fold)(lane);
    }
}

static void F(group_spread_grad)(const KernelArgs *a)
{
    const Planes p = planes_of(a);
    const REAL *dspread = a->ptr[0], *x = a->ptr[1], *sum = a->ptr[2];
    REAL *dx = F(summed)(a, 0, p.batch * p.channels * p.points);
    for (int64_t i = 0; i < p.batch * p.groups; i++) {
        REAL mean = sum[i] / (REAL)p.all, twice = 2 * dspread[i];
        for (int64_t r = 0; r < p.each * p.runs; r++) {
            const int64_t at = run_at(&p, i, r);
            for (int64_t k = at; k < at + p.run; k++) dx[k] += twice * (x[k] - mean);
        }
    }
}

static REAL F(group_r)(const KernelArgs *a, const Planes *p, REAL spread)
{
    return (REAL)1 / sqrt(spread / (REAL)p->all + (REAL)a->attrs.eps);
}

/* x [b,C,h,w], sum [b,G], spread [b,G], weight [C], bias [C] -> y [b,C,h,w] */
static void F(group_norm)(const KernelArgs *a)
{
    const Planes p = planes_of(a);
    const REAL *x = a->ptr[0], *sum = a->ptr[1], *spread = a->ptr[2];
    const REAL *weight = a->ptr[3], *bias = a->ptr[4];
    REAL *y = a->ptr[5];
    for (int64_t i = 0; i < p.batch * p.channels; i++) {
        int64_t g = i / p.each, c = i % p.channels;
        REAL mean = sum[g] / (REAL)p.all, factor = F(group_r)(a, &p, spread[g]) * weight[c];
        for (int64_t k = i * p.points; k < (i + 1) * p.points; k++)
            y[k] = (x[k] - mean) * factor + bias[c];
    }
}

/* dy, x [b,C,h,w], sum, spread [b,G], weight [C] -> dx, dsum, dspread */
static void F(group_norm_grad)(const KernelArgs *a)
{
    const Planes p = planes_of(a);
    const REAL *dy = a->ptr[0], *x = a->ptr[1], *sum = a->ptr[2], *spread = a->ptr[3];
    const REAL *weight = a->ptr[4];
    REAL *dx = F(summed)(a, 0, p.batch * p.channels * p.points);
    REAL *dsum = F(summed)(a, 1, p.batch * p.groups);
    REAL *dspread = F(summed)(a, 2, p.batch * p.groups);
    for (int64_t i = 0; i < p.batch * p.channels; i++) {
        int64_t g = i / p.each;
        REAL mean = sum[g] / (REAL)p.all, r = F(group_r)(a, &p, spread[g]);
        REAL factor = r * weight[i % p.channels], lane[LANES] = {0}, of_x[LANES] = {0};
        for (int64_t k = i * p.points; k < (i + 1) * p.points; k++) {
            REAL d = dy[k] * factor;
            dx[k] += d;
            lane[k % LANES] += d;
            of_x[k % LANES] += d * (x[k] - mean);
        }
        dsum[g] -= F(fold)(lane) / (REAL)p.all;
        dspread[g] -= F(fold)(of_x) * r * r / (2 * (REAL)p.all);
    }
}

/* dy, x [b,C,h,w], sum, spread [b,G] -> dweight [C], dbias [C] */
static void F(group_norm_weight)(const KernelArgs *a)
{
    const Planes p = planes_of(a);
    const REAL *dy = a->ptr[0], *x = a->ptr[1], *sum = a->ptr[2], *spread = a->ptr[3];
    REAL *dweight = F(summed)(a, 0, p.channels), *dbias = F(summed)(a, 1, p.channels);
    for (int64_t i = 0; i < p.batch * p.channels; i++) {
        int64_t g = i / p.each;
        REAL mean = sum[g] / (REAL)p.all, lane[LANES] = {0};
        for (int64_t k = i * p.points; k < (i + 1) * p.points; k++)
            lane[k % LANES] += dy[k] * (x[k] - mean);
        dweight[i % p.channels] += F(fold)(lane) * F(group_r)(a, &p, spread[g]);
        dbias[i % p.channels] += F(sum)(dy + i * p.points, p.points);
    }
}

#endif
