/* Measures the highest rates of the GPU: the bytes a second of copies within its memory (read and
 * written), and the FLOPs a second of a large cuBLASLt product, in bf16 and, if the GPU has them,
 * in 8 bits. Operands are random, because equal bytes need less power and so less time. Also
 * reports the device's memory, and how much of it a context alone uses. The output is one JSON
 * object. Without a GPU, the program prints the reason and ends with code 6. */
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 8192, REPEATS = 20, RUN_FAILED = 6 };
#define COPY_BYTES (UINT64_C(1) << 30)
#define SPACE      (UINT64_C(64) << 20)

static bool fine(int error, const char *call)
{
    if (error == 0) return true;
    fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(cudaGetLastError()));
    return false;
}
#define CHECK(name, arguments) fine((int)name arguments, #name)

typedef struct Product {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t in, out;
    cublasLtMatmulHeuristicResult_t found;
    void *a, *b, *c, *space;
} Product;

static bool run_copy(Product *p)
{
    return CHECK(cudaMemcpyAsync, (p->b, p->a, COPY_BYTES, cudaMemcpyDeviceToDevice, 0));
}

static bool run_product(Product *p)
{
    const float one = 1, zero = 0;
    return CHECK(cublasLtMatmul, (p->handle, p->operation, &one, p->a, p->in, p->b, p->in, &zero,
                                  p->c, p->out, p->c, p->out, &p->found.algo, p->space, SPACE, 0));
}

/* Returns the time of the shortest of several runs, in seconds; 0 on failure. */
static double shortest(Product *p, bool (*run)(Product *p))
{
    cudaEvent_t from, to;
    float best = 0;
    bool ok = CHECK(cudaEventCreate, (&from)) && CHECK(cudaEventCreate, (&to));
    for (int i = 0; ok && i < REPEATS; i++) {
        float ms = 0;
        ok = CHECK(cudaEventRecord, (from, 0)) && run(p) && CHECK(cudaEventRecord, (to, 0)) &&
             CHECK(cudaEventSynchronize, (to)) && CHECK(cudaEventElapsedTime, (&ms, from, to));
        if (i > 2 && (best <= 0 || ms < best)) best = ms; /* the first runs only warm up */
    }
    return ok ? (double)best / 1e3 : 0;
}

static bool prepare(Product *p)
{
    return CHECK(cudaMalloc, (&p->a, COPY_BYTES)) && CHECK(cudaMalloc, (&p->b, COPY_BYTES)) &&
           CHECK(cudaMalloc, (&p->c, COPY_BYTES)) && CHECK(cudaMalloc, (&p->space, SPACE)) &&
           CHECK(cudaMemset, (p->a, 0x3c, COPY_BYTES)) && CHECK(cublasLtCreate, (&p->handle));
}

/* Fills an operand with numbers of either sign, with magnitudes of 1/8 to 2. */
static bool fill(Product *p, cudaDataType_t type)
{
    const bool eight = type == CUDA_R_8F_E4M3;
    const uint64_t drawn = eight ? UINT64_C(0x9f9f9f9f9f9f9f9f) : UINT64_C(0x81ff81ff81ff81ff);
    const uint64_t fixed = eight ? UINT64_C(0x2020202020202020) : UINT64_C(0x3e003e003e003e00);
    const size_t bytes = (size_t)SIDE * SIDE * (eight ? 1 : 2);
    uint64_t *words = malloc(bytes), x = UINT64_C(0x9e3779b97f4a7c15);
    bool ok = words != NULL;
    for (int operand = 0; ok && operand < 2; operand++) {
        for (size_t i = 0; i < bytes / sizeof *words; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            words[i] = (x & drawn) | fixed;
        }
        void *to = operand == 0 ? p->a : p->b;
        ok = CHECK(cudaMemcpy, (to, words, bytes, cudaMemcpyHostToDevice));
    }
    free(words);
    return ok;
}

/* Returns the seconds of one product with operands of this type; 0 if the library cannot compute it
 * here. */
static double product(Product *p, cudaDataType_t type)
{
    cublasLtMatmulPreference_t preference;
    const uint64_t space = SPACE;
    /* 8-bit products need the first operand transposed */
    const cublasOperation_t transposed = CUBLAS_OP_T;
    int n = 0;
    bool ok =
        fill(p, type) &&
        CHECK(cublasLtMatmulDescCreate, (&p->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
        CHECK(cublasLtMatmulDescSetAttribute,
              (p->operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed)) &&
        CHECK(cublasLtMatrixLayoutCreate, (&p->in, type, SIDE, SIDE, SIDE)) &&
        CHECK(cublasLtMatrixLayoutCreate, (&p->out, CUDA_R_16BF, SIDE, SIDE, SIDE)) &&
        CHECK(cublasLtMatmulPreferenceCreate, (&preference)) &&
        CHECK(cublasLtMatmulPreferenceSetAttribute,
              (preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &space, sizeof space)) &&
        cublasLtMatmulAlgoGetHeuristic(p->handle, p->operation, p->in, p->in, p->out, p->out,
                                       preference, 1, &p->found, &n) == CUBLAS_STATUS_SUCCESS &&
        n == 1;
    return ok ? shortest(p, run_product) : 0;
}

int main(void)
{
    Product p = {.handle = NULL};
    int n = 0;
    size_t unused = 0, all = 0;
    if (!CHECK(cudaGetDeviceCount, (&n)) || n == 0 || !CHECK(cudaFree, (NULL)) ||
        !CHECK(cudaMemGetInfo, (&unused, &all)) || !prepare(&p))
        return RUN_FAILED;
    const double flops = 2.0 * SIDE * (double)SIDE * SIDE;
    double copy_s = shortest(&p, run_copy), bf16_s = product(&p, CUDA_R_16BF);
    if (copy_s <= 0 || bf16_s <= 0) return RUN_FAILED;
    double fp8_s = product(&p, CUDA_R_8F_E4M3);
    printf("{ \"device_bytes\": %zu, \"held_bytes\": %zu, \"bytes\": %.6g, \"flops\": %.6g", all,
           all - unused, 2.0 * (double)COPY_BYTES / copy_s, flops / bf16_s);
    if (fp8_s > 0) printf(", \"flops_fp8\": %.6g", flops / fp8_s);
    puts(" }");
    return 0;
}
