/* Libraries must get every product of the program before the first step, even if it is the last
 * instruction. They then choose algorithms and report products that they refuse. Also tests the
 * backend's requests to the driver. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "exec/cuda/module.h"
#include "exec/cuda/options.h"
#include "tests/cuda/double/double.h"
#include "tests/support/plans/tiny.h"

static bool is_product(const Program *p, Pc pc)
{
    return op_info(p->code.at[pc].op)->class_ == OP_CLASS_contract;
}

/* Opens and closes the backend; returns its messages. */
static const char *opened(const char *script, bool mma, Plan *plan, Arena *arena)
{
    Diag d = diag_in(arena);
    CudaOptions own = {.mma = mma};
    BackendOptions options = {.timeout_s = 5, .own = &own};
    Str s = str_in(arena);
    double_begin(script);
    Backend *backend = tandem_cuda_module.backend(arena, NULL);
    if (!backend->open(backend, plan, &options, &d)) diag_print(&d, &s);
    backend->close(backend);
    return str_text(&s);
}

static uint32_t prepared(Plan *plan, Arena *arena)
{
    assert_string_equal(opened("", false, plan, arena), "");
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
    p->code.n = last + 1; /* now the program ends with this product */
    assert_int_equal(prepared(plan, arena), n);
    arena_free(arena);
}

/* The driver is asked once, however many kernels are launched. It is not asked if no kernel needs
 * it. */
static void the_driver_is_asked_once(void **state)
{
    (void)state;
    static const struct {
        const char *script;
        bool mma;
        uint32_t times;
    } rows[] = {{"capability=90", false, 1},
                {"capability=90", true, 0},
                {"capability=80", false, 0},
                {"capability=100", false, 0}};
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Tiny t = tiny_default();
    Plan *plan = tiny_plan(&t, false, arena, &d);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_string_equal(opened(rows[i].script, rows[i].mma, plan, arena), "");
        assert_int_equal(double_calls("cudaGetDriverEntryPointByVersion"), rows[i].times);
    }
    const char *why =
        opened("capability=90 cudaGetDriverEntryPointByVersion@1=fail:801", false, plan, arena);
    assert_non_null(strstr(why, "cudaGetDriverEntryPointByVersion"));
    arena_free(arena);
}

/* If the library refuses a product, opening the backend warns of it. */
static void refused_products_are_warned_of(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena), said = diag_in(arena);
    Tiny t = tiny_default();
    Plan *plan = tiny_plan(&t, false, arena, &d);
    BackendOptions options = {.timeout_s = 5};
    double_begin("cuda_products_plain@1=fail:7");
    Backend *backend = tandem_cuda_module.backend(arena, NULL);
    assert_true(backend->open(backend, plan, &options, &said));
    backend->close(backend);
    assert_int_equal(said.items.n, 1);
    assert_int_equal(said.n_errors, 0);
    assert_string_equal(said.items.at[0].rule, "product-plain");
    assert_non_null(strstr(said.items.at[0].text, "rank 0: the plain kernel computes this product: "
                                                  "product 0: 7"));
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_product_is_prepared),
                                       cmocka_unit_test(the_driver_is_asked_once),
                                       cmocka_unit_test(refused_products_are_warned_of)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
