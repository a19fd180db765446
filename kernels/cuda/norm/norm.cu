/* RMSNorm and LayerNorm. A row is read once. If the norm's input is a residual sum, the kernel
 * computes this sum, too. It can also find the largest magnitude of its output. */
#include "kernels/cuda/norm/norm.cuh"

#include "kernels/cuda/pointwise/fused.h"

/* Loads the thread's groups of eight elements of a row, from group `base` on. If there is an
 * addend, it is added, and the sum is rounded as if it were written to memory. For 16-bit numbers,
 * all loads are issued before the first number is used; for fp32, that would take too many
 * registers. */
DEVICE void norm_load(const bool half, const NormArgs *a, int64_t row, int base, int lane,
                      float x[HELD][EIGHT])
{
    Raw raw[HELD], more[HELD];
    UNROLL for (int u = 0; u < HELD; u++)
    {
        int column = row_column(a->rows, base, u, lane);
        int64_t at = row * a->rows.width + column;
        int n = norm_count(half, a->rows, row, column);
        raw[u] = fetch(norm_array(half, a->x), at, n);
        if (half && a->adds) more[u] = fetch(norm_array(half, a->addend), at, n);
    }
    UNROLL for (int u = 0; u < HELD; u++)
    {
        float y[EIGHT];
        widen_all(norm_array(half, a->x), &raw[u], x[u]);
        if (!a->adds) continue;
        if (!half) {
            int column = row_column(a->rows, base, u, lane);
            int n = norm_count(half, a->rows, row, column);
            more[u] = fetch(norm_array(half, a->addend), row * a->rows.width + column, n);
        }
        widen_all(norm_array(half, a->addend), &more[u], y);
        UNROLL for (int k = 0; k < EIGHT; k++) x[u][k] += y[k];
        round_all(norm_array(half, a->sum).dtype, x[u]);
    }
}

typedef enum NormPass { NORM_sum, NORM_squares } NormPass;

/* Returns this thread's part of a sum over a row: of the numbers (NORM_sum), or of their squared
 * distances from `mean` (NORM_squares). */
DEVICE float norm_pass(const bool half, const NormArgs *a, const NormPass pass, int64_t row,
                       int lane, float mean, float x[HELD][EIGHT])
{
    float total = 0;
    for (int base = 0; base < a->rows.eights; base += HELD * a->rows.lanes) {
        if (a->rows.eights > HELD * a->rows.lanes) norm_load(half, a, row, base, lane, x);
        UNROLL for (int u = 0; u < HELD; u++)
        {
            int n = norm_count(half, a->rows, row, row_column(a->rows, base, u, lane));
            UNROLL for (int k = 0; k < EIGHT; k++)
            {
                float away = k < n ? x[u][k] - mean : 0;
                total = pass == NORM_sum ? total + away : fmaf(away, away, total);
            }
        }
    }
    return total;
}

/* Writes a group of eight normalised elements. Returns `most`, or the largest magnitude of these
 * elements if that is larger. */
DEVICE uint32_t norm_write(const bool half, const NormArgs *a, int64_t row, int column, int n,
                           const float x[EIGHT], float mean, float r, uint32_t most)
{
    int64_t at = row * a->rows.width + column;
    float weight[EIGHT], bias[EIGHT], y[EIGHT];
    load(a->weight, column, n, weight);
    if (a->centred) load(a->bias, column, n, bias);
    UNROLL for (int k = 0; k < EIGHT; k++)
    {
        y[k] = (x[k] - mean) * r * weight[k];
        if (a->centred) y[k] += bias[k];
    }
    if (a->keeps) store(norm_array(half, a->sum), at, n, x);
    store(norm_array(half, a->y), at, n, y);
    if (a->amax.of == AMAX_nothing) return most;
    round_all(norm_array(half, a->y).dtype, y);
    return amax_of_eight(y, n, most);
}

/* Normalises the rows of a block. If `half` is true, norm_is_half must accept
 * x, addend, sum and y. */
DEVICE void norm_block(const bool half, const NormArgs *a, float *held)
{
    float x[HELD][EIGHT];
    int lane = (int)threadIdx.x % a->rows.lanes, stride = HELD * a->rows.lanes;
    int64_t row = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / a->rows.lanes;
    float mean = 0, width = (float)a->rows.width;
    uint32_t most = 0;
    norm_load(half, a, row, 0, lane, x);
    if (a->centred)
        mean = row_sum(a->rows, norm_pass(half, a, NORM_sum, row, lane, 0, x), held) / width;
    float square = norm_pass(half, a, NORM_squares, row, lane, mean, x);
    float r = 1.0f / sqrtf(row_sum(a->rows, square, held) / width + a->eps);
    for (int base = 0; base < a->rows.eights; base += stride) {
        if (a->rows.eights > stride) norm_load(half, a, row, base, lane, x);
        UNROLL for (int u = 0; u < HELD; u++)
        {
            int column = row_column(a->rows, base, u, lane);
            int n = norm_count(half, a->rows, row, column);
            if (n > 0) most = norm_write(half, a, row, column, n, x[u], mean, r, most);
        }
    }
    if (a->amax.of == AMAX_rows) row_amax(a->amax, a->rows, row, lane, most, (uint32_t *)held);
    if (a->amax.of == AMAX_all) block_amax(a->amax, most, (uint32_t *)held);
    if (lane == 0 && row < a->rows.n) {
        write_one(a->r, row, r);
        if (a->centred) write_one(a->mean, row, mean);
    }
}

KERNEL(norm_rows, NormArgs, NORM_THREADS, 2)
{
    SHARED(float, held);
    norm_block(false, &a, held);
}

