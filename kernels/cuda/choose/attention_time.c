/* Times the candidate kernels of a call of attention on separate memory with random numbers, and
 * compares their results with those of the mma.sync kernel. */
#include <assert.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "kernels/cuda/choose/attention_private.h"
#include "kernels/cuda/product/product.h"
#include "kernels/number.h"
#include "planner/base/clock.h"

enum { RUNS = 5, BENCH_ARGS = 10, BENCH_OUT = 3 };

/* Memory and events for timing one call. Arguments have the order inputs, outputs, scratch. */
typedef struct AttentionBench {
    const CudaAttentionLibrary *library;
    const CudaContext *cuda;
    double patience_s;
    bool *hangs;
    OpKind op;
    KernelArgs args;
    uint32_t n_out;
    void *host[2][BENCH_OUT]; /* host[0]: results of mma.sync; host[1]: results of another
                                 candidate */
    uint64_t bytes[BENCH_ARGS];
    cudaEvent_t begin, end;
} AttentionBench;

static bool fill_one(const AttentionBench *b, uint32_t i)
{
    CudaError error;
    return product_fill(b->args.dtype[i], b->args.ptr[i], b->bytes[i], i, b->cuda, &error);
}

/* Fills the inputs with random numbers. For the gradient, lse comes from a forward pass, but the
 * output of attention is random as well. Suppose it were the true output. For a query that sees few
 * keys, the gradients of queries and keys would then be differences of nearly equal numbers. For
 * one key, they would be nothing but rounding errors. So candidates could not be compared. For a
 * query that sees many keys, the gradients hardly depend on the output. */
static bool fill(const AttentionBench *b)
{
    enum { OUT = 4 };
    const uint32_t n_random = b->op == OP_attention ? b->args.n_in : OUT;
    CudaError error;
    for (uint32_t i = 0; i < n_random; i++)
        if (!fill_one(b, i)) return false;
    if (b->op == OP_attention) return true;
    KernelArgs forward = b->args;
    CudaContext own = *b->cuda;
    own.attention = NULL;
    for (uint32_t i = 0; i < 5; i++) { /* q, k, v, out and lse: the arguments of the gradient from
                                          the second one on */
        forward.ptr[i] = b->args.ptr[i + 1];
        forward.dtype[i] = b->args.dtype[i + 1];
        forward.elements[i] = b->args.elements[i + 1];
    }
    forward.n_in = 3;
    forward.n_args = 5;
    return cuda_attention(&forward, &own, &error) && fill_one(b, OUT);
}

static bool bench_open(AttentionBench *b, OpKind op, const KernelArgs *args)
{
    b->op = op;
    b->n_out = op == OP_attention ? 2 : 3;
    b->args = *args;
    b->args.attrs.accumulate = 0;
    assert(args->n_args <= BENCH_ARGS && args->n_in + b->n_out <= args->n_args);
    for (uint32_t i = 0; i < args->n_args; i++) b->args.ptr[i] = NULL;
    for (uint32_t i = 0; i < args->n_args; i++) {
        b->bytes[i] = (uint64_t)args->elements[i] * dtype_bytes(args->dtype[i]);
        if (cudaMalloc(&b->args.ptr[i], b->bytes[i]) != cudaSuccess) {
            b->args.ptr[i] = NULL;
            return false;
        }
    }
    for (uint32_t i = 0; i < b->n_out; i++)
        for (int k = 0; k < 2; k++)
            if ((b->host[k][i] = malloc(b->bytes[args->n_in + i] + 1)) == NULL) return false;
    return fill(b) && cudaEventCreate(&b->begin) == cudaSuccess &&
           cudaEventCreate(&b->end) == cudaSuccess;
}

static void bench_close(AttentionBench *b)
{
    if (*b->hangs) return;
    (void)cudaStreamSynchronize((cudaStream_t)b->cuda->stream);
    if (b->begin) (void)cudaEventDestroy(b->begin);
    if (b->end) (void)cudaEventDestroy(b->end);
    for (uint32_t i = 0; i < b->args.n_args; i++)
        if (b->args.ptr[i]) (void)cudaFree(b->args.ptr[i]);
    for (uint32_t i = 0; i < b->n_out; i++) {
        free(b->host[0][i]);
        free(b->host[1][i]);
    }
    (void)cudaGetLastError(); /* lack of memory is no error: the call is then not timed */
}

static bool fine(const char *call, cudaError_t status, CudaError *error)
{
    if (status == cudaSuccess) return true;
    (void)snprintf(error->text, sizeof error->text, "%s: %s", call, cudaGetErrorString(status));
    return false;
}

/* Waits until the launched kernel ends, at most b->patience_s seconds. A kernel with barriers, or
 * one that moves registers between warps, might never end on a new kind of device. After that, the
 * process must not wait for the device any more. */
static bool wait_for(const AttentionBench *b, CudaAttentionKernel kernel, CudaError *error)
{
    const double until = clock_s() + b->patience_s;
    const struct timespec pause = {0, 20000};
    cudaError_t status;
    while ((status = cudaEventQuery(b->end)) == cudaErrorNotReady && clock_s() < until)
        nanosleep(&pause, NULL);
    *b->hangs = status == cudaErrorNotReady;
    if (!*b->hangs) return fine(attention_kernel_name(kernel), status, error);
    (void)snprintf(error->text, sizeof error->text,
                   "attention by %s, timed before the first step, did not end within %g s%s",
                   attention_kernel_name(kernel), b->patience_s,
                   kernel == CUDA_ATTENTION_hopper || kernel == CUDA_ATTENTION_one
                       ? ": --mma leaves these kernels out"
                       : "");
    return false;
}

