/* Mixture of experts: routing (topk, route, slots), and the copies of tokens to the experts and
 * back (dispatch, combine). The i-th choice of an expert in a sequence, counted from 0, gets slot
 * expert * capacity + i. If i is not below the capacity, the choice is dropped and its slot is -1.
 * A rank has the experts from start['e'] on, and their slots from start['m'] on. It ignores the
 * experts of other ranks. */
#ifndef REAL
#define KERNEL_FILE "kernels/cpu/experts.c"
#include "kernels/cpu/real.h"

BOTH(topk)
BOTH(topk_biased)
BOTH(loads)
BOTH(route)
BOTH(route_grad)
BOTH(route_sigmoid)
BOTH(route_sigmoid_grad)
BOTH(dispatch)
BOTH(dispatch_grad)
BOTH(combine)
BOTH(combine_grad)
BOTH(combine_weights)
BOTH(balance)
BOTH(balance_grad)
BOTH(router_z)
BOTH(router_z_grad)
BOTH(charge)
BOTH(charge_grad)
BOTH(expert_bias)
BOTH(expert_bias_grad)

/* ids [b,S,K] -> slots [b,S,K], both i32: the choices of a sequence take the slots of an expert in
 * the order of tokens */
void cpu_slots(const KernelArgs *a)
{
    const int32_t *ids = a->ptr[0];
    int32_t *slots = a->ptr[1];
    const int64_t n = a->size['S'] * a->size['K'], capacity = a->attrs.capacity;
    int64_t taken[MOST_EXPERTS];
    assert(a->attrs.experts <= MOST_EXPERTS);
    for (int64_t b = 0; b < a->size['b']; b++) {
        memset(taken, 0, sizeof taken);
        for (int64_t i = b * n; i < (b + 1) * n; i++) {
            assert(ids[i] >= 0 && ids[i] < a->attrs.experts);
            int64_t at = taken[ids[i]]++;
            slots[i] = at < capacity ? (int32_t)(ids[i] * capacity + at) : -1;
        }
    }
}

#else

/* Returns true if x is larger than `than`. A NaN counts as larger than any number, so that it
 * reaches the result. */
static inline bool F(is_larger)(REAL x, REAL than)
{
    return x > than || (x != x && than == than);
}

static inline REAL F(sigmoid_of)(REAL x)
{
    return 1 / (1 + exp(-x));
}

/* Returns the score of a group of `n` experts. */
static REAL F(group_score)(const KernelArgs *a, const REAL *logits, int64_t n)
{
    REAL first = -(REAL)INFINITY, second = first;
    for (int64_t e = 0; e < n; e++) {
        if (logits[e] > first)
            second = first, first = logits[e];
        else if (logits[e] > second)
            second = logits[e];
    }
    /* scores with a bias have already gone through the sigmoid */
    if (a->attrs.sigmoid && a->n_in == 2) return first + second;
    return a->attrs.sigmoid ? F(sigmoid_of)(first) + F(sigmoid_of)(second) : first;
}

/* Marks the experts outside of the best groups. If two groups have equal scores, the first one is
 * better. */
static void F(leave_out)(const KernelArgs *a, const REAL *logits, bool *out)
{
    const int64_t groups = a->attrs.expert_groups, n = groups ? a->size['N'] / groups : 0;
    REAL score[MOST_EXPERT_GROUPS];
    bool taken[MOST_EXPERT_GROUPS] = {false};
    for (int64_t g = 0; g < groups; g++) score[g] = F(group_score)(a, logits + g * n, n);
    for (int64_t j = 0; groups && j < a->attrs.top_groups; j++) {
        int64_t best = -1;
        for (int64_t g = 0; g < groups; g++)
            if (!taken[g] && (best < 0 || F(is_larger)(score[g], score[best]))) best = g;
        taken[best] = true;
    }
    for (int64_t g = 0; g < groups; g++)
        for (int64_t e = 0; e < n; e++) out[g * n + e] = !taken[g];
}

/* scores [N] -> ids [K] */
static void F(choose)(const KernelArgs *a, const REAL *scores, int32_t *ids)
{
    bool chosen[MOST_EXPERTS] = {false};
    F(leave_out)(a, scores, chosen);
    for (int64_t j = 0; j < a->size['K']; j++) {
        int64_t best = -1;
        for (int64_t e = 0; e < a->size['N']; e++)
            if (!chosen[e] && (best < 0 || F(is_larger)(scores[e], scores[best]))) best = e;
        chosen[best] = true;
        ids[j] = (int32_t)best;
    }
}

