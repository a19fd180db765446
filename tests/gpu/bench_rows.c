/* Times the kernels that mostly move memory, at the shapes of the plans llama_1b, gpt2_124m and
 * gpt2_1_5b of scripts/plans/one_gpu. Each line has the time of a call, its bytes (each input read
 * once, each output written once), the rate, and that rate relative to the rate of large copies. A
 * call never finds its tensors in the L2 cache, because calls take turns with several sets of them.
 * Numbers are random. The device begins only after the host has issued everything, so the host's
 * time does not count. The last two columns are the time of a call in the fastest round, and the
 * time of all such calls in a step of the plan.
 *
 *     gpu_bench_rows [GRID]     GRID: multiplies the number of blocks of kernels whose blocks
 *                               process many pieces; for trials
 *
 * Without a GPU, the program prints the reason and ends with code 6. */
#include <assert.h>
#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cuda/cuda.h"
#include "tests/gpu/no_gpu.h"
#include "tests/support/ops/eval.h"

#ifndef ROWS_SHRINK /* divides the numbers of tokens and parameters, to try the program elsewhere  \
                     */
#define ROWS_SHRINK 1
#endif

enum {
    TENSORS = 8,
    PARTS = 4,
    ARGS = 8,
    SETS = 6,   /* largest number of sets of tensors */
    CALLS = 12, /* calls in one graph */
    ROUNDS = 9,
    WARM = 2,         /* rounds at the start that are not counted */
    MOST_HELD = 2000, /* waits of 10 us, after which the gate opens by itself */
    IDS_BELOW = 32000 /* less than any vocabulary here */
};
#define POOL_BYTES     ((UINT64_C(12) << 30) / ROWS_SHRINK)
#define TEMPLATE_BYTES ((UINT64_C(64) << 20) / ROWS_SHRINK)

typedef enum Fill { FILL_random, FILL_ids, FILL_ones } Fill;

typedef struct RowTensor {
    DType dtype;
    uint8_t n_dims;
    int64_t dim[MAX_DIMS];
    Fill fill;
    bool stays; /* stays inside the kernel, so it takes no memory */
} RowTensor;

typedef struct RowPart {
    OpKind op;
    uint32_t n_in, n_out;
    int arg[ARGS]; /* numbers of the tensors that it uses: the inputs, then the outputs */
    uint32_t accumulate;
} RowPart;

typedef struct Row {
    const char *name;
    int calls; /* calls in a step of the plan */
    RowTensor tensor[TENSORS];
    RowPart part[PARTS];
} Row;

#define T16(...)                                                                                   \
    {                                                                                              \
        DT_bf16, 3, {__VA_ARGS__}, FILL_random, false                                              \
    }
#define TOLD(...)                                                                                  \
    {                                                                                              \
        DT_bf16, 3, {__VA_ARGS__}, FILL_random, true                                               \
    }
#define HEADS(...)                                                                                 \
    {                                                                                              \
        DT_bf16, 5, {__VA_ARGS__}, FILL_random, false                                              \
    }
#define LINE(n)                                                                                    \
    {                                                                                              \
        DT_bf16, 1, {n}, FILL_random, false                                                        \
    }
#define LONG(n)                                                                                    \
    {                                                                                              \
        DT_f32, 1, {n}, FILL_random, false                                                         \
    }
#define EACH(b, s)                                                                                 \
    {                                                                                              \
        DT_f32, 2, {b, s}, FILL_random, false                                                      \
    }
#define IDS(b, s)                                                                                  \
    {                                                                                              \
        DT_i32, 2, {b, s}, FILL_ids, false                                                         \
    }
#define PAIR                                                                                       \
    {                                                                                              \
        DT_f64, 1, {2}, FILL_ones, false                                                           \
    }

enum {
    S1 = 4096 / ROWS_SHRINK, /* llama_1b */
    S2 = 1024 / ROWS_SHRINK, /* GPT-2 */
    STATES = 200000000 / ROWS_SHRINK / 256 * 256
};
#define FFN    T16(4, S1, 8192)
#define KEPT   TOLD(4, S1, 8192)
#define DIM    T16(4, S1, 2048)
#define LOGITS T16(4, S1, 128256)

