/* Gradients of keys and of values for one dtype and one head size. One kernel computes both if
 * their sums fit into the registers. Otherwise there are two kernels, and each of them computes P
 * again. */
#if HEAD < 256
#define PART(name) NAME(name##_dkv)
#define WANT_K     1
#define WANT_V     1
#include "kernels/cuda/attention/attention_grad_part.cuh"
#else
#define PART(name) NAME(name##_dk)
#define WANT_K     1
#define WANT_V     0
#include "kernels/cuda/attention/attention_grad_part.cuh"
#define PART(name) NAME(name##_dv)
#define WANT_K     0
#define WANT_V     1
#include "kernels/cuda/attention/attention_grad_part.cuh"
#endif

static bool NAME(launch_keys)(const AttentionArgs *a, const CudaContext *cuda, CudaError *error)
{
#if HEAD < 256
    return NAME(launch_dkv)(a, cuda, error);
#else
    return NAME(launch_dk)(a, cuda, error) && NAME(launch_dv)(a, cuda, error);
#endif
}
