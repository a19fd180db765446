/* Norms of fields, and biases of channels. kernels/cpu/field/norm.c has the formulas. */
#include "kernels/cuda/field/field.cuh"

/* Returns the group of the plane with index b C + c. */
DEVICE int64_t norm_group(const FieldArgs *a, int64_t plane)
{
    return plane / (a->c / a->groups);
}

DEVICE float norm_mean(const FieldArgs *a, const Array sum, int64_t group)
{
    return read_one(sum, group) / (float)a->all;
}

DEVICE float norm_r(const FieldArgs *a, const Array spread, int64_t group)
{
    return 1.0f / sqrtf(read_one(spread, group) / (float)a->all + (float)a->eps);
}

DEVICE float bias_one(const FieldArgs *a, int64_t i, int64_t t)
{
    (void)t;
    return read_one(a->in[0], i) + read_one(a->in[1], i / a->points % a->c);
}
FIELD_SUM(bias_one)

/* Returns the index of term t in a sum over channel c. The terms are the points of all samples. */
DEVICE int64_t norm_point(const FieldArgs *a, int64_t c, int64_t t)
{
    return (t / a->points * a->c + c) * a->points + t % a->points;
}

DEVICE float bias_sum(const FieldArgs *a, int64_t c, int64_t t)
{
    return read_one(a->in[0], norm_point(a, c, t));
}
FIELD_SUM(bias_sum)

/* ---- norm of each point over its channels ---- */

/* Returns the index of channel c at point k. The points of all samples are numbered one after the
 * other. */
DEVICE int64_t norm_at(const FieldArgs *a, int64_t k, int64_t c)
{
    return (k / a->points * a->c + c) * a->points + k % a->points;
}

DEVICE float channels_mean(const FieldArgs *a, int64_t k, int64_t c)
{
    return read_one(a->in[0], norm_at(a, k, c)) / (float)a->c;
}
FIELD_SUM(channels_mean)

/* Returns 1 / deviation of point k over its channels, which is the sum's only term. in[1] holds the
 * mean. */
DEVICE float channels_r(const FieldArgs *a, int64_t k, int64_t t)
{
    float sum = 0, mean = read_one(a->in[1], k);
    for (int64_t c = 0; c < a->c; c++) {
        float away = read_one(a->in[0], norm_at(a, k, c)) - mean;
        sum += away * away;
    }
    (void)t;
    return 1.0f / sqrtf(sum / (float)a->c + (float)a->eps);
}
FIELD_SUM(channels_r)

/* inputs: x, weight, bias, mean, r */
DEVICE float channels_norm(const FieldArgs *a, int64_t i, int64_t t)
{
    int64_t c = i / a->points % a->c, k = i / a->points / a->c * a->points + i % a->points;
    (void)t;
    return (read_one(a->in[0], i) - read_one(a->in[3], k)) * read_one(a->in[4], k) *
               read_one(a->in[1], c) +
           read_one(a->in[2], c);
}
FIELD_SUM(channels_norm)

/* inputs: dy, x, weight, mean, r */
DEVICE float channels_grad(const FieldArgs *a, int64_t i, int64_t t)
{
    int64_t k = i / a->points / a->c * a->points + i % a->points;
    float mean = read_one(a->in[3], k), r = read_one(a->in[4], k), of_g = 0, of_gx = 0;
    for (int64_t c = 0; c < a->c; c++) {
        float g = read_one(a->in[0], norm_at(a, k, c)) * read_one(a->in[2], c);
        of_g += g;
        of_gx += g * (read_one(a->in[1], norm_at(a, k, c)) - mean) * r;
    }
    float xh = (read_one(a->in[1], i) - mean) * r;
    float g = read_one(a->in[0], i) * read_one(a->in[2], i / a->points % a->c);
    (void)t;
    return r * (g - of_g / (float)a->c - xh * of_gx / (float)a->c);
}
FIELD_SUM(channels_grad)

DEVICE float channels_weight(const FieldArgs *a, int64_t c, int64_t t)
{
    int64_t i = norm_point(a, c, t);
    return read_one(a->in[0], i) *
           ((read_one(a->in[1], i) - read_one(a->in[3], t)) * read_one(a->in[4], t));
}
FIELD_SUM(channels_weight)

/* ---- norm of groups of channels over the whole grid ---- */

DEVICE float groups_sum(const FieldArgs *a, int64_t g, int64_t t)
{
    return field_real(a, t) ? read_one(a->in[0], g * a->terms + t) : 0;
}
FIELD_SUM(groups_sum)

DEVICE float groups_sum_grad(const FieldArgs *a, int64_t i, int64_t t)
{
    (void)t;
    return field_real(a, i) ? read_one(a->in[0], norm_group(a, i / a->points)) : 0;
}
FIELD_SUM(groups_sum_grad)

DEVICE float groups_spread(const FieldArgs *a, int64_t g, int64_t t)
{
    float away = read_one(a->in[0], g * a->terms + t) - norm_mean(a, a->in[1], g);
    return field_real(a, t) ? away * away : 0;
}
FIELD_SUM(groups_spread)

/* inputs: dspread, x, sum */
DEVICE float groups_spread_grad(const FieldArgs *a, int64_t i, int64_t t)
{
    int64_t g = norm_group(a, i / a->points);
    (void)t;
    if (!field_real(a, i)) return 0;
    return 2 * read_one(a->in[0], g) * (read_one(a->in[1], i) - norm_mean(a, a->in[2], g));
}
FIELD_SUM(groups_spread_grad)

