/* Buckets of distances between key and query, for attention with a table of biases (as in T5). Each
 * direction has n buckets. Each distance below n / 2 has its own bucket. Longer distances are
 * divided among the other buckets by their logarithm, and the last bucket contains all distances
 * from `most` on. Causal attention has one direction. Other attention has two, and its second half
 * of buckets is for keys after the query. All kernels read the bounds of the buckets from here. So
 * a rounding error of a logarithm cannot put a distance into different buckets in different
 * kernels. */
#ifndef TANDEM_KERNELS_BUCKETS_H
#define TANDEM_KERNELS_BUCKETS_H

#include <math.h>
#include <stdint.h>

enum { MOST_BUCKETS = 64 };

typedef struct Buckets {
    int64_t first[MOST_BUCKETS]; /* smallest distance in each bucket of one direction */
    int32_t n, both; /* n: buckets of one direction; both: 1 if there are two directions */
} Buckets;

static inline Buckets buckets_of(int64_t n_buckets, int64_t most, int causal)
{
    Buckets b = {{0}, (int32_t)(causal ? n_buckets : n_buckets / 2), !causal};
    const int32_t exact = b.n / 2;
    for (int32_t i = 0; i < b.n && i < MOST_BUCKETS; i++) {
        const double power = i > exact ? (double)(i - exact) / (b.n - exact) : 0;
        const double from = exact * pow((double)most / exact, power);
        b.first[i] = i <= exact ? i : (int64_t)ceil(from - 1e-9);
    }
    return b;
}

#endif
