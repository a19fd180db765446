/* What the GPU can do at best, measured: bytes a second of copies within its memory (read and
 * written), and FLOPs a second of a large bf16 product by cuBLASLt. One JSON object; code 6 and the
 * reason where there is no GPU. */
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

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
    cublasLtMatrixLayout_t layout;
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
    return CHECK(cublasLtMatmul,
                 (p->handle, p->operation, &one, p->a, p->layout, p->b, p->layout, &zero, p->c,
                  p->layout, p->c, p->layout, &p->found.algo, p->space, SPACE, 0));
}

/* The shortest of several runs, in seconds; 0 on failure. */
static double shortest(Product *p, bool (*run)(Product *p))
{
    cudaEvent_t from, to;
    float best = 0;
    bool ok = CHECK(cudaEventCreate, (&from)) && CHECK(cudaEventCreate, (&to));
    for (int i = 0; ok && i < REPEATS; i++) {
        float ms = 0;
        ok = CHECK(cudaEventRecord, (from, 0)) && run(p) && CHECK(cudaEventRecord, (to, 0)) &&
             CHECK(cudaEventSynchronize, (to)) && CHECK(cudaEventElapsedTime, (&ms, from, to));
        if (i > 2 && (best <= 0 || ms < best)) best = ms; /* the first warm up */
    }
    return ok ? (double)best / 1e3 : 0;
}

static bool prepare(Product *p)
{
    cublasLtMatmulPreference_t preference;
    const uint64_t space = SPACE;
    int n = 0;
    return CHECK(cudaMalloc, (&p->a, COPY_BYTES)) && CHECK(cudaMalloc, (&p->b, COPY_BYTES)) &&
           CHECK(cudaMalloc, (&p->c, COPY_BYTES)) && CHECK(cudaMalloc, (&p->space, SPACE)) &&
           CHECK(cudaMemset, (p->a, 0x3c, COPY_BYTES)) &&
           CHECK(cudaMemset, (p->b, 0x3c, COPY_BYTES)) && CHECK(cublasLtCreate, (&p->handle)) &&
           CHECK(cublasLtMatmulDescCreate, (&p->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
           CHECK(cublasLtMatrixLayoutCreate, (&p->layout, CUDA_R_16BF, SIDE, SIDE, SIDE)) &&
           CHECK(cublasLtMatmulPreferenceCreate, (&preference)) &&
           CHECK(cublasLtMatmulPreferenceSetAttribute,
                 (preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &space, sizeof space)) &&
           CHECK(cublasLtMatmulAlgoGetHeuristic,
                 (p->handle, p->operation, p->layout, p->layout, p->layout, p->layout, preference,
                  1, &p->found, &n)) &&
           n == 1;
}

int main(void)
{
    Product p = {.handle = NULL};
    int n = 0;
    if (!CHECK(cudaGetDeviceCount, (&n)) || n == 0 || !prepare(&p)) return RUN_FAILED;
    double copy_s = shortest(&p, run_copy), product_s = shortest(&p, run_product);
    if (copy_s <= 0 || product_s <= 0) return RUN_FAILED;
    printf("{ \"bytes\": %.6g, \"flops\": %.6g }\n", 2.0 * (double)COPY_BYTES / copy_s,
           2.0 * SIDE * (double)SIDE * SIDE / product_s);
    return 0;
}
