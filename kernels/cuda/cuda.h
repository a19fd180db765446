/* The kernels on CUDA devices: the functions that the backend calls, and the data that it must
 * provide. Plain C, without a CUDA header, so that tests without the toolkit can include it.
 *
 * A kernel function launches on cuda->stream and returns: it never allocates, never synchronises,
 * never reads device memory. It may be called while the stream is being captured. Values that
 * change from step to step are read on the device, from the control block, so that one capture
 * serves all steps. args->ptr are device pointers, aligned to 256 bytes where a buffer begins;
 * args->control is not used. Equal arguments give equal bits: no sum depends on the order in which
 * threads run.
 *
 * `batch` has no device kernel, because its data comes from the host. Before a step the backend
 * lets the data source fill one staging buffer (pinned host memory) for each micro-batch, by
 * kernel_cpu(OP_batch). In the step it copies this buffer to the arguments of `batch`. The function
 * cuda_batch is an error. */
#ifndef TANDEM_KERNELS_CUDA_CUDA_H
#define TANDEM_KERNELS_CUDA_CUDA_H

#include "kernels/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In device memory; written by the backend before each step. */
typedef struct CudaControl {
    int64_t step; /* from 0 */
    double lr;
    uint64_t seed; /* seed of all random draws */
} CudaControl;

/* A kernel that finds a fault writes it to the device word CudaContext.fault: its kind in the high
 * bits, the instruction's pc in the low ones. Of several faults the largest value stays; 0: none.
 */
enum { CUDA_FAULT_PC_BITS = 28 };
typedef enum CudaFault {
    CUDA_FAULT_none,
    CUDA_FAULT_id,   /* a token id outside the whole vocabulary */
    CUDA_FAULT_label /* a label outside it */
} CudaFault;

typedef struct CudaContext {
    void *stream;                  /* cudaStream_t */
    const CudaControl *control;    /* device */
    struct CudaProducts *products; /* kernels/cuda/product/products.h; only contractions use it */
    const struct CudaAttentionLibrary *attention; /* NULL: attention uses our own kernels */
    uint32_t *fault;                              /* device word */
    void *tensor_encode; /* the driver's cuTensorMapEncodeTiled, for cuda_attention_hopper */
    uint32_t pc;         /* the instruction that a fault report names */
    uint32_t n_sms;
    uint64_t l2_bytes;           /* bytes of the cache that all processors share; 0: not known */
    uint32_t compute_capability; /* 80, 90, 100 */
} CudaContext;

typedef struct CudaError {
    char text[256]; /* the call and the library's message */
} CudaError;

/* A library's attention, and its gradient. *taken tells whether it was launched; if not, our own
 * kernels must run. */
typedef struct CudaAttentionLibrary {
    void *self;
    bool (*run)(void *self, OpKind op, const KernelArgs *args, const CudaContext *cuda, bool *taken,
                CudaError *error);
} CudaAttentionLibrary;

/* Attention or its gradient by our kernels for compute capability 9.0, if they accept the call.
 * cuda_attention and cuda_attention_grad never use these kernels; attention_chooser does, after
 * timing them. */
bool cuda_attention_hopper_takes(OpKind op, const KernelArgs *args, const CudaContext *cuda);
bool cuda_attention_hopper(OpKind op, const KernelArgs *args, const CudaContext *cuda,
                           CudaError *error);
/* The gradient as one kernel, with five products for each score instead of seven. */
bool cuda_attention_one_takes(const KernelArgs *args, const CudaContext *cuda);
bool cuda_attention_one(const KernelArgs *args, const CudaContext *cuda, CudaError *error);

/* Returns false with the reason in *error; the step cannot continue. */
typedef bool (*CudaKernel)(const KernelArgs *args, const CudaContext *cuda, CudaError *error);

/* kernels/cuda/table.c; NULL for collectives. */
CudaKernel kernel_cuda(OpKind op);
/* True if the kernel accepts these dtypes (inputs, outputs, then scratch if any). fp64 is only for
 * tables of scalars. Every other number may be fp32, bf16 or fp16, independently of the other
 * arguments, or 8-bit if the op quantises, multiplies, casts or moves. */
bool kernel_cuda_accepts(OpKind op, const DType *dtype, uint32_t n_args);
/* The lowering's workspace table: bytes of the extra trailing argument (u8). The type is
 * WorkspaceBytes. */
uint64_t kernel_cuda_workspace(OpKind op, const DType *dtype, const int64_t *elements,
                               uint32_t n_args);

/* Runs a sequence of instructions with one Instr.fuse as one launch. The bits equal those of
 * separate launches. Cross-entropy is the exception: it sums in one pass and so in another order.
 * If an output of one part and an input of a later one are the same memory, the value is passed on
 * directly. It is still rounded to the buffer's dtype. */
enum { CUDA_CHAIN_MAX = 16 };
typedef struct CudaChainPart {
    OpKind op;
    const KernelArgs *args;
    uint32_t unread; /* bit j: no instruction outside the run reads output j, so it need not be
                      * written */
} CudaChainPart;
/* Returns how many leading parts can be one launch: 2 or more, or 0 if the first part must be
 * launched alone. */
uint32_t kernel_cuda_chain_length(const CudaChainPart *part, uint32_t n);
/* Launches n parts; n comes from kernel_cuda_chain_length. */
bool kernel_cuda_chain(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                       CudaError *error);

/* ---- one function for each row of the table; a missing one fails to link */
typedef bool CudaKernel_function(const KernelArgs *args, const CudaContext *cuda, CudaError *error);
#define COMPUTE(name, signature, flops, reduce, backward, flags) CudaKernel_function cuda_##name;
#define RESHAPE(name, flags)                                     CudaKernel_function cuda_##name;
#include "planner/ir/ops.def"
/* Serves all forms of all contractions. */
bool cuda_contract(OpKind op, const KernelArgs *args, const CudaContext *cuda, CudaError *error);
bool cuda_contract_accepts(OpKind op, const DType *dtype, uint32_t n_args);
/* WorkspaceBytes of contractions (products.c) and of attention and its gradient (attention*.cu). */
uint64_t cuda_contract_workspace(OpKind op, const DType *dtype, const int64_t *elements,
                                 uint32_t n_args);
uint64_t cuda_attention_workspace(OpKind op, const DType *dtype, const int64_t *elements,
                                  uint32_t n_args);
uint64_t cuda_attention_part_workspace(OpKind op, const DType *dtype, const int64_t *elements,
                                       uint32_t n_args);

#ifdef __cplusplus
}
#endif

#endif
