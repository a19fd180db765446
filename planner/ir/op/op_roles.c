/* Answers which index of an op has which role. The ROLE rows of ops.def give the letters of each
 * role. */
#include <assert.h>
#include <string.h>

#include "planner/ir/op/op_private.h"

static inline bool plays(IndexRole role, char letter)
{
    return (role_letters_in[role] & letters_with(letter)) != 0;
}

static bool is_whole(char letter)
{
    return letter >= 'A' && letter <= 'Z';
}

IndexRole op_role(OpKind op, char letter)
{
    if (!letter || !sig_uses(&op_info(op)->sig, letter)) return INDEX_none;
    for (int role = INDEX_none + 1; role < INDEX_ROLES; role++)
        if (plays((IndexRole)role, letter)) return (IndexRole)role;
    return INDEX_none;
}

static char letter_with(OpKind op, IndexRole role, bool whole)
{
    assert(role > INDEX_none && role < INDEX_ROLES);
    const Signature *sig = &op_info(op)->sig;
    if (!(sig->uses & role_letters_in[role])) return 0;
    for (const char *c = role_letters[role]; *c; c++)
        if (is_whole(*c) == whole && sig_uses(sig, *c)) return *c;
    return 0;
}

char op_letter(OpKind op, IndexRole role)
{
    return letter_with(op, role, false);
}

char op_whole_letter(OpKind op, IndexRole role)
{
    return letter_with(op, role, true);
}

int op_dim(OpKind op, uint32_t arg, IndexRole role)
{
    const Signature *sig = &op_info(op)->sig;
    if (arg >= (uint32_t)sig->n_in + sig->n_out || !(sig->uses & role_letters_in[role])) return -1;
    const SigTerm *term = sig_term(sig, arg);
    const int end = term->ellipsis >= 0 ? term->ellipsis : term->n_dims;
    for (int d = 0; d < end; d++)
        if (plays(role, term->dim[d].letter)) return d;
    return -1;
}

bool op_is_whole(OpKind op, uint32_t arg, IndexRole role)
{
    const int d = op_dim(op, arg, role);
    return d >= 0 && is_whole(sig_term(&op_info(op)->sig, arg)->dim[d].letter);
}

bool op_mixes_tokens(OpKind op)
{
    return op_letter(op, INDEX_groups) && op_letter(op, INDEX_tokens) &&
           op_whole_letter(op, INDEX_tokens);
}

bool op_scans_tokens(OpKind op)
{
    return op_letter(op, INDEX_groups) && op_whole_letter(op, INDEX_tokens) &&
           !op_letter(op, INDEX_tokens);
}

bool op_keeps_state(OpKind op)
{
    return op_scans_tokens(op) && op_whole_letter(op, INDEX_state);
}

/* The power iteration of a spectral norm also updates state, but only an optimizer needs to know
 * which elements of the weight a rank has (OP_PLACED). */
bool op_is_optimizer(OpKind op)
{
    const uint32_t flags = op_info(op)->flags;
    return flags & OP_UPDATES && flags & OP_PLACED;
}

bool op_is_gradient(OpKind op)
{
    const OpKind whole = op_whole(op) ? op_whole(op) : op_of_rows(op);
    return op_info(whole ? whole : op)->n_backward == 0;
}

OpKind op_part(OpKind op)
{
    static const OpKind part_of[OP_COUNT] = {
#define IN_PARTS(op, part) [OP_##op] = OP_##part,
#include "planner/ir/op/ops.def"
    };
    return part_of[op];
}

OpKind op_whole(OpKind op)
{
    static const OpKind whole_of[OP_COUNT] = {
#define IN_PARTS(op, part) [OP_##part] = OP_##op,
#include "planner/ir/op/ops.def"
    };
    return whole_of[op];
}

RowsOps op_in_rows(OpKind op)
{
    static const RowsOps rows_of[OP_COUNT] = {
#define IN_ROWS(op, inner, border) [OP_##op] = {OP_##inner, OP_##border},
#include "planner/ir/op/ops.def"
    };
    return rows_of[op];
}

OpKind op_of_rows(OpKind op)
{
    static const OpKind whole_of[OP_COUNT] = {
#define IN_ROWS(op, inner, border) [OP_##inner] = OP_##op, [OP_##border] = OP_##op,
#include "planner/ir/op/ops.def"
    };
    return whole_of[op];
}

int op_keys_dim(OpKind op, uint32_t arg)
{
    return op_is_whole(op, arg, INDEX_tokens) ? op_dim(op, arg, INDEX_tokens) : -1;
}

HeadsSizes op_heads_sizes(OpKind op, const int64_t size['z' + 1])
{
    assert(op_mixes_tokens(op));
    const int64_t head = size[(int)op_whole_letter(op, INDEX_head)];
    const char value = op_whole_letter(op, INDEX_value);
    return (HeadsSizes){.samples = size[(int)op_letter(op, INDEX_samples)],
                        .groups = size[(int)op_letter(op, INDEX_groups)],
                        .heads = size[(int)op_letter(op, INDEX_heads)],
                        .queries = size[(int)op_letter(op, INDEX_tokens)],
                        .keys = size[(int)op_whole_letter(op, INDEX_tokens)],
                        .head = head,
                        .value = value ? size[(int)value] : head};
}

bool op_reads_whole_labels(OpKind op, uint32_t arg)
{
    return op_info(op)->flags & OP_OF_LOSS && op_is_whole(op, arg, INDEX_tokens);
}

bool op_has_pairs(OpKind op)
{
    return op_info(op)->flags & OP_BLOCKS && sig_uses(&op_info(op)->sig, 'A');
}
