/* See work.h. */
#include "sim/compute/work.h"

#include <assert.h>
#include <math.h>

#include "sim/sim.h"

Rank work_rank(const Plan *plan, const Program *p)
{
    uint32_t index = (uint32_t)(p - plan->programs.at);
    for (Rank r = 0; r < plan->mesh.n_ranks; r++) {
        if (plan->program_of[r] == index) return r;
    }
    return 0;
}

/* Returns a bit for each argument of a contraction that has the letter: bits 0 and 1 for its
 * operands, bit 2 for its result. (The result is argument n_in, because scales may follow the
 * operands.) */
static uint32_t group_of(const Binding *b, char letter)
{
    const uint32_t args[3] = {0, 1, b->n_in};
    uint32_t group = 0;
    for (uint32_t i = 0; i < 3; i++)
        for (uint8_t d = 0; d < b->n_dims[args[i]]; d++)
            if (b->letter[args[i]][d] == letter) group |= 1u << i;
    return group;
}

ProductWork work_of_product(const Binding *b, const int64_t size['z' + 1])
{
    ProductWork work = {1, 1, 1, 1};
    for (uint8_t i = 0; i < b->n_letters; i++) {
        const double at = (double)size[(int)b->letters[i]];
        switch (group_of(b, b->letters[i])) {
        case 1 | 2 | 4: work.batch *= at; break;
        case 1 | 4: work.m *= at; break;
        case 2 | 4: work.n *= at; break;
        default: work.k *= at; break;
        }
    }
    return work;
}

bool work_is_convolution(OpKind op)
{
    return op_info(op)->flags & OP_WINDOWED && op_info(op)->reduce == REDUCE_sum;
}

static bool has_index(const SigTerm *term, char letter)
{
    for (uint32_t d = 0; d < term->n_dims; d++)
        if (term->dim[d].letter == letter || term->dim[d].inner == letter) return true;
    return false;
}

/* Returns the matrix product that a convolution equals. Each index of the convolution belongs to
 * one of the product's groups of indices. The points of a window are an index of the operand that
 * is read in windows. The product sums over them, as over channels. In the gradient of the weight,
 * they are an index of the result instead. For an index of rows or columns, `size` counts the
 * points of the output, even in a term that reads windows. */
ProductWork work_of_convolution(OpKind op, const int64_t size['z' + 1])
{
    const Signature *sig = &op_info(op)->sig;
    ProductWork work = {1, 1, 1, 1};
    assert(work_is_convolution(op) && sig->n_in >= 2 && sig->n_out == 1);
    for (int letter = 1; letter <= 'z'; letter++) {
        const bool a = has_index(&sig->in[0], (char)letter),
                   b = has_index(&sig->in[1], (char)letter),
                   made = has_index(&sig->out[0], (char)letter);
        if (!a && !b && !made) continue;
        const double at = (double)size[letter];
        if (a && b && made)
            work.batch *= at;
        else if (made && !b)
            work.m *= at;
        else if (made)
            work.n *= at;
        else
            work.k *= at;
    }
    return work;
}

bool work_is_aligned(const Program *p, const Instr *in, const Binding *b,
                     const int64_t size['z' + 1])
{
    const uint32_t args[3] = {0, 1, b->n_in};
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t n = b->n_dims[args[i]];
        int64_t row = dtype_bytes(p->buffers.at[program_arg(p, in, args[i])].dtype);
        for (uint32_t d = n; d-- > 0;) {
            const char letter = b->letter[args[i]][d];
            if (group_of(b, letter) != group_of(b, b->letter[args[i]][n - 1])) break;
            row *= size[(int)letter];
        }
        if (row % 16 != 0) return false;
    }
    return true;
}

const char *work_product_key(Arena *arena, DType dtype, const ProductWork *work)
{
    double large = fmax(work->m, work->n), small = fmin(work->m, work->n);
    return arena_print(arena, "work product %s batch=%.0f sides=%.0fx%.0f k=%.0f",
                       dtype_numbers(dtype) > 1  ? "4-bit"
                       : dtype_bytes(dtype) == 1 ? "8-bit"
                                                 : dtype_name(dtype),
                       work->batch, large, small, work->k);
}