/* logits [b,s,N] -> ids [b,s,K] i32: the K largest logits, the largest first; of two equal logits,
 * the one with the smaller id comes first */
static void F(topk)(const KernelArgs *a)
{
    const int64_t rows = a->size['b'] * a->size['s'];
    for (int64_t i = 0; i < rows; i++) F(choose)
    (a, (const REAL *)a->ptr[0] + i * a->size['N'], (int32_t *)a->ptr[1] + i * a->size['K']);
}

/* logits [b,s,N], bias [N] -> ids [b,s,K] i32, chosen by sigmoid(logit) + bias */
static void F(topk_biased)(const KernelArgs *a)
{
    const REAL *logits = a->ptr[0], *bias = a->ptr[1];
    const int64_t n = a->size['N'], rows = a->size['b'] * a->size['s'];
    REAL scores[MOST_EXPERTS];
    assert(n <= MOST_EXPERTS);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t e = 0; e < n; e++) scores[e] = F(sigmoid_of)(logits[i * n + e]) + bias[e];
        F(choose)(a, scores, (int32_t *)a->ptr[2] + i * a->size['K']);
    }
}

/* ids [b,s,K] i32 -> counts [N] */
static void F(loads)(const KernelArgs *a)
{
    const int32_t *ids = a->ptr[0];
    const int64_t n = a->size['b'] * a->size['s'] * a->size['K'];
    REAL *counts = F(summed)(a, 0, a->size['N']);
    for (int64_t i = 0; i < n; i++) {
        assert(ids[i] >= 0 && ids[i] < a->size['N']);
        counts[ids[i]] += 1;
    }
}

/* Returns the sum of exp(logit - largest) over the experts over which weights are normalised: the
 * chosen ones, or all. */
static REAL F(softmax_sum)(const KernelArgs *a, const REAL *logits, const int32_t *ids,
                           REAL *largest)
{
    const int64_t n = a->attrs.normalise ? a->size['K'] : a->size['N'];
    REAL sum = 0;
    *largest = logits[ids[0]];
    for (int64_t j = 0; j < n; j++) {
        REAL x = logits[a->attrs.normalise ? ids[j] : j];
        if (x > *largest) *largest = x;
    }
    for (int64_t j = 0; j < n; j++) sum += exp(logits[a->attrs.normalise ? ids[j] : j] - *largest);
    return sum;
}

/* logits [b,s,N], ids [b,s,K] i32 -> weights [b,s,K] */
static void F(route)(const KernelArgs *a)
{
    const REAL *logits = a->ptr[0];
    const int32_t *ids = a->ptr[1];
    REAL *weights = a->ptr[2];
    const int64_t n = a->size['N'], k = a->size['K'], rows = a->size['b'] * a->size['s'];
    for (int64_t i = 0; i < rows; i++, logits += n, ids += k, weights += k) {
        REAL largest, sum = F(softmax_sum)(a, logits, ids, &largest);
        for (int64_t j = 0; j < k; j++) weights[j] = exp(logits[ids[j]] - largest) / sum;
    }
}

/* dweights [b,s,K], logits [b,s,N], ids [b,s,K] i32 -> dlogits [b,s,N]: dlogit_e = p_e ([e chosen]
 * dw_e - sum_j p_j dw_j), where p is the softmax that gives the weights */
static void F(route_grad)(const KernelArgs *a)
{
    const REAL *dweights = a->ptr[0], *logits = a->ptr[1];
    const int32_t *ids = a->ptr[2];
    const int64_t n = a->size['N'], k = a->size['K'], rows = a->size['b'] * a->size['s'];
    REAL *dlogits = F(summed)(a, 0, rows * n);
    for (int64_t i = 0; i < rows; i++, dweights += k, logits += n, ids += k, dlogits += n) {
        REAL largest, sum = F(softmax_sum)(a, logits, ids, &largest), mean = 0;
        for (int64_t j = 0; j < k; j++) mean += exp(logits[ids[j]] - largest) / sum * dweights[j];
        for (int64_t j = 0; j < k; j++)
            dlogits[ids[j]] += exp(logits[ids[j]] - largest) / sum *
                               (dweights[j] - (a->attrs.normalise ? mean : 0));
        for (int64_t e = 0; e < n && !a->attrs.normalise; e++)
            dlogits[e] -= exp(logits[e] - largest) / sum * mean;
    }
}

