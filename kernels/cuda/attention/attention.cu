/* Attention and its gradient: chooses among our own kernels and prepares their arguments. */
#include "kernels/cuda/attention/attention.h"

#include "kernels/cuda/attention/hopper/attention_hopper.h"
#include "kernels/cuda/attention/hopper/attention_hopper_sums.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/reduce.cuh"

/* ---- Computes delta [B,S,G,R], the sum of dO O over each row. `lanes` lanes of a warp compute a
 * row, and each lane loads eight elements at a time. They compute DELTA_EACH rows at once, because
 * the loads of a single row would not use the whole speed of memory. */

typedef struct DeltaArgs {
    Array dout, out;
    float *delta;
    int64_t rows, E;
    uint32_t lanes; /* a power of two, at most 32 */
} DeltaArgs;

enum { DELTA_THREADS = 256, DELTA_EACH = 2 };

DEVICE float delta_of(const Raw *dout, const Raw *out, const DeltaArgs *a, float sum)
{
    float x[EIGHT], y[EIGHT];
    widen_any(KINDS_real, a->dout.dtype, dout, x);
    widen_any(KINDS_real, a->out.dtype, out, y);
    UNROLL for (int k = 0; k < EIGHT; k++) sum = fmaf(x[k], y[k], sum);
    return sum;
}

KERNEL(attention_delta, DeltaArgs, DELTA_THREADS, 4)
{
    const int64_t at_once = DELTA_THREADS / a.lanes, lane = threadIdx.x % a.lanes;
    const int64_t first = blockIdx.x * at_once * DELTA_EACH + threadIdx.x / a.lanes;
    float sum[DELTA_EACH];
    UNROLL for (int j = 0; j < DELTA_EACH; j++) sum[j] = 0;
    for (int64_t e = EIGHT * lane; e < a.E; e += EIGHT * a.lanes) {
        const int n = a.E - e < EIGHT ? (int)(a.E - e) : EIGHT;
        Raw dout[DELTA_EACH], out[DELTA_EACH];
        UNROLL for (int j = 0; j < DELTA_EACH; j++)
        {
            const int64_t row = first + j * at_once;
            const int there = row < a.rows ? n : 0;
            dout[j] = fetch_any(KINDS_real, a.dout, there ? row * a.E + e : 0, there);
            out[j] = fetch_any(KINDS_real, a.out, there ? row * a.E + e : 0, there);
        }
        UNROLL for (int j = 0; j < DELTA_EACH; j++) sum[j] =
            delta_of(&dout[j], &out[j], &a, sum[j]);
    }
    UNROLL for (int j = 0; j < DELTA_EACH; j++)
    {
        const float all = lanes_sum(sum[j], (int)a.lanes);
        if (first + j * at_once < a.rows && lane == 0) a.delta[first + j * at_once] = all;
    }
}

static bool launch_delta(const KernelArgs *args, const AttentionArgs *a, const CudaContext *cuda,
                         CudaError *error)
{
    DeltaArgs d;
    d.dout = array_of(args, 0, a->E);
    d.out = array_of(args, 4, a->E);
    d.delta = a->delta;
    d.rows = a->B * a->S * a->G * a->R;
    d.E = a->E;
    for (d.lanes = 1; d.lanes < WARP && d.lanes * EIGHT < a->E;) d.lanes *= 2;
    const int64_t rows = DELTA_EACH * DELTA_THREADS / d.lanes; /* rows that a block computes */
    return LAUNCH(attention_delta, ceil_div(d.rows, rows), DELTA_THREADS, 0, d, cuda, error);
}

/* ---- arguments ---- */

/* Sets how many heads are processed at the same time (see order_beside). Blocks that hold queries
 * read the keys and values of their group. Blocks that hold keys read the queries and output
 * gradients of all heads of their group. */
