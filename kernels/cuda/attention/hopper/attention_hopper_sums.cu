/* Two small kernels that the gradient in one kernel needs. The one before it computes delta, copies
 * lse into the order of heads, and sets the counters to 0. The one after it converts the fp32 sums
 * of dQ to the output's dtype and order. */
#include "kernels/cuda/attention/hopper/attention_hopper.h"

#include "kernels/cuda/attention/hopper/attention_hopper_sums.cuh"
#include "kernels/cuda/reduce.cuh"

enum { SUMS_THREADS = 256, TILE_WARPS = 4, TILE_THREADS = 512, BEHIND = 8 };

typedef struct GradRowsArgs {
    Array dout, out;
    const float *lse;
    GradScratch to;
    int64_t rows, S, heads, E, n_turns;
    int32_t lanes; /* number of threads that compute a row */
} GradRowsArgs;

/* Computes delta, the sum of dO O over a row. `lanes` threads compute a row, eight columns each. */
KERNEL(attention_grad_rows, GradRowsArgs, SUMS_THREADS, 4)
{
    const int64_t i = (int64_t)blockIdx.x * SUMS_THREADS + threadIdx.x, row = i / a.lanes;
    const int column = (int)(i % a.lanes) * EIGHT;
    float x = 0, of_dout[EIGHT], of_out[EIGHT];
    if (i <= a.n_turns) a.to.turns[i] = 0; /* sets all counters to 0, and the ticket after them */
    if (row < a.rows && column < a.E) {
        load(a.dout, row * a.E + column, EIGHT, of_dout);
        load(a.out, row * a.E + column, EIGHT, of_out);
        UNROLL for (int k = 0; k < EIGHT; k++) x = fmaf(of_dout[k], of_out[k], x);
    }
    for (int far = a.lanes / 2; far > 0; far /= 2) x += __shfl_xor_sync(FULL, x, far);
    if (row >= a.rows || column > 0) return;
    const int64_t head = row % a.heads, s = row / a.heads % a.S, b = row / (a.heads * a.S);
    const int64_t at = (b * a.heads + head) * a.S + s;
    a.to.delta[at] = x;
    a.to.lse[at] = a.lse[row] * LOG2_E;
}

bool attention_grad_rows_before(const KernelArgs *args, const AttentionArgs *a, int head,
                                const CudaContext *cuda, CudaError *error)
{
    GradRowsArgs r;
    r.dout = array_of(args, 0, a->E);
    r.out = array_of(args, 4, a->E);
    r.lse = a->lse;
    r.to = grad_scratch(a, head);
    r.rows = a->B * a->S * a->G * a->R;
    r.S = a->S, r.heads = a->G * a->R, r.E = a->E;
    r.n_turns = r.to.ticket - r.to.turns;
    r.lanes = head / EIGHT;
    return LAUNCH(attention_grad_rows, ceil_div(r.rows * r.lanes, SUMS_THREADS), SUMS_THREADS, 0, r,
                  cuda, error);
}

typedef struct GradSumsArgs {
    const float *sums;
    const uint32_t *turns;
    Array dq;
    int64_t n, S, heads, E;
    float scale;
    int32_t head, accumulate;
} GradSumsArgs;

/* A thread converts eight columns of two rows of a tile. The sums of a tile are stored as
 * [warpgroup][tile of 8 columns][thread][4], so these 16 numbers come from four neighbouring
 * threads. If no block has added to a tile, no key is seen by its queries, and dQ is 0. */
KERNEL(attention_grad_sums, GradSumsArgs, SUMS_THREADS, 4)
{
    const int64_t i = (int64_t)blockIdx.x * SUMS_THREADS + threadIdx.x, tile = i / TILE_THREADS;
    if (i >= a.n) return;
    const int at = (int)(i % TILE_THREADS), eight = at % EIGHT, row = at / EIGHT % EIGHT;
    const int warp = at / (EIGHT * EIGHT) % TILE_WARPS, half = at / (EIGHT * EIGHT * TILE_WARPS);
    const int tiles = (int)(a.S / (a.head == 64 ? 128 : 64));
    const int column = eight * EIGHT + (a.head == 64 ? 0 : half * 64);
    const int64_t query =
        tile % tiles * (a.head == 64 ? 128 : 64) + (a.head == 64 ? half * 64 : 0) + warp * 16 + row;
    const int64_t head = tile / tiles % a.heads, b = tile / tiles / a.heads;
    const float *const from = a.sums + tile * TILE_THREADS * 16 +
                              ((half * EIGHT + eight) * 128 + warp * WARP + row * 4) * 4;
    const bool is = a.turns[tile] > 0;
    float x[2][EIGHT], old[EIGHT];
    if (column >= a.E) return;
    UNROLL for (int lane = 0; lane < 4; lane++)
    {
        float4 v;
        v.x = v.y = v.z = v.w = 0;
        if (is) v = *ALIGNED(const float4, from + lane * 4);
        x[0][lane * 2] = v.x, x[0][lane * 2 + 1] = v.y;
        x[1][lane * 2] = v.z, x[1][lane * 2 + 1] = v.w;
    }
    UNROLL for (int k = 0; k < 2; k++)
    {
        const int64_t to = ((b * a.S + query + k * BEHIND) * a.heads + head) * a.E + column;
        if (a.accumulate) load(a.dq, to, EIGHT, old);
        UNROLL for (int e = 0; e < EIGHT; e++) x[k][e] =
            fmaf(x[k][e], a.scale, a.accumulate ? old[e] : 0);
        store(a.dq, to, EIGHT, x[k]);
    }
}

bool attention_grad_sums_after(const KernelArgs *args, const AttentionArgs *a, int head,
                               const CudaContext *cuda, CudaError *error)
{
    const GradScratch scratch = grad_scratch(a, head);
    GradSumsArgs s;
    s.sums = scratch.dq;
    s.turns = scratch.turns;
    s.dq = array_of(args, 6, a->E);
    s.n = (scratch.ticket - scratch.turns) * TILE_THREADS;
    s.S = a->S, s.heads = a->G * a->R, s.E = a->E;
    s.scale = a->scale;
    s.head = head;
    s.accumulate = (a->accumulate & 1) != 0;
    return LAUNCH(attention_grad_sums, ceil_div(s.n, SUMS_THREADS), SUMS_THREADS, 0, s, cuda,
                  error);
}
