/* Attention, forward, of compute capability 9.0, for one type and head size: a block holds 128
 * queries of one head. One thread of the first warpgroup fetches keys and values, COLUMNS at a
 * time, into the slots of a ring; two warpgroups, 64 queries each, use them. A warpgroup takes the
 * softmax of its scores while the values of the keys before are multiplied; its scores themselves
 * it waits for, and only the other warpgroup may have work for the processor meanwhile:
 *
 *     S(j) = Q K(j)^T     issued, and so is O += P(j-1) V(j-1)
 *     wait for S(j); K(j)'s slot is free; P(j) = exp(S(j) - top)
 *     wait for O; V(j-1)'s slot is free; O is brought to the new maximum */
#define F(name)               NAME(name##_hopper)
#define PRODUCT_OF_3(n, type) product_columns_##n##_##type
#define PRODUCT_OF_2(n, type) PRODUCT_OF_3(n, type)
#define ROWS_OF_2(type)       product_rows_128_##type
#define ROWS_OF(type)         ROWS_OF_2(type)
#define PAIR_OF_2(type)       round_##type##_pair
#define PAIR_OF(type)         PAIR_OF_2(type)

typedef struct F(State) {
    float out[HEAD / 2];             /* tiles of 8 columns, mma's C */
    float top[2], total[2];          /* of rows lane / 4 and lane / 4 + 8 */
    uint32_t p[HOPPER_KEYS / 16][4]; /* what is multiplied with values: mma's A */
} F(State);

/* Bytes of a tile in shared memory. */
enum { F(tile_bytes) = HOPPER_KEYS * HEAD * 2 };

DEVICE void F(fetch)(Shared to, const TensorMap *map, Shared barrier, const AttentionPlace *at,
                     int head, int row)
{
    barrier_expect(barrier, F(tile_bytes));
    UNROLL for (int half = 0; half < HEAD / SWIZZLE_COLUMNS; half++) box_fetch(
        to + half * HOPPER_KEYS * 128, map, barrier, half * SWIZZLE_COLUMNS, head, row, (int)at->b);
}

/* The one thread that fetches: queries, then keys and values as slots become free. */
DEVICE void F(produce)(const HopperArgs *h, HopperShared s, const AttentionPlace *at, int n_tiles)
{
    F(fetch)(s.queries, &h->q, s.barriers, at, (int)at->head, (int)at->first);
    UNROLL_1 for (int i = 0; i < 2 * n_tiles; i++)
    {
        const HopperSlot slot = hopper_slot(s, i, F(tile_bytes));
        barrier_wait(slot.empty, slot.parity ^ 1);
        F(fetch)(slot.tile, i % 2 ? &h->v : &h->k, slot.full, at, (int)at->g, i / 2 * HOPPER_KEYS);
    }
}

/* Issues S = Q K^T. */
DEVICE void F(scores)(float s[HOPPER_KEYS / 2], Shared queries, Shared keys)
{
    products_fence();
    UNROLL for (int step = 0; step < HEAD / 16; step++)
    {
        int far = step / 4 * HOPPER_KEYS * 128 + step % 4 * 32;
        ROWS_OF(TYPE)
        (s, matrix_of(queries + far, 16, SWIZZLE_BYTES), matrix_of(keys + far, 16, SWIZZLE_BYTES),
         step > 0);
    }
    products_commit();
}

/* Issues O += P V. */
DEVICE void F(sum)(F(State) * state, Shared values)
{
    products_fence();
    UNROLL for (int step = 0; step < HOPPER_KEYS / 16; step++) PRODUCT_OF_2(HEAD, TYPE)(
        state->out, state->p[step],
        matrix_of(values + step * 16 * 128, HOPPER_KEYS * 128, SWIZZLE_BYTES));
    products_commit();
}

/* Scores become probabilities of an unnormalised softmax; `shrink` brings what was summed so far to
 * the new maximum. */
