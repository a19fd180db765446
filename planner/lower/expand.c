/* Makes the programs of a step with many micro-batches from the programs of a shorter step. When
 * the pipeline is full, each period of a program does the backward work of one micro-batch and the
 * forward work of a later one. A and B are two such periods, one directly after the other. If B
 * does for the next micro-batch what A does for its own, copies of A are inserted between A and B.
 * Everything after the copies then belongs to later micro-batches. */
#include "planner/lower/expand.h"

#include <string.h>

#include "planner/lower/alike.h"
#include "planner/lower/memory/lives.h"

bool plan_saves_enough(uint32_t few, uint32_t n)
{
    return n > few + few / 4;
}

uint32_t plan_expands_from(const Config *c, uint32_t n)
{
    const uint32_t stages = config_ranks(c, axes_with(AXIS_STAGES));
    const uint32_t few = stages + PLAN_BEHIND_FILLING;
    const PassConfig *pp = config_pass(c, PASS_pp);
    if (stages < 2 || pp == NULL || pp->pp.is_own || pp->pp.schedule != SCHEDULE_1f1b) return 0;
    return plan_saves_enough(few, n) ? few : 0;
}

typedef LIST(BufferId) BufferIds;

/* The newest call of `counterpart` for a buffer, and its result. */
typedef struct Counterpart {
    uint32_t microbatch;
    BufferId other;
} Counterpart;

typedef struct Expander {
    const Program *from;
    Program *to;
    Arena *arena, *scratch;
    /* Numbers of micro-batches. n_few: in `from`, the short step. n: in `to`, the long step. more:
     * n - n_few */
    uint32_t n_few, n, more;
    Pc a, b, length;          /* the first instruction of A and of B, and the length of a period */
    BufferId first_made;      /* the first buffer that A makes */
    uint32_t n_made;          /* buffers made in one period */
    uint32_t forward;         /* the micro-batch whose forward work is in A */
    BufferId *newest;         /* [pc]: the newest buffer that the instructions before it use */
    BufferIds *made;          /* [micro-batch]: the buffers that belong to it */
    Counterpart *newest_call; /* [buffer] */
    uint32_t n_launches, n_fuses;
    /* Each period after this one is a copy of the period before it, with larger numbers. */
    uint32_t lead;
    /* The growth of a number from one period to the next: of the parent of each buffer that a
     * period makes, of each argument, and of each wait. */
    uint32_t *parent_grows, *arg_grows, *after_grows;
    uint32_t n_args, n_after, launches, fuses; /* of one period */
} Expander;

/* ---- the period */

/* True if `b` has no counterpart in later micro-batches. Such a buffer is kept between steps, or
 * belongs to micro-batch 0, like all buffers that are made before the first action. */
static bool is_fixed(const Program *p, BufferId b)
{
    const Buffer *at = &p->buffers.at[b];
    return at->microbatch == 0 || (at->persistent && !at->parent);
}

static bool same_args(const Program *p, const Instr *x, const Instr *y)
{
    for (uint32_t i = 0; i < x->args.n; i++) {
        const BufferId a = program_arg(p, x, i), b = program_arg(p, y, i);
        const Buffer *s = &p->buffers.at[a], *t = &p->buffers.at[b];
        if (is_fixed(p, a) || is_fixed(p, b)
                ? a != b
                : s->microbatch + 1 != t->microbatch || !buffers_alike(s, t))
            return false;
    }
    return true;
}

static bool same_after(const Program *p, const Instr *x, const Instr *y, Pc length)
{
    for (uint32_t i = 0; i < x->after.n; i++)
        if (p->after.at[x->after.first + i] + length != p->after.at[y->after.first + i])
            return false;
    return true;
}

static bool is_next(const Program *p, Pc a, Pc length)
{
    const Instr *x = &p->code.at[a], *y = &p->code.at[a + length];
    return y->microbatch == x->microbatch + 1 && instrs_alike(x, y) && same_args(p, x, y) &&
           same_after(p, x, y, length);
}

