/* Attention as a graph of cuDNN operations, in the only form that cuDNN recognises. The product of
 * the scores reads K^T where K lies, by strides. Our own kernels compute the gradient. On Hopper,
 * cuDNN adds to dQ in varying order, so equal runs would not give equal bits. The only graph of
 * cuDNN that writes dQ directly gave wrong numbers on an H200 (cuDNN 9.19). */
#include "kernels/cuda/cudnn/cudnn_attention.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if __has_include(<cudnn_graph.h>)
#include <assert.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <math.h>

#include "kernels/cuda/cudnn/cudnn_graph.h"

enum { MAX_POINTERS = MAX_ARGS + 2 };

typedef struct HeadsShape {
    DType dtype;
    int64_t B, S, T, G, R, E;
    bool causal;
    double scale;
} HeadsShape;

typedef struct AttentionGraph {
    HeadsShape shape;
    GraphBuilder builder; /* its descriptors must live as long as the plan */
    Descriptor plan;      /* cuDNN's execution plan; NULL: cuDNN does not accept this shape */
    uint32_t viable;
    int64_t uid[MAX_ARGS]; /* id of each argument in the graph; 0: the argument is not in the
                              graph */
    int64_t uid_scale, uid_hidden;
    /* constants of the graph: the factor of the scores; the score of a key that a query may not
     * see */
    float scale, hidden;
    int64_t bytes;
} AttentionGraph;

struct CudnnAttention {
    CudnnCalls calls;
    cudnnHandle_t handle;
    Descriptor device; /* description of a device, used by tests instead of a real device */
    GraphBuilder of_device;
    AttentionGraph **graphs;
    uint32_t n_graphs;
    void *scratch;
    uint64_t scratch_bytes;
};

/* ---- graphs ---- */

typedef struct GraphBuild {
    GraphBuilder *g;
    AttentionGraph *to;
    const HeadsShape *s;
    int64_t H;
    cudnnDataType_t type;
} GraphBuild;

static const GraphTensor none = {NULL, 0};

/* Returns the tensor of argument i as [B, heads, rows, E], or as [B, heads, E, rows] if `swapped`
 * is true. In memory, our tensors are [B, rows, heads, E]. */
static GraphTensor argument(GraphBuild *b, uint32_t i, int64_t heads, int64_t rows, bool swapped)
{
    int64_t E = b->s->E, row = heads * E;
    const int64_t dim[] = {b->s->B, heads, swapped ? E : rows, swapped ? rows : E};
    const int64_t stride[] = {rows * row, E, swapped ? 1 : row, swapped ? row : 1};
    GraphTensor t = cudnn_tensor(b->g, b->type, dim, stride, TENSOR_memory);
    b->to->uid[i] = t.uid;
    return t;
}

static GraphTensor row_sums(GraphBuild *b, uint32_t i)
{
    const int64_t S = b->s->S, H = b->H, dim[] = {b->s->B, H, S, 1}, stride[] = {S * H, 1, H, 1};
    GraphTensor t = cudnn_tensor(b->g, CUDNN_DATA_FLOAT, dim, stride, TENSOR_memory);
    b->to->uid[i] = t.uid;
    return t;
}

/* Returns a tensor [B, H, rows, columns] that exists only inside the graph, never in memory. If
 * `turned` is true, its layout is that of its transpose. */
static GraphTensor between(GraphBuild *b, cudnnDataType_t type, int64_t rows, int64_t columns,
                           bool turned)
{
    const int64_t dim[] = {b->s->B, b->H, rows, columns};
    const int64_t stride[] = {b->H * rows * columns, rows * columns, turned ? 1 : columns,
                              turned ? rows : 1};
    return cudnn_tensor(b->g, type, dim, stride, TENSOR_between);
}

static GraphTensor value(GraphBuild *b, int64_t *uid)
{
    const int64_t one[] = {1, 1, 1, 1};
    GraphTensor t = cudnn_tensor(b->g, CUDNN_DATA_FLOAT, one, one, TENSOR_value);
    *uid = t.uid;
    return t;
}

