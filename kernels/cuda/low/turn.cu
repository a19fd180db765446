/* Transposed copies of 8-bit operands. A tensor is seen as a matrix. A kernel that also quantises
 * reads the numbers once and writes them in both orders, or only transposed if no instruction reads
 * the other copy. Numbers that are already 8-bit are moved unchanged. If a plan runs with all
 * dtypes replaced by fp32, a plain kernel transposes the wider numbers. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pointwise/fused.h"
#include "kernels/cuda/pointwise/pointwise.cuh"

/* A tile has 128 x 128 numbers. In shared memory, one word holds four rows of a column. */
enum {
    TURN_THREADS = 256,
    TURN_TILE = 128,
    TURN_FOUR = 4,
    TURN_ACROSS = TURN_TILE / EIGHT,                    /* threads along a row of the input */
    TURN_DOWN = TURN_THREADS / TURN_ACROSS * TURN_FOUR, /* rows that are read at a time */
    TURN_OUT = 16,                                      /* rows of the input that are written at
                                                           once, as 16 bytes */
    TURN_GROUPS = TURN_TILE / TURN_OUT                  /* threads along a row of the output */
};

/* How numbers are scaled. TURN_moved: they are not scaled. TURN_all: the whole matrix has one
 * factor. TURN_rows, TURN_columns: each row, or each column, has its own factor. */
typedef enum TurnScale { TURN_moved, TURN_all, TURN_rows, TURN_columns } TurnScale;

typedef struct TurnArgs {
    Array x, amax, straight; /* [rows, columns] */
    char *turned;            /* [columns, rows] */
    int64_t rows, columns, across;
    float largest;
    int32_t scale;
    bool writes; /* true: the quantised numbers are also written in the input's order */
    bool wide;   /* each group of 16 rows that begins at a multiple of 16 is aligned in the
                    output */
} TurnArgs;

/* Returns where the word of four rows and one column lies in the tile. Lanes that write at the same
 * time differ in bits 3 to 6 of the column and bit 0 of `four`. Lanes that read at the same time
 * differ in bits 0 and 1 of the column and bits 2 to 4 of `four`. In both cases, no two lanes use
 * the same bank. */
DEVICE int turn_at(int four, int column)
{
    int place = (column >> 3 & 15) | (column & 1) << 4 | (column >> 1 & 3) << 5;
    return four * TURN_TILE + (place ^ (column >> 1 & 1) ^ (four & 1) << 4 ^ (four >> 2) << 1);
}

/* Sets the factors of eight columns: of each column, or of the whole matrix. */
DEVICE void turn_factors(const TurnArgs *a, int64_t column, float factor[EIGHT])
{
    float amax[EIGHT];
    UNROLL for (int k = 0; k < EIGHT; k++) factor[k] = 1;
    if (a->scale == TURN_columns) {
        load(a->amax, column, eight_of(column, a->columns), amax);
        UNROLL for (int k = 0; k < EIGHT; k++) factor[k] =
            point_quantise_factor(amax[k], a->largest);
    } else if (a->scale == TURN_all) {
        amax[0] = point_quantise_factor(read_one(a->amax, 0), a->largest);
        UNROLL for (int k = 0; k < EIGHT; k++) factor[k] = amax[0];
    }
}

DEVICE Raw turn_codes(const TurnArgs *a, const Raw *raw, int64_t row, const float factor[EIGHT])
{
    float x[EIGHT], of_row = 1;
    if (a->scale == TURN_moved) return *raw;
    if (a->scale == TURN_rows) of_row = point_quantise_factor(read_one(a->amax, row), a->largest);
    widen_any(KINDS_all, a->x.dtype, raw, x);
    UNROLL for (int k = 0; k < EIGHT; k++) x[k] =
        point_quantise(x[k], a->scale == TURN_rows ? of_row : factor[k], a->largest);
    return round_any(KINDS_all, a->straight.dtype, x);
}

/* Reads four rows of eight columns and converts them to 8-bit numbers. word[k] gets the four
 * numbers of column k. Writes the numbers in the input's order as well, if `writes` is true. */
DEVICE void turn_in(const TurnArgs *a, int64_t row, int64_t column, const float factor[EIGHT],
                    uint32_t word[EIGHT])
{
    Raw raw[TURN_FOUR];
    UNROLL for (int u = 0; u < TURN_FOUR; u++)
    {
        raw[u] = raw_zero();
        if (row + u < a->rows)
            raw[u] = fetch_any(KINDS_all, a->x, (row + u) * a->columns + column,
                               eight_of(column, a->columns));
    }
    UNROLL for (int k = 0; k < EIGHT; k++) word[k] = 0;
    UNROLL for (int u = 0; u < TURN_FOUR; u++)
    {
        if (row + u >= a->rows) continue;
        Raw codes = turn_codes(a, &raw[u], row + u, factor);
        if (a->writes)
            put_any(KINDS_all, a->straight, (row + u) * a->columns + column,
                    eight_of(column, a->columns), &codes);
        UNROLL for (int k = 0; k < EIGHT; k++) word[k] |=
            (codes.word[k / 4] >> (8 * (k % 4)) & 0xff) << (8 * u);
    }
}

