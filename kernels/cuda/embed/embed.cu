/* For each id, copies the row of a table that the id names. If the vocabulary is split over
 * ranks, an id outside of this rank's range gives zeros. An id outside of the whole vocabulary
 * is a fault. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"

enum { EMBED_THREADS = 256, EMBED_BLOCKS_PER_SM = 4 };

typedef struct EmbedArgs {
    const int32_t *ids;
    Array table, y;
    int64_t rows, width, per_row, n; /* n: number of groups of eight elements, in all rows */
    int64_t start, valid, all;       /* start, valid: this rank's range of the vocabulary; all: size
                                        of the whole vocabulary */
    uint32_t *fault, fault_code;
} EmbedArgs;

KERNEL(embed_rows, EmbedArgs, EMBED_THREADS, EMBED_BLOCKS_PER_SM)
{
    int64_t step = (int64_t)gridDim.x * EMBED_THREADS;
    for (int64_t t = (int64_t)blockIdx.x * EMBED_THREADS + threadIdx.x; t < a.n; t += step) {
        int64_t row = split_row(t, a.per_row, a.n), column = (t - row * a.per_row) * EIGHT;
        int64_t id = a.ids[row], v = id - a.start;
        int n = eight_of(column, a.width);
        float x[EIGHT];
        bool mine = v >= 0 && v < a.valid;
        if (column == 0 && (id < 0 || id >= a.all)) atomicMax(a.fault, a.fault_code);
        load(a.table, mine ? v * a.width + column : 0, mine ? n : 0, x);
        store(a.y, row * a.width + column, n, x);
    }
}

/* ids [b,s] i32, table [v,k] -> y [b,s,k] */
bool cuda_embed(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    EmbedArgs p;
    int64_t k = args->size['k'];
    memset(&p, 0, sizeof p);
    p.ids = (const int32_t *)args->ptr[0];
    p.table = array_of(args, 1, k), p.y = array_of(args, 2, k);
    p.rows = args->size['b'] * args->size['s'], p.width = k;
    p.per_row = ceil_div(k, EIGHT), p.n = p.rows * p.per_row;
    p.start = args->start['v'], p.valid = args->valid['v'], p.all = args->binding->size['v'];
    p.fault = cuda->fault, p.fault_code = fault_code(CUDA_FAULT_id, cuda);
    return LAUNCH(embed_rows,
                  blocks_for(p.n, EMBED_THREADS, (int64_t)cuda->n_sms * EMBED_BLOCKS_PER_SM * 2),
                  EMBED_THREADS, 0, p, cuda, error);
}
