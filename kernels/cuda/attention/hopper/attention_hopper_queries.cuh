/* Computes dQ = scale dS K for compute capability 9.0, one dtype and one head size. A block holds
 * 128 queries of one head and their output gradients, 64 for each of two computing warpgroups. A
 * slot of the ring gets a tile of keys together with its values. The kernel computes P again from
 * lse, then dS = P (dO V^T - delta), in the registers where the product with the keys needs it.
 * While dS of tile j is computed, the product of tile j-1 runs:
 *
 *   issue S(j) = Q K(j)^T, dP(j) = dO V(j)^T and dQ += dS(j-1) K(j-1)
 *   wait for S(j); compute P(j) = exp(S(j) - lse)
 *   wait for dP(j); compute dS(j)
 *   wait for dQ; release the slot of tile j-1 */
#define F(name) NAME(name##_hopper_dq)
#if HEAD == 64
#define COLUMNS 128
#else
#define COLUMNS 64
#endif
#include "kernels/cuda/attention/hopper/attention_hopper_tile.cuh"

typedef struct F(State) {
    float dq[HEAD / 2], s[COLUMNS / 2], dp[COLUMNS / 2];
    uint32_t ds[COLUMNS / 16][4];
} F(State);

/* Runs in the one thread that fetches: first the queries and output gradients, then tiles of keys
 * with their values. */
DEVICE void F(produce)(const HopperQueriesArgs *h, HopperShared s, const AttentionPlace *at,
                       int n_tiles)
{
    barrier_expect(s.barriers, 2 * F(own_bytes));
    F(fetch)(s.own, &h->q, s.barriers, at, HOPPER_ROWS, at->head, (int)at->first);
    F(fetch)
    (s.own + F(own_bytes), &h->dout, s.barriers, at, HOPPER_ROWS, at->head, (int)at->first);
    UNROLL_1 for (int j = 0; j < n_tiles; j++)
    {
        const HopperSlot slot = hopper_slot(s, j, 2 * F(tile_bytes));
        barrier_wait(slot.empty, slot.parity ^ 1);
        barrier_expect(slot.full, 2 * F(tile_bytes));
        F(fetch)(slot.at, &h->k, slot.full, at, COLUMNS, at->g, j * COLUMNS);
        F(fetch)(slot.at + F(tile_bytes), &h->v, slot.full, at, COLUMNS, at->g, j * COLUMNS);
    }
}

/* Issues the two products S = Q K^T and dP = dO V^T, from which dS is computed. */
DEVICE void F(scores)(F(State) * state, Shared own, HopperSlot pair)
{
    barrier_wait(pair.full, pair.parity);
    F(rows_by_rows)(state->s, own, pair.at);
    F(rows_by_rows)(state->dp, own + F(own_bytes), pair.at + F(tile_bytes));
}

/* Replaces the scores s by P. The scores' first key is `key`. */
DEVICE void F(exponentials)(float s[COLUMNS / 2], const HopperRows *rows, const HopperSums *sums,
                            float scale, int key)
{
    UNROLL for (int i = 0; i < COLUMNS / 2; i++) s[i] =
        device_exp2(fmaf(s[i], scale, -sums->lse[i / 2 % 2]));
    F(hide)(s, rows, key, 0);
}

/* Replaces P, in s, by dS = P (dP - delta). */
DEVICE void F(differentiate)(float s[COLUMNS / 2], const float dp[COLUMNS / 2],
                             const HopperSums *sums)
{
    UNROLL for (int i = 0; i < COLUMNS / 2; i++) s[i] *= dp[i] - sums->delta[i / 2 % 2];
}

/* Runs in one computing warpgroup, whose queries and output gradients begin at address `own`. Tile
 * 0 is handled before the loop, for the reason given in attention_hopper.cuh. */
