/* The scan of a state-space layer; kernels/cpu/state_scan.c defines these ops. The kernels scan
 * token by token and keep the state of a head in shared memory. A block computes one head of a
 * sample, and each of its threads some features of this head. For the gradients of B and C, a block
 * computes one group of heads, and each of its threads some numbers of the state. Sums are in fp32
 * and have a fixed order. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/workspace.h"

enum { SCAN_THREADS = 128 };

typedef struct ScanArgs {
    Array dy, x, step, rate, B, C, D, y, dx, dstep, drate, dD, dB, dC;
    float *read; /* C h times dy, for each token and head; in scan_shared: sums of dB, then of dC */
    int64_t b, S, G, R, E, Q;
    uint32_t accumulate;
} ScanArgs;

/* Where the numbers of one token and head lie, and by which factor (keep) the head's state decays
 * at that token. */
typedef struct StateToken {
    int64_t x, step, shared; /* index of the head's first feature; of its step size; of its group's
                                first number in B and in C */
    float dt, keep;
} StateToken;

DEVICE StateToken scan_token(const ScanArgs *a, int64_t b, int64_t head, int64_t t, float rate)
{
    StateToken k;
    const int64_t heads = a->G * a->R, row = b * a->S + t;
    k.step = row * heads + head;
    k.x = k.step * a->E;
    k.shared = (row * a->G + head / a->R) * a->Q;
    k.dt = read_one(a->step, k.step);
    k.keep = device_exp(-k.dt * rate);
    return k;
}

DEVICE float scan_rate(const ScanArgs *a, int64_t head)
{
    return device_exp(read_one(a->rate, head));
}

DEVICE void scan_clear(float *state, int64_t n)
{
    for (int64_t i = threadIdx.x; i < n; i += SCAN_THREADS) state[i] = 0;
}

/* Loads B and C of one token for the block. */
DEVICE void scan_load(const ScanArgs *a, const StateToken *k, float *B, float *C)
{
    for (int64_t q = threadIdx.x; q < a->Q; q += SCAN_THREADS) {
        B[q] = read_one(a->B, k->shared + q);
        C[q] = read_one(a->C, k->shared + q);
    }
}

/* Adds one token to the state of feature e and returns C h. The state is stored as
 * [number][feature]. */
DEVICE float scan_advance(const ScanArgs *a, const StateToken *k, int64_t e, float x,
                          const float *B, const float *C, float *state)
{
    const float in = k->dt * x;
    float out = 0;
    for (int64_t q = 0; q < a->Q; q++) {
        const float h = fmaf(k->keep, state[q * a->E + e], in * B[q]);
        state[q * a->E + e] = h;
        out = fmaf(h, C[q], out);
    }
    return out;
}

KERNEL(scan_forward, ScanArgs, SCAN_THREADS, 4)
{
    SHARED(float, state);
    float *const B = state + a.E * a.Q, *const C = B + a.Q;
    const int64_t heads = a.G * a.R, b = blockIdx.x / heads, head = blockIdx.x % heads;
    const float rate = scan_rate(&a, head), D = read_one(a.D, head);
    scan_clear(state, a.E * a.Q);
    for (int64_t t = 0; t < a.S; t++) {
        const StateToken k = scan_token(&a, b, head, t, rate);
        scan_load(&a, &k, B, C);
        __syncthreads();
        for (int64_t e = threadIdx.x; e < a.E; e += SCAN_THREADS) {
            const float x = read_one(a.x, k.x + e);
            write_one(a.y, k.x + e, fmaf(D, x, scan_advance(&a, &k, e, x, B, C, state)));
        }
        __syncthreads();
    }
}

KERNEL(scan_read_out, ScanArgs, SCAN_THREADS, 4)
{
    SHARED(float, state);
    float *const B = state + a.E * a.Q, *const C = B + a.Q, *const held = C + a.Q;
    const int64_t heads = a.G * a.R, b = blockIdx.x / heads, head = blockIdx.x % heads;
    const float rate = scan_rate(&a, head);
    scan_clear(state, a.E * a.Q);
    for (int64_t t = 0; t < a.S; t++) {
        const StateToken k = scan_token(&a, b, head, t, rate);
        float sum = 0;
        scan_load(&a, &k, B, C);
        __syncthreads();
        for (int64_t e = threadIdx.x; e < a.E; e += SCAN_THREADS)
            sum = fmaf(read_one(a.dy, k.x + e),
                       scan_advance(&a, &k, e, read_one(a.x, k.x + e), B, C, state), sum);
        sum = block_sum(sum, held);
        if (threadIdx.x == 0) a.read[k.step] = sum;
        __syncthreads();
    }
}

