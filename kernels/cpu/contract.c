/* Every contraction of ops.def and its two gradients, by matrix products. The letters of the
 * signature say which indices are rows (in the first input and the output), columns (in the second
 * input and the output), summed (in both inputs only) or batch (in all three). Letters of one kind
 * lie together and in the same order wherever they appear, so each kind acts as one index, and no
 * element is ever moved: what a signature orders the other way is read as a transposed matrix.
 * Inputs of scaled forms were multiplied by largest / amax; the output is divided by both again. */
#include <assert.h>
#include <cblas.h>
#include <limits.h>

#include "kernels/cpu/cpu.h"

typedef enum IndexKind { KIND_row, KIND_column, KIND_summed, KIND_batch, KIND_COUNT } IndexKind;

/* One argument, the letters of each kind taken as one index. */
typedef struct Operand {
    int64_t size[KIND_COUNT];   /* 1 where the kind does not occur */
    int64_t stride[KIND_COUNT]; /* of its innermost letter; 0 where it does not occur */
    int depth[KIND_COUNT];      /* dimension of its innermost letter; -1 where it does not occur */
} Operand;

typedef struct Matrix {
    CBLAS_TRANSPOSE transpose;
    int leading;
} Matrix;

/* A product and its scales, which are taken back a tile of the output at a time, on the stack. */
enum { TILE_ROWS = 32, TILE_COLUMNS = 64 };
typedef struct Scaled {
    const KernelArgs *a;
    uint32_t row_scales, column_scales; /* arguments */
    const char *x, *y;
    char *z;
    Matrix mx, my, mz;
    int m, n, k;
} Scaled;

static bool has_letter(const Binding *b, uint32_t arg, char letter)
{
    for (uint32_t d = 0; d < b->n_dims[arg]; d++)
        if (b->letter[arg][d] == letter) return true;
    return false;
}

static IndexKind kind_of(const Binding *b, char letter)
{
    bool in0 = has_letter(b, 0, letter), in1 = has_letter(b, 1, letter);
    if (!has_letter(b, b->n_in, letter)) return KIND_summed;
    if (in0 && in1) return KIND_batch;
    return in0 ? KIND_row : KIND_column;
}

static Operand operand_of(const KernelArgs *a, uint32_t arg)
{
    const Binding *b = a->binding;
    Operand o = {.size = {1, 1, 1, 1}, .depth = {-1, -1, -1, -1}};
    IndexKind inside = KIND_COUNT;
    int64_t stride = 1;
    for (int d = b->n_dims[arg] - 1; d >= 0; d--) {
        char letter = b->letter[arg][d];
        IndexKind kind = kind_of(b, letter);
        if (o.depth[kind] < 0) {
            o.stride[kind] = stride;
            o.depth[kind] = d;
        } else {
            assert(inside == kind); /* letters of one kind lie together */
        }
        inside = kind;
        o.size[kind] *= a->size[(unsigned char)letter];
        stride *= a->size[(unsigned char)letter];
    }
    return o;
}

/* The argument as a matrix of `outer` by `inner`, for BLAS. */
static Matrix matrix_of(const Operand *o, IndexKind outer, IndexKind inner)
{
    bool transposed = o->depth[outer] > o->depth[inner];
    IndexKind fast = transposed ? outer : inner, slow = transposed ? inner : outer;
    int64_t leading = o->depth[slow] < 0 ? o->size[fast] : o->stride[slow];
    assert(o->depth[fast] < 0 || o->stride[fast] == 1); /* batch is never innermost */
    if (leading < 1) leading = 1;
    assert(leading <= INT_MAX);
    return (Matrix){transposed ? CblasTrans : CblasNoTrans, (int)leading};
}

static void check_sizes(const Operand *x, const Operand *y, const Operand *z)
{
    assert(x->size[KIND_row] == z->size[KIND_row]);
    assert(y->size[KIND_column] == z->size[KIND_column]);
    assert(x->size[KIND_summed] == y->size[KIND_summed]);
    assert(x->size[KIND_batch] == y->size[KIND_batch]);
    assert(x->size[KIND_batch] == z->size[KIND_batch]);
    assert(x->size[KIND_row] <= INT_MAX && y->size[KIND_column] <= INT_MAX);
    assert(x->size[KIND_summed] <= INT_MAX);
}

