/* Computes dK = scale dS^T Q and dV = P^T dO for compute capability 9.0, one dtype and one head
 * size. A block holds 128 keys and values of one group, 64 for each of two computing warpgroups. It
 * reads the queries of all heads of that group in order. So each sum has a fixed order, and each
 * number is written by one block only. Scores are kept transposed, [keys, queries], in the
 * registers where both products need them. A slot of the ring gets a tile of queries together with
 * its output gradients. The fetching warp loads the lse and delta of these queries with ordinary
 * loads.
 *
 *   issue S^T = K Q^T and dP^T = V dO^T
 *   wait for S^T; compute P^T = exp(S^T - lse); issue dV += P^T dO
 *   wait for dP^T; compute dS^T = P^T (dP^T - delta); issue dK += dS^T Q
 *   wait for dV and dK; release the slot */
#define F(name) NAME(name##_hopper_dkv)
#if HEAD == 64
#define COLUMNS 128
#else
#define COLUMNS 64
#endif
#include "kernels/cuda/attention/hopper/attention_hopper_tile.cuh"
#include "kernels/cuda/attention/hopper/attention_hopper_turned.cuh"

/* A slot holds queries, their output gradients, and an array [2, COLUMNS] with their lse (for base
 * 2) and delta. */
enum { F(slot_bytes) = 2 * F(tile_bytes) + SWIZZLE_BYTES };

typedef struct F(State) {
    float dk[HEAD / 2], dv[HEAD / 2];
} F(State);

DEVICE float *F(rows_of)(HopperSlot slot)
{
    return (float *)shared_pointer(slot.at + 2 * F(tile_bytes));
}

/* Runs in the fetching warp. Lane 0 starts the copies of keys and values, then of each tile of
 * queries with its output gradients. All lanes load lse and delta. Rows without a query get an lse
 * that makes P zero. Everything is in one loop, because two loops need more registers than this
 * warp has. */
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
        /* rows of the copied box from `end` on contain no query of this tile */
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

/* Processes the queries of one slot in one warpgroup, whose first key is row `row` of the block's
 * keys. */
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

/* Runs in one computing warpgroup and processes all tiles. */
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

/* One block for each tile of keys, group and sequence. Shared memory holds the barriers, keys,
 * values and the ring. */
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
