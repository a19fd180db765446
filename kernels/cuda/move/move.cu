/* Ops that change how a value lies in memory: slice, place, pack, unpack, copy. Each op moves runs
 * of contiguous bytes. A thread moves words of the largest size that divides all runs. */
#include "kernels/cuda/launch.cuh"

enum { MOVE_THREADS = 256, MOVE_BLOCKS_PER_SM = 8, MOVE_MANY = 4 };

/* One side of a move is the whole [outer, middle, inner]. The other side is one or several parts
 * [outer, size, inner]; the first part begins at index `first` of the middle dimension. `inner`
 * counts words of `piece` bytes. */
typedef struct MoveArgs {
    char *whole, *parts;
    int64_t outer, middle, inner, size, first;
    int64_t n;      /* number of words in all parts */
    int64_t zigzag; /* 2n - 1 if there are n parts of two chunks each; 0 if each part is
                       contiguous */
    int32_t piece;  /* bytes of a word: 16, 8, 4, 2 or 1 */
    bool to_whole;
} MoveArgs;

DEVICE uint4 move_read(const MoveArgs *a, const char *at)
{
    uint4 x;
    x.x = x.y = x.z = x.w = 0;
    if (a->piece == 16) {
        x = *ALIGNED(const uint4, at);
    } else if (a->piece == 8) {
        uint2 y = *ALIGNED(const uint2, at);
        x.x = y.x, x.y = y.y;
    } else if (a->piece == 4) {
        x.x = *ALIGNED(const uint32_t, at);
    } else if (a->piece == 2) {
        x.x = *ALIGNED(const uint16_t, at);
    } else {
        x.x = *ALIGNED(const uint8_t, at);
    }
    return x;
}

DEVICE void move_write(const MoveArgs *a, char *at, uint4 x)
{
    if (a->piece == 16) {
        *ALIGNED(uint4, at) = x;
    } else if (a->piece == 8) {
        uint2 y;
        y.x = x.x, y.y = x.y;
        *ALIGNED(uint2, at) = y;
    } else if (a->piece == 4) {
        *ALIGNED(uint32_t, at) = x.x;
    } else if (a->piece == 2) {
        *ALIGNED(uint16_t, at) = (uint16_t)x.x;
    } else {
        *ALIGNED(uint8_t, at) = (uint8_t)x.x;
    }
}

/* Returns where word t of the parts lies in the whole; -1: beyond its end. */
DEVICE int64_t move_place(const MoveArgs *a, int64_t t)
{
    int64_t run = split_row(t, a->inner, a->n),
            column = t - run * a->inner; /* run counts [part, outer, size] */
    int64_t row = split_row(run, a->size, a->n), at = run - row * a->size;
    int64_t part = split_row(row, a->outer, a->n), outer = row - part * a->outer;
    int64_t middle = a->first + part * a->size + at;
    if (a->zigzag) {
        int64_t half = a->size / 2;
        middle = at < half ? part * half + at : (a->zigzag - part) * half + (at - half);
    }
    return t < a->n && middle < a->middle ? (outer * a->middle + middle) * a->inner + column : -1;
}

KERNEL(move_pieces, MoveArgs, MOVE_THREADS, MOVE_BLOCKS_PER_SM / 2)
{
    int64_t step = (int64_t)gridDim.x * MOVE_THREADS * MOVE_MANY;
    int64_t first = (int64_t)blockIdx.x * MOVE_THREADS * MOVE_MANY + threadIdx.x;
    for (int64_t t = first; t < a.n; t += step) {
        int64_t place[MOVE_MANY];
        uint4 x[MOVE_MANY];
        UNROLL for (int u = 0; u < MOVE_MANY; u++)
        {
            int64_t i = t + u * MOVE_THREADS;
            place[u] = move_place(&a, i);
            x[u].x = x[u].y = x[u].z = x[u].w = 0;
            if (place[u] >= 0)
                x[u] = move_read(&a,
                                 a.to_whole ? a.parts + i * a.piece : a.whole + place[u] * a.piece);
        }
        UNROLL for (int u = 0; u < MOVE_MANY; u++)
        {
            int64_t i = t + u * MOVE_THREADS;
            if (!a.to_whole && i < a.n) move_write(&a, a.parts + i * a.piece, x[u]);
            if (a.to_whole && place[u] >= 0) move_write(&a, a.whole + place[u] * a.piece, x[u]);
        }
    }
}

static bool move_launch(const KernelArgs *args, bool to_whole, int64_t parts, int64_t first,
                        const CudaContext *cuda, CudaError *error)
{
    MoveArgs p;
    int64_t row = args->inner * (int64_t)dtype_bytes(args->dtype[0]);
    uint64_t common = (uint64_t)row | (uintptr_t)args->ptr[0] | (uintptr_t)args->ptr[1] | 16;
    memset(&p, 0, sizeof p);
    p.whole = (char *)args->ptr[to_whole ? 1 : 0], p.parts = (char *)args->ptr[to_whole ? 0 : 1];
    p.piece = (int32_t)(common & (~common + 1)); /* the largest power of two that divides all of
                                                    them */
    p.outer = args->outer, p.middle = args->middle, p.inner = row / p.piece;
    p.size = args->part_size, p.first = first;
    p.n = parts * p.outer * p.size * p.inner;
    p.to_whole = to_whole;
    if (parts > 1 && args->attrs.chunks) p.zigzag = 2 * parts - 1;
    int64_t blocks =
        blocks_for(p.n, MOVE_THREADS * MOVE_MANY, (int64_t)cuda->n_sms * MOVE_BLOCKS_PER_SM);
    return LAUNCH(move_pieces, blocks, MOVE_THREADS, 0, p, cuda, error);
}

bool cuda_slice(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return move_launch(args, false, 1, args->part_start, cuda, error);
}

bool cuda_place(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    const uint64_t whole = (uint64_t)(args->outer * args->middle * args->inner);
    return device_zero(args->ptr[1], whole * dtype_bytes(args->dtype[0]), cuda, error) &&
           move_launch(args, true, 1, args->part_start, cuda, error);
}

bool cuda_pack(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    assert(args->attrs.parts * args->part_size >= args->middle);
    return move_launch(args, false, args->attrs.parts, 0, cuda, error);
}

bool cuda_unpack(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    assert(args->attrs.parts * args->part_size >= args->middle);
    return move_launch(args, true, args->attrs.parts, 0, cuda, error);
}

/* x [b,F,...] -> y [b,X,...]: takes X tokens of each sequence, from token attrs.first on; a token
 * may be an id or a row of numbers */
bool cuda_tokens(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    KernelArgs slice = *args;
    slice.outer = args->size['b'], slice.middle = args->size['F'], slice.inner = args->rows;
    slice.part_size = args->size['X'];
    return move_launch(&slice, false, 1, args->attrs.first, cuda, error);
}

bool cuda_span(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return cuda_tokens(args, cuda, error);
}

bool cuda_copy(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return device_copy(args->ptr[1], args->ptr[0],
                       (uint64_t)args->elements[0] * dtype_bytes(args->dtype[0]), cuda, error);
}

static bool from_host(const char *op, CudaError *error)
{
    snprintf(error->text, sizeof error->text, "%s: data comes from the host, by a copy", op);
    return false;
}

bool cuda_field(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    (void)args, (void)cuda;
    return from_host("field", error);
}

bool cuda_image(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    (void)args, (void)cuda;
    return from_host("image", error);
}

bool cuda_batch(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    (void)args, (void)cuda;
    return from_host("batch", error);
}
