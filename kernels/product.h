/* A contraction of ops.def as one matrix product. A letter of the signature is a row index (in
 * one input and the output), a column index (in the other input and the output), summed (in both
 * inputs only) or batch (in all three). Letters of one kind lie together and in the same order
 * in every argument, so each kind acts as one index and no element is moved. An argument with
 * the opposite order is read as a transposed matrix. Independent of ops, dtypes and libraries. */
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
    int64_t batch_stride; /* distance between the matrices of two consecutive batch indices; 0: no
                           * batch */
} ProductMatrix;

/* z [m,n] = x [m,k] y [k,n], `batch` times. z is never transposed: x is the input that shares the
 * output's outer letters. Sizes may be 0. */
typedef struct Product {
    uint32_t left, right; /* the arguments that are x and y: 0 and 1, or 1 and 0 */
    int64_t m, n, k, batch;
    ProductMatrix x, y, z;
} Product;

/* Returns the product that a bound contraction computes, given the local size of each letter. It
 * uses only the first two inputs; scales do not matter. */
Product product_of(const Binding *b, const int64_t size['z' + 1]);

#ifdef __cplusplus
}
#endif

#endif
