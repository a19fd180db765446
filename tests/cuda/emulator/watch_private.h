/* Shared by the files that watch accesses: see watch.h. */
#ifndef TANDEM_TESTS_CUDA_WATCH_PRIVATE_H
#define TANDEM_TESTS_CUDA_WATCH_PRIVATE_H

#include "tests/cuda/emulator/device_on_cpu.h"
#include "tests/cuda/emulator/watch.h"

typedef enum AccessKind { ACCESS_read, ACCESS_write, ACCESS_atomic } AccessKind;

/* Records an access by the running thread, at address `from` of the code. */
void watch_access(const void *at, uint64_t bytes, AccessKind kind, const void *from);

void count_launch(const char *kernel);
void count_access(const void *at, uint64_t bytes, bool is_shared, const void *from);
void count_block_end(void);

#endif
