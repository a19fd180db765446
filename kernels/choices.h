/* A store of measured choices. It remembers, for each call and device, the algorithm that computes
 * the call fastest. */
#ifndef TANDEM_KERNELS_CHOICES_H
#define TANDEM_KERNELS_CHOICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Functions that read and write stored choices. `device` names the device and the library's
 * version. `call` names sizes, layouts and dtypes. A choice is a few bytes, which only the library
 * can interpret. */
typedef struct KernelChoices {
    void *self;
    bool (*get)(void *self, const char *device, const char *call, void *choice, size_t bytes);
    void (*put)(void *self, const char *device, const char *call, const void *choice, size_t bytes,
                int64_t median_ps);
} KernelChoices;

#endif
