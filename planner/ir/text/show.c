/* Prints programs for people (`tandem show`). text.c prints the exact text. */
#include <inttypes.h>
#include <string.h>

#include "planner/ir/text/text.h"

static const char *short_phase(Phase p)
{
    static const char *const names[PHASE_COUNT] = {"", "start", "fwd", "redo", "bwd", "upd"};
    return names[p];
}

static void show_buffer(const Plan *plan, const Program *p, BufferId id, bool with_dims, Str *out)
{
    const Buffer *b = &p->buffers.at[id];
    const Shape *s = plan_shape_at(plan, b->shape);
    const char *name = b->tensor ? plan->graph.tensors.at[b->tensor].name
                       : b->unit ? plan->graph.units.at[b->unit].name
                                 : "";
    str_print(out, " %%%u%s%s", id, *name ? ":" : "", name);
    if (!with_dims) return;
    str_add(out, "[");
    for (int d = 0; d < s->n_dims; d++)
        str_print(out, "%s%" PRId64, d ? "," : "",
                  shape_local_dim(s, &plan->mesh, &plan->graph.deals, d));
    str_print(out, "] %s", dtype_name(b->dtype));
}

static void show_group(const Plan *plan, const Program *p, const Instr *in, Str *out)
{
    if (in->axes) str_print(out, " %s", mesh_axes_text(out->arena, &plan->mesh, in->axes));
    if (in->hop) str_print(out, " hop %" PRId32, in->hop);
    for (uint32_t i = 0; i < in->args.n; i++) {
        if (i == in->n_in) str_add(out, " ->");
        show_buffer(plan, p, program_arg(p, in, i), false, out);
    }
    str_print(out, " %" PRIu64, plan_comm_bytes(plan, p, in));
}

static void show_compute(const Plan *plan, const Program *p, const Instr *in, Str *out)
{
    for (uint32_t i = 0; i < in->args.n; i++) {
        if (i == in->n_in) str_add(out, " ->");
        show_buffer(plan, p, program_arg(p, in, i), true, out);
    }
}

static void show_attrs(const Attrs *attrs, Str *out)
{
#define SHOW_double(name)                                                                          \
    if (attrs->name != 0) str_print(out, " " #name " %g", attrs->name);
#define SHOW_int64_t(name)                                                                         \
    if (attrs->name != 0) str_print(out, " " #name " %" PRId64, attrs->name);
#define X(type, name) SHOW_##type(name)
    ATTRIBUTES(X)
#undef X
    const uint32_t pairs = attr_rope_pairs(attrs);
    if (pairs) /* up to 64 factors, so only the first and the last are shown */
        str_print(out, " rope_pair %g to %g", attrs->rope_pair[0], attrs->rope_pair[pairs - 1]);
}

static void show_origin(const Plan *plan, const Instr *in, Str *out)
{
    const Graph *g = &plan->graph;
    const Node *n = &g->nodes.at[in->origin];
    const Loc loc = in->origin ? n->loc : (Loc){NULL, 0};
    if (loc.file) str_print(out, "  %s:%u", loc.file, loc.line);
    if (in->origin && n->module)
        str_print(out, " %s", g->modules.at[n->module].path);
    else if (in->unit)
        str_print(out, "  unit %s", g->units.at[in->unit].name);
}

void text_instr(const Plan *plan, const Program *p, Pc pc, Arena *scratch, Str *out)
{
    const Instr *in = program_instr(p, pc);
    Str line = str_in(scratch);
    str_print(&line, "%6u %-12s %-16s", pc, stream_name(in->stream), op_info(in->op)->name);
    if (op_info(in->op)->class_ == OP_CLASS_comm)
        show_group(plan, p, in, &line);
    else
        show_compute(plan, p, in, &line);
    show_attrs(graph_attrs_at(&plan->graph, in->attrs), &line);
    for (uint32_t i = 0; i < in->after.n; i++)
        str_print(&line, "%s%u", i ? "," : "  after ", p->after.at[in->after.first + i]);
    if (in->match) str_print(&line, "  match %u", in->match);
    if (in->launch) str_print(&line, "  launch %u", in->launch);
    if (in->fuse) str_print(&line, "  kernel %u", in->fuse);
    str_print(&line, "  mb%u %s", in->microbatch, short_phase(in->phase));
    show_origin(plan, in, &line);
    str_add(out, str_text(&line));
}

/* Appends the ranks that run the program, such as "0-7,16-23". */
static void show_ranks(const Plan *plan, uint32_t program, Str *out)
{
    const uint32_t n = plan->program_of ? plan->mesh.n_ranks : 0;
    const char *comma = "";
    for (Rank first = 0, next; first < n; first = next) {
        for (next = first + 1; next < n; next++)
            if (plan->program_of[next] != plan->program_of[first]) break;
        if (plan->program_of[first] != program) continue;
        str_print(out, next - first > 1 ? "%s%u-%u" : "%s%u", comma, first, next - 1);
        comma = ",";
    }
}

static void show_categories(const Program *p, Str *out)
{
    uint64_t bytes[CATEGORY_COUNT] = {0};
    uint32_t n[CATEGORY_COUNT] = {0};
    for (BufferId i = 1; i < p->buffers.n; i++) {
        const Buffer *b = &p->buffers.at[i];
        if (b->parent) continue;
        bytes[b->category] += b->bytes;
        n[b->category]++;
    }
    for (int c = 0; c < CATEGORY_COUNT; c++)
        if (n[c])
            str_print(out, "  %-14s %8u buffers %20s bytes in all\n", category_name((Category)c),
                      n[c], str_count(out->arena, bytes[c]));
}

static void show_program(const Plan *plan, uint32_t index, Arena *scratch, Str *out)
{
    static const char *const purposes[] = {"train", "eval", "gather"};
    const Program *p = &plan->programs.at[index];
    str_print(out, "program %u  %s  stage %u  ranks ", index, purposes[p->purpose], p->stage);
    show_ranks(plan, index, out);
    str_print(out, "  bytes %" PRIu64, p->bytes);
    if (p->host_bytes) str_print(out, "  host %" PRIu64, p->host_bytes);
    str_print(out, "  instructions %u\n", p->code.n ? p->code.n - 1 : 0);
    show_categories(p, out);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        text_instr(plan, p, pc, scratch, out);
        str_add(out, "\n");
    }
}

void text_show(const Plan *plan, uint32_t program, Arena *scratch, Str *out)
{
    for (uint32_t i = 0; i < plan->programs.n; i++)
        if (program == UINT32_MAX || program == i) show_program(plan, i, scratch, out);
}
