/* Attention (forward) for compute capability 9.0, one dtype and one head size. A block holds 128
 * queries of one head. Its first warpgroup has one thread that fetches keys and values, COLUMNS
 * keys at a time, into the slots of a ring in shared memory. The other two warpgroups compute, with
 * 64 queries each. A warpgroup computes the softmax of tile j while the tensor cores multiply P and
 * V of tile j-1. The two warpgroups take turns to issue products, so that the products of one
 * warpgroup run during the softmax of the other. A warpgroup does for each tile j:
 *
 *   wait for its turn; issue S(j) = Q K(j)^T and O += P(j-1) V(j-1); pass the turn on
 *   wait for S(j); release the slot of K(j); compute P(j) = exp(S(j) - largest score)
 *   wait for O; release the slot of V(j-1); rescale O to the new largest score
 *
 * With heads of 64 numbers, the unit for exponentials is as busy as the tensor cores: both take
 * 1,024 cycles for 128 x 128 scores. So a quarter of the exponentials is computed by
 * multiplications instead. With heads of 128 numbers, the tensor cores take twice as long, and the
 * unit computes all exponentials. */
#define F(name) NAME(name##_hopper)
#define COLUMNS 128
#include "kernels/cuda/attention/hopper/attention_hopper_tile.cuh"

typedef struct F(State) {
    float out[HEAD / 2];         /* in tiles of 8 columns, each laid out as C of mma in mma.cuh */
    float top[2], total[2];      /* of rows lane / 4 and lane / 4 + 8: the largest score so far, and
                                    the sum of exponentials */
    uint32_t p[COLUMNS / 16][4]; /* P, which the values are multiplied by; laid out as A of mma in
                                    mma.cuh */
} F(State);

/* Runs in the one thread that fetches. It fetches the queries first, then a tile of keys or values
 * whenever a slot is free. Item i of the ring holds the keys (i even) or the values (i odd) of tile
 * i / 2. */
DEVICE void F(produce)(const HopperForwardArgs *h, HopperShared s, const AttentionPlace *at,
                       int n_tiles)
{
    barrier_expect(s.barriers, F(own_bytes));
    F(fetch)(s.own, &h->q, s.barriers, at, HOPPER_ROWS, at->head, (int)at->first);
    UNROLL_1 for (int i = 0; i < 2 * n_tiles; i++)
    {
        const HopperSlot slot = hopper_slot(s, i, F(tile_bytes));
        barrier_wait(slot.empty, slot.parity ^ 1);
        barrier_expect(slot.full, F(tile_bytes));
        F(fetch)
        (slot.at, i % 2 ? &h->v : &h->k, slot.full, at, COLUMNS, at->g, i / 2 * COLUMNS);
    }
}

/* Returns how many tiles of 8 columns the unit for exponentials computes for row 0 or row 1 of the
 * thread. Multiplications compute the others. These tiles all belong to row 0, because the
 * multiplications for row 0 can run while the unit works on row 1. */
DEVICE int F(by_unit)(int row)
{
    return HEAD == 64 && row == 0 ? COLUMNS / 16 : COLUMNS / 8;
}

/* Replaces the scores s by exp(score - largest score so far), which still must be divided by their
 * sum. `shrink` gets, for each row, the factor that rescales earlier sums to the new largest
 * score. */
DEVICE void F(fold)(F(State) * state, float s[COLUMNS / 2], float scale, float shrink[2])
{
    UNROLL for (int i = 0; i < 2; i++)
    {
        float top = state->top[i], sum = 0;
        UNROLL for (int n = 0; n < COLUMNS / 8; n++) top =
            fmaxf(top, fmaxf(s[n * 4 + i * 2], s[n * 4 + i * 2 + 1]));
        top = row_max(top);
        float base = top == -INFINITY ? 0 : top * scale;
        shrink[i] = device_exp2(fmaf(state->top[i], scale, -base));
        const int by_unit = F(by_unit)(i);
        UNROLL for (int n = 0; n < COLUMNS / 8; n++) UNROLL for (int c = 0; c < 2; c++)
        {
            float x = fmaf(s[n * 4 + i * 2 + c], scale, -base);
            x = n < by_unit ? device_exp2(x)
                            : exp2_by_products(x, s[(n - by_unit) * 4 + i * 2 + c]);
            s[n * 4 + i * 2 + c] = x;
            sum += x;
        }
        state->top[i] = top;
        state->total[i] = fmaf(state->total[i], shrink[i], sum);
    }
}

/* Runs in one computing warpgroup, whose first row is row `row` of the block's queries. Tile 0 is
 * handled before the loop: if a product in flight depends on a branch, ptxas inserts a wait for
 * each product. */
