/* The gradient of an embedding, with the same bits each time. Positions are sorted by token id.
 * The sort is stable: equal ids keep the order of positions. Then the sorted list is cut into
 * tiles. A block adds up the runs of equal ids in its tile. If a run crosses tiles, a second kernel
 * adds up the sums of its tiles in order. The block of the tile in which the run begins does this.
 *
 * The sort has one pass for each 8-bit digit of the ids. In a pass, tiles count their digits, one
 * block turns the counts into positions, and tiles store their entries at these positions. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/workspace.h"

enum {
    SORT_THREADS = 256,
    SORT_WARPS = SORT_THREADS / WARP,
    SORT_TILE = 1024,
    DIGITS = 256,
    SCAN_THREADS = 1024,
    RUN_TILE = 64, /* entries of the sorted list that a block adds up */
    RUN_THREADS = 256
};

typedef struct Entry {
    /* index of the row in this rank's table; if it is not below the number of rows, the id belongs
     * to another rank */
    uint32_t key, position;
} Entry;

typedef struct SortArgs {
    const int32_t *ids; /* used by the first pass; later passes read `from` */
    const Entry *from;
    Entry *to;
    uint32_t *count; /* [DIGITS, tiles] */
    int64_t n, tiles, start, valid;
    int32_t shift;
} SortArgs;

DEVICE Entry sort_entry(const SortArgs *a, int64_t i)
{
    Entry entry;
    if (a->ids == NULL) return a->from[i];
    int64_t id = a->ids[i], v = id - a->start;
    entry.key = v >= 0 && v < a->valid ? (uint32_t)v : (uint32_t)a->valid;
    entry.position = (uint32_t)i;
    return entry;
}

/* Returns the lanes whose digit equals this lane's. Lanes without an entry (`real` is false) do not
 * count. */
DEVICE uint32_t sort_peers(uint32_t digit, bool real)
{
    uint32_t peers = __ballot_sync(FULL, real);
    UNROLL for (int bit = 0; bit < 8; bit++)
    {
        bool one = digit >> bit & 1;
        uint32_t ones = __ballot_sync(FULL, one);
        peers &= one ? ones : ~ones;
    }
    return peers;
}

/* Counts how often each digit occurs in the entries of each warp: held [warp, digit]. A warp has
 * consecutive entries of the tile. */
DEVICE void sort_count_warps(const SortArgs *a, uint32_t *held)
{
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int64_t first = (int64_t)blockIdx.x * SORT_TILE + warp * (SORT_TILE / SORT_WARPS);
    for (uint32_t i = threadIdx.x; i < SORT_WARPS * DIGITS; i += SORT_THREADS) held[i] = 0;
    __syncthreads();
    for (int turn = 0; turn < SORT_TILE / SORT_THREADS; turn++) {
        int64_t i = first + turn * WARP + lane;
        bool real = i < a->n;
        uint32_t digit = real ? sort_entry(a, i).key >> a->shift & (DIGITS - 1u) : 0;
        uint32_t peers = sort_peers(digit, real);
        if (real && __ffs(peers) - 1 == (int)lane)
            held[warp * DIGITS + digit] += (uint32_t)__popc(peers);
        __syncwarp();
    }
    __syncthreads();
}

KERNEL(sort_count, SortArgs, SORT_THREADS, 4)
{
    SHARED(uint32_t, held);
    uint32_t digit = threadIdx.x, total = 0;
    sort_count_warps(&a, held);
    for (uint32_t warp = 0; warp < SORT_WARPS; warp++) total += held[warp * DIGITS + digit];
    a.count[digit * a.tiles + blockIdx.x] = total;
}

/* Replaces each count [DIGITS, tiles] by the sum of all counts before it. One block does this. */
KERNEL(sort_scan, SortArgs, SCAN_THREADS, 1)
{
    SHARED(uint32_t, held);
    int64_t n = DIGITS * a.tiles, each = (n + SCAN_THREADS - 1) / SCAN_THREADS;
    int64_t first = threadIdx.x * each, end = first + each < n ? first + each : n;
    uint32_t total = 0, before = 0;
    for (int64_t i = first; i < end; i++) total += a.count[i];
    held[threadIdx.x] = total;
    __syncthreads();
    for (uint32_t step = 1; step < SCAN_THREADS; step *= 2) {
        uint32_t add = threadIdx.x >= step ? held[threadIdx.x - step] : 0;
        __syncthreads();
        held[threadIdx.x] += add;
        __syncthreads();
    }
    before = held[threadIdx.x] - total;
    for (int64_t i = first; i < end; i++) {
        uint32_t count = a.count[i];
        a.count[i] = before;
        before += count;
    }
}

