/* The calling convention of every kernel: pointers in the order of the signature (inputs, then
 * outputs), sizes by index letter. CPU kernels in plain C define each op; others must match them.
 */
#ifndef TANDEM_KERNELS_KERNEL_H
#define TANDEM_KERNELS_KERNEL_H

#include "planner/ir/op.h"

/* Where micro-batches come from. Fills tokens and labels [n_samples, seq] of global samples
 * first_sample .. of micro-step `microbatch` of `step`. Must be a pure function of its arguments.
 */
typedef struct DataSource {
    void *self;
    void (*fill)(void *self, int64_t step, uint32_t microbatch, int64_t first_sample,
                 int64_t n_samples, int64_t seq, int32_t *tokens, int32_t *labels);
} DataSource;

/* What changes from step to step; programs are static. */
typedef struct Control {
    int64_t step; /* from 0 */
    double lr;
    const DataSource *data;
    uint64_t seed; /* of dropout */
} Control;

typedef struct KernelArgs {
    void *ptr[MAX_ARGS];
    DType dtype[MAX_ARGS];
    uint32_t n_in, n_args;
    int64_t size['z' + 1];  /* local size of each index, of the largest part (physical) */
    int64_t start['z' + 1]; /* global index of the first local element */
    /* Global index of local element size/2: where a part is two chunks of equal size (zigzag), else
     * start + size/2. Element i is start + i, from size/2 on second + (i - size/2). Only `s` may be
     * in two chunks, and never where the keys' T is it. */
    int64_t second['z' + 1];
    int64_t valid['z' + 1];     /* how many local elements are real; the rest is zero padding */
    int64_t rows;               /* product of the sizes of the `...` indices; 1 if none */
    int64_t elements[MAX_ARGS]; /* local elements of each argument */
    /* RESHAPE ops have no signature. Of the buffer that is not cut or not packed (slice and pack:
     * the input; unpack: the output), in local sizes: the product of the dimensions before
     * attrs.dim, that dimension, the product of those after it; and of one part: where it begins
     * (slice only) and how many elements of the dimension it has, padding included.
     *   slice   in [outer, middle, inner]            -> out [outer, part_size, inner]
     *   pack    in [outer, middle, inner]            -> out [parts, outer, part_size, inner]
     *   unpack  in [parts, outer, part_size, inner]  -> out [outer, middle, inner]
     * attrs.chunks = 2: part p of `parts` has chunks p and 2 parts - 1 - p of 2 parts equal ones.
     * parts * part_size may exceed middle (ceil deals): elements beyond it are zero in a part, and
     * unpack drops them. copy reads elements[0] only. */
    int64_t outer, middle, inner, part_start, part_size;
    uint32_t microbatch;
    Attrs attrs;
    /* Global sizes and the letters of each dimension: for kernels written over any signature
     * (contractions), for batch when its `s` is split, and for what depends on where an element
     * lies in the whole (dropout, smoothing). NULL for RESHAPE ops. */
    const Binding *binding;
    const Control *control;
} KernelArgs;

typedef void (*Kernel)(const KernelArgs *args);

/* Sequences of which a rank reads a part are fetched whole, onto the stack: none longer than this.
 */
enum { KERNEL_MOST_SPLIT_SEQ = 1 << 17 };

/* kernels/cpu/table.c; NULL for collectives. Computes in fp64 where the first floating-point
 * argument is fp64, else in fp32: arguments of a low-precision type (kernels/number.h) are widened,
 * outputs rounded once. All floating-point arguments are fp64, or none is, but for those of
 * kernel_cpu_accepts. */
Kernel kernel_cpu(OpKind op);
/* May the CPU kernel of `op` be called with these dtypes (inputs, outputs, then scratch if any)?
 * Ids are i32; tables of scalars (sumsq, clip_coef, the last input of adamw and sgd) are f64; the
 * loss may be f64 whatever its inputs are; cast, fill and RESHAPE ops take what they can move. */
bool kernel_cpu_accepts(OpKind op, const DType *dtype, uint32_t n_args);
/* Scratch bytes that the backend's kernel of this op needs as one extra trailing argument (u8), by
 * dtype and local elements of each of the op's own arguments, `n_args` of them. 0: none. (The
 * lowering's workspace table: one function a backend.) */
typedef uint64_t (*WorkspaceBytes)(OpKind op, const DType *dtype, const int64_t *elements,
                                   uint32_t n_args);
/* Low precision needs fp32 copies, except where an op works element by element. */
uint64_t kernel_cpu_workspace(OpKind op, const DType *dtype, const int64_t *elements,
                              uint32_t n_args);
/* Initial value of one element of a tensor, by its row-major index in the GLOBAL tensor, so that
 * every sharding starts from the same model. `kind` is an InitKind: normal(mean a, deviation b),
 * uniform [a, b). */
double kernel_init_value(uint64_t seed, uint64_t stream, uint64_t global_element, int kind,
                         double a, double b);

#endif
