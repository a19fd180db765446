/* Transposes tensors that are seen as matrices, for elements of any dtype; no bit is changed. The
 * copy goes tile by tile, so that source and destination both stay in the cache. */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

enum { TILE = 32 };

/* x [rows,columns] -> y [columns,rows] */
static void turn(const KernelArgs *a, int64_t rows, int64_t columns)
{
    const size_t bytes = dtype_bytes(a->dtype[0]);
    const char *x = a->ptr[0];
    char *y = a->ptr[1];
    assert(a->dtype[0] == a->dtype[1]);
    for (int64_t i0 = 0; i0 < rows; i0 += TILE)
        for (int64_t j0 = 0; j0 < columns; j0 += TILE)
            for (int64_t j = j0; j < columns && j < j0 + TILE; j++)
                for (int64_t i = i0; i < rows && i < i0 + TILE; i++)
                    memcpy(y + (size_t)(j * rows + i) * bytes,
                           x + (size_t)(i * columns + j) * bytes, bytes);
}

/* x [b,s,...] -> y [...,b,s] */
void cpu_turn_tokens(const KernelArgs *a)
{
    turn(a, a->size['b'] * a->size['s'], a->rows);
}

/* x [k,...] -> y [...,k] */
void cpu_turn_first(const KernelArgs *a)
{
    turn(a, a->size['k'], a->rows);
}

/* x [...,n] -> y [n,...] */
void cpu_turn_last(const KernelArgs *a)
{
    turn(a, a->rows, a->size['n']);
}
