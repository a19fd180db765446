/* Computes dQ, dK and dV in one kernel for compute capability 9.0, one dtype and one head size. It
 * needs five matrix products for each score. A block holds 128 keys and values of one group, 64 for
 * each of two computing warpgroups, as in attention_hopper_keys.cuh. It reads the tiles of queries
 * of all heads in that group. The block's share of dQ for a tile is dS K over all 128 keys. So both
 * warpgroups need all of dS, and the block also stores it in shared memory for each tile. With
 * heads of 64 numbers, each warpgroup computes this share for half of the queries. With heads of
 * 128 numbers, it computes the share for half of the columns. Two other warps of the fetching
 * warpgroup add the shares to dQ in device memory, in fp32, in turn.
 *
 *   issue S^T = K Q^T and dP^T = V dO^T
 *   wait for S^T; compute P^T = exp(S^T - lse); issue dV += P^T dO
 *   wait for dP^T; compute and store dS^T = P^T (dP^T - delta); issue dK += dS^T Q
 *   wait until both warpgroups have stored dS; issue the share of dQ = dS K
 *   wait for dK and release the slot; wait for the share of dQ and hand it to an adding warp
 *
 * With heads of 128 numbers, S^T of the next tile is issued before the share of dQ is handed over,
 * so that the tensor cores have work meanwhile. On an H200, this made the kernel 5 to 6 % faster.
 * With heads of 64 numbers it would be 2 to 6 % slower, so it is not done.
 *
 * Shared memory has room for dS twice, because a warpgroup may begin the next tile while the other
 * one still multiplies dS of this tile. A warpgroup may overwrite dS of a tile after it has seen
 * the other warpgroup's dS of the next tile. The other warpgroup stores the next dS only after its
 * products with the old dS have ended.
 *
 * The kernel takes only full tiles. The causal mask is then the only mask of keys. With another
 * mask in the code, ptxas would run out of registers. */
#define F(name) NAME(name##_hopper_dqkv)
#if HEAD == 64
#define COLUMNS 128
#else
#define COLUMNS 64
#endif
#include "kernels/cuda/attention/hopper/attention_hopper_tile.cuh"
#include "kernels/cuda/attention/hopper/attention_hopper_turned.cuh"

/* Layout of shared memory. A slot holds queries, their output gradients, and an array [2, COLUMNS]
 * with their lse (for base 2) and delta. After the keys and values follow two copies of dS [queries
 * / 64][keys][64], for two tiles, and the block's share of dQ. */
enum {
    F(rows_bytes) = 2 * COLUMNS * 4,
    F(slot_bytes) = 2 * F(tile_bytes) + SWIZZLE_BYTES,
    F(scores_bytes) = HOPPER_ROWS * COLUMNS * 2,
    F(sums_bytes) = COLUMNS * HEAD * 4,
    F(before_ring) = 2 * F(own_bytes) + 2 * F(scores_bytes) + F(sums_bytes)
};

typedef struct F(State) {
    float dk[HEAD / 2], dv[HEAD / 2];
#if HEAD == 128
    float s[COLUMNS / 2]; /* S^T of the next tile, computed ahead of its turn */
#endif
} F(State);

DEVICE Shared F(scores_of)(HopperShared s, int i)
{
    return s.own + 2 * F(own_bytes) + i % 2 * F(scores_bytes);
}

DEVICE Shared F(sums_of)(HopperShared s)
{
    return s.own + 2 * F(own_bytes) + 2 * F(scores_bytes);
}

/* Runs in the one thread that fetches: first keys and values, then for each tile the queries, their
 * output gradients, lse and delta. */
