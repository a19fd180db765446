/* Launches a chain, which is a sequence of instructions that `compile` fuses into one kernel. If a
 * family of kernels has a kernel for the chain (fused.h), that kernel is launched. If not, the
 * interpreter in this file runs it: all ops must be element-wise, dropouts, or largest magnitudes
 * of values of the chain. A thread computes all ops one after the other for eight elements at a
 * time. It keeps the values in shared memory that no other thread uses. After each op, the value is
 * rounded to the dtype that its buffer has in memory. */
#include "kernels/cuda/draw.cuh"
#include "kernels/cuda/low/amax.cuh"
#include "kernels/cuda/pointwise/fused.h"
#include "kernels/cuda/pointwise/pointwise.cuh"
#include "kernels/cuda/reduce.cuh"

enum {
    CHAIN_THREADS = 128,
    CHAIN_LOADS = 12, /* largest number of values that are loaded */
    CHAIN_SLOTS = 20, /* largest number of values that are kept at the same time; each takes 4 KiB
                         of shared memory */
    CHAIN_AHEAD = 4,
    CHAIN_DRAWS = 2,
    CHAIN_MAXIMA = 2, /* largest number of amax ops over whole tensors */
    CHAIN_VALUES = CHAIN_LOADS + CUDA_CHAIN_MAX
};

typedef enum ChainKind { CHAIN_point, CHAIN_dropout, CHAIN_amax } ChainKind;

typedef struct ChainStep {
    float scale;
    int16_t kind, op;        /* op: the element-wise op, if `kind` is CHAIN_point */
    int16_t in[2], old, out; /* indices of values; old: the value to which the output is added; -1:
                                there is none */
    int16_t dtype, which;    /* dtype of the output; index of the dropout or of the maximum */
    bool writes;
    Array y;
} ChainStep;

typedef struct ChainLoad {
    Array x;
    bool column; /* true: x is one row [row], used for all rows; false: x is [rows, row] */
} ChainLoad;

typedef struct ChainArgs {
    ChainStep step[CUDA_CHAIN_MAX];
    ChainLoad load[CHAIN_LOADS]; /* load[i], with i < n_loads, loads value i */
    CudaDraw draw[CHAIN_DRAWS];
    int64_t first[CHAIN_DRAWS]; /* index of the first element in the whole tensor */
    Amax amax[CHAIN_MAXIMA];    /* for amax ops over whole tensors */
    int32_t n_steps, n_loads, n_slots, n_draws, n_maxima;
    int64_t rows, row, per_row, n; /* n: number of groups of eight elements, in all rows */
} ChainArgs;

/* Returns the address of half a value of this thread: four elements. Threads access such halves
 * without bank conflicts. */
DEVICE uint4 *chain_at(float *values, int value, int half)
{
    return ALIGNED(uint4, values) + (value * 2 + half) * CHAIN_THREADS + (int)threadIdx.x;
}

DEVICE void chain_get(float *values, int value, float x[EIGHT])
{
    UNROLL for (int half = 0; half < 2; half++)
    {
        uint4 u = {0, 0, 0, 0};
        if (value >= 0) u = *chain_at(values, value, half);
        x[4 * half] = FLOAT_OF_BITS(u.x), x[4 * half + 1] = FLOAT_OF_BITS(u.y);
        x[4 * half + 2] = FLOAT_OF_BITS(u.z), x[4 * half + 3] = FLOAT_OF_BITS(u.w);
    }
}

DEVICE void chain_put(float *values, int value, const float x[EIGHT])
{
    UNROLL for (int half = 0; half < 2; half++)
    {
        uint4 u;
        u.x = BITS_OF_FLOAT(x[4 * half]), u.y = BITS_OF_FLOAT(x[4 * half + 1]);
        u.z = BITS_OF_FLOAT(x[4 * half + 2]), u.w = BITS_OF_FLOAT(x[4 * half + 3]);
        *chain_at(values, value, half) = u;
    }
}

