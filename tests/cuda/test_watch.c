/* Watching kernels (watch.h) finds races that no order of threads shows, and accesses to bytes that
 * a kernel was not given. It also counts the sectors and passes of accesses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cuda/emulator/mma_on_cpu.h"
#include "tests/cuda/emulator/watch.h"

#include "kernels/cuda/attention/hopper/hopper.cuh"
#include "kernels/cuda/device.cuh"

static const CudaContext cuda = {.n_sms = 4, .compute_capability = 90};
enum { THREADS = 64, BLOCKS = 2, N = THREADS * BLOCKS };

/* ---- faults ---- */

typedef enum Wrong {
    WRONG_none,
    WRONG_no_barrier,     /* a thread reads a number that a thread of another warp writes */
    WRONG_shuffle_orders, /* a thread reads a number of its own warp after only a shuffle */
    WRONG_no_second,      /* a thread writes again while another may still be reading */
    WRONG_two_blocks,     /* two blocks write the same number */
    WRONG_no_atomic,      /* all threads raise the same number without an atomic */
    WRONG_reads_beyond,
    WRONG_writes_beyond,
    WRONGS
} Wrong;

typedef struct TurnArgs {
    const float *x;
    float *y;
    uint32_t *most;
    int32_t fault;
} TurnArgs;

/* In each block, numbers of even threads and of odd threads change places, twice. */
KERNEL(turn_pairs, TurnArgs, THREADS, 1)
{
    SHARED(float, held);
    int fault = a.fault, i = (int)threadIdx.x, at = (int)blockIdx.x * THREADS + i;
    int other = fault == WRONG_no_barrier ? THREADS - 1 - i : i ^ 1;
    float x = a.x[fault == WRONG_reads_beyond && at == N - 1 ? N : at];
    held[i] = x;
    if (fault == WRONG_shuffle_orders)
        x = __shfl_sync(FULL, x, i % WARP);
    else if (fault != WRONG_no_barrier)
        __syncwarp();
    x = held[other];
    if (fault != WRONG_no_second) __syncwarp();
    held[i] = x;
    __syncthreads();
    a.y[fault == WRONG_two_blocks      ? i
        : fault == WRONG_writes_beyond ? at + 1
                                       : at] = held[THREADS - 1 - i];
    if (fault == WRONG_no_atomic)
        *a.most = *a.most > (uint32_t)at ? *a.most : (uint32_t)at;
    else
        atomicMax(a.most, (uint32_t)at);
}

static void turn(Wrong fault, uint64_t seed)
{
    TurnArgs args = {watch_alloc(N * sizeof(float)), watch_alloc(N * sizeof(float)),
                     watch_alloc(sizeof(uint32_t)), fault};
    union {
        const float *read_only;
        float *plain;
    } x = {args.x};
    for (int i = 0; i < N; i++) x.plain[i] = (float)i;
    device_set_seed(seed);
    assert_true(LAUNCH(turn_pairs, BLOCKS, THREADS, THREADS * sizeof(float), args, &cuda, NULL));
    watch_free(args.most);
    watch_free(args.y);
    watch_free(x.plain);
}

static bool dies(Wrong fault, uint64_t seed)
{
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fclose(stderr);
        turn(fault, seed);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

/* The faults are also found in the simplest order of threads, in which most of them do no harm. */
static void each_fault_is_found(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 3; seed++) {
        turn(WRONG_none, seed);
        for (int fault = WRONG_none; fault < WRONGS; fault++)
            if (dies((Wrong)fault, seed) != (fault != WRONG_none))
                fail_msg("fault %d, order %d", fault, (int)seed);
    }
}

/* ---- boxes and products see normal stores only after a fence ---- */

typedef enum Fence {
    FENCE_between, /* after the stores and before the barrier */
    FENCE_none,
    FENCE_before, /* before the stores */
    FENCE_behind, /* after the barrier */
    FENCE_of_one, /* called by only one of the threads that have stored */
    FENCES
} Fence;

typedef struct StoredArgs {
    TensorMap map;
    float *y;
    int32_t fence;
    bool box; /* true: a box reads the stored data; false: a product does */
} StoredArgs;

enum { ROWS = 64, TILE_BYTES = ROWS * 128 };

KERNEL(touch_stored, StoredArgs, WARPGROUP, 1)
{
    SHARED(unsigned char, memory);
    const Shared tile = shared_pattern(shared_of(memory)), barrier = tile + TILE_BYTES;
    const uint16_t one = 0x3f80;
    if (threadIdx.x == 0) {
        barrier_init(barrier, 1);
        barriers_ready();
        shared_to_async();
    }
    __syncthreads();
    if (a.fence == FENCE_before) shared_to_async();
    for (int i = (int)threadIdx.x; i < TILE_BYTES / 2; i += WARPGROUP)
        ((uint16_t *)(void *)tile)[i] = one;
    if (a.fence == FENCE_between || (a.fence == FENCE_of_one && threadIdx.x == 0))
        shared_to_async();
    __syncthreads();
    if (a.fence == FENCE_behind) shared_to_async();
    if (a.box && threadIdx.x == 0) {
        barrier_expect(barrier, TILE_BYTES);
        box_fetch(tile, &a.map, barrier, 0, 0, 0, 0);
    }
    if (a.box) {
        barrier_wait(barrier, 0);
        __syncthreads();
    }
    float d[32];
    for (int i = 0; i < 32; i++) d[i] = 0;
    const uint64_t matrix = matrix_of(tile, 0, SWIZZLE_BYTES);
    products_fence();
    product_rows_64_bf16(d, matrix, matrix, 0);
    products_commit();
    products_wait(0);
    for (int i = 0; i < 32; i++) a.y[(int)threadIdx.x * 32 + i] = d[i];
}