DEVICE void F(produce)(const HopperGradArgs *h, HopperShared s)
{
    const GradWork work = grad_work(h, grad_ticket(s), COLUMNS);
    const AttentionPlace *const at = &work.at;
    const GradWalk *const walk = &work.walk;
    GradStep step = grad_first(&h->a, at, walk);
    barrier_expect(s.barriers, 2 * F(own_bytes));
    F(fetch)(s.own, &h->k, s.barriers, at, HOPPER_ROWS, at->g, (int)at->first);
    F(fetch)(s.own + F(own_bytes), &h->v, s.barriers, at, HOPPER_ROWS, at->g, (int)at->first);
    UNROLL_1 for (int i = 0; i < walk->n; i++)
    {
        const HopperSlot slot = hopper_slot_of(s, GRAD_SLOTS, i, F(slot_bytes));
        const Shared rows = slot.at + 2 * F(tile_bytes);
        const int64_t from = (int64_t)step.of_all * COLUMNS;
        barrier_wait(slot.empty, slot.parity ^ 1);
        barrier_expect(slot.full, 2 * F(tile_bytes) + F(rows_bytes));
        F(fetch)(slot.at, &h->q, slot.full, at, COLUMNS, step.head, step.tile * COLUMNS);
        F(fetch)
        (slot.at + F(tile_bytes), &h->dout, slot.full, at, COLUMNS, step.head, step.tile * COLUMNS);
        bulk_fetch(rows, h->scratch.lse + from, F(rows_bytes) / 2, slot.full);
        bulk_fetch(rows + F(rows_bytes) / 2, h->scratch.delta + from, F(rows_bytes) / 2, slot.full);
        grad_next(&step, walk);
    }
}

/* Runs in adding thread `adder`, which adds this block's share of every GRAD_ADDERS-th tile to dQ
 * in device memory. For each tile of queries, the blocks add in a fixed order. The block of the
 * head's first keys stores its share of dQ; each other block adds its share after the block before
 * it. While one thread waits until its numbers have arrived, another one already adds the next
 * tile. */
DEVICE void F(add_up)(const HopperGradArgs *h, HopperShared s, int adder)
{
    const GradWork work = grad_work(h, grad_ticket(s), COLUMNS);
    const AttentionPlace *const at = &work.at;
    const GradWalk *const walk = &work.walk;
    const GradBarriers barriers = grad_barriers(s);
    const uint32_t turn = (uint32_t)(at->first / HOPPER_ROWS);
    GradStep step = grad_first(&h->a, at, walk);
    UNROLL_1 for (int i = 0; i < walk->n; i++)
    {
        float *const to = h->scratch.dq + (int64_t)step.of_all * (COLUMNS * HEAD);
        uint32_t *const counter = h->scratch.turns + step.of_all;
        grad_next(&step, walk);
        if (i % GRAD_ADDERS != adder) continue;
        barrier_wait(barriers.sums_full + adder * 8, (uint32_t)(i / GRAD_ADDERS) & 1);
        counter_wait(counter, turn);
        if (turn == 0)
            bulk_put(to, F(sums_of)(s), F(sums_bytes));
        else
            bulk_add(to, F(sums_of)(s), F(sums_bytes));
        bulks_read();
        barrier_arrive(barriers.sums_empty);
        bulks_wait();
        counter_set(counter, turn + 1);
    }
}

/* Issues the products of this block's share of dQ = dS K for one tile. Each warpgroup computes half
 * of the share. `far` is the offset in bytes at which the warpgroup's half begins: in dS (heads of
 * 64) or in K (heads of 128). A row of dS and a row of K in memory belong to one key. */
DEVICE void F(sum_up)(float dq[GRAD_SUMS], Shared scores, Shared keys, int far)
{
    const Shared x = HEAD == 64 ? scores + far : scores, y = HEAD == 64 ? keys : keys + far;
    products_fence();
    UNROLL for (int step = 0; step < HOPPER_ROWS / 16; step++) PASTE(product_turned, 64, TYPE)(
        dq, matrix_of(x + step * 16 * 128, HOPPER_ROWS * 128, SWIZZLE_BYTES),
        matrix_of(y + step * 16 * 128, HOPPER_ROWS * 128, SWIZZLE_BYTES), step > 0);
    products_commit();
}