DEVICE void chain_load(const ChainArgs *a, float *values, int64_t at, int64_t column, int n)
{
    for (int i = 0; i < a->n_loads; i += CHAIN_AHEAD) {
        Raw raw[CHAIN_AHEAD];
        UNROLL for (int u = 0; u < CHAIN_AHEAD; u++)
        {
            raw[u] = raw_zero();
            if (i + u < a->n_loads)
                raw[u] = fetch(a->load[i + u].x, a->load[i + u].column ? column : at, n);
        }
        UNROLL for (int u = 0; u < CHAIN_AHEAD; u++)
        {
            float x[EIGHT];
            if (i + u >= a->n_loads) continue;
            widen_all(a->load[i + u].x, &raw[u], x);
            chain_put(values, i + u, x);
        }
    }
}

DEVICE void chain_drop(const CudaDrawKey *key, float grow, int64_t place, const float x[EIGHT],
                       float y[EIGHT])
{
    uint32_t word[EIGHT];
    draw_eight(key->seed, key->stream, (uint64_t)place, word);
    UNROLL for (int k = 0; k < EIGHT; k++) y[k] = word[k] >= key->threshold ? grow * x[k] : 0;
}

/* Raises the maximum of a row. If a warp lies within one row, its lanes first combine their
 * maxima. */
DEVICE void chain_raise_row(const ChainArgs *a, uint32_t *row, uint32_t most)
{
    if (a->per_row % WARP == 0) {
        most = warp_largest(most);
        if (threadIdx.x % WARP > 0) return;
    }
    atomicMax(row, most);
}

typedef struct ChainPlace {
    int64_t row, at; /* at: index of the group's first element */
    int n;
} ChainPlace;

/* Computes one step. `most` holds this thread's maxima of whole tensors. */
DEVICE void chain_step(const ChainArgs *a, const ChainStep *s, const CudaDrawKey *keys,
                       float *values, ChainPlace p, uint32_t most[CHAIN_MAXIMA])
{
    float x0[EIGHT], x1[EIGHT], y[EIGHT], old[EIGHT];
    chain_get(values, s->in[0], x0);
    if (s->kind == CHAIN_amax) {
        const uint32_t bits = amax_of_eight(x0, p.n, 0);
        if (s->which < 0) chain_raise_row(a, (uint32_t *)s->y.at + p.row, bits);
        UNROLL for (int m = 0; m < CHAIN_MAXIMA; m++)
        {
            if (m == s->which && bits > most[m]) most[m] = bits;
        }
        return;
    }
    if (s->kind == CHAIN_dropout) {
        chain_drop(&keys[s->which], s->scale, a->first[s->which] + p.at, x0, y);
    } else {
        chain_get(values, s->in[1], x1);
        point_apply(s->op, s->scale, x0, x1, x1, y);
    }
    if (s->old >= 0) {
        chain_get(values, s->old, old);
        UNROLL for (int k = 0; k < EIGHT; k++) y[k] = old[k] + y[k];
    }
    round_all(s->dtype, y);
    if (s->out >= 0) chain_put(values, s->out, y);
    if (s->writes) store(s->y, p.at, p.n, y);
}

/* Combines the threads' maxima of each whole tensor and raises the tensor's maximum to the
 * result. */
DEVICE void chain_end(const ChainArgs *a, const uint32_t most[CHAIN_MAXIMA], uint32_t *held)
{
    UNROLL for (int m = 0; m < CHAIN_MAXIMA; m++)
    {
        if (m >= a->n_maxima) continue;
        __syncthreads();
        uint32_t top = block_largest(most[m], held);
        if (threadIdx.x == 0) atomicMax(a->amax[m].out, top);
    }
}

