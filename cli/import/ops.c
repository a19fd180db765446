/* Finds the work of a plan that a PyTorch operator does. The positions of the operands, and whether
 * attention is causal, come from the operators' schemas (native_functions.yaml;
 * flash_attn_interface.py). */
#include <stdlib.h>
#include <string.h>

#include "cli/import/import.h"
#include "sim/compute/work.h"

typedef enum Form { FORM_product, FORM_heads, FORM_norm, FORM_one, FORM_two, FORM_cast } Form;

typedef struct OpRow {
    const char *name;
    Form form;
    OpKind op;
    /* position of the operand with the left factor, the queries, the rows or the elements */
    uint8_t first;
    /* position of the operand with the right factor, or with the weight of a norm */
    uint8_t second;
    uint8_t causal;  /* for attention: position of the operand that says whether it is causal */
    uint8_t dropout; /* for attention: position of the operand with the dropout's probability */
    /* order of dimensions; true: [b, h, s, e] with heads before tokens; false: [b, s, h, e] */
    bool heads_second;
} OpRow;

static const OpRow rows[] = {
    {"aten::mm", FORM_product, OP_linear, 0, 1, 0, 0, false},
    {"aten::addmm", FORM_product, OP_linear, 1, 2, 0, 0, false},
    {"aten::_addmm_activation", FORM_product, OP_linear, 1, 2, 0, 0, false},
    {"aten::bmm", FORM_product, OP_linear, 0, 1, 0, 0, false},
    {"aten::baddbmm", FORM_product, OP_linear, 1, 2, 0, 0, false},
    {"aten::_scaled_mm", FORM_product, OP_linear, 0, 1, 0, 0, false},
    {"aten::_flash_attention_forward", FORM_heads, OP_attention, 0, 0, 8, 7, false},
    {"aten::_flash_attention_backward", FORM_heads, OP_attention_grad, 1, 0, 11, 10, false},
    {"aten::_scaled_dot_product_flash_attention", FORM_heads, OP_attention, 0, 0, 4, 3, true},
    {"aten::_scaled_dot_product_flash_attention_backward", FORM_heads, OP_attention_grad, 1, 0, 11,
     10, true},
    {"aten::_scaled_dot_product_cudnn_attention", FORM_heads, OP_attention, 0, 0, 6, 5, true},
    {"aten::_scaled_dot_product_cudnn_attention_backward", FORM_heads, OP_attention_grad, 1, 0, 14,
     13, true},
    {"flash_attn::_flash_attn_forward", FORM_heads, OP_attention, 0, 0, 5, 3, false},
    {"flash_attn::_flash_attn_backward", FORM_heads, OP_attention_grad, 1, 0, 11, 9, false},
#define WORK_NORM(op, operator_, weight) {operator_, FORM_norm, OP_##op, 0, weight, 0, 0, false},
#include "sim/compute/work_norms.def"
    {"aten::silu", FORM_one, OP_silu, 0, 0, 0, 0, false},
    {"aten::silu_backward", FORM_two, OP_silu_grad, 0, 1, 0, 0, false},
    {"aten::gelu", FORM_one, OP_gelu, 0, 0, 0, 0, false},
    {"aten::gelu_backward", FORM_two, OP_gelu_grad, 0, 1, 0, 0, false},
    {"aten::add", FORM_two, OP_add, 0, 1, 0, 0, false},
    {"aten::add_", FORM_two, OP_add, 0, 1, 0, 0, false},
    {"aten::mul", FORM_two, OP_mul, 0, 1, 0, 0, false},
    {"aten::copy_", FORM_cast, OP_cast, 1, 0, 0, 0, false},
};

DType torch_dtype(const char *name)
{
    static const struct {
        const char *name;
        DType dtype;
    } types[] = {
        {"c10::BFloat16", DT_bf16}, {"c10::Half", DT_f16},           {"float", DT_f32},
        {"double", DT_f64},         {"c10::Float8_e4m3fn", DT_e4m3}, {"c10::Float8_e5m2", DT_e5m2}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(name, types[i].name) == 0) return types[i].dtype;
    return DT_none;
}

static bool is_tensor(const Operand *o)
{
    if (o->list || o->n_dims == 0 || o->dtype == DT_none) return false;
    for (uint8_t i = 0; i < o->n_dims; i++)
        if (o->dim[i] < 1) return false;
    return true;
}

