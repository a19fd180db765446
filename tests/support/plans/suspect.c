/* See suspect.h. */
#include "tests/support/plans/suspect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/verify/verify.h"
#include "tests/support/plans/mutate.h"

Suspect suspect_of(const Tiny *t)
{
    Suspect s = {.arena = arena_new()};
    Diag d = diag_in(s.arena);
    const Plan *plan = tiny_plan(t, false, s.arena, &d);
    Str text = str_in(s.arena);
    diag_print(&d, &text);
    if (!plan) fail_msg("%s", str_text(&text));
    s.plan = mutate_copy(plan, s.arena);
    s.p = &s.plan->programs.at[0];
    return s;
}

const char *suspect_verdict(const Suspect *s)
{
    Diag d = diag_in(s->arena);
    Str text = str_in(s->arena);
    verify_plan(s->plan, VERIFY_all, false, &d);
    diag_print(&d, &text);
    return str_text(&text);
}

void suspect_is_refused(const Suspect *s, const char *says)
{
    const char *verdict = suspect_verdict(s);
    if (!strstr(verdict, says)) fail_msg("does not say \"%s\": %.2000s", says, verdict);
}