/* Writes sixteen rows of one column. */
DEVICE void turn_out(const TurnArgs *a, int64_t row, int64_t column, const uint32_t word[4])
{
    char *to = a->turned + column * a->rows + row;
    uint4 all;
    all.x = word[0], all.y = word[1], all.z = word[2], all.w = word[3];
    if (a->wide) { /* all sixteen rows lie within the matrix */
        *ALIGNED(uint4, to) = all;
        return;
    }
    for (int k = 0; k < TURN_OUT && row + k < a->rows; k++)
        to[k] = (char)(word[k / 4] >> (8 * (k % 4)) & 0xff);
}

KERNEL(turn_eight_bit, TurnArgs, TURN_THREADS, 3)
{
    SHARED(uint32_t, tile);
    int64_t down = (int64_t)blockIdx.x / a.across;
    int64_t row0 = down * TURN_TILE, column0 = ((int64_t)blockIdx.x - down * a.across) * TURN_TILE;
    int across = (int)threadIdx.x % TURN_ACROSS * EIGHT;
    int first = (int)threadIdx.x / TURN_ACROSS * TURN_FOUR;
    float factor[EIGHT];
    if (column0 + across < a.columns) {
        turn_factors(&a, column0 + across, factor);
        for (int row = first; row < TURN_TILE && row0 + row < a.rows; row += TURN_DOWN) {
            uint32_t word[EIGHT];
            turn_in(&a, row0 + row, column0 + across, factor, word);
            UNROLL for (int k = 0; k < EIGHT; k++) tile[turn_at(row / TURN_FOUR, across + k)] =
                word[k];
        }
    }
    __syncthreads();
    int out = (int)threadIdx.x % TURN_GROUPS * TURN_OUT;
    for (int column = (int)threadIdx.x / TURN_GROUPS; column < TURN_TILE;
         column += TURN_THREADS / TURN_GROUPS) {
        uint32_t word[TURN_OUT / TURN_FOUR];
        if (row0 + out >= a.rows || column0 + column >= a.columns) continue;
        UNROLL for (int k = 0; k < TURN_OUT / TURN_FOUR; k++) word[k] =
            tile[turn_at(out / TURN_FOUR + k, column)];
        turn_out(&a, row0 + out, column0 + column, word);
    }
}

/* ---- numbers of more than 8 bits ---- */

enum { WORDS_TILE = 32, WORDS_THREADS = 256, WORDS_PITCH = WORDS_TILE + 1 };

KERNEL(turn_words, TurnArgs, WORDS_THREADS, 4)
{
    SHARED(uint32_t, tile);
    const bool half = is_half(a.x.dtype);
    int64_t down = (int64_t)blockIdx.x / a.across;
    int64_t row0 = down * WORDS_TILE;
    int64_t column0 = ((int64_t)blockIdx.x - down * a.across) * WORDS_TILE;
    int lane = (int)threadIdx.x % WORDS_TILE, first = (int)threadIdx.x / WORDS_TILE;
    for (int i = first; i < WORDS_TILE; i += WORDS_THREADS / WORDS_TILE) {
        int64_t at = (row0 + i) * a.columns + column0 + lane;
        if (row0 + i >= a.rows || column0 + lane >= a.columns) continue;
        tile[i * WORDS_PITCH + lane] =
            half ? ((const uint16_t *)a.x.at)[at] : ((const uint32_t *)a.x.at)[at];
    }
    __syncthreads();
    for (int i = first; i < WORDS_TILE; i += WORDS_THREADS / WORDS_TILE) {
        int64_t at = (column0 + i) * a.rows + row0 + lane;
        if (column0 + i >= a.columns || row0 + lane >= a.rows) continue;
        uint32_t word = tile[lane * WORDS_PITCH + i];
        if (half)
            ((uint16_t *)a.turned)[at] = (uint16_t)word;
        else
            ((uint32_t *)a.turned)[at] = word;
    }
}

/* ---- which matrix an op transposes ---- */

typedef struct TurnMatrix {
    int64_t rows, columns;
    TurnScale scale;
} TurnMatrix;

static TurnMatrix matrix(int64_t rows, int64_t columns, TurnScale scale)
{
    TurnMatrix m;
    m.rows = rows, m.columns = columns, m.scale = scale;
    return m;
}

/* Returns the first input of the op as a matrix. rows is 0 if the op neither quantises nor
 * transposes. */