/* Hands the share of dQ of tile i to its adding thread, in the order [warpgroup][tile of 8
 * columns][thread][4]. */
DEVICE void F(hand_over)(const float dq[GRAD_SUMS], HopperShared shared, int group, int i)
{
    const GradBarriers barriers = grad_barriers(shared);
    const int thread = (int)threadIdx.x % WARPGROUP;
    const Shared to = F(sums_of)(shared) + (group * (GRAD_SUMS / 4) * WARPGROUP + thread) * 16;
    barrier_wait(barriers.sums_empty, ((uint32_t)i & 1) ^ 1);
    UNROLL for (int n = 0; n < GRAD_SUMS / 4; n++)
    {
        float4 x;
        x.x = dq[n * 4], x.y = dq[n * 4 + 1], x.z = dq[n * 4 + 2], x.w = dq[n * 4 + 3];
        *ALIGNED(float4, shared_pointer(to + n * WARPGROUP * 16)) = x;
    }
    shared_to_async();
    __syncwarp();
    if (thread % WARP == 0) barrier_arrive(barriers.sums_full + i % GRAD_ADDERS * 8);
}

/* Stores dS, rounded, for the products of both warpgroups. The index of the chunk enters the
 * address last, by exclusive-or, so that the compiler derives all addresses from a single one. */
DEVICE void F(keep)(uint32_t ds[COLUMNS / 16][4], HopperShared shared, int row, int i)
{
    const int lane = (int)threadIdx.x % WARP;
    const Shared to = swizzled_chunk(F(scores_of)(shared, i), HOPPER_ROWS, row, 0) + lane % 4 * 4;
    UNROLL for (int n = 0; n < COLUMNS / 8; n++) UNROLL for (int c = 0; c < 2; c++)
    {
        const int far = n / 8 * HOPPER_ROWS * 128 + c * 8 * 128;
        *ALIGNED(uint32_t, shared_pointer(shared_chunk(to, n % 8) + far)) =
            ds[n / 2][n % 2 * 2 + c];
    }
    shared_to_async();
    __syncwarp();
    if (lane == 0) barrier_arrive(grad_barriers(shared).scores_full);
}

#if HEAD == 64
/* Runs in one warpgroup and processes the queries in slot i. It is a function because an array
 * declared in the body of the loop would occupy registers from one tile to the next. */
DEVICE void F(one_slot)(const AttentionArgs *a, F(State) * state, HopperShared shared, int limit,
                        int i, int next)
{
    (void)next;
    const int group = (int)threadIdx.x / WARPGROUP - 1;
    const HopperSlot slot = hopper_slot_of(shared, GRAD_SLOTS, i, F(slot_bytes));
    const float *const rows = (const float *)shared_pointer(slot.at + 2 * F(tile_bytes));
    const int mine = group * 64 + (int)threadIdx.x / WARP % 4 * 16 + (int)threadIdx.x % WARP / 4;
    const Shared keys = shared.own + group * 64 * 128;
    float s[COLUMNS / 2], dp[COLUMNS / 2], dq[GRAD_SUMS];
    uint32_t p[COLUMNS / 16][4], ds[COLUMNS / 16][4];
    barrier_wait(slot.full, slot.parity);
    F(rows_by_rows)(s, keys, slot.at);
    F(rows_by_rows)(dp, keys + F(own_bytes), slot.at + F(tile_bytes));
    products_wait(1);
    F(exponentials)(s, rows, a->scale * LOG2_E, mine, limit);
    F(round)(p, s);
    F(times)(state->dv, p, slot.at + F(tile_bytes));
    products_wait(1);
    F(differentiate)(dp, s, rows + COLUMNS);
    F(round)(ds, dp);
    F(keep)(ds, shared, mine, i);
    F(times)(state->dk, ds, slot.at);
    barrier_wait(grad_barriers(shared).scores_full, (uint32_t)i & 1);
    F(sum_up)(dq, F(scores_of)(shared, i), shared.own, group * HOPPER_ROWS * 128);
    products_wait(1);
    __syncwarp();
    hopper_give_back(slot);
    products_wait(0);
    F(hand_over)(dq, shared, group, i);
}
#else
/* Returns the address of the warpgroup's keys. The address is computed again at each call. If it
 * were kept for all tiles, it would occupy a register. */