/* Goes one token back for feature e: from G(t + 1) to G(t). Returns G B. */
DEVICE float scan_go_back(const ScanArgs *a, float keep, int64_t e, float dy, const float *B,
                          const float *C, float *state)
{
    float in = 0;
    for (int64_t q = 0; q < a->Q; q++) {
        const float g = fmaf(keep, state[q * a->E + e], dy * C[q]);
        state[q * a->E + e] = g;
        in = fmaf(g, B[q], in);
    }
    return in;
}

/* A block computes one head for all samples. */
KERNEL(scan_backward, ScanArgs, SCAN_THREADS, 4)
{
    SHARED(float, state);
    float *const B = state + a.E * a.Q, *const C = B + a.Q, *const held = C + a.Q;
    const int64_t head = blockIdx.x;
    const float rate = scan_rate(&a, head), D = read_one(a.D, head);
    double drate = 0;
    float dD = 0;
    for (int64_t b = 0; b < a.b; b++) {
        double of_log = 0; /* gradient of the logarithm of the decay */
        float keep = 0;
        scan_clear(state, a.E * a.Q);
        for (int64_t t = a.S - 1; t >= 0; t--) {
            const StateToken k = scan_token(&a, b, head, t, rate);
            float of_step = 0;
            scan_load(&a, &k, B, C);
            __syncthreads();
            for (int64_t e = threadIdx.x; e < a.E; e += SCAN_THREADS) {
                const float dy = read_one(a.dy, k.x + e), x = read_one(a.x, k.x + e);
                const float in = scan_go_back(&a, keep, e, dy, B, C, state);
                const float dx = fmaf(k.dt, in, D * dy);
                write_one(a.dx, k.x + e, a.accumulate & 1 ? read_one(a.dx, k.x + e) + dx : dx);
                dD = fmaf(dy, x, dD);
                of_step = fmaf(x, in, of_step);
            }
            of_step = block_sum(of_step, held);
            of_log += (double)a.read[k.step] - (double)k.dt * (double)of_step;
            drate -= (double)k.dt * (double)rate * of_log;
            if (threadIdx.x == 0) {
                const float dt = (float)((double)of_step - (double)rate * of_log);
                write_one(a.dstep, k.step, a.accumulate & 2 ? read_one(a.dstep, k.step) + dt : dt);
            }
            keep = k.keep;
            __syncthreads();
        }
    }
    dD = block_sum(dD, held);
    if (threadIdx.x > 0) return;
    write_one(a.drate, head,
              a.accumulate & 4 ? read_one(a.drate, head) + (float)drate : (float)drate);
    write_one(a.dD, head, a.accumulate & 8 ? read_one(a.dD, head) + dD : dD);
}

/* Adds the contribution of head r of a group to a gradient. The heads are added up in fp32, and
 * only the last head writes the result. */
DEVICE void scan_add(const ScanArgs *a, Array to, float *sums, int64_t at, int64_t r, float part,
                     uint32_t accumulates)
{
    if (r > 0) part += sums[at];
    if (r + 1 < a->R)
        sums[at] = part;
    else
        write_one(to, at, accumulates ? read_one(to, at) + part : part);
}