static bool is_backward(const Instr *in)
{
    return in->stream == STREAM_compute &&
           (in->phase == PHASE_backward || in->phase == PHASE_recompute);
}

/* Fills e->newest. */
static void find_newest(Expander *e)
{
    const Program *p = e->from;
    e->newest = arena_array(e->scratch, p->code.n + 1, sizeof *e->newest);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        BufferId newest = e->newest[pc];
        for (uint32_t i = 0; i < p->code.at[pc].args.n; i++) {
            const BufferId b = program_arg(p, &p->code.at[pc], i);
            if (b > newest) newest = b;
        }
        e->newest[pc + 1] = newest;
    }
}

/* A is the period that begins at e->a. True if the instructions from `before` to A also form a
 * period, and each buffer that they made has a counterpart in A. */
static bool follows_period(const Expander *e, Pc before)
{
    const Buffer *all = e->from->buffers.at;
    if (!before || e->a - before != e->length || e->first_made <= e->n_made) return false;
    const BufferId first = e->first_made - e->n_made;
    if (e->newest[before] + 1 != first) return false;
    for (BufferId b = first; b < e->first_made; b++)
        if (!buffers_alike(&all[b], &all[b + e->n_made])) return false;
    return true;
}

/* True if A and B are periods. A begins with the backward work of micro-batch `of`, and B with the
 * backward work of the next one. */
static bool is_period(Expander *e, const Pc *begin, uint32_t of)
{
    const Program *p = e->from;
    e->a = begin[of];
    e->b = begin[of + 1];
    if (!e->a || !e->b || !begin[of + 2]) return false;
    e->length = e->b - e->a;
    if (begin[of + 2] != e->b + e->length) return false;
    e->forward = 0;
    for (Pc pc = e->a; pc < e->b; pc++) {
        if (!is_next(p, pc, e->length)) return false;
        const Instr *in = &p->code.at[pc];
        if (in->phase == PHASE_forward && in->stream == STREAM_compute && in->microbatch > of)
            e->forward = in->microbatch;
    }
    e->first_made = e->newest[e->a] + 1;
    const BufferId next = e->newest[e->b] + 1, end = e->newest[e->b + e->length] + 1;
    e->n_made = next - e->first_made;
    return e->forward != 0 && next > e->first_made && end - next == e->n_made &&
           follows_period(e, begin[of - 1]);
}

static bool find_period(Expander *e)
{
    Pc *begin = arena_array(e->scratch, e->n_few + 2, sizeof *begin);
    for (Pc pc = e->from->code.n; pc-- > 1;)
        if (is_backward(&e->from->code.at[pc])) begin[e->from->code.at[pc].microbatch] = pc;
    for (uint32_t of = e->n_few - 1; of > 0; of--)
        if (of + 2 < e->n_few && is_period(e, begin, of)) return true;
    return false;
}

/* ---- buffers */

/* Finds the counterpart of buffer b in another micro-batch of the short step; 0: there is none. */
static BufferId find_counterpart(const Expander *e, BufferId b, uint32_t microbatch)
{
    const Buffer *all = e->from->buffers.at;
    const BufferIds *own = &e->made[all[b].microbatch], *other = &e->made[microbatch];
    uint32_t place = 0;
    for (uint32_t i = 0; own->at[i] != b; i++) place += buffers_alike(&all[own->at[i]], &all[b]);
    for (uint32_t i = 0; i < other->n; i++)
        if (buffers_alike(&all[other->at[i]], &all[b]) && place-- == 0) return other->at[i];
    return 0;
}

/* Returns the same as find_counterpart, but keeps the newest result for each buffer. Most periods
 * need it again. */
static BufferId counterpart(const Expander *e, BufferId b, uint32_t microbatch)
{
    if (e->newest_call[b].microbatch != microbatch) {
        e->newest_call[b].other = find_counterpart(e, b, microbatch);
        e->newest_call[b].microbatch = microbatch;
    }
    return e->newest_call[b].other;
}