DEVICE Shared F(keys_of)(HopperShared shared)
{
    return shared.own + grad_group() * 64 * 128;
}

/* Computes S^T of the first tile. */
DEVICE void F(first_scores)(F(State) * state, HopperShared shared)
{
    const HopperSlot first = hopper_slot_of(shared, GRAD_SLOTS, 0, F(slot_bytes));
    barrier_wait(first.full, first.parity);
    F(rows_by_rows)(state->s, F(keys_of)(shared), first.at);
    products_wait(0);
}

/* Runs in one warpgroup and processes the queries in slot i, whose S^T was computed before. Then it
 * computes S^T of slot `next`. It is a function because an array declared in the body of the loop
 * would occupy registers from one tile to the next. For the same reason, S^T of the next tile has
 * an array of its own. */
DEVICE void F(one_slot)(const AttentionArgs *a, F(State) * state, HopperShared shared, int limit,
                        int i, int next)
{
    const HopperSlot slot = hopper_slot_of(shared, GRAD_SLOTS, i, F(slot_bytes));
    const HopperSlot after = hopper_slot_of(shared, GRAD_SLOTS, next, F(slot_bytes));
    const float *const rows = (const float *)shared_pointer(slot.at + 2 * F(tile_bytes));
    float dp[COLUMNS / 2], dq[GRAD_SUMS], s[COLUMNS / 2];
    uint32_t p[COLUMNS / 16][4], ds[COLUMNS / 16][4];
    F(rows_by_rows)(dp, F(keys_of)(shared) + F(own_bytes), slot.at + F(tile_bytes));
    F(exponentials)(state->s, rows, a->scale * LOG2_E, grad_row(), limit);
    F(round)(p, state->s);
    F(times)(state->dv, p, slot.at + F(tile_bytes));
    products_wait(1);
    F(differentiate)(dp, state->s, rows + COLUMNS);
    F(round)(ds, dp);
    F(keep)(ds, shared, grad_row(), i);
    F(times)(state->dk, ds, slot.at);
    barrier_wait(grad_barriers(shared).scores_full, (uint32_t)i & 1);
    F(sum_up)(dq, F(scores_of)(shared, i), shared.own, grad_group() * HOPPER_ROWS * 128);
    products_wait(1);
    __syncwarp();
    hopper_give_back(slot);
    barrier_wait(after.full, after.parity);
    F(rows_by_rows)(s, F(keys_of)(shared), after.at);
    products_wait(1);
    F(hand_over)(dq, shared, grad_group(), i);
    products_wait(0);
    UNROLL for (int k = 0; k < COLUMNS / 2; k++) state->s[k] = s[k];
}
#endif

/* Runs in one computing warpgroup and processes all tiles. The last tile has no next one. With
 * heads of 128 numbers, S^T of the last tile is then computed twice. A branch that avoids this
 * would make ptxas wait for each product. */
DEVICE void F(consume)(const HopperGradArgs *h, F(State) * state, HopperShared shared,
                       const GradWork *work)
{
    const AttentionArgs *const a = &h->a;
    const GradWalk *const walk = &work->walk;
    const int limit = hopper_limit(a, &work->at);
    int tile = walk->first;
    barrier_wait(shared.barriers, 0);
    if (walk->n == 0) return;
#if HEAD == 128
    F(first_scores)(state, shared);
#endif
    UNROLL_1 for (int i = 0; i < walk->n; i++)
    {
        F(one_slot)
        (a, state, shared, limit + (int)attention_behind(a, tile * COLUMNS), i,
         i + 1 < walk->n ? i + 1 : i);
        tile = tile + 1 < walk->end ? tile + 1 : walk->first;
    }
}