/* logits [b,s,N], ids [b,s,K] i32 -> weights [b,s,K] */
static void F(route_sigmoid)(const KernelArgs *a)
{
    const REAL *logits = a->ptr[0];
    const int32_t *ids = a->ptr[1];
    REAL *weights = a->ptr[2];
    const int64_t n = a->size['N'], k = a->size['K'], rows = a->size['b'] * a->size['s'];
    for (int64_t i = 0; i < rows; i++, logits += n, ids += k, weights += k) {
        REAL sum = 0;
        for (int64_t j = 0; j < k; j++) sum += weights[j] = F(sigmoid_of)(logits[ids[j]]);
        for (int64_t j = 0; a->attrs.normalise && j < k; j++) weights[j] /= sum;
    }
}

/* dweights [b,s,K], logits [b,s,N], ids [b,s,K] i32 -> dlogits [b,s,N]. Let y_j be the sigmoids of
 * the chosen logits and Y their sum. The weights are y_j / Y, so dy_j = (dw_j - sum_i dw_i y_i / Y)
 * / Y, and dlogit_j = dy_j y_j (1 - y_j). */
static void F(route_sigmoid_grad)(const KernelArgs *a)
{
    const REAL *dweights = a->ptr[0], *logits = a->ptr[1];
    const int32_t *ids = a->ptr[2];
    const int64_t n = a->size['N'], k = a->size['K'], rows = a->size['b'] * a->size['s'];
    REAL *dlogits = F(summed)(a, 0, rows * n);
    for (int64_t i = 0; i < rows; i++, dweights += k, logits += n, ids += k, dlogits += n) {
        REAL sum = 0, mean = 0;
        for (int64_t j = 0; j < k; j++) sum += F(sigmoid_of)(logits[ids[j]]);
        for (int64_t j = 0; j < k; j++) mean += dweights[j] * F(sigmoid_of)(logits[ids[j]]) / sum;
        if (!a->attrs.normalise) sum = 1, mean = 0;
        for (int64_t j = 0; j < k; j++) {
            const REAL y = F(sigmoid_of)(logits[ids[j]]);
            dlogits[ids[j]] += (dweights[j] - mean) / sum * y * (1 - y);
        }
    }
}

/* logits [N] -> p [N], their softmax */
static void F(softmax)(const REAL *logits, int64_t n, REAL *p)
{
    REAL largest = logits[0], sum = 0;
    for (int64_t e = 1; e < n; e++) largest = logits[e] > largest ? logits[e] : largest;
    for (int64_t e = 0; e < n; e++) sum += p[e] = exp(logits[e] - largest);
    for (int64_t e = 0; e < n; e++) p[e] /= sum;
}

/* Computes, for each expert, the fraction of the sequence's choices that fell on it, times the
 * number of experts. */
static void F(chosen_parts)(const int32_t *ids, int64_t n_choices, int64_t n, REAL *parts)
{
    for (int64_t e = 0; e < n; e++) parts[e] = 0;
    for (int64_t i = 0; i < n_choices; i++) parts[ids[i]] += 1;
    for (int64_t e = 0; e < n; e++) parts[e] *= (REAL)n / (REAL)n_choices;
}

/* logits [b,s,N], ids [b,S,K] i32 -> balance [b]: the contribution of this rank's tokens */
static void F(balance)(const KernelArgs *a)
{
    const int64_t n = a->size['N'], here = a->size['s'], tokens = a->size['S'], k = a->size['K'];
    REAL parts[MOST_EXPERTS], p[MOST_EXPERTS], *out = a->ptr[2];
    assert(n <= MOST_EXPERTS);
    for (int64_t b = 0; b < a->size['b']; b++) {
        const REAL *logits = (const REAL *)a->ptr[0] + b * here * n;
        F(chosen_parts)((const int32_t *)a->ptr[1] + b * tokens * k, tokens * k, n, parts);
        out[b] = 0;
        for (int64_t s = 0; s < here; s++) {
            F(softmax)(logits + s * n, n, p);
            out[b] += F(dot)(parts, p, n) / (REAL)tokens * (REAL)a->attrs.scale;
        }
    }
}

/* dbalance [b], logits [b,s,N], ids [b,S,K] i32 -> dlogits [b,s,N]; the choices count as
 * constants */
