/* A wrong row of the op table must not be able to vouch for itself. For every row and every
 * splittable index, the inputs are split as op_axis_layout says. The kernel runs on each part, and
 * the outputs are combined as op_axis_layout claims. The result must equal the unsplit run. An
 * index in capitals must stay whole: if it is split all the same, the result must differ. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "planner/base/rng.h"
#include "planner/ir/graph.h"
#include "tests/support/ops/choices.h"
#include "tests/support/ops/eval.h"
#include "tests/support/ops/fields.h"

enum { SEED = 20240607, MAX_PARTS = 3, UPPER_SIZE = 12 };

#define COMPUTE(name, signature, flops, reduce, backward, flags) +1
#define EACH_3(name)                                             +3
#define CONTRACT(name, signature)                                CONTRACT_FORMS(EACH_3, name)
#define PRODUCT(name, signature)                                 EACH_3(name)
enum {
    N_ROWS = 0
#include "planner/ir/op/ops.def"
};

/* In these tests, `...` stands for two indices with these letters. */
static const char ellipsis[] = "yz";

typedef struct Case {
    OpKind op;
    char letter; /* the split letter, as the binding calls it */
    uint32_t n_parts;
    int64_t size['z' + 1]; /* global sizes */
    Attrs attrs;
    DType real; /* DT_none stands for fp64 */
    Arena *arena;
    uint32_t n_in, n_out;
    Value args[MAX_ARGS]; /* the arguments of the unsplit op */
    Binding binding;
} Case;

static void fill_data(void *self, int64_t step, uint32_t microbatch, int64_t first, int64_t n,
                      int64_t seq, int32_t *tokens, int32_t *labels)
{
    (void)self;
    for (int64_t i = 0; i < n * seq; i++) {
        uint64_t at = (uint64_t)(first * seq + i);
        tokens[i] = (int32_t)rng_below(SEED + (uint64_t)step, microbatch, at, 1000);
        labels[i] = (int32_t)rng_below(SEED + (uint64_t)step, microbatch + 1, at, 1000);
    }
}

static void fill_line(void *self, const FieldLine *line, double *values)
{
    (void)self;
    for (int64_t i = 0; i < line->n; i++)
        values[i] = (double)line->sample + 0.1 * (double)line->channel + 7 * (double)line->row +
                    31 * (double)(line->column + i) + (line->is_target ? 0.5 : 0);
}

static const DataSource data = {.fill = fill_data, .line = fill_line};
static const Control control = {.step = 2, .lr = 0.1, .data = &data};

static bool is_loss(OpKind op)
{
    return op == OP_xent_loss || op == OP_xent_loss_mean || op == OP_mse_loss;
}

static bool is_loss_grad(OpKind op)
{
    return op == OP_xent_loss_grad || op == OP_xent_loss_mean_grad;
}

static bool is_ids(OpKind op, uint32_t arg)
{
    return op_index_args(op) >> arg & 1;
}

/* Returns true for tables of scalars, which are always fp64. */
static bool is_table(OpKind op, uint32_t arg)
{
    return op == OP_clip_coef || op == OP_step_mean || (op == OP_sumsq && arg == 1) ||
           (op == OP_adamw && arg == 4) || (op == OP_sgd && arg == 2);
}

static DType dtype_of(const Case *c, uint32_t arg)
{
    if (is_ids(c->op, arg)) return DT_i32;
    const bool values = op_info(c->op)->class_ == OP_CLASS_contract ? arg < 2 : arg == c->n_in;
    if (op_has_pairs(c->op) && values) return DT_f64x2;
    return is_table(c->op, arg) || c->real == DT_none ? DT_f64 : c->real;
}

/* Returns true for inputs that must be positive: deviations, sums of exponentials, and second
 * moments. */