static void gemm(const KernelArgs *a, const Matrix *mx, const char *x, const Matrix *my,
                 const char *y, int m, int n, int k, double beta, void *z, int leading)
{
    if (a->dtype[0] == DT_f64)
        cblas_dgemm(CblasRowMajor, mx->transpose, my->transpose, m, n, k, 1, (const double *)x,
                    mx->leading, (const double *)y, my->leading, beta, z, leading);
    else
        cblas_sgemm(CblasRowMajor, mx->transpose, my->transpose, m, n, k, 1, (const float *)x,
                    mx->leading, (const float *)y, my->leading, (float)beta, z, leading);
}

static double number_at(const KernelArgs *a, const void *x, int64_t i)
{
    return a->dtype[0] == DT_f64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

static double scale_of(const KernelArgs *a, uint32_t arg, int64_t i)
{
    return cpu_amax_bound(number_at(a, a->ptr[arg], a->elements[arg] == 1 ? 0 : i));
}

static void scaled_tile(const Scaled *s, int row, int column)
{
    double wide[TILE_ROWS * TILE_COLUMNS];
    const KernelArgs *a = s->a;
    int rows = s->m - row < TILE_ROWS ? s->m - row : TILE_ROWS;
    int columns = s->n - column < TILE_COLUMNS ? s->n - column : TILE_COLUMNS;
    int64_t at_x = s->mx.transpose == CblasTrans ? row : (int64_t)row * s->mx.leading;
    int64_t at_y = s->my.transpose == CblasTrans ? (int64_t)column * s->my.leading : column;
    int64_t size = (int64_t)dtype_bytes(a->dtype[0]);
    gemm(a, &s->mx, s->x + at_x * size, &s->my, s->y + at_y * size, rows, columns, s->k, 0, wide,
         TILE_COLUMNS);
    for (int i = 0; i < rows; i++) {
        double of_row = a->attrs.scale * scale_of(a, s->row_scales, row + i);
        int64_t at = (int64_t)(row + i) * s->mz.leading + column;
        for (int j = 0; j < columns; j++) {
            double x = number_at(a, wide, i * TILE_COLUMNS + j) * of_row *
                       scale_of(a, s->column_scales, column + j);
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
    for (int row = 0; row < s->m; row += TILE_ROWS)
        for (int column = 0; column < s->n; column += TILE_COLUMNS) scaled_tile(s, row, column);
}

/* z = x y, or z += x y. The output must have its rows outside; if the signature has them inside,
 * the caller swaps x and y. */
static void multiply(const KernelArgs *a, uint32_t arg_x, uint32_t arg_y, const Operand *x,
                     const Operand *y, const Operand *z, IndexKind row, IndexKind column)
{
    Matrix mx = matrix_of(x, row, KIND_summed), my = matrix_of(y, KIND_summed, column);
    Matrix mz = matrix_of(z, row, column);
    assert(mz.transpose == CblasNoTrans);
    int m = (int)z->size[row], n = (int)z->size[column], k = (int)x->size[KIND_summed];
    if (m == 0 || n == 0) return;
    int64_t size = (int64_t)dtype_bytes(a->dtype[0]);
    for (int64_t i = 0; i < z->size[KIND_batch]; i++) {
        int64_t at_x = i * x->stride[KIND_batch], at_y = i * y->stride[KIND_batch];
        int64_t at_z = i * z->stride[KIND_batch];
        Scaled s = {.a = a,
                    .row_scales = 2 + arg_x,
                    .column_scales = 2 + arg_y,
                    .x = (const char *)a->ptr[arg_x] + at_x * size,
                    .y = (const char *)a->ptr[arg_y] + at_y * size,
                    .z = (char *)a->ptr[a->n_in] + at_z * size,
                    .mx = mx,
                    .my = my,
                    .mz = mz,
                    .m = m,
                    .n = n,
                    .k = k};
        if (a->n_in == 2)
            gemm(a, &mx, s.x, &my, s.y, m, n, k, cpu_accumulates(a, 0) ? 1 : 0, s.z, mz.leading);
        if (a->n_in == 4) scaled_product(&s);
    }
}

void cpu_contract(const KernelArgs *a)
{
    assert((a->n_in == 2 || a->n_in == 4) && a->binding != NULL);
    Operand x = operand_of(a, 0), y = operand_of(a, 1), z = operand_of(a, a->n_in);
    check_sizes(&x, &y, &z);
    if (z.depth[KIND_row] <= z.depth[KIND_column])
        multiply(a, 0, 1, &x, &y, &z, KIND_row, KIND_column);
    else
        multiply(a, 1, 0, &y, &x, &z, KIND_column, KIND_row);
}
