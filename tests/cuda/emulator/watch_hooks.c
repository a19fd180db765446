/* The functions that the compiler calls before loads and stores with -fsanitize=thread. They have
 * the names of its library's functions, but our own code. See watch.h. */
#include "tests/cuda/emulator/watch_private.h"

#define HOOK(name, bytes, kind)                                                                    \
    void __tsan_##name(void *at);                                                                  \
    void __tsan_##name(void *at)                                                                   \
    {                                                                                              \
        watch_access(at, bytes, ACCESS_##kind, __builtin_return_address(0));                       \
    }
#define HOOKS(bytes)                                                                               \
    HOOK(read##bytes, bytes, read)                                                                 \
    HOOK(write##bytes, bytes, write)                                                               \
    HOOK(unaligned_read##bytes, bytes, read)                                                       \
    HOOK(unaligned_write##bytes, bytes, write)
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

#define RANGE(kind)                                                                                \
    void __tsan_##kind##_range(void *at, uint64_t bytes);                                          \
    void __tsan_##kind##_range(void *at, uint64_t bytes)                                           \
    {                                                                                              \
        watch_access(at, bytes, ACCESS_##kind, __builtin_return_address(0));                       \
    }
RANGE(read)
RANGE(write)

void __tsan_init(void);
void __tsan_func_entry(void *from);
void __tsan_func_exit(void);
void __tsan_init(void) {}
void __tsan_func_entry(void *from)
{
    (void)from;
}
void __tsan_func_exit(void) {}

/* Host code that is compiled together with the kernels reads the address of the op table
 * atomically. */
int64_t __tsan_atomic64_load(const volatile int64_t *at, int order);
int64_t __tsan_atomic64_load(const volatile int64_t *at, int order)
{
    (void)order;
    return *at;
}
