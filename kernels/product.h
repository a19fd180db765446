/* Describes a contraction of ops.def as one matrix product. Each letter of the contraction's
 * signature is an index of one of four kinds:
 *   row      occurs in one input and the output
 *   column   occurs in the other input and the output
 *   summed   occurs in both inputs, but not in the output
 *   batch    occurs in all three
 * In every argument, the letters of one kind are neighbours and have the same order. So all letters
 * of a kind act as one index, and no element has to be moved. If, for example,
 * y below has the order [n,k], it is read as a transposed matrix. This file knows no ops, dtypes or
 * libraries. */
#ifndef TANDEM_KERNELS_PRODUCT_H
#define TANDEM_KERNELS_PRODUCT_H

#include "planner/ir/op/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a matrix lies in memory, in elements. Element (i, j) is at i * leading + j or, if the matrix
 * is transposed, at j * leading + i. */
typedef struct ProductMatrix {
    bool transposed;
    int64_t leading;      /* at least 1, and at least the length of a row (if transposed: of a
                             column) */
    int64_t batch_stride; /* distance from the matrix of one batch index to that of the next; 0:
                             there is no batch index */
} ProductMatrix;

/* z [m,n] = x [m,k] y [k,n], computed for each of `batch` batches. Of the two inputs, x is the one
 * that has the first letters of the output (apart from batch letters). So its rows are the rows of
 * z, and z is never transposed. Sizes may be 0. */
typedef struct Product {
    uint32_t left, right; /* indices of the arguments that are x and y: 0 and 1, or 1 and 0 */
    int64_t m, n, k, batch;
    ProductMatrix x, y, z;
} Product;

/* Returns the product that a contraction computes. size[c] is the local size of letter c. Only the
 * first two inputs are used; the scales of 8-bit operands are ignored. */
Product product_of(const Binding *b, const int64_t size['z' + 1]);

#ifdef __cplusplus
}
#endif

#endif
