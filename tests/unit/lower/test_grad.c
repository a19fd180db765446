/* If several ops read one activation, its gradient is a sum of their parts. An op that cannot add
 * to its output must first write its part elsewhere, or it would overwrite the other parts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/lower/compile.h"
#include "planner/verify/verify.h"
#include "tests/support/loaded.h"

/* silu reads the output of unit a in fp32, and unit b casts it to bf16. In the backward pass, the
 * gradient of the cast arrives when that of silu exists already. */
static void an_op_that_cannot_add_writes_elsewhere(void **state)
{
    (void)state;
    const FrontOptions options = {0};
    Loaded l = load_text(
        "local nn = require 'tandem.nn'\n"
        "return plan { model = nn.module { e = nn.embedding(32, 16), a = nn.linear(16, 16),\n"
        "b = nn.linear(16, 16), o = nn.linear(16, 32), forward = function(m, x, y)\n"
        "local u = m.a(m.e(x))\n"
        "return nn.cross_entropy(m.o(m.b(u) + nn.silu(u)), y) end },\n"
        "batch = { global = 8, micro = 4, seq = 64 }, mesh = { dp_shard = 2 },\n"
        "parallel = { fsdp2 { units = { 'a', 'b', 'o' },\n"
        "mp = { param = 'bf16', reduce = 'fp32', output = 'fp32' } } } }\n",
        &options);
    if (!l.fine) fail_msg("%s", l.errors);
    Diag d = diag_in(l.arena);
    LowerOptions lower = lower_options_default();
    const Plan *plan = plan_compile(&l.config, &l.graph, &lower, NULL, l.arena, &d);
    assert_non_null(plan);
    if (!verify_plan(plan, VERIFY_all, false, &d)) fail_msg("%s", d.items.at[0].text);
    uint32_t n_casts = 0;
    const Program *p = &plan->programs.at[0];
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        n_casts += in->op == OP_cast && in->phase == PHASE_backward;
    }
    assert_true(n_casts >= 3);
    arena_free(l.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_op_that_cannot_add_writes_elsewhere)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
