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
} Control;

typedef struct KernelArgs {
    void *ptr[MAX_ARGS];
    DType dtype[MAX_ARGS];
    uint32_t n_in, n_args;
    int64_t size['z' + 1];      /* local size of each index, of the largest part (physical) */
    int64_t start['z' + 1];     /* global index of the first local element */
    int64_t valid['z' + 1];     /* how many local elements are real; the rest is zero padding */
    int64_t rows;               /* product of the sizes of the `...` indices; 1 if none */
    int64_t elements[MAX_ARGS]; /* local elements of each argument */
    uint32_t microbatch;
    Attrs attrs;
    const Binding *binding; /* for kernels written over any signature (contractions) */
    const Control *control;
} KernelArgs;

typedef void (*Kernel)(const KernelArgs *args);

/* kernels/cpu/table.c; NULL for collectives. fp32 and fp64 (args->dtype says which). */
Kernel kernel_cpu(OpKind op);
/* Scratch bytes that the CPU kernel of this op needs as one extra trailing argument; 0 for most.
 * (The lowering's workspace table: one function a backend.) */
typedef uint64_t (*WorkspaceBytes)(OpKind op, const Binding *b, const int64_t size['z' + 1],
                                   DType real);
uint64_t kernel_cpu_workspace(OpKind op, const Binding *b, const int64_t size['z' + 1], DType real);
/* Initial value of a tensor: writes `n` values of global elements index[i]... see init.c */
double kernel_init_value(uint64_t seed, uint64_t stream, uint64_t global_element, int kind,
                         double a, double b);

#endif
