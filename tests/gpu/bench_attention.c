/* Times each kernel of attention and of its gradient on the device, at the sizes of the plans in
 * scripts/plans/one_gpu and of longer sequences. A line has the median of several runs in
 * milliseconds, and the rate in TFLOP/s (counting the products of visible scores: two forward, five
 * for the gradient). It also says how far the gradients of the single kernel are from those of two
 * separate kernels. Inputs are random. Calls follow each other without a pause. The device's clock
 * is higher here than in a long step, where products use more power. If gradients differ by more
 * than rounding, the program ends with code 1. Without a Hopper, it prints the reason and ends with
 * code 6. */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/product/product.h"
#include "kernels/number.h"
#include "tests/cuda/target.h"

enum { RUNS = 15, WARM = 5, N_ARGS = 10, LSE = 5, SCRATCH = 9, RUN_FAILED = 6 };
/* The largest difference that rounding explains. Both ways round P and dS to bf16, with a relative
 * error of at most 1/256. */
static const double most_apart = 0.02;

typedef struct Size {
    const char *of;
    int64_t b, s, g, r, E;
} Size;

static const Size shapes[] = {
    {"gpt2_124m", 64, 1024, 12, 1, 64}, {"llama_1b", 4, 4096, 8, 4, 64},
    {"llama_8b", 2, 8192, 8, 4, 128},   {"gpt2_1_5b", 16, 1024, 25, 1, 64},
    {"long", 1, 16384, 8, 4, 64},       {"long, heads of 128", 1, 16384, 8, 4, 128},
};

typedef enum Way { FORWARD, TWO, ONE } Way;

static void check(cudaError_t status)
{
    if (status == cudaSuccess) return;
    fprintf(stderr, "bench_attention: %s\n", cudaGetErrorString(status));
    exit(1);
}

static void launched(bool ok, const CudaError *error)
{
    if (ok) return;
    fprintf(stderr, "bench_attention: %s\n", error->text);
    exit(1);
}

/* Arguments of the gradient: dout, q, k, v, out, lse -> dq, dk, dv, and scratch memory. */
static KernelArgs gradient_args(const Size *c)
{
    static const Control control; /* there is no dropout that would draw numbers */
    const int64_t rows = c->b * c->s * c->g * c->r, keys = c->b * c->s * c->g;
    const int64_t n[N_ARGS] = {rows * c->E, rows * c->E, keys * c->E, keys * c->E, rows * c->E,
                               rows,        rows * c->E, keys * c->E, keys * c->E, 0};
    KernelArgs a = {.n_in = 6, .n_args = N_ARGS, .rows = 1, .control = &control};
    CudaError error = {""};
    a.attrs = (Attrs){.scale = 1 / sqrt((double)c->E), .causal = true};
    a.size['b'] = c->b, a.size['s'] = a.size['T'] = c->s;
    a.size['g'] = c->g, a.size['r'] = c->r, a.size['E'] = c->E;
    memcpy(a.valid, a.size, sizeof a.valid);
    memcpy(a.second, a.size, sizeof a.second);
    for (size_t i = 0; i < sizeof a.second / sizeof a.second[0]; i++) a.second[i] /= 2;
    for (uint32_t i = 0; i < N_ARGS; i++) {
        a.dtype[i] = i == LSE ? DT_f32 : i == SCRATCH ? DT_u8 : DT_bf16;
        a.elements[i] = n[i];
        if (i == SCRATCH)
            a.elements[i] =
                (int64_t)cuda_attention_workspace(OP_attention_grad, a.dtype, a.elements, SCRATCH);
        const uint64_t bytes = (uint64_t)a.elements[i] * dtype_bytes(a.dtype[i]);
        check(cudaMalloc(&a.ptr[i], bytes));
        if (i < 4)
            launched(product_fill(a.dtype[i], a.ptr[i], bytes, i, target_context(), &error),
                     &error);
    }
    return a;
}

/* The forward pass needs some of the gradient's arguments. */
static KernelArgs forward_args(const KernelArgs *gradient)
{
    KernelArgs a = *gradient;
    for (int i = 0; i < 5; i++) {
        a.ptr[i] = gradient->ptr[i + 1];
        a.dtype[i] = gradient->dtype[i + 1];
        a.elements[i] = gradient->elements[i + 1];
    }
    a.n_in = 3;
    a.n_args = 5;
    return a;
}