/* Returns the buffer that an instruction uses instead of `b` if the instruction moves by `periods`
 * periods. */
static BufferId moved(const Expander *e, BufferId b, uint32_t periods)
{
    if (periods == 0 || b == 0) return b;
    if (b + e->n_made >= e->first_made) return b + periods * e->n_made;
    if (is_fixed(e->from, b)) return b;
    const uint32_t microbatch = e->from->buffers.at[b].microbatch + periods;
    if (microbatch <= e->forward) return counterpart(e, b, microbatch);
    return counterpart(e, b, e->forward) + (microbatch - e->forward) * e->n_made;
}

static void add_buffers(Expander *e, BufferId first, BufferId end, uint32_t periods)
{
    for (BufferId b = first; b < end; b++) {
        Buffer at = e->from->buffers.at[b];
        if (b >= e->first_made || !is_fixed(e->from, b)) at.microbatch += periods;
        at.parent = moved(e, at.parent, periods);
        if (!at.parent) at.offset = 0;
        list_push(e->arena, &e->to->buffers, at);
    }
}

/* ---- instructions */

/* Copies instruction pc for a micro-batch that is later by `periods`. The lists have room for its
 * arguments and waits. *launch and *fuse are the values that Instr.launch and Instr.fuse had in
 * `from` for the newest launch group and the newest kernel so far. */
static void add_instr(Expander *e, Pc pc, uint32_t periods, uint32_t *launch, uint32_t *fuse)
{
    const Program *p = e->from;
    Instr in = p->code.at[pc];
    const Span after = in.after, args = in.args;
    in.microbatch += periods;
    in.args.first = e->to->args.n;
    for (uint32_t i = 0; i < args.n; i++)
        e->to->args.at[in.args.first + i] = moved(e, p->args.at[args.first + i], periods);
    e->to->args.n += args.n;
    in.after.first = e->to->after.n;
    for (uint32_t i = 0; i < after.n; i++) {
        const Pc of = p->after.at[after.first + i];
        e->to->after.at[in.after.first + i] = of + e->length > e->a ? of + periods * e->length : of;
    }
    e->to->after.n += after.n;
    if (in.launch && in.launch != *launch) e->n_launches++;
    if (in.launch) *launch = in.launch, in.launch = e->n_launches;
    if (in.fuse && in.fuse != *fuse) e->n_fuses++;
    if (in.fuse) *fuse = in.fuse, in.fuse = e->n_fuses;
    list_push(e->arena, &e->to->code, in);
}

static void add_code(Expander *e, Pc first, Pc end, uint32_t periods)
{
    uint32_t launch = 0, fuse = 0; /* as in add_instr */
    uint32_t n_args = 0, n_after = 0;
    for (Pc pc = first; pc < end; pc++) {
        n_args += e->from->code.at[pc].args.n;
        n_after += e->from->code.at[pc].after.n;
    }
    list_reserve(e->arena, &e->to->args, n_args);
    list_reserve(e->arena, &e->to->after, n_after);
    for (Pc pc = first; pc < end; pc++) add_instr(e, pc, periods, &launch, &fuse);
}

/* ---- periods that are copied from the period before */

/* Each later period uses another buffer in place of `b`. Returns by how much the id of this buffer
 * grows from one period to the next. If this growth is constant only from a later period on, raises
 * e->lead. */
static uint32_t grows(Expander *e, BufferId b)
{
    if (b == 0) return 0;
    if (b + e->n_made >= e->first_made) return e->n_made;
    if (is_fixed(e->from, b)) return 0;
    const uint32_t microbatch = e->from->buffers.at[b].microbatch;
    if (microbatch + e->lead < e->forward) e->lead = e->forward - microbatch;
    return e->n_made;
}

