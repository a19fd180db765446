/* Attention with grouped query heads. It is computed in tiles that fit on the stack, so no matrix
 * [s,T] of scores is ever stored.
 *    forward:   S = scale Q K^T, P = exp(S - lse), O = P V. With a causal mask, a query sees
 *               only keys up to its own global position.
 *    backward:  delta = sum of dO O over a row, dV = P^T dO, dS = P (dO V^T - delta),
 *               dQ = scale dS K, dK = scale dS^T Q, summed over the query heads of a group.
 *    part:      the same for a part of the keys, whose results are merged with those of earlier
 *               parts. The merge starts from the earlier outputs: their log-sum-exp counts as the
 *               largest score so far, and their sum of exponentials as 1.
 *    dropout:   O = (P m) V with m = mask / (1 - drop); dV = (P m)^T dO, dS = P (m dO V^T - delta).
 */
#ifndef REAL
#define KERNEL_FILE "kernels/cpu/attention.c"
#include <stdint.h>

#include "kernels/cpu/cpu.h"
#include "kernels/draw.h"

enum { ROWS = 64, KEYS = 64 }; /* queries of a tile; keys of a tile */

/* A chunk: keys that are contiguous in the whole sequence. */
typedef struct Keys {
    int64_t first, n, start; /* index of the first key among this rank's keys; number of keys; index
                                of the first key in the whole sequence */
} Keys;

typedef struct AttentionTile {
    int64_t position; /* global position of the tile's first query minus that of the chunk's first
                         key */
    int64_t n_rows, first_key, n_keys;
    int64_t q_stride, k_stride; /* distance in elements between neighbouring queries; between
                                   neighbouring keys */
    int64_t E;
    int64_t place; /* index of the first query's score for the chunk's first key among all scores
                      [b,s,g,r,T] of the whole sequences */
} AttentionTile;

/* Returns the first query of the tile after the one that begins at `row`. A tile never contains
 * queries of two chunks, so its queries are contiguous in the whole sequence. */
static int64_t next_row(const KernelArgs *a, int64_t row)
{
    int64_t S = a->size['s'], half = S / 2;
    int64_t end = row < half && a->second['s'] != a->start['s'] + half ? half : S;
    return row + ROWS < end ? row + ROWS : end;
}

/* Sets *keys to chunk i of the keys. Returns false if there is no such chunk. */
static bool keys_of(const KernelArgs *a, int64_t i, Keys *keys)
{
    const int64_t T = a->size['T'], half = T / 2;
    const bool in_two = a->second['T'] != a->start['T'] + half;
    *keys = (Keys){.first = i * half, .n = half, .start = i ? a->second['T'] : a->start['T']};
    if (!in_two) keys->n = T;
    return i < 1 + in_two;
}

#include "kernels/cpu/real.h"

BOTH(attention)
BOTH(attention_grad)
BOTH(attention_part)
BOTH(attention_part_grad)

#else

/* Returns how many of the keys the queries of a tile may see. last_position is the position of the
 * last query minus the position of the first key. */
static int64_t F(visible)(const KernelArgs *a, const Keys *keys, int64_t last_position)
{
    if (a->attrs.causal && last_position + 1 < keys->n) return last_position + 1;
    return keys->n;
}

/* Returns the index of the score of query `row`, local head `h` and key 0 among all scores
 * [b,s,g,r,T] of the whole sequences. */
static int64_t F(place_of)(const KernelArgs *a, int64_t b, int64_t row, int64_t h)
{
    if (a->attrs.drop == 0) return 0;
    const int64_t *n = a->binding->size, R = a->size['r'];
    int64_t place = (a->start['b'] + b) * n['s'] + cpu_whole_index(a, 's', row);
    place = place * n['g'] + a->start['g'] + h / R;
    return (place * n['r'] + a->start['r'] + h % R) * n['T'];
}

