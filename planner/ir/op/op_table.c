/* Builds the table of ops from ops.def, once in a process. It parses signatures, and derives
 * gradients and 8-bit forms of contractions. */
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "planner/ir/op/op_private.h"

typedef struct OpTableRow {
    OpKind op;
    const char *name, *signature, *backward;
    double flops;
    OpClass class_;
    Reduce reduce;
    uint32_t flags;
    bool in_eight_bits; /* a CONTRACT row: it also has forms for 8-bit and 4-bit operands */
} OpTableRow;

static const OpTableRow rows[] = {
#define COMPUTE(name, signature, flops, reduce, backward, flags)                                   \
    {OP_##name, #name, signature, backward, flops, OP_CLASS_compute, REDUCE_##reduce, flags, false},
#define CONTRACT(name, signature)                                                                  \
    {OP_##name, #name, signature, "", 2, OP_CLASS_contract, REDUCE_sum, OP_ACCUMULATES, true},
#define PRODUCT(name, signature)                                                                   \
    {OP_##name, #name, signature, "", 2, OP_CLASS_contract, REDUCE_sum, OP_ACCUMULATES, false},
#define RESHAPE(name, flags)                                                                       \
    {OP_##name, #name, "", "", 0, OP_CLASS_reshape, REDUCE_none, flags, false},
#define COMM(name) {OP_##name, #name, "", "", 0, OP_CLASS_comm, REDUCE_none, 0, false},
#include "planner/ir/op/ops.def"
};

enum { N_ROWS = sizeof rows / sizeof rows[0], MAX_TEXT = 64 };
enum {
#define FORM(name) FORM_##name,
    CONTRACT_FORMS(FORM, of) N_FORMS
#undef FORM
};

/* The first caller builds it under pthread_once; afterwards it never changes. */
static struct {
    OpInfo info[OP_COUNT];
    /* texts of derived ops, such as "linear_d0" */
    char name[OP_COUNT][MAX_TEXT], signature[OP_COUNT][MAX_TEXT];
} table;
static pthread_once_t once = PTHREAD_ONCE_INIT;
const OpInfo *op_rows;

const char *const role_letters[INDEX_ROLES] = {
#define ROLE(name, letters) [INDEX_##name] = letters,
#include "planner/ir/op/ops.def"
};
Letters role_letters_in[INDEX_ROLES];

static OpKind find_name(const char *name, size_t n)
{
    for (int op = OP_none + 1; op < OP_COUNT; op++) {
        const char *is = table.info[op].name;
        if (is && strlen(is) == n && memcmp(is, name, n) == 0) return (OpKind)op;
    }
    return OP_none;
}

static void set_signature(OpInfo *info, const char *signature)
{
    info->signature = signature;
    if (!*signature) return;
    bool fine = op_parse_signature(signature, &info->sig, NULL);
    assert(fine);
    (void)fine;
    if (sig_is_windowed(&info->sig)) info->flags |= OP_WINDOWED;
}

static void set_name(OpKind op, const char *of, const char *suffix)
{
    int n = snprintf(table.name[op], MAX_TEXT, "%s%s", of, suffix);
    assert(n > 0 && n < MAX_TEXT);
    table.info[op].name = table.name[op];
}

/* Derives the 8-bit and 4-bit forms of a contraction or of one of its gradients. They have no
 * backward column: in the backward pass, their gradient must first be quantised, which takes
 * several nodes. The backward pass writes them (float8_backward.c). */
static void derive_scaled(OpKind op)
{
    static const char *const suffix[] = {"",       "_tensorwise",       "_rowwise",      "_blocks",
                                         "_pairs", "_tensorwise_along", "_rowwise_along"};
    OpInfo *info = &table.info[op];
    for (int s = 1; s < SCALINGS; s++) info->scaled[s] = (OpKind)((int)op + 3 * s);
    for (int form = 1; form < N_FORMS; form++) {
        const bool lies_along = form >= SCALINGS;
        OpKind scaled = (OpKind)((int)op + 3 * form);
        OpInfo *to = &table.info[scaled];
        *to = *info;
        to->scaling = (Scaling)(lies_along ? form - SCALINGS + 1 : form);
        to->n_backward = 0;
        int n = (int)(strlen(info->name) - (info->name == table.name[op] ? strlen("_d0") : 0));
        char name[MAX_TEXT], signature[MAX_TEXT];
        (void)snprintf(name, sizeof name, "%.*s%s", n, info->name, suffix[form]);
        set_name(scaled, name, info->name + n);
        sig_along(&info->sig, info->signature, lies_along, signature, MAX_TEXT);
        const bool in_pairs = to->scaling == SCALING_pairs;
        if (to->scaling == SCALING_blocks || in_pairs)
            sig_blocks(&info->sig, signature, in_pairs, table.signature[scaled], MAX_TEXT);
        else
            sig_scaled(&info->sig, signature, to->scaling == SCALING_rowwise,
                       table.signature[scaled], MAX_TEXT);
        if (to->scaling == SCALING_blocks || in_pairs) to->flags |= OP_BLOCKS;
        /* index A counts pairs, so a point has two values */
        if (in_pairs) to->flops_per_point *= 2;
        set_signature(to, table.signature[scaled]);
        to->along = scaled;
        if (!lies_along) continue;
        OpInfo *plain = &table.info[info->scaled[to->scaling]];
        if (strcmp(plain->signature, to->signature) != 0) plain->along = scaled;
    }
}

/* Derives the two gradients of a contraction. The gradient of one input is the contraction of the
 * output's gradient with the other input. */
static void derive_gradients(OpKind op, bool in_eight_bits)
{
    OpInfo *info = &table.info[op];
    for (int k = 0; k < 2; k++) {
        OpKind gradient = (OpKind)((int)op + 1 + k);
        OpInfo *g = &table.info[gradient];
        *g = *info;
        set_name(gradient, info->name, k == 0 ? "_d0" : "_d1");
        sig_gradient(info->signature, k, table.signature[gradient], MAX_TEXT);
        set_signature(g, table.signature[gradient]);
        g->scaled[SCALING_none] = gradient;
        if (in_eight_bits) derive_scaled(gradient);
    }
    info->scaled[SCALING_none] = op;
    if (in_eight_bits) derive_scaled(op);
    info->n_backward = 2;
    info->backward[0] = (Backward){(OpKind)((int)op + 1), 2, 1, {{WIRE_d, 0}, {WIRE_i, 1}}, {0}};
    info->backward[1] = (Backward){(OpKind)((int)op + 2), 2, 1, {{WIRE_i, 0}, {WIRE_d, 0}}, {1}};
}

/* Checks that each backward op has as many inputs as the row lists, and one output for each
 * gradient to which it adds. */
static void check_backward(const OpInfo *info)
{
    for (uint32_t k = 0; k < info->n_backward; k++) {
        const Backward *w = &info->backward[k];
        const Signature *sig = &table.info[w->op].sig;
        assert(w->op == OP_pass ? w->n_in == 1 && w->n_of == 1 : w->n_in == sig->n_in);
        assert(w->op == OP_pass || w->n_of == sig->n_out);
        for (uint32_t i = 0; i < w->n_in; i++)
            assert(w->in[i].index < (w->in[i].kind == WIRE_i ? info->sig.n_in : info->sig.n_out));
        for (uint32_t i = 0; i < w->n_of; i++) assert(w->of[i] < info->sig.n_in);
    }
}

/* Checks that the row states a reduction if an index occurs in inputs but not in an output. */
static void check_reduced(const OpInfo *info)
{
    const Signature *sig = &info->sig;
    for (uint32_t j = 0; j < sig->n_out; j++)
        for (char l = 'a'; l <= 'z'; l++) {
            bool in = false, out = false;
            for (uint32_t a = 0; a < sig->n_in; a++)
                for (uint32_t i = 0; i < sig->in[a].n_dims; i++)
                    in = in || sig->in[a].dim[i].letter == l;
            for (uint32_t i = 0; i < sig->out[j].n_dims; i++)
                out = out || sig->out[j].dim[i].letter == l;
            assert(!in || out || info->reduce != REDUCE_none);
        }
}

static void build_roles(void)
{
    for (int role = INDEX_none; role < INDEX_ROLES; role++)
        for (const char *c = role_letters[role]; c != NULL && *c != 0; c++)
            role_letters_in[role] |= letters_with(*c);
}

static void build(void)
{
    build_roles();
    table.info[OP_none].name = table.info[OP_none].signature = "";
    for (uint32_t i = 0; i < N_ROWS; i++) {
        OpInfo *info = &table.info[rows[i].op];
        info->name = rows[i].name;
        info->class_ = rows[i].class_;
        info->flops_per_point = rows[i].flops;
        info->reduce = rows[i].reduce;
        info->flags = rows[i].flags;
        set_signature(info, rows[i].signature);
        if (info->class_ == OP_CLASS_contract) derive_gradients(rows[i].op, rows[i].in_eight_bits);
    }
    for (uint32_t i = 0; i < N_ROWS; i++)
        sig_parse_backward(rows[i].backward, &table.info[rows[i].op], find_name);
    for (int op = 0; op < OP_COUNT; op++) {
        check_backward(&table.info[op]);
        check_reduced(&table.info[op]);
    }
}

const OpInfo *op_rows_build(void)
{
    pthread_once(&once, build);
    __atomic_store_n(&op_rows, table.info, __ATOMIC_RELEASE);
    return table.info;
}
