/* Mixture of experts: routing. The kernels for topk and route use a warp for each token. The
 * kernel for slots uses a warp for each expert of each sequence. This warp goes through all
 * choices of the sequence in order. It gives the choices of its expert the expert's slots, one
 * after another. A slot is a row of the expert's input, with room for one token. So no warp
 * waits for another one. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/reduce.cuh"

enum { ROUTE_THREADS = 256, ROUTE_WARPS = ROUTE_THREADS / WARP, SLOTS_AHEAD = 8 };

typedef struct RouteArgs {
    Array logits, weights, dlogits; /* logits and dlogits: [rows, n]; weights: [rows, k]; a row is a
                                       token, n the number of experts, k the number of experts that
                                       a token chooses */
    Array bias;                     /* [n], only if `biased` is true */
    int32_t *ids;                   /* [rows, k] */
    int64_t rows, n, k;
    int64_t groups, top_groups; /* number of groups of experts, 0 if there are none; how many groups
                                   a token may choose from */
    bool normalise, accumulate, sigmoid, biased;
} RouteArgs;

/* ---- which experts a token chooses ---- */

/* Returns a key by which experts are ordered: larger for a larger logit, and for equal logits
 * larger for the expert with the smaller index. A key is neither 0 nor UINT64_MAX. NaN counts as
 * the largest logit, so that it reaches the result. */
DEVICE uint64_t topk_key(float x, int64_t e)
{
    uint32_t bits = BITS_OF_FLOAT(x == 0 ? 0.0f : x);
    uint32_t ordered = bits >> 31 ? ~bits : bits | 0x80000000u;
    if (x != x) ordered = 0xfffffffeu;
    return (uint64_t)ordered << 32 | (uint32_t) ~(uint32_t)e;
}

