/* Functions for instructions of attention that only compute capability 9.0 has (code for sm_90a):
 *   - products by a warpgroup (four warps, the first a multiple of four), which run while its
 * threads continue
 *   - copies of boxes of a tensor, which one thread starts
 *   - barriers in shared memory, which count arrivals and bytes
 * tests/cuda/emulator/hopper_on_cpu.h defines the same names for the CPU, and ends the test if a
 * kernel breaks one of the rules below. These are the rules of the PTX manual:
 *
 * Products (wgmma.mma_async). All threads of a warpgroup issue the same product. D [64, n] lies in
 * registers: warp w has rows 16 w to 16 w + 15, laid out as C in mma.cuh, one tile of eight columns
 * after another. If A is in registers, it is laid out as A in mma.cuh. From the issue of a product
 * to products_wait, threads must not read or write the registers of D and A. They must not write
 * shared operands either. products_fence must stand before the first product. It must also stand
 * before each product whose registers ordinary code has accessed since the last one. No fence is
 * needed between products of one shape that add to the same D.
 *
 * Matrices in shared memory (matrix_of). Bits 0-13 of a descriptor are address / 16, bits 16-29 the
 * leading offset / 16, and bits 32-45 the stride offset / 16. Bits 62-63 name the swizzle: 1 means
 * 128 bytes. A row has 64 16-bit numbers, 128 bytes. The swizzle puts the 16 bytes with address x
 * at x ^ (x >> 7 & 7) << 4. Eight rows, 1024 bytes, are one pattern, and the address of a tile is a
 * multiple of 1024. Let k be the index that a product sums over. If k runs along a row
 * (MATRIX_rows), the stride offset leads from eight rows to the next eight rows, and the leading
 * offset is unused. The next 16 values of k then begin 32 bytes later. If k runs from row to row
 * (MATRIX_columns; the manual calls B "transposed"), the stride offset leads from eight values of k
 * to the next eight. The leading offset then leads from 64 columns to the next 64.
 *
 * Barriers (mbarrier). A phase of a barrier ends after as many arrivals as barrier_init stated and
 * after all announced bytes have arrived. Then the next phase begins. barrier_wait(b, parity)
 * returns when the phase with that parity has ended. The first phase has parity 0; before it ends,
 * parity 1 counts as ended. Other threads see a new barrier after the initialising thread has
 * called barriers_ready and the block has passed another barrier. Before box copies may use the new
 * barrier, that thread must also call shared_to_async.
 *
 * Boxes (cp.async.bulk.tensor). Boxes arrive in shared memory in the swizzled layout above, in any
 * order. Each box counts all its bytes on its barrier. Elements outside of the tensor become zero.
 * Box copies and products access memory through another proxy than loads and stores. A thread that
 * has waited for a copy or a product may use ordinary loads and stores afterwards. A thread that
 * has stored data for a copy or a product must call shared_to_async. Then that thread and the
 * thread that starts the copy or product must meet at a barrier.
 *
 * Bulk copies (cp.async.bulk, cp.reduce.async.bulk). They move a contiguous range, a multiple of 16
 * bytes, through the same proxy. bulk_fetch counts its bytes on a barrier, as a box does. bulk_put
 * writes to global memory; bulk_add adds fp32 numbers there. Both belong to the thread that started
 * them. After this thread has called bulks_read, the shared memory may be written again. After
 * bulks_wait, the numbers are in global memory. If two bulks add to one number, their order is not
 * defined unless something else orders them.
 *
 * Counters in global memory order the blocks of a launch. counter_wait returns when the counter has
 * the given value, and counter_set writes a value. Suppose a thread waits for its bulks and then
 * calls counter_set. These bulks come before all bulks that another thread starts after
 * counter_wait has returned that value. */
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_HOPPER_HOPPER_CUH
#define TANDEM_KERNELS_CUDA_ATTENTION_HOPPER_HOPPER_CUH

