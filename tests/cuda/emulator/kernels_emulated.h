/* How often the double has run the device's own kernels of attention (kernels_emulated.c). */
#ifndef TANDEM_TESTS_CUDA_KERNELS_EMULATED_H
#define TANDEM_TESTS_CUDA_KERNELS_EMULATED_H

#include <stdint.h>

/* How many calls of attention and its gradient ran so far with Hopper's instructions, and how many
 * did not. */
typedef struct EmulatedAttention {
    uint32_t hopper, others;
} EmulatedAttention;
extern EmulatedAttention emulated_attention;

#endif
