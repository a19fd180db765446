/* cuDNN's backend descriptors, loaded at run time, for writing a graph of operations. After an
 * error a builder ignores further calls and keeps the error. */
#ifndef TANDEM_KERNELS_CUDA_CUDNN_GRAPH_H
#define TANDEM_KERNELS_CUDA_CUDNN_GRAPH_H

#include <cudnn_graph.h>

#include "kernels/cuda/cuda.h"

/* The library's functions that are called here. */
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
    Descriptor made[GRAPH_MAX_DESCRIPTORS]; /* all descriptors, to be destroyed at the end */
    uint32_t n_made;
} GraphBuilder;

typedef struct GraphTensor {
    Descriptor at;
    int64_t uid;
} GraphTensor;

typedef enum TensorKind { TENSOR_memory, TENSOR_between, TENSOR_value } TensorKind;

Descriptor cudnn_new(GraphBuilder *g, cudnnBackendDescriptorType_t type);
void cudnn_set(GraphBuilder *g, Descriptor d, cudnnBackendAttributeName_t name,
               cudnnBackendAttributeType_t type, int64_t n, const void *values);
bool cudnn_finalize(GraphBuilder *g, Descriptor d);
GraphTensor cudnn_tensor(GraphBuilder *g, cudnnDataType_t type, const int64_t dim[GRAPH_DIMS],
                         const int64_t stride[GRAPH_DIMS], TensorKind kind);
void cudnn_matmul(GraphBuilder *g, GraphTensor a, GraphTensor b, GraphTensor c);
/* y = mode(x), or mode(x, b), or x with b in place of elements where mask is 0. A tensor without
 * `at` is absent. */
void cudnn_pointwise(GraphBuilder *g, cudnnPointwiseMode_t mode, GraphTensor x, GraphTensor b,
                     GraphTensor mask, GraphTensor y);
void cudnn_index(GraphBuilder *g, GraphTensor x, int64_t axis, GraphTensor y);
void cudnn_reduce(GraphBuilder *g, cudnnReduceTensorOp_t op, GraphTensor x, GraphTensor y);
/* Returns a finalized plan: the first configuration that can execute the graph. NULL: there is
 * none, which is not an error. With `device` (properties) instead of a handle no plan is made;
 * *viable counts the configurations that the library would accept. */
Descriptor cudnn_plan(GraphBuilder *g, cudnnHandle_t handle, Descriptor device, uint32_t *viable);
/* Destroys all descriptors but `kept`. */
void cudnn_release(GraphBuilder *g, Descriptor kept);

#endif
