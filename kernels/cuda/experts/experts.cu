/* Mixture of experts: copies tokens to the slots of experts, and back. A slot is a row of an
 * expert's input, with room for one token. A block computes one token and first finds the rows that
 * belong to the token's choices. Tokens are copied to these rows, and on the way back these rows
 * are added up, in the order of the token's choices. Slots without a token are cleared by another
 * kernel, so that each element is written exactly once. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/reduce.cuh"

enum {
    EXPERTS_THREADS = 256,
    EXPERTS_AHEAD = 4, /* rows that a thread loads at once */
    DOT_AHEAD = 2,
    /* Number of slots that one block clears. All of them belong to one sequence, and the block
     * first searches all choices of this sequence. */
    CLEAR_TILE = 128,
    CLEAR_AHEAD = 8
};

typedef struct ExpertsArgs {
    /* b, S, k and so on are the sizes below. Without `weights`, all weights are 1. */
    Array tokens, rows, weights;              /* [b,S,k], [e,b,m,k], [b,S,K] */
    const int32_t *slots;                     /* [b,S,K] */
    int64_t sequences, per_sequence, choices; /* b, S, K */
    int64_t experts, rooms, width;            /* this rank's e, m and k; a room is a slot of an
                                                 expert for one sequence */
    int64_t start, valid; /* start: index of this rank's first expert; valid: how many of its
                             experts exist (the rest is padding) */
    int64_t capacity, first_room, valid_rooms; /* capacity: rooms of an expert on all ranks
                                                  together; first_room, valid_rooms: this rank's
                                                  range */
    bool weighted, accumulate;
} ExpertsArgs;

/* One choice of the block's token: its row in [e,b,m] and its weight. */
typedef struct ExpertChoice {
    int64_t row; /* -1: the choice was dropped, or its row belongs to another rank */
    float weight;
} ExpertChoice;

DEVICE int64_t row_of(const ExpertsArgs *a, int64_t sequence, int32_t slot)
{
    if (slot < 0) return -1;
    int64_t e = (int64_t)((uint32_t)slot / (uint32_t)a->capacity), at = slot - e * a->capacity;
    e -= a->start, at -= a->first_room;
    if (e < 0 || e >= a->valid || at < 0 || at >= a->valid_rooms) return -1;
    return (e * a->sequences + sequence) * a->rooms + at;
}

/* Returns the sequence to which the block's token belongs. */
DEVICE int64_t sequence_of(const ExpertsArgs *a)
{
    return split_row(blockIdx.x, a->per_sequence, a->sequences * a->per_sequence);
}

/* Finds the rows of the block's token and stores them in shared memory, held [choices]. All threads
 * of the block must call this function. */
DEVICE void find_choices(const ExpertsArgs *a, ExpertChoice *held)
{
    int64_t token = blockIdx.x, sequence = sequence_of(a);
    for (int64_t j = threadIdx.x; j < a->choices; j += blockDim.x) {
        held[j].row = row_of(a, sequence, a->slots[token * a->choices + j]);
        held[j].weight = a->weighted ? read_one(a->weights, token * a->choices + j) : 1;
    }
    __syncthreads();
}

DEVICE void add_eight(Array to, int64_t at, int n, float x[EIGHT])
{
    float old[EIGHT];
    load(to, at, n, old);
    UNROLL for (int k = 0; k < EIGHT; k++) x[k] = old[k] + x[k];
}

/* Copies tokens to rows. */
KERNEL(experts_spread, ExpertsArgs, EXPERTS_THREADS, 4)
{
    SHARED(ExpertChoice, held);
    find_choices(&a, held);
    for (int64_t column = threadIdx.x * EIGHT; column < a.width; column += blockDim.x * EIGHT) {
        int n = eight_of(column, a.width);
        float x[EIGHT];
        load(a.tokens, blockIdx.x * a.width + column, n, x);
        for (int64_t j = 0; j < a.choices; j++) {
            if (held[j].row < 0) continue;
            int64_t at = held[j].row * a.width + column;
            float y[EIGHT];
            UNROLL for (int k = 0; k < EIGHT; k++) y[k] = held[j].weight * x[k];
            if (a.accumulate) add_eight(a.rows, at, n, y);
            store(a.rows, at, n, y);
        }
    }
}

