/* Signatures as text: parsing, and deriving the gradients of a contraction from its own signature.
 */
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "planner/ir/op_private.h"

typedef struct Parser {
    const char *text, *at;
    Diag *d;
} Parser;

static bool fail(const Parser *p, const char *what)
{
    Loc none = {NULL, 0};
    if (p->d)
        diag_error(p->d, FAULT_input, "bad-signature", none, "signature \"%s\": %s at \"%s\"",
                   p->text, what, p->at);
    return false;
}

static bool parse_group(Parser *p, SigDim *dim)
{
    p->at++; /* ( */
    if (!islower((unsigned char)*p->at)) return fail(p, "expected a lower-case index");
    dim->letter = *p->at++;
    if (*p->at == '*') {
        dim->stride = *++p->at;
        if (!isupper((unsigned char)dim->stride)) return fail(p, "expected an upper-case stride");
        p->at++;
        if (*p->at++ != '+') return fail(p, "expected + in an affine index");
    }
    dim->inner = *p->at;
    if (!isalpha((unsigned char)dim->inner)) return fail(p, "expected an index");
    p->at++;
    if (*p->at != ')') return fail(p, "expected )");
    p->at++;
    return true;
}

static bool parse_term(Parser *p, SigTerm *term)
{
    *term = (SigTerm){.ellipsis = -1};
    while (*p->at && *p->at != ',' && *p->at != '-') {
        if (strncmp(p->at, "...", 3) == 0) {
            if (term->ellipsis >= 0) return fail(p, "a second ...");
            term->ellipsis = (int8_t)term->n_dims;
            p->at += 3;
            continue;
        }
        if (term->n_dims == MAX_DIMS) return fail(p, "too many dimensions");
        SigDim *dim = &term->dim[term->n_dims];
        *dim = (SigDim){0};
        if (*p->at == '(') {
            if (!parse_group(p, dim)) return false;
        } else if (isalpha((unsigned char)*p->at)) {
            dim->letter = *p->at++;
        } else {
            return fail(p, "expected an index");
        }
        term->n_dims++;
    }
    return true;
}

static bool parse_list(Parser *p, SigTerm *terms, uint8_t *n, uint32_t room)
{
    for (;;) {
        if (*n == room) return fail(p, "too many terms");
        if (!parse_term(p, &terms[*n])) return false;
        (*n)++;
        if (*p->at != ',') return true;
        p->at++;
    }
}

bool op_parse_signature(const char *text, Signature *sig, Diag *d)
{
    Parser p = {text, text, d};
    *sig = (Signature){0};
    if (*p.at != '-' && !parse_list(&p, sig->in, &sig->n_in, MAX_IN)) return false;
    if (strncmp(p.at, "->", 2) != 0) return fail(&p, "expected ->");
    p.at += 2;
    if (!parse_list(&p, sig->out, &sig->n_out, MAX_OUT)) return false;
    return *p.at == 0 || fail(&p, "unexpected text");
}

/* "bsk,kn->bsn" -> d0 "bsn,kn->bsk", d1 "bsk,bsn->kn" */
const char *op_gradient_signature(const char *signature, int of, char *out, size_t room)
{
    const char *comma = strchr(signature, ','), *arrow = strstr(signature, "->");
    assert(comma && arrow && comma < arrow);
    int a = (int)(comma - signature), b = (int)(arrow - comma - 1);
    int n = of == 0 ? snprintf(out, room, "%s,%.*s->%.*s", arrow + 2, b, comma + 1, a, signature)
                    : snprintf(out, room, "%.*s,%s->%.*s", a, signature, arrow + 2, b, comma + 1);
    assert(n > 0 && (size_t)n < room);
    return out;
}

/* "d0,i0,i1,o1>0,1" */
static void parse_wires(const char *text, size_t n, Backward *w)
{
    const char *at = text, *end = text + n;
    while (at < end && *at != '>') {
        static const char kinds[] = "dio";
        const char *kind = strchr(kinds, *at);
        assert(kind && *kind && isdigit((unsigned char)at[1]) && w->n_in < MAX_IN);
        w->in[w->n_in++] = (Wire){(uint8_t)(kind - kinds), (uint8_t)(at[1] - '0')};
        at += 2;
        if (*at == ',') at++;
    }
    assert(at < end && *at == '>');
    for (at++; at < end; at++) {
        if (*at == ',') continue;
        assert(isdigit((unsigned char)*at) && w->n_of < MAX_OUT);
        w->of[w->n_of++] = (uint8_t)(*at - '0');
    }
}

/* "embed_grad:d0,i0>1; pass:d0>0" */
void op_parse_backward(const char *text, OpInfo *info, OpKind (*find)(const char *name, size_t n))
{
    while (*text) {
        const char *colon = strchr(text, ':'), *end = strchr(text, ';');
        if (!end) end = text + strlen(text);
        assert(colon && colon < end && info->n_backward < MAX_BACKWARD);
        Backward *w = &info->backward[info->n_backward++];
        w->op = find(text, (size_t)(colon - text));
        assert(w->op != OP_none);
        parse_wires(colon + 1, (size_t)(end - colon - 1), w);
        text = *end ? end + 1 : end;
        while (*text == ' ') text++;
    }
}
