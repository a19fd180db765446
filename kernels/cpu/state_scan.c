/* The scan of a state-space layer (ops.def), token by token. A head has a state h of E x Q numbers:
 *
 *   h(t) = p(t) h(t - 1) + step(t) x(t) B(t),  p(t) = exp(-step(t) exp(a))
 *   y(t) = C(t) h(t) + D x(t)
 *
 * The gradient G(t) = dL/dh(t) of the state goes from the last token to the first:
 *
 *   G(t) = C(t) dy(t) + p(t + 1) G(t + 1)
 *
 * The gradients of the inputs; <,> is the inner product:
 *
 *   dx(t) = step(t) <G(t), B(t)> + D dy(t)
 *   dB(t) = step(t) <G(t), x(t)>
 *   dC(t) = <dy(t), h(t)>
 *   dD = the sum over t of dy(t) x(t)
 *   dL/dlog p(t) = <G(t), p(t) h(t - 1)>
 *                = the sum over u >= t of dy(u) (y(u) - D x(u)) - step(u) x(u) G(u) B(u)
 *
 * The last sum needs only two running states, one forward and one backward. */
#ifndef REAL
#define KERNEL_FILE "kernels/cpu/state_scan.c"

/* Largest number of elements in the state of a head. This state, and one number for each token of a
 * sequence, lie on the stack. */
enum { MOST_STATE = 1 << 15 };

#include "kernels/cpu/real.h"

BOTH(state_scan)
BOTH(state_scan_grad)
BOTH(state_scan_shared)

#else

/* One head of one sample. Distance of neighbouring tokens in elements: heads * E in x and dy; heads
 * in `step`; groups * Q in B and C. */
typedef struct F(Head) {
    const REAL *dy, *x, *step, *B, *C;
    int64_t S, E, Q, head, x_row, step_row, b_row, x_at, step_at, b_at;
    REAL rate, D; /* exp(a) */
} F(Head);

/* Returns head i, where the heads of all samples are numbered one after the other. Arguments
 * `first` to `first` + 4 are x, step, a, B, C. */
static F(Head) F(head_of)(const KernelArgs *a, uint32_t first, int64_t i)
{
    const int64_t *n = a->size, heads = n['g'] * n['r'], b = i / heads, head = i % heads;
    const REAL *rates = a->ptr[first + 2];
    F(Head)
    h = {.S = n['S'], .E = n['E'], .Q = n['Q'], .head = head};
    assert(h.E * h.Q <= MOST_STATE);
    h.x_row = heads * h.E, h.step_row = heads, h.b_row = n['g'] * h.Q;
    h.x_at = b * h.S * h.x_row + head * h.E, h.step_at = b * h.S * heads + head;
    h.b_at = b * h.S * h.b_row + head / n['r'] * h.Q;
    h.x = (const REAL *)a->ptr[first] + h.x_at,
    h.step = (const REAL *)a->ptr[first + 1] + h.step_at;
    h.B = (const REAL *)a->ptr[first + 3] + h.b_at, h.C = (const REAL *)a->ptr[first + 4] + h.b_at;
    h.dy = first ? (const REAL *)a->ptr[0] + h.x_at : NULL;
    h.rate = exp(rates[head]);
    return h;
}

static inline REAL F(kept)(const F(Head) * h, int64_t t)
{
    return exp(-h->step[t * h->step_row] * h->rate);
}

/* Updates the state with token t: from h(t - 1) to h(t). */
static void F(advance)(const F(Head) * h, int64_t t, REAL *state)
{
    const REAL keep = F(kept)(h, t), step = h->step[t * h->step_row];
    const REAL *x = h->x + t * h->x_row, *B = h->B + t * h->b_row;
    for (int64_t e = 0; e < h->E; e++) {
        const REAL in = step * x[e];
        for (int64_t q = 0; q < h->Q; q++)
            state[e * h->Q + q] = keep * state[e * h->Q + q] + in * B[q];
    }
}

/* Goes one token back: from G(t + 1) to G(t). */
static void F(go_back)(const F(Head) * h, int64_t t, REAL *G)
{
    const REAL keep = t + 1 < h->S ? F(kept)(h, t + 1) : 0;
    const REAL *dy = h->dy + t * h->x_row, *C = h->C + t * h->b_row;
    for (int64_t e = 0; e < h->E; e++)
        for (int64_t q = 0; q < h->Q; q++) G[e * h->Q + q] = keep * G[e * h->Q + q] + dy[e] * C[q];
}

