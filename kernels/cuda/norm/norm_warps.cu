/* RMSNorm and LayerNorm over rows of bf16 numbers, for rows of a usual width. A warp normalises one
 * or two rows by itself, without barriers. It loads all of them before it uses the first number: 64
 * bytes or more for each lane are then on the way, enough to reach the memory's speed. */
#include "kernels/cuda/norm/norm.cuh"

enum { ROW_WARPS_THREADS = 256, MOST_EIGHTS = 16, MOST_ROWS = 2 };

/* A lane's groups of eight of its warp's rows, as they were loaded. */
typedef struct RowParts {
    Raw raw[MOST_ROWS][MOST_EIGHTS];
} RowParts;

typedef struct RowStatistics {
    float mean, r;
} RowStatistics;

/* The sum of one row's numbers, or of their squared distances from `mean`, over the warp. */
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

DEVICE void row_write(const NormArgs *a, const Raw *raw, RowStatistics s, int64_t at,
                      const float weight[EIGHT], const float bias[EIGHT])
{
    float x[EIGHT];
    widen_any(KINDS_real, DT_bf16, raw, x);
    UNROLL for (int k = 0; k < EIGHT; k++)
    {
        x[k] = (x[k] - s.mean) * s.r;
        x[k] = a->centred ? fmaf(x[k], weight[k], bias[k]) : x[k] * weight[k];
    }
    store(norm_array_bf16(a->y), at, EIGHT, x);
}

/* `eights`: groups of eight that a lane has in a row; `rows`: of a warp. */
DEVICE void row_block(const NormArgs *a, const int eights, const int rows)
{
    const int lane = (int)threadIdx.x % WARP, width = (int)a->rows.width;
    const int64_t warp = ((int64_t)blockIdx.x * ROW_WARPS_THREADS + threadIdx.x) / WARP;
    const int64_t first = warp * rows;
    RowParts parts;
    RowStatistics s[MOST_ROWS];
    UNROLL for (int j = 0; j < rows; j++) UNROLL for (int u = 0; u < eights; u++)
    {
        const int column = (u * WARP + lane) * EIGHT;
        const bool real = first + j < a->rows.n && column < width;
        parts.raw[j][u] =
            fetch(norm_array_bf16(a->x), (first + j) * width + column, real ? EIGHT : 0);
    }
    UNROLL for (int j = 0; j < rows; j++) s[j] = row_statistics(a, parts.raw[j], eights);
    UNROLL for (int u = 0; u < eights; u++)
    {
        const int column = (u * WARP + lane) * EIGHT;
        float weight[EIGHT], bias[EIGHT];
        if (column >= width) continue;
        load(norm_array_bf16(a->weight), column, EIGHT, weight);
        if (a->centred) load(norm_array_bf16(a->bias), column, EIGHT, bias);
        UNROLL for (int j = 0; j < rows; j++)
        {
            if (first + j >= a->rows.n) continue;
            row_write(a, &parts.raw[j][u], s[j], (first + j) * width + column, weight, bias);
        }
    }
    UNROLL for (int j = 0; j < rows; j++)
    {
        if (lane > 0 || first + j >= a->rows.n) continue;
        write_one(a->r, first + j, s[j].r);
        if (a->centred) write_one(a->mean, first + j, s[j].mean);
    }
}

#define ROW_KERNEL(name, eights, rows, blocks_per_sm)                                              \
    KERNEL(name, NormArgs, ROW_WARPS_THREADS, blocks_per_sm)                                       \
    {                                                                                              \
        row_block(&a, eights, rows);                                                               \
    }
ROW_KERNEL(norm_warps_2, 2, 2, 4)
ROW_KERNEL(norm_warps_3, 3, 2, 4)
ROW_KERNEL(norm_warps_4, 4, 2, 3)
ROW_KERNEL(norm_warps_8, 8, 1, 3)
ROW_KERNEL(norm_warps_16, 16, 1, 2)

/* ---- which calls ---- */

bool norm_has_warps(const NormArgs *p)
{
    const int64_t width = p->rows.width;
    return width % EIGHT == 0 && width > WARP * EIGHT && width <= MOST_EIGHTS * WARP * EIGHT &&
           !p->adds && p->amax.of == AMAX_nothing && norm_is_bf16(p->x) && norm_is_bf16(p->y) &&
           norm_is_bf16(p->weight) && (!p->centred || norm_is_bf16(p->bias));
}

bool norm_warps(NormArgs p, const CudaContext *cuda, CudaError *error)
{
    const int64_t eights = ceil_div(p.rows.width, WARP * EIGHT), warps = ROW_WARPS_THREADS / WARP;
    const int64_t blocks = ceil_div(p.rows.n, eights > 4 ? warps : warps * MOST_ROWS);
    if (eights == 2) return LAUNCH(norm_warps_2, blocks, ROW_WARPS_THREADS, 0, p, cuda, error);
    if (eights == 3) return LAUNCH(norm_warps_3, blocks, ROW_WARPS_THREADS, 0, p, cuda, error);
    if (eights == 4) return LAUNCH(norm_warps_4, blocks, ROW_WARPS_THREADS, 0, p, cuda, error);
    if (eights <= 8) return LAUNCH(norm_warps_8, blocks, ROW_WARPS_THREADS, 0, p, cuda, error);
    return LAUNCH(norm_warps_16, blocks, ROW_WARPS_THREADS, 0, p, cuda, error);
}
