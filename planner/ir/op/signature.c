/* Parses signatures such as "bsk,kn->bsn", and derives from a contraction's signature those of its
 * gradients and 8-bit forms. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "planner/ir/op/op_private.h"

typedef struct SignatureParser {
    const char *text, *at;
    Diag *diag;
} SignatureParser;

static bool lower(char c)
{
    return c >= 'a' && c <= 'z';
}

static bool upper(char c)
{
    return c >= 'A' && c <= 'Z';
}

static bool fail(const SignatureParser *p, const char *what)
{
    Loc none = {NULL, 0};
    if (!p->diag) return false;
    return diag_error(p->diag, FAULT_input, "bad-signature", none, "signature \"%s\": %s at \"%s\"",
                      p->text, what, p->at);
}

/* Parses a composite dimension such as "(hp)" from behind its "(" on. */
static bool parse_group(SignatureParser *p, SigDim *dim)
{
    if (!lower(*p->at) && !upper(*p->at)) return fail(p, "expected an index");
    dim->letter = *p->at++;
    if (!lower(*p->at) && !upper(*p->at)) return fail(p, "expected an index");
    dim->inner = *p->at++;
    if (*p->at != ')') return fail(p, "expected )");
    p->at++;
    return true;
}

bool sig_term_uses(const SigTerm *term, char letter)
{
    for (uint32_t i = 0; letter && i < term->n_dims; i++)
        if (term->dim[i].letter == letter || term->dim[i].inner == letter) return true;
    return false;
}

static bool parse_dim(SignatureParser *p, SigTerm *term)
{
    SigDim dim = {0, 0, false};
    const char *at = p->at;
    if (term->n_dims == MAX_DIMS) return fail(p, "too many dimensions");
    if (*p->at == '(') {
        p->at++;
        if (!parse_group(p, &dim)) return false;
    } else if (lower(*p->at) || upper(*p->at)) {
        dim.letter = *p->at++;
        if (*p->at == '~') {
            if (dim.letter != 'h' && dim.letter != 'w')
                return fail(p, "expected a window of h or w");
            dim.reads = true;
            p->at++;
        }
    } else {
        return fail(p, "expected an index");
    }
    if (sig_term_uses(term, dim.letter) || sig_term_uses(term, dim.inner) ||
        dim.letter == dim.inner) {
        p->at = at;
        return fail(p, "an index twice in one term");
    }
    term->dim[term->n_dims++] = dim;
    return true;
}

static bool parse_term(SignatureParser *p, SigTerm *term)
{
    term->ellipsis = -1;
    while (*p->at && *p->at != ',' && *p->at != '-') {
        if (strncmp(p->at, "...", 3) == 0) {
            if (term->ellipsis >= 0) return fail(p, "a second ...");
            term->ellipsis = (int8_t)term->n_dims;
            p->at += 3;
        } else if (!parse_dim(p, term)) {
            return false;
        }
    }
    return true;
}

static bool parse_terms(SignatureParser *p, SigTerm *terms, uint8_t *n, uint32_t room)
{
    for (;;) {
        if (*n == room) return fail(p, "too many terms");
        if (!parse_term(p, &terms[*n])) return false;
        (*n)++;
        if (*p->at != ',') return true;
        p->at++;
    }
}

/* Binding.size uses entry 'H' for the rows h~. So no argument may use the letter H for anything
 * else. */
static bool check_reads(SignatureParser *p, const Signature *sig)
{
    for (uint32_t a = 0; a < (uint32_t)sig->n_in + sig->n_out; a++)
        for (uint32_t i = 0; i < sig_term(sig, a)->n_dims; i++) {
            const SigDim *dim = &sig_term(sig, a)->dim[i];
            if (dim->reads && sig_uses(sig, (char)(dim->letter - 'a' + 'A')))
                return fail(p, "the rows that an index reads have its upper-case letter");
        }
    return true;
}

static void find_letters(Signature *sig)
{
    for (uint32_t a = 0; a < (uint32_t)sig->n_in + sig->n_out; a++) {
        const SigTerm *t = sig_term(sig, a);
        for (uint32_t i = 0; i < t->n_dims; i++)
            sig->uses |= letters_with(t->dim[i].letter) | letters_with(t->dim[i].inner);
    }
}

bool op_parse_signature(const char *text, Signature *sig, Diag *d)
{
    SignatureParser p = {text, text, d};
    *sig = (Signature){0};
    if (*p.at != '-' && !parse_terms(&p, sig->in, &sig->n_in, MAX_IN)) return false;
    if (strncmp(p.at, "->", 2) != 0) return fail(&p, "expected ->");
    p.at += 2;
    if (!parse_terms(&p, sig->out, &sig->n_out, MAX_OUT)) return false;
    if (*p.at) return fail(&p, "unexpected text");
    find_letters(sig);
    return check_reads(&p, sig);
}

bool sig_is_windowed(const Signature *sig)
{
    for (uint32_t a = 0; a < (uint32_t)sig->n_in + sig->n_out; a++)
        for (uint32_t i = 0; i < sig_term(sig, a)->n_dims; i++)
            if (sig_term(sig, a)->dim[i].reads) return true;
    return false;
}