static void F(balance_grad)(const KernelArgs *a)
{
    const int64_t n = a->size['N'], here = a->size['s'], tokens = a->size['S'], k = a->size['K'];
    const REAL *dout = a->ptr[0];
    REAL parts[MOST_EXPERTS], p[MOST_EXPERTS];
    REAL *dlogits = F(summed)(a, 0, a->size['b'] * here * n);
    assert(n <= MOST_EXPERTS);
    for (int64_t b = 0; b < a->size['b']; b++) {
        F(chosen_parts)((const int32_t *)a->ptr[2] + b * tokens * k, tokens * k, n, parts);
        for (int64_t i = b * here; i < (b + 1) * here; i++) {
            F(softmax)((const REAL *)a->ptr[1] + i * n, n, p);
            const REAL mean = F(dot)(parts, p, n),
                       each = dout[b] * (REAL)a->attrs.scale / (REAL)tokens;
            for (int64_t e = 0; e < n; e++) dlogits[i * n + e] += each * p[e] * (parts[e] - mean);
        }
    }
}

/* logits [N] -> p [N], their softmax. Returns the logarithm of the sum of exp(logit). */
static REAL F(softmax_log)(const REAL *logits, int64_t n, REAL *p)
{
    REAL largest = logits[0], sum = 0;
    F(softmax)(logits, n, p);
    for (int64_t e = 1; e < n; e++) largest = logits[e] > largest ? logits[e] : largest;
    for (int64_t e = 0; e < n; e++) sum += exp(logits[e] - largest);
    return largest + log(sum);
}

/* logits [b,s,N] -> z [b]: the contribution of this rank's tokens */
static void F(router_z)(const KernelArgs *a)
{
    const int64_t n = a->size['N'], here = a->size['s'], tokens = a->binding->size['s'];
    REAL p[MOST_EXPERTS], *out = a->ptr[1];
    assert(n <= MOST_EXPERTS);
    for (int64_t b = 0; b < a->size['b']; b++) {
        out[b] = 0;
        for (int64_t s = 0; s < here; s++) {
            const REAL z = F(softmax_log)((const REAL *)a->ptr[0] + (b * here + s) * n, n, p);
            out[b] += z * z / (REAL)tokens * (REAL)a->attrs.scale;
        }
    }
}

/* dz [b], logits [b,s,N] -> dlogits [b,s,N] */
static void F(router_z_grad)(const KernelArgs *a)
{
    const int64_t n = a->size['N'], here = a->size['s'], tokens = a->binding->size['s'];
    const REAL *dout = a->ptr[0];
    REAL p[MOST_EXPERTS], *dlogits = F(summed)(a, 0, a->size['b'] * here * n);
    assert(n <= MOST_EXPERTS);
    for (int64_t i = 0; i < a->size['b'] * here; i++) {
        const REAL z = F(softmax_log)((const REAL *)a->ptr[1] + i * n, n, p);
        const REAL each = dout[i / here] * (REAL)a->attrs.scale / (REAL)tokens * 2 * z;
        for (int64_t e = 0; e < n; e++) dlogits[i * n + e] += each * p[e];
    }
}

/* x [b,s], balance [b] -> y [b,s] */
static void F(charge)(const KernelArgs *a)
{
    const REAL *x = a->ptr[0], *balance = a->ptr[1];
    REAL *y = a->ptr[2];
    const int64_t tokens = a->size['s'];
    for (int64_t i = 0; i < a->size['b'] * tokens; i++) y[i] = x[i] - balance[i / tokens];
}

/* dy [b,s] -> dbalance [b] */
static void F(charge_grad)(const KernelArgs *a)
{
    const REAL *dy = a->ptr[0];
    const int64_t tokens = a->size['s'];
    REAL *dbalance = F(summed)(a, 0, a->size['b']);
    for (int64_t b = 0; b < a->size['b']; b++) dbalance[b] -= F(sum)(dy + b * tokens, tokens);
}

/* Returns the row in [e,b,m,k] that belongs to a slot of sequence b. Returns NULL if the choice was
 * dropped, or if the row belongs to another rank. */
static inline REAL *F(row_of)(const KernelArgs *a, REAL *rows, int64_t b, int32_t slot)
{
    const int64_t capacity = a->binding->size['m'], e = slot / capacity - a->start['e'];
    const int64_t room = slot % capacity - a->start['m'];
    if (slot < 0 || e < 0 || e >= a->valid['e'] || room < 0 || room >= a->valid['m']) return NULL;
    return rows + ((e * a->size['b'] + b) * a->size['m'] + room) * a->size['k'];
}

static inline int64_t F(rows_elements)(const KernelArgs *a)
{
    return a->size['e'] * a->size['b'] * a->size['m'] * a->size['k'];
}

/* x [b,S,k], slots [b,S,K] -> rows [e,b,m,k], each multiplied by its weight of weights [b,S,K] if
 * there are weights */
