/* Computes facts that are the same for all ranks of a program. They are the instructions that each
 * instruction waits for, the global sizes of its indices (Binding), and how often each buffer is
 * accessed. Also describes an instruction for messages. */
#include <assert.h>

#include "exec/ready.h"
#include "planner/ir/text/text.h"

typedef struct InfoBuild {
    const Program *p;
    Arena *scratch;
    ProgramInfo *info;
    LIST(Pc) before; /* the instructions that one instruction waits for */
    Pc *previous;    /* [pc]: previous instruction on the same stream */
} InfoBuild;

static bool same_launch(const Program *p, Pc a, Pc b)
{
    const Instr *x = program_instr(p, a), *y = program_instr(p, b);
    return x->launch != 0 && x->launch == y->launch && x->stream == y->stream;
}

/* Collects in b->before the instructions that instruction pc waits for. If several communications
 * start together with pc, these are the instructions that any of them names in `after`. The list
 * also contains the instruction before them on the stream, and all communications that start
 * together with that one. */
static void collect_before(InfoBuild *b, Pc pc, const Pc *next)
{
    const Program *p = b->p;
    b->before.n = 0;
    Pc first = pc;
    while (b->previous[first] && same_launch(p, b->previous[first], pc)) first = b->previous[first];
    for (Pc member = first; member && (member == pc || same_launch(p, member, pc));
         member = next[member]) {
        const Instr *in = program_instr(p, member);
        for (uint32_t i = 0; i < in->after.n; i++)
            list_push(b->scratch, &b->before, p->after.at[in->after.first + i]);
    }
    Pc last = b->previous[first];
    for (Pc member = last; member && (member == last || same_launch(p, member, last));
         member = b->previous[member])
        list_push(b->scratch, &b->before, member);
}

static void build_edges(InfoBuild *b, Arena *arena)
{
    const Program *p = b->p;
    uint32_t n = p->code.n;
    ProgramInfo *info = b->info;
    Pc end[STREAM_COUNT] = {0}, *next = arena_array(b->scratch, n, sizeof *next);
    b->previous = arena_array(b->scratch, n, sizeof *b->previous);
    for (Pc pc = 1; pc < n; pc++) {
        Stream s = program_instr(p, pc)->stream;
        b->previous[pc] = end[s];
        if (end[s]) next[end[s]] = pc;
        end[s] = pc;
    }
    info->n_before = arena_array(arena, n, sizeof *info->n_before);
    info->first = arena_array(arena, (size_t)n + 1, sizeof *info->first);
    for (Pc pc = 1; pc < n; pc++) {
        collect_before(b, pc, next);
        info->n_before[pc] = b->before.n;
        for (uint32_t i = 0; i < b->before.n; i++) info->first[b->before.at[i] + 1]++;
    }
    for (Pc pc = 0; pc < n; pc++) info->first[pc + 1] += info->first[pc];
    info->then = arena_array(arena, info->first[n], sizeof *info->then);
    uint32_t *at = arena_array(b->scratch, n, sizeof *at);
    for (Pc pc = 1; pc < n; pc++) { /* visit instructions in ascending order, so that each list is
                                       ascending */
        collect_before(b, pc, next);
        for (uint32_t i = 0; i < b->before.n; i++) {
            Pc from = b->before.at[i];
            info->then[info->first[from] + at[from]++] = pc;
        }
    }
}

static void count_touches(const Program *p, ProgramInfo *info)
{
    uint64_t offset;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = program_instr(p, pc);
        for (uint32_t i = 0; i < in->args.n; i++)
            info->n_touches[program_root(p, program_arg(p, in, i), &offset)]++;
    }
    /* The result of an instruction may take over the memory of one of its operands. The bytes of
     * the operand are then still in use after the instruction. */
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = program_instr(p, pc);
        for (uint32_t i = 0; i < in->n_in; i++)
            for (uint32_t j = in->n_in; j < in->args.n; j++) {
                BufferId a = program_root(p, program_arg(p, in, i), &offset);
                BufferId b = program_root(p, program_arg(p, in, j), &offset);
                const Buffer *x = &p->buffers.at[a], *y = &p->buffers.at[b];
                if (a != b && x->space == y->space && x->offset < y->offset + y->bytes &&
                    y->offset < x->offset + x->bytes)
                    info->passes_on[a] = true;
            }
    }
}

const ProgramInfo *program_info(const Plan *plan, const Program *p, Arena *arena)
{
    ProgramInfo *info = arena_alloc(arena, sizeof *info);
    info->p = p;
    assert(p->code.n > 0);
    info->n_instr = p->code.n - 1;
    InfoBuild b = {.p = p, .scratch = arena_new(), .info = info};
    build_edges(&b, arena);
    arena_free(b.scratch);
    info->n_touches = arena_array(arena, p->buffers.n, sizeof *info->n_touches);
    info->passes_on = arena_array(arena, p->buffers.n, sizeof *info->passes_on);
    count_touches(p, info);
    info->binding = arena_array(arena, p->code.n, sizeof *info->binding);
    info->bytes = arena_array(arena, p->code.n, sizeof *info->bytes);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = program_instr(p, pc);
        OpClass class_ = op_info(in->op)->class_;
        bool is_comm = class_ == OP_CLASS_comm;
        info->bytes[pc] = is_comm ? plan_comm_bytes(plan, p, in) : plan_hbm_bytes(plan, p, in);
        if (is_comm || class_ == OP_CLASS_reshape) continue;
        Binding *binding = arena_alloc(arena, sizeof *binding);
        if (plan_bind(plan, p, in, 0, binding, NULL, NULL, NULL)) info->binding[pc] = binding;
    }
    return info;
}

const char *instr_text(const Plan *plan, const Program *p, Pc pc, Arena *arena)
{
    Str s = str_in(arena);
    text_instr(plan, p, pc, arena, &s);
    Str one = str_in(arena);
    str_add(&one, "instruction");
    for (const char *word = str_text(&s); *word;) { /* replace the spaces between columns by a
                                                       single one */
        size_t n = strcspn(word, " \n");
        if (n > 0) str_print(&one, " %.*s", (int)n, word);
        word += n;
        while (*word == ' ' || *word == '\n') word++;
    }
    return str_text(&one);
}

Loc instr_loc(const Plan *plan, const Instr *in)
{
    Loc none = {NULL, 0};
    return in->origin ? plan->graph.nodes.at[in->origin].loc : none;
}