static AttentionTile F(tile_of)(const KernelArgs *a, const Keys *keys, int64_t row, int64_t key,
                                int64_t n_keys, int64_t place)
{
    int64_t E = a->size['E'];
    return (AttentionTile){.position = cpu_whole_index(a, 's', row) - keys->start,
                           .n_rows = next_row(a, row) - row,
                           .first_key = key,
                           .n_keys = n_keys - key < KEYS ? n_keys - key : KEYS,
                           .q_stride = a->size['g'] * a->size['r'] * E,
                           .k_stride = a->size['g'] * E,
                           .E = E,
                           .place = place + keys->start};
}

/* Returns how many keys of the tile the tile's query i may see. */
static int64_t F(seen)(const KernelArgs *a, const AttentionTile *t, int64_t i)
{
    int64_t n = t->position + i + 1 - t->first_key;
    if (!a->attrs.causal || n > t->n_keys) return t->n_keys;
    return n < 0 ? 0 : n;
}

/* scores [n_rows, KEYS] = factor q k^T */
static void F(scores)(const AttentionTile *t, REAL factor, const REAL *q, const REAL *k,
                      REAL *scores)
{
    F(gemm)
    (false, true, t->n_rows, t->n_keys, t->E, factor, q, t->q_stride, k, t->k_stride, 0, scores,
     KEYS);
}

/* Computes the mask of a query's keys: 1 / (1 - drop) for scores that dropout keeps, 0 for the
 * others. Returns NULL if there is no dropout. */
static const REAL *F(mask)(const KernelArgs *a, const AttentionTile *t, int64_t i, int64_t n,
                           REAL *mask)
{
    if (a->attrs.drop == 0) return NULL;
    const int64_t *size = a->binding->size, stride = size['g'] * size['r'] * size['T'];
    const uint64_t stream =
        draw_stream(DRAW_DROPOUT, a->control->step, a->microbatch, a->attrs.site);
    const uint32_t threshold = draw_threshold(a->attrs.drop);
    const int64_t place = t->place + i * stride + t->first_key;
    REAL grow = (REAL)(1 / (1 - a->attrs.drop));
    for (int64_t j = 0; j < n; j++)
        mask[j] =
            draw_word(a->control->seed, stream, (uint64_t)(place + j)) >= threshold ? grow : 0;
    return mask;
}

/* Adds one tile of keys to the largest score, the sum of exponentials and the output of each row.
 * The output is not yet divided by the sum. */
static void F(attend_tile)(const KernelArgs *a, const AttentionTile *t, const REAL *q,
                           const REAL *k, const REAL *v, REAL *out, REAL *top, REAL *total)
{
    REAL p[ROWS * KEYS], room[KEYS];
    F(scores)(t, (REAL)a->attrs.scale, q, k, p);
    for (int64_t i = 0; i < t->n_rows; i++) {
        REAL *row = p + i * KEYS, *y = out + i * t->q_stride, new_top = top[i];
        int64_t seen = F(seen)(a, t, i);
        for (int64_t j = 0; j < t->n_keys && !seen; j++) row[j] = 0;
        if (!seen) continue;
        for (int64_t j = 0; j < seen; j++) new_top = row[j] > new_top ? row[j] : new_top;
        REAL shrink = F(exponential)(top[i] - new_top); /* for the first tile, this is
                                                           exp(-infinity) = 0 */
        for (int64_t j = 0; j < seen; j++) row[j] = F(exponential)(row[j] - new_top);
        for (int64_t j = seen; j < t->n_keys; j++) row[j] = 0;
        total[i] = total[i] * shrink + F(sum)(row, seen);
        top[i] = new_top;
        const REAL *mask = F(mask)(a, t, i, seen, room);
        for (int64_t j = 0; mask && j < seen; j++) row[j] *= mask[j];
        for (int64_t e = 0; e < t->E; e++) y[e] *= shrink;
    }
    F(gemm)
    (false, false, t->n_rows, t->E, t->n_keys, 1, p, KEYS, v, t->k_stride, 1, out, t->q_stride);
}

/* Initialises the largest score and the sum of exponentials of n rows: for no keys, or from the
 * results of earlier parts. */