KERNEL(chain_rows, ChainArgs, CHAIN_THREADS, 8)
{
    SHARED(float, values); /* [slot, eight, thread]; the keys of the draws follow */
    CudaDrawKey *keys = (CudaDrawKey *)(values + a.n_slots * EIGHT * CHAIN_THREADS);
    int64_t step = (int64_t)gridDim.x * CHAIN_THREADS;
    uint32_t most[CHAIN_MAXIMA];
    UNROLL for (int m = 0; m < CHAIN_MAXIMA; m++) most[m] = 0;
    if ((int)threadIdx.x < a.n_draws) keys[threadIdx.x] = draw_key(&a.draw[threadIdx.x]);
    if (a.n_draws > 0) __syncthreads();
    for (int64_t t = (int64_t)blockIdx.x * CHAIN_THREADS + threadIdx.x; t < a.n; t += step) {
        int64_t row = split_row(t, a.per_row, a.n), column = (t - row * a.per_row) * EIGHT;
        ChainPlace p;
        p.row = row, p.at = row * a.row + column;
        p.n = eight_of(column, a.row);
        chain_load(&a, values, p.at, column, p.n);
        for (int i = 0; i < a.n_steps; i++) chain_step(&a, &a.step[i], keys, values, p, most);
    }
    chain_end(&a, most, (uint32_t *)values);
}

/* ---- which chains can run ---- */

