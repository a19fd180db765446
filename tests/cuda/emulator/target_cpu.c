/* See target.h: the CPU runs the threads, and there are no libraries. */
#include "tests/cuda/target.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/cuda/emulator/mma_on_cpu.h"
#include "tests/cuda/emulator/watch.h"

#if defined __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes)   ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

static CudaControl control = {.step = 3, .lr = 0.01, .seed = 77};
static uint32_t fault;
static CudaContext context = {.control = &control,
                              .fault = &fault,
                              .pc = 5,
                              .n_sms = 2,
                              .compute_capability = 80,
                              /* attention visits the heads of one case in several chunks */
                              .l2_bytes = 64 * 1024};
static uint64_t before;

void *target_alloc(uint64_t bytes)
{
    if (watch_is_on()) return watch_alloc(bytes);
    void *at = aligned_alloc(256, (bytes + 255) / 256 * 256 + (bytes == 0 ? 256 : 0));
    assert(at != NULL);
    return at;
}

void target_free(void *at)
{
    if (watch_is_on())
        watch_free(at);
    else
        free(at);
}

void target_forbid(void *at, uint64_t bytes)
{
    ASAN_POISON_MEMORY_REGION(at, bytes);
    watch_allow(at, bytes, false);
}

void target_permit(void *at, uint64_t bytes)
{
    ASAN_UNPOISON_MEMORY_REGION(at, bytes);
    watch_allow(at, bytes, true);
}

CudaContext *target_context(void)
{
    return &context;
}

CudaControl *target_control(void)
{
    return &control;
}

bool target_has(uint32_t compute_capability)
{
    return compute_capability >= 80;
}

/* 9.0 counts as present, because Hopper's instructions are emulated. */
bool target_is(uint32_t compute_capability)
{
    return compute_capability == 80 || compute_capability == 90;
}

void target_begin(uint64_t order)
{
    device_set_seed(order);
    device_copies_arrive_early(order != 0);
    device_boxes_arrive_early(order != 0);
    device_products_read_early(order != 0);
    before = device_n_launches();
}

bool target_end(bool launched, CudaError *error)
{
    assert(device_copies_under_way() == 0);
    assert(device_hopper_under_way() == 0);
    if (!launched) fprintf(stderr, "%s: %s\n", target_case_now(), error->text);
    return launched;
}

uint32_t target_launches(void)
{
    return (uint32_t)(device_n_launches() - before);
}

bool target_prepare(OpKind op, const KernelArgs *args, CudaError *error)
{
    (void)op, (void)args, (void)error;
    return true;
}

uint32_t target_library_calls(void)
{
    return 0;
}

const CudaAttentionLibrary *target_attention(OpKind op, const KernelArgs *args, bool *taken)
{
    (void)op, (void)args;
    *taken = false;
    return NULL;
}
