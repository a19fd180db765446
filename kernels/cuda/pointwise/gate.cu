/* Gated units (SwiGLU) and their gradient, each in one launch. The general kernel for chains
 * (chain.cu) could compute the same ops. But it interprets them, which on an H200 took more than
 * twice as long as moving the data. After each op, the value is rounded to the dtype that its
 * buffer has in memory. The gradient may recompute silu(gate). Then the unit does not write it to
 * memory, and the gradient does not read it. This saves one of four tensors in the unit, and one of
 * six in the gradient. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pointwise/fused.h"
#include "kernels/cuda/pointwise/pointwise.cuh"

/* The tensors of a gated unit and of its gradient. */
typedef enum GateValue {
    GATE_gate,
    GATE_up,
    GATE_d, /* gradient of the product */
    GATE_silu,
    GATE_product,
    GATE_middle, /* gradient of silu(gate) */
    GATE_d_up,
    GATE_d_gate,
    GATE_VALUES
} GateValue;

typedef enum GateForm { GATE_unit, GATE_grad, GATE_grad_again, GATE_FORMS } GateForm;

/* GATE_AHEAD: largest number of groups of eight elements that a thread processes at a time. */
enum { GATE_THREADS = 256, GATE_AHEAD = 2, GATE_PARTS = 4, GATE_INPUTS = 2 };

typedef struct GateArgs {
    Array value[GATE_VALUES];
    bool writes[GATE_VALUES]; /* false: no instruction reads this output, so it is not written */
    int64_t n;                /* elements */
} GateArgs;

/* Returns true if the form reads the value from memory. */
DEVICE bool gate_loads(const GateForm form, const GateValue v)
{
    if (form == GATE_unit) return v == GATE_gate || v == GATE_up;
    return v <= GATE_d || (v == GATE_silu && form == GATE_grad);
}

/* Returns the array of value v. If `half` is true, all arrays are aligned arrays of bf16 numbers,
 * and their length is a multiple of eight. */
DEVICE Array gate_array(const GateArgs *a, const bool half, const GateValue v)
{
    return half ? array_as_bf16(a->value[v]) : a->value[v];
}

/* Writes eight elements if another instruction reads them, and rounds them as memory would. */
DEVICE void gate_keep(const GateArgs *a, const bool half, const GateValue v, int64_t at, int n,
                      float y[EIGHT])
{
    const Array to = gate_array(a, half, v);
    const Raw raw = round_any(KINDS_real, to.dtype, y);
    if (a->writes[v]) put_any(KINDS_real, to, at, n, &raw);
    widen_any(KINDS_real, to.dtype, &raw, y);
}

/* Computes y = op(x0, x1) and keeps it as value v. */
DEVICE void gate_op(const GateArgs *a, const bool half, const Point op, const GateValue v,
                    int64_t at, int n, const float x0[EIGHT], const float x1[EIGHT], float y[EIGHT])
{
    point_apply(op, 1, x0, x1, x1, y);
    gate_keep(a, half, v, at, n, y);
}

/* Computes the ops of a form for n <= 8 elements, in the order of the instructions. */
DEVICE void gate_eight(const GateArgs *a, const bool half, const GateForm form, int64_t at, int n,
                       const Raw raw[GATE_product])
{
    float x[GATE_VALUES][EIGHT];
    UNROLL for (int v = 0; v < GATE_product; v++)
    {
        if (gate_loads(form, (GateValue)v))
            widen_all(gate_array(a, half, (GateValue)v), &raw[v], x[v]);
    }
    if (form != GATE_unit)
        gate_op(a, half, POINT_mul, GATE_middle, at, n, x[GATE_d], x[GATE_up], x[GATE_middle]);
    if (form != GATE_grad)
        gate_op(a, half, POINT_silu, GATE_silu, at, n, x[GATE_gate], x[GATE_gate], x[GATE_silu]);
    if (form == GATE_unit) {
        gate_op(a, half, POINT_mul, GATE_product, at, n, x[GATE_silu], x[GATE_up], x[GATE_product]);
        return;
    }
    gate_op(a, half, POINT_mul, GATE_d_up, at, n, x[GATE_d], x[GATE_silu], x[GATE_d_up]);
    gate_op(a, half, POINT_silu_grad, GATE_d_gate, at, n, x[GATE_middle], x[GATE_gate],
            x[GATE_d_gate]);
}