/* Fills parent_grows, arg_grows and after_grows. */
static void find_growth(Expander *e)
{
    const Program *p = e->from;
    for (Pc pc = e->a; pc < e->b; pc++) {
        e->n_args += p->code.at[pc].args.n;
        e->n_after += p->code.at[pc].after.n;
    }
    e->parent_grows = arena_array(e->scratch, e->n_made, sizeof *e->parent_grows);
    e->arg_grows = arena_array(e->scratch, e->n_args, sizeof *e->arg_grows);
    e->after_grows = arena_array(e->scratch, e->n_after, sizeof *e->after_grows);
    for (uint32_t i = 0; i < e->n_made; i++)
        e->parent_grows[i] = grows(e, p->buffers.at[e->first_made + i].parent);
    uint32_t arg = 0, after = 0;
    for (Pc pc = e->a; pc < e->b; pc++) {
        const Instr *in = &p->code.at[pc];
        for (uint32_t i = 0; i < in->args.n; i++)
            e->arg_grows[arg++] = grows(e, program_arg(p, in, i));
        for (uint32_t i = 0; i < in->after.n; i++)
            e->after_grows[after++] =
                p->after.at[in->after.first + i] + e->length > e->a ? e->length : 0;
    }
}

/* Appends a copy of the newest period, with larger numbers. */
static void repeat_period(Expander *e)
{
    Program *to = e->to;
    list_reserve(e->arena, &to->args, e->n_args);
    list_reserve(e->arena, &to->after, e->n_after);
    for (uint32_t i = 0; i < e->n_made; i++) {
        Buffer at = to->buffers.at[to->buffers.n - e->n_made];
        at.microbatch++;
        at.parent += e->parent_grows[i];
        list_push(e->arena, &to->buffers, at);
    }
    uint32_t *args = to->args.at + to->args.n, *after = to->after.at + to->after.n;
    for (uint32_t i = 0; i < e->n_args; i++) args[i] = (args - e->n_args)[i] + e->arg_grows[i];
    for (uint32_t i = 0; i < e->n_after; i++)
        after[i] = (after - e->n_after)[i] + e->after_grows[i];
    to->args.n += e->n_args;
    to->after.n += e->n_after;
    for (Pc i = 0; i < e->length; i++) {
        Instr in = to->code.at[to->code.n - e->length];
        in.microbatch++;
        in.args.first += e->n_args;
        in.after.first += e->n_after;
        if (in.launch) in.launch += e->launches;
        if (in.fuse) in.fuse += e->fuses;
        list_push(e->arena, &to->code, in);
    }
    e->n_launches += e->launches;
    e->n_fuses += e->fuses;
}

/* Adds the periods between A and B. Returns how many of them were copied from the period before. */
static uint32_t add_periods(Expander *e)
{
    uint32_t n = 0;
    for (uint32_t k = 1; k <= e->more; k++) {
        if (k > 1 && k > e->lead) {
            repeat_period(e);
            n++;
            continue;
        }
        const uint32_t launches = e->n_launches, fuses = e->n_fuses;
        add_buffers(e, e->first_made, e->first_made + e->n_made, k);
        add_code(e, e->a, e->b, k);
        e->launches = e->n_launches - launches;
        e->fuses = e->n_fuses - fuses;
    }
    return n;
}

/* Allocates memory for the whole program at once, because a list that grows is copied each time. */
static void reserve(Expander *e)
{
    const Program *p = e->from;
    const Instr *a = &p->code.at[e->a], *b = &p->code.at[e->b];
    list_reserve(e->arena, &e->to->code, p->code.n + e->more * e->length);
    list_reserve(e->arena, &e->to->buffers, p->buffers.n + e->more * e->n_made);
    list_reserve(e->arena, &e->to->args, p->args.n + e->more * (b->args.first - a->args.first));
    list_reserve(e->arena, &e->to->after, p->after.n + e->more * (b->after.first - a->after.first));
}