static int64_t elements_of(const Operand *o)
{
    double all = 1;
    int64_t elements = 1;
    for (uint8_t i = 0; i < o->n_dims; i++) {
        all *= (double)o->dim[i];
        if (all > 0x1p50) return 0;
        elements *= o->dim[i];
    }
    return elements;
}

static bool alike(const Operand *x, const Operand *y)
{
    return x->n_dims == y->n_dims && x->dtype == y->dtype &&
           memcmp(x->dim, y->dim, x->n_dims * sizeof *x->dim) == 0;
}

/* Returns the key of a product of x [.., m, k] and y [.., k, n]. */
static const char *product_key(const Operand *x, const Operand *y, Arena *arena)
{
    uint8_t n = x->n_dims;
    bool fit = is_tensor(x) && is_tensor(y) && (n == 2 || n == 3) && y->n_dims == n &&
               x->dim[n - 1] == y->dim[n - 2] && (n == 2 || x->dim[0] == y->dim[0]) &&
               dtype_bytes(x->dtype) == dtype_bytes(y->dtype);
    if (!fit) return NULL;
    ProductWork work = {n == 3 ? (double)x->dim[0] : 1, (double)x->dim[n - 2],
                        (double)y->dim[n - 1], (double)x->dim[n - 1]};
    return work_product_key(arena, x->dtype, &work);
}

static const char *heads_key(const OpCall *call, const OpRow *row, Arena *arena)
{
    const Operand *q = &call->operand[row->first], *k = q + 1, *v = q + 2;
    if (call->n <= row->causal || !is_tensor(q) || !is_tensor(k) || !is_tensor(v)) return NULL;
    const char *causal = call->operand[row->causal].word;
    bool told = strcmp(causal, "True") == 0 || strcmp(causal, "False") == 0;
    bool drops = strtod(call->operand[row->dropout].word, NULL) > 0;
    if (!told || drops || q->n_dims != 4 || k->n_dims != 4 || !alike(k, v)) return NULL;
    uint8_t heads = row->heads_second ? 1 : 2, tokens = row->heads_second ? 2 : 1;
    HeadsWork work = {.batch = q->dim[0],
                      .heads = q->dim[heads],
                      .kv_heads = k->dim[heads],
                      .queries = q->dim[tokens],
                      .keys = k->dim[tokens],
                      .head = q->dim[3],
                      .causal = causal[0] == 'T',
                      .backward = row->op == OP_attention_grad};
    return work_heads_key(arena, q->dtype, &work);
}

static const char *norm_key(const Operand *x, const Operand *weight, OpKind op, Arena *arena)
{
    if (!is_tensor(x) || !is_tensor(weight) || weight->n_dims != 1) return NULL;
    int64_t width = x->dim[x->n_dims - 1], elements = elements_of(x);
    if (weight->dim[0] != width || elements == 0) return NULL;
    return work_norm_key(arena, op, x->dtype, elements / width, width);
}

const char *op_call_key(const OpCall *call, Arena *arena)
{
    const OpRow *row = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && row == NULL; i++)
        if (strcmp(call->name, rows[i].name) == 0) row = &rows[i];
    if (row == NULL || call->n <= row->first || call->n <= row->second) return NULL;
    const Operand *x = &call->operand[row->first], *y = &call->operand[row->second];
    switch (row->form) {
    case FORM_product: return product_key(x, y, arena);
    case FORM_heads: return heads_key(call, row, arena);
    case FORM_norm: return norm_key(x, y, row->op, arena);
    case FORM_two:
        /* an operand that is broadcast has another size, and plans have no such op */
        if (!is_tensor(y) || !alike(x, y)) return NULL;
        break;
    case FORM_cast: /* casts the first operand to the type of the second */
        if (!is_tensor(y) || x->dtype == y->dtype || elements_of(x) != elements_of(y)) return NULL;
        break;
    case FORM_one: break;
    }
    if (!is_tensor(x) || elements_of(x) == 0) return NULL;
    DType to = row->form == FORM_cast ? y->dtype : DT_none;
    return work_elements_key(arena, row->op, x->dtype, to, elements_of(x));
}