static GraphTensor scores(GraphBuild *b, GraphTensor q, GraphTensor kt, GraphTensor scale)
{
    const int64_t S = b->s->S, T = b->s->T;
    GraphTensor s = between(b, CUDNN_DATA_FLOAT, S, T, false);
    GraphTensor scaled = between(b, CUDNN_DATA_FLOAT, S, T, false);
    cudnn_matmul(b->g, q, kt, s);
    cudnn_pointwise(b->g, CUDNN_POINTWISE_MUL, s, scale, none, scaled);
    if (!b->s->causal) return scaled;
    GraphTensor row = between(b, CUDNN_DATA_INT32, S, T, false);
    GraphTensor column = between(b, CUDNN_DATA_INT32, S, T, false);
    GraphTensor seen = between(b, CUDNN_DATA_BOOLEAN, S, T, false);
    GraphTensor masked = between(b, CUDNN_DATA_FLOAT, S, T, false);
    cudnn_index(b->g, scaled, 2, row);
    cudnn_index(b->g, scaled, 3, column);
    cudnn_pointwise(b->g, CUDNN_POINTWISE_CMP_GE, row, column, none, seen);
    cudnn_pointwise(b->g, CUDNN_POINTWISE_BINARY_SELECT, scaled, value(b, &b->to->uid_hidden), seen,
                    masked);
    return masked;
}

/* Adds the operations that compute out and lse from q, k and v. */
static void forward(GraphBuild *b)
{
    const HeadsShape *s = b->s;
    GraphTensor q = argument(b, 0, b->H, s->S, false), kt = argument(b, 1, s->G, s->T, true);
    GraphTensor v = argument(b, 2, s->G, s->T, false), out = argument(b, 3, b->H, s->S, false);
    GraphTensor lse = row_sums(b, 4), x = scores(b, q, kt, value(b, &b->to->uid_scale));
    GraphTensor top = between(b, CUDNN_DATA_FLOAT, s->S, 1, false);
    GraphTensor below = between(b, CUDNN_DATA_FLOAT, s->S, s->T, false);
    GraphTensor e = between(b, CUDNN_DATA_FLOAT, s->S, s->T, false);
    GraphTensor sum = between(b, CUDNN_DATA_FLOAT, s->S, 1, false);
    GraphTensor log_sum = between(b, CUDNN_DATA_FLOAT, s->S, 1, false);
    GraphTensor p = between(b, b->type, s->S, s->T, false);
    cudnn_reduce(b->g, CUDNN_REDUCE_TENSOR_MAX, x, top);
    cudnn_pointwise(b->g, CUDNN_POINTWISE_SUB, x, top, none, below);
    cudnn_pointwise(b->g, CUDNN_POINTWISE_EXP, below, none, none, e);
    cudnn_reduce(b->g, CUDNN_REDUCE_TENSOR_ADD, e, sum);
    cudnn_pointwise(b->g, CUDNN_POINTWISE_LOG, sum, none, none, log_sum);
    cudnn_pointwise(b->g, CUDNN_POINTWISE_ADD, top, log_sum, none, lse);
    cudnn_pointwise(b->g, CUDNN_POINTWISE_DIV, e, sum, none, p);
    cudnn_matmul(b->g, p, v, out);
}

/* ---- shapes ---- */

/* Describes the shape of a call in *s. Returns false if no graph can express the call; our own
 * kernels then compute it. */
