/* Computes the largest magnitude (amax) of a whole tensor or of each of its rows, inside the kernel
 * that computes the tensor. Two magnitudes are compared by their fp32 bits. The bits of a NaN are
 * larger than those of any number, so a NaN is kept. A maximum does not depend on the order in
 * which threads run. */
#ifndef TANDEM_KERNELS_CUDA_AMAX_CUH
#define TANDEM_KERNELS_CUDA_AMAX_CUH

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"

typedef enum AmaxOf { AMAX_nothing, AMAX_all, AMAX_rows } AmaxOf;

typedef struct Amax {
    uint32_t *out; /* one magnitude (must be 0 before the launch), or one for each row; each is an
                      fp32 number, stored as its bits */
    int32_t of;
} Amax;

DEVICE uint32_t magnitude_bits(float x)
{
    return BITS_OF_FLOAT(x) & 0x7fffffffu;
}

/* Returns `most`, or the largest magnitude of the first n elements of x if that is larger. All
 * magnitudes are fp32 bits. */
DEVICE uint32_t amax_of_eight(const float x[EIGHT], int n, uint32_t most)
{
    UNROLL for (int k = 0; k < EIGHT; k++)
    {
        uint32_t bits = k < n ? magnitude_bits(x[k]) : 0;
        most = bits > most ? bits : most;
    }
    return most;
}

/* Returns true if `part` is an amax instruction that reads the buffer `made`, seen as `rows` rows
 * of `elements / rows` elements of `dtype`. The kernel that writes `made` can then compute the
 * amax, too. */
static inline bool amax_joins(const CudaChainPart *part, const void *made, DType dtype,
                              int64_t elements, int64_t rows)
{
    const KernelArgs *args = part->args;
    if (part->op != OP_amax && part->op != OP_amax_of_tokens) return false;
    return args->ptr[0] == made && args->dtype[0] == dtype && args->elements[0] == elements &&
           args->dtype[1] == DT_f32 && (part->op == OP_amax || args->elements[1] == rows);
}

static inline Amax amax_of_part(const CudaChainPart *part)
{
    Amax amax;
    amax.out = (uint32_t *)part->args->ptr[1];
    amax.of = part->op == OP_amax ? AMAX_all : AMAX_rows;
    return amax;
}

/* Sets the maximum of a whole tensor to 0 before a launch in which several blocks raise it. */
static inline bool amax_clear(Amax amax, const CudaContext *cuda, CudaError *error)
{
    return amax.of != AMAX_all || device_zero(amax.out, sizeof(float), cuda, error);
}

#endif
