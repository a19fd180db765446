/* NVFP4: 4-bit numbers with one scale for each block of neighbours and one for the whole tensor, as
 * NVIDIA published it ("Pretraining Large Language Models with NVFP4", arxiv.org/abs/2509.25149,
 * and the documentation of Transformer Engine). Let m be the largest magnitude of the tensor. The
 * factor F = attrs.scale / m maps m to the largest 4-bit number (6) times the largest scale. The
 * scale of a block is F / 6 times its largest magnitude, rounded to the dtype of scales. Each
 * number is multiplied by F, divided by the rounded scale of its block, and rounded to 4 bits.
 * These kernels compute in fp64 whatever the dtypes of the arguments, and round once. */
#include <assert.h>
#include <math.h>

#include "kernels/cpu/blas.h"
#include "kernels/cpu/cpu.h"
#include "kernels/number.h"
#include "kernels/product.h"

static const double largest = 6; /* the largest 4-bit number */

/* The shape of x: [outer, slow, rows, fast, columns]. The rows x columns numbers with equal outer,
 * slow and fast indices form a square with one scale. Two numbers of a pair are neighbours along
 * the columns, or along the rows if `down` is true. */
typedef struct Squares {
    int64_t outer, slow, rows, fast, columns;
    bool down;
} Squares;

/* Sets `at` to three indices of number (r, c) of a square: in x, among the pairs, among the
 * scales. */
static void places(const Squares *q, int64_t square, int64_t r, int64_t c, int64_t at[3])
{
    const int64_t above = square / q->fast,
                  width = q->fast * q->columns; /* above: outer and slow index together */
    const int64_t row = above * q->rows + r, across = square % q->fast * q->columns + c;
    at[0] = row * width + across;
    at[1] = q->down ? ((above * q->rows + r) / 2 * width + across) * 2 + r % 2 : at[0];
    at[2] = q->down ? above * width + across : row * q->fast + square % q->fast;
}

static double get(const KernelArgs *a, uint32_t arg, int64_t i)
{
    return number_read(a->dtype[arg], a->ptr[arg], (uint64_t)i);
}

static void set(const KernelArgs *a, uint32_t arg, int64_t i, double x)
{
    number_write(a->dtype[arg], a->ptr[arg], (uint64_t)i, x);
}

/* Computes and stores the scale of a square. Returns the scale rounded to its dtype. */
static double set_scales(const KernelArgs *a, const Squares *q, int64_t square, double factor)
{
    double most = 0;
    int64_t at[3] = {0};
    for (int64_t r = 0; r < q->rows; r++)
        for (int64_t c = 0; c < q->columns; c++) {
            places(q, square, r, c, at);
            const double magnitude = fabs(get(a, 0, at[0]));
            most = magnitude <= most || isnan(most) ? most : magnitude;
        }
    double scale = most / largest * factor;
    if (scale > a->attrs.scale / largest) scale = a->attrs.scale / largest;
    for (int64_t r = 0; r < q->rows; r++)
        for (int64_t c = 0; c < q->columns; c++) {
            places(q, square, r, c, at);
            set(a, 3, at[2], scale);
        }
    return get(a, 3, at[2]);
}

static void quantise(const KernelArgs *a, Squares q)
{
    const double factor = a->attrs.scale / cpu_amax_bound(get(a, 1, 0));
    assert((q.down ? q.rows : q.columns) % 2 == 0);
    for (int64_t square = 0; square < q.outer * q.slow * q.fast; square++) {
        const double scale = set_scales(a, &q, square, factor);
        for (int64_t r = 0; r < q.rows; r++)
            for (int64_t c = 0; c < q.columns; c++) {
                int64_t at[3];
                places(&q, square, r, c, at);
                const double x = scale == 0 ? 0 : get(a, 0, at[0]) * factor / scale;
                set(a, 2, at[1], x > largest ? largest : x < -largest ? -largest : x);
            }
    }
}

void cpu_quantise_pairs_last(const KernelArgs *a)
{
    quantise(a, (Squares){a->rows, 1, 1, a->size['k'], a->size['B'], false});
}

void cpu_quantise_pairs_first(const KernelArgs *a)
{
    quantise(a, (Squares){1, a->size['k'], a->size['B'], a->rows, 1, true});
}

void cpu_quantise_pairs_inner(const KernelArgs *a)
{
    quantise(a, (Squares){a->rows, a->size['d'], a->size['B'], a->size['n'], 1, true});
}

void cpu_quantise_pairs_tokens(const KernelArgs *a)
{
    quantise(a, (Squares){a->size['b'], a->size['s'], a->size['B'], a->rows, 1, true});
}

void cpu_quantise_squares_first(const KernelArgs *a)
{
    quantise(a,
             (Squares){1, a->size['k'], a->size['B'], a->rows * a->size['n'], a->size['C'], true});
}

