/* Finds the ops after a product that a library can compute in the same call as the product. */
#include "kernels/epilogue.h"

#include <string.h>

static bool is_eight_bit(DType t)
{
    return t == DT_e4m3 || t == DT_e5m2;
}

/* Returns true if the library accepts the dtypes of the product: both operands have the same dtype,
 * and the output has that dtype or fp32. */
static bool has_types(const EpiloguePart *product)
{
    DType a = product->dtype[0], b = product->dtype[1], out = product->dtype[product->n_in];
    return a == b && !is_eight_bit(a) && (out == a || out == DT_f32);
}

/* The result of the parts so far: its place in memory, its dtype and its number of elements. It is
 * the first output of the last part. */
typedef struct ChainValue {
    const EpiloguePart *product;
    uint64_t at;
    DType dtype;
    int64_t elements;
} ChainValue;

static ChainValue value_of(const EpiloguePart *product, const EpiloguePart *part)
{
    uint32_t out = product->n_in;
    return (ChainValue){product, part->at[part->n_in], product->dtype[out], product->elements[out]};
}

/* Returns true if `part` is an element-wise `op` on the result so far, and all its arguments have
 * the same dtype. */
static bool follows(const ChainValue *v, const EpiloguePart *part, OpKind op)
{
    if (part->op != op || part->accumulates) return false;
    for (uint32_t i = 0; i <= part->n_in; i++)
        if (part->dtype[i] != v->dtype) return false;
    return part->elements[part->n_in] == v->elements;
}

static bool is_operand(const EpiloguePart *product, uint64_t at)
{
    for (uint32_t i = 0; i < product->n_in; i++)
        if (product->at[i] == at) return true;
    return false;
}

static bool takes_bias(const ChainValue *v, const EpiloguePart *part, const Product *p)
{
    return follows(v, part, OP_bias) && part->at[0] == v->at && part->elements[1] == p->n;
}

/* Returns true if `part` adds another tensor to the result so far; *other is the index of that
 * argument. The other tensor must not be the product's own output, because a bias may have
 * overwritten it. The sum must not overwrite memory that the product still reads. */
static bool takes_other(const ChainValue *v, const EpiloguePart *part, uint8_t *other)
{
    if (!follows(v, part, OP_add) || part->at[0] == part->at[1]) return false;
    if (part->at[0] != v->at && part->at[1] != v->at) return false;
    *other = part->at[0] == v->at ? 1 : 0;
    if (part->at[*other] == v->product->at[v->product->n_in]) return false;
    return !is_operand(v->product, part->at[*other]) && !is_operand(v->product, part->at[2]);
}

static bool takes_gelu(const ChainValue *v, const EpiloguePart *part, const Product *p)
{
    return follows(v, part, OP_gelu) && part->at[0] == v->at && p->n % EPILOGUE_MULTIPLE == 0;
}

static bool takes_gelu_grad(const ChainValue *v, const EpiloguePart *part, const Product *p)
{
    return follows(v, part, OP_gelu_grad) && part->at[0] == v->at && part->at[1] != v->at &&
           !is_operand(v->product, part->at[1]) && p->n % EPILOGUE_MULTIPLE == 0;
}

static bool takes_sums(const EpiloguePart *product, const EpiloguePart *part, const Product *p,
                       bool *left)
{
    if (part->op != OP_bias_grad || part->dtype[1] != product->dtype[product->n_in]) return false;
    for (uint32_t i = 0; i < 2; i++) {
        int64_t n = i == p->left ? p->m : p->n;
        *left = i == p->left;
        if (part->at[0] == product->at[i] && part->elements[1] == n &&
            part->elements[0] == n * p->k)
            return true;
    }
    return false;
}

/* Adds to *e the last op that can be fused with a forward product. An optional bias may stand
 * between the product and this op. */
static void take_last(const ChainValue *v, const EpiloguePart *part, const Product *p, Epilogue *e)
{
    uint8_t at = (uint8_t)e->n, other = 0;
    bool plain = has_types(v->product);
    if (plain && takes_gelu(v, part, p)) {
        e->gelu = EPILOGUE_GELU_forward;
        e->input = (EpilogueArg){at, 0};
    } else if (plain && e->n == 1 && takes_gelu_grad(v, part, p)) {
        e->gelu = EPILOGUE_GELU_grad;
        e->input = (EpilogueArg){at, 1};
    } else if (takes_other(v, part, &other)) {
        e->other = (EpilogueArg){at, other};
    } else {
        return;
    }
    e->n++;
}

uint32_t epilogue_of(const EpiloguePart *part, uint32_t n, const Product *p, Epilogue *e)
{
    memset(e, 0, sizeof *e);
    e->n = 1;
    bool left = false;
    if (n < 2 || p->batch != 1 || p->m < 1 || p->n < 1 || p->k < 1) return 1;
    if (has_types(&part[0]) && takes_sums(&part[0], &part[1], p, &left)) {
        e->sums = (EpilogueArg){1, 1};
        e->sums_left = left;
        e->adds_sums = part[1].accumulates;
        return e->n = 2;
    }
    if (part[0].accumulates) return 1;
    ChainValue v = value_of(&part[0], &part[0]);
    if (has_types(&part[0]) && takes_bias(&v, &part[1], p)) {
        e->bias = (EpilogueArg){1, 1};
        e->n = 2;
        v = value_of(&part[0], &part[1]);
    }
    if (e->n < n) take_last(&v, &part[e->n], p, e);
    return e->n;
}

bool epilogue_passes_on(const Epilogue *e, uint32_t i)
{
    bool is_input = e->gelu == EPILOGUE_GELU_forward && i + 1 == e->input.part;
    return i + 1 < e->n && !e->sums.part && !is_input;
}