static bool shape_of(OpKind op, const KernelArgs *args, HeadsShape *s)
{
    memset(s, 0, sizeof *s);
    s->dtype = args->dtype[0];
    s->B = args->size['b'], s->S = args->size['s'], s->T = args->size['T'];
    s->G = args->size['g'], s->R = args->size['r'], s->E = args->size['E'];
    s->causal = args->attrs.causal != 0;
    s->scale = args->attrs.scale;
    if (op != OP_attention) return false;
    for (uint32_t i = 0; i < 5; i++)
        if (args->dtype[i] != (i == 4 ? DT_f32 : s->dtype) || (uintptr_t)args->ptr[i] % 16 != 0)
            return false;
    if (s->dtype != DT_bf16 && s->dtype != DT_f16) return false;
    /* The mask of the graph needs all queries of a sequence. Calls with a part of the queries are
     * refused. */
    if (s->causal && (args->start['s'] != args->start['T'] || s->S != s->T)) return false;
    return args->attrs.drop == 0 && args->attrs.accumulate == 0 && s->E % 8 == 0 && s->E <= 256 &&
           s->B > 0 && s->S > 1 && s->T > 1;
}

static AttentionGraph *find(const CudnnAttention *c, const HeadsShape *shape)
{
    for (uint32_t i = 0; i < c->n_graphs; i++)
        if (memcmp(&c->graphs[i]->shape, shape, sizeof *shape) == 0) return c->graphs[i];
    return NULL;
}

static bool grow_scratch(CudnnAttention *c, uint64_t bytes, CudaError *error)
{
    if (bytes <= c->scratch_bytes) return true;
    if (c->scratch) (void)cudaFree(c->scratch);
    c->scratch_bytes = 0;
    cudaError_t status = cudaMalloc(&c->scratch, bytes);
    if (status != cudaSuccess) {
        c->scratch = NULL;
        (void)snprintf(error->text, sizeof error->text, "%llu bytes for cuDNN's attention: %s",
                       (unsigned long long)bytes, cudaGetErrorString(status));
        return false;
    }
    c->scratch_bytes = bytes;
    return true;
}

static bool make_plan(CudnnAttention *c, AttentionGraph *to, CudaError *error)
{
    const HeadsShape *s = &to->shape;
    GraphBuild b = {&to->builder, to, s, s->G * s->R,
                    s->dtype == DT_bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF};
    to->builder.calls = &c->calls;
    to->builder.error = error;
    to->scale = (float)s->scale;
    to->hidden = -INFINITY;
    forward(&b);
    to->plan = cudnn_plan(&to->builder, c->handle, c->device, &to->viable);
    if (to->builder.failed) return false;
    if (to->plan == NULL) return true;
    int64_t n = 0;
    if (c->calls.cudnnBackendGetAttribute(to->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                          CUDNN_TYPE_INT64, 1, &n,
                                          &to->bytes) != CUDNN_STATUS_SUCCESS) {
        (void)snprintf(error->text, sizeof error->text, "cuDNN's plan states no workspace size");
        return false;
    }
    return grow_scratch(c, (uint64_t)to->bytes, error);
}

bool cudnn_attention_prepare(CudnnAttention *c, OpKind op, const KernelArgs *args, bool *taken,
                             CudaError *error)
{
    HeadsShape shape;
    *taken = false;
    if (!shape_of(op, args, &shape)) return true;
    AttentionGraph *graph = find(c, &shape);
    if (graph == NULL) {
        AttentionGraph **graphs = realloc(c->graphs, (c->n_graphs + 1) * sizeof *graphs);
        if (graphs) c->graphs = graphs;
        graph = graphs ? calloc(1, sizeof *graph) : NULL;
        if (graph == NULL) {
            (void)snprintf(error->text, sizeof error->text, "no memory for cuDNN's graphs");
            return false;
        }
        graph->shape = shape;
        c->graphs[c->n_graphs++] = graph;
        if (!make_plan(c, graph, error)) return false;
    }
    *taken = c->device ? graph->viable > 0 : graph->plan != NULL;
    return true;
}

/* ---- launches ---- */

