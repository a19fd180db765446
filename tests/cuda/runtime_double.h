/* A test double of the few CUDA runtime calls that are used to time kernels. Device memory is host
 * memory, work is done at launch, and the test sets the time. This header includes no CUDA
 * header. */
#ifndef TANDEM_TESTS_CUDA_RUNTIME_DOUBLE_H
#define TANDEM_TESTS_CUDA_RUNTIME_DOUBLE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct RuntimeDouble {
    double now_ms;
    int64_t objects; /* blocks of memory and events that were made and not released */
    bool no_memory;  /* cudaMalloc fails */
    /* number of waits for events so far */
    uint32_t waits;
    /* from this wait on, the device is lost, or waits never end; 0: never */
    uint32_t lost_at, hangs_at;
} RuntimeDouble;
extern RuntimeDouble runtime_double;

#endif