static void attention_order(AttentionArgs *a, const CudaContext *cuda, DType dtype)
{
    const int64_t pair = 2 * a->E * (int64_t)dtype_bytes(dtype), groups = a->B * a->G;
    const int64_t queries = groups * a->R * ceil_div(a->S, ORDER_ROWS),
                  keys = groups * ceil_div(a->T, ORDER_ROWS);
    a->beside_queries =
        order_beside(cuda, a->T * pair, groups, a->causal, queries) * (uint32_t)a->R;
    a->beside_keys = order_beside(cuda, a->S * a->R * pair, groups, a->causal, keys);
}

static AttentionArgs attention_args(const KernelArgs *args, const CudaContext *cuda)
{
    AttentionArgs a;
    memset(&a, 0, sizeof a);
    a.B = args->size['b'], a.S = args->size['s'], a.T = args->size['T'];
    a.G = args->size['g'], a.R = args->size['r'], a.E = args->size['E'];
    a.position = args->start['s'] - args->start['T'];
    a.half = a.S / 2;
    a.jump = args->second['s'] - args->start['s'] - a.half;
    /* attention_first relies on this: a later query sees all keys of an earlier one */
    assert(a.jump >= 0);
    if (a.jump == 0) a.half = a.S;
    a.scale = (float)args->attrs.scale;
    a.causal = args->attrs.causal != 0;
    a.accumulate = (uint32_t)args->attrs.accumulate;
    attention_order(&a, cuda, args->dtype[1]);
    a.drops = args->attrs.drop > 0;
    if (!a.drops) return a;
    const int64_t *size = args->binding->size;
    a.grow = (float)(1 / (1 - args->attrs.drop));
    a.draw = draw_of(args, cuda);
    a.place_r = size['T'];
    a.place_g = size['r'] * a.place_r;
    a.place_s = size['g'] * a.place_g;
    a.place_b = size['s'] * a.place_s;
    a.place = args->start['b'] * a.place_b + args->start['s'] * a.place_s +
              args->start['g'] * a.place_g + args->start['r'] * a.place_r + args->start['T'];
    return a;
}

/* Returns the head size of the smallest tiles that can hold all n arguments listed in `which`.
 * Returns 0 if no tile can. */
static int tile_head(const KernelArgs *args, uint32_t n, const uint32_t *which)
{
    DType t = args->dtype[which[0]];
    if ((t != DT_bf16 && t != DT_f16) || args->attrs.scale <= 0) return 0;
    for (uint32_t i = 0; i < n; i++)
        if (args->dtype[which[i]] != t || (uintptr_t)args->ptr[which[i]] % 16 != 0) return 0;
    return attention_tile_head(args->size['E']);
}

static bool by_library(OpKind op, const KernelArgs *args, const CudaContext *cuda, bool *taken,
                       CudaError *error)
{
    const CudaAttentionLibrary *library = cuda->attention;
    return library == NULL || library->run(library->self, op, args, cuda, taken, error);
}

/* Returns the kernels' arguments for attention. Sets *head to the head size of their tiles; 0: only
 * the plain kernel can compute the call. */
static AttentionArgs forward_args(const KernelArgs *args, const CudaContext *cuda, int *head)
{
    const uint32_t tiled[] = {0, 1, 2, 3};
    AttentionArgs a = attention_args(args, cuda);
    a.q = args->ptr[0], a.k = args->ptr[1], a.v = args->ptr[2];
    a.to_out = args->ptr[3];
    a.to_lse = (float *)args->ptr[4];
    a.dtype = args->dtype[0];
    assert(args->dtype[4] == DT_f32);
    *head = tile_head(args, 4, tiled);
    return a;
}

bool cuda_attention(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    int head;
    bool taken = false;
    if (!by_library(OP_attention, args, cuda, &taken, error)) return false;
    if (taken) return true;
    AttentionArgs a = forward_args(args, cuda, &head);
    if (head > 0) return attention_forward(&a, head, cuda, error);
    AttentionTypes types;
    memset(&types, 0, sizeof types);
    types.q = args->dtype[0], types.k = args->dtype[1], types.v = args->dtype[2];
    types.out = args->dtype[3];
    return attention_plain(&a, &types, cuda, error);
}