static void F(begin_rows)(const KernelArgs *a, int64_t n, REAL *out, int64_t out_stride,
                          const REAL *lse, int64_t lse_stride, REAL *top, REAL *total)
{
    for (int64_t i = 0; i < n; i++) {
        top[i] = a->attrs.accumulate ? lse[i * lse_stride] : -(REAL)INFINITY;
        total[i] = top[i] > -(REAL)INFINITY;
        if (total[i] == 0) memset(out + i * out_stride, 0, (size_t)a->size['E'] * sizeof *out);
    }
}

/* Processes all keys for one head and the tile of queries from `row` on. A query that sees no key
 * gets an output of zero and a log-sum-exp of minus infinity. */
static void F(attend_rows)(const KernelArgs *a, int64_t row, int64_t place, const REAL *q,
                           const REAL *k, const REAL *v, REAL *out, REAL *lse, int64_t lse_stride)
{
    REAL top[ROWS], total[ROWS];
    Keys keys;
    const int64_t n = next_row(a, row) - row, stride = a->size['g'] * a->size['r'] * a->size['E'];
    F(begin_rows)(a, n, out, stride, lse, lse_stride, top, total);
    for (int64_t c = 0; keys_of(a, c, &keys); c++) {
        AttentionTile t = F(tile_of)(a, &keys, row, 0, 0, place);
        const int64_t n_keys = F(visible)(a, &keys, t.position + n - 1);
        for (int64_t key = 0; key < n_keys; key += KEYS) {
            t = F(tile_of)(a, &keys, row, key, n_keys, place);
            const int64_t at = (keys.first + key) * t.k_stride;
            F(attend_tile)(a, &t, q, k + at, v + at, out, top, total);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t e = 0; e < a->size['E'] && total[i] > 0; e++) out[i * stride + e] /= total[i];
        lse[i * lse_stride] = top[i] + log(total[i]);
    }
}

/* q [b,s,g,r,E], k [b,T,g,E], v [b,T,g,E] -> out [b,s,g,r,E], lse [b,s,g,r] */
static void F(attention)(const KernelArgs *a)
{
    int64_t S = a->size['s'], T = a->size['T'], G = a->size['g'], R = a->size['r'];
    int64_t E = a->size['E'], heads = G * R;
    for (int64_t i = 0; i < a->size['b'] * heads; i++) {
        int64_t b = i / heads, h = i % heads, at_k = b * T * G * E + (h / R) * E;
        const REAL *k = (const REAL *)a->ptr[1] + at_k, *v = (const REAL *)a->ptr[2] + at_k;
        for (int64_t row = 0; row < S; row = next_row(a, row)) {
            int64_t at = (b * S + row) * heads + h;
            F(attend_rows)
            (a, row, F(place_of)(a, b, row, h), (const REAL *)a->ptr[0] + at * E, k, v,
             (REAL *)a->ptr[3] + at * E, (REAL *)a->ptr[4] + at, heads);
        }
    }
}

typedef struct F(Gradients) {
    const REAL *dout, *q, *k, *v, *out, *lse;
    REAL *dq, *dk, *dv;
} F(Gradients);

/* Adds the contributions of one tile. All pointers point to the tile's first query or to the
 * chunk's first key. */
