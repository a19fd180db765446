/* Tests the number of cores that a process may use, before and after it is bound to one core. Also
 * tests whether ranks on one machine share cores: such ranks slow each other, so predictions and
 * reports need to know. */
#define _GNU_SOURCE /* sched_setaffinity */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sched.h>
#include <string.h>

#include "planner/base/cores.h"

static void a_bound_process_has_one_core(void **state)
{
    (void)state;
    const uint32_t online = cores_online();
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(cores_usable(), CPU_COUNT(&before));
    unsigned core = 0;
    while (!CPU_ISSET(core, &before)) core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    const uint32_t usable = cores_usable();
    const CoreSet set = cores_set();
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(usable, 1);
    assert_int_equal(cores_online(), online);
    for (unsigned k = 0; k < CORE_SET_WORDS; k++)
        assert_true(set.word[k] == (k == core / 64 ? UINT64_C(1) << core % 64 : 0));
}

/* Ranks are short of cores if they outnumber the cores that they may use. Two ranks bound to one
 * core are short. Two ranks on the same two cores are not, but a third rank there is. */
static void ranks_are_short_of_cores_if_they_outnumber_them(void **state)
{
    (void)state;
    const CoreSet first = {{1}}, last = {{[CORE_SET_WORDS - 1] = UINT64_C(1) << 63}};
    const CoreSet both = {{1, [CORE_SET_WORDS - 1] = UINT64_C(1) << 63}}, unknown = {{0}};
    assert_true(cores_are_short((const CoreSet[]){first, first}, 2));
    assert_false(cores_are_short((const CoreSet[]){first, last}, 2));
    assert_false(cores_are_short((const CoreSet[]){both, both}, 2));
    assert_true(cores_are_short((const CoreSet[]){both, first, last}, 3));
    assert_false(cores_are_short(&unknown, 1));
    CoreSet many[4096];
    memset(many, 0, sizeof many);
    const uint32_t n = cores_online() < 4096 ? cores_online() : 4095;
    assert_false(cores_are_short(many, n));
    if (n == cores_online()) assert_true(cores_are_short(many, n + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bound_process_has_one_core),
        cmocka_unit_test(ranks_are_short_of_cores_if_they_outnumber_them)};
    return cmocka_run_group_tests_name("core_set", tests, NULL, NULL);
}
