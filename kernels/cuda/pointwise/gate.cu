/* Gated units (SwiGLU) and their gradient, each in one launch. The general kernel for chains
 * (chain.cu) could compute the same ops. But it interprets them, which on an H200 took more than
 * twice as long as moving the data. After each op, the value is rounded to the dtype that its
 * buffer has in memory. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pointwise/fused.h"
#include "kernels/cuda/pointwise/pointwise.cuh"

/* GATE_AHEAD, GATE_GRAD_AHEAD: groups of eight elements that a thread processes at a time */
enum {
    GATE_THREADS = 256,
    GATE_BLOCKS_PER_SM = 3,
    GATE_AHEAD = 2,
    GATE_GRAD_AHEAD = 1,
    GATE_INPUTS = 4
};

typedef struct GateArgs {
    Array in[GATE_INPUTS]; /* forward: gate, up; gradient: gradient of the product, up, silu(gate),
                              gate */
    Array out[3];   /* forward: silu(gate), product; gradient: gradients of silu(gate), of up, of
                       gate */
    bool writes[3]; /* false: no instruction reads this output, so it is not written */
    int64_t n;      /* elements */
} GateArgs;

DEVICE void gate_write(const GateArgs *a, const int i, int64_t at, int n, const float y[EIGHT])
{
    if (a->writes[i]) store(a->out[i], at, n, y);
}

DEVICE void gate_forward(const GateArgs *a, int64_t at, int n, const Raw *raw)
{
    float gate[EIGHT], up[EIGHT], silu[EIGHT], y[EIGHT];
    widen_all(a->in[0], &raw[0], gate);
    widen_all(a->in[1], &raw[1], up);
    point_apply(POINT_silu, 1, gate, gate, gate, silu);
    round_all(a->out[0].dtype, silu);
    gate_write(a, 0, at, n, silu);
    point_apply(POINT_mul, 1, silu, up, up, y);
    gate_write(a, 1, at, n, y);
}

DEVICE void gate_backward(const GateArgs *a, int64_t at, int n, const Raw *raw)
{
    float d[EIGHT], up[EIGHT], silu[EIGHT], gate[EIGHT], middle[EIGHT], y[EIGHT];
    widen_all(a->in[0], &raw[0], d);
    widen_all(a->in[1], &raw[1], up);
    widen_all(a->in[2], &raw[2], silu);
    widen_all(a->in[3], &raw[3], gate);
    point_apply(POINT_mul, 1, d, up, up, middle);
    round_all(a->out[0].dtype, middle);
    gate_write(a, 0, at, n, middle);
    point_apply(POINT_mul, 1, d, silu, silu, y);
    gate_write(a, 1, at, n, y);
    point_apply(POINT_silu_grad, 1, middle, gate, gate, y);
    gate_write(a, 2, at, n, y);
}

/* Processes `ahead` groups of eight elements, from group t on. An output may lie in the memory of
 * an input, because a thread has read all inputs of an element before it writes the element. */
DEVICE void gate_groups(const GateArgs *a, int64_t t, const int n_in, const int ahead)
{
    Raw raw[GATE_AHEAD][GATE_INPUTS];
    UNROLL for (int u = 0; u < ahead; u++)
    {
        const int64_t at = (t + u * GATE_THREADS) * EIGHT;
        UNROLL for (int i = 0; i < n_in; i++) raw[u][i] = fetch(a->in[i], at, eight_of(at, a->n));
    }
    UNROLL for (int u = 0; u < ahead; u++)
    {
        const int64_t at = (t + u * GATE_THREADS) * EIGHT;
        const int n = eight_of(at, a->n);
        if (n == 0) continue;
        if (n_in == 2)
            gate_forward(a, at, n, raw[u]);
        else
            gate_backward(a, at, n, raw[u]);
    }
}

#define GATE_KERNEL(name, n_in, ahead)                                                             \
    KERNEL(name, GateArgs, GATE_THREADS, GATE_BLOCKS_PER_SM)                                       \
    {                                                                                              \
        const int64_t each = GATE_THREADS * (ahead), step = (int64_t)gridDim.x * each;             \
        for (int64_t t = blockIdx.x * each + threadIdx.x; t * EIGHT < a.n; t += step)              \
            gate_groups(&a, t, n_in, ahead);                                                       \
    }
