/* What libraries are told before the first step: every product of the program, the last instruction
 * too where it is one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "exec/cuda/module.h"
#include "tests/cuda/double/double.h"
#include "tests/support/tiny.h"

static bool is_product(const Program *p, Pc pc)
{
    return op_info(p->code.at[pc].op)->class_ == OP_CLASS_contract;
}

static uint32_t prepared(Plan *plan, Arena *arena)
{
    Diag d = diag_in(arena);
    BackendOptions options = {.timeout_s = 5};
    double_begin("");
    Backend *backend = tandem_cuda_module.backend(arena, NULL);
    if (!backend->open(backend, plan, &options, &d)) {
        Str s = str_in(arena);
        diag_print(&d, &s);
        fail_msg("%s", str_text(&s));
    }
    backend->close(backend);
    return double_calls("cuda_products_prepare");
}

static void every_product_is_prepared(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Tiny t = tiny_default();
    Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    Program *p = &plan->programs.at[0];
    uint32_t n = 0;
    Pc last = 0;
    for (Pc pc = 1; pc < p->code.n; pc++)
        if (is_product(p, pc)) n++, last = pc;
    assert_in_range(n, 10, p->code.n);
    assert_int_equal(prepared(plan, arena), n);
    p->code.n = last + 1; /* the program ends with it */
    assert_int_equal(prepared(plan, arena), n);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_product_is_prepared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