bool sig_has_ellipsis(const Signature *sig)
{
    for (uint32_t a = 0; a < (uint32_t)sig->n_in + sig->n_out; a++)
        if (sig_term(sig, a)->ellipsis >= 0) return true;
    return false;
}

void sig_gradient(const char *signature, int of, char *out, size_t room)
{
    const char *comma = strchr(signature, ','), *arrow = strstr(signature, "->");
    assert(comma && arrow && comma < arrow);
    assert(of == 0 || of == 1);
    int a = (int)(comma - signature), b = (int)(arrow - comma - 1);
    int n;
    if (of == 0)
        n = snprintf(out, room, "%s,%.*s->%.*s", arrow + 2, b, comma + 1, a, signature);
    else
        n = snprintf(out, room, "%.*s,%s->%.*s", a, signature, arrow + 2, b, comma + 1);
    assert(n > 0 && (size_t)n < room);
}

void sig_along(const Signature *sig, const char *signature, bool lies_along, char *out, size_t room)
{
    char in[2][MAX_DIMS + 1] = {"", ""};
    assert(sig->n_in == 2 && strstr(signature, "->"));
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t pass = 0, n = 0; pass < 2; pass++)
            for (uint32_t d = 0; d < sig->in[i].n_dims; d++) {
                const char letter = sig->in[i].dim[d].letter;
                const bool summed = !sig_term_uses(&sig->out[0], letter);
                if (!lies_along ? pass == 0 : summed == (pass == 1)) in[i][n++] = letter;
            }
    int n = snprintf(out, room, "%s,%s%s", in[0], in[1], strstr(signature, "->"));
    assert(n > 0 && (size_t)n < room);
}

void sig_scaled(const Signature *sig, const char *signature, bool by_rows, char *out, size_t room)
{
    const char *arrow = strstr(signature, "->");
    char scales[2][MAX_DIMS + 1] = {"", ""};
    assert(sig->n_in == 2 && arrow);
    for (uint32_t i = 0; by_rows && i < 2; i++)
        for (uint32_t d = 0, n = 0; d < sig->in[i].n_dims; d++)
            if (sig_term_uses(&sig->out[0], sig->in[i].dim[d].letter))
                scales[i][n++] = sig->in[i].dim[d].letter;
    int n = snprintf(out, room, "%.*s,%s,%s%s", (int)(arrow - signature), signature, scales[0],
                     scales[1], arrow);
    assert(n > 0 && (size_t)n < room);
}

void sig_blocks(const Signature *sig, const char *signature, bool in_pairs, char *out, size_t room)
{
    const char *arrow = strstr(signature, "->");
    char values[2][MAX_DIMS + 1] = {"", ""}, scales[2][MAX_DIMS + 1] = {"", ""},
                              blocked[2] = {0, 0};
    assert(sig->n_in == 2 && arrow && !sig_uses(sig, in_pairs ? 'A' : 'B'));
    for (uint32_t i = 0; i < 2; i++) {
        const SigTerm *term = &sig->in[i];
        uint32_t n = 0;
        assert(term->n_dims < MAX_DIMS);
        for (uint32_t d = 0; d < term->n_dims; d++)
            if (!sig_term_uses(&sig->out[0], term->dim[d].letter)) blocked[i] = term->dim[d].letter;
        for (uint32_t d = 0; d < term->n_dims; d++) {
            values[i][n++] = scales[i][d] = term->dim[d].letter;
            if (term->dim[d].letter == blocked[i]) values[i][n++] = in_pairs ? 'A' : 'B';
        }
    }
    assert(blocked[0] && blocked[0] == blocked[1]);
    int n = snprintf(out, room, "%s,%s,%s,%s%s%s", values[0], values[1], scales[0], scales[1],
                     in_pairs ? ",," : "", arrow);
    assert(n > 0 && (size_t)n < room);
}

/* Parses the part of a `backward` column behind the op, such as "d0,i0,i1,o1>0,1", into *w. */
static void parse_wires(const char *at, const char *end, Backward *w)
{
    for (; at < end && *at != '>'; at += *at == ',') {
        static const char kinds[] = "dio";
        const char *kind = memchr(kinds, *at, 3);
        assert(kind && at[1] >= '0' && at[1] <= '9');
        assert(w->n_in < MAX_IN);
        w->in[w->n_in++] = (Wire){(uint8_t)(kind - kinds), (uint8_t)(at[1] - '0')};
        at += 2;
    }
    assert(at < end);
    for (at++; at < end; at++) {
        if (*at == ',') continue;
        assert(*at >= '0' && *at <= '9');
        assert(w->n_of < MAX_OUT);
        w->of[w->n_of++] = (uint8_t)(*at - '0');
    }
}

void sig_parse_backward(const char *text, OpInfo *info, OpKind (*find)(const char *name, size_t n))
{
    while (*text) {
        const char *colon = strchr(text, ':'), *end = strchr(text, ';');
        if (!end) end = text + strlen(text);
        assert(colon && colon < end);
        assert(info->n_backward < MAX_BACKWARD);
        Backward *w = &info->backward[info->n_backward++];
        w->op = find(text, (size_t)(colon - text));
        assert(w->op != OP_none);
        parse_wires(colon + 1, end, w);
        text = *end ? end + 1 : end;
        while (*text == ' ') text++;
    }
}
