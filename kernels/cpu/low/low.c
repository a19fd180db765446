/* Runs any kernel on low-precision arguments through the fp32 kernel: widens inputs to fp32 and
 * rounds outputs once at the end. An output that accumulates is widened, added to in fp32, and
 * rounded. (Ops that make or multiply 8-bit numbers use the fp64 kernel if another argument is
 * fp64.) Element-wise ops are computed tile by tile on the stack. All other ops need scratch memory
 * for copies of whole arguments. */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/number.h"

enum { TILE = 256, ALIGN = 64 };

/* Returns true for ops on the elements of a flat unit. Their other arguments are scalars or tables
 * of scalars. */
static bool is_flat(OpKind op)
{
    return op == OP_sumsq || op == OP_adamw || op == OP_sgd || op == OP_quantise_range;
}

/* Returns true if the dimensions of an argument are just `...`. */
static bool is_whole(const SigTerm *term)
{
    return term->n_dims == 0 && term->ellipsis >= 0;
}

/* Returns true if the argument is a single number for all elements. */
static bool is_scalar(OpKind op, uint32_t arg)
{
    const Signature *sig = &op_info(op)->sig;
    return arg < sig->n_in && sig->in[arg].n_dims == 0 && sig->in[arg].ellipsis < 0;
}

/* Returns true if output element i depends only on the elements i of the inputs, according to the
 * op's row in ops.def. Sums over such elements count as well. */
static bool is_elementwise(OpKind op)
{
    const OpInfo *info = op_info(op);
    const Signature *sig = &info->sig;
    bool fine = sig->n_out == 1 && is_whole(&sig->out[0]) &&
                !(info->flags & (OP_PLACED | OP_QUANTISES | OP_UPDATES));
    for (uint32_t i = 0; i < sig->n_in; i++)
        fine = fine && (is_whole(&sig->in[i]) || is_scalar(op, i));
    return fine || is_flat(op);
}

static bool converts_itself(OpKind op)
{
    return op_info(op)->class_ == OP_CLASS_reshape || op_info(op)->flags & OP_TURNS ||
           op == OP_cast || op == OP_fill || op_takes_tokens(op) || op_has_pairs(op);
}

static bool is_scaled(OpKind op)
{
    const OpInfo *info = op_info(op);
    return info->flags & OP_QUANTISES || op == OP_quantise_range || info->scaling != SCALING_none;
}

bool cpu_in_double(OpKind op, const DType *dtype, uint32_t n_args)
{
    bool has_double = false;
    for (uint32_t i = 0; i < n_args; i++) has_double = has_double || dtype[i] == DT_f64;
    return has_double && is_scaled(op);
}

uint64_t cpu_scratch_bytes(OpKind op, const DType *dtype, const int64_t *elements, uint32_t n_args)
{
    uint64_t end = 0;
    if (is_elementwise(op) || converts_itself(op)) return 0;
    uint64_t size = cpu_in_double(op, dtype, n_args) ? sizeof(double) : sizeof(float);
    for (uint32_t i = 0; i < n_args; i++)
        if (number_is_low(dtype[i]))
            end = (end + ALIGN - 1) / ALIGN * ALIGN + (uint64_t)elements[i] * size;
    return end;
}

static void by_tiles(OpKind op, Kernel kernel, const KernelArgs *a)
{
    double tile[MAX_ARGS][TILE];
    DType real = cpu_in_double(op, a->dtype, a->n_args) ? DT_f64 : DT_f32;
    KernelArgs t = *a;
    bool flat = is_flat(op);
    int64_t n = flat ? a->size['x'] : a->rows, from = 0;
    do { /* run at least once: the sum of no elements must be written as zero */
        int64_t count = n - from < TILE ? n - from : TILE;
        for (uint32_t i = 0; i < a->n_args; i++) {
            if ((a->dtype[i] == DT_f64 && real == DT_f32) || is_scalar(op, i))
                continue; /* a scalar, or a table of scalars, needs no copy */
            t.ptr[i] = (char *)a->ptr[i] + (uint64_t)from * dtype_bytes(a->dtype[i]);
            if (!number_is_low(a->dtype[i])) continue;
            if (i < a->n_in || cpu_accumulates(a, i - a->n_in))
                number_cast(a->dtype[i], t.ptr[i], real, tile[i], count);
            t.ptr[i] = tile[i];
            t.dtype[i] = real;
        }
        t.rows = count;
        if (flat) t.size['x'] = count, t.start['x'] = a->start['x'] + from;
        if (op == OP_sumsq && from > 0) t.attrs.accumulate = 1;
        kernel(&t);
        for (uint32_t i = a->n_in; i < a->n_args; i++)
            if (number_is_low(a->dtype[i]))
                number_cast(real, tile[i], a->dtype[i],
                            (char *)a->ptr[i] + (uint64_t)from * dtype_bytes(a->dtype[i]), count);
        from += TILE;
    } while (from < n);
}

static void by_scratch(OpKind op, Kernel kernel, const KernelArgs *a)
{
    KernelArgs wide = *a;
    uint32_t n = wide.n_args = a->n_args - 1;
    uint64_t at = 0, bytes = cpu_scratch_bytes(op, a->dtype, a->elements, n);
    DType real = cpu_in_double(op, a->dtype, n) ? DT_f64 : DT_f32;
    assert(a->dtype[n] == DT_u8 && (uint64_t)a->elements[n] >= bytes);
    for (uint32_t i = 0; i < n; i++) {
        if (!number_is_low(a->dtype[i])) continue;
        at = (at + ALIGN - 1) / ALIGN * ALIGN;
        void *x = (char *)a->ptr[n] + at;
        if (i < a->n_in || cpu_accumulates(a, i - a->n_in))
            number_cast(a->dtype[i], a->ptr[i], real, x, a->elements[i]);
        wide.ptr[i] = x;
        wide.dtype[i] = real;
        at += (uint64_t)a->elements[i] * dtype_bytes(real);
    }
    assert(at == bytes);
    kernel(&wide);
    for (uint32_t i = a->n_in; i < n; i++)
        if (number_is_low(a->dtype[i]))
            number_cast(real, wide.ptr[i], a->dtype[i], a->ptr[i], a->elements[i]);
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