const char *work_heads_key(Arena *arena, DType dtype, const HeadsWork *work)
{
    return arena_print(
        arena, "work %s %s batch=%lld heads=%lld kv=%lld queries=%lld keys=%lld head=%lld%s",
        work->backward ? "attention_grad" : "attention", dtype_name(dtype), (long long)work->batch,
        (long long)work->heads, (long long)work->kv_heads, (long long)work->queries,
        (long long)work->keys, (long long)work->head, work->causal ? " causal" : "");
}

const char *work_norm_key(Arena *arena, OpKind op, DType dtype, int64_t rows, int64_t width)
{
    return arena_print(arena, "work %s %s rows=%lld width=%lld", op_info(op)->name,
                       dtype_name(dtype), (long long)rows, (long long)width);
}

const char *work_elements_key(Arena *arena, OpKind op, DType dtype, DType to, int64_t elements)
{
    return arena_print(arena, "work %s %s%s%s elements=%lld", op_info(op)->name, dtype_name(dtype),
                       to == DT_none ? "" : "->", to == DT_none ? "" : dtype_name(to),
                       (long long)elements);
}

static const Buffer *argument(const Program *p, const Instr *in, uint32_t i)
{
    return &p->buffers.at[program_arg(p, in, i)];
}

static const char *heads_key(const Program *p, const Instr *in, const int64_t size['z' + 1],
                             bool causal, Arena *arena)
{
    const HeadsSizes is = op_heads_sizes(in->op, size);
    HeadsWork work = {.batch = is.samples,
                      .heads = is.groups * is.heads,
                      .kv_heads = is.groups,
                      .queries = is.queries,
                      .keys = is.keys,
                      .head = is.head,
                      .causal = causal,
                      .backward = op_is_gradient(in->op)};
    return work_heads_key(arena, argument(p, in, 0)->dtype, &work);
}

/* Returns true if all arguments have the same shape and dtype, as in an element-wise op.
 * cli/import/ops.c lists the ops that occur in traces. */
static bool goes_by_elements(const Program *p, const Instr *in)
{
    const Buffer *first = argument(p, in, 0);
    for (uint32_t i = 1; i < in->args.n; i++) {
        const Buffer *other = argument(p, in, i);
        if (other->dtype != first->dtype || other->shape != first->shape) return false;
    }
    return in->args.n > 1;
}

static void add_dims(Str *s, const Plan *plan, const Buffer *b)
{
    const Shape *shape = plan_shape_at(plan, b->shape);
    str_add(s, "[");
    for (uint8_t i = 0; i < shape->n_dims; i++) {
        int64_t n = shape_local_dim(shape, &plan->mesh, &plan->graph.deals, i);
        str_print(s, "%s%lld", i == 0 ? "" : ",", (long long)n);
    }
    str_add(s, "]");
}

const char *cost_key(const Plan *plan, const Program *p, const Instr *in, Arena *arena)
{
    const OpInfo *info = op_info(in->op);
    const Attrs *attrs = graph_attrs_at(&plan->graph, in->attrs);
    Str s = str_in(arena);
    str_add(&s, info->name);
    DType last = DT_none;
    for (uint32_t i = 0; i < in->args.n; i++) { /* neighbouring equal dtypes are printed once */
        DType dtype = p->buffers.at[program_arg(p, in, i)].dtype;
        if (dtype != last) str_print(&s, " %s", dtype_name(dtype));
        last = dtype;
    }
    Binding b;
    int64_t size['z' + 1] = {0};
    bool signed_ = info->class_ != OP_CLASS_reshape && in->args.n > 0;
    if (signed_ && plan_bind(plan, p, in, work_rank(plan, p), &b, size, NULL, NULL)) {
        str_print(&s, " %s", info->signature);
        for (uint8_t i = 0; i < b.n_letters; i++) {
            char letter = b.letters[i];
            str_print(&s, " %c=%lld", letter, (long long)size[(int)letter]);
        }
    } else {
        for (uint32_t i = 0; i < in->args.n; i++) {
            str_add(&s, i == 0 ? " " : i == in->n_in ? "->" : ",");
            add_dims(&s, plan, &p->buffers.at[program_arg(p, in, i)]);
        }
        if (attrs->dim != 0) str_print(&s, " dim=%lld", (long long)attrs->dim);
    }
    if (attrs->accumulate != 0) str_print(&s, " accumulate=%lld", (long long)attrs->accumulate);
    if (attrs->causal != 0) str_add(&s, " causal");
    if (attrs->chunk != 0) str_print(&s, " chunk=%lld", (long long)attrs->chunk);
    if (attrs->window != 0) str_print(&s, " window=%lld", (long long)attrs->window);
    return str_text(&s);
}

