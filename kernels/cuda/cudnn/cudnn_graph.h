/* Functions that write a graph of operations with cuDNN's backend descriptors. cuDNN is loaded at
 * run time. After an error, a GraphBuilder keeps this error and ignores all further calls. */
#ifndef TANDEM_KERNELS_CUDA_CUDNN_GRAPH_H
#define TANDEM_KERNELS_CUDA_CUDNN_GRAPH_H

#include <cudnn_graph.h>

#include "kernels/cuda/cuda.h"

/* The functions of cuDNN that Tandem calls. */
#define CUDNN_CALLS(X)                                                                             \
    X(cudnnCreate)                                                                                 \
    X(cudnnDestroy)                                                                                \
    X(cudnnSetStream)                                                                              \
    X(cudnnGetLastErrorString)                                                                     \
    X(cudnnBackendCreateDescriptor)                                                                \
    X(cudnnBackendDestroyDescriptor)                                                               \
    X(cudnnBackendSetAttribute)                                                                    \
    X(cudnnBackendGetAttribute)                                                                    \
    X(cudnnBackendFinalize)                                                                        \
    X(cudnnBackendExecute)

typedef struct CudnnCalls {
    void *library;
#define X(name) __typeof__(&name) name;
    CUDNN_CALLS(X)
#undef X
} CudnnCalls;

/* Loads cuDNN 9 and looks up its functions. Returns false with *error if either fails. */
bool cudnn_load(CudnnCalls *calls, CudaError *error);

typedef cudnnBackendDescriptor_t Descriptor;
enum { GRAPH_MAX_OPS = 32, GRAPH_MAX_DESCRIPTORS = 160, GRAPH_DIMS = 4 };

typedef struct GraphBuilder {
    const CudnnCalls *calls;
    CudaError *error;
    bool failed;
    int64_t last_uid;
    Descriptor op[GRAPH_MAX_OPS];
    uint32_t n_ops;
    Descriptor made[GRAPH_MAX_DESCRIPTORS]; /* every descriptor made so far; cudnn_release destroys
                                               them */
    uint32_t n_made;
} GraphBuilder;

typedef struct GraphTensor {
    Descriptor at;
    int64_t uid;
} GraphTensor;

typedef enum TensorKind { TENSOR_memory, TENSOR_between, TENSOR_value } TensorKind;

/* Create a descriptor, set an attribute of it, and finalise it. */
Descriptor cudnn_new(GraphBuilder *g, cudnnBackendDescriptorType_t type);
void cudnn_set(GraphBuilder *g, Descriptor d, cudnnBackendAttributeName_t name,
               cudnnBackendAttributeType_t type, int64_t n, const void *values);
bool cudnn_finalize(GraphBuilder *g, Descriptor d);
/* Returns a tensor. Its kind says whether it lies in memory, exists only between two operations, or
 * is a single number that each launch passes by value. */
GraphTensor cudnn_tensor(GraphBuilder *g, cudnnDataType_t type, const int64_t dim[GRAPH_DIMS],
                         const int64_t stride[GRAPH_DIMS], TensorKind kind);
/* Adds the matrix product c = a b. */
void cudnn_matmul(GraphBuilder *g, GraphTensor a, GraphTensor b, GraphTensor c);
/* Adds a point-wise operation: y = mode(x), or y = mode(x, b). With a mask, y takes elements of x
 * where mask is not 0, and elements of b elsewhere. A tensor is absent if its `at` is NULL. */
void cudnn_pointwise(GraphBuilder *g, cudnnPointwiseMode_t mode, GraphTensor x, GraphTensor b,
                     GraphTensor mask, GraphTensor y);
/* cudnn_index adds an operation that sets each element of y to its index along `axis`. cudnn_reduce
 * adds one that reduces x to y. */
void cudnn_index(GraphBuilder *g, GraphTensor x, int64_t axis, GraphTensor y);
void cudnn_reduce(GraphBuilder *g, cudnnReduceTensorOp_t op, GraphTensor x, GraphTensor y);
/* Returns a finalised execution plan with the first engine configuration that can execute the
 * graph. Returns NULL if there is none, which is not an error. *viable gets the number of
 * configurations that the library suggests. If `device` (the properties of a device) is given
 * instead of a handle, no plan is made, and only *viable is set. */
Descriptor cudnn_plan(GraphBuilder *g, cudnnHandle_t handle, Descriptor device, uint32_t *viable);
/* Destroys all descriptors of the builder except `kept`. */
void cudnn_release(GraphBuilder *g, Descriptor kept);

#endif