static bool expand(Expander *e, uint32_t *n_repeated)
{
    const Program *p = e->from;
    e->made = arena_array(e->scratch, e->n_few, sizeof *e->made);
    for (BufferId b = 1; b < p->buffers.n; b++)
        list_push(e->scratch, &e->made[p->buffers.at[b].microbatch], b);
    e->newest_call = arena_array(e->scratch, p->buffers.n, sizeof *e->newest_call);
    find_newest(e);
    if (!find_period(e)) return false;
    const BufferId next = e->first_made + e->n_made;
    reserve(e);
    list_push(e->arena, &e->to->buffers, p->buffers.at[0]);
    list_push(e->arena, &e->to->code, p->code.at[0]);
    add_buffers(e, 1, next, 0);
    add_code(e, 1, e->b, 0);
    find_growth(e);
    *n_repeated += add_periods(e);
    add_buffers(e, next, p->buffers.n, e->more);
    add_code(e, e->b, p->code.n, e->more);
    e->to->purpose = p->purpose;
    e->to->stage = p->stage;
    lives_mark(e->to);
    return true;
}

/* ---- matches */

static bool is_transfer(const Instr *in)
{
    return in->op == OP_send || in->op == OP_recv;
}

/* Gives match numbers in the order in which pass_lower gives them. Transfers come first, ordered by
 * boundary between stages and by micro-batch. Then come the scalars of all stages, and all other
 * collectives in program order. */
static bool number_matches(const Plan *few, Plan *plan, uint32_t n_few, uint32_t n)
{
    uint32_t least = UINT32_MAX, others = 0;
    for (uint32_t r = 0; r < few->programs.n; r++) {
        const Program *p = &few->programs.at[r];
        for (Pc pc = 1; pc < p->code.n; pc++) {
            const Instr *in = &p->code.at[pc];
            if (!in->match) continue;
            if (is_transfer(in)) {
                if ((in->match - 1) / 2 % n_few != in->microbatch) return false;
                continue;
            }
            if (in->match < least) least = in->match;
            if (!others) others = in->match;
        }
    }
    const uint32_t boundaries = (least - 1) / (2 * n_few), more = boundaries * 2 * (n - n_few);
    if (boundaries * 2 * n_few != least - 1) return false;
    uint32_t next = others + more;
    for (uint32_t r = 0; r < plan->programs.n; r++) {
        Program *p = &plan->programs.at[r];
        for (Pc pc = 1; pc < p->code.n; pc++) {
            Instr *in = &p->code.at[pc];
            if (!in->match) continue;
            if (is_transfer(in)) {
                const uint32_t boundary = (in->match - 1) / 2 / n_few,
                               backward = (in->match - 1) % 2;
                in->match = 1 + (boundary * n + in->microbatch) * 2 + backward;
            } else {
                in->match = in->match < others ? in->match + more : next++;
            }
        }
    }
    plan->n_match = next;
    return true;
}

Plan *plan_expand(const Plan *few, uint32_t n, Arena *arena, uint32_t *n_repeated)
{
    Plan *plan = arena_alloc(arena, sizeof *plan);
    *plan = *few;
    memset(&plan->programs, 0, sizeof plan->programs);
    const uint32_t n_few = few->step.n_microbatches;
    plan->step.n_microbatches = n;
    plan->step.global_batch = few->step.global_batch / n_few * n;
    plan->step.global_tokens = few->step.global_tokens / n_few * n;
    bool fine = n > n_few;
    uint32_t repeated = 0;
    for (uint32_t r = 0; r < few->programs.n; r++) list_add(arena, &plan->programs);
    for (uint32_t r = 0; r < few->programs.n && fine; r++) {
        Expander e = {.from = &few->programs.at[r],
                      .to = &plan->programs.at[r],
                      .arena = arena,
                      .scratch = arena_new(),
                      .n_few = n_few,
                      .n = n,
                      .more = n - n_few};
        fine = expand(&e, &repeated);
        arena_free(e.scratch);
    }
    if (n_repeated != NULL) *n_repeated = repeated;
    return fine && number_matches(few, plan, n_few, n) ? plan : NULL;
}