/* Computes each token as the sum of its rows. */
KERNEL(experts_collect, ExpertsArgs, EXPERTS_THREADS, 4)
{
    SHARED(ExpertChoice, held);
    find_choices(&a, held);
    for (int64_t column = threadIdx.x * EIGHT; column < a.width; column += blockDim.x * EIGHT) {
        int n = eight_of(column, a.width);
        int64_t at = blockIdx.x * a.width + column;
        float y[EIGHT];
        UNROLL for (int k = 0; k < EIGHT; k++) y[k] = 0;
        for (int64_t first = 0; first < a.choices; first += EXPERTS_AHEAD) {
            Raw raw[EXPERTS_AHEAD];
            UNROLL for (int u = 0; u < EXPERTS_AHEAD; u++)
            {
                int64_t row = first + u < a.choices ? held[first + u].row : -1;
                raw[u] = fetch(a.rows, row < 0 ? 0 : row * a.width + column, row < 0 ? 0 : n);
            }
            UNROLL for (int u = 0; u < EXPERTS_AHEAD; u++)
            {
                float x[EIGHT], weight;
                if (first + u >= a.choices || held[first + u].row < 0) continue;
                weight = held[first + u].weight;
                widen_all(a.rows, &raw[u], x);
                UNROLL for (int k = 0; k < EIGHT; k++) y[k] += weight * x[k];
            }
        }
        if (a.accumulate) add_eight(a.tokens, at, n, y);
        store(a.tokens, at, n, y);
    }
}

/* Returns the dot product of the block's token and a row. A warp computes it. */
DEVICE float dot_row(const ExpertsArgs *a, int64_t row)
{
    float sum = 0;
    for (int64_t at = threadIdx.x % WARP * EIGHT; at < a->width; at += WARP * EIGHT * DOT_AHEAD) {
        Raw x[DOT_AHEAD], y[DOT_AHEAD];
        UNROLL for (int u = 0; u < DOT_AHEAD; u++)
        {
            int64_t column = at + u * WARP * EIGHT;
            int n = eight_of(column, a->width);
            x[u] = fetch(a->tokens, blockIdx.x * a->width + column, n);
            y[u] = fetch(a->rows, row * a->width + column, n);
        }
        UNROLL for (int u = 0; u < DOT_AHEAD; u++)
        {
            float left[EIGHT], right[EIGHT];
            widen_all(a->tokens, &x[u], left);
            widen_all(a->rows, &y[u], right);
            UNROLL for (int k = 0; k < EIGHT; k++) sum += left[k] * right[k];
        }
    }
    return warp_sum(sum);
}

/* Computes the gradients of weights from tokens and rows; one warp for each choice. */
KERNEL(experts_weights, ExpertsArgs, EXPERTS_THREADS, 4)
{
    int64_t sequence = sequence_of(&a);
    for (int64_t j = threadIdx.x / WARP; j < a.choices; j += blockDim.x / WARP) {
        int64_t at = blockIdx.x * a.choices + j, row = row_of(&a, sequence, a.slots[at]);
        float sum = row < 0 ? 0 : dot_row(&a, row);
        if (threadIdx.x % WARP > 0) continue;
        write_one(a.weights, at, a.accumulate ? read_one(a.weights, at) + sum : sum);
    }
}

/* Finds which of the block's slots, from slot `lowest` on, are filled by some choice of the
 * sequence. */
DEVICE void find_filled(const ExpertsArgs *a, int64_t sequence, int64_t lowest, uint32_t *filled)
{
    int64_t n = a->per_sequence * a->choices;
    const int32_t *slots = a->slots + sequence * n;
    for (int64_t from = threadIdx.x; from < n; from += EXPERTS_THREADS * CLEAR_AHEAD) {
        int32_t slot[CLEAR_AHEAD];
        UNROLL for (int u = 0; u < CLEAR_AHEAD; u++)
        {
            int64_t i = from + u * EXPERTS_THREADS;
            slot[u] = i < n ? slots[i] : -1;
        }
        UNROLL for (int u = 0; u < CLEAR_AHEAD; u++)
        {
            int64_t at = slot[u] - lowest;
            if (slot[u] >= 0 && at >= 0 && at < CLEAR_TILE) filled[at] = 1;
        }
    }
}

/* Clears the rows that no choice fills. A block clears some slots of one expert for one
 * sequence. */