static bool is_positive(OpKind op, uint32_t arg)
{
    return ((op == OP_rmsnorm_grad || op == OP_rmsnorm_heads_grad) && arg == 3) ||
           ((op == OP_layernorm_grad || op == OP_channel_norm_grad) && arg == 4) ||
           (op == OP_group_norm && arg == 2) ||
           ((op == OP_group_norm_grad || op == OP_group_norm_weight) && arg == 3) ||
           (is_loss(op) && arg == 1) || (is_loss_grad(op) && arg == 1) ||
           (op == OP_adamw && arg == 2) || op == OP_clip_coef || op == OP_step_mean ||
           (op == OP_normalise && arg == 2) || (op == OP_divide && arg == 1) ||
           (op == OP_divide_dot && arg == 2) ||
           ((op_info(op)->flags & OP_QUANTISES || op == OP_quantise_range) && arg == 1) ||
           (op_info(op)->scaling != SCALING_none && arg >= 2);
}

static void term_dims(const Case *c, const SigTerm *term, Value *v)
{
    for (int d = 0; d <= term->n_dims; d++) {
        if (term->ellipsis == d)
            for (const char *e = ellipsis; *e; e++)
                v->dim[v->n_dims++] = c->size[(unsigned char)*e];
        if (d == term->n_dims) break;
        unsigned char inner = (unsigned char)term->dim[d].inner;
        int letter = term->dim[d].letter;
        if (term->dim[d].reads) letter += 'A' - 'a';
        v->dim[v->n_dims++] = c->size[letter] * (inner ? c->size[inner] : 1);
    }
}

static void fill_input(const Case *c, uint32_t arg, Value *v)
{
    int64_t vocab = c->size['v'];
    if (choices_fill(c->op, arg, &c->attrs, v)) return;
    for (int64_t i = 0; i < value_numbers(v); i++) {
        double x = rng_normal(SEED, arg, (uint64_t)i);
        if (is_ids(c->op, arg)) {
            x = (double)rng_below(SEED, arg, (uint64_t)i, (uint64_t)vocab);
            bool label = c->op != OP_embed && c->op != OP_embed_grad;
            if (label && rng_below(SEED, arg + 100, (uint64_t)i, 4) == 0) x = -1;
        }
        if (is_positive(c->op, arg)) x = fabs(x) + 0.5;
        value_set(v, i, x);
    }
}

static Attrs attrs_of(const Case *c, bool causal)
{
    Attrs a = {.scale = 0.7,
               .eps = 1e-3,
               .theta = 100,
               .beta1 = 0.9,
               .beta2 = 0.95,
               .weight_decay = 0.1,
               .clip = 0.3,
               .causal = causal,
               .smoothing = 0.2,
               .z_loss = 0.03,
               .drop = 0.4,
               .cap = causal ? 2 : 0,
               .window = causal ? 3 : 0,
               .distance = 6,
               .site = 3,
               .group = 1,
               .segment = 1,
               .normalise = causal,
               .top_k = c->size['K'],
               .mean = 1,
               .capacity = c->size['m']};
    const bool scores = c->op == OP_topk || c->op == OP_route || c->op == OP_route_grad ||
                        c->op == OP_route_sigmoid || c->op == OP_route_sigmoid_grad ||
                        c->op == OP_balance || c->op == OP_balance_grad ||
                        c->op == OP_topk_biased || c->op == OP_loads;
    a.experts = c->size[scores ? 'N' : 'e'];
    if (c->op == OP_sumsq || op_info(c->op)->flags & OP_RANGE) a.lo = 2, a.hi = c->size['x'] - 1;
    if (c->op == OP_topk && causal) a.expert_groups = 2, a.top_groups = 1, a.sigmoid = 1;
    if (op_info(c->op)->flags & OP_BLOCKS) a.group = c->size['B'];
    if (c->op == OP_merge_tokens || c->op == OP_merge_tokens_grad) a.count = c->size['I'];
    if (op_has_pairs(c->op)) a.group = 2 * c->size['A'];
    if (!(op_info(c->op)->flags & OP_TAKES)) return a;
    bool one = c->op == OP_part_head || c->op == OP_part_head_grad;
    bool heads = c->op == OP_part_heads || c->op == OP_part_heads_grad;
    a.first = 1, a.count = one ? 1 : c->size[heads ? 'r' : 'X'];
    return a;
}

/* Returns true for ops that read both the tokens of a rank and the tokens of all ranks. */
static bool sees_whole_sequence(OpKind op)
{
    return op == OP_position || op == OP_position_grad || op == OP_balance || op == OP_balance_grad;
}

