/* A test double of the few CUDA runtime calls that time kernels. Memory is the host's, work is done
 * at launch, and the test sets the time. It includes no CUDA header. */
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
    uint32_t lost_at, hangs_at; /* number of the wait from which on the device is lost, or from
                                   which on waits never end; 0: never */
} RuntimeDouble;
extern RuntimeDouble runtime_double;

#endif
