/* Mixture of experts: the loss that measures how unevenly each sequence used the experts, and the
 * share of this loss that is added to each token. First, blocks count how often each expert was
 * chosen in a sequence, eight experts a block. Then a warp computes each token. A sum over tokens
 * is divided into a fixed number of parts, so that its order is fixed. */
#include "kernels/cuda/experts/count.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/workspace.h"

enum {
    BALANCE_THREADS = COUNT_THREADS,
    BALANCE_WARPS = COUNT_WARPS,
    BALANCE_PARTS = 64, /* parts of the sum over a sequence */
    COUNT_AHEAD = 4,
    CHARGE_AHEAD = 4
};

typedef struct BalanceArgs {
    Array logits, dlogits; /* [sequences, tokens, n]; other ranks may have more tokens of a
                              sequence */
    Array balance;         /* [sequences]: the loss, or its gradient */
    const int32_t *ids;    /* [sequences, choices] */
    float *chosen;         /* [sequences, n]: the fraction of choices that fell on each expert,
                              times n */
    float *sums;           /* [sequences, parts] */
    int64_t sequences, tokens, n;
    int64_t choices, groups, parts; /* groups: number of groups of eight experts */
    float scale;                    /* factor of the loss, for one token */
    bool accumulate;
} BalanceArgs;

/* ---- how often each expert was chosen ---- */

KERNEL(balance_count, BalanceArgs, BALANCE_THREADS, 4)
{
    SHARED(float, held); /* [BALANCE_WARPS, EIGHT] */
    int64_t sequence = split_row(blockIdx.x, a.groups, a.sequences * a.groups);
    int64_t first = (blockIdx.x - sequence * a.groups) * EIGHT;
    const int32_t *ids = a.ids + sequence * a.choices;
    int32_t count[EIGHT] = {0};
    for (int64_t from = threadIdx.x; from < a.choices; from += BALANCE_THREADS * COUNT_AHEAD) {
        int32_t id[COUNT_AHEAD];
        UNROLL for (int u = 0; u < COUNT_AHEAD; u++)
        {
            int64_t i = from + u * BALANCE_THREADS;
            id[u] = i < a.choices ? ids[i] : -1;
        }
        UNROLL for (int u = 0; u < COUNT_AHEAD; u++) UNROLL for (int k = 0; k < EIGHT; k++)
            count[k] += id[u] == first + k;
    }
    float total = add_counts(count, held);
    if (threadIdx.x >= EIGHT || first + threadIdx.x >= a.n) return;
    a.chosen[sequence * a.n + first + threadIdx.x] = total * ((float)a.n / (float)a.choices);
}

/* Counts how often each expert was chosen in all sequences together. Writes the counts, or adds
 * them to the output if it accumulates. */
KERNEL(loads_count, BalanceArgs, BALANCE_THREADS, 4)
{
    SHARED(float, held); /* [BALANCE_WARPS, EIGHT] */
    const int64_t first = (int64_t)blockIdx.x * EIGHT;
    int32_t count[EIGHT] = {0};
    for (int64_t i = threadIdx.x; i < a.choices; i += BALANCE_THREADS) {
        const int32_t id = a.ids[i];
        UNROLL for (int k = 0; k < EIGHT; k++) count[k] += id == first + k;
    }
    const float total = add_counts(count, held);
    const int64_t e = first + threadIdx.x;
    if (threadIdx.x < EIGHT && e < a.n)
        write_one(a.balance, e, total + (a.accumulate ? read_one(a.balance, e) : 0));
}

/* ---- tokens: one warp computes one token ---- */

/* Returns the largest logit of a token. */
DEVICE float largest_logit(const BalanceArgs *a, int64_t row)
{
    float top = -INFINITY;
    for (int64_t e = threadIdx.x % WARP; e < a->n; e += WARP) {
        float x = read_one(a->logits, row * a->n + e);
        top = x > top ? x : top;
    }
    return warp_max(top);
}

/* Returns the sum of exp(logit - top). *dot gets this lane's part of the same sum with each term
 * multiplied by `chosen`. */
DEVICE float balance_sum(const BalanceArgs *a, int64_t row, const float *chosen, float *top,
                         float *dot)
{
    float sum = 0;
    *top = largest_logit(a, row), *dot = 0;
    for (int64_t e = threadIdx.x % WARP; e < a->n; e += WARP) {
        float x = device_exp(read_one(a->logits, row * a->n + e) - *top);
        sum += x, *dot += x * chosen[e];
    }
    return warp_sum(sum);
}

KERNEL(balance_tokens, BalanceArgs, BALANCE_THREADS, 4)
{
    SHARED(float, held);
    int64_t sequence = split_row(blockIdx.x, a.parts, a.sequences * a.parts);
    int64_t part = blockIdx.x - sequence * a.parts;
    float total = 0;
    for (int64_t token = part * BALANCE_WARPS + threadIdx.x / WARP; token < a.tokens;
         token += a.parts * BALANCE_WARPS) {
        float top, dot,
            sum =
                balance_sum(&a, sequence * a.tokens + token, a.chosen + sequence * a.n, &top, &dot);
        total += dot / sum;
    }
    total = block_sum(total, held);
    if (threadIdx.x == 0) a.sums[blockIdx.x] = total;
}