static void touch(Fence fence, bool box, uint64_t seed)
{
    uint16_t *x = watch_alloc(ROWS * 64 * sizeof *x);
    StoredArgs args = {
        .y = watch_alloc(WARPGROUP * 32 * sizeof(float)), .fence = fence, .box = box};
    const TensorShape shape = {.at = x,
                               .dim = {64, 1, ROWS, 1},
                               .stride = {128, 128, ROWS * 128},
                               .box = {64, 1, ROWS, 1},
                               .dtype = DT_bf16};
    for (int i = 0; i < ROWS * 64; i++) x[i] = 0x4000; /* 2 in bf16 */
    assert_true(tensor_map_make(&args.map, &shape, &cuda, NULL));
    device_set_seed(seed);
    assert_true(
        LAUNCH(touch_stored, 1, WARPGROUP, TILE_BYTES + SWIZZLE_BYTES + 16, args, &cuda, NULL));
    for (int i = 0; i < WARPGROUP * 32; i++)
        if (args.y[i] != (box ? 64.f : 16.f)) abort();
    watch_free(args.y);
    watch_free(x);
}

static bool touching_dies(Fence fence, bool box, uint64_t seed)
{
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fclose(stderr);
        touch(fence, box, seed);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void stores_need_a_fence_before_boxes(void **state)
{
    (void)state;
    for (int box = 0; box < 2; box++) {
        touch(FENCE_between, box, 0);
        for (int fence = FENCE_between; fence < FENCES; fence++)
            if (touching_dies((Fence)fence, box, 1) != (fence != FENCE_between))
                fail_msg("fence %d, %s", fence, box ? "a box" : "a product");
    }
}

/* A kernel may read data that the previous kernel wrote. No kernel may touch freed memory. */
static void a_kernel_sees_earlier_writes_but_no_freed_memory(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) turn(WRONG_none, 5);
}

/* ---- counts ---- */

typedef struct StrideArgs {
    const float *x;
    float *y;
    int32_t global, shared; /* distances between lanes, in numbers */
} StrideArgs;

KERNEL(stride_loads, StrideArgs, WARP, 1)
{
    SHARED(float, held);
    held[(int)threadIdx.x * a.shared] = a.x[(int)threadIdx.x * a.global];
}

KERNEL(wide_loads, StrideArgs, WARP, 1)
{
    SHARED(float4, held);
    held[threadIdx.x] = ((const float4 *)a.x)[threadIdx.x];
}

static WatchCounts counts_of(bool wide, int32_t global, int32_t shared)
{
    StrideArgs args = {watch_alloc(WARP * WARP * 4), NULL, global, shared};
    union {
        const float *read_only;
        float *plain;
    } x = {args.x};
    memset(x.plain, 0, WARP * WARP * 4);
    const char *name = wide ? "wide_loads" : "stride_loads";
    watch_count(true);
    (void)watch_counts(name);
    if (wide)
        assert_true(LAUNCH(wide_loads, 1, WARP, WARP * WARP * 4 + 4, args, &cuda, NULL));
    else
        assert_true(LAUNCH(stride_loads, 1, WARP, WARP * (WARP + 1) * 4, args, &cuda, NULL));
    watch_count(false);
    watch_free(x.plain);
    return watch_counts(name);
}

static void accesses_are_counted(void **state)
{
    (void)state;
    WatchCounts c = counts_of(false, 1, 1);
    assert_int_equal(c.requests, 1);
    assert_int_equal(c.sectors, 4);
    assert_int_equal(c.fewest_sectors, 4);
    assert_int_equal(c.passes, 1);
    c = counts_of(false, 8, WARP); /* a separate sector and bank for each lane */
    assert_int_equal(c.sectors, 32);
    assert_int_equal(c.fewest_sectors, 4);
    assert_int_equal(c.passes, 32);
    assert_int_equal(c.fewest_passes, 1);
    c = counts_of(false, 2, WARP + 1);
    assert_int_equal(c.sectors, 8);
    assert_int_equal(c.passes, 1);
    c = counts_of(false, 0, 1); /* all lanes read one number */
    assert_int_equal(c.sectors, 1);
    c = counts_of(true, 0, 0);
    assert_int_equal(c.sectors, 16);
    assert_int_equal(c.fewest_sectors, 16);
    assert_int_equal(c.passes, 4);
    assert_int_equal(c.fewest_passes, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_fault_is_found),
        cmocka_unit_test(stores_need_a_fence_before_boxes),
        cmocka_unit_test(a_kernel_sees_earlier_writes_but_no_freed_memory),
        cmocka_unit_test(accesses_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
