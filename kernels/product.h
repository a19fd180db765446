/* A contraction of ops.def as one matrix product. The letters of the signature say which indices
 * are rows (in one input and the output), columns (in the other input and the output), summed (in
 * both inputs only) or batch (in all three). Letters of one kind lie together and in the same order
 * wherever they appear, so each kind acts as one index, and no element is ever moved: what a
 * signature orders the other way is read as a transposed matrix. Knows no op, no dtype, no library.
 */
#ifndef TANDEM_KERNELS_PRODUCT_H
#define TANDEM_KERNELS_PRODUCT_H

#include "planner/ir/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Element (i, j) lies at i * leading + j, or, transposed, at j * leading + i. In elements. */
typedef struct ProductMatrix {
    bool transposed;
    int64_t leading;      /* at least 1, and at least the matrix's extent in memory order */
    int64_t batch_stride; /* between the matrices of two batch indices; 0: no batch */
} ProductMatrix;

/* z [m,n] = x [m,k] y [k,n] for each of `batch`; z is never transposed: of the two inputs the one
 * with the output's outer letters is x. Sizes may be 0. */
typedef struct Product {
    uint32_t left, right; /* which arguments x and y are: 0 and 1, or 1 and 0 */
    int64_t m, n, k, batch;
    ProductMatrix x, y, z;
} Product;

/* Of a bound contraction (its first two inputs; scales are no part of it) with local sizes of each
 * letter. */
Product product_of(const Binding *b, const int64_t size['z' + 1]);

#ifdef __cplusplus
}
#endif

#endif
