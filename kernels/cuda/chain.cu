/* Runs of ops that `compile` fuses, as one launch: a sum and the norm of it; or element-wise ops,
 * one after the other on eight elements at a time. Values lie in shared memory, where each thread
 * meets only its own; between ops they are rounded as memory would have rounded them. */
#include "kernels/cuda/fused.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pointwise.cuh"

enum { CHAIN_THREADS = 128, CHAIN_VALUES = 16, CHAIN_LOADS = 12, CHAIN_AHEAD = 2 };

typedef struct ChainStep {
    float scale;
    int16_t op, in[2], old, out; /* values; old: added to, -1: not */
    int16_t dtype;               /* of the output */
    bool writes;
    Array y;
} ChainStep;

typedef struct ChainLoad {
    Array x;
    bool column; /* one row for all rows; else [rows, row] */
} ChainLoad;

typedef struct ChainArgs {
    ChainStep step[CUDA_CHAIN_MAX];
    ChainLoad load[CHAIN_LOADS]; /* values 0 .. n_loads - 1 */
    int32_t n_steps, n_loads, n_values;
    int64_t rows, row, per_row, n; /* n: eights in all */
} ChainArgs;

/* Element k of a thread's value. */
DEVICE float *chain_at(float *values, int value, int k)
{
    return values + (value * EIGHT + k) * CHAIN_THREADS + (int)threadIdx.x;
}

DEVICE void chain_get(float *values, int value, float x[EIGHT])
{
    UNROLL for (int k = 0; k < EIGHT; k++) x[k] = value < 0 ? 0 : *chain_at(values, value, k);
}

DEVICE void chain_put(float *values, int value, const float x[EIGHT])
{
    UNROLL for (int k = 0; k < EIGHT; k++) * chain_at(values, value, k) = x[k];
}

DEVICE void chain_load(const ChainArgs *a, float *values, int64_t at, int64_t column, int n)
{
    for (int i = 0; i < a->n_loads; i += CHAIN_AHEAD) {
        Raw raw[CHAIN_AHEAD];
        UNROLL for (int u = 0; u < CHAIN_AHEAD; u++)
        {
            raw[u] = raw_zero();
            if (i + u < a->n_loads)
                raw[u] = fetch(a->load[i + u].x, a->load[i + u].column ? column : at, n);
        }
        UNROLL for (int u = 0; u < CHAIN_AHEAD; u++)
        {
            float x[EIGHT];
            if (i + u >= a->n_loads) continue;
            widen_all(a->load[i + u].x, &raw[u], x);
            chain_put(values, i + u, x);
        }
    }
}

DEVICE void chain_step(const ChainStep *s, float *values, int64_t at, int n)
{
    float x0[EIGHT], x1[EIGHT], y[EIGHT], old[EIGHT];
    chain_get(values, s->in[0], x0);
    chain_get(values, s->in[1], x1);
    point_apply(s->op, s->scale, x0, x1, x1, y);
    if (s->old >= 0) {
        chain_get(values, s->old, old);
        UNROLL for (int k = 0; k < EIGHT; k++) y[k] = old[k] + y[k];
    }
    round_all(s->dtype, y);
    chain_put(values, s->out, y);
    if (s->writes) store(s->y, at, n, y);
}

KERNEL(chain_rows, ChainArgs, CHAIN_THREADS, 4)
{
    SHARED(float, values); /* [value, eight, thread] */
    int64_t step = (int64_t)gridDim.x * CHAIN_THREADS;
    for (int64_t t = (int64_t)blockIdx.x * CHAIN_THREADS + threadIdx.x; t < a.n; t += step) {
        int64_t row = split_row(t, a.per_row, a.n), column = (t - row * a.per_row) * EIGHT;
        int64_t at = row * a.row + column;
        int n = eight_of(column, a.row);
        chain_load(&a, values, at, column, n);
        for (int i = 0; i < a.n_steps; i++) chain_step(&a.step[i], values, at, n);
    }
}

/* ---- which runs ---- */

/* The element-wise op that a row of the table is; -1: none. */
static int point_of(OpKind op)
{
    if (op == OP_add || op == OP_bias) return POINT_add;
    if (op == OP_mul) return POINT_mul;
    if (op == OP_scale) return POINT_scale;
    if (op == OP_silu) return POINT_silu;
    if (op == OP_silu_grad) return POINT_silu_grad;
    if (op == OP_gelu) return POINT_gelu;
    if (op == OP_gelu_grad) return POINT_gelu_grad;
    return op == OP_pass || op == OP_cast ? POINT_pass : -1;
}

static bool is_real_dtype(DType t)
{
    return t == DT_f32 || t == DT_bf16 || t == DT_f16;
}

/* Elements of all the parts, and of a row: that of the bias, if there is one. */
static bool chain_joins(const CudaChainPart *part, int64_t *n, int64_t *row)
{
    const KernelArgs *args = part->args;
    int64_t mine = part->op == OP_bias ? args->rows : 0;
    if (point_of(part->op) < 0 || args->n_args != args->n_in + 1) return false;
    for (uint32_t i = 0; i < args->n_args; i++)
        if (!is_real_dtype(args->dtype[i])) return false;
    if (*n > 0 && args->elements[args->n_in] != *n) return false;
    if (mine > 0 && *row > 0 && mine != *row) return false;
    *n = args->elements[args->n_in];
    if (mine > 0) *row = mine;
    return true;
}

