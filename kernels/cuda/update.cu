/* The update of the parameters at the end of a step. First come sums of squares, the mean loss and
 * the clipping coefficient. Then one launch of AdamW or SGD updates a flat unit. Values that change
 * from step to step come from the control block. If the norm of the gradients is not finite, no
 * parameter is changed. */
#include "kernels/cuda/draw.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/workspace.h"

enum { UPDATE_THREADS = 256, UPDATE_BLOCKS_PER_SM = 2, SUM_PARTS = 528, SUM_AHEAD = 2 };

/* ---- the norm ---- */

typedef struct SumsqArgs {
    Array x;
    int64_t n;
    double *parts; /* [SUM_PARTS] */
    double *sum;
    int64_t n_parts;
    bool adds;
} SumsqArgs;

KERNEL(sumsq_parts, SumsqArgs, UPDATE_THREADS, 4)
{
    SHARED(double, held);
    double total = 0;
    int64_t step = (int64_t)gridDim.x * UPDATE_THREADS * SUM_AHEAD * EIGHT;
    int64_t first = ((int64_t)blockIdx.x * UPDATE_THREADS * SUM_AHEAD + threadIdx.x) * EIGHT;
    for (int64_t at = first; at < a.n; at += step) {
        Raw raw[SUM_AHEAD];
        UNROLL for (int u = 0; u < SUM_AHEAD; u++)
        {
            int64_t i = at + u * UPDATE_THREADS * EIGHT;
            raw[u] = fetch(a.x, i, eight_of(i, a.n));
        }
        UNROLL for (int u = 0; u < SUM_AHEAD; u++)
        {
            float x[EIGHT];
            widen_all(a.x, &raw[u], x);
            UNROLL for (int k = 0; k < EIGHT; k++) total += (double)x[k] * (double)x[k];
        }
    }
    total = block_sum_double(total, held);
    if (threadIdx.x == 0) a.parts[blockIdx.x] = total;
}

/* One warp: each lane adds every 32nd partial sum. */
KERNEL(sumsq_end, SumsqArgs, WARP, 1)
{
    double total = 0;
    for (int64_t part = threadIdx.x; part < a.n_parts; part += WARP) total += a.parts[part];
    total = warp_sum_double(total);
    if (threadIdx.x == 0) *a.sum = a.adds ? *a.sum + total : total;
}

uint64_t cuda_sumsq_workspace(OpKind op, const DType *dtype, const int64_t *elements,
                              uint32_t n_args)
{
    (void)op, (void)dtype, (void)elements, (void)n_args;
    return SUM_PARTS * sizeof(double);
}

/* x [x] -> sum [1] f64, which is set or added to; only elements with global index lo to hi - 1
 * contribute */
bool cuda_sumsq(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    SumsqArgs p;
    Range range = local_range(args);
    KernelArgs part = *args;
    memset(&p, 0, sizeof p);
    part.ptr[0] = (char *)args->ptr[0] + (uint64_t)range.from * dtype_bytes(args->dtype[0]);
    p.x = array_of(&part, 0, 0), p.n = range.n;
    p.parts = (double *)args->ptr[2], p.sum = (double *)args->ptr[1];
    p.adds = accumulates(args, 0);
    p.n_parts = blocks_for(p.n, UPDATE_THREADS * SUM_AHEAD * EIGHT, SUM_PARTS);
    return LAUNCH(sumsq_parts, p.n_parts, UPDATE_THREADS, MAX_WARPS * sizeof(double), p, cuda,
                  error) &&
           LAUNCH(sumsq_end, 1, WARP, 0, p, cuda, error);
}

/* ---- scalars ---- */

typedef struct ScalarArgs {
    const double *x, *y; /* loss and count; or table and factor */
    /* step_mean: *out gets the mean, *more the factor. clip_coef: out gets {norm, coefficient}. */
    double *out, *more;
    double scale, clip;
    int64_t n;
} ScalarArgs;

KERNEL(step_mean_one, ScalarArgs, 1, 1)
{
    double factor = *a.y > 0 ? a.scale / *a.y : 0;
    double mean = *a.x * factor;
    *a.more = factor;
    *a.out = mean;
}

/* loss, count [] f64 -> mean, factor [] f64 */
bool cuda_step_mean(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    ScalarArgs p;
    memset(&p, 0, sizeof p);
    p.x = (const double *)args->ptr[0], p.y = (const double *)args->ptr[1];
    p.out = (double *)args->ptr[2], p.more = (double *)args->ptr[3];
    p.scale = args->attrs.scale;
    return LAUNCH(step_mean_one, 1, 1, 0, p, cuda, error);
}

