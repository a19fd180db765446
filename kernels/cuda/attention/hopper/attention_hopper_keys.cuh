/* dK = scale dS^T Q and dV = P^T dO for compute capability 9.0, one type and one head size. A block
 * holds 128 keys and values of one group, 64 for each of two warpgroups, and visits the queries of
 * all its heads in order: sums have one order, and no two blocks add to one number. Scores are held
 * transposed, [keys, queries], so that they are in registers where both products need them. Tiles
 * of queries and output gradients come in pairs through a ring. The fetching warp also loads the
 * rows' lse and delta, with ordinary loads.
 *
 *     S^T = K Q^T, dP^T = V dO^T     issued
 *     wait for S^T: P^T = exp(S^T - lse); dV += P^T dO issued
 *     wait for dP^T: dS^T = P^T (dP^T - delta); dK += dS^T Q issued
 *     wait for both: the slot is free */
#define F(name) NAME(name##_hopper_dkv)
#if HEAD == 64
#define COLUMNS 128
#else
#define COLUMNS 64
#endif
#include "kernels/cuda/attention/hopper/attention_hopper_tile.cuh"
#include "kernels/cuda/attention/hopper/attention_hopper_turned.cuh"

/* A slot: queries, output gradients, and [2, COLUMNS] lse (in bits) and delta. */
enum { F(slot_bytes) = 2 * F(tile_bytes) + SWIZZLE_BYTES };

typedef struct F(State) {
    float dk[HEAD / 2], dv[HEAD / 2];
} F(State);

DEVICE float *F(rows_of)(HopperSlot slot)
{
    return (float *)shared_pointer(slot.at + 2 * F(tile_bytes));
}

/* The fetching warp. Its first lane starts the copies of keys and values, then of pairs of queries
 * and output gradients. All its lanes load lse and delta. Beyond the queries the probability is 0.
 * It is one loop: two loops took more than a producer's registers. */
DEVICE void F(produce)(const HopperKeysArgs *h, HopperShared s, const AttentionPlace *at,
                       const AttentionWalk *walk)
{
    const int lane = (int)threadIdx.x % WARP, heads = (int)(h->a.G * h->a.R);
    const int64_t sequence = at->b * h->a.S * heads;
    int head = (int)(at->g * h->a.R), query = walk->first;
    if (lane == 0) {
        barrier_expect(s.barriers, 2 * F(own_bytes));
        F(fetch)(s.own, &h->k, s.barriers, at, HOPPER_ROWS, at->g, (int)at->first);
        F(fetch)(s.own + F(own_bytes), &h->v, s.barriers, at, HOPPER_ROWS, at->g, (int)at->first);
    }
    UNROLL_1 for (int i = 0; i < walk->n; i++)
    {
        const HopperSlot slot = hopper_slot(s, i, F(slot_bytes));
        float *const rows = F(rows_of)(slot);
        /* rows of a box beyond this belong to no query */
        const int64_t end = attention_end(&h->a, query);
        barrier_wait(slot.empty, slot.parity ^ 1);
        if (lane == 0) {
            barrier_expect(slot.full, 2 * F(tile_bytes));
            F(fetch)(slot.at, &h->q, slot.full, at, COLUMNS, head, query);
            F(fetch)(slot.at + F(tile_bytes), &h->dout, slot.full, at, COLUMNS, head, query);
        }
        UNROLL_1 for (int column = lane; column < COLUMNS; column += WARP)
        {
            const bool is = query + column < end;
            const int64_t from = sequence + head + (is ? (int64_t)(query + column) * heads : 0);
            rows[column] = is ? h->a.lse[from] * LOG2_E : INFINITY;
            rows[COLUMNS + column] = is ? h->a.delta[from] : 0;
        }
        __syncwarp();
        if (lane == 0) barrier_arrive(slot.full);
        query = attention_next(walk, &h->a, query, COLUMNS);
        head += query == walk->first;
    }
}

