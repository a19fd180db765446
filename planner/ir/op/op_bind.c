/* Binds a signature to the dimensions of its arguments: gives every index its size, or reports
 * which dimensions do not match. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "planner/ir/op/op_private.h"
#include "planner/ir/window.h"

typedef struct Binder {
    const Signature *sig;
    const char *name, *text;
    Binding *b;
    Loc loc;
    Diag *diag;
} Binder;

/* Returns "input" or "output", for messages such as "input 1 has 3 dimensions". */
static const char *arg_kind(const Binder *k, uint32_t arg)
{
    return arg < k->sig->n_in ? "input" : "output";
}

static uint32_t arg_number(const Binder *k, uint32_t arg)
{
    return arg < k->sig->n_in ? arg : arg - k->sig->n_in;
}

static bool mismatch(const Binder *k, uint32_t arg, char letter, int64_t is, int64_t wanted)
{
    if (!k->diag) return false;
    return diag_error(k->diag, FAULT_input, "shape-mismatch", k->loc,
                      "%s (%s): index %c is %" PRId64 " in %s %u, but %" PRId64 " before", k->name,
                      k->text, letter, is, arg_kind(k, arg), arg_number(k, arg), wanted);
}

static bool wrong_rank(const Binder *k, uint32_t arg, uint32_t is)
{
    if (!k->diag) return false;
    const SigTerm *t = sig_term(k->sig, arg);
    size_t n = t->n_dims + (t->ellipsis >= 0 ? strlen(k->b->ellipsis) : 0);
    return diag_error(k->diag, FAULT_input, "shape-mismatch", k->loc,
                      "%s (%s): %s %u has %u dimensions, not %zu", k->name, k->text,
                      arg_kind(k, arg), arg_number(k, arg), is, n);
}

static bool unfit(const Binder *k, uint32_t arg, char letter, int64_t is)
{
    if (!k->diag) return false;
    return diag_error(k->diag, FAULT_input, "shape-mismatch", k->loc,
                      "%s (%s): dimension %" PRId64 " of %s %u does not fit index %c", k->name,
                      k->text, is, arg_kind(k, arg), arg_number(k, arg), letter);
}

static void add_letter(Binding *b, char letter)
{
    for (uint32_t i = 0; i < b->n_letters; i++)
        if (b->letters[i] == letter) return;
    assert(b->n_letters < MAX_LETTERS);
    b->letters[b->n_letters++] = letter;
}

static bool bind_letter(const Binder *k, uint32_t arg, char letter, int64_t size)
{
    int64_t was = k->b->size[(int)letter];
    if (was && was != size) return mismatch(k, arg, letter, size, was);
    k->b->size[(int)letter] = size;
    return true;
}

/* Dimension `at` of an argument corresponds either to a dimension of the term, which is returned,
 * or to one of the n_ellipsis dimensions of `...`. Then returns NULL and sets *e to which of
 * them. */
static const SigDim *dim_at(const SigTerm *t, uint32_t n_ellipsis, uint32_t at, uint32_t *e)
{
    const uint32_t start = t->ellipsis < 0 ? UINT32_MAX : (uint32_t)(int)t->ellipsis;
    if (at < start) return &t->dim[at];
    *e = at - start;
    return *e < n_ellipsis ? NULL : &t->dim[at - n_ellipsis];
}

/* Sets the letter of each dimension of argument `arg`. They follow from the signature and the
 * letters of `...`; sizes do not matter. */
