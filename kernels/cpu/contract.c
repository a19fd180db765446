/* Computes every contraction of ops.def and its two gradients by matrix products
 * (kernels/product.h). In a scaled contraction, each input has been multiplied by largest / amax,
 * where amax is its largest magnitude, and `largest` is the largest number of the narrow dtype. The
 * output is therefore multiplied by amax / largest of both inputs. */
#include <assert.h>
#include <limits.h>

#include "kernels/cpu/blas.h"
#include "kernels/cpu/cpu.h"
#include "kernels/product.h"

/* A product with scales. Tiles of the product lie on the stack until their scales are undone. */
enum { TILE_ROWS = 32, TILE_COLUMNS = 64 };
typedef struct Scaled {
    const KernelArgs *a;
    const Product *p;
    const char *x, *y;
    char *z;
} Scaled;

static void gemm(const KernelArgs *a, const Product *p, const char *x, const char *y, int64_t rows,
                 int64_t columns, double beta, void *z, int64_t leading)
{
    assert(rows <= INT_MAX && columns <= INT_MAX && p->k <= INT_MAX);
    assert(p->x.leading <= INT_MAX && p->y.leading <= INT_MAX && leading <= INT_MAX);
    int m = (int)rows, n = (int)columns, k = (int)p->k, to = (int)leading;
    int of_x = (int)p->x.leading, of_y = (int)p->y.leading;
    CBLAS_TRANSPOSE tx = p->x.transposed ? CblasTrans : CblasNoTrans;
    CBLAS_TRANSPOSE ty = p->y.transposed ? CblasTrans : CblasNoTrans;
    if (a->dtype[0] == DT_f64)
        cpu_blas()->dgemm(CblasRowMajor, tx, ty, m, n, k, 1, (const double *)x, of_x,
                          (const double *)y, of_y, beta, z, to);
    else
        cpu_blas()->sgemm(CblasRowMajor, tx, ty, m, n, k, 1, (const float *)x, of_x,
                          (const float *)y, of_y, (float)beta, z, to);
}

static double number_at(const KernelArgs *a, const void *x, int64_t i)
{
    return a->dtype[0] == DT_f64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

static double scale_of(const KernelArgs *a, uint32_t arg, int64_t i)
{
    return cpu_amax_bound(number_at(a, a->ptr[arg], a->elements[arg] == 1 ? 0 : i));
}

static void scaled_tile(const Scaled *s, int64_t row, int64_t column)
{
    double wide[TILE_ROWS * TILE_COLUMNS];
    const KernelArgs *a = s->a;
    const Product *p = s->p;
    int64_t rows = p->m - row < TILE_ROWS ? p->m - row : TILE_ROWS;
    int64_t columns = p->n - column < TILE_COLUMNS ? p->n - column : TILE_COLUMNS;
    int64_t at_x = p->x.transposed ? row : row * p->x.leading;
    int64_t at_y = p->y.transposed ? column * p->y.leading : column;
    int64_t size = (int64_t)dtype_bytes(a->dtype[0]);
    gemm(a, p, s->x + at_x * size, s->y + at_y * size, rows, columns, 0, wide, TILE_COLUMNS);
    for (int64_t i = 0; i < rows; i++) {
        double of_row = a->attrs.scale * scale_of(a, 2 + p->left, row + i);
        int64_t at = (row + i) * p->z.leading + column;
        for (int64_t j = 0; j < columns; j++) {
            double x = number_at(a, wide, i * TILE_COLUMNS + j) * of_row *
                       scale_of(a, 2 + p->right, column + j);
            if (cpu_accumulates(a, 0)) x += number_at(a, s->z, at + j);
            if (a->dtype[0] == DT_f64)
                ((double *)(void *)s->z)[at + j] = x;
            else
                ((float *)(void *)s->z)[at + j] = (float)x;
        }
    }
}

static void scaled_product(const Scaled *s)
{
    for (int64_t row = 0; row < s->p->m; row += TILE_ROWS)
        for (int64_t column = 0; column < s->p->n; column += TILE_COLUMNS)
            scaled_tile(s, row, column);
}

void cpu_contract(const KernelArgs *a)
{
    assert((a->n_in == 2 || a->n_in == 4 || a->n_in == 6) && a->binding != NULL);
    if (a->n_in == 6) {
        cpu_contract_pairs(a);
        return;
    }
    if (a->n_in == 4 && a->binding->size['B'] > 0) {
        cpu_contract_blocks(a);
        return;
    }
    Product p = product_of(a->binding, a->size);
    if (p.m == 0 || p.n == 0) return;
    int64_t size = (int64_t)dtype_bytes(a->dtype[0]);
    for (int64_t i = 0; i < p.batch; i++) {
        Scaled s = {.a = a,
                    .p = &p,
                    .x = (const char *)a->ptr[p.left] + i * p.x.batch_stride * size,
                    .y = (const char *)a->ptr[p.right] + i * p.y.batch_stride * size,
                    .z = (char *)a->ptr[a->n_in] + i * p.z.batch_stride * size};
        if (a->n_in == 2)
            gemm(a, &p, s.x, s.y, p.m, p.n, cpu_accumulates(a, 0) ? 1 : 0, s.z, p.z.leading);
        else
            scaled_product(&s);
    }
}
