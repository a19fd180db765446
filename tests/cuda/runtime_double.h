/* A test double of the few calls of the CUDA runtime that timing kernels takes: memory is the
 * host's, work is done when it is launched, and time is what the test says. Includes no CUDA
 * header. */
#ifndef TANDEM_TESTS_CUDA_RUNTIME_DOUBLE_H
#define TANDEM_TESTS_CUDA_RUNTIME_DOUBLE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct RuntimeDouble {
    double now_ms;
    int64_t objects; /* made and not released: memory, events */
    bool no_memory;  /* cudaMalloc fails */
    uint32_t waits;  /* for events, so far; the device is lost from the lost_at-th on; 0: never */
    uint32_t lost_at, hangs_at; /* what is waited for does not end from then on */
} RuntimeDouble;
extern RuntimeDouble runtime_double;

#endif