DEVICE float route_sigmoid_of(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* Returns the score by which a token chooses experts. */
DEVICE float topk_score(const RouteArgs *a, int64_t row, int64_t e)
{
    const float x = read_one(a->logits, row * a->n + e);
    return a->biased ? route_sigmoid_of(x) + read_one(a->bias, e) : x;
}

/* Returns the score of a group of experts: the largest logit, or with sigmoids the sum of the two
 * best scores. */
DEVICE float topk_group_score(const RouteArgs *a, int64_t row, int64_t group)
{
    const int64_t n = a->n / a->groups;
    float first = -INFINITY, second = -INFINITY;
    for (int64_t e = 0; e < n; e++) {
        float x = topk_score(a, row, group * n + e);
        if (x > first)
            second = first, first = x;
        else if (x > second)
            second = x;
    }
    if (a->sigmoid && a->biased) return first + second;
    return a->sigmoid ? route_sigmoid_of(first) + route_sigmoid_of(second) : first;
}

/* Returns the best groups as bits. Each lane computes the scores of up to two groups. */
DEVICE uint64_t topk_groups(const RouteArgs *a, int64_t row)
{
    uint64_t own[2], taken = 0;
    if (a->groups == 0) return UINT64_MAX;
    for (int i = 0; i < 2; i++) {
        const int64_t g = (int64_t)(threadIdx.x % WARP) + i * WARP;
        own[i] = g < a->groups ? topk_key(topk_group_score(a, row, g), g) : 0;
    }
    for (int64_t j = 0; j < a->top_groups; j++) {
        uint64_t x = own[0] > own[1] ? own[0] : own[1];
        for (int lanes = WARP / 2; lanes > 0; lanes /= 2) {
            uint64_t other = __shfl_xor_sync(FULL, x, lanes);
            x = other > x ? other : x;
        }
        taken |= 1ull << (uint32_t) ~(uint32_t)x;
        for (int i = 0; i < 2; i++)
            if (own[i] == x) own[i] = 0;
    }
    return taken;
}

/* Returns the largest key below `below` among this lane's experts in these groups; 0: there is
 * none. */
DEVICE uint64_t topk_own(const RouteArgs *a, int64_t row, uint64_t groups, uint64_t below)
{
    uint64_t best = 0;
    for (int64_t e = threadIdx.x % WARP; e < a->n; e += WARP) {
        if (a->groups > 0 && !(groups >> (e / (a->n / a->groups)) & 1)) continue;
        uint64_t key = topk_key(topk_score(a, row, e), e);
        if (key < below && key > best) best = key;
    }
    return best;
}

/* Each lane keeps its best expert. When an expert is taken, only the lane that had it searches
 * again. */
KERNEL(topk_rows, RouteArgs, ROUTE_THREADS, 4)
{
    int64_t row = (int64_t)blockIdx.x * ROUTE_WARPS + threadIdx.x / WARP;
    if (row >= a.rows) return;
    const uint64_t groups = topk_groups(&a, row);
    uint64_t own = topk_own(&a, row, groups, UINT64_MAX);
    for (int64_t j = 0; j < a.k; j++) {
        uint64_t x = own;
        UNROLL for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
        {
            uint64_t other = __shfl_xor_sync(FULL, x, lanes);
            x = other > x ? other : x;
        }
        if (threadIdx.x % WARP == 0) a.ids[row * a.k + j] = (int32_t) ~(uint32_t)x;
        if (own == x) own = topk_own(&a, row, groups, x);
    }
}

/* ---- weights of the choices ---- */

/* Returns the logit of choice j if weights are normalised over the chosen experts. Otherwise
 * returns the logit of expert j. */
DEVICE float route_logit(const RouteArgs *a, int64_t row, int64_t j)
{
    return read_one(a->logits, row * a->n + (a->normalise ? a->ids[row * a->k + j] : j));
}

/* Finds the largest of the logits that route_logit returns for a token. Returns the sum of
 * exp(logit - largest) over these logits. */
DEVICE float route_sum(const RouteArgs *a, int64_t row, float *largest)
{
    int64_t n = a->normalise ? a->k : a->n;
    float top = -INFINITY, sum = 0;
    for (int64_t j = threadIdx.x % WARP; j < n; j += WARP) {
        float x = route_logit(a, row, j);
        top = x > top ? x : top;
    }
    top = warp_max(top);
    for (int64_t j = threadIdx.x % WARP; j < n; j += WARP)
        sum += device_exp(route_logit(a, row, j) - top);
    *largest = top;
    return warp_sum(sum);
}

DEVICE float route_weight(const RouteArgs *a, int64_t row, int64_t e, float top, float sum)
{
    return device_exp(read_one(a->logits, row * a->n + e) - top) / sum;
}

KERNEL(route_rows, RouteArgs, ROUTE_THREADS, 4)
{
    int64_t row = (int64_t)blockIdx.x * ROUTE_WARPS + threadIdx.x / WARP;
    if (row >= a.rows) return;
    float top, sum = route_sum(&a, row, &top);
    for (int64_t j = threadIdx.x % WARP; j < a.k; j += WARP)
        write_one(a.weights, row * a.k + j, route_weight(&a, row, a.ids[row * a.k + j], top, sum));
}

/* dlogit_e = p_e ([e chosen] dw_e - sum_j p_j dw_j), where p_e is the weight of expert e */
KERNEL(route_grad_rows, RouteArgs, ROUTE_THREADS, 4)
{
    int64_t row = (int64_t)blockIdx.x * ROUTE_WARPS + threadIdx.x / WARP;
    if (row >= a.rows) return;
    float top, sum = route_sum(&a, row, &top), mean = 0;
    for (int64_t j = threadIdx.x % WARP; j < a.k; j += WARP)
        mean += route_weight(&a, row, a.ids[row * a.k + j], top, sum) *
                read_one(a.weights, row * a.k + j);
    mean = warp_sum(mean);
    for (int64_t e = threadIdx.x % WARP; e < a.n; e += WARP) {
        float d = a.normalise ? 0 : -mean, each = a.normalise ? mean : 0;
        for (int64_t j = 0; j < a.k; j++)
            if (a.ids[row * a.k + j] == e) d += read_one(a.weights, row * a.k + j) - each;
        float x = d == 0 ? 0 : d * route_weight(&a, row, e, top, sum);
        int64_t at = row * a.n + e;
        write_one(a.dlogits, at, a.accumulate ? read_one(a.dlogits, at) + x : x);
    }
}

/* Returns the sigmoid of the logit of choice j. */
DEVICE float route_chosen(const RouteArgs *a, int64_t row, int64_t j)
{
    return route_sigmoid_of(read_one(a->logits, row * a->n + a->ids[row * a->k + j]));
}

KERNEL(route_sigmoid_rows, RouteArgs, ROUTE_THREADS, 4)
{
    int64_t row = (int64_t)blockIdx.x * ROUTE_WARPS + threadIdx.x / WARP;
    if (row >= a.rows) return;
    float sum = 0;
    for (int64_t j = threadIdx.x % WARP; j < a.k; j += WARP) sum += route_chosen(&a, row, j);
    sum = warp_sum(sum);
    for (int64_t j = threadIdx.x % WARP; j < a.k; j += WARP) {
        float y = route_chosen(&a, row, j);
        write_one(a.weights, row * a.k + j, a.normalise ? y / sum : y);
    }
}

KERNEL(route_sigmoid_grad_rows, RouteArgs, ROUTE_THREADS, 4)
{
    int64_t row = (int64_t)blockIdx.x * ROUTE_WARPS + threadIdx.x / WARP;
    if (row >= a.rows) return;
    float sum = 0, mean = 0;
    for (int64_t j = threadIdx.x % WARP; j < a.k; j += WARP) {
        float y = route_chosen(&a, row, j);
        sum += y;
        mean += y * read_one(a.weights, row * a.k + j);
    }
    sum = warp_sum(sum);
    mean = warp_sum(mean) / sum;
    if (!a.normalise) sum = 1, mean = 0;
    for (int64_t e = threadIdx.x % WARP; e < a.n; e += WARP) {
        float d = 0;
        for (int64_t j = 0; j < a.k; j++) {
            if (a.ids[row * a.k + j] != e) continue;
            float y = route_chosen(&a, row, j);
            d += (read_one(a.weights, row * a.k + j) - mean) / sum * y * (1 - y);
        }
        int64_t at = row * a.n + e;
        write_one(a.dlogits, at, a.accumulate ? read_one(a.dlogits, at) + d : d);
    }
}

static RouteArgs route_args(const KernelArgs *args, uint32_t logits, uint32_t ids)
{
    RouteArgs p;
    memset(&p, 0, sizeof p);
    p.rows = args->size['b'] * args->size['s'], p.n = args->size['N'], p.k = args->size['K'];
    p.logits = array_of(args, logits, p.n);
    p.ids = (int32_t *)args->ptr[ids];
    p.normalise = args->attrs.normalise != 0;
    p.groups = args->attrs.expert_groups, p.top_groups = args->attrs.top_groups;
    p.sigmoid = args->attrs.sigmoid != 0;
    return p;
}

/* logits [b,s,N] -> ids [b,s,K] i32: the K largest logits, the largest first; of two equal logits,
 * the one with the smaller id comes first */
bool cuda_topk(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    RouteArgs p = route_args(args, 0, 1);
    return LAUNCH(topk_rows, ceil_div(p.rows, ROUTE_WARPS), ROUTE_THREADS, 0, p, cuda, error);
}

/* logits [b,s,N], bias [N] -> ids [b,s,K] i32: like cuda_topk, but by sigmoid(logit) + bias */
bool cuda_topk_biased(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    RouteArgs p = route_args(args, 0, 2);
    p.biased = true, p.bias = array_of(args, 1, p.n);
    return LAUNCH(topk_rows, ceil_div(p.rows, ROUTE_WARPS), ROUTE_THREADS, 0, p, cuda, error);
}

/* logits [b,s,N], ids [b,s,K] i32 -> weights [b,s,K] */
bool cuda_route(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    RouteArgs p = route_args(args, 0, 1);
    p.weights = array_of(args, 2, p.k);
    return LAUNCH(route_rows, ceil_div(p.rows, ROUTE_WARPS), ROUTE_THREADS, 0, p, cuda, error);
}

/* dweights [b,s,K], logits [b,s,N], ids [b,s,K] i32 -> dlogits [b,s,N] */
bool cuda_route_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    RouteArgs p = route_args(args, 1, 2);
    p.weights = array_of(args, 0, p.k), p.dlogits = array_of(args, 3, p.n);
    p.accumulate = accumulates(args, 0);
    return LAUNCH(route_grad_rows, ceil_div(p.rows, ROUTE_WARPS), ROUTE_THREADS, 0, p, cuda, error);
}