static TurnMatrix matrix_of(const CudaChainPart *part)
{
    const KernelArgs *args = part->args;
    const int64_t tokens = args->size['b'] * args->size['s'], rest = args->rows;
    const int64_t k = args->size['k'], n = args->size['n'];
    if (part->op == OP_turn_tokens) return matrix(tokens, rest, TURN_moved);
    if (part->op == OP_turn_first) return matrix(k, rest, TURN_moved);
    if (part->op == OP_turn_last) return matrix(rest, n, TURN_moved);
    if (part->op == OP_quantise) return matrix(1, rest, TURN_all);
    if (part->op == OP_quantise_of_tokens) return matrix(tokens, rest, TURN_rows);
    if (part->op == OP_quantise_over_tokens) return matrix(tokens, rest, TURN_columns);
    if (part->op == OP_quantise_of_first) return matrix(k, rest, TURN_rows);
    if (part->op == OP_quantise_over_first) return matrix(k, rest, TURN_columns);
    if (part->op == OP_quantise_of_last) return matrix(rest, n, TURN_columns);
    if (part->op == OP_quantise_over_last) return matrix(rest, n, TURN_rows);
    return matrix(0, 0, TURN_moved);
}

static bool is_eight(DType t)
{
    return t == DT_e4m3 || t == DT_e5m2;
}

static bool launch_eight(TurnArgs *p, const CudaContext *cuda, CudaError *error)
{
    int64_t blocks = ceil_div(p->rows, TURN_TILE) * ceil_div(p->columns, TURN_TILE);
    p->across = ceil_div(p->columns, TURN_TILE);
    p->wide = (uintptr_t)p->turned % TURN_OUT == 0 && p->rows % TURN_OUT == 0;
    return LAUNCH(turn_eight_bit, blocks, TURN_THREADS,
                  TURN_TILE / TURN_FOUR * TURN_TILE * sizeof(uint32_t), *p, cuda, error);
}

static bool turn(OpKind op, const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    const CudaChainPart part = {op, args, 0};
    const TurnMatrix m = matrix_of(&part);
    TurnArgs p;
    memset(&p, 0, sizeof p);
    p.rows = m.rows, p.columns = m.columns;
    p.x = array_of(args, 0, m.columns);
    p.turned = (char *)args->ptr[1];
    p.scale = TURN_moved;
    if (is_eight(args->dtype[0])) return launch_eight(&p, cuda, error);
    p.across = ceil_div(p.columns, WORDS_TILE);
    return LAUNCH(turn_words, ceil_div(p.rows, WORDS_TILE) * p.across, WORDS_THREADS,
                  WORDS_TILE * WORDS_PITCH * sizeof(uint32_t), p, cuda, error);
}

/* x [b,s,...] -> y [...,b,s] */
bool cuda_turn_tokens(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return turn(OP_turn_tokens, args, cuda, error);
}

/* x [k,...] -> y [...,k] */
bool cuda_turn_first(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return turn(OP_turn_first, args, cuda, error);
}

/* x [...,n] -> y [n,...] */
bool cuda_turn_last(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    return turn(OP_turn_last, args, cuda, error);
}

/* ---- fused with quantisation ---- */

uint32_t cuda_turn_length(const CudaChainPart *part, uint32_t n)
{
    if (n < 2) return 0;
    const KernelArgs *from = part[0].args, *to = part[1].args;
    const TurnMatrix q = matrix_of(&part[0]), t = matrix_of(&part[1]);
    if (q.rows == 0 || q.scale == TURN_moved || t.rows == 0 || t.scale != TURN_moved) return 0;
    bool alike = q.scale == TURN_all || (q.rows == t.rows && q.columns == t.columns);
    return alike && from->ptr[2] == to->ptr[0] && from->elements[2] == to->elements[0] &&
                   is_eight(from->dtype[2]) && to->dtype[1] == from->dtype[2] &&
                   fused_takes(from->dtype[0]) && fused_takes(from->dtype[1])
               ? 2
               : 0;
}

bool cuda_turn_run(const CudaChainPart *part, uint32_t n, const CudaContext *cuda, CudaError *error)
{
    const KernelArgs *from = part[0].args;
    const TurnMatrix q = matrix_of(&part[0]), t = matrix_of(&part[1]);
    TurnArgs p;
    assert(n == 2);
    memset(&p, 0, sizeof p);
    p.rows = t.rows, p.columns = t.columns;
    p.x = array_of(from, 0, t.columns);
    p.amax = array_of(from, 1, q.scale == TURN_columns ? t.columns : 1);
    p.straight = array_of(from, 2, t.columns);
    p.turned = (char *)part[1].args->ptr[1];
    p.largest = (float)from->attrs.scale;
    p.scale = q.scale;
    p.writes = (part[0].unread & 1) == 0;
    return launch_eight(&p, cuda, error);
}