/* Returns the kernels' arguments for the gradient. Sets *head as forward_args does. */
static AttentionArgs gradient_args(const KernelArgs *args, const CudaContext *cuda, int *head)
{
    const uint32_t tiled[] = {0, 1, 2, 3, 6, 7, 8};
    AttentionArgs a = attention_args(args, cuda);
    a.dout = args->ptr[0], a.q = args->ptr[1], a.k = args->ptr[2], a.v = args->ptr[3];
    a.out = args->ptr[4];
    a.lse = (const float *)args->ptr[5];
    a.dq = args->ptr[6], a.dk = args->ptr[7], a.dv = args->ptr[8];
    a.delta = (float *)args->ptr[9];
    a.dtype = args->dtype[0];
    assert(args->n_args == 10 && args->dtype[5] == DT_f32 && args->dtype[9] == DT_u8);
    assert(args->elements[9] >= args->elements[5] * (int64_t)sizeof(float));
    *head = tile_head(args, 7, tiled);
    return a;
}

bool cuda_attention_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    int head;
    bool taken = false;
    if (!by_library(OP_attention_grad, args, cuda, &taken, error)) return false;
    if (taken) return true;
    AttentionArgs a = gradient_args(args, cuda, &head);
    if (!launch_delta(args, &a, cuda, error)) return false;
    if (head > 0)
        return attention_grad_queries(&a, head, cuda, error) &&
               attention_grad_keys(&a, head, cuda, error);
    AttentionTypes types;
    types.dout = args->dtype[0], types.q = args->dtype[1], types.k = args->dtype[2];
    types.v = args->dtype[3], types.out = args->dtype[4];
    types.dq = args->dtype[6], types.dk = args->dtype[7], types.dv = args->dtype[8];
    return attention_grad_plain(&a, &types, cuda, error);
}

bool cuda_attention_hopper_takes(OpKind op, const KernelArgs *args, const CudaContext *cuda)
{
    int head;
    AttentionArgs a =
        op == OP_attention ? forward_args(args, cuda, &head) : gradient_args(args, cuda, &head);
    return attention_hopper_takes(&a, head, cuda);
}

bool cuda_attention_hopper(OpKind op, const KernelArgs *args, const CudaContext *cuda,
                           CudaError *error)
{
    int head;
    if (op == OP_attention) {
        AttentionArgs a = forward_args(args, cuda, &head);
        return attention_hopper(&a, head, cuda, error);
    }
    assert(op == OP_attention_grad);
    AttentionArgs a = gradient_args(args, cuda, &head);
    return launch_delta(args, &a, cuda, error) && attention_hopper_queries(&a, head, cuda, error) &&
           attention_hopper_keys(&a, head, cuda, error);
}

bool cuda_attention_one_takes(const KernelArgs *args, const CudaContext *cuda)
{
    int head;
    AttentionArgs a = gradient_args(args, cuda, &head);
    return attention_hopper_grad_takes(&a, head, (uint64_t)args->elements[9], cuda);
}

bool cuda_attention_one(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    int head;
    AttentionArgs a = gradient_args(args, cuda, &head);
    assert(attention_hopper_grad_takes(&a, head, (uint64_t)args->elements[9], cuda));
    return attention_grad_rows_before(args, &a, head, cuda, error) &&
           attention_hopper_grad(&a, head, cuda, error) &&
           attention_grad_sums_after(args, &a, head, cuda, error);
}

/* Returns the bytes of scratch memory. The gradient keeps delta there. For 16-bit numbers and heads
 * of at most 128 numbers, one kernel may compute the whole gradient, and this kernel also keeps dQ
 * in fp32. Since the device is not known here, the bytes for that kernel are always included. */
uint64_t cuda_attention_workspace(OpKind op, const DType *dtype, const int64_t *elements,
                                  uint32_t n_args)
{
    if (op != OP_attention_grad) return 0;
    assert(n_args >= 6);
    const int64_t rows = elements[5], E = rows > 0 ? elements[0] / rows : 0;
    if ((dtype[0] == DT_bf16 || dtype[0] == DT_f16) && E % 8 == 0 && E > 0 && E <= 128)
        return attention_sums_bytes(rows, E <= 64 ? 64 : 128);
    return (uint64_t)rows * sizeof(float);
}
