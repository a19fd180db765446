/* Contractions of the emulated device without a library: all by the plain kernel. */
#include "kernels/cuda/product/product.h"
#include "kernels/cuda/product/products.h"

bool cuda_contract(OpKind op, const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return product_plain(op, args, cuda, error);
}
