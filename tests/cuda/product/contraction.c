/* See contraction.h. The expected result comes from a loop over all values of all letters, which
 * knows nothing of matrices. */
#include "tests/cuda/product/contraction.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "planner/base/arena.h"
#include "planner/base/rng.h"

enum { SEED = 5, SCRATCH_BYTES = 64 << 20 };

/* 8-bit numbers are transposed four at a time. */
static int64_t letter_size(OpKind op, char letter, uint64_t draw)
{
    static const int64_t any[] = {1, 2, 3, 5, 7, 16}, fours[] = {4, 8, 12, 4, 8, 4};
    static const int64_t sixteens[] = {16, 32, 16, 48, 16, 16};
    bool scaled = op_info(op)->scaling != SCALING_none;
    if (scaled && strchr("knse", letter) == NULL) return 2;
    const int64_t *sizes = !scaled ? any : draw & 1 ? sixteens : fours;
    return sizes[rng_below(SEED, draw, (uint64_t)letter, 6)];
}

static void fill(Contraction *c, uint32_t arg, int64_t n)
{
    DType t = c->args.dtype[arg];
    c->args.elements[arg] = n;
    c->block[arg] = target_alloc((uint64_t)(n + CONTRACTION_GUARD) * dtype_bytes(t));
    c->args.ptr[arg] = c->block[arg];
    for (int64_t i = 0; i < n + CONTRACTION_GUARD; i++) {
        double x = rng_normal(SEED, arg, (uint64_t)i);
        bool is_scale = arg >= 2 && t == DT_f32 && arg < op_info(c->op)->sig.n_in;
        if (is_scale) x = i % 5 == 3 ? 0 : fabs(x) + 0.1;
        number_write(t, c->args.ptr[arg], (uint64_t)i, x);
    }
}

Contraction contraction_of(OpKind op, uint64_t draw, DType in, DType out)
{
    Contraction c = {.arena = arena_new(), .op = op};
    c.binding = arena_array(c.arena, 1, sizeof *c.binding);
    c.args.binding = c.binding;
    const Signature *sig = &op_info(op)->sig;
    Diag diag = diag_in(c.arena);
    Dims dims[MAX_ARGS];
    uint32_t n = sig->n_in + 1u;
    for (uint32_t i = 0; i < n; i++) {
        const SigTerm *term = i < sig->n_in ? &sig->in[i] : &sig->out[0];
        int64_t *dim = arena_array(c.arena, MAX_DIMS, sizeof *dim), elements = 1;
        for (int d = 0; d < term->n_dims; d++) {
            dim[d] = letter_size(op, term->dim[d].letter, draw);
            elements *= dim[d];
        }
        dims[i] = (Dims){term->n_dims, dim};
        c.args.dtype[i] = i < 2 ? in : i < sig->n_in ? DT_f32 : out;
        fill(&c, i, elements);
    }
    bool bound = op_bind(op, dims, sig->n_in, dims + sig->n_in, 1, c.binding, (Loc){0}, &diag);
    assert(bound);
    memcpy(c.args.size, c.binding->size, sizeof c.args.size);
    c.args.n_in = sig->n_in;
    c.args.n_args = n;
    c.args.attrs.scale = 0.75;
    c.args.attrs.accumulate = (int64_t)(draw & 1);
    return c;
}

void contraction_free(Contraction *c)
{
    for (uint32_t i = 0; i < MAX_ARGS; i++) target_free(c->block[i]);
    arena_free(c->arena);
}

typedef struct Walk {
    const Binding *b;
    int64_t at['z' + 1];
} Walk;

static bool walk_next(Walk *w)
{
    for (uint32_t l = w->b->n_letters; l-- > 0;) {
        unsigned char letter = (unsigned char)w->b->letters[l];
        if (++w->at[letter] < w->b->size[letter]) return true;
        w->at[letter] = 0;
    }
    return false;
}

static uint64_t walk_index(const Walk *w, uint32_t arg)
{
    int64_t i = 0;
    for (uint32_t d = 0; d < w->b->n_dims[arg]; d++) {
        unsigned char letter = (unsigned char)w->b->letter[arg][d];
        i = i * w->b->size[letter] + w->at[letter];
    }
    return (uint64_t)i;
}

/* Computes the definition: for each output, the sum over all other letters of the products of both
 * operands, times their scales. */
double *contraction_expected(const Contraction *c)
{
    Walk w = {.b = c->binding};
    const KernelArgs *a = &c->args;
    uint32_t z = a->n_in;
    double *d = arena_array(c->arena, (size_t)a->elements[z], sizeof *d);
    for (int64_t i = 0; i < a->elements[z]; i++)
        d[i] = a->attrs.accumulate & 1 ? number_read(a->dtype[z], a->ptr[z], (uint64_t)i) : 0;
    do {
        double term = number_read(a->dtype[0], a->ptr[0], walk_index(&w, 0)) *
                      number_read(a->dtype[1], a->ptr[1], walk_index(&w, 1));
        for (uint32_t i = 2; i < a->n_in; i++)
            term *= fmax(number_read(a->dtype[i], a->ptr[i], walk_index(&w, i)), 1e-12);
        d[walk_index(&w, a->n_in)] += term * (a->n_in == 4 ? a->attrs.scale : 1);
    } while (walk_next(&w));
    return d;
}

void contraction_add_scratch(Contraction *c, WorkspaceBytes workspace)
{
    uint32_t last = c->args.n_in + 1;
    uint64_t bytes = workspace(c->op, c->args.dtype, c->args.elements, last);
    static void *all; /* memory that is never touched takes no space */
    if (all == NULL) all = target_alloc(SCRATCH_BYTES);
    assert(bytes <= SCRATCH_BYTES);
    memset(all, 0xff, bytes < 1 << 20 ? bytes : 1 << 20);
    c->args.ptr[last] = all;
    c->args.dtype[last] = DT_u8;
    c->args.elements[last] = (int64_t)bytes;
    c->args.n_args = last + 1;
}
