/* See spoiled.h. */
#include "tests/support/spoiled.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/verify/verify.h"

Spoiled spoiled_of(const Tiny *t, bool fp64)
{
    Spoiled s = {.arena = arena_new()};
    s.d = diag_in(s.arena);
    const Plan *plan = tiny_plan(t, fp64, s.arena, &s.d);
    assert_non_null(plan);
    s.plan = mutate_copy(plan, s.arena);
    s.p = &s.plan->programs.at[0];
    s.d = diag_in(s.arena);
    return s;
}

Spoiled spoiled_sharded(void)
{
    Tiny t = tiny_default();
    t.dp_shard = t.tp = 2;
    t.microbatches = 3;
    return spoiled_of(&t, false);
}

Spoiled spoiled_replicated(void)
{
    Tiny t = tiny_default();
    t.dp_replicate = t.tp = 2;
    t.microbatches = 3;
    return spoiled_of(&t, false);
}

Pc spoiled_find(const Spoiled *s, OpKind op, Stream stream, Phase phase, uint32_t mb)
{
    for (Pc pc = 1; pc < s->p->code.n; pc++) {
        const Instr *in = &s->p->code.at[pc];
        if (in->op == op && in->stream == stream && in->phase == phase && in->microbatch == mb)
            return pc;
    }
    fail_msg("the plan has no such instruction");
    return 0;
}

void spoil(Spoiled *s, MutationKind kind, Pc pc, uint32_t choice)
{
    s->plan = mutate(s->plan, (Mutation){kind, 0, pc, choice}, s->arena);
    s->p = &s->plan->programs.at[0];
}

Attrs spoiled_attrs(const Spoiled *s, Pc pc)
{
    return *graph_attrs_at(&s->plan->graph, s->p->code.at[pc].attrs);
}

void spoil_attrs(Spoiled *s, Pc pc, Attrs a)
{
    s->p->code.at[pc].attrs = (AttrsId)list_push(s->arena, &s->plan->graph.attrs, a);
}

static const char *all_text(Spoiled *s)
{
    Str text = str_in(s->arena);
    diag_print(&s->d, &text);
    return str_text(&text);
}

void spoiled_rejected(Spoiled *s, const char *rule, const char *text)
{
    bool found = false;
    assert_false(verify_plan(s->plan, VERIFY_all, false, &s->d));
    for (uint32_t i = 0; i < s->d.items.n; i++)
        if (strcmp(s->d.items.at[i].rule, rule) == 0 && strstr(s->d.items.at[i].text, text))
            found = true;
    if (!found) fail_msg("no %s that says \"%s\" in:\n%.3000s", rule, text, all_text(s));
    assert_int_equal(diag_exit_code(&s->d), 1);
    arena_free(s->arena);
}

void spoiled_accepted(Spoiled *s)
{
    if (!verify_plan(s->plan, VERIFY_all, false, &s->d)) fail_msg("%.3000s", all_text(s));
    arena_free(s->arena);
}
