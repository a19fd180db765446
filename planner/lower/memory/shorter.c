/* Makes a short program of a long one, as if the step had only SHORTER_MICROBATCHES. memory.c
 * chooses offsets for the short program, and the long one gets the same offsets. */
#include "planner/lower/memory/shorter.h"

#include "planner/lower/alike.h"
#include "planner/lower/memory/placement.h"

typedef struct Shortening {
    const Program *from;
    Program *to;
    Arena *arena;
    BufferId *like;      /* see ShortProgram */
    uint32_t *born;      /* [buffer]: the micro-batch that first uses it */
    BufferId *next;      /* [buffer]: its counterpart one micro-batch later; 0: not known */
    uint32_t n;          /* the number of micro-batches */
    Pc cut, end, length; /* the left-out instructions are [cut, end): `length` for each
                            micro-batch */
} Shortening;

/* Finds the first instruction of the micro-batches that are left out, and the first one after
 * them. Returns false if micro-batches overlap or have different lengths. */
static bool find_cut(Shortening *s)
{
    const Program *p = s->from;
    s->n = placement_microbatches(p);
    if (s->n <= SHORTER_MICROBATCHES || !placement_periodic(p)) return false;
    Pc *begin = arena_array(s->arena, s->n, sizeof *begin);
    for (Pc pc = p->code.n; pc-- > 1;) begin[p->code.at[pc].microbatch] = pc;
    s->cut = begin[PLACEMENT_SETTLED + 1];
    s->end = begin[s->n - 1];
    s->length = s->cut - begin[PLACEMENT_SETTLED];
    for (uint32_t k = PLACEMENT_SETTLED; k + 1 < s->n; k++)
        if (!begin[k] || begin[k + 1] != begin[k] + s->length) return false;
    return true;
}

static bool is_kept_between_steps(const Buffer *b)
{
    return b->persistent && !b->parent;
}

static bool is_left_out(const Shortening *s, BufferId b)
{
    return s->born[b] > PLACEMENT_SETTLED && s->born[b] + 1 < s->n &&
           !is_kept_between_steps(&s->from->buffers.at[b]);
}

/* True if y is x, or the counterpart of x one micro-batch later. */
static bool is_next_buffer(Shortening *s, BufferId x, BufferId y)
{
    const Buffer *a = &s->from->buffers.at[x], *b = &s->from->buffers.at[y];
    if (x == y) return s->born[x] < PLACEMENT_SETTLED || is_kept_between_steps(a);
    if (s->next[x]) return s->next[x] == y;
    if (is_kept_between_steps(a) || s->born[y] != s->born[x] + 1 || !buffers_alike(a, b))
        return false;
    s->next[x] = y;
    return !a->parent || is_next_buffer(s, a->parent, b->parent);
}

/* True if the instruction at pc does the work of the instruction one micro-batch before. */
static bool repeats(Shortening *s, Pc pc)
{
    const Program *p = s->from;
    const Instr *x = &p->code.at[pc - s->length], *y = &p->code.at[pc];
    if (!instrs_alike(x, y)) return false;
    for (uint32_t i = 0; i < x->args.n; i++)
        if (!is_next_buffer(s, program_arg(p, x, i), program_arg(p, y, i))) return false;
    for (uint32_t i = 0; i < x->after.n; i++) {
        const Pc of_x = p->after.at[x->after.first + i], of_y = p->after.at[y->after.first + i];
        if (of_y != of_x + s->length && of_y != of_x) return false;
    }
    return true;
}

/* Copies the buffers that are not left out, and sets `like` for all buffers. Returns false if a
 * buffer has no counterpart. */
static bool copy_buffers(Shortening *s)
{
    const Program *p = s->from;
    list_reserve(s->arena, &s->to->buffers, p->buffers.n);
    list_push(s->arena, &s->to->buffers, p->buffers.at[0]);
    for (BufferId b = 1; b < p->buffers.n; b++) {
        if (is_left_out(s, b)) continue;
        s->like[b] = (BufferId)list_push(s->arena, &s->to->buffers, p->buffers.at[b]);
    }
    /* each buffer that is left out continues a chain that begins in a kept micro-batch */
    for (Pc pc = s->cut - s->length; pc < s->end; pc++) {
        const Instr *in = &p->code.at[pc];
        for (uint32_t i = 0; i < in->args.n; i++)
            for (BufferId b = program_arg(p, in, i); b; b = p->buffers.at[b].parent) {
                const BufferId next = s->next[b];
                if (next && !s->like[next]) s->like[next] = s->like[b];
            }
    }
    for (BufferId b = 1; b < p->buffers.n; b++) {
        if (!s->like[b]) return false;
        if (is_left_out(s, b)) continue;
        Buffer *at = &s->to->buffers.at[s->like[b]];
        if (at->parent) at->parent = s->like[at->parent];
    }
    return true;
}

/* Copies instructions [first, end), whose pcs shrink by `shift`. Returns false if an instruction
 * uses a buffer that is more than one micro-batch older. Also returns false if it waits for an
 * instruction whose counterpart would be before the step. */
static bool copy_code(Shortening *s, Pc first, Pc end, Pc shift)
{
    const Program *p = s->from;
    for (Pc pc = first; pc < end; pc++) {
        Instr in = p->code.at[pc];
        const Span after = in.after, args = in.args;
        if (shift) in.microbatch = SHORTER_MICROBATCHES - 1;
        in.args.first = s->to->args.n;
        for (uint32_t i = 0; i < args.n; i++) {
            const BufferId b = p->args.at[args.first + i];
            if (is_left_out(s, b) && s->born[b] + 2 != s->n) return false;
            list_push(s->arena, &s->to->args, s->like[b]);
        }
        in.after.first = s->to->after.n;
        for (uint32_t i = 0; i < after.n; i++) {
            const Pc of = p->after.at[after.first + i];
            if (of >= s->cut && of <= shift) return false;
            list_push(s->arena, &s->to->after, of >= s->cut ? of - shift : of);
        }
        list_push(s->arena, &s->to->code, in);
    }
    return true;
}

bool shorter_make(ShortProgram *shorter, const Program *p, Arena *arena)
{
    *shorter = (ShortProgram){.program.purpose = p->purpose, .program.stage = p->stage};
    Shortening s = {.from = p, .to = &shorter->program, .arena = arena};
    if (!find_cut(&s)) return false;
    s.born = arena_array(arena, p->buffers.n, sizeof *s.born);
    s.next = arena_array(arena, p->buffers.n, sizeof *s.next);
    s.like = shorter->like = arena_array(arena, p->buffers.n, sizeof *s.like);
    for (BufferId b = 1; b < p->buffers.n; b++)
        if (p->buffers.at[b].first) s.born[b] = p->code.at[p->buffers.at[b].first].microbatch;
    for (Pc pc = s.cut; pc < s.end; pc++)
        if (!repeats(&s, pc)) return false;
    list_reserve(arena, &s.to->code, p->code.n - (s.end - s.cut));
    list_reserve(arena, &s.to->args, p->args.n);
    list_reserve(arena, &s.to->after, p->after.n);
    list_push(arena, &s.to->code, p->code.at[0]);
    return copy_buffers(&s) && copy_code(&s, 1, s.cut, 0) &&
           copy_code(&s, s.end, p->code.n, s.end - s.cut);
}