/* Returns the norm under whose name the work of an op is stored; OP_none: the op is not a norm. */
static OpKind norm_of(OpKind op)
{
    static const OpKind told_as[OP_COUNT] = {
#define WORK_NORM(op, operator_, weight) [OP_##op] = OP_##op,
#define WORK_NORM_LIKE(op, as)           [OP_##op] = OP_##as,
#include "sim/compute/work_norms.def"
    };
    return told_as[op];
}

/* Returns the key of a norm or of an element-wise op. Its rows and width, or its elements, are
 * those of the first argument. */
static const char *plain_key(const Plan *plan, const Program *p, const Instr *in, Arena *arena)
{
    const Buffer *first = argument(p, in, 0), *last = argument(p, in, in->args.n - 1u);
    const Shape *shape = plan_shape_at(plan, first->shape);
    int64_t elements = shape_local_elements(shape, &plan->mesh, &plan->graph.deals);
    OpKind op = in->op;
    if (op == OP_cast) return work_elements_key(arena, op, first->dtype, last->dtype, elements);
    if (goes_by_elements(p, in))
        return work_elements_key(arena, op, first->dtype, DT_none, elements);
    if ((op = norm_of(op)) == OP_none) return NULL;
    uint8_t inner = (uint8_t)(shape->n_dims - 1);
    int64_t width = shape_local_dim(shape, &plan->mesh, &plan->graph.deals, inner);
    return work_norm_key(arena, op, first->dtype, width > 0 ? elements / width : 0, width);
}

const char *work_key(const Plan *plan, const Program *p, const Instr *in, Arena *arena)
{
    const OpInfo *info = op_info(in->op);
    const Attrs *attrs = graph_attrs_at(&plan->graph, in->attrs);
    bool heads = op_mixes_tokens(in->op);
    if (info->class_ == OP_CLASS_reshape || info->class_ == OP_CLASS_comm || in->args.n == 0)
        return NULL;
    if (plan_touches_host(p, in)) return NULL;
    if (info->class_ == OP_CLASS_contract || heads) {
        Binding b;
        int64_t size['z' + 1] = {0};
        if (!plan_bind(plan, p, in, work_rank(plan, p), &b, size, NULL, NULL)) return NULL;
        const bool plain =
            op_is_plain_attention(in->op); /* traces contain only this form of attention */
        if (heads) return plain ? heads_key(p, in, size, attrs->causal != 0, arena) : NULL;
        ProductWork work = work_of_product(&b, size);
        const DType dtype = argument(p, in, 0)->dtype;
        work.k *= dtype_numbers(dtype);
        return work_product_key(arena, dtype, &work);
    }
    /* an op that accumulates also reads its output, which no kernel of a trace does */
    return attrs->accumulate != 0 ? NULL : plain_key(plan, p, in, arena);
}

Ps work_measured(Store *store, const char *machine, const char *key, const Plan *plan,
                 const Program *p, const Instr *in, Arena *arena, Diag *d)
{
    Ps measured = store_get_kernel(store, machine, key, d);
    if (measured >= 0) return measured;
    const char *work = work_key(plan, p, in, arena);
    return work == NULL ? -1 : store_get_kernel(store, machine, work, d);
}