/* Chooses small sizes for the indices. They differ wherever equal sizes could hide an error. The
 * index `named` gets `size`. */
static void case_sizes(Case *c, char named, int64_t size)
{
    static const struct {
        char letter;
        int64_t size;
    } small[] = {{'b', 2},          {'s', 5}, {'k', 4}, {'n', 3},          {'g', 2},
                 {'r', 3},          {'e', 2}, {'v', 9}, {'x', 11},         {'y', 3},
                 {'z', 2},          {'N', 4}, {'M', 2}, {'T', UPPER_SIZE}, {'D', UPPER_SIZE},
                 {'E', UPPER_SIZE}, {'F', 3}, {'X', 2}, {'f', 3},          {'c', 3},
                 {'S', 5},          {'K', 2}, {'C', 7}, {'m', 7},          {'h', 6},
                 {'w', 4},          {'u', 2}, {'t', 3}, {'d', 2},          {'p', 3},
                 {'q', 3},          {'V', 4}, {'U', 3}, {'Z', 5},          {'Q', 4},
                 {'R', 3},          {'O', 7}, {'B', 2}, {'I', 3}};
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        c->size[(unsigned char)small[i].letter] = small[i].size;
    /* There are more tokens than the op takes. */
    if (op_info(c->op)->flags & OP_TAKES) c->size['F'] = 9;
    if (op_has_pairs(c->op)) c->size['A'] = 1, c->size['C'] = 2; /* A and C count halves of B = 2 */
    if (size != 0) c->size[(unsigned char)named] = size;
    if (sees_whole_sequence(c->op)) c->size['S'] = c->size['s'];
}

static void bind_case(Case *c)
{
    Diag diag = diag_in(c->arena);
    Dims in[MAX_IN], out[MAX_OUT];
    for (uint32_t i = 0; i < c->n_in; i++) in[i] = (Dims){c->args[i].n_dims, c->args[i].dim};
    for (uint32_t j = 0; j < c->n_out; j++)
        out[j] = (Dims){c->args[c->n_in + j].n_dims, c->args[c->n_in + j].dim};
    assert_true(op_bind(c->op, in, c->n_in, out, c->n_out, &c->binding, (Loc){0}, &diag));
}

static void zero(Value *v)
{
    memset(v->at, 0, (size_t)value_elements(v) * dtype_bytes(v->dtype));
}

/* Makes an output. It starts as NaN; but a table of which the op sets only one slot starts as
 * zero. */
static Value new_output(const Case *c, uint32_t n_dims, const int64_t *dim, DType dtype)
{
    Value v = value_new(c->arena, dtype, n_dims, dim);
    if (c->op == OP_sumsq) zero(&v);
    return v;
}

static void make_case(Case *c, bool causal)
{
    const Signature *sig = &op_info(c->op)->sig;
    c->n_in = sig->n_in;
    c->n_out = sig->n_out;
    c->attrs = attrs_of(c, causal);
    fields_set(c->op, causal, c->size, &c->attrs);
    for (uint32_t i = 0; i < c->n_in + c->n_out; i++) {
        Value shape = {.dtype = dtype_of(c, i)};
        term_dims(c, i < c->n_in ? &sig->in[i] : &sig->out[i - c->n_in], &shape);
        c->args[i] = i < c->n_in ? value_new(c->arena, shape.dtype, shape.n_dims, shape.dim)
                                 : new_output(c, shape.n_dims, shape.dim, shape.dtype);
        if (i < c->n_in) fill_input(c, i, &c->args[i]);
    }
    bind_case(c);
    eval_op(c->op, &c->attrs, c->args, c->n_in, c->n_out, NULL, &control, 1);
}

/* ---- cutting and joining along one dimension */

typedef struct Cut {
    /* This is one part of a dimension, with `valid` real elements from `start` on. */
    int64_t outer, size, inner, part, start, valid;
    int64_t runs; /* with strides, the part has an equal piece of each run; 1: it is one interval */
} Cut;

