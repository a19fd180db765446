/* Quantisation in blocks: neighbouring numbers share one scale (OCP microscaling formats
 * specification 1.0). attrs.scale is the largest number of the narrow dtype. The scale of a block
 * is the smallest power of two with which no magnitude of the block exceeds attrs.scale times the
 * scale. Dividing and multiplying by a power of two is exact, so only the rounding to the narrow
 * dtype loses precision. The product multiplies each operand by its scales and adds in the wide
 * dtype. */
#ifndef REAL
#define KERNEL_FILE "kernels/cpu/low/blocks.c"
#include "kernels/product.h"
/* sizes of the tile of a product: rows, columns, summed index */
enum { TILE_ROWS = 32, TILE_COLUMNS = 64, TILE_SUMMED = 64 };
#include "kernels/cpu/real.h"

BOTH(quantise_blocks_last)
BOTH(quantise_blocks_first)
BOTH(quantise_blocks_inner)
BOTH(quantise_blocks_tokens)
BOTH(contract_blocks)

#else

/* x [outer,blocks,block,inner] -> y (same shape), scales [outer,blocks,inner] */
static void F(quantise_blocks)(const KernelArgs *a, int64_t outer, int64_t blocks, int64_t inner)
{
    const REAL *x = a->ptr[0], largest = (REAL)a->attrs.scale;
    REAL *y = a->ptr[1], *scales = a->ptr[2];
    const int64_t block = a->size['B'];
    for (int64_t i = 0; i < outer * blocks * inner; i++) {
        const int64_t first = i / inner * block * inner + i % inner;
        REAL most = 0;
        for (int64_t j = 0; j < block; j++) {
            const REAL magnitude = fabs(x[first + j * inner]);
            most = magnitude <= most || isnan(most) ? most : magnitude;
        }
        const REAL scale = scales[i] = (REAL)cpu_block_scale((double)most, (double)largest);
        for (int64_t j = 0; j < block; j++) {
            const REAL part = x[first + j * inner] / scale;
            y[first + j * inner] = part > largest ? largest : part < -largest ? -largest : part;
        }
    }
}

static void F(quantise_blocks_last)(const KernelArgs *a)
{
    F(quantise_blocks)(a, a->rows, a->size['k'], 1);
}

static void F(quantise_blocks_first)(const KernelArgs *a)
{
    F(quantise_blocks)(a, 1, a->size['k'], a->rows);
}

static void F(quantise_blocks_inner)(const KernelArgs *a)
{
    F(quantise_blocks)(a, a->rows, a->size['d'], a->size['n']);
}

static void F(quantise_blocks_tokens)(const KernelArgs *a)
{
    F(quantise_blocks)(a, a->size['b'], a->size['s'], a->rows);
}

/* An operand of a product: a matrix in memory, and the scales of its blocks. */
typedef struct F(Blocks) {
    const REAL *values, *scales;
    ProductMatrix is;
    int64_t inner, run; /* in elements: between neighbours of a block; between neighbouring
                           blocks */
} F(Blocks);

static F(Blocks) F(blocks_of)(const KernelArgs *a, uint32_t arg, ProductMatrix is)
{
    F(Blocks) x = {.values = a->ptr[arg], .scales = a->ptr[2 + arg], .is = is, .inner = 1};
    const Binding *b = a->binding;
    for (uint32_t d = b->n_dims[arg]; d-- > 0 && b->letter[arg][d] != 'B';)
        x.inner *= a->size[(unsigned char)b->letter[arg][d]];
    x.run = x.inner * a->size['B'];
    return x;
}

/* Copies a part of the matrix and multiplies each number by its scale. The part has `rows` rows
 * from `row` on, and `columns` columns from `column` on. */
static void F(unscale)(const F(Blocks) * x, int64_t row, int64_t rows, int64_t column,
                       int64_t columns, REAL *to, int64_t leading)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            const int64_t slow = x->is.transposed ? column + j : row + i;
            const int64_t fast = x->is.transposed ? row + i : column + j;
            const int64_t at = slow * x->is.leading + fast;
            const REAL scale = x->scales[at / x->run * x->inner + at % x->inner];
            to[i * leading + j] = x->values[at] * scale;
        }
}

static void F(contract_blocks)(const KernelArgs *a)
{
    const Product p = product_of(a->binding, a->size);
    const F(Blocks) x = F(blocks_of)(a, p.left, p.x), y = F(blocks_of)(a, p.right, p.y);
    REAL *z = a->ptr[a->n_in];
    assert(a->n_in == 4 && p.batch == 1);
    for (int64_t row = 0; row < p.m; row += TILE_ROWS)
        for (int64_t column = 0; column < p.n; column += TILE_COLUMNS) {
            REAL left[TILE_ROWS * TILE_SUMMED], right[TILE_SUMMED * TILE_COLUMNS];
            REAL sum[TILE_ROWS * TILE_COLUMNS] = {0};
            const int64_t rows = p.m - row < TILE_ROWS ? p.m - row : TILE_ROWS;
            const int64_t columns = p.n - column < TILE_COLUMNS ? p.n - column : TILE_COLUMNS;
            for (int64_t at = 0; at < p.k; at += TILE_SUMMED) {
                const int64_t n = p.k - at < TILE_SUMMED ? p.k - at : TILE_SUMMED;
                F(unscale)(&x, row, rows, at, n, left, TILE_SUMMED);
                F(unscale)(&y, at, n, column, columns, right, TILE_COLUMNS);
                CBLAS_GEMM(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, (int)columns,
                           (int)n, 1, left, TILE_SUMMED, right, TILE_COLUMNS, 1, sum, TILE_COLUMNS);
            }
            for (int64_t i = 0; i < rows; i++)
                for (int64_t j = 0; j < columns; j++) {
                    REAL *to = &z[(row + i) * p.z.leading + column + j];
                    *to = (cpu_accumulates(a, 0) ? *to : 0) + sum[i * TILE_COLUMNS + j];
                }
        }
}

#endif