static bool time_once(const AttentionBench *b, CudaAttentionKernel kernel, float *ms, bool *taken,
                      CudaError *error)
{
    cudaStream_t stream = (cudaStream_t)b->cuda->stream;
    return fine("cudaEventRecord", cudaEventRecord(b->begin, stream), error) &&
           attention_launch(kernel, b->op, b->library, &b->args, b->cuda, taken, error) &&
           fine("cudaEventRecord", cudaEventRecord(b->end, stream), error) &&
           wait_for(b, kernel, error) &&
           fine("cudaEventElapsedTime", cudaEventElapsedTime(ms, b->begin, b->end), error);
}

static int by_size(const void *x, const void *y)
{
    float a = *(const float *)x, b = *(const float *)y;
    return (a > b) - (a < b);
}

/* Returns the median time in milliseconds. A first run, which also loads the kernel, is not
 * counted. */
static bool median_ms(const AttentionBench *b, CudaAttentionKernel kernel, float *median,
                      bool *taken, CudaError *error)
{
    float ms[RUNS];
    if (!time_once(b, kernel, &ms[0], taken, error)) return false;
    for (int i = 0; i < RUNS && *taken; i++)
        if (!time_once(b, kernel, &ms[i], taken, error)) return false;
    qsort(ms, RUNS, sizeof ms[0], by_size);
    *median = ms[RUNS / 2];
    return true;
}

/* Copies the results of one more run to host memory. The output memory is cleared before, so that
 * old results cannot be mistaken for new ones. */
static bool results(const AttentionBench *b, CudaAttentionKernel kernel, void *const *host,
                    CudaError *error)
{
    float ms;
    bool taken;
    void *const *at = b->args.ptr + b->args.n_in;
    const uint64_t *bytes = b->bytes + b->args.n_in;
    for (uint32_t i = 0; i < b->n_out; i++)
        if (!fine("cudaMemset", cudaMemset(at[i], 0xff, bytes[i]), error)) return false;
    if (!fine("cudaDeviceSynchronize", cudaDeviceSynchronize(), error) ||
        !time_once(b, kernel, &ms, &taken, error))
        return false;
    for (uint32_t i = 0; i < b->n_out; i++)
        if (!fine("cudaMemcpy", cudaMemcpy(host[i], at[i], bytes[i], cudaMemcpyDeviceToHost),
                  error))
            return false;
    return true;
}

/* Returns the norm of (candidate - mma.sync) for output i, divided by the norm of mma.sync's
 * result. Returns NaN if one of the results contains NaN. */
static double difference(const AttentionBench *b, uint32_t i)
{
    const uint32_t at = b->args.n_in + i;
    double sum = 0, size = 0;
    for (int64_t k = 0; k < b->args.elements[at]; k++) {
        double x = number_read(b->args.dtype[at], b->host[0][i], (uint64_t)k);
        double y = number_read(b->args.dtype[at], b->host[1][i], (uint64_t)k);
        if (isinf(x) && x == y) continue;
        sum += (x - y) * (x - y);
        size += x * x;
    }
    return sum == 0 ? 0 : sqrt(sum / size);
}

/* Compares a candidate's results with those of mma.sync. A difference of some roundings is allowed,
 * because all kernels round probabilities, their gradients and results to 16 bits. */
static bool compare(const AttentionBench *b, CudaAttentionKernel kernel, AttentionTimes *times)
{
    static const char *const outputs[2][BENCH_OUT] = {
        {"output", "log of sums"},
        {"gradient of queries", "gradient of keys", "gradient of values"}};
    for (uint32_t i = 0; i < b->n_out; i++) {
        const DType t = b->args.dtype[b->args.n_in + i];
        const double by = difference(b, i);
        if (by <= (t == DT_bf16 ? 2e-2 : t == DT_f16 ? 3e-3 : 1e-3)) continue;
        times->wrong = true;
        (void)snprintf(times->about, sizeof times->about,
                       "attention by %s differs from mma.sync's by %.3g of the norm of its %s: it "
                       "is not used",
                       attention_kernel_name(kernel), by, outputs[b->op != OP_attention][i]);
        return false;
    }
    return true;
}

/* Runs and times one candidate. If its results are wrong, it is not timed. */
static bool time_kernel(const AttentionBench *b, CudaAttentionKernel kernel, AttentionTimes *times,
                        CudaError *error)
{
    float ms = 0;
    bool taken = true;
    if (kernel == CUDA_ATTENTION_library && b->library == NULL) return true;
    if (!median_ms(b, kernel, &ms, &taken, error)) return false;
    if (!taken) return true;
    if (!results(b, kernel, kernel == CUDA_ATTENTION_mma ? b->host[0] : b->host[1], error))
        return false;
    if (kernel != CUDA_ATTENTION_mma && !compare(b, kernel, times)) return true;
    int64_t ps = (int64_t)((double)ms * 1e9);
    times->ms[kernel] = (double)ms;
    if (kernel != CUDA_ATTENTION_mma && ps >= times->median_ps) return true;
    times->best = kernel;
    times->median_ps = ps;
    return true;
}

bool attention_time(OpKind op, const AttentionChooserOptions *options, const KernelArgs *args,
                    const CudaContext *cuda, AttentionTimes *times, CudaError *error)
{
    AttentionBench b = {.library = options->library,
                        .cuda = cuda,
                        .patience_s = options->patience_s,
                        .hangs = &times->hangs};
    *times = (AttentionTimes){.best = CUDA_ATTENTION_mma};
    bool done = true;
    if (bench_open(&b, op, args)) {
        for (int kernel = 0; kernel < CUDA_ATTENTION_KERNELS && done; kernel++)
            done = time_kernel(&b, (CudaAttentionKernel)kernel, times, error);
        times->timed = done;
    }
    bench_close(&b);
    return done;
}