/* Returns true if dimension d of the argument has the rows that windows read. */
static bool has_windows(const Case *c, uint32_t arg, int d)
{
    const Signature *sig = &op_info(c->op)->sig;
    const SigTerm *t = arg < c->n_in ? &sig->in[arg] : &sig->out[arg - c->n_in];
    return t->ellipsis < 0 && t->dim[d].reads;
}

static Cut cut_of(const Value *whole, int d, uint32_t n_parts, uint32_t i, int64_t runs)
{
    Cut c = {.outer = 1, .size = whole->dim[d], .inner = dtype_numbers(whole->dtype), .runs = runs};
    for (int k = 0; k < d; k++) c.outer *= whole->dim[k];
    for (int k = d + 1; k < whole->n_dims; k++) c.inner *= whole->dim[k];
    c.part = (c.size + n_parts - 1) / n_parts;
    c.start = c.part * i;
    c.valid = c.size - c.start;
    if (c.valid < 0) c.valid = 0;
    if (c.valid > c.part) c.valid = c.part;
    return c;
}

/* Returns the rows that the part's windows read. They overlap the rows of other parts. */
static Cut cut_for(const Case *c, uint32_t arg, const Value *whole, int d, uint32_t i)
{
    const char strides = c->binding.strides[arg][d];
    Cut cut = cut_of(whole, d, c->n_parts, i, strides ? c->binding.size[(int)strides] : 1);
    if (!has_windows(c, arg, d)) return cut;
    int64_t all = c->binding.size[(int)c->letter], lo, hi;
    int64_t part = (all + c->n_parts - 1) / c->n_parts;
    fields_rows(c->op, &c->binding, &c->attrs, c->letter, part * i, part * (i + 1), &lo, &hi);
    cut.start = lo;
    cut.part = cut.valid = hi - lo;
    return cut;
}

/* Returns the index in the whole of element i of a part, or -1 for padding. */
static int64_t whole_index(const Cut *c, int64_t i)
{
    int64_t inner = i % c->inner, at = i / c->inner % c->part, outer = i / c->inner / c->part;
    if (at >= c->valid) return -1;
    if (c->runs > 1) {
        const int64_t piece = c->part / c->runs;
        const int64_t row = at / piece * (c->size / c->runs) + c->start / c->runs + at % piece;
        return (outer * c->size + row) * c->inner + inner;
    }
    return (outer * c->size + (c->start + at + c->size) % c->size) * c->inner + inner;
}

static Value local_value(const Case *c, uint32_t arg, int8_t on, uint32_t part)
{
    const Value *whole = &c->args[arg];
    const bool copy = arg < c->n_in;
    Value v = {.dtype = whole->dtype, .n_dims = whole->n_dims};
    memcpy(v.dim, whole->dim, sizeof v.dim);
    if (!layout_is_split(on)) {
        if (copy) return *whole;
        return new_output(c, v.n_dims, v.dim, v.dtype);
    }
    Cut cut = cut_for(c, arg, whole, layout_dim(on), part);
    v.dim[layout_dim(on)] = cut.part;
    v = new_output(c, v.n_dims, v.dim, v.dtype);
    if (!copy) return v;
    for (int64_t i = 0; i < value_numbers(&v); i++) {
        int64_t from = whole_index(&cut, i);
        value_set(&v, i, from < 0 ? 0 : value_get(whole, from)); /* padding is zero */
    }
    return v;
}

/* Returns true for ops whose gradients of padding must be zero, because these take part in sums
 * over ranks and in norms. */
static bool padding_is_zero(OpKind op)
{
    return op_info(op)->class_ == OP_CLASS_contract || op == OP_embed_grad ||
           op == OP_xent_sumexp_grad || op == OP_xent_pick_grad || op == OP_xent_smooth_grad;
}