KERNEL(clip_coef_one, ScalarArgs, 1, 1)
{
    double total = 0, factor = *a.y;
    for (int64_t i = 0; i < a.n; i++) total += a.x[i];
    double norm = factor * sqrt(total), coefficient = a.clip / (norm + 1e-6);
    a.out[0] = norm;
    a.out[1] = factor * (a.clip == 0 || coefficient > 1 ? 1 : coefficient);
}

/* table [N] f64, factor [] f64 -> out [2] f64 = {norm, coefficient} */
bool cuda_clip_coef(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    ScalarArgs p;
    memset(&p, 0, sizeof p);
    p.x = (const double *)args->ptr[0], p.y = (const double *)args->ptr[1];
    p.out = (double *)args->ptr[2];
    p.clip = args->attrs.clip, p.n = args->elements[0];
    return LAUNCH(clip_coef_one, 1, 1, 0, p, cuda, error);
}

/* ---- the update ---- */

typedef struct UpdateArgs {
    Array p, m, v, grad;
    const double *clip; /* {norm, coefficient} */
    const CudaControl *control;
    double beta1, beta2, decay;
    float eps;
    int64_t n, start; /* start: index of the first element in the unit */
    uint32_t site;
    bool stochastic;
} UpdateArgs;

/* Values that are the same for all elements. Each thread computes them once. */
typedef struct UpdateStep {
    float by, keep, rate, root, b1, b2, c1, c2;
    uint64_t seed, stream;
    bool skips;
} UpdateStep;

DEVICE UpdateStep update_step(const UpdateArgs *a, bool adam)
{
    UpdateStep s;
    double lr = a->control->lr, t = (double)a->control->step + 1;
    memset(&s, 0, sizeof s);
    s.skips = !(fabs(a->clip[0]) <= DBL_MAX) || !(fabs(a->clip[1]) <= DBL_MAX);
    s.keep = (float)(1 - lr * a->decay);
    s.by = (float)(adam ? a->clip[1] : lr * a->clip[1]);
    if (adam) {
        double correction1 = 1 - pow(a->beta1, t), correction2 = 1 - pow(a->beta2, t);
        s.rate = (float)(lr / correction1), s.root = (float)(1 / sqrt(correction2));
        s.b1 = (float)a->beta1, s.b2 = (float)a->beta2;
        s.c1 = (float)(1 - a->beta1), s.c2 = (float)(1 - a->beta2);
    }
    if (a->stochastic) {
        s.seed = a->control->seed;
        s.stream = device_draw_stream(DRAW_ROUNDING, a->control->step, 0, a->site);
    }
    return s;
}

/* Rounds each number up with a probability equal to its distance from the lower neighbour (see
 * kernels/draw.h). The distance is counted in units of the gap between both neighbours. */
DEVICE void update_round(const UpdateArgs *a, const UpdateStep *s, int64_t i, float p[EIGHT])
{
    uint32_t word[EIGHT];
    draw_eight(s->seed, s->stream, (uint64_t)(a->start + i), word);
    UNROLL for (int k = 0; k < EIGHT; k++)
    {
        uint32_t bits = BITS_OF_FLOAT(p[k]);
        if ((bits & INFINITE) != INFINITE) bits = (bits + (word[k] & 0xffff)) & 0xffff0000u;
        p[k] = FLOAT_OF_BITS(bits);
    }
}

KERNEL(adamw_unit, UpdateArgs, UPDATE_THREADS, UPDATE_BLOCKS_PER_SM)
{
    UpdateStep s = update_step(&a, true);
    int64_t step = (int64_t)gridDim.x * UPDATE_THREADS * EIGHT;
    if (s.skips) return;
    for (int64_t i = ((int64_t)blockIdx.x * UPDATE_THREADS + threadIdx.x) * EIGHT; i < a.n;
         i += step) {
        int n = eight_of(i, a.n);
        Raw raw_p = fetch(a.p, i, n), raw_m = fetch(a.m, i, n), raw_v = fetch(a.v, i, n);
        Raw raw_grad = fetch(a.grad, i, n);
        float p[EIGHT], m[EIGHT], v[EIGHT], g[EIGHT];
        widen_all(a.p, &raw_p, p);
        widen_all(a.m, &raw_m, m);
        widen_all(a.v, &raw_v, v);
        widen_all(a.grad, &raw_grad, g);
        UNROLL for (int k = 0; k < EIGHT; k++)
        {
            g[k] *= s.by;
            m[k] = s.b1 * m[k] + s.c1 * g[k];
            v[k] = s.b2 * v[k] + s.c2 * g[k] * g[k];
            p[k] = s.keep * p[k] - s.rate * m[k] / (sqrtf(v[k]) * s.root + a.eps);
        }
        if (a.stochastic) update_round(&a, &s, i, p);
        store(a.p, i, n, p);
        store(a.m, i, n, m);
        store(a.v, i, n, v);
    }
}

