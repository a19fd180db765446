/* Writes a trace as JSON for chrome://tracing and Perfetto. Each rank is a "process", each stream a
 * "thread", and each instruction a "complete" event with start and duration. */
#include "planner/ir/trace.h"

#include <inttypes.h>
#include <string.h>

static bool wanted(Rank rank, const Rank *ranks, uint32_t n)
{
    if (!ranks) return true;
    for (uint32_t i = 0; i < n; i++)
        if (ranks[i] == rank) return true;
    return false;
}

/* Appends a time in microseconds, exactly: 1234567 ps as 1.234567. */
static void print_us(Str *out, Ps ps)
{
    if (ps < 0) str_add(out, "-");
    uint64_t n = ps < 0 ? 0 - (uint64_t)ps : (uint64_t)ps;
    str_print(out, "%" PRIu64 ".%06" PRIu64, n / 1000000, n % 1000000);
}

static void print_name(Str *out, const char *what, Rank rank, int stream, const char *name)
{
    str_print(out,
              "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%" PRIu32 ",\"tid\":%d,\"args\":{\"name\":",
              what, rank, stream);
    str_add_json(out, name);
    str_add(out, "}},\n");
}

static void print_tracks(const Plan *plan, const Rank *ranks, uint32_t n, const bool *has_rows,
                         Str *out)
{
    for (Rank rank = 0; rank < plan->mesh.n_ranks; rank++) {
        if (!has_rows[rank] || !wanted(rank, ranks, n)) continue;
        const Program *p = plan_program(plan, rank);
        bool used[STREAM_COUNT] = {false};
        for (Pc pc = 1; pc < p->code.n; pc++) used[p->code.at[pc].stream] = true;
        print_name(out, "process_name", rank, 0, arena_print(out->arena, "rank %" PRIu32, rank));
        for (int s = 0; s < STREAM_COUNT; s++)
            if (used[s]) print_name(out, "thread_name", rank, s, stream_name((Stream)s));
    }
}

/* Returns the part of the model that an instruction serves: the module of its node,
 * "layers.3.feed_forward.w2", or the unit that it gathers or reduces. NULL: none. */
static const char *place(const Plan *plan, const Instr *in)
{
    const Graph *g = &plan->graph;
    const Node *n = &g->nodes.at[in->origin];
    if (in->origin && n->module) return g->modules.at[n->module].path;
    return in->unit ? g->units.at[in->unit].name : NULL;
}

static void print_row(const Plan *plan, const TraceRow *row, Str *out)
{
    const Instr *in = program_instr(plan_program(plan, row->rank), row->pc);
    str_add(out, "{\"ph\":\"X\",\"name\":");
    str_add_json(out, op_info(in->op)->name);
    str_print(out, ",\"cat\":\"%s\",\"pid\":%" PRIu32 ",\"tid\":%d,\"ts\":", phase_name(in->phase),
              row->rank, (int)in->stream);
    print_us(out, row->start_ps);
    str_add(out, ",\"dur\":");
    print_us(out, row->end_ps - row->start_ps);
    str_print(out, ",\"args\":{\"pc\":%" PRIu32 ",\"microbatch\":%" PRIu32 ",\"bytes\":%" PRIu64,
              row->pc, in->microbatch, row->bytes);
    if (in->axes) {
        str_add(out, ",\"axes\":");
        str_add_json(out, mesh_axes_text(out->arena, &plan->mesh, in->axes));
    }
    const char *path = place(plan, in);
    if (path && *path) {
        str_add(out, ",\"module\":");
        str_add_json(out, path);
    }
    const Loc loc = in->origin ? plan->graph.nodes.at[in->origin].loc : (Loc){NULL, 0};
    if (loc.file) {
        str_add(out, ",\"at\":");
        str_add_json(out, arena_print(out->arena, "%s:%" PRIu32, loc.file, loc.line));
    }
    str_add(out, "}},\n");
}

/* False for a row that does not belong to this plan. Rows may come from a store that anybody can
 * write. */
static bool fits(const Plan *plan, const TraceRow *row)
{
    return row->rank < plan->mesh.n_ranks && row->pc && plan->program_of &&
           row->pc < plan_program(plan, row->rank)->code.n;
}

void trace_chrome(const Plan *plan, const Trace *trace, const Rank *ranks, uint32_t n_ranks,
                  Str *out)
{
    bool *has_rows = arena_array(out->arena, plan->mesh.n_ranks, sizeof *has_rows);
    for (uint32_t i = 0; i < trace->rows.n; i++)
        if (fits(plan, &trace->rows.at[i])) has_rows[trace->rows.at[i].rank] = true;
    str_add(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    print_tracks(plan, ranks, n_ranks, has_rows, out);
    for (uint32_t i = 0; i < trace->rows.n; i++) {
        const TraceRow *row = &trace->rows.at[i];
        if (fits(plan, row) && wanted(row->rank, ranks, n_ranks)) print_row(plan, row, out);
    }
    /* every event above ends with a comma, so a last one without a comma closes the list */
    str_print(out,
              "{\"ph\":\"M\",\"name\":\"tandem_step\",\"pid\":0,\"tid\":0,"
              "\"args\":{\"step\":%" PRIu32 "}}\n]}\n",
              trace->step);
}
