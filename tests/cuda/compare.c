/* See compare.h. In each case, guards surround every argument. No kernel may touch them. */
#include "tests/cuda/compare.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/workspace.h"
#include "kernels/number.h"
#include "planner/base/rng.h"
#include "tests/support/ops/choices.h"
#include "tests/support/sample.h"

/* ---- guarded memory ---- */

enum { GUARD = 256, MOST_BLOCKS = 96 };
typedef struct Guarded {
    unsigned char *block, *at;
    uint64_t bytes;
} Guarded;
static Guarded guarded[MOST_BLOCKS];
static uint32_t n_guarded;

void *compare_alloc(uint64_t bytes, uint64_t odd)
{
    uint64_t all = (2 * GUARD + odd + bytes + 255) / 256 * 256;
    Guarded *g = &guarded[n_guarded++];
    assert_true(n_guarded <= MOST_BLOCKS);
    g->block = target_alloc(all);
    memset(g->block, 0xa5, all);
    g->at = g->block + GUARD + odd;
    g->bytes = bytes;
    memset(g->at, 0xff, bytes);
    target_forbid(g->block, GUARD + odd);
    target_forbid(g->at + bytes, all - GUARD - odd - bytes);
    return g->at;
}

void compare_check(void)
{
    for (uint32_t i = 0; i < n_guarded; i++) {
        Guarded *g = &guarded[i];
        target_permit(g->block, (uint64_t)(g->at - g->block));
        target_permit(g->at + g->bytes, GUARD / 2);
        for (unsigned char *p = g->block; p < g->at; p++) assert_int_equal(*p, 0xa5);
        for (int k = 0; k < GUARD / 2; k++) assert_int_equal(g->at[g->bytes + (uint64_t)k], 0xa5);
    }
}

void compare_free(void)
{
    compare_check();
    for (uint32_t i = 0; i < n_guarded; i++) {
        target_permit(guarded[i].block, GUARD);
        target_free(guarded[i].block);
    }
    n_guarded = 0;
}

/* ---- arguments ---- */

typedef struct Bench {
    const CudaCase *c;
    Arena *arena;
    uint32_t n_in, n;
    uint32_t accumulate;
    Value exact[MAX_ARGS];  /* the CPU's input in fp64 */
    Value device[MAX_ARGS]; /* the device's input */
    void *before[MAX_ARGS]; /* a copy of the device's input */
    Value scratch;
} Bench;

static uint32_t dims_of(const SigTerm *term, const Sizes *sizes, int64_t dim[MAX_DIMS])
{
    uint32_t n = 0;
    for (int d = 0; d <= term->n_dims; d++) {
        if (d == term->ellipsis)
            for (int k = 0; k < 2; k++) dim[n++] = sizes->ellipsis[k];
        if (d == term->n_dims) continue;
        int letter = term->dim[d].letter;
        if (term->dim[d].reads) letter += 'A' - 'a';
        dim[n] = sizes->size[letter];
        if (term->dim[d].inner) dim[n] *= sizes->size[(unsigned char)term->dim[d].inner];
        n++;
    }
    return n;
}

static DType type_of(char c, DType real, DType eight)
{
    switch (c) {
    case 'f':
    case 'p': return real;
    case 'q': return eight;
    case 'd': return DT_f64;
    case 'i': return DT_i32;
    default: return DT_f32;
    }
}

/* Returns a normal number from a table. The size of the table has no factor in common with tensor
 * sizes. */
static double draw(char type, uint32_t arg, int64_t i)
{
    enum { N = 4099 };
    static double normal[N];
    for (int k = 0; k < N && normal[N - 1] == 0; k++) normal[k] = rng_normal(11, 0, (uint64_t)k);
    double x = normal[((uint64_t)i * 17 + (uint64_t)arg * 613) % N];
    bool positive = type == 'p' || type == 'P' || type == 'd';
    return positive ? 0.25 + fabs(x) : x;
}

static int64_t common_factor(int64_t a, int64_t b)
{
    return b == 0 ? a : common_factor(b, a % b);
}

