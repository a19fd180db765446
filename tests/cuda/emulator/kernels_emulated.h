/* How often the double has run the device's own kernels of attention (kernels_emulated.c). */
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