/* Waits until both warpgroups have read all keys. Then it writes dK and dV to memory, through the
 * shared memory of keys and values. */
DEVICE void F(finish)(const AttentionArgs *a, F(State) * state, const AttentionPlace *at,
                      HopperShared shared, int row)
{
    const int64_t stride = a->G * a->E, n_keys = a->T - at->first;
    const int64_t first = ((at->b * a->T + at->first) * a->G + at->g) * a->E;
    const float scales[2] = {a->scale, a->scale};
    F(scale_rows)(state->dk, scales);
    barrier_threads(1, 2 * WARPGROUP);
    F(store)
    (state->dk, shared.own, row, (uint16_t *)a->dk + first, stride, n_keys, a->E,
     (a->accumulate & 2) != 0);
    F(store)
    (state->dv, shared.own + F(own_bytes), row, (uint16_t *)a->dv + first, stride, n_keys, a->E,
     (a->accumulate & 4) != 0);
}

/* One block for each tile of keys, group and sequence. Shared memory holds the barriers, keys,
 * values, dS of two tiles, the share of dQ and the ring. */
KERNEL_OF(F(attention), HopperGradArgs, HOPPER_THREADS, 1)
{
    if (!HOPPER_CODE) return;
    SHARED(unsigned char, memory);
    const HopperShared shared = hopper_shared(shared_of(memory), F(before_ring));
    grad_begin(&a, shared);
    const int group = (int)threadIdx.x / WARPGROUP;
    if (group == 0) {
        registers_shrink(HOPPER_PRODUCER_REGISTERS);
        if (threadIdx.x == 0) F(produce)(&a, shared);
        if (threadIdx.x == WARP) F(add_up)(&a, shared, 0);
        if (threadIdx.x == 2 * WARP) F(add_up)(&a, shared, 1);
    } else {
        registers_grow(HOPPER_CONSUMER_REGISTERS);
        const GradWork work = grad_work(&a, grad_ticket(shared), COLUMNS);
        F(State) state;
        UNROLL for (int i = 0; i < HEAD / 2; i++) state.dk[i] = state.dv[i] = 0;
        F(consume)(&a, &state, shared, &work);
        F(finish)(&a.a, &state, &work.at, shared, (group - 1) * 64);
    }
}

static bool NAME(launch_grad)(const AttentionArgs *a, const CudaContext *cuda, CudaError *error)
{
    HopperGradArgs h;
    int64_t heads = a->G * a->R, blocks = ceil_div(a->T, HOPPER_ROWS) * a->G * a->B;
    h.a = *a;
    h.scratch = grad_scratch(a, HEAD);
    h.beside = grad_beside(a, HEAD, cuda);
    if (!hopper_map(&h.q, a, a->q, heads, a->S, COLUMNS, cuda, error) ||
        !hopper_map(&h.dout, a, a->dout, heads, a->S, COLUMNS, cuda, error) ||
        !hopper_map(&h.k, a, a->k, a->G, a->T, HOPPER_ROWS, cuda, error) ||
        !hopper_map(&h.v, a, a->v, a->G, a->T, HOPPER_ROWS, cuda, error))
        return false;
    size_t shared_bytes = (size_t)(SWIZZLE_BYTES + HOPPER_BARRIER_BYTES + F(before_ring) +
                                   GRAD_SLOTS * F(slot_bytes));
    return LAUNCH_OF(F(attention), blocks, HOPPER_THREADS, shared_bytes, h, cuda, error);
}

#include "kernels/cuda/attention/attention_undef.cuh"
