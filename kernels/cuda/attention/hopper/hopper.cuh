/* Instructions that only compute capability 9.0 has (its own code, sm_90a), as far as attention
 * uses them. There are products of a warpgroup (four warps, the first a multiple of four), which
 * run while its threads continue. One thread can start copies of boxes of a tensor. Barriers in
 * shared memory count arrivals and bytes. tests/cuda/emulator/hopper_on_cpu.h defines the same
 * names for the CPU, and ends the test if a rule is broken. The rules are the PTX manual's:
 *
 * Products (wgmma.mma_async). All threads of the warpgroup issue the same one. D [64, n] is in
 * registers: warp w has rows 16 w .., held as mma.cuh's C, tile after tile of eight columns; A from
 * registers is mma.cuh's A. From the issue until products_wait the registers of D and A may neither
 * be read nor written, and shared operands not written. products_fence stands before the first
 * product, and before one whose registers ordinary code has touched since. Products that add to the
 * same D, of one shape, follow each other without it.
 *
 * Matrices in shared memory (matrix_of): bits 0-13 are address / 16, 16-29 leading offset / 16,
 * 32-45 stride offset / 16, and 62-63 the swizzle, 1 for 128 bytes. Rows of 64 16-bit numbers are
 * 128 bytes apart, and the 16 bytes at address x lie at x ^ (x >> 7 & 7) << 4. Eight rows, 1024
 * bytes, are one pattern; the tile's address is a multiple of that. If k runs along a row
 * (MATRIX_rows), the stride leads from eight rows to the next eight, and the leading offset is
 * unused. The next 16 numbers of k are 32 bytes further. If k runs from row to row (MATRIX_columns,
 * B "transposed"), the stride leads from eight k to the next eight, and the leading offset from 64
 * columns to the next 64.
 *
 * Barriers (mbarrier). A phase ends when as many arrivals as barrier_init said, and as many bytes
 * as expected, have come; then the next phase begins. barrier_wait(b, parity) returns when the
 * phase of that parity has ended. The first phase has parity 0; before it ends, parity 1 counts as
 * ended. Other threads see an initialised barrier after barriers_ready and a barrier of the block.
 * Box copies also need shared_to_async before they see it.
 *
 * Boxes (cp.async.bulk.tensor) arrive in shared memory in the layout above, in any order. Each
 * counts all its bytes on the barrier. Elements outside of the tensor are zero. Box copies and
 * products access memory through another proxy than loads and stores. A thread that has waited for
 * them may use ordinary accesses. A thread that has stored data must call shared_to_async, then
 * both sides must meet at a barrier.
 *
 * Bulk copies (cp.async.bulk, cp.reduce.async.bulk) move a contiguous range, a multiple of 16
 * bytes, through the same proxy. bulk_fetch counts its bytes on a barrier like a box. bulk_put and
 * bulk_add write to global memory, or add fp32 numbers there. They belong to the thread that
 * started them: after bulks_read it may let others write the shared memory again, after bulks_wait
 * the numbers are in global memory. Additions of two bulks to one number have an order only if
 * something else orders them.
 *
 * Counters in global memory order the blocks of a launch. counter_wait returns when the counter has
 * the value; counter_set writes it. Bulks that were waited for before counter_set come before those
 * that start after the counter_wait that sees its value. */
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_HOPPER_HOPPER_CUH
#define TANDEM_KERNELS_CUDA_ATTENTION_HOPPER_HOPPER_CUH

#include "kernels/cuda/product/mma.cuh"

/* True if this compiler pass knows these instructions. In other passes the kernels do nothing. */
#if !defined(__CUDACC__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HOPPER_CODE 1
#else
#define HOPPER_CODE 0
#endif

enum { WARPGROUP = 128, SWIZZLE_COLUMNS = 64, SWIZZLE_BYTES = 1024 };
enum { TENSOR_DIMS = 4 };

/* A tensor of 16-bit numbers, the fastest dimension first, and the box to fetch from it. stride[i]
 * is that of dimension i + 1, in bytes. */
typedef struct TensorShape {
    const void *at;
    uint64_t dim[TENSOR_DIMS], stride[TENSOR_DIMS - 1];
    uint32_t box[TENSOR_DIMS];
    DType dtype;
} TensorShape;

typedef enum MatrixMajor { MATRIX_rows, MATRIX_columns } MatrixMajor;

#ifdef __CUDACC__
#include <cuda.h> /* only types: the one function comes from the loaded driver */

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

/* Returns the address as descriptors need it. */
DEVICE uint32_t shared_window(Shared at)
{
    return at;
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

/* Makes this thread's stores to shared memory, including barriers, visible to box copies and
 * products. */
DEVICE void shared_to_async(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

DEVICE void barrier_arrive(Shared barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Announces one arrival and this many bytes. */
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

/* A barrier for `threads` threads that use this number; number 0 is __syncthreads'. */
DEVICE void barrier_threads(uint32_t number, uint32_t threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/* Turns: `threads` threads use this number, half of them in turn_wait, the other half in turn_pass,
 * which does not wait. They order work in time alone. Shared data need another barrier. */
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

/* The fence orders the counter, which ordinary accesses read and write, with bulks. */
DEVICE void counter_wait(uint32_t *counter, uint32_t value)
{
    uint32_t is;
    do
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                     : "=r"(is)
                     : "l"(__cvta_generic_to_global(counter))
                     : "memory");
    while (is != value);
    asm volatile("fence.proxy.async;" ::: "memory");
}

DEVICE void counter_set(uint32_t *counter, uint32_t value)
{
    asm volatile("fence.proxy.async;\n\t"
                 "fence.acq_rel.gpu;\n\t"
                 "st.release.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(counter)),
                 "r"(value)
                 : "memory");
}

/* ---- registers: all warps of a warpgroup must call this; multiples of 8 ---- */

#define registers_shrink(n) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((int)(n)))
#define registers_grow(n)   asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)(n)))

/* ---- products ---- */

DEVICE void products_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Makes the products issued since the last call one group. */
DEVICE void products_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until all but the latest `groups` (a constant) are done. */
#define products_wait(groups)                                                                      \
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory")

/* Keeps the next products_wait behind the computation of x, which is never below zero. ptxas
 * moves a wait to an earlier place, but not past a store. So this function stores x under a
 * condition that is never true. */
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

/* D = A B, or D += A B with `add`; B's rows are n. */
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

/* D = A B, or D += A B with `add`; the rows of A, turned, and of B are k. */
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

/* D += A B, A in registers; B's rows are k. */
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

/* Returns the next address that is a multiple of a swizzle pattern. */
DEVICE Shared shared_pattern(Shared at)
{
    return at + (SWIZZLE_BYTES - shared_window(at) % SWIZZLE_BYTES) % SWIZZLE_BYTES;
}

/* Returns the address of a chunk that lies in the same row of 128 bytes; `at` is that of chunk 0.
 */
DEVICE Shared shared_chunk(Shared at, int chunk)
{
    return at + (int32_t)((shared_window(at) ^ (uint32_t)chunk << 4) - shared_window(at));
}

/* Returns the address of 16-byte chunk `chunk` in a row of a tile that begins a pattern. A tile
 * with more than 64 columns is several tiles of 64, one after the other. */
DEVICE Shared swizzled_chunk(Shared tile, int rows, int row, int chunk)
{
    return tile + (chunk / 8 * rows + row) * 128 + (((chunk & 7) ^ (row & 7)) << 4);
}

#endif