/* One block of one warp for each sequence. */
KERNEL(balance_end, BalanceArgs, WARP, 1)
{
    float total = 0;
    for (int64_t part = threadIdx.x; part < a.parts; part += WARP)
        total += a.sums[blockIdx.x * a.parts + part];
    total = warp_sum(total);
    if (threadIdx.x == 0) write_one(a.balance, blockIdx.x, total * a.scale);
}

/* dlogit_e = dbalance scale / tokens p_e (chosen_e - sum_j p_j chosen_j), where p is the softmax of
 * the logits */
KERNEL(balance_grad_rows, BalanceArgs, BALANCE_THREADS, 4)
{
    int64_t rows = a.sequences * a.tokens;
    int64_t row = (int64_t)blockIdx.x * BALANCE_WARPS + threadIdx.x / WARP;
    if (row >= rows) return;
    int64_t sequence = split_row(row, a.tokens, rows);
    const float *chosen = a.chosen + sequence * a.n;
    float top, dot, sum = balance_sum(&a, row, chosen, &top, &dot);
    float mean = warp_sum(dot) / sum, each = read_one(a.balance, sequence) * a.scale;
    for (int64_t e = threadIdx.x % WARP; e < a.n; e += WARP) {
        int64_t at = row * a.n + e;
        float p = device_exp(read_one(a.logits, at) - top) / sum, x = each * p * (chosen[e] - mean);
        write_one(a.dlogits, at, a.accumulate ? read_one(a.dlogits, at) + x : x);
    }
}

/* ---- launches ---- */

/* Returns the bytes of scratch memory for sums [sequences, BALANCE_PARTS] and chosen [sequences,
 * n]. n is not known here, but the number of logits is at least n. */
uint64_t cuda_balance_workspace(OpKind op, const DType *dtype, const int64_t *elements,
                                uint32_t n_args)
{
    bool back = op == OP_balance_grad;
    int64_t sequences = elements[back ? 0 : 2], logits = elements[back ? 1 : 0];
    int64_t chosen = sequences * MOST_EXPERTS < logits ? sequences * MOST_EXPERTS : logits;
    (void)dtype, (void)n_args;
    return (uint64_t)(sequences * BALANCE_PARTS + chosen) * sizeof(float);
}

static bool count_chosen(const KernelArgs *args, uint32_t logits, BalanceArgs *p,
                         const CudaContext *cuda, CudaError *error)
{
    memset(p, 0, sizeof *p);
    p->sequences = args->size['b'], p->tokens = args->size['s'], p->n = args->size['N'];
    p->choices = args->size['S'] * args->size['K'], p->groups = ceil_div(p->n, EIGHT);
    p->parts = blocks_for(p->tokens, BALANCE_WARPS, BALANCE_PARTS);
    p->logits = array_of(args, logits, p->n);
    p->ids = (const int32_t *)args->ptr[logits + 1];
    p->sums = (float *)args->ptr[args->n_args - 1];
    p->chosen = p->sums + p->sequences * BALANCE_PARTS;
    p->scale = (float)args->attrs.scale / (float)args->size['S'];
    return LAUNCH(balance_count, p->sequences * p->groups, BALANCE_THREADS,
                  EIGHT * BALANCE_WARPS * sizeof(float), *p, cuda, error);
}

/* logits [b,s,N], ids [b,S,K] i32 -> balance [b] */
bool cuda_balance(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    BalanceArgs p;
    if (!count_chosen(args, 0, &p, cuda, error)) return false;
    p.balance = array_of(args, 2, 1);
    return LAUNCH(balance_tokens, p.sequences * p.parts, BALANCE_THREADS, MAX_WARPS * sizeof(float),
                  p, cuda, error) &&
           LAUNCH(balance_end, p.sequences, WARP, 0, p, cuda, error);
}

/* dbalance [b], logits [b,s,N], ids [b,S,K] i32 -> dlogits [b,s,N] */
bool cuda_balance_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    BalanceArgs p;
    if (!count_chosen(args, 1, &p, cuda, error)) return false;
    p.balance = array_of(args, 0, 1), p.dlogits = array_of(args, 3, p.n);
    p.accumulate = accumulates(args, 0);
    return LAUNCH(balance_grad_rows, ceil_div(p.sequences * p.tokens, BALANCE_WARPS),
                  BALANCE_THREADS, 0, p, cuda, error);
}

/* ids [b,s,K] i32 -> counts [N] */
bool cuda_loads(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    BalanceArgs p;
    memset(&p, 0, sizeof p);
    p.n = args->size['N'], p.choices = args->size['b'] * args->size['s'] * args->size['K'];
    p.ids = (const int32_t *)args->ptr[0], p.balance = array_of(args, 1, p.n);
    p.accumulate = accumulates(args, 0);
    return LAUNCH(loads_count, ceil_div(p.n, EIGHT), BALANCE_THREADS,
                  EIGHT * BALANCE_WARPS * sizeof(float), p, cuda, error);
}

