/* The double's kernels, if they are the device's own. */
#ifndef TANDEM_TESTS_CUDA_KERNELS_EMULATED_H
#define TANDEM_TESTS_CUDA_KERNELS_EMULATED_H

#include <stdint.h>

/* Number of calls of attention and its gradient so far by the kernels with Hopper's instructions,
 * and by others. */
typedef struct EmulatedAttention {
    uint32_t hopper, others;
} EmulatedAttention;
extern EmulatedAttention emulated_attention;

#endif
