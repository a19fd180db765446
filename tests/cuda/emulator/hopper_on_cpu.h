/* Defines the names of kernels/cuda/attention/hopper/hopper.cuh for the CPU, by the rules stated
 * there.
 *
 * A product writes its registers when it is awaited. Until then, these registers and those of a
 * left factor hold a NaN with a known pattern. If a register has lost this pattern at the wait, the
 * test ends. A product finds its operands in shared memory by a descriptor. It reads them at issue
 * or at the wait, as the test selects. A box (a tile of a tensor) arrives when it is fetched, or
 * only when a thread must wait for it. Bulk copies to global memory read and arrive at once, or as
 * late as possible. Each must have its turn: a counter_wait must precede it, and a counter_set must
 * follow the wait for its end. */
#ifndef TANDEM_TESTS_CUDA_HOPPER_ON_CPU_H
#define TANDEM_TESTS_CUDA_HOPPER_ON_CPU_H

#include "tests/cuda/emulator/device_on_cpu.h"

/* ---- for tests ---- */

/* Choose when products read shared memory, and when boxes arrive. A device may do either, or
 * anything in between. */
void device_products_read_early(bool early);
void device_boxes_arrive_early(bool early);
/* Returns the number of products, boxes and phases that no thread has awaited, in all blocks since
 * the last call. */
uint32_t device_hopper_under_way(void);

/* Makes one instruction faulty from now on, as if the kernel lacked it. This tests the other
 * tests. */
typedef enum HopperFault {
    HOPPER_sound,
    HOPPER_no_wait_for_boxes,    /* no wait for a full slot */
    HOPPER_no_wait_for_slots,    /* thread 0 does not wait for empty slots */
    HOPPER_wrong_phase,          /* waits are for the wrong parity */
    HOPPER_no_wait_for_products, /* no wait for products */
    HOPPER_one_group_too_many,   /* one group too many stays running */
    HOPPER_no_products_fence,
    HOPPER_no_barriers_ready,
    HOPPER_no_shared_to_async,
    HOPPER_one_arrival_too_few, /* barriers release threads before all have arrived */
    HOPPER_half_the_bytes,      /* barriers expect only half of the bytes */
    HOPPER_map_not_swizzled,
    HOPPER_matrix_not_swizzled,
    HOPPER_wrong_stride, /* wrong stride of a matrix in shared memory */
    HOPPER_no_tail_mask, /* tensors end before the last rows that are not masked */
    HOPPER_no_turn,      /* adding to dQ does not wait for its counter */
    HOPPER_no_bulks_wait,
    HOPPER_n_faults
} HopperFault;
enum { HOPPER_TAIL = 60 }; /* number of rows that a tensor lacks with HOPPER_no_tail_mask */
void device_hopper_fault(HopperFault fault);
/* Sets which tensors lack rows with HOPPER_no_tail_mask: those with exactly this many rows. */
void device_hopper_tail(uint64_t rows);

/* ---- for kernels ---- */

struct TensorShape;
typedef struct TensorMap {
    const unsigned char *at;
    uint64_t dim[4], stride[4]; /* in bytes */
    uint32_t box[4];
    bool swizzled;
} TensorMap;
bool tensor_map_make(TensorMap *map, const struct TensorShape *t, const CudaContext *cuda,
                     CudaError *error);

uint32_t shared_window(unsigned char *at);
int thread_again(void);

void barrier_init(unsigned char *barrier, uint32_t arrivals);
void barriers_ready(void);
void shared_to_async(void);
void barrier_arrive(unsigned char *barrier);
void barrier_expect(unsigned char *barrier, uint32_t bytes);
void barrier_wait(unsigned char *barrier, uint32_t parity);
void barrier_threads(uint32_t number, uint32_t threads);
void turn_wait(uint32_t number, uint32_t threads);
void turn_pass(uint32_t number, uint32_t threads);
void box_fetch(unsigned char *to, const TensorMap *map, unsigned char *barrier, int c0, int c1,
               int c2, int c3);
void bulk_fetch(unsigned char *to, const void *from, uint32_t bytes, unsigned char *barrier);
void bulk_put(float *to, unsigned char *from, uint32_t bytes);
void bulk_add(float *to, unsigned char *from, uint32_t bytes);
void bulks_read(void);
void bulks_wait(void);
void counter_wait(uint32_t *counter, uint32_t value);
void counter_set(uint32_t *counter, uint32_t value);
void device_registers(uint32_t n, bool grow);
#define registers_shrink(n) device_registers(n, false)
#define registers_grow(n)   device_registers(n, true)

void products_fence(void);
void products_commit(void);
void products_wait(uint32_t groups);
void products_wait_behind(float x, unsigned char *spare);

/* If `a` is 0, four registers hold A; otherwise `a` is its descriptor. */
typedef struct DeviceProduct {
    DType dtype;
    uint32_t n; /* columns */
    float *d;   /* [n / 2] */
    uint64_t a, b;
    uint32_t *registers;
    bool columns; /* B is stored with one row for each k */
    bool add;
    bool turned; /* A is stored with one row for each k */
} DeviceProduct;
void device_product(const DeviceProduct *p);

#define PRODUCT_ROWS(type, columns)                                                                \
    static inline void product_rows_##columns##_##type(float *d, uint64_t a, uint64_t b, int add)  \
    {                                                                                              \
        const DeviceProduct p = {DT_##type, columns, d, a, b, NULL, false, add != 0, false};       \
        device_product(&p);                                                                        \
    }
PRODUCT_ROWS(bf16, 64)
PRODUCT_ROWS(bf16, 128)
PRODUCT_ROWS(f16, 64)
PRODUCT_ROWS(f16, 128)
#define PRODUCT_TURNED(type)                                                                       \
    static inline void product_turned_64_##type(float *d, uint64_t a, uint64_t b, int add)         \
    {                                                                                              \
        const DeviceProduct p = {DT_##type, 64, d, a, b, NULL, true, add != 0, true};              \
        device_product(&p);                                                                        \
    }
PRODUCT_TURNED(bf16)
PRODUCT_TURNED(f16)
#define PRODUCT_COLUMNS(type, columns)                                                             \
    static inline void product_columns_##columns##_##type(float *d, uint32_t a[4], uint64_t b)     \
    {                                                                                              \
        const DeviceProduct p = {DT_##type, columns, d, 0, b, a, true, true, false};               \
        device_product(&p);                                                                        \
    }
PRODUCT_COLUMNS(bf16, 64)
PRODUCT_COLUMNS(bf16, 128)
PRODUCT_COLUMNS(f16, 64)
PRODUCT_COLUMNS(f16, 128)

#endif