static const Row rows[] = {
    {"llama_1b: gated unit, silu kept",
     128,
     {FFN, FFN, FFN, FFN},
     {{OP_silu, 1, 1, {0, 2}, 0}, {OP_mul, 2, 1, {2, 1, 3}, 0}}},
    {"llama_1b: gated unit",
     128,
     {FFN, FFN, KEPT, FFN},
     {{OP_silu, 1, 1, {0, 2}, 0}, {OP_mul, 2, 1, {2, 1, 3}, 0}}},
    {"llama_1b: its gradient, silu read",
     128,
     {FFN, FFN, FFN, FFN, KEPT, FFN, FFN},
     {{OP_mul, 2, 1, {2, 1, 4}, 0},
      {OP_mul, 2, 1, {2, 3, 5}, 0},
      {OP_silu_grad, 2, 1, {4, 0, 6}, 0}}},
    {"llama_1b: its gradient, silu again",
     128,
     {FFN, FFN, FFN, KEPT, KEPT, FFN, FFN},
     {{OP_mul, 2, 1, {2, 1, 4}, 0},
      {OP_silu, 1, 1, {0, 3}, 0},
      {OP_mul, 2, 1, {2, 3, 5}, 0},
      {OP_silu_grad, 2, 1, {4, 0, 6}, 0}}},
    {"llama_1b: rmsnorm",
     264,
     {DIM, LINE(2048), DIM, EACH(4, S1)},
     {{OP_rmsnorm, 2, 2, {0, 1, 2, 3}, 0}}},
    {"llama_1b: rmsnorm_grad, added",
     264,
     {DIM, DIM, LINE(2048), EACH(4, S1), DIM, LONG(2048)},
     {{OP_rmsnorm_grad, 4, 2, {0, 1, 2, 3, 4, 5}, 3}}},
    {"llama_1b: rope of queries",
     128,
     {HEADS(4, S1, 8, 4, 64), HEADS(4, S1, 8, 4, 64)},
     {{OP_rope, 1, 1, {0, 1}, 0}}},
    {"llama_1b: rope of keys",
     128,
     {HEADS(4, S1, 8, 1, 64), HEADS(4, S1, 8, 1, 64)},
     {{OP_rope, 1, 1, {0, 1}, 0}}},
    {"llama_1b: rope_grad of queries",
     128,
     {HEADS(4, S1, 8, 4, 64), HEADS(4, S1, 8, 4, 64)},
     {{OP_rope_grad, 1, 1, {0, 1}, 0}}},
    {"llama_1b: rope_grad of keys",
     128,
     {HEADS(4, S1, 8, 1, 64), HEADS(4, S1, 8, 1, 64)},
     {{OP_rope_grad, 1, 1, {0, 1}, 0}}},
    {"llama_1b: cross-entropy",
     8,
     {LOGITS, IDS(4, S1), EACH(4, S1), EACH(4, S1), EACH(4, S1)},
     {{OP_xent_max, 1, 1, {0, 2}, 0},
      {OP_xent_pick, 2, 1, {0, 1, 3}, 0},
      {OP_xent_sumexp, 2, 1, {0, 2, 4}, 0}}},
    {"llama_1b: its gradient",
     8,
     {LOGITS, EACH(4, S1), EACH(4, S1)},
     {{OP_xent_sumexp_grad, 3, 1, {0, 1, 2, 0}, 0}}},
    {"AdamW of 200 M parameters",
     0,
     {LONG(STATES), LONG(STATES), LONG(STATES), LONG(STATES), PAIR},
     {{OP_adamw, 5, 3, {0, 1, 2, 3, 4, 0, 1, 2}, 0}}},
    {"cast of 200 M parameters", 0, {LONG(STATES), LINE(STATES)}, {{OP_cast, 1, 1, {0, 1}, 0}}},
    {"sumsq of 200 M gradients",
     0,
     {LONG(STATES), {DT_f64, 1, {1}, FILL_ones, false}},
     {{OP_sumsq, 1, 1, {0, 1}, 0}}},
    {"gpt2_124m: layernorm",
     200,
     {T16(64, S2, 768), LINE(768), LINE(768), T16(64, S2, 768), EACH(64, S2), EACH(64, S2)},
     {{OP_layernorm, 3, 3, {0, 1, 2, 3, 4, 5}, 0}}},
    {"gpt2_124m: layernorm_grad, added",
     200,
     {T16(64, S2, 768), T16(64, S2, 768), LINE(768), EACH(64, S2), EACH(64, S2), T16(64, S2, 768),
      LONG(768), LONG(768)},
     {{OP_layernorm_grad, 5, 3, {0, 1, 2, 3, 4, 5, 6, 7}, 7}}},
    {"gpt2_1_5b: layernorm",
     0,
     {T16(16, S2, 1600), LINE(1600), LINE(1600), T16(16, S2, 1600), EACH(16, S2), EACH(16, S2)},
     {{OP_layernorm, 3, 3, {0, 1, 2, 3, 4, 5}, 0}}},
    {"gpt2_1_5b: layernorm_grad, added",
     0,
     {T16(16, S2, 1600), T16(16, S2, 1600), LINE(1600), EACH(16, S2), EACH(16, S2),
      T16(16, S2, 1600), LONG(1600), LONG(1600)},
     {{OP_layernorm_grad, 5, 3, {0, 1, 2, 3, 4, 5, 6, 7}, 7}}},
    {"gpt2_124m: bias_grad of 768",
     0,
     {T16(64, S2, 768), LONG(768)},
     {{OP_bias_grad, 1, 1, {0, 1}, 1}}},
    {"gpt2_124m: bias_grad of 3072",
     0,
     {T16(64, S2, 3072), LONG(3072)},
     {{OP_bias_grad, 1, 1, {0, 1}, 1}}},
    {"gpt2_1_5b: bias_grad of 1600",
     0,
     {T16(16, S2, 1600), LONG(1600)},
     {{OP_bias_grad, 1, 1, {0, 1}, 1}}},
    {"gpt2_1_5b: bias_grad of 6400",
     0,
     {T16(16, S2, 6400), LONG(6400)},
     {{OP_bias_grad, 1, 1, {0, 1}, 1}}},
    {"gpt2_124m: gelu", 0, {T16(64, S2, 3072), T16(64, S2, 3072)}, {{OP_gelu, 1, 1, {0, 1}, 0}}},
    {"gpt2_124m: gelu_grad",
     0,
     {T16(64, S2, 3072), T16(64, S2, 3072), T16(64, S2, 3072)},
     {{OP_gelu_grad, 2, 1, {0, 1, 2}, 0}}},
    {"gpt2_124m: cross-entropy",
     8,
     {T16(64, S2, 50304), IDS(64, S2), EACH(64, S2), EACH(64, S2), EACH(64, S2)},
     {{OP_xent_max, 1, 1, {0, 2}, 0},
      {OP_xent_pick, 2, 1, {0, 1, 3}, 0},
      {OP_xent_sumexp, 2, 1, {0, 2, 4}, 0}}},
    {"gpt2_124m: its gradient",
     8,
     {T16(64, S2, 50304), EACH(64, S2), EACH(64, S2)},
     {{OP_xent_sumexp_grad, 3, 1, {0, 1, 2, 0}, 0}}},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

static struct Bench {
    CudaContext context;
    cudaStream_t stream;
    char *pool, *scratch, *pattern; /* pattern: TEMPLATE_BYTES of random numbers */
    double copy_rate;               /* bytes a second */
} the;

static void check(cudaError_t status, const char *call)
{
    if (status == cudaSuccess) return;
    fprintf(stderr, "bench_rows: %s: %s\n", call, cudaGetErrorString(status));
    exit(1);
}
#define CHECK(name, arguments) check(name arguments, #name)

static void fine(bool done, const char *name, const CudaError *error)
{
    if (done) return;
    fprintf(stderr, "bench_rows: %s: %s\n", name, error->text);
    exit(1);
}

/* Random bf16 numbers of either sign, with magnitudes of 1/8 to 2. Read as fp32, two of them form a
 * number of such a magnitude. */
static void *random_numbers(void)
{
    uint64_t *words = malloc(TEMPLATE_BYTES), x = UINT64_C(0x9e3779b97f4a7c15);
    assert(words != NULL);
    for (size_t i = 0; i < TEMPLATE_BYTES / sizeof *words; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        words[i] = (x & UINT64_C(0x81ff81ff81ff81ff)) | UINT64_C(0x3e003e003e003e00);
    }
    return words;
}

static void open_bench(int grid)
{
    static const CudaControl control = {.step = 3, .lr = 1e-4, .seed = 77};
    struct cudaDeviceProp p;
    void *words = random_numbers(), *at = NULL;
    CHECK(cudaSetDevice, (0));
    CHECK(cudaGetDeviceProperties, (&p, 0));
    CHECK(cudaStreamCreateWithFlags, (&the.stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc, ((void **)&the.pool, POOL_BYTES));
    CHECK(cudaMalloc, ((void **)&the.pattern, TEMPLATE_BYTES));
    CHECK(cudaMalloc, ((void **)&the.scratch, UINT64_C(256) << 20));
    CHECK(cudaMemcpy, (the.pattern, words, TEMPLATE_BYTES, cudaMemcpyHostToDevice));
    free(words);
    CHECK(cudaMalloc, (&at, 256 + sizeof control));
    CHECK(cudaMemset, (at, 0, 256));
    CHECK(cudaMemcpy, ((char *)at + 256, &control, sizeof control, cudaMemcpyHostToDevice));
    the.context = (CudaContext){.stream = the.stream,
                                .control = (const CudaControl *)(const void *)((char *)at + 256),
                                .fault = at,
                                .pc = 1,
                                .n_sms = (uint32_t)(p.multiProcessorCount * grid),
                                .l2_bytes = (uint64_t)p.l2CacheSize,
                                .compute_capability = (uint32_t)(10 * p.major + p.minor)};
    printf("%s, %d multiprocessors, grids times %d\n", p.name, p.multiProcessorCount, grid);
}

/* ---- the tensors of a row ---- */

static uint64_t tensor_bytes(const RowTensor *t)
{
    uint64_t n = t->n_dims > 0 ? dtype_bytes(t->dtype) : 0;
    for (int d = 0; d < t->n_dims; d++) n *= (uint64_t)t->dim[d];
    return n;
}

static uint64_t space(const RowTensor *t)
{
    return (tensor_bytes(t) + 255) / 256 * 256;
}

static void fill_ids(char *at, uint64_t n)
{
    int32_t *ids = malloc(n * sizeof *ids);
    assert(ids != NULL);
    for (uint64_t i = 0; i < n; i++) ids[i] = (int32_t)(i * 2654435761u % IDS_BELOW);
    CHECK(cudaMemcpy, (at, ids, n * sizeof *ids, cudaMemcpyHostToDevice));
    free(ids);
}

static void fill_ones(char *at, uint64_t n)
{
    const double one = 1;
    for (uint64_t i = 0; i < n; i++)
        CHECK(cudaMemcpy, (at + i * sizeof one, &one, sizeof one, cudaMemcpyHostToDevice));
}

/* Fills the pool with random numbers, and places `sets` sets of the row's tensors in it. */
static int place(const Row *row, char *at[SETS][TENSORS])
{
    uint64_t each = 0, used = 0;
    for (int i = 0; i < TENSORS; i++) each += space(&row->tensor[i]);
    int sets = (int)(POOL_BYTES / each);
    sets = sets > SETS ? SETS : sets;
    assert(sets > 0);
    for (uint64_t from = 0; from < POOL_BYTES; from += TEMPLATE_BYTES)
        CHECK(cudaMemcpy, (the.pool + from, the.pattern, TEMPLATE_BYTES, cudaMemcpyDeviceToDevice));
    for (int s = 0; s < sets; s++)
        for (int i = 0; i < TENSORS; i++) {
            const RowTensor *t = &row->tensor[i];
            at[s][i] = the.pool + used;
            used += space(t);
            if (t->fill == FILL_ids) fill_ids(at[s][i], tensor_bytes(t) / sizeof(int32_t));
            if (t->fill == FILL_ones) fill_ones(at[s][i], tensor_bytes(t) / sizeof(double));
        }
    CHECK(cudaDeviceSynchronize, ()); /* the stream of the kernels does not wait for copies */
    return sets;
}

/* Returns the bytes that a call moves: each tensor that is read before the call makes it, and each
 * tensor that it makes. Tensors that stay inside the kernel do not count. */
static uint64_t row_bytes(const Row *row)
{
    bool reads[TENSORS] = {false}, made[TENSORS] = {false};
    uint64_t bytes = 0;
    for (int k = 0; k < PARTS && row->part[k].n_out > 0; k++) {
        const RowPart *part = &row->part[k];
        for (uint32_t i = 0; i < part->n_in; i++)
            reads[part->arg[i]] = reads[part->arg[i]] || !made[part->arg[i]];
        for (uint32_t j = 0; j < part->n_out; j++) {
            const int to = part->arg[part->n_in + j];
            made[to] = true;
            reads[to] = reads[to] || (part->accumulate >> j & 1);
        }
    }
    for (int i = 0; i < TENSORS; i++)
        if (!row->tensor[i].stays)
            bytes += tensor_bytes(&row->tensor[i]) * (uint64_t)(reads[i] + made[i]);
    return bytes;
}

static Attrs row_attrs(const RowPart *part)
{
    Attrs attrs = {.eps = 1e-5, .accumulate = part->accumulate, .scale = 1};
    if (part->op == OP_rope || part->op == OP_rope_grad) {
        attrs.theta = 5e5, attrs.rope_factor = 32, attrs.rope_low = 1, attrs.rope_high = 4;
        attrs.rope_context = 8192;
    }
    if (part->op == OP_adamw)
        attrs.beta1 = 0.9, attrs.beta2 = 0.95, attrs.weight_decay = 0.1, attrs.eps = 1e-8;
    attrs.hi = INT64_MAX;
    return attrs;
}

typedef struct Call {
    uint32_t n;
    CudaChainPart part[PARTS];
    KernelArgs args[PARTS];
    Binding binding[PARTS];
    Attrs attrs[PARTS];
} Call;

static void make_call(const Row *row, char *const at[TENSORS], Call *call)
{
    memset(call, 0, sizeof *call);
    for (; call->n < PARTS && row->part[call->n].n_out > 0; call->n++) {
        const RowPart *part = &row->part[call->n];
        KernelArgs *args = &call->args[call->n];
        Value value[ARGS];
        uint32_t unread = 0;
        for (uint32_t i = 0; i < part->n_in + part->n_out; i++) {
            const RowTensor *t = &row->tensor[part->arg[i]];
            value[i] = (Value){t->dtype, t->n_dims, {0}, at[part->arg[i]]};
            memcpy(value[i].dim, t->dim, sizeof value[i].dim);
            if (i >= part->n_in && t->stays) unread |= 1u << (i - part->n_in);
        }
        call->attrs[call->n] = row_attrs(part);
        *args = eval_args(part->op, &call->attrs[call->n], value, part->n_in, part->n_out, NULL,
                          &call->binding[call->n]);
        const uint64_t bytes =
            kernel_cuda_workspace(part->op, args->dtype, args->elements, args->n_args);
        if (bytes > 0) {
            args->ptr[args->n_args] = the.scratch, args->dtype[args->n_args] = DT_u8;
            args->elements[args->n_args++] = (int64_t)bytes;
        }
        call->part[call->n] = (CudaChainPart){part->op, args, unread};
    }
}

static void issue(const Row *row, const Call *call)
{
    CudaError error = {""};
    const RowPart *part = &row->part[0];
    if (call->n == 1) {
        fine(kernel_cuda(part->op)(&call->args[0], &the.context, &error), row->name, &error);
        return;
    }
    if (kernel_cuda_chain_length(call->part, call->n) != call->n)
        snprintf(error.text, sizeof error.text, "is not one kernel");
    else if (kernel_cuda_chain(call->part, call->n, &the.context, &error))
        return;
    fine(false, row->name, &error);
}

/* ---- times ---- */

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The device waits at the gate until it is open. A driver might be unable to issue work behind a
 * closed gate, and would then wait for ever. So the gate opens after 20 ms, and `late` counts the
 * round. */
typedef struct Gate {
    atomic_bool open;
    int late;
} Gate;

static void wait_at(void *at)
{
    Gate *gate = at;
    const struct timespec rest = {0, 10000};
    for (int i = 0; i < MOST_HELD; i++) {
        if (atomic_load(&gate->open)) return;
        nanosleep(&rest, NULL);
    }
    gate->late++;
}

typedef struct Times {
    double median, least; /* seconds */
    int late;             /* number of rounds in which the device did not wait for the host */
} Times;

/* Runs the captured work several times. */
static Times timed(cudaGraph_t graph)
{
    cudaGraphExec_t exec = NULL;
    cudaEvent_t from, to;
    float ms[ROUNDS];
    Gate gate = {.late = 0};
    CHECK(cudaGraphInstantiate, (&exec, graph, 0));
    CHECK(cudaEventCreate, (&from));
    CHECK(cudaEventCreate, (&to));
    for (int i = 0; i < ROUNDS; i++) {
        /* the first launch may load kernels, and then the driver waits, so the gate is open */
        atomic_store(&gate.open, i < WARM);
        CHECK(cudaLaunchHostFunc, (the.stream, wait_at, &gate));
        CHECK(cudaEventRecord, (from, the.stream));
        CHECK(cudaGraphLaunch, (exec, the.stream));
        CHECK(cudaEventRecord, (to, the.stream));
        atomic_store(&gate.open, true);
        CHECK(cudaEventSynchronize, (to));
        CHECK(cudaEventElapsedTime, (&ms[i], from, to));
    }
    CHECK(cudaEventDestroy, (from));
    CHECK(cudaEventDestroy, (to));
    CHECK(cudaGraphExecDestroy, (exec));
    CHECK(cudaGraphDestroy, (graph));
    qsort(ms + WARM, ROUNDS - WARM, sizeof *ms, by_size);
    return (Times){(double)ms[WARM + (ROUNDS - WARM) / 2] / 1e3, (double)ms[WARM] / 1e3, gate.late};
}

/* Prints one line. `whole`: the times of all calls of a graph together. */
static void tell(const char *name, Times whole, uint64_t bytes, int calls)
{
    const double seconds = whole.median / CALLS, rate = (double)bytes / seconds;
    printf("%-36s %9.1f us %8.1f MB %6.0f GB/s %5.0f %% %9.1f us", name, seconds * 1e6,
           (double)bytes / 1e6, rate / 1e9, 100 * rate / the.copy_rate, whole.least / CALLS * 1e6);
    if (calls > 0) printf(" %7.2f ms", seconds * 1e3 * calls);
    if (whole.late > 0) printf(" (with the host's time in %d rounds)", whole.late);
    putchar('\n');
    fflush(stdout);
}

static void time_copy(void)
{
    const uint64_t bytes = (UINT64_C(256) << 20) / ROWS_SHRINK;
    cudaGraph_t graph = NULL;
    CHECK(cudaStreamBeginCapture, (the.stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < CALLS; i++)
        CHECK(cudaMemcpyAsync, (the.pool + (uint64_t)(2 * i) * bytes % POOL_BYTES,
                                the.pool + (uint64_t)(2 * i + 1) * bytes % POOL_BYTES, bytes,
                                cudaMemcpyDeviceToDevice, the.stream));
    CHECK(cudaStreamEndCapture, (the.stream, &graph));
    const Times whole = timed(graph);
    the.copy_rate = 2 * (double)bytes * CALLS / whole.median;
    tell("copy", whole, 2 * bytes, 0);
}

static void time_row(const Row *row)
{
    char *at[SETS][TENSORS];
    const int sets = place(row, at);
    cudaGraph_t graph = NULL;
    CHECK(cudaStreamBeginCapture, (the.stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < CALLS; i++) {
        Call call;
        make_call(row, at[i % sets], &call);
        issue(row, &call);
    }
    CHECK(cudaStreamEndCapture, (the.stream, &graph));
    tell(row->name, timed(graph), row_bytes(row), row->calls);
}

int main(int argc, char **argv)
{
    const int grid = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1;
    if (grid < 1) {
        fprintf(stderr, "bench_rows: GRID must be a number from 1 on\n");
        return 2;
    }
    no_gpu_ends();
    open_bench(grid);
    time_copy();
    for (int i = 0; i < N_ROWS; i++) time_row(&rows[i]);
    return 0;
}
