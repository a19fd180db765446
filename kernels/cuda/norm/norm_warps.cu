/* RMSNorm and LayerNorm for bf16 rows of common widths. norm.cu has the kernels for other rows, and
 * describes the ops that can be fused with a norm. A warp normalises one or two rows by itself,
 * without barriers. It loads all elements before it uses the first one. Each lane then has at least
 * 64 bytes of loads under way, which is enough for the full speed of memory. */
#include "kernels/cuda/norm/norm.cuh"

enum { ROW_WARPS_THREADS = 256, MOST_EIGHTS = 16, MOST_ROWS = 2 };

/* The elements that one lane has of its warp's rows: up to MOST_EIGHTS groups of eight for each
 * row, before they are widened to fp32. */
typedef struct RowParts {
    Raw raw[MOST_ROWS][MOST_EIGHTS];
} RowParts;

typedef struct RowStatistics {
    float mean, r;
} RowStatistics;

/* Returns the sum over the warp of the numbers of a row, or of their squared distances from
 * `mean`. */
DEVICE float row_total(const NormArgs *a, const Raw *raw, const int eights, const bool squares,
                       float mean)
{
    float total = 0;
    UNROLL for (int u = 0; u < eights; u++)
    {
        float x[EIGHT];
        if ((u * WARP + (int)threadIdx.x % WARP) * EIGHT >= (int)a->rows.width) continue;
        widen_any(KINDS_real, DT_bf16, &raw[u], x);
        UNROLL for (int k = 0; k < EIGHT; k++)
        {
            const float away = x[k] - mean;
            total = squares ? fmaf(away, away, total) : total + x[k];
        }
    }
    return warp_sum(total);
}

DEVICE RowStatistics row_statistics(const NormArgs *a, const Raw *raw, const int eights)
{
    const float width = (float)a->rows.width;
    RowStatistics s;
    s.mean = a->centred ? row_total(a, raw, eights, false, 0) / width : 0;
    s.r = 1.0f / sqrtf(row_total(a, raw, eights, true, s.mean) / width + a->eps);
    return s;
}

/* Loads eight numbers of the norm's input. If the input is a sum, its terms may have any dtype. */
DEVICE Raw row_load(const NormArgs *a, const bool adds, int64_t at, int n)
{
    float x[EIGHT], more[EIGHT];
    if (!adds) return fetch(array_as_bf16(a->x), at, n);
    load(a->x, at, n, x);
    load(a->addend, at, n, more);
    UNROLL for (int k = 0; k < EIGHT; k++) x[k] += more[k];
    return round_any(KINDS_real, DT_bf16, x);
}

/* Writes eight normalised elements. Returns `most`, or the largest magnitude of these elements if
 * that is larger. */
DEVICE uint32_t row_write(const NormArgs *a, const Raw *raw, RowStatistics s, int64_t at,
                          const float weight[EIGHT], const float bias[EIGHT], uint32_t most)
{
    float x[EIGHT];
    widen_any(KINDS_real, DT_bf16, raw, x);
    UNROLL for (int k = 0; k < EIGHT; k++)
    {
        x[k] = (x[k] - s.mean) * s.r;
        x[k] = a->centred ? fmaf(x[k], weight[k], bias[k]) : x[k] * weight[k];
    }
    store(array_as_bf16(a->y), at, EIGHT, x);
    if (a->amax.of == AMAX_nothing) return most;
    round_all(DT_bf16, x);
    return amax_of_eight(x, EIGHT, most);
}

DEVICE void row_end(const NormArgs *a, int64_t row, RowStatistics s, uint32_t most)
{
    if (a->amax.of != AMAX_nothing) most = warp_largest(most);
    if (threadIdx.x % WARP > 0 || row >= a->rows.n) return;
    write_one(a->r, row, s.r);
    if (a->centred) write_one(a->mean, row, s.mean);
    if (a->amax.of == AMAX_rows) a->amax.out[row] = most;
    if (a->amax.of == AMAX_all) atomicMax(a->amax.out, most);
}

/* Normalises the rows of a block. `eights`: groups of eight that a lane has in a row; `rows`: rows
 * of a warp. */
