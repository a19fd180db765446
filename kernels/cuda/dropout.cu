/* Dropout: y = x / (1 - p) if a random draw keeps the element, and 0 if not. The draw depends only
 * on the element's index in the whole tensor, and has the same bits as on the CPU. */
#include "kernels/cuda/draw.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pointwise/fused.h"

enum { DROPOUT_THREADS = 256, DROPOUT_BLOCKS_PER_SM = 4 };

/* Dimensions that are contiguous in the whole tensor are merged into one. The innermost merged
 * dimension is a row, and has index 0 below. Along a dimension, the rank may have two separate
 * chunks. From local index `half` on, an element's index in the whole tensor is then larger by
 * `jump`. */
typedef struct DropoutArgs {
    Array x, y;
    CudaDraw draw;
    /* for each dimension: its local size, its first index in the whole tensor, and the distance
     * between neighbours in the whole tensor */
    int64_t local[MAX_DIMS], start[MAX_DIMS], step[MAX_DIMS];
    int64_t half[MAX_DIMS], jump[MAX_DIMS];
    int32_t n_dims;
    int64_t row, per_row, n;
    float grow;
    bool accumulate;
} DropoutArgs;

DEVICE int64_t dropout_place(const DropoutArgs *a, int64_t row)
{
    int64_t place = a->start[0];
    for (int d = 1; d < a->n_dims; d++) {
        int64_t outer = split_row(row, a->local[d], a->n), at = row - outer * a->local[d];
        if (at >= a->half[d]) at += a->jump[d];
        place += (a->start[d] + at) * a->step[d];
        row = outer;
    }
    return place;
}

KERNEL(dropout_rows, DropoutArgs, DROPOUT_THREADS, DROPOUT_BLOCKS_PER_SM)
{
    int64_t step = (int64_t)gridDim.x * DROPOUT_THREADS;
    CudaDrawKey key = draw_key(&a.draw);
    for (int64_t t = (int64_t)blockIdx.x * DROPOUT_THREADS + threadIdx.x; t < a.n; t += step) {
        int64_t row = split_row(t, a.per_row, a.n), column = (t - row * a.per_row) * EIGHT;
        int64_t at = row * a.row + column;
        int n = eight_of(column, a.row);
        float x[EIGHT], y[EIGHT];
        uint32_t word[EIGHT];
        Raw raw = fetch(a.x, at, n), old = raw_zero();
        if (a.accumulate) old = fetch(a.y, at, n);
        draw_eight(key.seed, key.stream, (uint64_t)(dropout_place(&a, row) + column), word);
        widen_all(a.x, &raw, x);
        widen_all(a.y, &old, y);
        UNROLL for (int k = 0; k < EIGHT; k++)
        {
            float value = word[k] >= key.threshold ? a.grow * x[k] : 0;
            y[k] = a.accumulate ? y[k] + value : value;
        }
        store(a.y, at, n, y);
    }
}

/* Lists the dimensions from the inside to the outside; index 0 is a row. A dimension is merged with
 * the next inner one if this rank has the whole inner dimension. The elements of both are then
 * contiguous in the whole tensor. */
static void dropout_dims(const KernelArgs *args, DropoutArgs *p)
{
    const Binding *b = args->binding;
    int64_t step = 1;
    bool joins = true;
    p->n_dims = 1, p->local[0] = p->step[0] = 1;
    for (int d = b->n_dims[0] - 1; d >= 0; d--) {
        unsigned char l = (unsigned char)b->letter[0][d];
        const int64_t half = args->size[l] / 2, jump = args->second[l] - args->start[l] - half;
        if (!joins || jump > 0) {
            assert(jump == 0 || d < b->n_dims[0] - 1); /* a row never belongs to two chunks */
            p->local[p->n_dims] = 1;
            p->step[p->n_dims++] = step;
        }
        int last = p->n_dims - 1;
        if (jump > 0) p->half[last] = half, p->jump[last] = jump;
        p->start[last] += args->start[l] * (step / p->step[last]);
        p->local[last] *= args->size[l];
        joins = args->size[l] == b->size[l];
        step *= b->size[l];
    }
}

bool cuda_dropout_is_flat(const KernelArgs *args, int64_t *first)
{
    DropoutArgs p;
    memset(&p, 0, sizeof p);
    dropout_dims(args, &p);
    *first = p.start[0];
    return p.n_dims == 1;
}

/* x [...] -> y [...] */
bool cuda_dropout(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    DropoutArgs p;
    memset(&p, 0, sizeof p);
    dropout_dims(args, &p);
    p.row = p.local[0];
    p.x = array_of(args, 0, p.row), p.y = array_of(args, 1, p.row);
    p.per_row = ceil_div(p.row, EIGHT);
    p.n = args->rows / p.row * p.per_row;
    p.draw = draw_of(args, cuda);
    p.grow = (float)(1 / (1 - args->attrs.drop));
    p.accumulate = accumulates(args, 0);
    int64_t blocks = blocks_for(p.n, DROPOUT_THREADS, (int64_t)cuda->n_sms * DROPOUT_BLOCKS_PER_SM);
    return LAUNCH(dropout_rows, blocks, DROPOUT_THREADS, 0, p, cuda, error);
}