/* ---- the squared log-sum-exp of each token's logits ---- */

/* Returns the log-sum-exp of a token's logits. */
DEVICE float log_sum(const BalanceArgs *a, int64_t row)
{
    float sum = 0, top = largest_logit(a, row);
    for (int64_t e = threadIdx.x % WARP; e < a->n; e += WARP)
        sum += device_exp(read_one(a->logits, row * a->n + e) - top);
    return top + logf(warp_sum(sum));
}

/* A block computes one sequence; each of its warps computes one token at a time. */
KERNEL(router_z_rows, BalanceArgs, BALANCE_THREADS, 4)
{
    SHARED(float, held);
    float total = 0;
    for (int64_t token = threadIdx.x / WARP; token < a.tokens; token += BALANCE_WARPS) {
        float z = log_sum(&a, blockIdx.x * a.tokens + token);
        if (threadIdx.x % WARP == 0) total += z * z;
    }
    total = block_sum(total, held);
    if (threadIdx.x == 0) write_one(a.balance, blockIdx.x, total * a.scale);
}

KERNEL(router_z_grad_rows, BalanceArgs, BALANCE_THREADS, 4)
{
    int64_t rows = a.sequences * a.tokens;
    int64_t row = (int64_t)blockIdx.x * BALANCE_WARPS + threadIdx.x / WARP;
    if (row >= rows) return;
    float z = log_sum(&a, row);
    float each = read_one(a.balance, split_row(row, a.tokens, rows)) * a.scale * 2 * z;
    for (int64_t e = threadIdx.x % WARP; e < a.n; e += WARP) {
        int64_t at = row * a.n + e;
        float x = each * device_exp(read_one(a.logits, at) - z);
        write_one(a.dlogits, at, a.accumulate ? read_one(a.dlogits, at) + x : x);
    }
}

static BalanceArgs router_z_args(const KernelArgs *args, uint32_t logits)
{
    BalanceArgs p;
    memset(&p, 0, sizeof p);
    p.sequences = args->size['b'], p.tokens = args->size['s'], p.n = args->size['N'];
    p.logits = array_of(args, logits, p.n);
    p.scale = (float)args->attrs.scale / (float)args->binding->size['s'];
    return p;
}

/* logits [b,s,N] -> z [b] */
bool cuda_router_z(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    BalanceArgs p = router_z_args(args, 0);
    p.balance = array_of(args, 1, 1);
    return LAUNCH(router_z_rows, p.sequences, BALANCE_THREADS, MAX_WARPS * sizeof(float), p, cuda,
                  error);
}

/* dz [b], logits [b,s,N] -> dlogits [b,s,N] */
bool cuda_router_z_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    BalanceArgs p = router_z_args(args, 1);
    p.balance = array_of(args, 0, 1), p.dlogits = array_of(args, 2, p.n);
    p.accumulate = accumulates(args, 0);
    return LAUNCH(router_z_grad_rows, ceil_div(p.sequences * p.tokens, BALANCE_WARPS),
                  BALANCE_THREADS, 0, p, cuda, error);
}

/* ---- the gradient of the balance loss that is added to each token ---- */

typedef struct ChargeArgs {
    Array dy, dbalance; /* [sequences, tokens], [sequences] */
    int64_t tokens;
    bool accumulate;
} ChargeArgs;

/* A block computes one sequence. */
KERNEL(charge_sum, ChargeArgs, BALANCE_THREADS, 4)
{
    SHARED(float, held);
    float sum = 0;
    for (int64_t from = threadIdx.x; from < a.tokens; from += BALANCE_THREADS * CHARGE_AHEAD) {
        float x[CHARGE_AHEAD];
        UNROLL for (int u = 0; u < CHARGE_AHEAD; u++)
        {
            int64_t token = from + u * BALANCE_THREADS;
            x[u] = token < a.tokens ? read_one(a.dy, blockIdx.x * a.tokens + token) : 0;
        }
        UNROLL for (int u = 0; u < CHARGE_AHEAD; u++) sum += x[u];
    }
    sum = block_sum(sum, held);
    if (threadIdx.x > 0) return;
    float before = a.accumulate ? read_one(a.dbalance, blockIdx.x) : 0;
    write_one(a.dbalance, blockIdx.x, before - sum);
}

/* dy [b,s] -> dbalance [b] */
bool cuda_charge_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    ChargeArgs p;
    memset(&p, 0, sizeof p);
    p.tokens = args->size['s'];
    p.dy = array_of(args, 0, p.tokens), p.dbalance = array_of(args, 1, 1);
    p.accumulate = accumulates(args, 0);
    return LAUNCH(charge_sum, args->size['b'], BALANCE_THREADS, MAX_WARPS * sizeof(float), p, cuda,
                  error);
}
