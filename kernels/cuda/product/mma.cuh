/* Functions for the instructions of compute capability 8.0 that attention uses. They are matrix
 * products by a warp, and copies into shared memory that run while the threads continue. The PTX
 * manual defines these layouts for mma.m16n8k16. Each register of A and B holds two numbers.
 * Positions are given as (row, column), with g = lane / 4 and t = lane % 4:
 *
 *    A [16,16]  a0 (g, 2t..) a1 (g+8, 2t..) a2 (g, 2t+8..) a3 (g+8, 2t+8..)
 *    B [16,8]   b0 (2t.., g) b1 (2t+8.., g)
 *    C [16,8]   c0 (g, 2t) c1 (g, 2t+1) c2 (g+8, 2t) c3 (g+8, 2t+1)   fp32
 *
 * tests/cuda/emulator/mma_on_cpu.h defines the same names for the CPU. */
#ifndef TANDEM_KERNELS_CUDA_PRODUCT_MMA_CUH
#define TANDEM_KERNELS_CUDA_PRODUCT_MMA_CUH

#include "kernels/cuda/number.cuh"

#ifdef __CUDACC__
/* UNROLL_1 stands before a loop that indexes no array in registers, so unrolling it would not
 * help. */
#define UNROLL_1 _Pragma("unroll 1")
#define UNROLL_4 _Pragma("unroll 4")

/* An address in shared memory, which fits into one word. */
typedef uint32_t Shared;
DEVICE Shared shared_of(const void *p)
{
    return (Shared)__cvta_generic_to_shared(p);
}
DEVICE void *shared_pointer(Shared at)
{
    return __cvta_shared_to_generic(at);
}

/* Computes c += a b, where a and b are matrices of bf16 numbers. The sums are in fp32. */
DEVICE void mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

DEVICE void mma_f16(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Loads four 8 x 8 matrices of 16-bit numbers from shared memory. Lane l passes the address of row
 * l % 8 (16 bytes) of matrix l / 8. In lane l, r[i] gets elements 2 (l % 4) and 2 (l % 4) + 1 of
 * row l / 4 of matrix i. */
DEVICE void load_matrices(uint32_t r[4], Shared row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

/* Loads four such matrices and transposes each of them. */
DEVICE void load_matrices_transposed(uint32_t r[4], Shared row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

/* Starts to copy 16 bytes to shared memory. If `whole` is false, 16 zeros are written instead, but
 * `from` must still be readable. Both addresses must be multiples of 16. Other threads may read the
 * bytes after copies_wait and a barrier. */
DEVICE void copy_start(Shared to, const void *from, bool whole)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(whole ? 16 : 0)
                 : "memory");
}

/* Makes one group of the copies that this thread has started since the last call. */
DEVICE void copies_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until all older groups of copies have arrived. The latest `groups` of them (a constant) may
 * still be under way. */
#define copies_wait(groups) asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory")
#endif

#endif