static void join(const Case *c, uint32_t arg, Value *joined, const Value *local, int8_t on,
                 uint32_t part)
{
    Cut cut = {0};
    const bool adds = layout_is_split(on) && has_windows(c, arg, layout_dim(on));
    if (layout_is_split(on)) cut = cut_for(c, arg, joined, layout_dim(on), part);
    if (adds && part == 0) zero(joined);
    for (int64_t i = 0; i < value_numbers(local); i++) {
        double x = value_get(local, i);
        int64_t to = layout_is_split(on) ? whole_index(&cut, i) : i;
        if (to < 0) {
            if (padding_is_zero(c->op)) assert_true(x == 0);
            continue;
        }
        double old = value_get(joined, to);
        if ((on == PARTIAL_SUM && part > 0) || adds) x += old;
        if (on == PARTIAL_MAX && part > 0) x = fmax(x, old);
        if (on == WHOLE && part > 0) assert_true(memcmp(&x, &old, sizeof x) == 0);
        value_set(joined, to, x);
    }
}

/* Returns the largest difference of two values, relative to the largest magnitude. */
static double difference(const Value *a, const Value *b)
{
    double worst = 0, top = 1e-30;
    for (int64_t i = 0; i < value_numbers(a); i++) {
        double x = value_get(a, i), y = value_get(b, i);
        if (!(fabs(x - y) <= worst)) worst = fabs(x - y); /* this is also true for NaN */
        if (fabs(y) > top) top = fabs(y);
    }
    return worst / top;
}

/* Returns the layout that follows from the signature alone. It is compared with op_axis_layout. */
static int8_t expected_layout(const Case *c, uint32_t arg)
{
    for (int d = 0; d < c->binding.n_dims[arg]; d++)
        if (c->binding.letter[arg][d] == c->letter) return SPLIT(d);
    if (arg < c->n_in || c->n_in == 0)
        return WHOLE; /* without inputs, each rank makes the whole output */
    return op_info(c->op)->reduce == REDUCE_max ? PARTIAL_MAX : PARTIAL_SUM;
}

/* Returns the worst difference between the split and the unsplit run, over all outputs. */
static double split_run(const Case *c)
{
    unsigned char l = (unsigned char)c->letter;
    Value joined[MAX_OUT];
    double worst = 0;
    for (uint32_t j = 0; j < c->n_out; j++) {
        const Value *whole = &c->args[c->n_in + j];
        joined[j] = new_output(c, whole->n_dims, whole->dim, whole->dtype);
    }
    Case rooms = *c; /* parts of uneven rows have equal room */
    const int counts = op_counts_arg(c->op);
    for (uint32_t i = 0; i < c->n_in + c->n_out; i++)
        if (choices_are_rows(c->op, i))
            rooms.args[i] = choices_rooms(c->arena, &c->args[i], &c->args[counts]);
    for (uint32_t part = 0; part < c->n_parts; part++) {
        Value local[MAX_ARGS];
        for (uint32_t i = 0; i < c->n_in + c->n_out; i++)
            local[i] = local_value(&rooms, i, expected_layout(c, i), part);
        for (uint32_t i = 0; i < c->n_in; i++)
            if (choices_are_rows(c->op, i))
                local[i] = choices_rows(c->arena, &local[i], &local[counts]);
        int64_t all = c->binding.size[l], size = (all + c->n_parts - 1) / c->n_parts;
        int64_t start = size * part;
        Part p = {.global = &c->binding};
        p.start[l] = start;
        p.valid[l] = all - start < size ? all - start : size;
        if (p.valid[l] <= 0) p.valid[l] = PART_EMPTY;
        if (c->binding.size[l - 'a' + 'A'] && op_info(c->op)->flags & OP_WINDOWED) {
            int64_t end;
            fields_rows(c->op, &c->binding, &c->attrs, c->letter, start, start + size,
                        &p.start[l - 'a' + 'A'], &end);
        }
        eval_op(c->op, &c->attrs, local, c->n_in, c->n_out, &p, &control, 1);
        for (uint32_t j = 0; j < c->n_out; j++) {
            if (choices_are_rows(c->op, c->n_in + j))
                local[c->n_in + j] = choices_rooms(c->arena, &local[c->n_in + j], &local[counts]);
            join(c, c->n_in + j, &joined[j], &local[c->n_in + j], expected_layout(c, c->n_in + j),
                 part);
        }
    }
    for (uint32_t j = 0; j < c->n_out; j++) {
        double d = difference(&joined[j], &rooms.args[c->n_in + j]);
        if (!(d <= worst)) worst = d;
    }
    return worst;
}