/* One warpgroup, whose first row is `row`, processes the queries of one slot. */
DEVICE void F(one_slot)(const AttentionArgs *a, F(State) * state, Shared keys, HopperSlot slot,
                        int row, int limit)
{
    const float *const rows = F(rows_of)(slot);
    const int mine = row + (int)threadIdx.x / WARP % 4 * 16 + (int)threadIdx.x % WARP / 4;
    float s[COLUMNS / 2], dp[COLUMNS / 2];
    uint32_t p[COLUMNS / 16][4], ds[COLUMNS / 16][4];
    F(rows_by_rows)(s, keys, slot.at);
    F(rows_by_rows)(dp, keys + F(own_bytes), slot.at + F(tile_bytes));
    products_wait(1);
    F(exponentials)(s, rows, a->scale * LOG2_E, mine, limit);
    F(round)(p, s);
    F(times)(state->dv, p, slot.at + F(tile_bytes));
    products_wait(1);
    F(differentiate)(dp, s, rows + COLUMNS);
    F(round)(ds, dp);
    F(times)(state->dk, ds, slot.at);
    products_wait(0);
    __syncwarp();
    hopper_give_back(slot);
}

/* One warpgroup. */
DEVICE void F(consume)(const AttentionArgs *a, F(State) * state, HopperShared shared,
                       const AttentionPlace *at, const AttentionWalk *walk, int row)
{
    const int limit = hopper_limit(a, at);
    int query = walk->first;
    barrier_wait(shared.barriers, 0);
    UNROLL_1 for (int i = 0; i < walk->n; i++)
    {
        const HopperSlot slot = hopper_slot(shared, i, F(slot_bytes));
        barrier_wait(slot.full, slot.parity);
        F(one_slot)
        (a, state, shared.own + row * 128, slot, row, limit + (int)attention_behind(a, query));
        query = attention_next(walk, a, query, COLUMNS);
    }
}

/* Blocks: tiles of keys x groups x sequences. Shared memory: barriers, keys, values, the ring. */
KERNEL_OF(F(attention), HopperKeysArgs, HOPPER_THREADS, 1)
{
    if (!HOPPER_CODE) return;
    SHARED(unsigned char, memory);
    const HopperShared shared = hopper_shared(shared_of(memory), 2 * F(own_bytes));
    const AttentionPlace at = attention_place(&a.a, a.a.T, HOPPER_ROWS, 1, a.a.beside_keys, false);
    const AttentionWalk walk = attention_walk(&a.a, &at, COLUMNS);
    const int group = (int)threadIdx.x / WARPGROUP;
    hopper_begin(shared, 2);
    if (group == 0) {
        registers_shrink(HOPPER_PRODUCER_REGISTERS);
        if (threadIdx.x < WARP) F(produce)(&a, shared, &at, &walk);
    } else {
        registers_grow(HOPPER_CONSUMER_REGISTERS);
        const int row = (group - 1) * 64;
        const int64_t stride = a.a.G * a.a.E, n_keys = a.a.T - at.first;
        const int64_t first = ((at.b * a.a.T + at.first) * a.a.G + at.g) * a.a.E;
        const float scales[2] = {a.a.scale, a.a.scale};
        F(State) state;
        UNROLL for (int i = 0; i < HEAD / 2; i++) state.dk[i] = state.dv[i] = 0;
        F(consume)(&a.a, &state, shared, &at, &walk, row);
        F(scale_rows)(state.dk, scales);
        barrier_threads(row == 0 ? 1u : 2u, WARPGROUP);
        F(store)
        (state.dk, shared.own, row, (uint16_t *)a.a.dk + first, stride, n_keys, a.a.E,
         (a.a.accumulate & 2) != 0);
        F(store)
        (state.dv, shared.own + F(own_bytes), row, (uint16_t *)a.a.dv + first, stride, n_keys,
         a.a.E, (a.a.accumulate & 4) != 0);
    }
}

static bool NAME(launch_keys)(const AttentionArgs *a, const CudaContext *cuda, CudaError *error)
{
    HopperKeysArgs h;
    int64_t heads = a->G * a->R, blocks = ceil_div(a->T, HOPPER_ROWS) * a->G * a->B;
    h.a = *a;
    if (!hopper_map(&h.q, a, a->q, heads, a->S, COLUMNS, cuda, error) ||
        !hopper_map(&h.dout, a, a->dout, heads, a->S, COLUMNS, cuda, error) ||
        !hopper_map(&h.k, a, a->k, a->G, a->T, HOPPER_ROWS, cuda, error) ||
        !hopper_map(&h.v, a, a->v, a->G, a->T, HOPPER_ROWS, cuda, error))
        return false;
    size_t shared_bytes = hopper_shared_bytes(2 * F(own_bytes), F(slot_bytes));
    return LAUNCH_OF(F(attention), blocks, HOPPER_THREADS, shared_bytes, h, cuda, error);
}

#include "kernels/cuda/attention/attention_undef.cuh"