/* The slots of a sequence are all different: the function steps through all of them. */
static int32_t draw_slot(const Bench *b, int64_t i)
{
    const Value *slots = &b->exact[b->c->op == OP_combine ? 0 : 1];
    const int64_t all = b->c->attrs.experts * b->c->attrs.capacity;
    const int64_t per_sequence = slots->dim[1] * slots->dim[2], at = i % per_sequence;
    int64_t stride = all / 3 + 1;
    while (common_factor(stride, all) != 1) stride++;
    return at < all ? (int32_t)((at * stride + i / per_sequence) % all) : -1;
}

typedef enum Ids { IDS_some_ignored, IDS_all, IDS_experts, IDS_slots } Ids;

static Ids ids_of(OpKind op)
{
    static const OpKind experts[] = {
        OP_route, OP_route_grad, OP_route_sigmoid, OP_route_sigmoid_grad,
        OP_slots, OP_balance,    OP_balance_grad,  OP_loads};
    static const OpKind slots[] = {OP_dispatch, OP_dispatch_grad, OP_combine, OP_combine_grad,
                                   OP_combine_weights};
    if (op == OP_embed || op == OP_embed_grad) return IDS_all;
    for (size_t i = 0; i < sizeof experts / sizeof experts[0]; i++)
        if (op == experts[i]) return IDS_experts;
    for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++)
        if (op == slots[i]) return IDS_slots;
    return IDS_some_ignored;
}

/* Ids are drawn from the whole vocabulary, or from all experts. One id is frequent. */
static int32_t draw_id(const Bench *b, uint32_t arg, int64_t i, int64_t n_ids)
{
    const Ids ids = ids_of(b->c->op);
    if ((ids == IDS_some_ignored || ids == IDS_slots) && i % 7 == 3) return -1;
    if (ids == IDS_slots) return draw_slot(b, i);
    if (i % 3 == 1) return (int32_t)(n_ids / 2);
    return (int32_t)(rng_u64(12, arg, (uint64_t)i) % (uint64_t)n_ids);
}

/* Fills the CPU's and the device's input with equal numbers, which the device's type can hold. */
static void fill(Bench *b, uint32_t arg, char type, int64_t n_ids)
{
    Value *v = &b->device[arg], *x = &b->exact[arg];
    const bool uneven = op_info(b->c->op)->flags & OP_COUNTED || op_counts_rows(b->c->op);
    if (uneven && choices_fill(b->c->op, arg, &b->c->attrs, v)) {
        memcpy(x->at, v->at, (size_t)value_elements(v) * dtype_bytes(DT_i32));
        return;
    }
    for (int64_t i = 0; i < value_elements(v); i++) {
        if (v->dtype == DT_i32) {
            const int32_t id = draw_id(b, arg, i, n_ids);
            value_set(v, i, id);
            value_set(x, i, id);
        } else {
            value_set(v, i, draw(type, arg, i));
            value_set(x, i, value_get(v, i));
        }
    }
}

/* Returns the number of different ids that the case may use. */
static int64_t ids_in_all(const CudaCase *c, const Sizes *sizes)
{
    if (c->op == OP_slots) return c->attrs.experts;
    if (ids_of(c->op) == IDS_experts) return sizes->size['N'];
    int64_t n = c->part != NULL ? c->part->global->size['v'] : sizes->size['v'];
    return n != 0 ? n : 50; /* only labels come here; any bound suits them */
}

static bool is_fresh(const Bench *b, uint32_t arg)
{
    return arg >= b->n_in && !(b->accumulate >> (arg - b->n_in) & 1);
}

/* Returns the argument whose memory receives an output: the input that the op updates, or the
 * output itself. */
static uint32_t home_of(const Bench *b, uint32_t arg)
{
    bool updates = (op_info(b->c->op)->flags & OP_UPDATES) != 0;
    return updates && arg >= b->n_in ? arg - b->n_in : arg;
}

