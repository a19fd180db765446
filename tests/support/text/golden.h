/* Reads golden tensors (safetensors format) that PyTorch wrote once: tests/data/golden. */
#ifndef TANDEM_TESTS_SUPPORT_GOLDEN_H
#define TANDEM_TESTS_SUPPORT_GOLDEN_H

#include "planner/ir/layout/layout.h"

typedef struct GoldenTensor {
    const char *name;
    DType dtype; /* DT_f64 or DT_i32 */
    uint8_t n_dims;
    int64_t dim[MAX_DIMS];
    int64_t elements;
    const void *at; /* aligned for the dtype */
} GoldenTensor;

typedef struct Golden {
    LIST(GoldenTensor) tensors;
} Golden;

/* Reads the file `name` of tests/data/golden, such as "llama.safetensors". If it cannot be read or
 * is not well formed, prints a line on stderr and returns false. */
bool golden_read(const char *name, Arena *arena, Golden *golden);
/* Returns the tensor whose name is `group` followed by `name`, such as "grad/" and "norm.weight".
 * Returns NULL if there is none. */
const GoldenTensor *golden_find(const Golden *golden, const char *group, const char *name);

#endif