KERNEL(norm_rows_half, NormArgs, NORM_THREADS, 2)
{
    SHARED(float, held);
    norm_block(true, &a, held);
}

static bool norm_launch(NormArgs p, int64_t n, int64_t width, double eps, const CudaContext *cuda,
                        CudaError *error)
{
    p.rows = rows_of(n, width, HELD, 4, NORM_THREADS);
    p.eps = (float)eps;
    int64_t threads = p.rows.lanes > WARP ? p.rows.lanes : 256;
    int64_t blocks = ceil_div(n, threads / p.rows.lanes);
    size_t shared = MAX_WARPS * sizeof(float);
    if (!amax_clear(p.amax, cuda, error)) return false;
    if (norm_has_warps(&p)) return norm_warps(p, cuda, error);
    bool half = norm_is_half(p.x) && norm_is_half(p.y);
    if (p.adds) half = half && norm_is_half(p.addend) && norm_is_half(p.sum);
    return half ? LAUNCH(norm_rows_half, blocks, threads, shared, p, cuda, error)
                : LAUNCH(norm_rows, blocks, threads, shared, p, cuda, error);
}

/* The ops that are fused with a norm. */
typedef struct NormParts {
    const KernelArgs *sum; /* the sum before the norm; NULL: there is none */
    bool keeps;            /* the sum is also written to memory */
    Amax amax;             /* the amax op after the norm */
} NormParts;

static void norm_parts(NormArgs *p, const KernelArgs *args, const NormParts *with, int64_t width)
{
    p->x = array_of(args, 0, width);
    p->weight = array_of(args, 1, width);
    p->amax = with->amax;
    if (with->sum == NULL) return;
    p->adds = true, p->keeps = with->keeps;
    p->x = array_of(with->sum, 0, width);
    p->addend = array_of(with->sum, 1, width);
    p->sum = array_of(with->sum, 2, width);
}

/* x [n,width], weight [width] -> y [n,width], r [n] */
static bool rms(const KernelArgs *args, const NormParts *with, int64_t n, int64_t width,
                const CudaContext *cuda, CudaError *error)
{
    NormArgs p;
    memset(&p, 0, sizeof p);
    norm_parts(&p, args, with, width);
    p.y = array_of(args, 2, width);
    p.r = array_of(args, 3, 1);
    return norm_launch(p, n, width, args->attrs.eps, cuda, error);
}

/* x [n,width], weight, bias [width] -> y [n,width], mean, r [n] */
static bool layer(const KernelArgs *args, const NormParts *with, const CudaContext *cuda,
                  CudaError *error)
{
    NormArgs p;
    int64_t width = args->size['D'];
    memset(&p, 0, sizeof p);
    norm_parts(&p, args, with, width);
    p.centred = true;
    p.bias = array_of(args, 2, width);
    p.y = array_of(args, 3, width);
    p.mean = array_of(args, 4, 1), p.r = array_of(args, 5, 1);
    return norm_launch(p, args->size['b'] * args->size['s'], width, args->attrs.eps, cuda, error);
}

static NormParts norm_alone(void)
{
    NormParts with;
    memset(&with, 0, sizeof with);
    return with;
}

bool cuda_rmsnorm(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    NormParts with = norm_alone();
    return rms(args, &with, args->size['b'] * args->size['s'], args->size['D'], cuda, error);
}

/* x [b,s,...,E]: each head is a row */
bool cuda_rmsnorm_heads(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    NormParts with = norm_alone();
    return rms(args, &with, args->size['b'] * args->size['s'] * args->rows, args->size['E'], cuda,
               error);
}

bool cuda_layernorm(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    NormParts with = norm_alone();
    return layer(args, &with, cuda, error);
}

/* ---- norms fused with other ops */

static bool is_norm(OpKind op)
{
    return op == OP_rmsnorm || op == OP_layernorm;
}

/* Returns true if `part` is a sum and `normed` is the norm of this sum. */
static bool is_sum_of(const CudaChainPart *part, const CudaChainPart *normed)
{
    const KernelArgs *sum = part->args, *norm = normed->args;
    if (part->op != OP_add || accumulates(sum, 0)) return false;
    for (uint32_t i = 0; i < 3; i++)
        if (!fused_takes(sum->dtype[i])) return false;
    return norm->ptr[0] == sum->ptr[2] && norm->dtype[0] == sum->dtype[2] &&
           norm->elements[0] == sum->elements[2];
}

uint32_t cuda_norm_length(const CudaChainPart *part, uint32_t n)
{
    uint32_t at = n >= 2 && is_norm(part[1].op) && is_sum_of(&part[0], &part[1]) ? 1 : 0;
    if (!is_norm(part[at].op)) return 0;
    const KernelArgs *norm = part[at].args;
    uint32_t y = norm->n_in, length = at + 1;
    int64_t rows = norm->size['b'] * norm->size['s'];
    if (length < n &&
        amax_joins(&part[length], norm->ptr[y], norm->dtype[y], norm->elements[y], rows))
        length++;
    return length >= 2 ? length : 0;
}

bool cuda_norm_run(const CudaChainPart *part, uint32_t n, const CudaContext *cuda, CudaError *error)
{
    NormParts with = norm_alone();
    uint32_t at = is_norm(part[0].op) ? 0 : 1;
    const KernelArgs *args = part[at].args;
    if (at == 1) with.sum = part[0].args, with.keeps = (part[0].unread & 1) == 0;
    if (at + 1 < n) with.amax = amax_of_part(&part[at + 1]);
    if (part[at].op == OP_layernorm) return layer(args, &with, cuda, error);
    return rms(args, &with, args->size['b'] * args->size['s'], args->size['D'], cuda, error);
}
