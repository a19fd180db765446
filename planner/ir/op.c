/* The op table, built from ops.def, and what follows from a row: binding, layouts, FLOPs. */
#include "planner/ir/op.h"

#include <assert.h>
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "planner/ir/op_private.h"

static OpInfo table[OP_COUNT];
static char derived_name[OP_COUNT][32], derived_signature[OP_COUNT][48];
static pthread_once_t once = PTHREAD_ONCE_INIT;

typedef struct Row {
    OpKind op;
    const char *name, *signature, *backward;
    double flops;
    Reduce reduce;
    uint32_t flags;
    OpClass class_;
} Row;
static const Row rows[] = {
#define COMPUTE(name, signature, flops, reduce, backward, flags)                                   \
    {OP_##name, #name, signature, backward, flops, REDUCE_##reduce, flags, OP_CLASS_compute},
#define CONTRACT(name, signature)                                                                  \
    {OP_##name, #name, signature, "", 2, REDUCE_sum, OP_ACCUMULATES, OP_CLASS_contract},
#define RESHAPE(name, flags) {OP_##name, #name, "", "", 0, REDUCE_none, flags, OP_CLASS_reshape},
#define COMM(name)           {OP_##name, #name, "", "", 0, REDUCE_none, 0, OP_CLASS_comm},
#include "planner/ir/ops.def"
};

static OpKind find_n(const char *name, size_t n)
{
    for (int op = OP_none + 1; op < OP_COUNT; op++)
        if (table[op].name && strlen(table[op].name) == n && memcmp(table[op].name, name, n) == 0)
            return (OpKind)op;
    return OP_none;
}

static void set_signature(OpInfo *info, const char *signature)
{
    info->signature = signature;
    bool ok = *signature == 0 || op_parse_signature(signature, &info->sig, NULL);
    assert(ok);
    (void)ok;
}

static void derive_contraction(OpKind op)
{
    OpInfo *info = &table[op];
    for (int k = 0; k < 2; k++) {
        OpKind d = (OpKind)((int)op + 1 + k);
        snprintf(derived_name[d], sizeof derived_name[d], "%s_d%d", info->name, k);
        table[d] = *info;
        table[d].name = derived_name[d];
        table[d].n_backward = 0;
        set_signature(&table[d], op_gradient_signature(info->signature, k, derived_signature[d],
                                                       sizeof derived_signature[d]));
    }
    info->n_backward = 2;
    info->backward[0] = (Backward){(OpKind)((int)op + 1), 2, 1, {{WIRE_d, 0}, {WIRE_i, 1}}, {0}};
    info->backward[1] = (Backward){(OpKind)((int)op + 2), 2, 1, {{WIRE_i, 0}, {WIRE_d, 0}}, {1}};
}

static void build(void)
{
    table[OP_none].name = "none";
    table[OP_none].signature = "";
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        OpInfo *info = &table[rows[i].op];
        info->name = rows[i].name;
        info->class_ = rows[i].class_;
        info->flops_per_point = rows[i].flops;
        info->reduce = rows[i].reduce;
        info->flags = rows[i].flags;
        set_signature(info, rows[i].signature);
        if (info->class_ == OP_CLASS_contract) derive_contraction(rows[i].op);
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        op_parse_backward(rows[i].backward, &table[rows[i].op], find_n);
}

const OpInfo *op_info(OpKind op)
{
    pthread_once(&once, build);
    assert(op < OP_COUNT);
    return &table[op];
}

OpKind op_find(const char *name)
{
    pthread_once(&once, build);
    return find_n(name, strlen(name));
}

/* ---- binding ---- */

static const SigTerm *term_of(const OpInfo *info, uint32_t arg)
{
    return arg < info->sig.n_in ? &info->sig.in[arg] : &info->sig.out[arg - info->sig.n_in];
}

static bool used_in_row(const OpInfo *info, char letter)
{
    for (uint32_t a = 0; a < (uint32_t)info->sig.n_in + info->sig.n_out; a++)
        for (int d = 0; d < term_of(info, a)->n_dims; d++) {
            const SigDim *s = &term_of(info, a)->dim[d];
            if (s->letter == letter || s->inner == letter || s->stride == letter) return true;
        }
    return false;
}

static void name_ellipsis(const OpInfo *info, Binding *b, int n)
{
    int k = 0;
    for (char c = 'a'; c <= 'z' && k < n; c++)
        if (!used_in_row(info, c)) b->ellipsis[k++] = c;
    assert(k == n);
}

static void add_letter(Binding *b, char letter, int64_t size)
{
    bool there = false;
    for (int i = 0; i < b->n_letters; i++) there = there || b->letters[i] == letter;
    if (!there) {
        assert(b->n_letters < MAX_LETTERS);
        b->letters[b->n_letters++] = letter;
    }
    b->size[(int)letter] = size;
}

typedef struct Binder {
    OpKind op;
    const OpInfo *info;
    Binding *b;
    Loc loc;
    Diag *d;
} Binder;

static bool mismatch(const Binder *k, uint32_t arg, char letter, int64_t is, int64_t was)
{
    bool in = arg < k->info->sig.n_in;
    if (!k->d) return false;
    return diag_error(k->d, FAULT_input, "shape-mismatch", k->loc,
                      "%s (%s): %s %u has %lld where index %c is %lld", k->info->name,
                      k->info->signature, in ? "input" : "output",
                      in ? arg : arg - k->info->sig.n_in, (long long)is, letter, (long long)was);
}

static bool bind_letter(const Binder *k, uint32_t arg, char letter, int64_t size)
{
    int64_t was = k->b->size[(int)letter];
    if (was && was != size) return mismatch(k, arg, letter, size, was);
    add_letter(k->b, letter, size);
    return true;
}

static int ellipsis_length(const SigTerm *t, const Dims *dims)
{
    return t->ellipsis < 0 ? 0 : dims->n - t->n_dims;
}

static bool bind_arg(const Binder *k, uint32_t arg, const Dims *dims)
{
    const SigTerm *t = term_of(k->info, arg);
    int n_ellipsis = ellipsis_length(t, dims), at = 0;
    if (n_ellipsis < 0 || dims->n != t->n_dims + n_ellipsis ||
        (t->ellipsis >= 0 && (size_t)n_ellipsis != strlen(k->b->ellipsis)))
        return k->d && diag_error(k->d, FAULT_input, "shape-mismatch", k->loc,
                                  "%s (%s): argument %u has %u dimensions", k->info->name,
                                  k->info->signature, arg, dims->n);
    k->b->n_dims[arg] = dims->n;
    for (int d = 0; d <= t->n_dims; d++) {
        for (int e = 0; d == t->ellipsis && e < n_ellipsis; e++, at++) {
            k->b->letter[arg][at] = k->b->ellipsis[e];
            if (!bind_letter(k, arg, k->b->ellipsis[e], dims->at[at])) return false;
        }
        if (d == t->n_dims) break;
        k->b->letter[arg][at] = t->dim[d].letter;
        /* (hp) and (h*S+I) do not determine h alone: their sizes come from other terms (checked
         * there) */
        if (!t->dim[d].inner && !bind_letter(k, arg, t->dim[d].letter, dims->at[at])) return false;
        at++;
    }
    return true;
}

/* (hp): one of the two may follow from the other and the dimension. */
static bool bind_composite(const Binder *k, uint32_t arg, const Dims *dims)
{
    const SigTerm *t = term_of(k->info, arg);
    int shift = ellipsis_length(t, dims);
    for (int d = 0; d < t->n_dims; d++) {
        const SigDim *s = &t->dim[d];
        if (!s->inner || s->stride) continue;
        int64_t size = dims->at[d + (t->ellipsis >= 0 && d >= t->ellipsis ? shift : 0)];
        int64_t h = k->b->size[(int)s->letter], p = k->b->size[(int)s->inner];
        if (h && !p && size % h == 0)
            add_letter(k->b, s->inner, size / h);
        else if (p && !h && size % p == 0)
            add_letter(k->b, s->letter, size / p);
        else if (!h || !p || h * p != size)
            return mismatch(k, arg, s->letter, size, h && p ? h * p : 0);
    }
    return true;
}

bool op_bind(OpKind op, const Dims *in, uint32_t n_in, const Dims *out, uint32_t n_out, Binding *b,
             Loc loc, Diag *d)
{
    const OpInfo *info = op_info(op);
    Binder k = {op, info, b, loc, d};
    memset(b, 0, sizeof *b);
    if (n_in != info->sig.n_in || (out && n_out != info->sig.n_out))
        return d && diag_error(d, FAULT_input, "shape-mismatch", loc,
                               "%s (%s) was given %u inputs and %u outputs", info->name,
                               info->signature, n_in, n_out);
    b->n_in = info->sig.n_in;
    b->n_out = info->sig.n_out;
    int n_ellipsis = 0;
    for (uint32_t i = 0; i < n_in + (out ? n_out : 0); i++) {
        const SigTerm *t = term_of(info, i);
        const Dims *dims = i < n_in ? &in[i] : &out[i - n_in];
        if (t->ellipsis >= 0 && (dims->at || dims->n == 0) && dims->n > t->n_dims &&
            dims->n - t->n_dims > n_ellipsis)
            n_ellipsis = dims->n - t->n_dims;
    }
    if (n_ellipsis > MAX_DIMS) n_ellipsis = MAX_DIMS;
    name_ellipsis(info, b, n_ellipsis < MAX_DIMS ? n_ellipsis : MAX_DIMS - 1);
    for (uint32_t i = 0; i < n_in; i++)
        if (!bind_arg(&k, i, &in[i])) return false;
    for (uint32_t j = 0; out && j < n_out; j++)
        if (!bind_arg(&k, n_in + j, &out[j])) return false;
    for (uint32_t i = 0; i < n_in; i++)
        if (!bind_composite(&k, i, &in[i])) return false;
    for (uint32_t j = 0; out && j < n_out; j++)
        if (!bind_composite(&k, n_in + j, &out[j])) return false;
    if (!out) { /* the outputs' letters follow from the row */
        for (uint32_t j = 0; j < b->n_out; j++) {
            const SigTerm *t = &info->sig.out[j];
            int at = 0;
            for (int dd = 0; dd <= t->n_dims; dd++) {
                for (int e = 0; dd == t->ellipsis && b->ellipsis[e]; e++)
                    b->letter[n_in + j][at++] = b->ellipsis[e];
                if (dd < t->n_dims) b->letter[n_in + j][at++] = t->dim[dd].letter;
            }
            b->n_dims[n_in + j] = (uint8_t)at;
        }
    }
    return true;
}