DEVICE void F(consume)(const AttentionArgs *a, F(State) * state, HopperShared shared, Shared own,
                       const HopperRows *rows, const HopperSums *sums, int n_tiles)
{
    const float scale = a->scale * LOG2_E;
    barrier_wait(shared.barriers, 0);
    if (n_tiles == 0) return;
    HopperSlot before = hopper_slot(shared, 0, 2 * F(tile_bytes));
    F(scores)(state, own, before);
    products_wait(0);
    F(exponentials)(state->s, rows, sums, scale, 0);
    F(differentiate)(state->s, state->dp, sums);
    F(round)(state->ds, state->s);
    UNROLL_1 for (int j = 1; j < n_tiles; j++)
    {
        const HopperSlot pair = hopper_slot(shared, j, 2 * F(tile_bytes));
        F(scores)(state, own, pair);
        F(times)(state->dq, state->ds, before.at);
        products_wait(2);
        F(exponentials)(state->s, rows, sums, scale, j * COLUMNS);
        products_wait(1);
        F(differentiate)(state->s, state->dp, sums);
        products_wait(0);
        hopper_give_back(before);
        F(round)(state->ds, state->s);
        before = pair;
    }
    F(times)(state->dq, state->ds, before.at);
    products_wait(0);
}

/* One block for each tile of queries, head and sequence. Shared memory holds the barriers, queries,
 * output gradients and the ring. */
KERNEL_OF(F(attention), HopperQueriesArgs, HOPPER_THREADS, 1)
{
    if (!HOPPER_CODE) return;
    SHARED(unsigned char, memory);
    const HopperShared shared = hopper_shared(shared_of(memory), 2 * F(own_bytes));
    const AttentionPlace at =
        attention_place(&a.a, a.a.S, HOPPER_ROWS, a.a.R, a.a.beside_queries, true);
    const int group = (int)threadIdx.x / WARPGROUP;
    const int n_tiles = (int)((hopper_keys(&a.a, &at) + COLUMNS - 1) / COLUMNS);
    hopper_begin(shared, 1);
    if (group == 0) {
        registers_shrink(HOPPER_PRODUCER_REGISTERS);
        if (threadIdx.x == 0) F(produce)(&a, shared, &at, n_tiles);
    } else {
        registers_grow(HOPPER_CONSUMER_REGISTERS);
        const int row = (group - 1) * 64;
        const int64_t heads = a.a.G * a.a.R, first = (at.b * a.a.S + at.first) * heads + at.head;
        const HopperRows rows = hopper_rows(&a.a, &at, row);
        const HopperSums sums = hopper_sums(&a.a, &at, row);
        const float scales[2] = {a.a.scale, a.a.scale};
        F(State) state;
        UNROLL for (int i = 0; i < HEAD / 2; i++) state.dq[i] = 0;
        F(consume)(&a.a, &state, shared, shared.own + row * 128, &rows, &sums, n_tiles);
        F(scale_rows)(state.dq, scales);
        barrier_threads(row == 0 ? 1u : 2u, WARPGROUP);
        F(store)
        (state.dq, shared.own, row, (uint16_t *)a.a.dq + first * a.a.E, heads * a.a.E,
         a.a.S - at.first, a.a.E, (a.a.accumulate & 1) != 0);
    }
}

static bool NAME(launch_queries)(const AttentionArgs *a, const CudaContext *cuda, CudaError *error)
{
    HopperQueriesArgs h;
    int64_t heads = a->G * a->R, blocks = ceil_div(a->S, HOPPER_ROWS) * heads * a->B;
    h.a = *a;
    if (!hopper_map(&h.q, a, a->q, heads, a->S, HOPPER_ROWS, cuda, error) ||
        !hopper_map(&h.dout, a, a->dout, heads, a->S, HOPPER_ROWS, cuda, error) ||
        !hopper_map(&h.k, a, a->k, a->G, a->T, COLUMNS, cuda, error) ||
        !hopper_map(&h.v, a, a->v, a->G, a->T, COLUMNS, cuda, error))
        return false;
    size_t shared_bytes = hopper_shared_bytes(2 * F(own_bytes), 2 * F(tile_bytes));
    return LAUNCH_OF(F(attention), blocks, HOPPER_THREADS, shared_bytes, h, cuda, error);
}

#include "kernels/cuda/attention/attention_undef.cuh"