static void F(attend_tile_grad)(const KernelArgs *a, const AttentionTile *t, const F(Gradients) * g,
                                const REAL *delta, int64_t lse_stride)
{
    REAL p[ROWS * KEYS], ds[ROWS * KEYS], room[KEYS], scale = (REAL)a->attrs.scale;
    int64_t at = t->first_key * t->k_stride;
    F(scores)(t, scale, g->q, g->k + at, p);
    F(scores)(t, 1, g->dout, g->v + at, ds);
    for (int64_t i = 0; i < t->n_rows; i++) {
        REAL *prow = p + i * KEYS, *dsrow = ds + i * KEYS, lse = g->lse[i * lse_stride];
        int64_t seen = F(seen)(a, t, i);
        const REAL *mask = F(mask)(a, t, i, seen, room);
        for (int64_t j = 0; mask && j < seen; j++) dsrow[j] *= mask[j];
        for (int64_t j = 0; j < seen; j++) {
            prow[j] = F(exponential)(prow[j] - lse);
            dsrow[j] = scale * prow[j] * (dsrow[j] - delta[i]);
        }
        for (int64_t j = 0; mask && j < seen; j++) prow[j] *= mask[j];
        for (int64_t j = seen; j < t->n_keys; j++) prow[j] = dsrow[j] = 0;
    }
    F(gemm)
    (true, false, t->n_keys, t->E, t->n_rows, 1, p, KEYS, g->dout, t->q_stride, 1, g->dv + at,
     t->k_stride);
    F(gemm)
    (false, false, t->n_rows, t->E, t->n_keys, 1, ds, KEYS, g->k + at, t->k_stride, 1, g->dq,
     t->q_stride);
    F(gemm)
    (true, false, t->n_keys, t->E, t->n_rows, 1, ds, KEYS, g->q, t->q_stride, 1, g->dk + at,
     t->k_stride);
}

/* Processes all keys for one head and the tile of queries from `row` on. */
static void F(attend_rows_grad)(const KernelArgs *a, int64_t row, int64_t place,
                                const F(Gradients) * g, const REAL *delta)
{
    Keys keys;
    for (int64_t c = 0; keys_of(a, c, &keys); c++) {
        AttentionTile t = F(tile_of)(a, &keys, row, 0, 0, place);
        const int64_t n_keys = F(visible)(a, &keys, t.position + t.n_rows - 1);
        F(Gradients) of = *g;
        const int64_t at = keys.first * t.k_stride;
        of.k += at, of.v += at, of.dk += at, of.dv += at;
        for (int64_t key = 0; key < n_keys; key += KEYS) {
            t = F(tile_of)(a, &keys, row, key, n_keys, place);
            F(attend_tile_grad)(a, &t, &of, delta, a->size['g'] * a->size['r']);
        }
    }
}

/* dout, q, k, v, out, lse -> dq [b,s,g,r,E], dk [b,T,g,E], dv [b,T,g,E] */
static void F(attention_grad)(const KernelArgs *a)
{
    int64_t S = a->size['s'], T = a->size['T'], G = a->size['g'], R = a->size['r'];
    int64_t B = a->size['b'], E = a->size['E'], heads = G * R;
    REAL *dq = F(summed)(a, 0, B * S * heads * E), *dk = F(summed)(a, 1, B * T * G * E);
    REAL *dv = F(summed)(a, 2, B * T * G * E), delta[ROWS];
    for (int64_t i = 0; i < B * heads; i++) {
        int64_t b = i / heads, h = i % heads, at_k = b * T * G * E + (h / R) * E;
        for (int64_t row = 0; row < S; row = next_row(a, row)) {
            int64_t at = (b * S + row) * heads + h;
            F(Gradients)
            g = {.dout = (const REAL *)a->ptr[0] + at * E,
                 .q = (const REAL *)a->ptr[1] + at * E,
                 .k = (const REAL *)a->ptr[2] + at_k,
                 .v = (const REAL *)a->ptr[3] + at_k,
                 .out = (const REAL *)a->ptr[4] + at * E,
                 .lse = (const REAL *)a->ptr[5] + at,
                 .dq = dq + at * E,
                 .dk = dk + at_k,
                 .dv = dv + at_k};
            const int64_t n_rows = next_row(a, row) - row;
            for (int64_t j = 0; j < n_rows; j++)
                delta[j] = F(dot)(g.dout + j * heads * E, g.out + j * heads * E, E);
            F(attend_rows_grad)(a, row, F(place_of)(a, b, row, h), &g, delta);
        }
    }
}

static void F(attention_part)(const KernelArgs *a)
{
    F(attention)(a);
}

static void F(attention_part_grad)(const KernelArgs *a)
{
    F(attention_grad)(a);
}

#endif