static void name_dims(const Binder *k, uint32_t arg)
{
    Binding *b = k->b;
    const SigTerm *t = sig_term(k->sig, arg);
    uint32_t n_ellipsis = t->ellipsis >= 0 ? (uint32_t)strlen(b->ellipsis) : 0, e = 0;
    b->n_dims[arg] = (uint8_t)(t->n_dims + n_ellipsis);
    for (uint32_t at = 0; at < b->n_dims[arg]; at++) {
        const SigDim *dim = dim_at(t, n_ellipsis, at, &e);
        const bool strides = dim && sig_strides(dim);
        b->letter[arg][at] = strides ? dim->inner : dim ? dim->letter : b->ellipsis[e];
        b->strides[arg][at] = strides ? dim->letter : 0;
        b->reads[arg][at] = dim && dim->reads;
        add_letter(b, dim ? dim->letter : b->letter[arg][at]);
        if (dim && dim->inner) add_letter(b, dim->inner);
    }
}

static bool bind_plain(const Binder *k, uint32_t arg, const Dims *dims)
{
    const SigTerm *t = sig_term(k->sig, arg);
    uint32_t n_ellipsis = t->ellipsis >= 0 ? (uint32_t)strlen(k->b->ellipsis) : 0, e = 0;
    if (dims->n != t->n_dims + n_ellipsis) return wrong_rank(k, arg, dims->n);
    for (uint32_t at = 0; at < dims->n; at++) {
        const SigDim *dim = dim_at(t, n_ellipsis, at, &e);
        char letter = dim ? dim->letter : k->b->ellipsis[e];
        if (dims->at[at] < 1) return unfit(k, arg, letter, dims->at[at]);
        if (dim && dim->reads) letter = window_reach(letter);
        if ((!dim || !dim->inner) && !bind_letter(k, arg, letter, dims->at[at])) return false;
    }
    return true;
}

/* A composite dimension (hp) has size h * p. If the size of h or of p is known, computes the other.
 * Reports an error if the sizes do not fit. */
static bool solve_composite(const Binder *k, uint32_t arg, const SigDim *dim, int64_t size)
{
    int64_t *h = &k->b->size[(int)dim->letter], *p = &k->b->size[(int)dim->inner];
    if (*h && !*p && size % *h == 0) *p = size / *h;
    if (*p && !*h && size % *p == 0) *h = size / *p;
    if (!*h && !*p) return true;
    return *h && *p && size % *h == 0 && size / *h == *p ? true : unfit(k, arg, dim->letter, size);
}

static bool bind_composite(const Binder *k, uint32_t arg, const Dims *dims)
{
    const SigTerm *t = sig_term(k->sig, arg);
    uint32_t n_ellipsis = t->ellipsis >= 0 ? (uint32_t)strlen(k->b->ellipsis) : 0, e = 0;
    for (uint32_t at = 0; at < dims->n; at++) {
        const SigDim *dim = dim_at(t, n_ellipsis, at, &e);
        if (!dim || !dim->inner) continue;
        if (!solve_composite(k, arg, dim, dims->at[at])) return false;
    }
    return true;
}

/* Gives each dimension of `...` an unused lower-case letter, in alphabetical order. */
static void name_ellipsis(const Binder *k, const Dims *in, const Dims *out)
{
    uint32_t n = 0;
    const uint32_t n_args = (uint32_t)k->sig->n_in + (out ? k->sig->n_out : 0);
    for (uint32_t arg = 0; arg < n_args; arg++) {
        const SigTerm *t = sig_term(k->sig, arg);
        const Dims *dims = arg < k->sig->n_in ? &in[arg] : &out[arg - k->sig->n_in];
        if (t->ellipsis < 0 || !dims->at || dims->n < t->n_dims) continue;
        n = dims->n - t->n_dims;
        break;
    }
    uint32_t at = 0;
    for (char c = 'a'; c <= 'z' && at < n; c++)
        if (!sig_uses(k->sig, c)) k->b->ellipsis[at++] = c;
}

static bool bind_all(const Binder *k, const Dims *in, const Dims *out,
                     bool (*bind)(const Binder *k, uint32_t arg, const Dims *dims))
{
    for (uint32_t i = 0; i < k->sig->n_in; i++)
        if (!bind(k, i, &in[i])) return false;
    for (uint32_t j = 0; out && j < k->sig->n_out; j++)
        if (out[j].at && !bind(k, k->sig->n_in + j, &out[j])) return false;
    return true;
}