/* logits [b,s,N], ids [b,s,K] i32 -> weights [b,s,K] */
bool cuda_route_sigmoid(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    RouteArgs p = route_args(args, 0, 1);
    p.weights = array_of(args, 2, p.k);
    return LAUNCH(route_sigmoid_rows, ceil_div(p.rows, ROUTE_WARPS), ROUTE_THREADS, 0, p, cuda,
                  error);
}

/* dweights [b,s,K], logits [b,s,N], ids [b,s,K] i32 -> dlogits [b,s,N] */
bool cuda_route_sigmoid_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    RouteArgs p = route_args(args, 1, 2);
    p.weights = array_of(args, 0, p.k), p.dlogits = array_of(args, 3, p.n);
    p.accumulate = accumulates(args, 0);
    return LAUNCH(route_sigmoid_grad_rows, ceil_div(p.rows, ROUTE_WARPS), ROUTE_THREADS, 0, p, cuda,
                  error);
}

/* ---- the slot of each choice ---- */

typedef struct SlotsArgs {
    const int32_t *ids;
    int32_t *slots;       /* each [sequences, n] */
    int64_t sequences, n; /* n: number of choices in a sequence */
    int64_t experts, capacity;
} SlotsArgs;

KERNEL(slots_of_experts, SlotsArgs, ROUTE_THREADS, 4)
{
    int64_t warp = (int64_t)blockIdx.x * ROUTE_WARPS + threadIdx.x / WARP;
    if (warp >= a.sequences * a.experts) return;
    uint32_t lane = threadIdx.x % WARP;
    int64_t sequence = split_row(warp, a.experts, a.sequences * a.experts), taken = 0;
    int64_t e = warp - sequence * a.experts;
    const int32_t *ids = a.ids + sequence * a.n;
    for (int64_t first = 0; first < a.n; first += WARP * SLOTS_AHEAD) {
        int32_t id[SLOTS_AHEAD];
        UNROLL for (int u = 0; u < SLOTS_AHEAD; u++)
        {
            int64_t i = first + u * WARP + lane;
            id[u] = i < a.n ? ids[i] : -1;
        }
        UNROLL for (int u = 0; u < SLOTS_AHEAD; u++)
        {
            uint32_t mine = __ballot_sync(FULL, id[u] == e);
            int64_t at = taken + __popc(mine & ((1u << lane) - 1));
            if (id[u] == e)
                a.slots[sequence * a.n + first + u * WARP + lane] =
                    at < a.capacity ? (int32_t)(e * a.capacity + at) : -1;
            taken += __popc(mine);
        }
    }
}

/* ids [b,S,K] -> slots [b,S,K], both i32: the choices of a sequence take the slots of an expert in
 * the order of tokens */
bool cuda_slots(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    SlotsArgs p;
    memset(&p, 0, sizeof p);
    p.ids = (const int32_t *)args->ptr[0], p.slots = (int32_t *)args->ptr[1];
    p.sequences = args->size['b'], p.n = args->size['S'] * args->size['K'];
    p.experts = args->attrs.experts, p.capacity = args->attrs.capacity;
    return LAUNCH(slots_of_experts, ceil_div(p.sequences * p.experts, ROUTE_WARPS), ROUTE_THREADS,
                  0, p, cuda, error);
}