DEVICE void F(fold)(F(State) * state, float s[HOPPER_KEYS / 2], float scale, float shrink[2])
{
    UNROLL for (int i = 0; i < 2; i++)
    {
        float top = state->top[i], sum = 0;
        UNROLL for (int n = 0; n < HOPPER_KEYS / 8; n++) top =
            fmaxf(top, fmaxf(s[n * 4 + i * 2], s[n * 4 + i * 2 + 1]));
        top = row_max(top);
        float base = top == -INFINITY ? 0 : top * scale;
        shrink[i] = device_exp2(fmaf(state->top[i], scale, -base));
        UNROLL for (int n = 0; n < HOPPER_KEYS / 8; n++) UNROLL for (int c = 0; c < 2; c++)
        {
            float x = device_exp2(fmaf(s[n * 4 + i * 2 + c], scale, -base));
            s[n * 4 + i * 2 + c] = x;
            sum += x;
        }
        state->top[i] = top;
        state->total[i] = fmaf(state->total[i], shrink[i], sum);
    }
}

DEVICE void F(round)(F(State) * state, const float s[HOPPER_KEYS / 2])
{
    UNROLL for (int n = 0; n < HOPPER_KEYS / 16; n++) UNROLL for (int c = 0; c < 4; c++)
        state->p[n][c] = PAIR_OF(TYPE)(s[n * 8 + c * 2], s[n * 8 + c * 2 + 1]);
}

DEVICE void F(scale_rows)(F(State) * state, const float by[2])
{
    UNROLL for (int n = 0; n < HEAD / 8; n++) UNROLL for (int c = 0; c < 4; c++)
        state->out[n * 4 + c] *= by[c / 2];
}

/* One warpgroup: `row` is its first, of the block's queries. The first tile stands apart: where
 * products under way depend on a branch, ptxas waits for each of them. */
DEVICE void F(consume)(const AttentionArgs *a, F(State) * state, HopperShared shared,
                       const HopperRows *rows, int row, int n_tiles)
{
    const int lane = (int)threadIdx.x % WARP;
    const float scale = a->scale * LOG2_E;
    const Shared queries = shared.queries + row * 128;
    float s[HOPPER_KEYS / 2], shrink[2];
    barrier_wait(shared.barriers, 0);
    if (n_tiles == 0) return;
    HopperSlot keys = hopper_slot(shared, 0, F(tile_bytes)), values;
    barrier_wait(keys.full, keys.parity);
    F(scores)(s, queries, keys.tile);
    products_wait(0);
    if (lane == 0) barrier_arrive(keys.empty);
    hopper_hide(s, rows, 0);
    F(fold)(state, s, scale, shrink);
    F(round)(state, s);
    UNROLL_1 for (int j = 1; j < n_tiles; j++)
    {
        keys = hopper_slot(shared, 2 * j, F(tile_bytes));
        values = hopper_slot(shared, 2 * j - 1, F(tile_bytes));
        barrier_wait(keys.full, keys.parity);
        F(scores)(s, queries, keys.tile);
        barrier_wait(values.full, values.parity);
        F(sum)(state, values.tile);
        products_wait(1);
        if (lane == 0) barrier_arrive(keys.empty);
        hopper_hide(s, rows, j * HOPPER_KEYS);
        F(fold)(state, s, scale, shrink);
        products_wait(0);
        if (lane == 0) barrier_arrive(values.empty);
        F(scale_rows)(state, shrink);
        F(round)(state, s);
    }
    values = hopper_slot(shared, 2 * n_tiles - 1, F(tile_bytes));
    barrier_wait(values.full, values.parity);
    F(sum)(state, values.tile);
    products_wait(0);
}

