/* The calling convention of every kernel: pointers in the order of the signature (inputs, then
 * outputs), sizes by index letter. The plain C kernels of the CPU define each op; all others
 * must match them. */
#ifndef TANDEM_KERNELS_KERNEL_H
#define TANDEM_KERNELS_KERNEL_H

#include "planner/ir/layout/halo.h"
#include "planner/ir/layout/stride.h"
#include "planner/ir/op.h"

/* A source of micro-batches. `fill` writes tokens and labels [n_samples, seq] of the global
 * samples from first_sample on, for micro-step `microbatch` of `step`. It must be a pure
 * function of its arguments. */
/* A part of one row of a sample's input or target field: columns [column, column + n) of a channel.
 */
typedef struct FieldLine {
    int64_t step, sample; /* sample: global, in its micro-step */
    uint32_t microbatch;
    bool is_target;
    int64_t channel, channels, row, rows, column, columns, n;
} FieldLine;

typedef struct DataSource {
    void *self;
    void (*fill)(void *self, int64_t step, uint32_t microbatch, int64_t first_sample,
                 int64_t n_samples, int64_t seq, int32_t *tokens, int32_t *labels);
    /* Fills the n values of a line of a field. It must be a pure function, too. */
    void (*line)(void *self, const FieldLine *line, double *values);
} DataSource;

/* Values that change from step to step, because programs are static. */
typedef struct Control {
    int64_t step; /* the first step is 0 */
    double lr;
    const DataSource *data;
    uint64_t seed; /* the seed of dropout */
} Control;

typedef struct KernelArgs {
    void *ptr[MAX_ARGS];
    DType dtype[MAX_ARGS];
    uint32_t n_in, n_args;
    int64_t size['z' + 1];  /* local size of each index, of the largest part (physical) */
    int64_t start['z' + 1]; /* global index of the first local element */
    /* Global index of local element size/2. A part may be two chunks of equal size (zigzag);
     * otherwise this is start + size/2. Element i is start + i, and from size/2 on second + (i -
     * size/2). Only the tokens `s` may be in two chunks, and T in ops that read a part of the
     * keys. */
    int64_t second['z' + 1];
    int64_t valid['z' + 1]; /* numbers of local elements that are real; the rest is zero padding */
    int64_t rows;           /* product of the sizes of the `...` indices; 1 if none */
    int64_t elements[MAX_ARGS]; /* local elements of each argument */
    /* RESHAPE ops have no signature. outer, middle and inner describe the buffer that is whole and
     * not packed (the input of slice and pack, the output of place and unpack), in local sizes.
     * They are the product of the dimensions before attrs.dim, that dimension, and the product of
     * the dimensions after it. part_start (slice and place) and part_size are the start and the
     * extent of one part along the dimension, padding included.
     *   slice   in [outer, middle, inner]            -> out [outer, part_size, inner]
     *   place   in [outer, part_size, inner]         -> out [outer, middle, inner], else zero
     *   pack    in [outer, middle, inner]            -> out [parts, outer, part_size, inner]
     *   unpack  in [parts, outer, part_size, inner]  -> out [outer, middle, inner]
     * attrs.chunks = 2: the dimension consists of 2 parts equal chunks, and part p of `parts` holds
     * chunks p and 2 parts - 1 - p. parts * part_size may exceed middle (ceil deals): elements
     * beyond middle are zero in a part, and unpack drops them. copy reads elements[0] only. */
    int64_t outer, middle, inner, part_start, part_size;
    /* halo_*: `middle` is the number of a rank's own rows in a buffer without a halo, `part_size`
     * the number of rows in a buffer with it. Strips are [2, outer, halo.strip, inner]. */
    Halo halo;
    Interval own_columns; /* for the sides of a convolution, whose first input also has the halo of
                             columns: the rank's own columns */
    /* stride_*: `middle` is the number of the part's rows. Messages are [ranks, outer,
     * strides.most, strides.rows, inner], one for each rank of the group. */
    Strides strides;
    uint32_t microbatch;
    Attrs attrs;
    /* Global sizes and the letters of each dimension. Needed by kernels for any signature
     * (contractions), by batch if its `s` is split, and by ops that depend on global positions
     * (dropout, smoothing). NULL for RESHAPE ops. */
    const Binding *binding;
    const Control *control;
} KernelArgs;

typedef void (*Kernel)(const KernelArgs *args);

/* The longest sequence that may be split over ranks, because the batch kernel reads whole sequences
 * onto the stack. */
enum { KERNEL_MOST_SPLIT_SEQ = 1 << 17 };

/* Returns the CPU kernel of `op`; NULL for collectives. The kernel computes in fp64 if its first
 * floating-point argument is fp64, otherwise in fp32. Low-precision arguments (kernels/number.h)
 * are widened and outputs rounded once. Either all floating-point arguments are fp64 or none of
 * them is; kernel_cpu_accepts lists the exceptions. */
Kernel kernel_cpu(OpKind op);
/* Returns why OpenBLAS cannot be loaded; NULL: it is loaded. Without it no CPU kernel may run. */
const char *kernel_cpu_blas_missing(void);
/* Returns OpenBLAS' name of the processor whose kernels compute products. */
const char *kernel_cpu_blas(void);
/* Returns true if those kernels have no AVX. */
bool kernel_cpu_blas_is_old(void);
/* True if the CPU kernel of `op` accepts these dtypes (inputs, outputs, then scratch if any). Ids
 * are i32; tables of scalars (sumsq, clip_coef, the last input of adamw and sgd) are f64. The loss
 * may be f64 for any type of inputs. cast, fill and RESHAPE ops accept every dtype that they can
 * move. */
bool kernel_cpu_accepts(OpKind op, const DType *dtype, uint32_t n_args);
/* Returns the bytes of scratch memory that a backend's kernel of this op takes as one extra last
 * argument [u8]; 0: none. It is given the dtype and local elements of each of the op's own n_args
 * arguments. Each backend has one such function, which the lowering calls. */
typedef uint64_t (*WorkspaceBytes)(OpKind op, const DType *dtype, const int64_t *elements,
                                   uint32_t n_args);
/* A WorkspaceBytes: room for fp32 copies of low-precision arguments. Element-wise ops need none. */
uint64_t kernel_cpu_workspace(OpKind op, const DType *dtype, const int64_t *elements,
                              uint32_t n_args);
/* Returns the initial value of one element of a tensor, from its row-major index in the GLOBAL
 * tensor. Every sharding therefore starts from the same model. `kind` is an InitKind: normal(mean
 * a, deviation b), uniform [a, b). */
double kernel_init_value(uint64_t seed, uint64_t stream, uint64_t global_element, int kind,
                         double a, double b);

#endif