/* x [b,S,g,r,E], step [b,S,g,r], a [g,r], B [b,S,g,Q], C [b,S,g,Q], D [g,r] -> y [b,S,g,r,E] */
static void F(state_scan)(const KernelArgs *a)
{
    REAL state[MOST_STATE];
    const REAL *D = a->ptr[5];
    for (int64_t i = 0; i < a->size['b'] * a->size['g'] * a->size['r']; i++) {
        const F(Head) h = F(head_of)(a, 0, i);
        REAL *y = (REAL *)a->ptr[6] + h.x_at;
        memset(state, 0, (size_t)(h.E * h.Q) * sizeof *state);
        for (int64_t t = 0; t < h.S; t++, y += h.x_row) {
            F(advance)(&h, t, state);
            for (int64_t e = 0; e < h.E; e++)
                y[e] = F(dot)(state + e * h.Q, h.C + t * h.b_row, h.Q) +
                       D[h.head] * h.x[t * h.x_row + e];
        }
    }
}

/* Sets read[t] to dy(t) C(t) h(t) for each token. */
static void F(read_out)(const F(Head) * h, REAL *state, REAL *read)
{
    memset(state, 0, (size_t)(h->E * h->Q) * sizeof *state);
    for (int64_t t = 0; t < h->S; t++) {
        F(advance)(h, t, state);
        read[t] = 0;
        for (int64_t e = 0; e < h->E; e++)
            read[t] +=
                h->dy[t * h->x_row + e] * F(dot)(state + e * h->Q, h->C + t * h->b_row, h->Q);
    }
}

/* dy, x, step, a, B, C, D -> dx, dstep, da, dD */
static void F(state_scan_grad)(const KernelArgs *a)
{
    REAL state[MOST_STATE], read[KERNEL_MOST_SPLIT_SEQ];
    const int64_t *n = a->size, heads = n['g'] * n['r'], rows = n['b'] * n['S'] * heads;
    const REAL *D = a->ptr[6];
    REAL *dx = F(summed)(a, 0, rows * n['E']), *dstep = F(summed)(a, 1, rows);
    REAL *da = F(summed)(a, 2, heads), *dD = F(summed)(a, 3, heads);
    assert(n['S'] <= KERNEL_MOST_SPLIT_SEQ);
    for (int64_t i = 0; i < n['b'] * heads; i++) {
        const F(Head) h = F(head_of)(a, 1, i);
        REAL of_log = 0; /* dL / dlog p */
        F(read_out)(&h, state, read);
        memset(state, 0, (size_t)(h.E * h.Q) * sizeof *state);
        for (int64_t t = h.S - 1; t >= 0; t--) {
            const REAL step = h.step[t * h.step_row];
            REAL of_step = 0;
            F(go_back)(&h, t, state);
            for (int64_t e = 0; e < h.E; e++) {
                const REAL dy = h.dy[t * h.x_row + e], x = h.x[t * h.x_row + e];
                const REAL in = F(dot)(state + e * h.Q, h.B + t * h.b_row, h.Q);
                dx[h.x_at + t * h.x_row + e] += step * in + D[h.head] * dy;
                dD[h.head] += dy * x;
                of_step += x * in;
            }
            of_log += read[t] - step * of_step;
            dstep[h.step_at + t * h.step_row] += of_step - h.rate * of_log;
            da[h.head] -= step * h.rate * of_log;
        }
    }
}

/* dy, x, step, a, B, C -> dB, dC */
static void F(state_scan_shared)(const KernelArgs *a)
{
    REAL state[MOST_STATE];
    const int64_t *n = a->size, all = n['b'] * n['S'] * n['g'] * n['Q'];
    REAL *dB = F(summed)(a, 0, all), *dC = F(summed)(a, 1, all);
    for (int64_t i = 0; i < n['b'] * n['g'] * n['r']; i++) {
        const F(Head) h = F(head_of)(a, 1, i);
        memset(state, 0, (size_t)(h.E * h.Q) * sizeof *state);
        for (int64_t t = 0; t < h.S; t++) {
            REAL *to = dC + h.b_at + t * h.b_row;
            F(advance)(&h, t, state);
            for (int64_t e = 0; e < h.E; e++)
                for (int64_t q = 0; q < h.Q; q++)
                    to[q] += h.dy[t * h.x_row + e] * state[e * h.Q + q];
        }
        memset(state, 0, (size_t)(h.E * h.Q) * sizeof *state);
        for (int64_t t = h.S - 1; t >= 0; t--) {
            REAL *to = dB + h.b_at + t * h.b_row;
            F(go_back)(&h, t, state);
            for (int64_t e = 0; e < h.E; e++) {
                const REAL in = h.step[t * h.step_row] * h.x[t * h.x_row + e];
                for (int64_t q = 0; q < h.Q; q++) to[q] += in * state[e * h.Q + q];
            }
        }
    }
}

#endif