bool sig_bind(const Signature *sig, const char *name, const char *text, const Dims *in,
              uint32_t n_in, const Dims *out, uint32_t n_out, const int64_t *known, Binding *b,
              Loc loc, Diag *d)
{
    Binder k = {sig, name, text, b, loc, d};
    memset(b, 0, sizeof *b);
    if (known) memcpy(b->size, known, sizeof b->size);
    if (n_in != sig->n_in || (n_out && n_out != sig->n_out)) {
        if (!d) return false;
        return diag_error(d, FAULT_input, "shape-mismatch", loc,
                          "%s (%s) was given %u inputs and %u outputs", name, text, n_in, n_out);
    }
    if (!n_out) out = NULL;
    b->n_in = sig->n_in;
    b->n_out = sig->n_out;
    for (uint32_t i = 0; i < n_in + n_out; i++) {
        const Dims *dims = i < n_in ? &in[i] : &out[i - n_in];
        if (dims->n > MAX_DIMS) return wrong_rank(&k, i, dims->n);
    }
    name_ellipsis(&k, in, out);
    if (!bind_all(&k, in, out, bind_plain)) return false;
    for (uint32_t a = 0; a < (uint32_t)sig->n_in + sig->n_out; a++) {
        const SigTerm *t = sig_term(sig, a);
        if (t->ellipsis >= 0 && t->n_dims + strlen(b->ellipsis) > MAX_DIMS)
            return wrong_rank(&k, a, MAX_DIMS + 1);
        name_dims(&k, a);
    }
    if (!bind_all(&k, in, out, bind_composite)) return false;
    if (b->size['B'] && !b->size['C'] && sig_uses(sig, 'C'))
        b->size['C'] = b->size['B']; /* the B x C values of a square share a scale, and C = B */
    /* A second pass: a size that was computed late in the first one may now determine another. */
    return bind_all(&k, in, out, bind_composite);
}

int sig_output_dims(const Signature *sig, const Binding *b, uint32_t j, int64_t dim[MAX_DIMS])
{
    assert(j < sig->n_out);
    const SigTerm *t = &sig->out[j];
    uint32_t n_ellipsis = t->ellipsis >= 0 ? (uint32_t)strlen(b->ellipsis) : 0, e = 0;
    int n = t->n_dims + (int)n_ellipsis;
    for (int at = 0; at < n; at++) {
        const SigDim *is = dim_at(t, n_ellipsis, (uint32_t)at, &e);
        const char letter = is ? is->letter : b->ellipsis[e];
        int64_t size = b->size[(int)(is && is->reads ? window_reach(letter) : letter)];
        int64_t inner = is && is->inner ? b->size[(int)is->inner] : 1;
        if (!size || !inner) return -1;
        dim[at] = size * inner;
    }
    return n;
}

bool sig_may_split(const Signature *sig, char letter)
{
    bool leads = false;
    if (letter < 'a' || letter > 'z') return false;
    for (uint32_t a = 0; a < (uint32_t)sig->n_in + sig->n_out; a++)
        for (uint32_t i = 0; i < sig_term(sig, a)->n_dims; i++) {
            const SigDim *dim = &sig_term(sig, a)->dim[i];
            if (dim->inner == letter && !sig_strides(dim)) return false;
            leads = leads || dim->letter == letter || dim->inner == letter;
        }
    return leads || sig_has_ellipsis(sig);
}

bool op_strides_over(const Binding *b, char letter, uint32_t n)
{
    for (uint32_t arg = 0; arg < (uint32_t)b->n_in + b->n_out; arg++)
        for (int d = 0; d < b->n_dims[arg]; d++)
            if (b->letter[arg][d] == letter && b->strides[arg][d])
                return b->size[(int)letter] % n == 0;
    return true;
}
