/* Computes the time of a state-space scan in its published kernels (SSD, arxiv.org/abs/2405.21060;
 * github.com/state-spaces/mamba, ops/triton). They work in chunks of L tokens with matrix products
 * on tensor cores. Between these kernels, data pass through memory in fp32: the states of each
 * chunk, and the scores of each group. Each product is assumed to have the efficiency of an
 * ordinary product of its size. */
#include <assert.h>
#include <math.h>

#include "sim/compute/kernels.h"

typedef struct Chunked {
    const Device *device;
    DType dtype;
    double chunks, heads, groups; /* chunks: number of chunks in all samples; heads, groups: numbers
                                     for each chunk */
    double L, E, Q; /* numbers of tokens in a chunk, of features of a head, and of states */
} Chunked;

static double product_s(const Chunked *s, double batch, double m, double n, double k)
{
    return kernel_gemm_s(s->device, s->dtype, s->chunks * batch, m, n, k, NULL);
}

/* Returns the time of `times` products of the states of each head with the L tokens of a chunk. */
static double states_s(const Chunked *s, double times)
{
    return times * product_s(s, s->heads, s->L, s->E, s->Q);
}

/* Returns the time of `times` products of a chunk's L x L scores with the features of each head.
 * Only scores below the diagonal count. */
static double weighed_s(const Chunked *s, double times)
{
    return times * product_s(s, s->heads, s->L, s->E, s->L) / 2;
}

/* Returns the time of `times` products that make L x L scores, or multiply scores with B or C. Each
 * is done once for each group. */
static double scored_s(const Chunked *s, double times)
{
    return times * product_s(s, s->groups, s->L, s->L, s->Q);
}

/* Returns the time to move all states `states` times and all scores `scores` times between
 * kernels. */
static double between_s(const Chunked *s, double states, double scores)
{
    const double of_states = s->heads * s->E * s->Q, of_scores = s->groups * s->L * s->L;
    return kernel_memory_s(s->device,
                           sizeof(float) * s->chunks * (states * of_states + scores * of_scores));
}

double kernel_scan_s(const Device *device, const ScanWork *w)
{
    assert(w->chunk >= 1);
    const double L = fmin(w->chunk, w->tokens);
    const Chunked s = {.device = device,
                       .dtype = w->dtype,
                       .chunks = w->samples * ceil(w->tokens / L),
                       .heads = w->groups * w->heads,
                       .groups = w->groups,
                       .L = L,
                       .E = w->head,
                       .Q = w->state};
    const double floor_s = device->kernel_floor_s; /* added for each kernel but the first one, whose
                                                      floor the caller adds */
    switch (w->part) {
    case SCAN_forward: /* kernels: step sizes, states, passing states on from chunk to chunk,
                          scores, outputs */
        return states_s(&s, 2) + weighed_s(&s, 1) + scored_s(&s, 1) + between_s(&s, 4, 2) +
               4 * floor_s;
    case SCAN_backward: /* kernels: states and scores again, gradients of states, passing these
                           back, dx, decays */
        return states_s(&s, 3) + weighed_s(&s, 2) + scored_s(&s, 1) + between_s(&s, 8, 2) +
               8 * floor_s;
    case SCAN_shared: /* kernels: dB and dC from the states; then the gradient of the scores; then
                         its contributions to dB and dC */
        return states_s(&s, 2) + weighed_s(&s, 1) + scored_s(&s, 2) + between_s(&s, 2, 3) +
               4 * floor_s;
    }
    return 0;
}
