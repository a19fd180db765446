/* The kernels for CUDA devices: the functions that the executor's CUDA backend calls, and the data
 * that it must provide. This is plain C without a CUDA header, so that tests can include it where
 * the CUDA toolkit is missing.
 *
 * A kernel function launches kernels on cuda->stream and returns. It never allocates, never waits
 * for the device and never reads device memory. It may be called during the capture of a CUDA
 * graph. The kernels read values that change from step to step from the control block in device
 * memory, so that one captured graph serves all steps. args->ptr are device pointers; a buffer
 * begins at a multiple of 256 bytes. args->control is not used. Equal arguments give equal bits,
 * because no sum depends on the order in which threads run.
 *
 * The op `batch` has no device kernel, because its data come from the host. Before a step, the
 * backend calls kernel_cpu(OP_batch) for each micro-batch. In this call, the data source fills a
 * staging buffer in pinned host memory. During the step, the backend copies this buffer to the
 * arguments of `batch`. The function cuda_batch exists only for the table and always returns an
 * error. */
#ifndef TANDEM_KERNELS_CUDA_CUDA_H
#define TANDEM_KERNELS_CUDA_CUDA_H

#include "kernels/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The control block, which lies in device memory. The backend writes it before each step. */
typedef struct CudaControl {
    int64_t step; /* index of the step, from 0 */
    double lr;
    uint64_t seed; /* from which all random draws are derived */
} CudaControl;

/* A kernel that finds a fault stores it in the device word CudaContext.fault. The high bits have
 * the CudaFault, the low bits the index of the instruction (pc). If several faults occur, the
 * largest value stays. 0 means that there was none. */
enum { CUDA_FAULT_PC_BITS = 28 };
typedef enum CudaFault {
    CUDA_FAULT_none,
    CUDA_FAULT_id,   /* a token id outside of the whole vocabulary */
    CUDA_FAULT_label /* a label outside of the whole vocabulary */
} CudaFault;

typedef struct CudaContext {
    void *stream;                  /* cudaStream_t */
    const CudaControl *control;    /* in device memory */
    struct CudaProducts *products; /* kernels/cuda/product/products.h; only contractions use
                                      these */
    const struct CudaAttentionLibrary *attention; /* NULL: attention always uses our own kernels */
    uint32_t *fault;                              /* one word in device memory */
    void *tensor_encode; /* the driver's function cuTensorMapEncodeTiled, which
                            cuda_attention_hopper calls */
    uint32_t pc;         /* index of the instruction, which a fault report names */
    uint32_t n_sms;
    uint64_t l2_bytes;           /* bytes of the L2 cache, which all multiprocessors share; 0: not
                                    known */
    uint32_t compute_capability; /* ten times the compute capability: 80, 90, 100 */
} CudaContext;

typedef struct CudaError {
    char text[256]; /* names the call that failed and gives the library's message */
} CudaError;

/* A library that computes attention and its gradient. *taken tells whether the library launched the
 * call. If it did not, the caller must use our own kernels. */
typedef struct CudaAttentionLibrary {
    void *self;
    bool (*run)(void *self, OpKind op, const KernelArgs *args, const CudaContext *cuda, bool *taken,
                CudaError *error);
} CudaAttentionLibrary;

/* cuda_attention_hopper computes attention or its gradient by our kernels for compute capability
 * 9.0, if they accept the call. cuda_attention and cuda_attention_grad never use these kernels.
 * attention_chooser uses them where they were faster in a timing. */
bool cuda_attention_hopper_takes(OpKind op, const KernelArgs *args, const CudaContext *cuda);
bool cuda_attention_hopper(OpKind op, const KernelArgs *args, const CudaContext *cuda,
                           CudaError *error);
/* cuda_attention_one computes the gradient of attention in one kernel, which needs five matrix
 * products for each score instead of seven. */
bool cuda_attention_one_takes(const KernelArgs *args, const CudaContext *cuda);
bool cuda_attention_one(const KernelArgs *args, const CudaContext *cuda, CudaError *error);

/* Launches the kernel of one instruction. Returns false with the reason in *error; the step then
 * cannot continue. */
typedef bool (*CudaKernel)(const KernelArgs *args, const CudaContext *cuda, CudaError *error);

/* Returns the kernel of `op` (kernels/cuda/table.c); NULL for collectives. */
CudaKernel kernel_cuda(OpKind op);
/* Returns true if the kernel of `op` accepts these dtypes, given in the order inputs, outputs, then
 * scratch memory if the op has some. Only tables of scalars may be fp64. Any other number may be
 * fp32, bf16 or fp16, whatever the dtypes of the other arguments. It may be 8-bit if the op
 * quantises, multiplies, casts or moves. */
bool kernel_cuda_accepts(OpKind op, const DType *dtype, uint32_t n_args);
/* Returns the bytes of scratch memory that the kernel of `op` takes as an extra last argument (u8).
 * This is the WorkspaceBytes function that the lowering uses for CUDA. */
uint64_t kernel_cuda_workspace(OpKind op, const DType *dtype, const int64_t *elements,
                               uint32_t n_args);

/* A chain is a sequence of instructions with the same non-zero Instr.fuse, which one launch may
 * compute. Its results have the same bits as separate launches. Only cross-entropy differs in the
 * last bits: the chain sums in one pass, and so in another order. If an output of an instruction is
 * an input of a later one, the value stays in registers. It is still rounded to the dtype of the
 * buffer. */
enum { CUDA_CHAIN_MAX = 16 };
typedef struct CudaChainPart {
    OpKind op;
    const KernelArgs *args;
    uint32_t unread; /* bit j is 1: no instruction outside of the chain reads output j, so output j
                        need not be written */
} CudaChainPart;
/* Returns how many of the first parts one launch can compute: 2 or more, or 0 if the first part
 * must be launched by itself. */
uint32_t kernel_cuda_chain_length(const CudaChainPart *part, uint32_t n);
/* Launches n parts, where n was returned by kernel_cuda_chain_length. */
bool kernel_cuda_chain(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                       CudaError *error);

/* ---- Declarations of one function for each row of the table of ops. If a function is missing, the
 * program does not link. */
typedef bool CudaKernel_function(const KernelArgs *args, const CudaContext *cuda, CudaError *error);
#define COMPUTE(name, signature, flops, reduce, backward, flags) CudaKernel_function cuda_##name;
#define RESHAPE(name, flags)                                     CudaKernel_function cuda_##name;
#include "planner/ir/op/ops.def"
/* Computes every form of every contraction. It is the kernel of all contraction ops. */
bool cuda_contract(OpKind op, const KernelArgs *args, const CudaContext *cuda, CudaError *error);
/* The same as kernel_cuda_accepts, for contractions. */
bool cuda_contract_accepts(OpKind op, const DType *dtype, uint32_t n_args);
/* The WorkspaceBytes functions of contractions (products.c), of attention and of its gradient
 * (attention*.cu). */
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
