/* Attention with a table (T5) sorts the distances between key and query into buckets. A direction
 * has n buckets. Each distance below n / 2 has a bucket of its own. Longer distances share the
 * other buckets by their logarithm; the last bucket begins at `most`. Causal attention has one
 * direction. Otherwise the second half of the buckets is for keys that come after the query. All
 * kernels read the bounds from here, so rounding of a logarithm cannot move a distance to another
 * bucket. */
#ifndef TANDEM_KERNELS_BUCKETS_H
#define TANDEM_KERNELS_BUCKETS_H

#include <math.h>
#include <stdint.h>

enum { MOST_BUCKETS = 64 };

typedef struct Buckets {
    int64_t first[MOST_BUCKETS]; /* smallest distance of each bucket of a direction */
    int32_t n, both; /* n: buckets of a direction; both: 1 if there are two directions */
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
