/* A test double of the few CUDA runtime calls that time kernels. Memory is the host's, work is done
 * at launch, and the test sets the time. It includes no CUDA header. */
#ifndef TANDEM_TESTS_CUDA_RUNTIME_DOUBLE_H
#define TANDEM_TESTS_CUDA_RUNTIME_DOUBLE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct RuntimeDouble {
    double now_ms;
    int64_t objects; /* memory and events made and not released */
    bool no_memory;  /* cudaMalloc fails */
    /* waits for events so far; the device is lost from the lost_at-th on; 0: never */
    uint32_t waits;
    uint32_t lost_at, hangs_at; /* from this wait on, waits never end */
} RuntimeDouble;
extern RuntimeDouble runtime_double;

#endif