KERNEL(experts_clear, ExpertsArgs, EXPERTS_THREADS, 4)
{
    SHARED(uint32_t, filled);
    int64_t tiles = (a.rooms + CLEAR_TILE - 1) / CLEAR_TILE, group = blockIdx.x / tiles;
    int64_t first = (blockIdx.x - group * tiles) * CLEAR_TILE, left = a.rooms - first;
    int64_t e = group / a.sequences, sequence = group - e * a.sequences;
    int64_t per_row = (a.width + EIGHT - 1) / EIGHT;
    int64_t eights = (left < CLEAR_TILE ? left : CLEAR_TILE) * per_row;
    float none[EIGHT];
    UNROLL for (int k = 0; k < EIGHT; k++) none[k] = 0;
    for (int64_t i = threadIdx.x; i < CLEAR_TILE; i += EXPERTS_THREADS) filled[i] = 0;
    __syncthreads();
    if (e < a.valid && first < a.valid_rooms)
        find_filled(&a, sequence, (a.start + e) * a.capacity + a.first_room + first, filled);
    __syncthreads();
    for (int64_t t = threadIdx.x; t < eights; t += EXPERTS_THREADS) {
        int64_t i = split_row(t, per_row, eights), column = (t - i * per_row) * EIGHT;
        int64_t row = group * a.rooms + first + i;
        if (!filled[i] || first + i >= a.valid_rooms)
            store(a.rows, row * a.width + column, eight_of(column, a.width), none);
    }
}

/* ---- launches ---- */

static const uint32_t NO_WEIGHTS = MAX_ARGS;

static ExpertsArgs experts_args(const KernelArgs *args, uint32_t tokens, uint32_t slots,
                                uint32_t rows, uint32_t weights)
{
    ExpertsArgs p;
    memset(&p, 0, sizeof p);
    p.sequences = args->size['b'], p.per_sequence = args->size['S'], p.choices = args->size['K'];
    p.experts = args->size['e'], p.rooms = args->size['m'], p.width = args->size['k'];
    p.start = args->start['e'], p.valid = args->valid['e'];
    p.capacity = args->binding->size['m'];
    p.first_room = args->start['m'], p.valid_rooms = args->valid['m'];
    p.tokens = array_of(args, tokens, p.width), p.rows = array_of(args, rows, p.width);
    p.slots = (const int32_t *)args->ptr[slots];
    p.weighted = weights != NO_WEIGHTS;
    if (p.weighted) p.weights = array_of(args, weights, p.choices);
    p.accumulate = accumulates(args, 0);
    return p;
}

/* Returns a number of threads that divides the work on a row of `width` elements evenly. */
static int64_t threads_for(int64_t width)
{
    int64_t eights = ceil_div(width, EIGHT), turns = ceil_div(eights, EXPERTS_THREADS);
    return turns > 0 ? ceil_div(ceil_div(eights, turns), WARP) * WARP : WARP;
}

static bool spread(ExpertsArgs p, const CudaContext *cuda, CudaError *error)
{
    int64_t blocks = p.experts * p.sequences * ceil_div(p.rooms, CLEAR_TILE);
    if (!p.accumulate && !LAUNCH(experts_clear, blocks, EXPERTS_THREADS,
                                 CLEAR_TILE * sizeof(uint32_t), p, cuda, error))
        return false;
    return LAUNCH(experts_spread, p.sequences * p.per_sequence, threads_for(p.width),
                  (size_t)p.choices * sizeof(ExpertChoice), p, cuda, error);
}

static bool collect(ExpertsArgs p, const CudaContext *cuda, CudaError *error)
{
    return LAUNCH(experts_collect, p.sequences * p.per_sequence, threads_for(p.width),
                  (size_t)p.choices * sizeof(ExpertChoice), p, cuda, error);
}

/* x [b,S,k], slots [b,S,K] -> rows [e,b,m,k] */
bool cuda_dispatch(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return spread(experts_args(args, 0, 1, 2, NO_WEIGHTS), cuda, error);
}

/* drows [e,b,m,k], slots [b,S,K] -> dx [b,S,k] */
bool cuda_dispatch_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return collect(experts_args(args, 2, 1, 0, NO_WEIGHTS), cuda, error);
}

/* slots [b,S,K], weights [b,S,K], rows [e,b,m,k] -> y [b,S,k] */
bool cuda_combine(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return collect(experts_args(args, 3, 0, 2, 1), cuda, error);
}

/* dy [b,S,k], slots [b,S,K], weights [b,S,K] -> drows [e,b,m,k] */
bool cuda_combine_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return spread(experts_args(args, 0, 1, 3, 2), cuda, error);
}

/* dy [b,S,k], slots [b,S,K], rows [e,b,m,k] -> dweights [b,S,K] */
bool cuda_combine_weights(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    ExpertsArgs p = experts_args(args, 0, 1, 2, 3);
    int64_t warps = p.choices < EXPERTS_THREADS / WARP ? p.choices : EXPERTS_THREADS / WARP;
    return LAUNCH(experts_weights, p.sequences * p.per_sequence, warps * WARP, 0, p, cuda, error);
}
