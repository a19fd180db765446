/* Times the cost of a launch apart from the kernel's work. Launches empty kernels in a row, and
 * between them does what the executor does: writes 4 bytes to the host (the positions that the
 * watching code reads), waits for another stream, or clears 4 bytes. A line has the time of one
 * launch, in a graph and without one, and the cost of the addition in a graph. The last line tries
 * another way to publish positions, which the executor does not use. Without a GPU, the program
 * prints the reason and ends with code 6. */
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "tests/gpu/no_gpu.h"

enum { LAUNCHES = 1000, ROUNDS = 9, WARM = 2, ELEMENTS = 256, MEMORY_OPS_VERSION = 11070 };

/* What is done after each kernel. */
typedef enum Addition {
    ADD_nothing,
    ADD_mark,       /* 4 bytes to pinned memory */
    ADD_some_marks, /* the same, but only after every 16th kernel */
    ADD_fork,       /* the next kernel runs on another stream */
    ADD_clear,      /* 4 bytes of device memory set to zero */
    ADD_write,      /* 4 bytes to pinned memory, by cuStreamWriteValue32 */
    ADDITIONS
} Addition;

static const char *const names[ADDITIONS] = {"kernels alone",
                                             "each with 4 bytes to the host",
                                             "every 16th with 4 bytes to the host",
                                             "each on another stream than the one before",
                                             "each with 4 bytes cleared",
                                             "each with cuStreamWriteValue32 to the host"};

static struct Bench {
    CudaContext context;
    cudaStream_t stream[2];
    cudaEvent_t event[LAUNCHES], begin, end;
    char *memory;
    uint32_t *pinned;
    PFN_cuStreamWriteValue32_v11070 write_value;
} the;

static void check(int status, const char *call)
{
    if (status == 0) return;
    fprintf(stderr, "bench_launches: %s: error %d\n", call, status);
    exit(1);
}
#define CHECK(name, arguments) check((int)name arguments, #name)

static void open_bench(void)
{
    enum cudaDriverEntryPointQueryResult found;
    struct cudaDeviceProp p;
    void *at = NULL;
    CHECK(cudaSetDevice, (0));
    CHECK(cudaGetDeviceProperties, (&p, 0));
    for (int i = 0; i < 2; i++)
        CHECK(cudaStreamCreateWithFlags, (&the.stream[i], cudaStreamNonBlocking));
    for (int i = 0; i < LAUNCHES; i++)
        CHECK(cudaEventCreateWithFlags, (&the.event[i], cudaEventDisableTiming));
    CHECK(cudaEventCreate, (&the.begin));
    CHECK(cudaEventCreate, (&the.end));
    CHECK(cudaMalloc, ((void **)&the.memory, ELEMENTS * sizeof(float) + sizeof(uint32_t)));
    CHECK(cudaMallocHost, ((void **)&the.pinned, sizeof *the.pinned));
    CHECK(cudaGetDriverEntryPointByVersion,
          ("cuStreamWriteValue32", &at, MEMORY_OPS_VERSION, cudaEnableDefault, &found));
    memcpy(&the.write_value, &at, sizeof at);
    the.context = (CudaContext){.n_sms = (uint32_t)p.multiProcessorCount,
                                .compute_capability = (uint32_t)(10 * p.major + p.minor)};
    printf("%s, %d launches\n", p.name, LAUNCHES);
}

static void launch_kernel(cudaStream_t stream)
{
    KernelArgs args = {.n_args = 1, .rows = ELEMENTS};
    CudaError error = {""};
    args.ptr[0] = the.memory, args.dtype[0] = DT_f32, args.elements[0] = ELEMENTS;
    args.attrs.scale = 1;
    the.context.stream = stream;
    if (kernel_cuda(OP_fill)(&args, &the.context, &error)) return;
    fprintf(stderr, "bench_launches: %s\n", error.text);
    exit(1);
}

/* Issues all launches. Everything begins and ends on stream 0. */
static void issue(Addition a)
{
    char *const word = the.memory + ELEMENTS * sizeof(float);
    for (int i = 0; i < LAUNCHES; i++) {
        const int k = a == ADD_fork ? i % 2 : 0;
        cudaStream_t stream = the.stream[k];
        launch_kernel(stream);
        if (a == ADD_mark || (a == ADD_some_marks && i % 16 == 0))
            CHECK(cudaMemcpyAsync, (the.pinned, word, 4, cudaMemcpyDeviceToHost, stream));
        if (a == ADD_clear) CHECK(cudaMemsetAsync, (word, 0, 4, stream));
        if (a == ADD_write)
            CHECK(the.write_value, (stream, (CUdeviceptr)(uintptr_t)the.pinned, (cuuint32_t)i,
                                    CU_STREAM_WRITE_VALUE_DEFAULT));
        if (a != ADD_fork) continue;
        CHECK(cudaEventRecord, (the.event[i], stream));
        CHECK(cudaStreamWaitEvent, (the.stream[1 - k], the.event[i], 0));
    }
}

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Returns the median time of a launch in us. `exec` NULL: without a graph. */
static double time_of(Addition a, cudaGraphExec_t exec)
{
    float ms[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(cudaEventRecord, (the.begin, the.stream[0]));
        if (exec != NULL)
            CHECK(cudaGraphLaunch, (exec, the.stream[0]));
        else
            issue(a);
        CHECK(cudaEventRecord, (the.end, the.stream[0]));
        CHECK(cudaEventSynchronize, (the.end));
        CHECK(cudaEventElapsedTime, (&ms[i], the.begin, the.end));
    }
    qsort(ms + WARM, ROUNDS - WARM, sizeof *ms, by_size);
    return (double)ms[WARM + (ROUNDS - WARM) / 2] * 1e3 / LAUNCHES;
}

int main(void)
{
    double alone = 0;
    no_gpu_ends();
    open_bench();
    launch_kernel(the.stream[0]); /* loads the kernel, which must not happen in a capture */
    CHECK(cudaDeviceSynchronize, ());
    for (Addition a = ADD_nothing; a < ADDITIONS; a++) {
        cudaGraph_t graph = NULL;
        cudaGraphExec_t exec = NULL;
        if (a == ADD_write && the.write_value == NULL) continue;
        CHECK(cudaStreamBeginCapture, (the.stream[0], cudaStreamCaptureModeThreadLocal));
        issue(a);
        CHECK(cudaStreamEndCapture, (the.stream[0], &graph));
        CHECK(cudaGraphInstantiate, (&exec, graph, 0));
        const double in_graph = time_of(a, exec), direct = time_of(a, NULL);
        if (a == ADD_nothing) alone = in_graph;
        printf("%-44s %7.2f us in a graph (%+.2f), %7.2f us without\n", names[a], in_graph,
               in_graph - alone, direct);
        CHECK(cudaGraphExecDestroy, (exec));
        CHECK(cudaGraphDestroy, (graph));
    }
    return 0;
}