KERNEL(sort_scatter, SortArgs, SORT_THREADS, 4)
{
    SHARED(uint32_t, held);
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int64_t first = (int64_t)blockIdx.x * SORT_TILE + warp * (SORT_TILE / SORT_WARPS);
    sort_count_warps(&a, held);
    uint32_t place = a.count[threadIdx.x * a.tiles + blockIdx.x]; /* position of the tile's first
                                                                     entry that has this thread's
                                                                     digit */
    for (int w = 0; w < SORT_WARPS; w++) {
        uint32_t count = held[w * DIGITS + (int)threadIdx.x];
        held[w * DIGITS + (int)threadIdx.x] = place;
        place += count;
    }
    __syncthreads();
    for (int turn = 0; turn < SORT_TILE / SORT_THREADS; turn++) {
        int64_t i = first + turn * WARP + lane;
        bool real = i < a.n;
        Entry entry;
        entry.key = 0, entry.position = 0;
        if (real) entry = sort_entry(&a, i);
        uint32_t digit = entry.key >> a.shift & (DIGITS - 1u);
        uint32_t peers = sort_peers(digit, real), before = peers & ((1u << lane) - 1);
        uint32_t at = real ? held[warp * DIGITS + digit] : 0;
        __syncwarp();
        if (real) a.to[at + (uint32_t)__popc(before)] = entry;
        if (real && before == 0) held[warp * DIGITS + digit] = at + (uint32_t)__popc(peers);
        __syncwarp();
    }
}

/* ---- runs of equal ids ---- */

typedef struct RunArgs {
    Array dy, out;
    const Entry *sorted;
    /* [tiles, 2, width]: the sums of a tile's first and last run, if these continue in other
     * tiles */
    float *parts;
    int64_t n, width, valid;
    bool accumulate;
} RunArgs;

DEVICE void run_put(const RunArgs *a, uint32_t key, int64_t column, int n, const float total[EIGHT])
{
    int64_t at = (int64_t)key * a->width + column;
    float y[EIGHT];
    UNROLL for (int k = 0; k < EIGHT; k++) y[k] = total[k];
    if (a->accumulate) {
        float old[EIGHT];
        load(a->out, at, n, old);
        UNROLL for (int k = 0; k < EIGHT; k++) y[k] = old[k] + y[k];
    }
    store(a->out, at, n, y);
}

/* Stores the sum of run [first, end) of tile [from, to). If the run continues in another tile, the
 * sum goes to `parts`; if not, to the output. */
DEVICE void run_end(const RunArgs *a, int64_t first, int64_t end, int64_t from, int64_t to,
                    int64_t column, int n, const float total[EIGHT])
{
    uint32_t key = a->sorted[first].key;
    bool earlier = first == from && from > 0 && a->sorted[from - 1].key == key;
    bool later = end == to && to < a->n && a->sorted[to].key == key;
    if (!earlier && !later) {
        run_put(a, key, column, n, total);
        return;
    }
    float *part = a->parts + (from / RUN_TILE * 2 + (earlier ? 0 : 1)) * a->width;
    UNROLL for (int k = 0; k < EIGHT; k++) if (k < n) part[column + k] = total[k];
}

/* A block computes one tile of the sorted list; each of its threads computes eight columns. */
KERNEL(run_tiles, RunArgs, RUN_THREADS, 4)
{
    SHARED(Entry, entry);
    int64_t from = (int64_t)blockIdx.x * RUN_TILE,
            to = from + RUN_TILE < a.n ? from + RUN_TILE : a.n;
    for (int64_t i = from + threadIdx.x; i < to; i += blockDim.x) entry[i - from] = a.sorted[i];
    __syncthreads();
    for (int64_t column = threadIdx.x * EIGHT; column < a.width; column += blockDim.x * EIGHT) {
        int n = eight_of(column, a.width);
        for (int64_t first = from, end; first < to && entry[first - from].key < a.valid;
             first = end) {
            uint32_t key = entry[first - from].key;
            float total[EIGHT];
            UNROLL for (int k = 0; k < EIGHT; k++) total[k] = 0;
            for (end = first; end < to && entry[end - from].key == key; end++) {
                float x[EIGHT];
                load(a.dy, (int64_t)entry[end - from].position * a.width + column, n, x);
                UNROLL for (int k = 0; k < EIGHT; k++) total[k] += x[k];
            }
            run_end(&a, first, end, from, to, column, n, total);
        }
    }
}

/* If a run that crosses tiles begins in the block's tile, the block adds up the sums of that run's
 * tiles. */
