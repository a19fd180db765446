/* Parsing and deriving signatures, shared by the files of planner/ir/op. Tests of the grammar also
 * include this file. */
#ifndef TANDEM_IR_OP_PRIVATE_H
#define TANDEM_IR_OP_PRIVATE_H

#include "planner/ir/op/op.h"

/* Derives the signature of the gradient of input `of` (0 or 1) of a contraction: the gradient of
 * the output takes the place of that input. "bsk,kn->bsn", 0 gives "bsn,kn->bsk". */
void sig_gradient(const char *signature, int of, char *out, size_t room);
/* Derives the signature of the same contraction with the summed indices of both operands last:
 * "bsk,kn->bsn" gives "bsk,nk->bsn". If `lies_along` is false, copies `signature` unchanged. */
void sig_along(const Signature *sig, const char *signature, bool lies_along, char *out,
               size_t room);
/* Derives the signature of the same contraction on 8-bit operands, whose scales follow as two more
 * inputs. by_rows: a scale for each index that is not summed: "bsk,kn->bsn" gives
 * "bsk,kn,bs,n->bsn". Otherwise one scale for each operand: "bsk,kn,,->bsn". */
void sig_scaled(const Signature *sig, const char *signature, bool by_rows, char *out, size_t room);
/* Derives the signature of the same contraction with a scale for each block B along the last summed
 * index: "bsk,kn->bsn" gives "bskB,kBn,bsk,kn->bsn". in_pairs: a block consists of A pairs of 4-bit
 * values, and the largest magnitude of each operand follows as another input:
 * "bskA,kAn,bsk,kn,,->bsn". */
void sig_blocks(const Signature *sig, const char *signature, bool in_pairs, char *out, size_t room);
/* Parses the `backward` column of ops.def, such as "silu_grad:d0,i0>0", into info->backward. `find`
 * returns the op with a name. Malformed text aborts. */
void sig_parse_backward(const char *text, OpInfo *info, OpKind (*find)(const char *name, size_t n));

static inline const SigTerm *sig_term(const Signature *sig, uint32_t arg)
{
    return arg < sig->n_in ? &sig->in[arg] : &sig->out[arg - sig->n_in];
}
bool sig_term_uses(const SigTerm *term, char letter);
/* True if the letter occurs anywhere in the signature, also in (hp). */
static inline bool sig_uses(const Signature *sig, char letter)
{
    return (sig->uses & letters_with(letter)) != 0;
}
bool sig_has_ellipsis(const Signature *sig);
bool sig_is_windowed(const Signature *sig); /* true if h~ or w~ occurs */

/* op_bind for any signature. known[l]: size of index l if it is known in advance, otherwise 0;
 * `known` may be NULL. `name` and `text` are for messages. */
bool sig_bind(const Signature *sig, const char *name, const char *text, const Dims *in,
              uint32_t n_in, const Dims *out, uint32_t n_out, const int64_t *known, Binding *b,
              Loc loc, Diag *d);
int sig_output_dims(const Signature *sig, const Binding *b, uint32_t j, int64_t dim[MAX_DIMS]);
bool sig_may_split(const Signature *sig, char letter);

/* The letters that have each role, as a text and as a set. The sets are built together with the
 * table of ops, so call op_info before using them. */
extern const char *const role_letters[INDEX_ROLES];
extern Letters role_letters_in[INDEX_ROLES];

#endif