/* Returns true if the kernel accepts a short last part of this index. Kernels accept it for
 * vocabularies, and where padding does no harm: in contractions (of zeros), element-wise ops and
 * updates. */
static bool may_be_uneven(OpKind op, char letter)
{
    const OpInfo *info = op_info(op);
    bool elements = letter == 'x' || info->sig.in[0].ellipsis == 0;
    if (info->flags & OP_BLOCKS && info->class_ == OP_CLASS_compute)
        return false; /* blocks must be whole */
    return letter == 'v' || info->class_ == OP_CLASS_contract || elements || op == OP_batch;
}

/* Compares a split run with an unsplit one. `letter` is the letter in the binding; `named` is that
 * of case_sizes. */
static void check_split(OpKind op, char letter, char named, int64_t size, uint32_t n_parts,
                        bool causal)
{
    Case c = {.op = op, .letter = letter, .n_parts = n_parts, .arena = arena_new()};
    case_sizes(&c, named, size);
    make_case(&c, causal);
    for (uint32_t i = 0; i < c.n_in + c.n_out; i++)
        assert_int_equal(op_axis_layout(op, &c.binding, i, letter), expected_layout(&c, i));
    double d = split_run(&c);
    if (!(d <= 1e-12))
        print_error("%s %s: with %c = %lld in %u parts, results differ by %g\n", op_info(op)->name,
                    op_info(op)->signature, letter, (long long)size, n_parts, d);
    assert_true(d <= 1e-12);
    arena_free(c.arena);
}

static uint32_t check_letter(OpKind op, char letter, char named)
{
    uint32_t n = 0;
    for (uint32_t parts = 2; parts <= MAX_PARTS; parts++)
        for (int causal = 0; causal < 2; causal++) {
            check_split(op, letter, named, 6, parts, causal);
            n++;
            if (!may_be_uneven(op, letter)) continue;
            check_split(op, letter, named, 7, parts, causal);
            /* With three parts, the last one is empty. */
            check_split(op, letter, named, 4, parts, causal);
            n += 2;
        }
    return n;
}

static void every_row_of_the_op_table_is_sound(void **state)
{
    (void)state;
    uint32_t n_rows = 0, n_letters = 0, n_splits = 0;
    for (OpKind op = OP_none + 1; op < OP_COUNT; op++) {
        const OpInfo *info = op_info(op);
        if (info->class_ != OP_CLASS_compute && info->class_ != OP_CLASS_contract) continue;
        Case c = {.op = op, .arena = arena_new()};
        case_sizes(&c, 0, 0);
        make_case(&c, false);
        n_rows++;
        for (uint32_t i = 0; i < c.binding.n_letters; i++) {
            char letter = c.binding.letters[i];
            const char *e = strchr(c.binding.ellipsis, letter);
            if (!op_may_split(op, letter)) continue;
            n_letters++;
            n_splits += check_letter(op, letter, e ? ellipsis[e - c.binding.ellipsis] : letter);
        }
        arena_free(c.arena);
    }
    print_message("%u rows, %u indices, %u splits\n", n_rows, n_letters, n_splits);
    assert_int_equal(n_rows, N_ROWS);
    assert_true(n_letters > 3 * n_rows);
}

/* An index in capitals must stay whole. If it is split, and the parts are combined as the signature
 * would suggest, the result differs. This also proves that the comparison above can fail. */
static void indices_in_capitals_must_be_whole(void **state)
{
    (void)state;
    static const struct {
        OpKind op;
        char letter;
    } capitals[] = {
        {OP_rmsnorm, 'D'},        {OP_layernorm, 'D'},      {OP_rope, 'E'},
        {OP_attention, 'T'},      {OP_attention, 'E'},      {OP_attention_part, 'T'},
        {OP_attention_wide, 'V'}, {OP_attention_sink, 'E'}, {OP_attention_table, 'T'},
        {OP_rmsnorm_grad, 'D'},   {OP_rope_grad, 'E'},      {OP_layernorm_grad, 'D'},
        {OP_attention_grad, 'E'}, {OP_rmsnorm_heads, 'E'},  {OP_rmsnorm_heads_grad, 'E'},
        {OP_slots, 'S'},          {OP_channel_norm, 'C'},   {OP_conv2d, 'I'}};
    for (size_t i = 0; i < sizeof capitals / sizeof *capitals; i++)
        for (uint32_t parts = 2; parts <= MAX_PARTS; parts++) {
            assert_false(op_may_split(capitals[i].op, capitals[i].letter));
            Case c = {.op = capitals[i].op,
                      .letter = capitals[i].letter,
                      .n_parts = parts,
                      .arena = arena_new()};
            case_sizes(&c, 0, 0);
            make_case(&c, false);
            assert_false(split_run(&c) <= 1e-3);
            arena_free(c.arena);
        }
}