/* Returns how many of the elements at to at + 7 exist. */
DEVICE int gate_count(const GateArgs *a, const bool half, int64_t at)
{
    if (half) return at < a->n ? EIGHT : 0;
    return eight_of(at, a->n);
}

/* Processes all elements, `ahead` groups of eight at a time. An output may lie in the memory of an
 * input, because a thread has read all inputs of an element before it writes the element. */
DEVICE void gate_all(const GateArgs *a, const bool half, const GateForm form, const int ahead)
{
    const int64_t each = GATE_THREADS * ahead, step = (int64_t)gridDim.x * each;
    for (int64_t t = blockIdx.x * each + threadIdx.x; t * EIGHT < a->n; t += step) {
        Raw raw[GATE_AHEAD][GATE_product];
        UNROLL for (int u = 0; u < ahead; u++) UNROLL for (int v = 0; v < GATE_product; v++)
        {
            const int64_t at = (t + u * GATE_THREADS) * EIGHT;
            const int n = gate_count(a, half, at);
            if (n > 0 && gate_loads(form, (GateValue)v))
                raw[u][v] = fetch(gate_array(a, half, (GateValue)v), at, half ? EIGHT : n);
        }
        UNROLL for (int u = 0; u < ahead; u++)
        {
            const int64_t at = (t + u * GATE_THREADS) * EIGHT;
            const int n = gate_count(a, half, at);
            if (n > 0) gate_eight(a, half, form, at, half ? EIGHT : n, raw[u]);
        }
    }
}

/* name, form, half, groups of eight that a thread processes at a time, blocks of a
 * multiprocessor */
#define GATE_KERNELS(X)                                                                            \
    X(gate_unit, GATE_unit, false, 2, 3)                                                           \
    X(gate_grad, GATE_grad, false, 1, 3)                                                           \
    X(gate_grad_again, GATE_grad_again, false, 1, 3)                                               \
    X(gate_unit_half, GATE_unit, true, 2, 5)                                                       \
    X(gate_grad_half, GATE_grad, true, 1, 5)                                                       \
    X(gate_grad_again_half, GATE_grad_again, true, 2, 3)

#define X(name, form, half, ahead, blocks_per_sm)                                                  \
    KERNEL(name, GateArgs, GATE_THREADS, blocks_per_sm)                                            \
    {                                                                                              \
        gate_all(&a, half, form, ahead);                                                           \
    }
GATE_KERNELS(X)
#undef X

/* ---- which chains these kernels run ---- */

/* One instruction of a form: it computes value `out` from the values `in`. */
typedef struct GatePart {
    OpKind op;
    GateValue in[GATE_INPUTS], out;
} GatePart;

static const struct {
    uint32_t n_parts;
    GatePart part[GATE_PARTS];
} forms[GATE_FORMS] = {
    {2,
     {{OP_silu, {GATE_gate, GATE_gate}, GATE_silu}, {OP_mul, {GATE_silu, GATE_up}, GATE_product}}},
    {3,
     {{OP_mul, {GATE_d, GATE_up}, GATE_middle},
      {OP_mul, {GATE_d, GATE_silu}, GATE_d_up},
      {OP_silu_grad, {GATE_middle, GATE_gate}, GATE_d_gate}}},
    {4,
     {{OP_mul, {GATE_d, GATE_up}, GATE_middle},
      {OP_silu, {GATE_gate, GATE_gate}, GATE_silu},
      {OP_mul, {GATE_d, GATE_silu}, GATE_d_up},
      {OP_silu_grad, {GATE_middle, GATE_gate}, GATE_d_gate}}},
};