KERNEL(sgd_unit, UpdateArgs, UPDATE_THREADS, UPDATE_BLOCKS_PER_SM * 2)
{
    UpdateStep s = update_step(&a, false);
    int64_t step = (int64_t)gridDim.x * UPDATE_THREADS * EIGHT;
    if (s.skips) return;
    for (int64_t i = ((int64_t)blockIdx.x * UPDATE_THREADS + threadIdx.x) * EIGHT; i < a.n;
         i += step) {
        int n = eight_of(i, a.n);
        Raw raw_p = fetch(a.p, i, n), raw_grad = fetch(a.grad, i, n);
        float p[EIGHT], g[EIGHT];
        widen_all(a.p, &raw_p, p);
        widen_all(a.grad, &raw_grad, g);
        UNROLL for (int k = 0; k < EIGHT; k++) p[k] = s.keep * p[k] - s.by * g[k];
        store(a.p, i, n, p);
    }
}

typedef struct SignArgs {
    Array p, count;
    float by, mean;
    int64_t n;
} SignArgs;

KERNEL(sign_unit, SignArgs, UPDATE_THREADS, UPDATE_BLOCKS_PER_SM)
{
    for (int64_t i = (int64_t)blockIdx.x * UPDATE_THREADS + threadIdx.x; i < a.n;
         i += (int64_t)gridDim.x * UPDATE_THREADS) {
        const float count = read_one(a.count, i);
        const float sign = (float)((count < a.mean) - (count > a.mean));
        write_one(a.p, i, read_one(a.p, i) + a.by * sign);
    }
}

static UpdateArgs update_args(const KernelArgs *args, uint32_t grad, uint32_t clip,
                              const CudaContext *cuda)
{
    UpdateArgs p;
    memset(&p, 0, sizeof p);
    for (uint32_t j = args->n_in; j < args->n_args; j++)
        assert(args->ptr[j] == args->ptr[j - args->n_in]); /* parameters are updated where they
                                                              lie */
    p.p = array_of(args, 0, 0), p.grad = array_of(args, grad, 0);
    p.clip = (const double *)args->ptr[clip];
    p.control = cuda->control;
    p.beta1 = args->attrs.beta1, p.beta2 = args->attrs.beta2;
    p.decay = args->attrs.weight_decay, p.eps = (float)args->attrs.eps;
    p.n = args->size['x'], p.start = args->start['x'];
    return p;
}

/* param, m, v, grad [x], {norm, coefficient} f64 -> param, m, v [x], in the memory of the inputs */
bool cuda_adamw(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    UpdateArgs p = update_args(args, 3, 4, cuda);
    p.m = array_of(args, 1, 0), p.v = array_of(args, 2, 0);
    p.site = (uint32_t)args->attrs.site;
    p.stochastic = args->attrs.stochastic != 0;
    int64_t blocks =
        blocks_for(p.n, UPDATE_THREADS * EIGHT, (int64_t)cuda->n_sms * UPDATE_BLOCKS_PER_SM);
    return LAUNCH(adamw_unit, blocks, UPDATE_THREADS, 0, p, cuda, error);
}

/* param, grad [x], {norm, coefficient} f64 -> param [x] */
bool cuda_sgd(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    UpdateArgs p = update_args(args, 1, 2, cuda);
    int64_t blocks =
        blocks_for(p.n, UPDATE_THREADS * EIGHT, (int64_t)cuda->n_sms * UPDATE_BLOCKS_PER_SM * 2);
    return LAUNCH(sgd_unit, blocks, UPDATE_THREADS, 0, p, cuda, error);
}

/* param, count [x] -> param [x], in the memory of the input */
bool cuda_sign_step(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    SignArgs p;
    memset(&p, 0, sizeof p);
    assert(args->ptr[2] == args->ptr[0]); /* the parameter is updated where it lies */
    p.p = array_of(args, 0, 0), p.count = array_of(args, 1, 0);
    p.by = (float)args->attrs.scale, p.mean = (float)args->attrs.mean, p.n = args->size['x'];
    const int64_t blocks =
        blocks_for(p.n, UPDATE_THREADS, (int64_t)cuda->n_sms * UPDATE_BLOCKS_PER_SM);
    return LAUNCH(sign_unit, blocks, UPDATE_THREADS, 0, p, cuda, error);
}