static void launch(Way way, const KernelArgs *gradient, const KernelArgs *forward)
{
    CudaError error = {""};
    const CudaContext *cuda = target_context();
    launched(way == FORWARD ? cuda_attention_hopper(OP_attention, forward, cuda, &error)
             : way == TWO   ? cuda_attention_hopper(OP_attention_grad, gradient, cuda, &error)
                            : cuda_attention_one(gradient, cuda, &error),
             &error);
}

static int by_size(const void *x, const void *y)
{
    const float a = *(const float *)x, b = *(const float *)y;
    return (a > b) - (a < b);
}

static double median_ms(Way way, const KernelArgs *gradient, const KernelArgs *forward)
{
    cudaStream_t stream = (cudaStream_t)target_context()->stream;
    cudaEvent_t at[RUNS + 1];
    float ms[RUNS];
    for (int i = 0; i < WARM; i++) launch(way, gradient, forward);
    for (int i = 0; i <= RUNS; i++) {
        check(cudaEventCreate(&at[i]));
        check(cudaEventRecord(at[i], stream));
        if (i < RUNS) launch(way, gradient, forward);
    }
    check(cudaStreamSynchronize(stream));
    for (int i = 0; i < RUNS; i++) check(cudaEventElapsedTime(&ms[i], at[i], at[i + 1]));
    for (int i = 0; i <= RUNS; i++) check(cudaEventDestroy(at[i]));
    qsort(ms, RUNS, sizeof ms[0], by_size);
    return (double)ms[RUNS / 2];
}

/* Copies dQ, dK and dV to the host, one after the other. */
static uint16_t *gradients(const KernelArgs *a, int64_t *n)
{
    *n = a->elements[6] + a->elements[7] + a->elements[8];
    uint16_t *to = malloc((size_t)*n * sizeof *to), *at = to;
    if (to == NULL) {
        fprintf(stderr, "bench_attention: no memory for gradients\n");
        exit(1);
    }
    for (int i = 6; i < 9; i++) {
        check(cudaMemcpy(at, a->ptr[i], (size_t)a->elements[i] * 2, cudaMemcpyDeviceToHost));
        check(cudaMemset(a->ptr[i], 0xff, (size_t)a->elements[i] * 2));
        at += a->elements[i];
    }
    /* cudaMemset does not wait for the stream of the kernels, nor the stream for it */
    check(cudaDeviceSynchronize());
    return to;
}

/* Returns the norm of the difference, divided by the norm of x. */
static double distance(const uint16_t *x, const uint16_t *y, int64_t n)
{
    double sum = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        const double a = number_read(DT_bf16, x, (uint64_t)i),
                     b = number_read(DT_bf16, y, (uint64_t)i);
        sum += (a - b) * (a - b);
        size += a * a;
    }
    return sqrt(sum / size);
}

/* Returns false if the gradients differ by more than rounding. */
static bool time_shape(const Size *c)
{
    static const char *const names[] = {"forward", "gradient, two kernels", "gradient, one kernel"};
    const double scores =
        (double)c->b * (double)(c->g * c->r) * (double)c->s * (double)(c->s + 1) / 2;
    KernelArgs gradient = gradient_args(c), forward = forward_args(&gradient);
    uint16_t *two = NULL;
    double apart = 0;
    int64_t n;
    for (Way way = FORWARD; way <= ONE; way++) {
        const double ms = median_ms(way, &gradient, &forward);
        const double flops = scores * (double)c->E * 2 * (way == FORWARD ? 2 : 5);
        printf("%-20s b%-3lld s%-6lld %lld x %lld heads of %-4lld %-24s %8.3f ms %6.0f TFLOP/s",
               c->of, (long long)c->b, (long long)c->s, (long long)c->g, (long long)c->r,
               (long long)c->E, names[way], ms, flops / ms / 1e9);
        if (way == TWO) two = gradients(&gradient, &n);
        if (way == ONE) {
            uint16_t *one = gradients(&gradient, &n);
            apart = distance(two, one, n);
            printf("  differs by %.2g", apart);
            free(one);
        }
        printf("\n");
    }
    free(two);
    for (int i = 0; i < N_ARGS; i++) check(cudaFree(gradient.ptr[i]));
    return apart <= most_apart; /* also false if it is NaN */
}

int main(void)
{
    bool alike = true;
    if (!target_is(90)) {
        fprintf(stderr, "not run: these kernels need compute capability 9.0\n");
        return RUN_FAILED;
    }
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        alike = time_shape(&shapes[i]) && alike;
    if (!alike) fprintf(stderr, "bench_attention: gradients differ by more than rounding\n");
    return alike ? 0 : 1;
}