#include "kernels/cuda/product/mma.cuh"

/* 1 if the current compiler pass knows these instructions. If it is 0, the kernels are compiled
 * without a body. */
#if !defined(__CUDACC__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HOPPER_CODE 1
#else
#define HOPPER_CODE 0
#endif

enum { WARPGROUP = 128, SWIZZLE_COLUMNS = 64, SWIZZLE_BYTES = 1024 };
enum { TENSOR_DIMS = 4 };

/* Describes a tensor of 16-bit numbers and the box that one copy fetches from it. Dimension 0
 * changes fastest. stride[i] is the stride of dimension i + 1 in bytes. */
typedef struct TensorShape {
    const void *at;
    uint64_t dim[TENSOR_DIMS], stride[TENSOR_DIMS - 1];
    uint32_t box[TENSOR_DIMS];
    DType dtype;
} TensorShape;

typedef enum MatrixMajor { MATRIX_rows, MATRIX_columns } MatrixMajor;

#ifdef __CUDACC__
#include <cuda.h> /* only for its types; the one function that is called comes from the loaded
                     driver */

typedef CUtensorMap TensorMap;

typedef CUresult TensorEncode(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                              const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                              const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static inline bool tensor_map_make(TensorMap *map, const TensorShape *t, const CudaContext *cuda,
                                   CudaError *error)
{
    const cuuint32_t step[TENSOR_DIMS] = {1, 1, 1, 1};
    assert(cuda->tensor_encode != NULL);
    TensorEncode *encode = (TensorEncode *)cuda->tensor_encode;
    CUresult result = encode(
        map,
        t->dtype == DT_bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        TENSOR_DIMS, (void *)t->at, (const cuuint64_t *)t->dim, (const cuuint64_t *)t->stride,
        t->box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result == CUDA_SUCCESS) return true;
    snprintf(error->text, sizeof error->text, "cuTensorMapEncodeTiled: error %d", (int)result);
    return false;
}

/* Returns the address in the form that a matrix descriptor needs. */
DEVICE uint32_t shared_window(Shared at)
{
    return at;
}

/* Returns threadIdx.x. Each call reads it from the device. So the compiler keeps neither this
 * number nor values computed from it in registers between calls. */
DEVICE int thread_again(void)
{
    int x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
}

/* ---- barriers ---- */

DEVICE void barrier_init(Shared barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}

DEVICE void barriers_ready(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Makes this thread's earlier stores to shared memory (and the barriers it initialised) visible to
 * box copies and products. */
DEVICE void shared_to_async(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

DEVICE void barrier_arrive(Shared barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrives at the barrier once, and announces that so many bytes will arrive. */
DEVICE void barrier_expect(Shared barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

DEVICE void barrier_wait(Shared barrier, uint32_t parity)
{
    uint32_t over = 0;
    while (!over)
        asm volatile("{\n\t.reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(over)
                     : "r"(barrier), "r"(parity)
                     : "memory");
}

/* Waits until `threads` threads of the block have called this function with the same number.
 * __syncthreads uses number 0. */
DEVICE void barrier_threads(uint32_t number, uint32_t threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/* Turns: half of the `threads` threads that use a number call turn_wait, the other half turn_pass.
 * turn_wait waits for turn_pass; turn_pass does not wait. Turns only order work in time. Threads
 * that exchange data in shared memory need another barrier as well. */
DEVICE void turn_wait(uint32_t number, uint32_t threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

DEVICE void turn_pass(uint32_t number, uint32_t threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/* ---- boxes ---- */

DEVICE void box_fetch(Shared to, const TensorMap *map, Shared barrier, int c0, int c1, int c2,
                      int c3)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
                 : "memory");
}

/* ---- bulk copies, and the order of blocks ---- */

DEVICE void bulk_fetch(Shared to, const void *from, uint32_t bytes, Shared barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
                 : "memory");
}

DEVICE void bulk_put(float *to, Shared from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n\t"
                 "cp.async.bulk.commit_group;" ::"l"(__cvta_generic_to_global(to)),
                 "r"(from), "r"(bytes)
                 : "memory");
}

DEVICE void bulk_add(float *to, Shared from, uint32_t bytes)
{
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;\n\t"
                 "cp.async.bulk.commit_group;" ::"l"(__cvta_generic_to_global(to)),
                 "r"(from), "r"(bytes)
                 : "memory");
}

DEVICE void bulks_read(void)
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

DEVICE void bulks_wait(void)
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* Ordinary instructions read and write the counter, and bulk copies use another proxy. The fence
 * puts both in one order. */
DEVICE void counter_wait(uint32_t *counter, uint32_t value)
{
    uint32_t is;
    do
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                     : "=r"(is)
                     : "l"(__cvta_generic_to_global(counter))
                     : "memory");
    while (is != value);
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

DEVICE void counter_set(uint32_t *counter, uint32_t value)
{
    asm volatile("fence.proxy.async.global;\n\t"
                 "st.release.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(counter)),
                 "r"(value)
                 : "memory");
}

/* ---- registers: all warps of a warpgroup must call these functions; n must be a multiple of 8
 * ---- */

#define registers_shrink(n) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((int)(n)))
#define registers_grow(n)   asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)(n)))

/* ---- products ---- */

DEVICE void products_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Makes one group of the products that were issued since the last call. */
DEVICE void products_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until all older groups of products have ended. The latest `groups` of them (a constant) may
 * still run. */
#define products_wait(groups)                                                                      \
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory")

/* Keeps the next products_wait after the computation of x, which must not be negative. ptxas may
 * move a wait to an earlier place, but not across a store. So this function stores x if x is below
 * zero, which never happens. */
DEVICE void products_wait_behind(float x, Shared spare)
{
    asm volatile("{\n\t.reg .pred p;\n\tsetp.lt.f32 p, %1, 0f00000000;\n\t"
                 "@p st.shared.f32 [%0], %1;\n\t}" ::"r"(spare),
                 "f"(x)
                 : "memory");
}

#define ACCUMULATORS_4(d, i) "+f"((d)[i]), "+f"((d)[i + 1]), "+f"((d)[i + 2]), "+f"((d)[i + 3])
#define ACCUMULATORS_16(d, i)                                                                      \
    ACCUMULATORS_4(d, i), ACCUMULATORS_4(d, i + 4), ACCUMULATORS_4(d, i + 8),                      \
        ACCUMULATORS_4(d, i + 12)
#define ACCUMULATORS_32(d, i) ACCUMULATORS_16(d, i), ACCUMULATORS_16(d, i + 16)
#define ACCUMULATORS_64(d, i) ACCUMULATORS_32(d, i), ACCUMULATORS_32(d, i + 32)
#define NAMES_32                                                                                   \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                       \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define NAMES_64                                                                                   \
    NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                   \
             "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

/* D = A B, or D += A B if `add` is 1. A row of B in shared memory is a column of the product
 * (MATRIX_rows). */
#define PRODUCT_ROWS(type, ptx, n, registers, names, at_a, at_b, adds)                             \
    DEVICE void product_rows_##n##_##type(float d[registers], uint64_t a, uint64_t b, int add)     \
    {                                                                                              \
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " adds ", 0;\n\t"                       \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." ptx "." ptx " {" names      \
                     "}, " at_a ", " at_b ", p, 1, 1, 0, 0;\n\t}"                                  \
                     : ACCUMULATORS_##registers(d, 0)                                              \
                     : "l"(a), "l"(b), "r"(add));                                                  \
    }
#define PRODUCT_ROWS_64(type, ptx)  PRODUCT_ROWS(type, ptx, 64, 32, NAMES_32, "%32", "%33", "%34")
#define PRODUCT_ROWS_128(type, ptx) PRODUCT_ROWS(type, ptx, 128, 64, NAMES_64, "%64", "%65", "%66")
PRODUCT_ROWS_64(bf16, "bf16")
PRODUCT_ROWS_64(f16, "f16")
PRODUCT_ROWS_128(bf16, "bf16")
PRODUCT_ROWS_128(f16, "f16")

/* D = A B, or D += A B if `add` is 1. A row in shared memory, both of A and of B, belongs to one
 * value of k (MATRIX_columns for both). */
#define PRODUCT_TURNED(type, ptx)                                                                  \
    DEVICE void product_turned_64_##type(float d[32], uint64_t a, uint64_t b, int add)             \
    {                                                                                              \
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %34, 0;\n\t"                            \
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32." ptx "." ptx " {" NAMES_32       \
                     "}, %32, %33, p, 1, 1, 1, 1;\n\t}"                                            \
                     : ACCUMULATORS_32(d, 0)                                                       \
                     : "l"(a), "l"(b), "r"(add));                                                  \
    }
PRODUCT_TURNED(bf16, "bf16")
PRODUCT_TURNED(f16, "f16")

/* D += A B with A in registers. A row of B in shared memory belongs to one value of k
 * (MATRIX_columns). */
#define PRODUCT_COLUMNS(type, ptx, n, registers, names, a0, a1, a2, a3, at_b, add)                 \
    DEVICE void product_columns_##n##_##type(float d[registers], const uint32_t a[4], uint64_t b)  \
    {                                                                                              \
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " add ", 0;\n\t"                        \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." ptx "." ptx " {" names      \
                     "}, {" a0 "," a1 "," a2 "," a3 "}, " at_b ", p, 1, 1, 1;\n\t}"                \
                     : ACCUMULATORS_##registers(d, 0)                                              \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));                \
    }
#define PRODUCT_COLUMNS_64(type, ptx)                                                              \
    PRODUCT_COLUMNS(type, ptx, 64, 32, NAMES_32, "%32", "%33", "%34", "%35", "%36", "%37")
#define PRODUCT_COLUMNS_128(type, ptx)                                                             \
    PRODUCT_COLUMNS(type, ptx, 128, 64, NAMES_64, "%64", "%65", "%66", "%67", "%68", "%69")
PRODUCT_COLUMNS_64(bf16, "bf16")
PRODUCT_COLUMNS_64(f16, "f16")
PRODUCT_COLUMNS_128(bf16, "bf16")
PRODUCT_COLUMNS_128(f16, "f16")
#endif

DEVICE uint64_t matrix_of(Shared at, uint32_t leading_bytes, uint32_t stride_bytes)
{
    uint64_t address = (shared_window(at) & 0x3ffff) >> 4;
    return address | (uint64_t)(leading_bytes >> 4) << 16 | (uint64_t)(stride_bytes >> 4) << 32 |
           UINT64_C(1) << 62;
}

/* Returns the first address from `at` on that is a multiple of the 1024 bytes of a swizzle
 * pattern. */
DEVICE Shared shared_pattern(Shared at)
{
    return at + (SWIZZLE_BYTES - shared_window(at) % SWIZZLE_BYTES) % SWIZZLE_BYTES;
}

/* Returns the address of 16-byte chunk `chunk`, if `at` is the address of chunk 0 in the same row
 * of 128 bytes. */
DEVICE Shared shared_chunk(Shared at, int chunk)
{
    return at + (int32_t)((shared_window(at) ^ (uint32_t)chunk << 4) - shared_window(at));
}

/* Returns the address of 16-byte chunk `chunk` of row `row` in a tile that begins at a swizzle
 * pattern. A tile of more than 64 columns is stored as several tiles of 64 columns, one after the
 * other. */
DEVICE Shared swizzled_chunk(Shared tile, int rows, int row, int chunk)
{
    return tile + (chunk / 8 * rows + row) * 128 + (((chunk & 7) ^ (row & 7)) << 4);
}

#endif