/* Returns true if the part is `op` on n elements of dtypes that can be fused. */
static bool gate_part(const CudaChainPart *part, OpKind op, int64_t n)
{
    const KernelArgs *args = part->args;
    if (part->op != op || args->n_args != args->n_in + 1 || accumulates(args, 0)) return false;
    for (uint32_t i = 0; i < args->n_args; i++)
        if (!fused_takes(args->dtype[i]) || args->elements[i] != n) return false;
    return true;
}

/* Returns true if input i of part k is value `in`. If an earlier part has made the value, it must
 * be the last part that wrote this memory. Otherwise no earlier part may have written this memory,
 * and all parts must read the value from the same memory. `from` and `at` name the first input that
 * read the value. */
static bool gate_reads(const CudaChainPart *part, const GatePart *form, uint32_t k, uint32_t i,
                       const KernelArgs *from[GATE_VALUES], uint32_t at[GATE_VALUES])
{
    const KernelArgs *args = part[k].args;
    const GateValue in = form[k].in[i];
    for (uint32_t before = k; before-- > 0;) {
        const KernelArgs *made = part[before].args;
        if (made->ptr[made->n_in] == args->ptr[i])
            return form[before].out == in && made->dtype[made->n_in] == args->dtype[i];
        if (form[before].out == in) return false;
    }
    if (from[in] == NULL) from[in] = args, at[in] = i;
    return from[in]->ptr[at[in]] == args->ptr[i] && from[in]->dtype[at[in]] == args->dtype[i];
}

static bool gate_is(const CudaChainPart *part, GateForm kind)
{
    const GatePart *form = forms[kind].part;
    const int64_t n = part[0].args->elements[0];
    const KernelArgs *from[GATE_VALUES] = {NULL};
    uint32_t at[GATE_VALUES] = {0};
    for (uint32_t k = 0; k < forms[kind].n_parts; k++) {
        if (!gate_part(&part[k], form[k].op, n)) return false;
        for (uint32_t i = 0; i < part[k].args->n_in; i++)
            if (!gate_reads(part, form, k, i, from, at)) return false;
    }
    return true;
}

/* Returns the form that the n parts have; GATE_FORMS: none. */
static GateForm gate_form(const CudaChainPart *part, uint32_t n)
{
    for (int kind = 0; kind < GATE_FORMS; kind++)
        if (forms[kind].n_parts == n && gate_is(part, (GateForm)kind)) return (GateForm)kind;
    return GATE_FORMS;
}

uint32_t cuda_gate_length(const CudaChainPart *part, uint32_t n)
{
    return gate_form(part, n) == GATE_FORMS ? 0 : n;
}

bool cuda_gate_run(const CudaChainPart *part, uint32_t n, const CudaContext *cuda, CudaError *error)
{
    const GateForm kind = gate_form(part, n);
    GateArgs p;
    memset(&p, 0, sizeof p);
    p.n = part[0].args->elements[0];
    bool half = p.n % EIGHT == 0;
    for (uint32_t k = n; k-- > 0;) {
        const KernelArgs *args = part[k].args;
        const GatePart *form = &forms[kind].part[k];
        for (uint32_t i = 0; i < args->n_in; i++) p.value[form->in[i]] = array_of(args, i, 0);
        p.value[form->out] = array_of(args, args->n_in, 0);
        p.writes[form->out] = (part[k].unread & 1) == 0;
        for (uint32_t i = 0; i < args->n_args; i++)
            half = half && array_is_bf16(array_of(args, i, 0));
    }
#define X(name, form, is_half, ahead, blocks_per_sm)                                               \
    if (kind == form && half == is_half) {                                                         \
        const int64_t blocks = blocks_for(p.n, (int64_t)GATE_THREADS * EIGHT * (ahead),            \
                                          (int64_t)cuda->n_sms * (blocks_per_sm));                 \
        return LAUNCH(name, blocks, GATE_THREADS, 0, p, cuda, error);                              \
    }
    GATE_KERNELS(X)
#undef X
    return false;
}
