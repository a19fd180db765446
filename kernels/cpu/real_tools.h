/* Helpers for kernels in both precisions: sums in eight fixed lanes, and a small matrix product.
 * real.h includes this file once for each REAL, so it has no include guard. */

static inline REAL F(fold)(const REAL lane[LANES])
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static inline REAL F(sum)(const REAL *x, int64_t n)
{
    REAL lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += x[i + j];
    for (int j = 0; i < n; i++, j++) lane[j] += x[i];
    return F(fold)(lane);
}

static inline REAL F(dot)(const REAL *x, const REAL *y, int64_t n)
{
    REAL lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += x[i + j] * y[i + j];
    for (int j = 0; i < n; i++, j++) lane[j] += x[i] * y[i];
    return F(fold)(lane);
}

/* Returns output j, for a kernel that adds its result to it. Sets the output to zero first, unless
 * the instruction accumulates. */
static inline REAL *F(summed)(const KernelArgs *a, uint32_t j, int64_t n)
{
    REAL *out = a->ptr[a->n_in + j];
    if (!cpu_accumulates(a, j)) memset(out, 0, (size_t)n * sizeof *out);
    return out;
}

/* C [m,n] = alpha A [m,k] B [k,n] + beta C, row-major. If ta (or tb) is true, A (or B) is stored
 * transposed. */
static inline void F(gemm)(bool ta, bool tb, int64_t m, int64_t n, int64_t k, REAL alpha,
                           const REAL *A, int64_t lda, const REAL *B, int64_t ldb, REAL beta,
                           REAL *C, int64_t ldc)
{
    assert(m <= INT_MAX && n <= INT_MAX && k <= INT_MAX);
    assert(lda <= INT_MAX && ldb <= INT_MAX && ldc <= INT_MAX);
    if (m == 0 || n == 0) return;
    CBLAS_GEMM(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans,
               (int)m, (int)n, (int)k, alpha, A, (int)lda, B, (int)ldb, beta, C, (int)ldc);
}