KERNEL(run_joins, RunArgs, RUN_THREADS, 4)
{
    int64_t from = (int64_t)blockIdx.x * RUN_TILE, to = from + RUN_TILE;
    if (to >= a.n) return;
    uint32_t key = a.sorted[to - 1].key;
    bool goes_on = key < a.valid && a.sorted[to].key == key;
    if (!goes_on || (a.sorted[from].key == key && from > 0 && a.sorted[from - 1].key == key))
        return;
    for (int64_t column = threadIdx.x * EIGHT; column < a.width; column += blockDim.x * EIGHT) {
        int n = eight_of(column, a.width);
        float total[EIGHT];
        UNROLL for (int k = 0; k < EIGHT; k++) total[k] =
            k < n ? a.parts[(blockIdx.x * 2 + 1) * a.width + column + k] : 0;
        for (int64_t tile = blockIdx.x + 1; tile * RUN_TILE < a.n; tile++) {
            if (a.sorted[tile * RUN_TILE].key != key) break;
            UNROLL for (int k = 0; k < EIGHT; k++) if (k < n) total[k] +=
                a.parts[tile * 2 * a.width + column + k];
        }
        run_put(&a, key, column, n, total);
    }
}

/* ---- launches ---- */

typedef struct Scratch {
    uint64_t other, count, parts, end; /* offsets in bytes of the arrays that follow the first list
                                          of entries */
} Scratch;

static Scratch scratch_of(int64_t n, int64_t width)
{
    Scratch s;
    s.other = (uint64_t)n * sizeof(Entry);
    s.count = 2 * s.other;
    s.parts = s.count + (uint64_t)(DIGITS * ceil_div(n, SORT_TILE)) * sizeof(uint32_t);
    s.parts = (s.parts + 127) / 128 * 128;
    s.end = s.parts + (uint64_t)(ceil_div(n, RUN_TILE) * 2 * width) * sizeof(float);
    return s;
}

uint64_t cuda_embed_grad_workspace(OpKind op, const DType *dtype, const int64_t *elements,
                                   uint32_t n_args)
{
    (void)op, (void)dtype, (void)n_args;
    return elements[1] > 0 ? scratch_of(elements[1], elements[0] / elements[1]).end : 0;
}

/* Sorts the entries by key and returns the sorted list. It sorts by as many bits as `valid` has. */
static const Entry *sort(SortArgs p, Entry *list[2], const CudaContext *cuda, CudaError *error)
{
    int64_t tiles = p.tiles;
    int turn = 0;
    for (p.shift = 0; p.shift == 0 || p.valid >> p.shift > 0; p.shift += 8, turn++) {
        p.to = list[turn % 2];
        if (turn > 0) p.ids = NULL, p.from = list[(turn + 1) % 2];
        if (!LAUNCH(sort_count, tiles, SORT_THREADS, SORT_WARPS * DIGITS * sizeof(uint32_t), p,
                    cuda, error) ||
            !LAUNCH(sort_scan, 1, SCAN_THREADS, SCAN_THREADS * sizeof(uint32_t), p, cuda, error) ||
            !LAUNCH(sort_scatter, tiles, SORT_THREADS, SORT_WARPS * DIGITS * sizeof(uint32_t), p,
                    cuda, error))
            return NULL;
    }
    return list[(turn + 1) % 2];
}

/* dy [b,s,k], ids [b,s] i32 -> dtable [v,k] */
bool cuda_embed_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    SortArgs p;
    RunArgs run;
    int64_t n = args->size['b'] * args->size['s'], k = args->size['k'];
    uint64_t bytes = (uint64_t)(args->size['v'] * k) * dtype_bytes(args->dtype[2]);
    char *scratch = (char *)args->ptr[3];
    Scratch at = scratch_of(n, k);
    Entry *list[2];
    memset(&p, 0, sizeof p);
    memset(&run, 0, sizeof run);
    if (!accumulates(args, 0) && !device_zero(args->ptr[2], bytes, cuda, error)) return false;
    if (n == 0) return true;
    list[0] = (Entry *)scratch, list[1] = (Entry *)(scratch + at.other);
    p.ids = (const int32_t *)args->ptr[1];
    p.count = (uint32_t *)(scratch + at.count);
    p.n = n, p.tiles = ceil_div(n, SORT_TILE);
    p.start = args->start['v'], p.valid = args->valid['v'];
    run.sorted = sort(p, list, cuda, error);
    if (run.sorted == NULL) return false;
    run.dy = array_of(args, 0, k), run.out = array_of(args, 2, k);
    run.parts = (float *)(scratch + at.parts);
    run.n = n, run.width = k, run.valid = p.valid;
    run.accumulate = accumulates(args, 0);
    return LAUNCH(run_tiles, ceil_div(n, RUN_TILE), RUN_THREADS, RUN_TILE * sizeof(Entry), run,
                  cuda, error) &&
           LAUNCH(run_joins, ceil_div(n, RUN_TILE), RUN_THREADS, 0, run, cuda, error);
}
