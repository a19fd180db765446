/* See tests/cuda/target.h. Kernels run on the first device that CUDA shows, in managed memory.
 * Without a device, the program says so, and ends with code 6 before its first test. */
#include <assert.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cudnn/cudnn_attention.h"
#include "kernels/cuda/product/products.h"
#include "tests/cuda/target.h"
#include "tests/gpu/no_gpu.h"

static struct Target {
    CudaContext context;
    CudaControl *control; /* managed */
    cudaStream_t stream;
    bool captures;
    uint32_t n_launches;
    uint32_t n_shared_most; /* the most shared memory that a block may request */
    /* the device's real compute capability, even if a test changes the one in its context */
    uint32_t capability;
    CudnnAttention *cudnn; /* NULL: cuDNN is not installed */
    CudaAttentionLibrary attention;
} the;

static void check(cudaError_t status, const char *call)
{
    if (status == cudaSuccess) return;
    fprintf(stderr, "%s: %s: %s (%s)\n", target_case_now(), call, cudaGetErrorString(status),
            cudaGetErrorName(status));
    exit(1);
}
#define CHECK(name, arguments) check(name arguments, #name)

static void find_tensor_encode(void)
{
    enum cudaDriverEntryPointQueryResult found;
    CHECK(cudaGetDriverEntryPointByVersion,
          ("cuTensorMapEncodeTiled", &the.context.tensor_encode, 12000, cudaEnableDefault, &found));
}

static void open_libraries(const struct cudaDeviceProp *p)
{
    CudaError error = {""};
    const CudaProductOptions products = {.device = p->name,
                                         .compute_capability = the.context.compute_capability,
                                         .kernel = kernel_cuda};
    the.context.products = cuda_products_open(&products, &error);
    if (the.context.products == NULL) {
        fprintf(stderr, "%s\n", error.text);
        exit(1);
    }
    the.cudnn = cudnn_attention_open(NULL, &error);
    if (the.cudnn == NULL) printf("attention by our own kernels alone: %s\n", error.text);
    the.attention = (CudaAttentionLibrary){the.cudnn, cudnn_attention_run};
}

/* Runs before main: without a device, no test may count as failed. */
__attribute__((constructor)) static void open_target(void)
{
    struct cudaDeviceProp p;
    no_gpu_ends();
    CHECK(cudaSetDevice, (0));
    CHECK(cudaGetDeviceProperties, (&p, 0));
    CHECK(cudaStreamCreateWithFlags, (&the.stream, cudaStreamNonBlocking));
    the.control = target_alloc(sizeof *the.control);
    *the.control = (CudaControl){.step = 3, .lr = 0.01, .seed = 77};
    the.n_shared_most = (uint32_t)p.sharedMemPerBlockOptin;
    the.capability = (uint32_t)(10 * p.major + p.minor);
    the.context = (CudaContext){.stream = the.stream,
                                .control = the.control,
                                .fault = target_alloc(sizeof(uint32_t)),
                                .pc = 5,
                                .n_sms = (uint32_t)p.multiProcessorCount,
                                .l2_bytes = (uint64_t)p.l2CacheSize,
                                .compute_capability = the.capability};
    *the.context.fault = 0;
    find_tensor_encode();
    open_libraries(&p);
}

void *target_alloc(uint64_t bytes)
{
    void *at = NULL;
    CHECK(cudaMallocManaged, (&at, bytes > 0 ? bytes : 1, cudaMemAttachGlobal));
    return at;
}

void target_free(void *at)
{
    CHECK(cudaFree, (at));
}

CudaContext *target_context(void)
{
    return &the.context;
}

CudaControl *target_control(void)
{
    return the.control;
}

/* Returns true if blocks of the device may use as much shared memory as blocks of a device of that
 * capability. (CUDA C++ Programming Guide, technical specifications per compute capability.) */
bool target_has(uint32_t compute_capability)
{
    uint32_t kib = compute_capability == 80 || compute_capability == 87             ? 163
                   : compute_capability >= 90 && compute_capability / 10 * 10 < 120 ? 227
                                                                                    : 99;
    return the.n_shared_most >= kib << 10;
}

bool target_is(uint32_t compute_capability)
{
    return the.capability == compute_capability;
}

void target_begin(uint64_t order)
{
    the.captures = order != 0;
    if (the.captures) CHECK(cudaStreamBeginCapture, (the.stream, cudaStreamCaptureModeThreadLocal));
}

/* Returns the number of kernels in a graph. If the kernel function had nothing to launch, the graph
 * is empty, and cudaGraphGetNodes would refuse an array. */
static uint32_t kernels_of(cudaGraph_t graph)
{
    size_t n = 0;
    uint32_t n_kernels = 0;
    CHECK(cudaGraphGetNodes, (graph, NULL, &n));
    if (n == 0) return 0;
    cudaGraphNode_t *nodes = calloc(n, sizeof *nodes);
    assert(nodes != NULL);
    CHECK(cudaGraphGetNodes, (graph, nodes, &n));
    for (size_t i = 0; i < n; i++) {
        enum cudaGraphNodeType type;
        CHECK(cudaGraphNodeGetType, (nodes[i], &type));
        n_kernels += type == cudaGraphNodeTypeKernel;
    }
    free(nodes);
    return n_kernels;
}

/* Runs the captured launches as the backend runs a step. */
static void launch_captured(bool launched)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaError_t status = cudaStreamEndCapture(the.stream, &graph);
    if (!launched) return;
    check(status, "cudaStreamEndCapture");
    the.n_launches = kernels_of(graph);
    CHECK(cudaGraphInstantiate, (&exec, graph, 0));
    CHECK(cudaGraphLaunch, (exec, the.stream));
    CHECK(cudaStreamSynchronize, (the.stream));
    CHECK(cudaGraphExecDestroy, (exec));
    CHECK(cudaGraphDestroy, (graph));
}

bool target_end(bool launched, CudaError *error)
{
    if (the.captures) launch_captured(launched);
    cudaError_t status = cudaDeviceSynchronize();
    if (launched && status == cudaSuccess) return true;
    if (launched)
        snprintf(error->text, sizeof error->text, "%s (%s)", cudaGetErrorString(status),
                 cudaGetErrorName(status));
    fprintf(stderr, "%s: %s\n", target_case_now(), error->text);
    return false;
}

uint32_t target_launches(void)
{
    return the.n_launches;
}

bool target_prepare(OpKind op, const KernelArgs *args, CudaError *error)
{
    return cuda_products_prepare(op, args, &the.context, error);
}

uint32_t target_library_calls(void)
{
    return cuda_products_counts(the.context.products).library;
}

const CudaAttentionLibrary *target_attention(OpKind op, const KernelArgs *args, bool *taken)
{
    CudaError error = {""};
    *taken = false;
    if (the.cudnn == NULL) return NULL;
    if (!cudnn_attention_prepare(the.cudnn, op, args, taken, &error)) {
        fprintf(stderr, "%s: %s\n", target_case_now(), error.text);
        exit(1);
    }
    return &the.attention;
}

void target_forbid(void *at, uint64_t bytes)
{
    (void)at, (void)bytes;
}

void target_permit(void *at, uint64_t bytes)
{
    (void)at, (void)bytes;
}