KERNEL(scan_shared, ScanArgs, SCAN_THREADS, 4)
{
    SHARED(float, state);
    const int64_t b = blockIdx.x / a.G, g = blockIdx.x % a.G;
    float *const of_C = a.read, *const of_B = a.read + a.b * a.S * a.G * a.Q;
    for (int64_t r = 0; r < a.R; r++) {
        const int64_t head = g * a.R + r;
        const float rate = scan_rate(&a, head);
        for (int64_t q = threadIdx.x; q < a.Q; q += SCAN_THREADS) {
            float keep = 0;
            for (int64_t e = 0; e < a.E; e++) state[e * a.Q + q] = 0;
            for (int64_t t = 0; t < a.S; t++) {
                const StateToken k = scan_token(&a, b, head, t, rate);
                const float B = read_one(a.B, k.shared + q);
                float sum = 0;
                for (int64_t e = 0; e < a.E; e++) {
                    const float in = k.dt * read_one(a.x, k.x + e);
                    const float h = fmaf(k.keep, state[e * a.Q + q], in * B);
                    state[e * a.Q + q] = h;
                    sum = fmaf(read_one(a.dy, k.x + e), h, sum);
                }
                scan_add(&a, a.dC, of_C, k.shared + q, r, sum, a.accumulate & 2);
            }
            for (int64_t e = 0; e < a.E; e++) state[e * a.Q + q] = 0;
            for (int64_t t = a.S - 1; t >= 0; t--) {
                const StateToken k = scan_token(&a, b, head, t, rate);
                const float C = read_one(a.C, k.shared + q);
                float sum = 0;
                for (int64_t e = 0; e < a.E; e++) {
                    const float back = fmaf(keep, state[e * a.Q + q], read_one(a.dy, k.x + e) * C);
                    state[e * a.Q + q] = back;
                    sum = fmaf(k.dt * read_one(a.x, k.x + e), back, sum);
                }
                keep = k.keep;
                scan_add(&a, a.dB, of_B, k.shared + q, r, sum, a.accumulate & 1);
            }
        }
    }
}

/* Returns the arguments. The inputs from index `first` on are x, step, a, B, C. */
static ScanArgs scan_args(const KernelArgs *args, uint32_t first)
{
    ScanArgs a;
    memset(&a, 0, sizeof a);
    a.b = args->size['b'], a.S = args->size['S'], a.G = args->size['g'], a.R = args->size['r'];
    a.E = args->size['E'], a.Q = args->size['Q'];
    a.x = array_of(args, first, 1), a.step = array_of(args, first + 1, 1);
    a.rate = array_of(args, first + 2, 1);
    a.B = array_of(args, first + 3, 1), a.C = array_of(args, first + 4, 1);
    if (first) a.dy = array_of(args, 0, 1);
    a.accumulate = (uint32_t)args->attrs.accumulate;
    return a;
}

static size_t scan_bytes(const ScanArgs *a)
{
    return (size_t)(a->E * a->Q + 2 * a->Q + MAX_WARPS) * sizeof(float);
}

/* Returns true if the state of a head fits into shared memory. If not, *error says so. */
static bool scan_fits(const ScanArgs *a, const CudaContext *cuda, CudaError *error)
{
    if (scan_bytes(a) <= shared_most(cuda)) return true;
    snprintf(error->text, sizeof error->text,
             "state_scan: a head's state of %lld x %lld numbers does not fit shared memory",
             (long long)a->E, (long long)a->Q);
    return false;
}

bool cuda_state_scan(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    ScanArgs a = scan_args(args, 0);
    a.D = array_of(args, 5, 1), a.y = array_of(args, 6, 1);
    return scan_fits(&a, cuda, error) &&
           LAUNCH(scan_forward, a.b * a.G * a.R, SCAN_THREADS, scan_bytes(&a), a, cuda, error);
}

uint64_t cuda_scan_grad_workspace(OpKind op, const DType *dtype, const int64_t *elements,
                                  uint32_t n_args)
{
    (void)dtype, (void)n_args;
    const int64_t n = op == OP_state_scan_grad ? elements[2] : 2 * elements[4];
    return (uint64_t)n * sizeof(float);
}

/* dy, x, step, a, B, C, D -> dx, dstep, da, dD */
bool cuda_state_scan_grad(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    ScanArgs a = scan_args(args, 1);
    a.D = array_of(args, 6, 1), a.dx = array_of(args, 7, 1), a.dstep = array_of(args, 8, 1);
    a.drate = array_of(args, 9, 1), a.dD = array_of(args, 10, 1);
    a.read = (float *)args->ptr[args->n_args - 1];
    return scan_fits(&a, cuda, error) &&
           LAUNCH(scan_read_out, a.b * a.G * a.R, SCAN_THREADS, scan_bytes(&a), a, cuda, error) &&
           LAUNCH(scan_backward, a.G * a.R, SCAN_THREADS, scan_bytes(&a), a, cuda, error);
}

/* dy, x, step, a, B, C -> dB, dC */
bool cuda_state_scan_shared(const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    ScanArgs a = scan_args(args, 1);
    a.dB = array_of(args, 6, 1), a.dC = array_of(args, 7, 1);
    a.read = (float *)args->ptr[args->n_args - 1];
    return scan_fits(&a, cuda, error) &&
           LAUNCH(scan_shared, a.b * a.G, SCAN_THREADS, scan_bytes(&a), a, cuda, error);
}