/* To memory, through the rows of queries that this warpgroup alone has read. */
DEVICE void F(finish)(const AttentionArgs *a, F(State) * state, const AttentionPlace *at,
                      Shared queries, int row)
{
    const int lane = (int)threadIdx.x % WARP, mine = row + (int)threadIdx.x / WARP % 4 * 16;
    const int64_t heads = a->G * a->R, first = (at->b * a->S + at->first) * heads + at->head;
    float inverse[2];
    UNROLL for (int i = 0; i < 2; i++)
    {
        float total = row_sum(state->total[i]);
        int64_t query = mine + i * 8 + lane / 4;
        inverse[i] = total > 0 ? 1 / total : 0;
        if (lane % 4 == 0 && at->first + query < a->S)
            a->to_lse[first + query * heads] =
                total > 0 ? fmaf(state->top[i], a->scale, logf(total)) : -INFINITY;
    }
    F(scale_rows)(state, inverse);
    barrier_threads(row == 0 ? 1u : 2u, WARPGROUP);
    UNROLL for (int n = 0; n < HEAD / 8; n++) UNROLL for (int i = 0; i < 2; i++) *
        ALIGNED(uint32_t,
                shared_pointer(swizzled_chunk(queries, HOPPER_QUERIES, mine + i * 8 + lane / 4, n) +
                               lane % 4 * 4)) =
        PAIR_OF(TYPE)(state->out[n * 4 + i * 2], state->out[n * 4 + i * 2 + 1]);
    __syncwarp();
    for (int i = lane; i < 16 * (HEAD / 8); i += WARP) {
        int at_row = mine + i / (HEAD / 8), chunk = i % (HEAD / 8);
        if (at->first + at_row < a->S && chunk * 8 < a->E)
            *ALIGNED(uint4, (uint16_t *)a->to_out + (first + at_row * heads) * a->E + chunk * 8) =
                *ALIGNED(const uint4,
                         shared_pointer(swizzled_chunk(queries, HOPPER_QUERIES, at_row, chunk)));
    }
}

/* Blocks: tiles of queries x heads x sequences. Shared: barriers, queries, the ring. */
KERNEL_OF(F(attention), HopperArgs, HOPPER_THREADS, 1)
{
    if (!HOPPER_CODE) return;
    SHARED(unsigned char, memory);
    const HopperShared shared = hopper_shared(shared_of(memory), F(tile_bytes));
    const AttentionPlace at = attention_place(&a.a, a.a.S, HOPPER_QUERIES, a.a.R, true);
    const int group = (int)threadIdx.x / WARPGROUP;
    int64_t last = at.first + HOPPER_QUERIES;
    const int64_t n_keys = attention_visible(&a.a, (last < a.a.S ? last : a.a.S) - 1);
    const int n_tiles = (int)((n_keys + HOPPER_KEYS - 1) / HOPPER_KEYS);
    hopper_begin(shared);
    if (group == 0) {
        registers_shrink(HOPPER_PRODUCER_REGISTERS);
        if (threadIdx.x == 0) F(produce)(&a, shared, &at, n_tiles);
    } else {
        registers_grow(HOPPER_CONSUMER_REGISTERS);
        const int row = (group - 1) * 64;
        const HopperRows rows = hopper_rows(&a.a, &at, row);
        F(State) state;
        state.top[0] = state.top[1] = -INFINITY;
        state.total[0] = state.total[1] = 0;
        UNROLL for (int i = 0; i < HEAD / 2; i++) state.out[i] = 0;
        F(consume)(&a.a, &state, shared, &rows, row, n_tiles);
        F(finish)(&a.a, &state, &at, shared.queries, row);
    }
}

static bool NAME(launch_hopper)(const HopperArgs *h, const CudaContext *cuda, CudaError *error)
{
    int64_t blocks = ceil_div(h->a.S, HOPPER_QUERIES) * h->a.G * h->a.R * h->a.B;
    size_t shared_bytes = SWIZZLE_BYTES + HOPPER_BARRIER_BYTES + (1 + HOPPER_SLOTS) * F(tile_bytes);
    return LAUNCH_OF(F(attention), blocks, HOPPER_THREADS, shared_bytes, *h, cuda, error);
}

#undef F
#undef PRODUCT_OF_3
#undef PRODUCT_OF_2
#undef ROWS_OF_2
#undef ROWS_OF
#undef PAIR_OF_2
#undef PAIR_OF