bool cudnn_attention_run(void *self, OpKind op, const KernelArgs *args, const CudaContext *cuda,
                         bool *taken, CudaError *error)
{
    CudnnAttention *c = self;
    HeadsShape shape;
    *taken = false;
    AttentionGraph *graph = shape_of(op, args, &shape) ? find(c, &shape) : NULL;
    if (graph == NULL || graph->plan == NULL) return true;
    int64_t uid[MAX_POINTERS];
    void *at[MAX_POINTERS];
    int64_t n = 0;
    for (uint32_t i = 0; i < MAX_ARGS; i++)
        if (graph->uid[i]) uid[n] = graph->uid[i], at[n++] = args->ptr[i];
    uid[n] = graph->uid_scale, at[n++] = &graph->scale;
    if (graph->uid_hidden) uid[n] = graph->uid_hidden, at[n++] = &graph->hidden;
    GraphBuilder g = {.calls = &c->calls, .error = error};
    Descriptor pack = cudnn_new(&g, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    cudnn_set(&g, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, uid);
    cudnn_set(&g, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, at);
    cudnn_set(&g, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &c->scratch);
    bool ready = cudnn_finalize(&g, pack);
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    if (ready) status = c->calls.cudnnSetStream(c->handle, (cudaStream_t)cuda->stream);
    if (ready && status == CUDNN_STATUS_SUCCESS)
        status = c->calls.cudnnBackendExecute(c->handle, graph->plan, pack);
    cudnn_release(&g, NULL);
    if (ready && status != CUDNN_STATUS_SUCCESS)
        (void)snprintf(error->text, sizeof error->text, "cuDNN's attention: status %d",
                       (int)status);
    *taken = ready && status == CUDNN_STATUS_SUCCESS;
    return *taken;
}

/* ---- open and close ---- */

CudnnAttention *cudnn_attention_open(const char *device_json, CudaError *error)
{
    CudnnAttention *c = calloc(1, sizeof *c);
    if (c == NULL || !cudnn_load(&c->calls, error)) {
        free(c);
        return NULL;
    }
    c->of_device = (GraphBuilder){.calls = &c->calls, .error = error};
    if (device_json == NULL) {
        cudnnStatus_t status = c->calls.cudnnCreate(&c->handle);
        if (status == CUDNN_STATUS_SUCCESS) return c;
        (void)snprintf(error->text, sizeof error->text, "cudnnCreate: status %d", (int)status);
        cudnn_attention_close(c);
        return NULL;
    }
    c->device = cudnn_new(&c->of_device, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    cudnn_set(&c->of_device, c->device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
              (int64_t)strlen(device_json) + 1, device_json);
    if (cudnn_finalize(&c->of_device, c->device)) return c;
    cudnn_attention_close(c);
    return NULL;
}

uint64_t cudnn_attention_bytes(const CudnnAttention *c)
{
    return c->scratch_bytes;
}

void cudnn_attention_close(CudnnAttention *c)
{
    if (c == NULL) return;
    for (uint32_t i = 0; i < c->n_graphs; i++) {
        cudnn_release(&c->graphs[i]->builder, NULL);
        free(c->graphs[i]);
    }
    cudnn_release(&c->of_device, NULL);
    if (c->scratch) (void)cudaFree(c->scratch);
    if (c->handle) (void)c->calls.cudnnDestroy(c->handle);
    (void)dlclose(c->calls.library);
    free(c->graphs);
    free(c);
}

#else

CudnnAttention *cudnn_attention_open(const char *device_json, CudaError *error)
{
    (void)device_json;
    (void)snprintf(error->text, sizeof error->text, "this build has no cuDNN");
    return NULL;
}

bool cudnn_attention_prepare(CudnnAttention *c, OpKind op, const KernelArgs *args, bool *taken,
                             CudaError *error)
{
    (void)c, (void)op, (void)args, (void)error;
    *taken = false;
    return true;
}

bool cudnn_attention_run(void *c, OpKind op, const KernelArgs *args, const CudaContext *cuda,
                         bool *taken, CudaError *error)
{
    (void)c, (void)op, (void)args, (void)cuda, (void)error;
    *taken = false;
    return true;
}

uint64_t cudnn_attention_bytes(const CudnnAttention *c)
{
    (void)c;
    return 0;
}

void cudnn_attention_close(CudnnAttention *c)
{
    (void)c;
}

#endif