DEVICE void F(consume)(const AttentionArgs *a, F(State) * state, HopperShared shared,
                       const HopperRows *rows, int row, int n_tiles)
{
    const float scale = a->scale * LOG2_E;
    const Shared queries = shared.own + row * 128;
    const uint32_t turn = HOPPER_TURN + (row > 0), other = HOPPER_TURN + (row == 0);
    float s[COLUMNS / 2], shrink[2];
    barrier_wait(shared.barriers, 0);
    if (n_tiles == 0) return;
    if (row > 0) turn_pass(other, 2 * WARPGROUP); /* gives the first turn to the other warpgroup */
    HopperSlot keys = hopper_slot(shared, 0, F(tile_bytes)), values;
    barrier_wait(keys.full, keys.parity);
    F(rows_by_rows)(s, queries, keys.at);
    products_wait(0);
    hopper_give_back(keys);
    F(hide)(s, rows, 0, -INFINITY);
    F(fold)(state, s, scale, shrink);
    F(round)(state->p, s);
    UNROLL_1 for (int j = 1; j < n_tiles; j++)
    {
        keys = hopper_slot(shared, 2 * j, F(tile_bytes));
        values = hopper_slot(shared, 2 * j - 1, F(tile_bytes));
        barrier_wait(keys.full, keys.parity);
        turn_wait(turn, 2 * WARPGROUP);
        F(rows_by_rows)(s, queries, keys.at);
        barrier_wait(values.full, values.parity);
        F(times)(state->out, state->p, values.at);
        turn_pass(other, 2 * WARPGROUP);
        products_wait(1);
        hopper_give_back(keys);
        F(hide)(s, rows, j * COLUMNS, -INFINITY);
        F(fold)(state, s, scale, shrink);
        products_wait_behind(fminf(state->total[0], state->total[1]), shared.spare);
        products_wait(0);
        hopper_give_back(values);
        F(scale_rows)(state->out, shrink);
        F(round)(state->p, s);
    }
    if (row == 0)
        turn_wait(turn, 2 * WARPGROUP); /* ends the last turn, which the other warpgroup
                                           passes on */
    values = hopper_slot(shared, 2 * n_tiles - 1, F(tile_bytes));
    barrier_wait(values.full, values.parity);
    F(times)(state->out, state->p, values.at);
    products_wait(0);
}

/* Writes the warpgroup's rows of O to memory. They pass through the shared memory of its queries,
 * which no other warpgroup reads. */
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
    F(scale_rows)(state->out, inverse);
    barrier_threads(row == 0 ? 1u : 2u, WARPGROUP);
    F(store)
    (state->out, queries, row, (uint16_t *)a->to_out + first * a->E, heads * a->E, a->S - at->first,
     a->E, false);
}

/* One block for each tile of queries, head and sequence. Shared memory holds the barriers, the
 * queries and the ring. */
KERNEL_OF(F(attention), HopperForwardArgs, HOPPER_THREADS, 1)
{
    if (!HOPPER_CODE) return;
    SHARED(unsigned char, memory);
    const HopperShared shared = hopper_shared(shared_of(memory), F(own_bytes));
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
        const HopperRows rows = hopper_rows(&a.a, &at, row);
        F(State) state;
        state.top[0] = state.top[1] = -INFINITY;
        state.total[0] = state.total[1] = 0;
        UNROLL for (int i = 0; i < HEAD / 2; i++) state.out[i] = 0;
        F(consume)(&a.a, &state, shared, &rows, row, n_tiles);
        F(finish)(&a.a, &state, &at, shared.own, row);
    }
}

static bool NAME(launch_hopper)(const AttentionArgs *a, const CudaContext *cuda, CudaError *error)
{
    HopperForwardArgs h;
    int64_t heads = a->G * a->R, blocks = ceil_div(a->S, HOPPER_ROWS) * heads * a->B;
    h.a = *a;
    if (!hopper_map(&h.q, a, a->q, heads, a->S, HOPPER_ROWS, cuda, error) ||
        !hopper_map(&h.k, a, a->k, a->G, a->T, COLUMNS, cuda, error) ||
        !hopper_map(&h.v, a, a->v, a->G, a->T, COLUMNS, cuda, error))
        return false;
    size_t shared_bytes = hopper_shared_bytes(F(own_bytes), F(tile_bytes));
    return LAUNCH_OF(F(attention), blocks, HOPPER_THREADS, shared_bytes, h, cuda, error);
}

#include "kernels/cuda/attention/attention_undef.cuh"