void cpu_quantise_squares_last(const KernelArgs *a)
{
    quantise(a,
             (Squares){1, a->size['n'], a->size['C'], a->rows * a->size['k'], a->size['B'], false});
}

void cpu_quantise_squares_inner(const KernelArgs *a)
{
    quantise(a, (Squares){a->rows, a->size['d'], a->size['B'], a->size['n'], a->size['C'], true});
}

void cpu_quantise_squares_outer(const KernelArgs *a)
{
    quantise(a, (Squares){a->rows, a->size['n'], a->size['C'], a->size['d'], a->size['B'], false});
}

/* ---- products ---- */

/* sizes of the tile of a product; TILE_PAIRS: pairs that one call of BLAS sums over */
enum { TILE_ROWS = 32, TILE_COLUMNS = 64, TILE_PAIRS = 32 };

/* An operand of a product: a matrix of pairs in memory, and the scales of its blocks. */
typedef struct PairsOperand {
    const KernelArgs *a;
    uint32_t arg;
    ProductMatrix is;
    int64_t inner, run; /* distance between neighbours of a block, in pairs; number of pairs of a
                           block times `inner` */
} PairsOperand;

static PairsOperand operand_of(const KernelArgs *a, uint32_t arg, ProductMatrix is)
{
    PairsOperand x = {.a = a, .arg = arg, .is = is, .inner = 1};
    const Binding *b = a->binding;
    for (uint32_t d = b->n_dims[arg]; d-- > 0 && b->letter[arg][d] != 'A';)
        x.inner *= a->size[(unsigned char)b->letter[arg][d]];
    x.run = x.inner * a->size['A'];
    return x;
}

/* Computes both numbers of the pair at (row, column) of the operand's matrix, each multiplied by
 * its scale. */
static void unscale(const PairsOperand *x, int64_t row, int64_t column, double *first,
                    double *second)
{
    const int64_t slow = x->is.transposed ? column : row, fast = x->is.transposed ? row : column;
    const int64_t pair = slow * x->is.leading + fast;
    const double scale = get(x->a, 2 + x->arg, pair / x->run * x->inner + pair % x->inner);
    *first = get(x->a, x->arg, 2 * pair) * scale;
    *second = get(x->a, x->arg, 2 * pair + 1) * scale;
}

typedef struct PairsTile {
    int64_t row, rows, column, columns;
} PairsTile;

static void multiply(const PairsOperand *x, const PairsOperand *y, const PairsTile *t,
                     int64_t n_pairs, double sum[TILE_ROWS * TILE_COLUMNS])
{
    double left[TILE_ROWS * 2 * TILE_PAIRS], right[2 * TILE_PAIRS * TILE_COLUMNS];
    for (int64_t at = 0; at < n_pairs; at += TILE_PAIRS) {
        const int64_t n = n_pairs - at < TILE_PAIRS ? n_pairs - at : TILE_PAIRS;
        for (int64_t k = 0; k < n; k++) {
            for (int64_t i = 0; i < t->rows; i++) {
                double *to = &left[i * 2 * TILE_PAIRS + 2 * k];
                unscale(x, t->row + i, at + k, to, to + 1);
            }
            for (int64_t j = 0; j < t->columns; j++) {
                double *to = &right[2 * k * TILE_COLUMNS + j];
                unscale(y, at + k, t->column + j, to, to + TILE_COLUMNS);
            }
        }
        cpu_blas()->dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)t->rows, (int)t->columns,
                          (int)(2 * n), 1, left, 2 * TILE_PAIRS, right, TILE_COLUMNS, 1, sum,
                          TILE_COLUMNS);
    }
}

void cpu_contract_pairs(const KernelArgs *a)
{
    const Product p = product_of(a->binding, a->size);
    const PairsOperand x = operand_of(a, p.left, p.x), y = operand_of(a, p.right, p.y);
    const double factor =
        a->attrs.scale * cpu_amax_bound(get(a, 4, 0)) * cpu_amax_bound(get(a, 5, 0));
    assert(a->n_in == 6 && p.batch == 1);
    for (int64_t row = 0; row < p.m; row += TILE_ROWS)
        for (int64_t column = 0; column < p.n; column += TILE_COLUMNS) {
            const PairsTile t = {row, p.m - row < TILE_ROWS ? p.m - row : TILE_ROWS, column,
                                 p.n - column < TILE_COLUMNS ? p.n - column : TILE_COLUMNS};
            double sum[TILE_ROWS * TILE_COLUMNS] = {0};
            multiply(&x, &y, &t, p.k, sum);
            for (int64_t i = 0; i < t.rows; i++)
                for (int64_t j = 0; j < t.columns; j++) {
                    const int64_t to = (row + i) * p.z.leading + column + j;
                    const double old = cpu_accumulates(a, 0) ? get(a, 6, to) : 0;
                    set(a, 6, to, old + factor * sum[i * TILE_COLUMNS + j]);
                }
        }
}