/* inputs: x, sum, spread, weight, bias */
DEVICE float groups_norm(const FieldArgs *a, int64_t i, int64_t t)
{
    int64_t plane = i / a->points, g = norm_group(a, plane), c = plane % a->c;
    (void)t;
    return (read_one(a->in[0], i) - norm_mean(a, a->in[1], g)) *
               (norm_r(a, a->in[2], g) * read_one(a->in[3], c)) +
           read_one(a->in[4], c);
}
FIELD_SUM(groups_norm)

/* inputs: dy, x, sum, spread, weight */
DEVICE float groups_norm_grad(const FieldArgs *a, int64_t i, int64_t t)
{
    int64_t plane = i / a->points, g = norm_group(a, plane);
    (void)t;
    return read_one(a->in[0], i) * (norm_r(a, a->in[3], g) * read_one(a->in[4], plane % a->c));
}
FIELD_SUM(groups_norm_grad)

/* Returns dy times weight at element i. */
DEVICE float groups_g(const FieldArgs *a, int64_t i)
{
    return read_one(a->in[0], i) * read_one(a->in[4], i / a->points % a->c);
}

DEVICE float groups_dsum(const FieldArgs *a, int64_t g, int64_t t)
{
    return groups_g(a, g * a->terms + t) * (-norm_r(a, a->in[3], g) / (float)a->all);
}
FIELD_SUM(groups_dsum)

DEVICE float groups_dspread(const FieldArgs *a, int64_t g, int64_t t)
{
    float r = norm_r(a, a->in[3], g);
    float away = read_one(a->in[1], g * a->terms + t) - norm_mean(a, a->in[2], g);
    return groups_g(a, g * a->terms + t) * away * (-r * r * r / (2 * (float)a->all));
}
FIELD_SUM(groups_dspread)

DEVICE float groups_weight(const FieldArgs *a, int64_t c, int64_t t)
{
    int64_t i = norm_point(a, c, t), g = norm_group(a, t / a->points * a->c + c);
    return read_one(a->in[0], i) * (read_one(a->in[1], i) - norm_mean(a, a->in[2], g)) *
           norm_r(a, a->in[3], g);
}
FIELD_SUM(groups_weight)

/* ---- the ops ---- */

static FieldArgs norm_args(const KernelArgs *args, uint32_t j, int64_t terms)
{
    FieldArgs p = field_args(args, j);
    p.groups = args->size['G'] ? args->size['G'] : 1;
    p.all = (double)(p.c / p.groups) * (double)args->binding->size['h'] *
            (double)args->binding->size['w'];
    p.terms = terms;
    return p;
}

static int64_t points_of(const KernelArgs *args)
{
    return args->size['b'] * args->size['h'] * args->size['w'];
}

static int64_t elements_of(const KernelArgs *args)
{
    return args->size['C'] / args->size['G'] * args->size['h'] * args->size['w'];
}

#define OP(name) bool cuda_##name(const KernelArgs *args, const CudaContext *cuda, CudaError *error)

OP(channel_bias)
{
    return bias_one_launch(norm_args(args, 0, 1), cuda, error);
}

OP(channel_bias_grad)
{
    return bias_sum_launch(norm_args(args, 0, points_of(args)), cuda, error);
}

OP(channel_norm)
{
    FieldArgs mean = norm_args(args, 1, args->size['C']), r = norm_args(args, 2, 1);
    FieldArgs y = norm_args(args, 0, 1);
    r.in[1] = mean.out;
    y.in[3] = mean.out, y.in[4] = r.out;
    return channels_mean_launch(mean, cuda, error) && channels_r_launch(r, cuda, error) &&
           channels_norm_launch(y, cuda, error);
}

OP(channel_norm_grad)
{
    return channels_grad_launch(norm_args(args, 0, 1), cuda, error) &&
           channels_weight_launch(norm_args(args, 1, points_of(args)), cuda, error) &&
           bias_sum_launch(norm_args(args, 2, points_of(args)), cuda, error);
}

OP(group_sum)
{
    return groups_sum_launch(norm_args(args, 0, elements_of(args)), cuda, error);
}

OP(group_sum_grad)
{
    return groups_sum_grad_launch(norm_args(args, 0, 1), cuda, error);
}

OP(group_spread)
{
    return groups_spread_launch(norm_args(args, 0, elements_of(args)), cuda, error);
}

OP(group_spread_grad)
{
    return groups_spread_grad_launch(norm_args(args, 0, 1), cuda, error);
}

OP(group_norm)
{
    return groups_norm_launch(norm_args(args, 0, 1), cuda, error);
}

OP(group_norm_grad)
{
    return groups_norm_grad_launch(norm_args(args, 0, 1), cuda, error) &&
           groups_dsum_launch(norm_args(args, 1, elements_of(args)), cuda, error) &&
           groups_dspread_launch(norm_args(args, 2, elements_of(args)), cuda, error);
}

OP(group_norm_weight)
{
    return groups_weight_launch(norm_args(args, 0, points_of(args)), cuda, error) &&
           bias_sum_launch(norm_args(args, 1, points_of(args)), cuda, error);
}