static Bench bench_new(const CudaCase *c, const Sizes *sizes, DType real, DType eight,
                       uint32_t accumulate, Lie lie)
{
    const Signature *sig = &op_info(c->op)->sig;
    Bench b = {.c = c, .arena = arena_new(), .n_in = sig->n_in, .accumulate = accumulate};
    b.n = (uint32_t)strlen(c->types);
    assert_int_equal(b.n, b.n_in + sig->n_out);
    const int64_t n_ids = ids_in_all(c, sizes);
    for (uint32_t i = 0; i < b.n; i++) {
        int64_t dim[MAX_DIMS] = {0};
        uint32_t n_dims = dims_of(i < b.n_in ? &sig->in[i] : &sig->out[i - b.n_in], sizes, dim);
        DType t = type_of(c->types[i], real, eight);
        b.exact[i] = value_new(b.arena, t == DT_i32 ? DT_i32 : DT_f64, n_dims, dim);
        b.device[i] = b.exact[i];
        b.device[i].dtype = t;
        uint64_t bytes = (uint64_t)value_elements(&b.exact[i]) * dtype_bytes(t);
        uint32_t home = home_of(&b, i);
        b.device[i].at = home == i ? compare_alloc(bytes, lie == LIE_odd ? dtype_bytes(t) : 0)
                                   : b.device[home].at;
        if (home != i) b.exact[i].at = b.exact[home].at;
        if (home == i && !is_fresh(&b, i)) fill(&b, i, c->types[i], n_ids);
        /* Outputs of i32 start as 0x7f bytes, so that a label of -1 must really be written. */
        if (t == DT_i32 && is_fresh(&b, i)) memset(b.device[i].at, 0x7f, bytes);
        b.before[i] = arena_alloc(b.arena, bytes + 1);
        memcpy(b.before[i], b.device[i].at, bytes);
    }
    return b;
}

void compare_global(OpKind op, const Sizes *sizes, Binding *b)
{
    const Signature *sig = &op_info(op)->sig;
    Value v[MAX_ARGS];
    memset(v, 0, sizeof v);
    for (uint32_t i = 0; i < (uint32_t)sig->n_in + sig->n_out; i++)
        v[i].n_dims = (uint8_t)dims_of(i < sig->n_in ? &sig->in[i] : &sig->out[i - sig->n_in],
                                       sizes, v[i].dim);
    eval_args(op, NULL, v, sig->n_in, sig->n_out, NULL, b);
}

/* ---- the two runs ---- */

static uint64_t bytes_of(const Value *v)
{
    return (uint64_t)value_elements(v) * dtype_bytes(v->dtype);
}

static void run_device(Bench *b, const Attrs *attrs, uint64_t order)
{
    DType dtype[MAX_ARGS];
    int64_t elements[MAX_ARGS];
    CudaError error = {{0}};
    Binding binding;
    for (uint32_t i = 0; i < b->n; i++) {
        dtype[i] = b->device[i].dtype;
        elements[i] = value_elements(&b->device[i]);
        memcpy(b->device[i].at, b->before[i], bytes_of(&b->device[i]));
    }
    KernelArgs args =
        eval_args(b->c->op, attrs, b->device, b->n_in, b->n - b->n_in, b->c->part, &binding);
    uint64_t bytes = cuda_compute_workspace(b->c->op, dtype, elements, b->n);
    if (bytes > 0) {
        if (b->scratch.at == NULL) b->scratch.at = compare_alloc(bytes, 0);
        memset(b->scratch.at, 0xff, bytes);
        args.ptr[args.n_args] = b->scratch.at;
        args.dtype[args.n_args] = DT_u8;
        args.elements[args.n_args++] = (int64_t)bytes;
    }
    args.microbatch = 1;
    assert_true(cuda_compute_accepts(b->c->op, args.dtype, args.n_args));
    CudaContext *cuda = target_context();
    *cuda->fault = 0;
    target_case("%s %s, accumulate %u", op_info(b->c->op)->name, b->c->types, b->accumulate);
    target_begin(order);
    bool launched = b->c->kernel(&args, cuda, &error);
    if (!target_end(launched, &error)) fail_msg("%s: %s", target_case_now(), error.text);
    assert_int_equal(*cuda->fault, 0);
    compare_check();
}

static void run_exact(Bench *b, const Attrs *attrs)
{
    const CudaControl *control = target_control();
    const Control here = {.step = control->step, .lr = control->lr, .seed = control->seed};
    eval_op(b->c->op, attrs, b->exact, b->n_in, b->n - b->n_in, b->c->part, &here, 1);
}

/* ---- comparing results ---- */

/* Returns half a unit in the last place, relative to the number. */
static double half_unit(DType t)
{
    int mantissa_bits = t == DT_bf16   ? 7
                        : t == DT_f16  ? 10
                        : t == DT_e4m3 ? 3
                        : t == DT_e5m2 ? 2
                        : t == DT_f64  ? 52
                                       : 23;
    return ldexp(1, -mantissa_bits - 1);
}