DEVICE void row_block(const NormArgs *a, const int eights, const int rows, const bool adds)
{
    const int lane = (int)threadIdx.x % WARP, width = (int)a->rows.width;
    const int64_t warp = ((int64_t)blockIdx.x * ROW_WARPS_THREADS + threadIdx.x) / WARP;
    const int64_t first = warp * rows;
    RowParts parts;
    RowStatistics s[MOST_ROWS];
    uint32_t most[MOST_ROWS] = {0, 0};
    UNROLL for (int j = 0; j < rows; j++) UNROLL for (int u = 0; u < eights; u++)
    {
        const int column = (u * WARP + lane) * EIGHT;
        const bool real = first + j < a->rows.n && column < width;
        parts.raw[j][u] = row_load(a, adds, (first + j) * width + column, real ? EIGHT : 0);
    }
    UNROLL for (int j = 0; j < rows; j++) s[j] = row_statistics(a, parts.raw[j], eights);
    UNROLL for (int u = 0; u < eights; u++)
    {
        const int column = (u * WARP + lane) * EIGHT;
        float weight[EIGHT], bias[EIGHT];
        if (column >= width) continue;
        load(array_as_bf16(a->weight), column, EIGHT, weight);
        if (a->centred) load(array_as_bf16(a->bias), column, EIGHT, bias);
        UNROLL for (int j = 0; j < rows; j++)
        {
            const int64_t at = (first + j) * width + column;
            if (first + j >= a->rows.n) continue;
            if (adds && a->keeps)
                put_any(KINDS_real, array_as_bf16(a->sum), at, EIGHT, &parts.raw[j][u]);
            most[j] = row_write(a, &parts.raw[j][u], s[j], at, weight, bias, most[j]);
        }
    }
    UNROLL for (int j = 0; j < rows; j++) row_end(a, first + j, s[j], most[j]);
}

#define ROW_KERNEL(eights, rows, blocks_per_sm, blocks_of_add)                                     \
    KERNEL(norm_warps_##eights, NormArgs, ROW_WARPS_THREADS, blocks_per_sm)                        \
    {                                                                                              \
        row_block(&a, eights, rows, false);                                                        \
    }                                                                                              \
    KERNEL(norm_warps_add_##eights, NormArgs, ROW_WARPS_THREADS, blocks_of_add)                    \
    {                                                                                              \
        row_block(&a, eights, rows, true);                                                         \
    }
ROW_KERNEL(2, 2, 4, 2)
ROW_KERNEL(3, 2, 4, 2)
ROW_KERNEL(4, 2, 3, 2)
ROW_KERNEL(7, 1, 4, 2)
ROW_KERNEL(8, 1, 3, 2)
ROW_KERNEL(16, 1, 2, 1)

/* ---- which calls these kernels compute ---- */

/* The answer does not depend on fused ops, so that a norm has equal bits with and without them. */
bool norm_has_warps(const NormArgs *p)
{
    const int64_t width = p->rows.width;
    return width % EIGHT == 0 && width > WARP * EIGHT && width <= MOST_EIGHTS * WARP * EIGHT &&
           array_is_bf16(p->adds ? p->sum : p->x) && array_is_bf16(p->y) &&
           array_is_bf16(p->weight) && (!p->centred || array_is_bf16(p->bias));
}

#define ROW_LAUNCH(eights)                                                                         \
    (p.adds ? LAUNCH(norm_warps_add_##eights, blocks, ROW_WARPS_THREADS, 0, p, cuda, error)        \
            : LAUNCH(norm_warps_##eights, blocks, ROW_WARPS_THREADS, 0, p, cuda, error))

bool norm_warps(NormArgs p, const CudaContext *cuda, CudaError *error)
{
    const int64_t eights = ceil_div(p.rows.width, WARP * EIGHT), warps = ROW_WARPS_THREADS / WARP;
    const int64_t blocks = ceil_div(p.rows.n, eights > 4 ? warps : warps * MOST_ROWS);
    if (eights == 2) return ROW_LAUNCH(2);
    if (eights == 3) return ROW_LAUNCH(3);
    if (eights == 4) return ROW_LAUNCH(4);
    if (eights <= 7) return ROW_LAUNCH(7);
    return eights == 8 ? ROW_LAUNCH(8) : ROW_LAUNCH(16);
}
