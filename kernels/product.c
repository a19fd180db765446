/* Combines the letters of a contraction into the sizes m, n, k and batch of a matrix product. */
#include "kernels/product.h"

#include <assert.h>

typedef enum IndexKind { KIND_row, KIND_column, KIND_summed, KIND_batch, KIND_COUNT } IndexKind;

/* One argument, in which all letters of a kind act as a single index. */
typedef struct ProductOperand {
    int64_t size[KIND_COUNT];   /* size of each kind; 1 if no letter has this kind */
    int64_t stride[KIND_COUNT]; /* stride of the innermost letter of each kind; 0 if no letter has
                                   this kind */
    /* index of the dimension of the innermost letter of each kind; -1 if no letter has this kind */
    int depth[KIND_COUNT];
} ProductOperand;

static bool has_letter(const Binding *b, uint32_t arg, char letter)
{
    for (uint32_t d = 0; d < b->n_dims[arg]; d++)
        if (b->letter[arg][d] == letter) return true;
    return false;
}

static IndexKind kind_of(const Binding *b, char letter)
{
    bool in0 = has_letter(b, 0, letter), in1 = has_letter(b, 1, letter);
    if (!has_letter(b, b->n_in, letter)) return KIND_summed;
    if (in0 && in1) return KIND_batch;
    return in0 ? KIND_row : KIND_column;
}

static ProductOperand operand_of(const Binding *b, const int64_t size['z' + 1], uint32_t arg)
{
    ProductOperand o = {.size = {1, 1, 1, 1}, .depth = {-1, -1, -1, -1}};
    IndexKind inside = KIND_COUNT;
    int64_t stride = 1;
    for (int d = b->n_dims[arg] - 1; d >= 0; d--) {
        char letter = b->letter[arg][d];
        IndexKind kind = kind_of(b, letter);
        if (o.depth[kind] < 0) {
            o.stride[kind] = stride;
            o.depth[kind] = d;
        } else {
            assert(inside == kind); /* letters of one kind must be neighbours */
        }
        inside = kind;
        o.size[kind] *= size[(unsigned char)letter];
        stride *= size[(unsigned char)letter];
    }
    return o;
}

/* Returns the argument as a matrix whose rows are counted by kind `outer` and whose columns are
 * counted by kind `inner`. */
static ProductMatrix matrix_of(const ProductOperand *o, IndexKind outer, IndexKind inner)
{
    bool transposed = o->depth[outer] > o->depth[inner];
    IndexKind fast = transposed ? outer : inner, slow = transposed ? inner : outer;
    int64_t leading = o->depth[slow] < 0 ? o->size[fast] : o->stride[slow];
    assert(o->depth[fast] < 0 || o->stride[fast] == 1); /* so the fast index is contiguous: a batch
                                                           index is never innermost */
    return (ProductMatrix){transposed, leading < 1 ? 1 : leading, o->stride[KIND_batch]};
}

static void check_sizes(const ProductOperand *x, const ProductOperand *y, const ProductOperand *z)
{
    assert(x->size[KIND_row] == z->size[KIND_row]);
    assert(y->size[KIND_column] == z->size[KIND_column]);
    assert(x->size[KIND_summed] == y->size[KIND_summed]);
    assert(x->size[KIND_batch] == y->size[KIND_batch]);
    assert(x->size[KIND_batch] == z->size[KIND_batch]);
}

Product product_of(const Binding *b, const int64_t size['z' + 1])
{
    assert((b->n_in == 2 || b->n_in == 4 || b->n_in == 6) && b->n_out == 1);
    ProductOperand in[2] = {operand_of(b, size, 0), operand_of(b, size, 1)};
    ProductOperand z = operand_of(b, size, b->n_in);
    check_sizes(&in[0], &in[1], &z);
    bool swapped = z.depth[KIND_row] > z.depth[KIND_column];
    IndexKind row = swapped ? KIND_column : KIND_row, column = swapped ? KIND_row : KIND_column;
    const ProductOperand *x = &in[swapped ? 1 : 0], *y = &in[swapped ? 0 : 1];
    Product p = {.left = swapped ? 1 : 0,
                 .right = swapped ? 0 : 1,
                 .m = z.size[row],
                 .n = z.size[column],
                 .k = x->size[KIND_summed],
                 .batch = z.size[KIND_batch],
                 .x = matrix_of(x, row, KIND_summed),
                 .y = matrix_of(y, KIND_summed, column),
                 .z = matrix_of(&z, row, column)};
    assert(!p.z.transposed);
    return p;
}
