/* A store of measured choices: the algorithm that computes a call fastest on a device. */
#ifndef TANDEM_KERNELS_CHOICES_H
#define TANDEM_KERNELS_CHOICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `device` names the device and the library's version. `call` names sizes, layouts and types. A
 * choice is a few bytes that only the library understands. */
typedef struct KernelChoices {
    void *self;
    bool (*get)(void *self, const char *device, const char *call, void *choice, size_t bytes);
    void (*put)(void *self, const char *device, const char *call, const void *choice, size_t bytes,
                int64_t median_ps);
} KernelChoices;

#endif