GATE_KERNEL(gate_unit, 2, GATE_AHEAD)
GATE_KERNEL(gate_unit_grad, 4, GATE_GRAD_AHEAD)

/* ---- which chains these kernels run ---- */

/* Returns true if the part is `op` on n elements of dtypes that can be fused. */
static bool gate_part(const CudaChainPart *part, OpKind op, int64_t n)
{
    const KernelArgs *args = part->args;
    if (part->op != op || args->n_args != args->n_in + 1 || accumulates(args, 0)) return false;
    for (uint32_t i = 0; i < args->n_args; i++)
        if (!fused_takes(args->dtype[i]) || args->elements[i] != n) return false;
    return true;
}

static bool gate_reads(const KernelArgs *args, uint32_t i, const KernelArgs *made)
{
    return args->ptr[i] == made->ptr[made->n_in] && args->dtype[i] == made->dtype[made->n_in];
}

static bool gate_touches(const KernelArgs *args, uint32_t i, const KernelArgs *made)
{
    return args->ptr[i] == made->ptr[made->n_in];
}

/* Returns true if the two parts are silu(gate) and its product with up. */
static bool gate_is_unit(const CudaChainPart *part)
{
    const KernelArgs *silu = part[0].args, *mul = part[1].args;
    const int64_t n = silu->elements[0];
    return gate_part(&part[0], OP_silu, n) && gate_part(&part[1], OP_mul, n) &&
           gate_reads(mul, 0, silu) && !gate_touches(mul, 1, silu) && !gate_touches(mul, 2, silu);
}

/* Returns true if the three parts are d * up, d * silu(gate), and the gradient of silu from the
 * first one. */
static bool gate_is_grad(const CudaChainPart *part)
{
    const KernelArgs *first = part[0].args, *second = part[1].args, *last = part[2].args;
    const int64_t n = first->elements[0];
    if (!gate_part(&part[0], OP_mul, n) || !gate_part(&part[1], OP_mul, n) ||
        !gate_part(&part[2], OP_silu_grad, n))
        return false;
    for (uint32_t i = 0; i < 3; i++) /* no part may read memory that an earlier part has
                                        overwritten */
        if (gate_touches(second, i, first)) return false;
    return gate_reads(last, 0, first) && !gate_touches(last, 1, first) &&
           !gate_touches(last, 1, second) && !gate_touches(last, 2, second) &&
           second->ptr[0] == first->ptr[0] && second->dtype[0] == first->dtype[0];
}

uint32_t cuda_gate_length(const CudaChainPart *part, uint32_t n)
{
    if (n == 2 && gate_is_unit(part)) return 2;
    return n == 3 && gate_is_grad(part) ? 3 : 0;
}

bool cuda_gate_run(const CudaChainPart *part, uint32_t n, const CudaContext *cuda, CudaError *error)
{
    const KernelArgs *first = part[0].args, *second = part[1].args;
    GateArgs p;
    memset(&p, 0, sizeof p);
    p.n = first->elements[0];
    for (uint32_t i = 0; i < n; i++) {
        p.out[i] = array_of(part[i].args, part[i].args->n_in, 0);
        p.writes[i] = (part[i].unread & 1) == 0;
    }
    const int64_t each = GATE_THREADS * EIGHT * (n == 2 ? GATE_AHEAD : GATE_GRAD_AHEAD);
    const int64_t blocks = blocks_for(p.n, each, (int64_t)cuda->n_sms * GATE_BLOCKS_PER_SM);
    p.in[0] = array_of(first, 0, 0), p.in[1] = array_of(n == 2 ? second : first, 1, 0);
    if (n == 2) return LAUNCH(gate_unit, blocks, GATE_THREADS, 0, p, cuda, error);
    p.in[2] = array_of(second, 1, 0), p.in[3] = array_of(part[2].args, 1, 0);
    return LAUNCH(gate_unit_grad, blocks, GATE_THREADS, 0, p, cuda, error);
}
