/* The calling convention of every kernel: pointers in the order of the op's signature (inputs, then
 * outputs), and the size of each index by its letter. The CPU kernels, in plain C, define what each
 * op computes. All other kernels must give the same results. */
#ifndef TANDEM_KERNELS_KERNEL_H
#define TANDEM_KERNELS_KERNEL_H

#include "planner/ir/layout/halo.h"
#include "planner/ir/layout/stride.h"
#include "planner/ir/op/op.h"

/* Names a part of one row of a sample's field. It has columns `column` to column + n - 1 of one
 * channel of the input field or of the target field. */
typedef struct FieldLine {
    int64_t step, sample; /* sample: global index of the sample in its micro-batch */
    uint32_t microbatch;
    bool is_target;
    int64_t channel, channels, row, rows, column, columns, n;
} FieldLine;

/* A source of micro-batches. `fill` writes the tokens and labels [n_samples, seq] of global samples
 * first_sample to first_sample + n_samples - 1, for micro-batch `microbatch` of step `step`. It
 * must be a pure function of its arguments. */
typedef struct DataSource {
    void *self;
    void (*fill)(void *self, int64_t step, uint32_t microbatch, int64_t first_sample,
                 int64_t n_samples, int64_t seq, int32_t *tokens, int32_t *labels);
    /* Writes the n values of a part of a row to `values`. It must be a pure function of its
     * arguments, too. */
    void (*line)(void *self, const FieldLine *line, double *values);
} DataSource;

/* Values that change from step to step. A program is static, so its instructions cannot contain
 * them. */
typedef struct Control {
    int64_t step; /* index of the step, from 0 */
    double lr;
    const DataSource *data;
    uint64_t seed; /* seed of dropout */
} Control;

typedef struct KernelArgs {
    void *ptr[MAX_ARGS];
    DType dtype[MAX_ARGS];
    uint32_t n_in, n_args;
    int64_t size['z' + 1];  /* size of each index in this rank's buffers; all ranks have buffers for
                               the largest part */
    int64_t start['z' + 1]; /* global index of the first local element */
    /* Global index of local element size/2. A rank's part may consist of two chunks of equal size
     * (zigzag). Then element i has the global index start + i if i < size/2, otherwise second + (i
     * - size/2). For a single chunk, this is start + size/2. Only two indices may be in two chunks:
     * the tokens `s`, and the keys `T` of ops that read a part of the keys. */
    int64_t second['z' + 1];
    int64_t valid['z' + 1];     /* how many local elements are real; the others are zero padding */
    int64_t rows;               /* product of the sizes of the `...` indices; 1 if there are none */
    int64_t elements[MAX_ARGS]; /* number of local elements of each argument */
    /* RESHAPE ops have no signature. outer, middle and inner are the sizes of the buffer that holds
     * the whole (the input of slice and pack, the output of place and unpack). middle is the size
     * of dimension attrs.dim; outer and inner are the products of the sizes before and after it.
     * One part begins at part_start (slice and place) and has part_size elements of that dimension,
     * padding included.
     *    slice   in [outer, middle, inner]            -> out [outer, part_size, inner]
     *    place   in [outer, part_size, inner]         -> out [outer, middle, inner], else zero
     *    pack    in [outer, middle, inner]            -> out [parts, outer, part_size, inner]
     *    unpack  in [parts, outer, part_size, inner]  -> out [outer, middle, inner]
     * If attrs.chunks is 2, the dimension has 2 * parts chunks of equal size, and part p of `parts`
     * holds chunks p and 2 * parts - 1 - p. parts * part_size may be larger than middle: elements
     * beyond middle are zero in a part, and unpack drops them. copy uses only elements[0]. */
    int64_t outer, middle, inner, part_start, part_size;
    /* Ops halo_*: `middle` is the number of a rank's own rows, in a buffer without a halo.
     * `part_size` is the number of rows of the buffer with a halo. Strips, which are sent to
     * neighbours, are [2, outer, halo.strip, inner]. */
    Halo halo;
    Interval own_columns; /* the columns that belong to this rank, for the sides of a convolution;
                             its first input also has halo columns */
    /* Ops stride_*: `middle` is the number of rows of the part. Messages are [ranks, outer,
     * strides.most, strides.rows, inner], with one message for each rank of the group. */
    Strides strides;
    uint32_t microbatch;
    Attrs attrs;
    /* The letters of each dimension, and their global sizes. Three groups of kernels need these:
     * kernels for any signature (contractions), `batch` if its `s` is split, and ops that depend on
     * global positions (dropout, smoothing). NULL for RESHAPE ops. */
    const Binding *binding;
    const Control *control;
} KernelArgs;

typedef void (*Kernel)(const KernelArgs *args);

/* The longest sequence that may be split over ranks. The limit exists because the batch kernel
 * keeps whole sequences on the stack. */
enum { KERNEL_MOST_SPLIT_SEQ = 1 << 17 };

/* Returns the CPU kernel of `op`; NULL for collectives. A kernel computes in fp64 if its first
 * floating-point argument is fp64, and in fp32 otherwise. It widens low-precision arguments
 * (kernels/number.h) and rounds its outputs once. Either all floating-point arguments must be fp64
 * or none; kernel_cpu_accepts lists the exceptions. */
Kernel kernel_cpu(OpKind op);
/* Returns the reason why OpenBLAS cannot be loaded; NULL: it is loaded. If it cannot be loaded, no
 * CPU kernel may run. */
const char *kernel_cpu_blas_missing(void);
/* Returns OpenBLAS' name for the kind of processor whose code it uses for products. */
const char *kernel_cpu_blas(void);
/* Returns true if that code uses no AVX instructions, which makes products several times slower. */
bool kernel_cpu_blas_is_old(void);
/* Returns true if the CPU kernel of `op` accepts these dtypes, given in the order inputs, outputs,
 * then scratch memory if the op has some. Ids must be i32. Tables of scalars (of sumsq and
 * clip_coef, and the last input of adamw and sgd) must be f64. The loss may be f64 whatever the
 * dtypes of the inputs. cast, fill and RESHAPE ops accept every dtype that they can move. */
bool kernel_cpu_accepts(OpKind op, const DType *dtype, uint32_t n_args);
/* Returns how many bytes of scratch memory a backend's kernel of `op` takes, as one extra last
 * argument [u8]; 0: none. `dtype` and `elements` have the dtype and the number of local elements of
 * each of the op's own n_args arguments. Each backend has one such function, which the lowering
 * calls. */
typedef uint64_t (*WorkspaceBytes)(OpKind op, const DType *dtype, const int64_t *elements,
                                   uint32_t n_args);
/* The WorkspaceBytes function of the CPU. The scratch memory holds fp32 copies of low-precision
 * arguments. Element-wise ops need none. */
uint64_t kernel_cpu_workspace(OpKind op, const DType *dtype, const int64_t *elements,
                              uint32_t n_args);
/* Returns the initial value of one element of a tensor. The value depends only on the element's
 * row-major index in the whole (global) tensor, so every way of splitting the tensor starts from
 * the same model. `kind` is an InitKind: a normal distribution with mean a and standard deviation
 * b, or a uniform one on [a, b). */
double kernel_init_value(uint64_t seed, uint64_t stream, uint64_t global_element, int kind,
                         double a, double b);

#endif
