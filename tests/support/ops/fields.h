/* Sizes and attributes that fit together, for ops on fields. They cover windows with strides,
 * dilation and every kind of padding, and also groups and concatenated channels. */
#ifndef TANDEM_TESTS_SUPPORT_FIELDS_H
#define TANDEM_TESTS_SUPPORT_FIELDS_H

#include "planner/ir/op/op.h"

enum { FIELD_VARIANTS = 2 };

/* Returns true if the op reads or writes fields [b,c,h,w], or data for attention in windows. */
bool fields_has(OpKind op);
/* `size` holds the sizes of b, c, n, g, h, w, u and t. Sets the other sizes and the attributes that
 * the op needs. Variants differ in padding, kind of resizing and weights of rows. */
void fields_set(OpKind op, int variant, int64_t size['z' + 1], Attrs *attrs);
/* Sets `dim` to the sizes of the letters of a term, which has no ellipsis. Returns their number. */
uint32_t fields_dims(const SigTerm *term, const int64_t size['z' + 1], int64_t dim[MAX_DIMS]);
/* Finds the rows of h~ (or w~) that output rows `from` to `to` - 1 read. *lo may be negative if the
 * padding is periodic. */
void fields_rows(OpKind op, const Binding *b, const Attrs *attrs, char letter, int64_t from,
                 int64_t to, int64_t *lo, int64_t *hi);

#endif