static double smallest(DType t)
{
    return t == DT_f16 ? 0x1p-25 : t == DT_e4m3 ? 0x1p-10 : t == DT_e5m2 ? 0x1p-17 : 1e-40;
}

static void say(const Bench *b, uint32_t arg, int64_t i, double got, double expected)
{
    fail_msg("%s %s: output %u %s, accumulate %u, element %lld of %lld: %.9g, not %.9g",
             op_info(b->c->op)->name, b->c->types, arg - b->n_in, dtype_name(b->device[arg].dtype),
             b->accumulate, (long long)i, (long long)value_elements(&b->device[arg]), got,
             expected);
}

static void check_output(const Bench *b, uint32_t arg)
{
    const Value *v = &b->device[arg], *x = &b->exact[arg];
    double most = 0, units = b->c->tolerance > 0 ? b->c->tolerance : 16;
    /* the gradient of the decay is a difference of large sums */
    if (b->c->op == OP_state_scan_grad && arg == b->n_in + 2) units = 1600;
    const double unit = 1.01 * half_unit(v->dtype), least = smallest(v->dtype);
    for (int64_t i = 0; i < value_elements(v); i++) {
        double e = fabs(value_get(x, i));
        if (e > most && isfinite(e)) most = e;
    }
    for (int64_t i = 0; i < value_elements(v); i++) {
        double got = value_get(v, i);
        double expected = value_get(x, i);
        double room =
            unit * fabs(expected) + least + units * 0x1p-24 * (fabs(expected) + 0.25 * most);
        bool fine = isfinite(expected) ? fabs(got - expected) <= room
                                       : got == expected || (isnan(got) && isnan(expected));
        if (!fine) say(b, arg, i, got, expected);
    }
}

static void check_inputs(const Bench *b)
{
    for (uint32_t i = 0; i < b->n_in; i++) {
        bool updated = (op_info(b->c->op)->flags & OP_UPDATES) && i < b->n - b->n_in;
        if (!updated) assert_memory_equal(b->device[i].at, b->before[i], bytes_of(&b->device[i]));
    }
}

bool compare_asks_for(OpKind op)
{
    const char *of = getenv("TANDEM_OPS");
    return of == NULL || strstr(op_info(op)->name, of) != NULL;
}

void compare(const CudaCase *c, const Sizes *sizes, DType real, DType eight, uint32_t accumulate,
             Lie lie)
{
    if (!compare_asks_for(c->op)) return;
    Bench b = bench_new(c, sizes, real, eight, accumulate, lie);
    Attrs attrs = c->attrs;
    void *first[MAX_ARGS];
    attrs.accumulate = accumulate;
    run_exact(&b, &attrs);
    /* runs in both orders; under the sanitizers, in one of them */
    static size_t turn;
    const bool late = UNDER_SANITIZERS && is_sampled(turn++, 2);
    run_device(&b, &attrs, late ? 9 : 0);
    for (uint32_t i = b.n_in; i < b.n; i++) {
        check_output(&b, i);
        first[i] = arena_alloc(b.arena, bytes_of(&b.device[i]) + 1);
        memcpy(first[i], b.device[i].at, bytes_of(&b.device[i]));
    }
    check_inputs(&b);
    if (!UNDER_SANITIZERS) run_device(&b, &attrs, 9);
    for (uint32_t i = b.n_in; i < b.n && !UNDER_SANITIZERS; i++)
        if (memcmp(first[i], b.device[i].at, bytes_of(&b.device[i])) != 0)
            fail_msg("%s %s: output %u has other bits in another order", op_info(c->op)->name,
                     c->types, i - b.n_in);
    compare_free();
    arena_free(b.arena);
}

void compare_part(CudaCase c, const Sizes *local, const Sizes *whole, Part part)
{
    static const DType precisions[] = {DT_f32, DT_bf16, DT_f16};
    Binding global;
    compare_global(c.op, whole, &global);
    part.global = &global;
    c.part = &part;
    for (int i = 0; i < 3; i++)
        for (uint32_t accumulate = 0; accumulate <= c.accumulates; accumulate += c.accumulates + 1)
            for (Lie lie = 0; lie < LIES; lie++) {
                compare(&c, local, precisions[i], DT_e4m3, accumulate, lie);
                if (c.accumulates) compare(&c, local, precisions[i], DT_e4m3, c.accumulates, lie);
            }
}
