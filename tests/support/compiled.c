/* See compiled.h. */
#include "tests/support/compiled.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static Arena *arena;
static Diag diag;

int compile_setup(void **state)
{
    (void)state;
    arena = arena_new();
    diag = diag_in(arena);
    return 0;
}

int compile_teardown(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

Arena *compile_arena(void)
{
    return arena;
}

Diag *compile_diag(void)
{
    return &diag;
}

Plan *compile(const Tiny *t)
{
    Plan *plan = tiny_plan(t, false, arena, &diag);
    Str s = str_in(arena);
    diag_print(&diag, &s);
    if (!plan) fail_msg("%s", str_text(&s));
    return plan;
}

const Diagnostic *compile_refused(const Tiny *t, void (*change)(Config *))
{
    Config config;
    Graph graph;
    tiny_build(t, arena, &config, &graph);
    if (change) change(&config);
    LowerOptions options = lower_options_default();
    diag = diag_in(arena);
    assert_null(plan_compile(&config, &graph, &options, NULL, arena, &diag));
    assert_true(diag.n_errors > 0);
    return &diag.items.at[0];
}

CommCount comm_count(const Plan *plan, OpKind op, AxisName axis)
{
    const Program *p = &plan->programs.at[0];
    AxisSet axes = mesh_axes(&plan->mesh, axis);
    CommCount c = {0, 0};
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (in->op != op || in->phase == PHASE_update || !in->axes || (in->axes & ~axes)) continue;
        c.n++;
        c.bytes += plan_comm_bytes(plan, p, in);
    }
    return c;
}

uint64_t padded_elements(const Plan *plan)
{
    uint64_t n = 0;
    for (UnitId u = 1; u < plan->graph.units.n; u++) n += plan->graph.units.at[u].padded;
    return n;
}
