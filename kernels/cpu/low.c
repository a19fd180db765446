/* Any kernel on low-precision arguments, by the fp32 kernel: inputs are widened to fp32, outputs
 * rounded once, at the end; an output that accumulates is widened, added to in fp32, and rounded.
 * Element-wise ops do so tile by tile on the stack; all others need scratch for whole arguments. */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/number.h"

enum { TILE = 256, ALIGN = 64 };

/* Over the elements of a flat unit; what else they read or write is a scalar or a table of them. */
static bool is_flat(OpKind op)
{
    return op == OP_sumsq || op == OP_adamw || op == OP_sgd || op == OP_quantise_range;
}

/* Ops of which element i of an output depends on element i of the inputs only, and sums of that. */
static bool is_elementwise(OpKind op)
{
    return op == OP_add || op == OP_mul || op == OP_silu || op == OP_silu_grad || op == OP_gelu ||
           op == OP_gelu_grad || op == OP_pass || is_flat(op);
}

static bool converts_itself(OpKind op)
{
    return op_info(op)->class_ == OP_CLASS_reshape || op == OP_cast || op == OP_fill;
}

uint64_t cpu_scratch_bytes(OpKind op, const DType *dtype, const int64_t *elements, uint32_t n_args)
{
    uint64_t end = 0;
    if (is_elementwise(op) || converts_itself(op)) return 0;
    for (uint32_t i = 0; i < n_args; i++)
        if (number_is_low(dtype[i]))
            end = (end + ALIGN - 1) / ALIGN * ALIGN + (uint64_t)elements[i] * sizeof(float);
    return end;
}

static void by_tiles(OpKind op, Kernel kernel, const KernelArgs *a)
{
    float tile[MAX_ARGS][TILE];
    KernelArgs t = *a;
    bool flat = is_flat(op);
    int64_t n = flat ? a->size['x'] : a->rows, from = 0;
    do { /* once for no elements too: a sum of none is zero */
        int64_t count = n - from < TILE ? n - from : TILE;
        for (uint32_t i = 0; i < a->n_args; i++) {
            if (a->dtype[i] == DT_f64 || (op == OP_quantise_range && i == 1))
                continue; /* a scalar, or a table of them */
            t.ptr[i] = (char *)a->ptr[i] + (uint64_t)from * dtype_bytes(a->dtype[i]);
            if (!number_is_low(a->dtype[i])) continue;
            if (i < a->n_in || cpu_accumulates(a, i - a->n_in))
                number_widen(a->dtype[i], t.ptr[i], tile[i], count);
            t.ptr[i] = tile[i];
            t.dtype[i] = DT_f32;
        }
        t.rows = count;
        if (flat) t.size['x'] = count, t.start['x'] = a->start['x'] + from;
        if (op == OP_sumsq && from > 0) t.attrs.accumulate = 1;
        kernel(&t);
        for (uint32_t i = a->n_in; i < a->n_args; i++)
            if (number_is_low(a->dtype[i]))
                number_round(a->dtype[i], tile[i],
                             (char *)a->ptr[i] + (uint64_t)from * dtype_bytes(a->dtype[i]), count);
        from += TILE;
    } while (from < n);
}

static void by_scratch(OpKind op, Kernel kernel, const KernelArgs *a)
{
    KernelArgs wide = *a;
    uint32_t n = wide.n_args = a->n_args - 1;
    uint64_t at = 0, bytes = cpu_scratch_bytes(op, a->dtype, a->elements, n);
    assert(a->dtype[n] == DT_u8 && (uint64_t)a->elements[n] >= bytes);
    for (uint32_t i = 0; i < n; i++) {
        if (!number_is_low(a->dtype[i])) continue;
        at = (at + ALIGN - 1) / ALIGN * ALIGN;
        float *x = (float *)((char *)a->ptr[n] + at);
        if (i < a->n_in || cpu_accumulates(a, i - a->n_in))
            number_widen(a->dtype[i], a->ptr[i], x, a->elements[i]);
        wide.ptr[i] = x;
        wide.dtype[i] = DT_f32;
        at += (uint64_t)a->elements[i] * sizeof *x;
    }
    assert(at == bytes);
    kernel(&wide);
    for (uint32_t i = a->n_in; i < n; i++)
        if (number_is_low(a->dtype[i]))
            number_round(a->dtype[i], wide.ptr[i], a->ptr[i], a->elements[i]);
}

void cpu_any_precision(OpKind op, Kernel kernel, const KernelArgs *a)
{
    bool has_low = false;
    for (uint32_t i = 0; i < a->n_args; i++) has_low = has_low || number_is_low(a->dtype[i]);
    if (!has_low || converts_itself(op))
        kernel(a);
    else if (is_elementwise(op))
        by_tiles(op, kernel, a);
    else
        by_scratch(op, kernel, a);
}