/* If bit j is set, the op adds to out[j]. Otherwise it sets out[j], which was NaN. */
static void check_accumulates(OpKind op, uint32_t bits)
{
    Case c = {.op = op, .arena = arena_new()};
    case_sizes(&c, 0, 0);
    make_case(&c, true);
    Value args[MAX_ARGS], plain[MAX_OUT];
    memcpy(args, c.args, sizeof args);
    for (uint32_t j = 0; j < c.n_out; j++) {
        Value *out = &args[c.n_in + j];
        plain[j] = *out;
        *out = new_output(&c, out->n_dims, out->dim, out->dtype);
        for (int64_t i = 0; (bits >> j & 1) && i < value_elements(out); i++)
            value_set(out, i, rng_normal(SEED, 200 + j, (uint64_t)i));
    }
    c.attrs.accumulate = bits;
    eval_op(op, &c.attrs, args, c.n_in, c.n_out, NULL, &control, 1);
    for (uint32_t j = 0; j < c.n_out; j++) {
        Value *out = &args[c.n_in + j];
        for (int64_t i = 0; (bits >> j & 1) && i < value_elements(out); i++)
            value_set(out, i, value_get(out, i) - rng_normal(SEED, 200 + j, (uint64_t)i));
        double d = difference(out, &plain[j]);
        if (!(d <= 1e-13))
            print_error("%s with accumulate %u: results differ by %g\n", op_info(op)->name, bits,
                        d);
        assert_true(d <= 1e-13);
    }
    arena_free(c.arena);
}

static void ops_that_accumulate_add_to_their_outputs(void **state)
{
    (void)state;
    uint32_t n = 0;
    for (OpKind op = OP_none + 1; op < OP_COUNT; op++) {
        /* A loss is also a sum over micro-batches. */
        if (!(op_info(op)->flags & OP_ACCUMULATES) && !is_loss(op)) continue;
        n++;
        for (uint32_t bits = 0; bits < 1u << op_info(op)->sig.n_out; bits++)
            check_accumulates(op, bits);
    }
    assert_true(n > 20);
}

/* Kernels in fp32 give the results of fp64, apart from rounding. */
static void kernels_in_fp32_agree_with_fp64(void **state)
{
    (void)state;
    for (OpKind op = OP_none + 1; op < OP_COUNT; op++) {
        const OpInfo *info = op_info(op);
        if (info->class_ != OP_CLASS_compute && info->class_ != OP_CLASS_contract) continue;
        if (op_has_pairs(op)) continue; /* kernels of pairs always compute in fp64 */
        Case wide = {.op = op, .arena = arena_new()}, narrow = {.op = op, .real = DT_f32};
        narrow.arena = wide.arena;
        case_sizes(&wide, 0, 0);
        case_sizes(&narrow, 0, 0);
        make_case(&wide, true);
        make_case(&narrow, true);
        for (uint32_t j = wide.n_in; j < wide.n_in + wide.n_out; j++) {
            double d = difference(&narrow.args[j], &wide.args[j]);
            if (!(d <= 2e-6)) print_error("%s: fp32 differs from fp64 by %g\n", info->name, d);
            assert_true(d <= 2e-6);
        }
        arena_free(wide.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_of_the_op_table_is_sound),
                                       cmocka_unit_test(indices_in_capitals_must_be_whole),
                                       cmocka_unit_test(ops_that_accumulate_add_to_their_outputs),
                                       cmocka_unit_test(kernels_in_fp32_agree_with_fp64)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
