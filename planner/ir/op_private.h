/* Signatures as text; what op.c and op_bind.c share. Tests of the grammar include it too. */
#ifndef TANDEM_IR_OP_PRIVATE_H
#define TANDEM_IR_OP_PRIVATE_H

#include "planner/ir/op.h"

/* The signature of the gradient of input `of` (0 or 1) of a contraction, into out: the same
 * indices, the output's gradient in the place of the input. "bsk,kn->bsn", 0 -> "bsn,kn->bsk" */
void sig_gradient(const char *signature, int of, char *out, size_t room);
/* The signature of a contraction, its operands' summed indices behind the others of each (if
 * `lies_along`; else as it is). "bsk,kn->bsn" -> "bsk,nk->bsn" */
void sig_along(const Signature *sig, const char *signature, bool lies_along, char *out,
               size_t room);
/* The signature of a contraction of scaled numbers: the scales of both inputs follow them, one of
 * each, or one for each index that the output has too. "bsk,kn->bsn" -> "bsk,kn,bs,n->bsn" */
void sig_scaled(const Signature *sig, const char *signature, bool by_rows, char *out, size_t room);
/* Parses ops.def's backward column into info; names are found by `find`. A malformed row aborts. */
void sig_parse_backward(const char *text, OpInfo *info, OpKind (*find)(const char *name, size_t n));

static inline const SigTerm *sig_term(const Signature *sig, uint32_t arg)
{
    return arg < sig->n_in ? &sig->in[arg] : &sig->out[arg - sig->n_in];
}
bool sig_term_uses(const SigTerm *term, char letter);
bool sig_uses(const Signature *sig, char letter); /* anywhere in it, also inside ( ) */
bool sig_has_ellipsis(const Signature *sig);
bool sig_is_windowed(const Signature *sig); /* does it have an index h~? */

/* op_bind for any signature; name and text are for messages. */
bool sig_bind(const Signature *sig, const char *name, const char *text, const Dims *in,
              uint32_t n_in, const Dims *out, uint32_t n_out, Binding *b, Loc loc, Diag *d);
int sig_output_dims(const Signature *sig, const Binding *b, uint32_t j, int64_t dim[MAX_DIMS]);
bool sig_may_split(const Signature *sig, char letter);

#endif