/* Returns the element-wise op that computes an op of the table; -1: there is none. */
static int point_of(OpKind op)
{
#define X(name, expression)                                                                        \
    if (op == OP_##name) return POINT_##name;
    POINT_OPS(X)
#undef X
    if (op == OP_bias) return POINT_add;
    return op == OP_cast ? POINT_pass : -1;
}

static bool is_amax(OpKind op)
{
    return op == OP_amax || op == OP_amax_of_tokens;
}

/* Returns true if the part works on as many elements as the parts before it. *n is the number of
 * elements, *row the number of elements of a row: the size of a bias, or the elements that share a
 * maximum (if the chain has either). */
static bool chain_joins(const CudaChainPart *part, int64_t *n, int64_t *row)
{
    const KernelArgs *args = part->args;
    bool rows = part->op == OP_bias || part->op == OP_amax_of_tokens;
    uint32_t walked = is_amax(part->op) ? 0 : args->n_in;
    int64_t mine = rows ? args->rows : 0, first;
    if (point_of(part->op) < 0 && part->op != OP_dropout && !is_amax(part->op)) return false;
    if (!is_amax(part->op) && args->n_args != args->n_in + 1) return false;
    for (uint32_t i = 0; i <= args->n_in; i++)
        if (!fused_takes(args->dtype[i])) return false;
    if (is_amax(part->op) && (args->dtype[1] != DT_f32 || *n == 0)) return false;
    if (part->op == OP_dropout && !cuda_dropout_is_flat(args, &first)) return false;
    if (*n > 0 && args->elements[walked] != *n) return false;
    if (mine > 0 && *row > 0 && mine != *row) return false;
    *n = args->elements[walked];
    if (mine > 0) *row = mine;
    return true;
}

/* ---- building the arguments of a chain ---- */

/* Addresses in memory that the outputs of steps would have. While a chain is built, values have
 * indices as if there were CHAIN_LOADS loads: the values of steps begin at index CHAIN_LOADS. */
typedef struct ChainHome {
    void *at[CUDA_CHAIN_MAX];
    DType dtype[CUDA_CHAIN_MAX];
} ChainHome;

/* Returns the index of the value that an argument has at this point. It is the newest value that a
 * step made or a load read at that address. If there is none, it is a new load. Returns -1 if no
 * more values can be loaded. */
static int chain_value(ChainArgs *p, const ChainHome *home, const KernelArgs *args, uint32_t arg,
                       bool column)
{
    int fresh;
    for (int i = p->n_steps - 1; i >= 0; i--)
        if (home->at[i] == args->ptr[arg] && home->dtype[i] == args->dtype[arg])
            return CHAIN_LOADS + i;
    for (int i = 0; i < p->n_loads; i++)
        if (p->load[i].x.at == args->ptr[arg] && p->load[i].x.dtype == (int32_t)args->dtype[arg] &&
            p->load[i].column == column)
            return i;
    if (p->n_loads == CHAIN_LOADS) return -1;
    fresh = p->n_loads++;
    p->load[fresh].x = array_of(args, arg, p->rows == 1 ? 0 : p->row);
    p->load[fresh].column = column;
    return fresh;
}

/* Adds a step that finds a largest magnitude. It accepts only values that the chain computes: to
 * find the maximum of another value, the step would read as much memory as a separate kernel. */
static bool chain_add_amax(ChainArgs *p, ChainHome *home, const CudaChainPart *part, ChainStep *s)
{
    Amax amax = amax_of_part(part);
    if (s->in[0] < CHAIN_LOADS || (amax.of == AMAX_all && p->n_maxima == CHAIN_MAXIMA))
        return false;
    s->kind = CHAIN_amax;
    s->y = array_of(part->args, 1, 1);
    s->which = -1;
    if (amax.of == AMAX_all) {
        s->which = (int16_t)p->n_maxima;
        p->amax[p->n_maxima++] = amax;
    }
    home->at[p->n_steps++] = NULL; /* no later step reads a maximum */
    return true;
}

static bool chain_add_dropout(ChainArgs *p, const KernelArgs *args, ChainStep *s,
                              const CudaContext *cuda)
{
    if (p->n_draws == CHAIN_DRAWS) return false;
    s->kind = CHAIN_dropout;
    s->which = (int16_t)p->n_draws;
    s->scale = (float)(1 / (1 - args->attrs.drop));
    (void)cuda_dropout_is_flat(args, &p->first[p->n_draws]);
    p->draw[p->n_draws++] = draw_of(args, cuda);
    return true;
}

static bool chain_add(ChainArgs *p, ChainHome *home, const CudaChainPart *part,
                      const CudaContext *cuda)
{
    const KernelArgs *args = part->args;
    ChainStep *s = &p->step[p->n_steps];
    uint32_t out = args->n_in;
    s->op = (int16_t)point_of(part->op);
    s->scale = (float)args->attrs.scale;
    s->in[0] = (int16_t)chain_value(p, home, args, 0, false);
    s->in[1] = s->in[0];
    s->old = s->out = -1;
    if (s->in[0] < 0) return false;
    if (is_amax(part->op)) return chain_add_amax(p, home, part, s);
    if (part->op == OP_dropout && !chain_add_dropout(p, args, s, cuda)) return false;
    if (args->n_in > 1) {
        s->in[1] = (int16_t)chain_value(p, home, args, 1, part->op == OP_bias);
        if (s->in[1] < 0) return false;
    }
    if (accumulates(args, 0)) {
        s->old = (int16_t)chain_value(p, home, args, out, false);
        if (s->old < 0) return false;
    }
    s->dtype = (int16_t)args->dtype[out];
    s->writes = (part->unread & 1) == 0;
    s->y = array_of(args, out, p->rows == 1 ? 0 : p->row);
    home->at[p->n_steps] = args->ptr[out];
    home->dtype[p->n_steps] = args->dtype[out];
    s->out = (int16_t)(CHAIN_LOADS + p->n_steps++);
    return true;
}

/* Assigns a slot of shared memory to each value: first to loads, then to the outputs of steps. A
 * slot becomes free after the last step that reads its value. */
static void chain_slots(ChainArgs *p)
{
    int last[CHAIN_VALUES], slot[CHAIN_VALUES];
    bool used[CHAIN_VALUES] = {false};
    for (int v = 0; v < CHAIN_VALUES; v++) last[v] = -1, slot[v] = -1;
    for (int i = 0; i < p->n_steps; i++) {
        const int16_t reads[] = {p->step[i].in[0], p->step[i].in[1], p->step[i].old};
        for (int k = 0; k < 3; k++)
            if (reads[k] >= 0) last[reads[k]] = i;
    }
    p->n_slots = p->n_loads;
    for (int v = 0; v < p->n_loads; v++) slot[v] = v, used[v] = true;
    for (int i = 0; i < p->n_steps; i++) {
        ChainStep *s = &p->step[i];
        int16_t *const reads[] = {&s->in[0], &s->in[1], &s->old};
        int value[3], made = s->out, free = 0;
        for (int k = 0; k < 3; k++) {
            value[k] = *reads[k];
            if (value[k] >= 0) *reads[k] = (int16_t)slot[value[k]];
        }
        for (int k = 0; k < 3; k++) /* free the inputs' slots before the output gets one, because a
                                       step reads its inputs first */
            if (value[k] >= 0 && last[value[k]] == i) used[slot[value[k]]] = false;
        if (made < 0) continue;
        s->out = -1;
        if (last[made] < 0)
            continue; /* no later step reads the output, so it is written only to
                         memory and needs no slot */
        while (used[free]) free++;
        used[free] = true;
        slot[made] = free;
        s->out = (int16_t)free;
        if (free >= p->n_slots) p->n_slots = free + 1;
    }
}

/* Builds the longest chain that begins with part 0 and has at most n parts. Returns its length and
 * writes its arguments to *p. */
static uint32_t chain_build(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                            ChainArgs *p)
{
    ChainHome home;
    int64_t elements = 0, row = 0;
    uint32_t joined = 0, done = 0;
    memset(p, 0, sizeof *p);
    while (joined < n && joined < CUDA_CHAIN_MAX && chain_joins(&part[joined], &elements, &row))
        joined++;
    if (joined < 2 || elements == 0) return 0;
    p->row = row > 0 ? row : elements;
    p->rows = elements / p->row;
    p->per_row = ceil_div(p->row, EIGHT), p->n = p->rows * p->per_row;
    while (done < joined) {
        ChainArgs before = *p;
        if (!chain_add(p, &home, &part[done], cuda)) {
            *p = before;
            break;
        }
        done++;
    }
    chain_slots(p);
    return p->n_slots > CHAIN_SLOTS ? chain_build(part, done - 1, cuda, p) : done;
}

static bool chain_launch(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                         CudaError *error)
{
    ChainArgs p;
    uint32_t length = chain_build(part, n, cuda, &p);
    if (length != n) { /* cannot happen unless kernel_cuda_chain_length returned something else */
        snprintf(error->text, sizeof error->text, "a chain of %u parts ends after %u", n, length);
        return false;
    }
    for (uint32_t i = 0; i < n; i++)
        if (is_amax(part[i].op) &&
            !device_zero(part[i].args->ptr[1], (uint64_t)part[i].args->elements[1] * sizeof(float),
                         cuda, error))
            return false;
    uint64_t shared = (uint64_t)p.n_slots * EIGHT * CHAIN_THREADS * sizeof(float) +
                      (uint64_t)p.n_draws * sizeof(CudaDrawKey);
    int64_t blocks = blocks_for(p.n, CHAIN_THREADS, (int64_t)cuda->n_sms * 8);
    return LAUNCH(chain_rows, blocks, CHAIN_THREADS, shared, p, cuda, error);
}

/* Families of kernels that run chains of their own. The first family that accepts a chain runs
 * it. */
static const struct {
    CudaRunLength *length;
    CudaRun *run;
} families[] = {
    {cuda_norm_length, cuda_norm_run}, {cuda_norm_grad_length, cuda_norm_grad_run},
    {cuda_xent_length, cuda_xent_run}, {cuda_turn_length, cuda_turn_run},
    {cuda_gate_length, cuda_gate_run},
};
enum { N_FAMILIES = sizeof families / sizeof families[0] };

uint32_t kernel_cuda_chain_length(const CudaChainPart *part, uint32_t n)
{
    static const CudaContext nowhere = {0};
    ChainArgs p;
    uint32_t length;
    if (n < 2) return 0;
    for (int f = 0; f < N_FAMILIES; f++) {
        length = families[f].length(part, n);
        if (length > 0) return length;
    }
    length = chain_build(part, n, &nowhere, &p);
    return length >= 2 ? length : 0;
}

bool kernel_cuda_chain(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                       CudaError *error)
{
    for (int f = 0; f < N_FAMILIES; f++)
        if (families[f].length(part, n) == n) return families[f].run(part, n, cuda, error);
    return chain_launch(part, n, cuda, error);
}
