/* See cudnn_graph.h. */
#include "kernels/cuda/cudnn/cudnn_graph.h"

#include <assert.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

bool cudnn_load(CudnnCalls *calls, CudaError *error)
{
    memset(calls, 0, sizeof *calls);
    calls->library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (calls->library == NULL) {
        (void)snprintf(error->text, sizeof error->text, "cuDNN 9 is not found: %s", dlerror());
        return false;
    }
#define X(name)                                                                                    \
    {                                                                                              \
        void *at = dlsym(calls->library, #name);                                                   \
        memcpy(&calls->name, &at, sizeof at);                                                      \
        if (at == NULL) {                                                                          \
            (void)snprintf(error->text, sizeof error->text, "cuDNN has no %s", #name);             \
            (void)dlclose(calls->library);                                                         \
            return false;                                                                          \
        }                                                                                          \
    }
    CUDNN_CALLS(X)
#undef X
    return true;
}

static bool fine(GraphBuilder *g, const char *call, cudnnStatus_t status)
{
    char why[160] = "";
    if (status == CUDNN_STATUS_SUCCESS) return true;
    g->calls->cudnnGetLastErrorString(why, sizeof why);
    (void)snprintf(g->error->text, sizeof g->error->text, "%s: status %d, %s", call, (int)status,
                   why);
    g->failed = true;
    return false;
}

Descriptor cudnn_new(GraphBuilder *g, cudnnBackendDescriptorType_t type)
{
    Descriptor d = NULL;
    if (g->failed) return NULL;
    assert(g->n_made < GRAPH_MAX_DESCRIPTORS);
    if (!fine(g, "cudnnBackendCreateDescriptor", g->calls->cudnnBackendCreateDescriptor(type, &d)))
        return NULL;
    return g->made[g->n_made++] = d;
}

void cudnn_set(GraphBuilder *g, Descriptor d, cudnnBackendAttributeName_t name,
               cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    if (!g->failed)
        (void)fine(g, "cudnnBackendSetAttribute",
                   g->calls->cudnnBackendSetAttribute(d, name, type, n, values));
}

static void set_descriptor(GraphBuilder *g, Descriptor d, cudnnBackendAttributeName_t name,
                           Descriptor value)
{
    cudnn_set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

bool cudnn_finalize(GraphBuilder *g, Descriptor d)
{
    return !g->failed && fine(g, "cudnnBackendFinalize", g->calls->cudnnBackendFinalize(d));
}

GraphTensor cudnn_tensor(GraphBuilder *g, cudnnDataType_t type, const int64_t dim[GRAPH_DIMS],
                         const int64_t stride[GRAPH_DIMS], TensorKind kind)
{
    GraphTensor t = {cudnn_new(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR), ++g->last_uid};
    const int64_t align = 16;
    const bool is_between = kind == TENSOR_between, is_value = kind == TENSOR_value;
    cudnn_set(g, t.at, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    cudnn_set(g, t.at, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, GRAPH_DIMS, dim);
    cudnn_set(g, t.at, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, GRAPH_DIMS, stride);
    cudnn_set(g, t.at, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &t.uid);
    cudnn_set(g, t.at, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    cudnn_set(g, t.at, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_between);
    cudnn_set(g, t.at, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &is_value);
    (void)cudnn_finalize(g, t.at);
    return t;
}

static void add_op(GraphBuilder *g, Descriptor op)
{
    assert(g->n_ops < GRAPH_MAX_OPS);
    if (cudnn_finalize(g, op)) g->op[g->n_ops++] = op;
}

static const cudnnDataType_t fp32 = CUDNN_DATA_FLOAT;

void cudnn_matmul(GraphBuilder *g, GraphTensor a, GraphTensor b, GraphTensor c)
{
    Descriptor kind = cudnn_new(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    cudnn_set(g, kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &fp32);
    (void)cudnn_finalize(g, kind);
    Descriptor op = cudnn_new(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.at);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.at);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c.at);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
    add_op(g, op);
}

static void pointwise(GraphBuilder *g, cudnnPointwiseMode_t mode, const int64_t *axis,
                      GraphTensor x, GraphTensor b, GraphTensor mask, GraphTensor y)
{
    Descriptor kind = cudnn_new(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    cudnn_set(g, kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    cudnn_set(g, kind, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &fp32);
    if (axis) cudnn_set(g, kind, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, axis);
    (void)cudnn_finalize(g, kind);
    Descriptor op = cudnn_new(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.at);
    if (b.at) set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b.at);
    if (mask.at) set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, mask.at);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y.at);
    add_op(g, op);
}

void cudnn_pointwise(GraphBuilder *g, cudnnPointwiseMode_t mode, GraphTensor x, GraphTensor b,
                     GraphTensor mask, GraphTensor y)
{
    pointwise(g, mode, NULL, x, b, mask, y);
}

void cudnn_index(GraphBuilder *g, GraphTensor x, int64_t axis, GraphTensor y)
{
    const GraphTensor none = {NULL, 0};
    pointwise(g, CUDNN_POINTWISE_GEN_INDEX, &axis, x, none, none, y);
}

void cudnn_reduce(GraphBuilder *g, cudnnReduceTensorOp_t op, GraphTensor x, GraphTensor y)
{
    Descriptor kind = cudnn_new(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    cudnn_set(g, kind, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
    cudnn_set(g, kind, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &fp32);
    (void)cudnn_finalize(g, kind);
    Descriptor node = cudnn_new(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_descriptor(g, node, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.at);
    set_descriptor(g, node, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y.at);
    set_descriptor(g, node, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
    add_op(g, node);
}

/* Finds engine configurations that the library suggests for a graph and can execute. Returns their
 * number. */
enum { MAX_CONFIGS = 8 };
static uint32_t suggest(GraphBuilder *g, Descriptor graph, Descriptor device,
                        Descriptor config[MAX_CONFIGS])
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t n = 0;
    Descriptor heuristics = cudnn_new(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_descriptor(g, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    cudnn_set(g, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (device) set_descriptor(g, heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
    if (!cudnn_finalize(g, heuristics)) return 0;
    for (int i = 0; i < MAX_CONFIGS; i++)
        config[i] = cudnn_new(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (g->failed || !fine(g, "cudnnBackendGetAttribute",
                           g->calls->cudnnBackendGetAttribute(
                               heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_CONFIGS, &n, config)))
        return 0;
    return n < MAX_CONFIGS ? (uint32_t)n : MAX_CONFIGS;
}

Descriptor cudnn_plan(GraphBuilder *g, cudnnHandle_t handle, Descriptor device, uint32_t *viable)
{
    Descriptor graph = cudnn_new(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR), config[MAX_CONFIGS];
    *viable = 0;
    if (handle)
        cudnn_set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    cudnn_set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops,
              g->op);
    if (!cudnn_finalize(g, graph)) return NULL;
    *viable = suggest(g, graph, device, config);
    for (uint32_t i = 0; i < *viable && handle; i++) {
        Descriptor plan = cudnn_new(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        cudnn_set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
        set_descriptor(g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config[i]);
        if (g->failed) return NULL;
        if (g->calls->cudnnBackendFinalize(plan) == CUDNN_STATUS_SUCCESS) return plan;
    }
    return NULL;
}

void cudnn_release(GraphBuilder *g, Descriptor kept)
{
    for (uint32_t i = g->n_made; i-- > 0;)
        if (g->made[i] != kept) (void)g->calls->cudnnBackendDestroyDescriptor(g->made[i]);
    g->n_made = 0;
}