static bool is_sum_and_norm(const CudaChainPart *part)
{
    const KernelArgs *sum = part[0].args, *norm = part[1].args;
    bool norms = part[1].op == OP_rmsnorm || part[1].op == OP_layernorm;
    if (part[0].op != OP_add || !norms || accumulates(sum, 0)) return false;
    for (uint32_t i = 0; i < 3; i++)
        if (!is_real_dtype(sum->dtype[i])) return false;
    return norm->ptr[0] == sum->ptr[2] && norm->dtype[0] == sum->dtype[2] &&
           norm->elements[0] == sum->elements[2];
}

/* ---- how a run is carried out ---- */

/* The value of an argument as it is now: the latest that was made there, or loaded; else one more
 * load. -1: there is no room. */
static int chain_value(ChainArgs *p, void *const *home, const DType *dtype, const KernelArgs *args,
                       uint32_t arg, bool column)
{
    int n = p->n_steps, fresh;
    for (int i = n - 1; i >= 0; i--)
        if (home[i] == args->ptr[arg] && dtype[i] == args->dtype[arg]) return CHAIN_LOADS + i;
    for (int i = 0; i < p->n_loads; i++)
        if (p->load[i].x.at == args->ptr[arg] && p->load[i].x.dtype == (int32_t)args->dtype[arg] &&
            p->load[i].column == column)
            return i;
    if (p->n_loads == CHAIN_LOADS) return -1;
    fresh = p->n_loads++;
    p->load[fresh].x = array_of(args, arg, p->rows == 1 ? 0 : p->row);
    p->load[fresh].column = column;
    return fresh;
}

static bool chain_add(ChainArgs *p, void **home, DType *dtype, const CudaChainPart *part)
{
    const KernelArgs *args = part->args;
    ChainStep *s = &p->step[p->n_steps];
    uint32_t out = args->n_in;
    s->op = (int16_t)point_of(part->op);
    s->scale = (float)args->attrs.scale;
    s->in[0] = (int16_t)chain_value(p, home, dtype, args, 0, false);
    s->in[1] = s->in[0];
    if (args->n_in > 1)
        s->in[1] = (int16_t)chain_value(p, home, dtype, args, 1, part->op == OP_bias);
    s->old = -1;
    if (accumulates(args, 0)) {
        s->old = (int16_t)chain_value(p, home, dtype, args, out, false);
        if (s->old < 0) return false;
    }
    s->dtype = (int16_t)args->dtype[out];
    s->writes = (part->unread & 1) == 0;
    s->y = array_of(args, out, p->rows == 1 ? 0 : p->row);
    home[p->n_steps] = args->ptr[out];
    dtype[p->n_steps] = args->dtype[out];
    s->out = (int16_t)(CHAIN_LOADS + p->n_steps++);
    return s->in[0] >= 0 && s->in[1] >= 0;
}

/* As many of the parts as go together; *p carries them out. */
static uint32_t chain_build(const CudaChainPart *part, uint32_t n, ChainArgs *p)
{
    void *home[CUDA_CHAIN_MAX];
    DType dtype[CUDA_CHAIN_MAX];
    int64_t elements = 0, row = 0;
    uint32_t joined = 0, done = 0;
    memset(p, 0, sizeof *p);
    while (joined < n && joined < CUDA_CHAIN_MAX && chain_joins(&part[joined], &elements, &row))
        joined++;
    if (joined < 2 || elements == 0) return 0;
    p->row = row > 0 ? row : elements;
    p->rows = elements / p->row;
    p->per_row = ceil_div(p->row, EIGHT), p->n = p->rows * p->per_row;
    while (done < joined) {
        ChainArgs before = *p;
        if (!chain_add(p, home, dtype, &part[done])) {
            *p = before;
            break;
        }
        done++;
    }
    for (int i = 0; i < p->n_steps; i++) { /* values close up behind the loads */
        ChainStep *s = &p->step[i];
        int16_t gap = (int16_t)(CHAIN_LOADS - p->n_loads);
        for (int k = 0; k < 2; k++)
            if (s->in[k] >= CHAIN_LOADS) s->in[k] = (int16_t)(s->in[k] - gap);
        if (s->old >= CHAIN_LOADS) s->old = (int16_t)(s->old - gap);
        s->out = (int16_t)(s->out - gap);
    }
    p->n_values = p->n_loads + p->n_steps;
    return done;
}

uint32_t kernel_cuda_chain_length(const CudaChainPart *part, uint32_t n)
{
    ChainArgs p;
    uint32_t length;
    if (n < 2) return 0;
    if (is_sum_and_norm(part)) return 2;
    length = cuda_xent_length(part, n);
    if (length > 0) return length;
    length = chain_build(part, n, &p);
    return length >= 2 ? length : 0;
}

bool kernel_cuda_chain(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                       CudaError *error)
{
    ChainArgs p;
    uint32_t length;
    if (n == 2 && is_sum_and_norm(part))
        return cuda_add_norm(part[0].args, (part[0].unread & 1) != 0, part[1].op, part[1].args,
                             cuda, error);
    if (cuda_xent_length(part, n) == n) return cuda_xent_run(part, n, cuda, error);
    length = chain_build(part, n, &p);
    if (length != n) { /* not what kernel_cuda_chain_length said */
        snprintf(error->text, sizeof error->text, "a chain of %u parts ends after %u", n, length);
        return false;
    }
    uint64_t shared = (uint64_t)p.n_values * EIGHT * CHAIN_THREADS * sizeof(float);
    int64_t blocks = blocks_for(p.n, CHAIN_THREADS, (int64_t)cuda->n_sms * 8);
    return LAUNCH(chain_rows, blocks, CHAIN_THREADS, shared, p, cuda, error);
}
