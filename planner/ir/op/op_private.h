/* Signatures as text: declarations that op.c and op_bind.c share. Tests of the grammar also include
 * this file. */
#ifndef TANDEM_IR_OP_PRIVATE_H
#define TANDEM_IR_OP_PRIVATE_H

#include "planner/ir/op/op.h"

/* Writes into `out` the signature of the gradient of input `of` (0 or 1) of a contraction. It has
 * the same indices; the gradient of the output replaces that input. "bsk,kn->bsn", 0 ->
 * "bsn,kn->bsk" */
void sig_gradient(const char *signature, int of, char *out, size_t room);
/* Writes the signature of a contraction whose operands have their summed indices last. If
 * `lies_along` is false, copies the signature unchanged. "bsk,kn->bsn" -> "bsk,nk->bsn" */
void sig_along(const Signature *sig, const char *signature, bool lies_along, char *out,
               size_t room);
/* Writes the signature of a contraction of scaled numbers. The scales of both inputs follow the
 * inputs: one for each operand, or one for each of its indices that the output has too.
 * "bsk,kn->bsn" -> "bsk,kn,bs,n->bsn" */
void sig_scaled(const Signature *sig, const char *signature, bool by_rows, char *out, size_t room);
/* Does the work of sig_scaled, but with one scale for each block B along the last summed index of
 * each operand. "bsk,kn->bsn" -> "bskB,kBn,bsk,kn->bsn". in_pairs: a block consists of A pairs of
 * numbers, and each operand also has the largest magnitude of its tensor:
 * "bskA,kAn,bsk,kn,,->bsn" */
void sig_blocks(const Signature *sig, const char *signature, bool in_pairs, char *out, size_t room);
/* Parses the backward column of ops.def into info; `find` looks up op names. A malformed row
 * aborts. */
void sig_parse_backward(const char *text, OpInfo *info, OpKind (*find)(const char *name, size_t n));

static inline const SigTerm *sig_term(const Signature *sig, uint32_t arg)
{
    return arg < sig->n_in ? &sig->in[arg] : &sig->out[arg - sig->n_in];
}
bool sig_term_uses(const SigTerm *term, char letter);
/* true if the letter occurs anywhere in the signature, also inside ( ) */
static inline bool sig_uses(const Signature *sig, char letter)
{
    return (sig->uses & letters_with(letter)) != 0;
}
bool sig_has_ellipsis(const Signature *sig);
bool sig_is_windowed(const Signature *sig); /* true if it has an index h~ or w~ */

/* Does the work of op_bind for any signature. known: sizes of letters ['z' + 1] that are known in
 * advance, or NULL. `name` and `text` appear in messages. */
bool sig_bind(const Signature *sig, const char *name, const char *text, const Dims *in,
              uint32_t n_in, const Dims *out, uint32_t n_out, const int64_t *known, Binding *b,
              Loc loc, Diag *d);
int sig_output_dims(const Signature *sig, const Binding *b, uint32_t j, int64_t dim[MAX_DIMS]);
bool sig_may_split(const Signature *sig, char letter);

/* The letters of each role, as a text and as a set. The sets are built with the table of ops, so a
 * function must call op_info before it uses them. */
extern const char *const role_letters[INDEX_ROLES];
extern Letters role_letters_in[INDEX_ROLES];

#endif