static inline void F(spread)(const KernelArgs *a, const int32_t *slots, const REAL *weights,
                             REAL *rows)
{
    const REAL *x = a->ptr[0];
    const int64_t tokens = a->size['S'], k = a->size['K'], width = a->size['k'];
    for (int64_t i = 0; i < a->size['b'] * tokens * k; i++) {
        REAL *to = F(row_of)(a, rows, i / (tokens * k), slots[i]);
        if (!to) continue;
        const REAL *from = x + i / k * width, w = weights ? weights[i] : 1;
        for (int64_t d = 0; d < width; d++) to[d] += w * from[d];
    }
}

/* rows [e,b,m,k], slots [b,S,K] -> y [b,S,k]: the sum of the rows of each token, each multiplied by
 * its weight if there are weights */
static inline void F(collect)(const KernelArgs *a, const int32_t *slots, const REAL *weights,
                              REAL *rows, REAL *y)
{
    const int64_t tokens = a->size['S'], k = a->size['K'], width = a->size['k'];
    for (int64_t i = 0; i < a->size['b'] * tokens * k; i++) {
        const REAL *from = F(row_of)(a, rows, i / (tokens * k), slots[i]);
        if (!from) continue;
        REAL *to = y + i / k * width, w = weights ? weights[i] : 1;
        for (int64_t d = 0; d < width; d++) to[d] += w * from[d];
    }
}

/* x [b,S,k], slots [b,S,K] -> rows [e,b,m,k] */
static void F(dispatch)(const KernelArgs *a)
{
    F(spread)(a, a->ptr[1], NULL, F(summed)(a, 0, F(rows_elements)(a)));
}

/* drows [e,b,m,k], slots [b,S,K] -> dx [b,S,k] */
static void F(dispatch_grad)(const KernelArgs *a)
{
    REAL *dx = F(summed)(a, 0, a->size['b'] * a->size['S'] * a->size['k']);
    F(collect)(a, a->ptr[1], NULL, a->ptr[0], dx);
}

/* slots [b,S,K], weights [b,S,K], rows [e,b,m,k] -> y [b,S,k] */
static void F(combine)(const KernelArgs *a)
{
    REAL *y = F(summed)(a, 0, a->size['b'] * a->size['S'] * a->size['k']);
    F(collect)(a, a->ptr[0], a->ptr[1], a->ptr[2], y);
}

/* dy [b,S,k], slots [b,S,K], weights [b,S,K] -> drows [e,b,m,k] */
static void F(combine_grad)(const KernelArgs *a)
{
    F(spread)(a, a->ptr[1], a->ptr[2], F(summed)(a, 0, F(rows_elements)(a)));
}

/* dy [b,S,k], slots [b,S,K], rows [e,b,m,k] -> dweights [b,S,K] */
static void F(combine_weights)(const KernelArgs *a)
{
    const REAL *dy = a->ptr[0];
    const int32_t *slots = a->ptr[1];
    const int64_t tokens = a->size['S'], k = a->size['K'], width = a->size['k'];
    REAL *dweights = F(summed)(a, 0, a->size['b'] * tokens * k);
    for (int64_t i = 0; i < a->size['b'] * tokens * k; i++) {
        const REAL *row = F(row_of)(a, a->ptr[2], i / (tokens * k), slots[i]);
        if (row) dweights[i] += F(dot)(dy + i / k * width, row, width);
    }
}

/* x [e,b,m,f], bias [e,f] -> y [e,b,m,f]; x and y may be the same memory */
static void F(expert_bias)(const KernelArgs *a)
{
    const REAL *x = a->ptr[0], *bias = a->ptr[1];
    REAL *y = a->ptr[2];
    const int64_t rows = a->size['b'] * a->size['m'], n = a->size['f'];
    for (int64_t i = 0; i < a->size['e'] * rows; i++)
        for (int64_t k = 0; k < n; k++) y[i * n + k] = x[i * n + k] + bias[i / rows * n + k];
}

/* dy [e,b,m,f] -> dbias [e,f] */
static void F(expert_bias_grad)(const KernelArgs *a)
{
    const REAL *dy = a->ptr[0];
    const int64_t rows = a->size['b'] * a->size['m'], n = a->size['f'];
    REAL *dbias = F(summed)(a, 0, a->size['e'] * n);
    for (int64_t i = 0; i < a->size['e'] * rows; i++)
        for (int64_t k = 0; k < n; k++) dbias[i / rows * n + k] += dy[i * n + k];
}

#endif
