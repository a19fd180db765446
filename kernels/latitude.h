/* Weights of the rows of a latitude-longitude grid. The weight of a row is the cosine of its
 * latitude divided by the mean cosine of all rows. Rows are spaced evenly from pole to pole: the
 * centre of row r of n rows is at the latitude pi ((r + 1/2) / n - 1/2), in radians. */
#ifndef TANDEM_KERNELS_LATITUDE_H
#define TANDEM_KERNELS_LATITUDE_H

#include <math.h>
#include <stdint.h>

/* Returns the weight of row `row`. The formula uses that the cosines of all n rows add up to 1 /
 * sin(pi / 2n). */
static inline double latitude_weight(int64_t row, int64_t rows)
{
    const double pi = 3.14159265358979323846, n = (double)rows;
    return sin(pi * ((double)row + 0.5) / n) * sin(pi / (2 * n)) * n;
}

#endif
