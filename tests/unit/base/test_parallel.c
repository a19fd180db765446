/* Every call is made once, however many threads a process allows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/base/parallel.h"

enum { N = 1000 };

typedef struct Calls {
    uint32_t of[N];
} Calls;

static void note(void *self, uint32_t i)
{
    Calls *calls = self;
    calls->of[i]++;
}

static void every_call_is_made_once(void **state)
{
    (void)state;
    static const uint32_t threads[] = {0, 1, 3, 1000}, n[] = {0, 1, 2, 17, N};
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++)
        for (size_t k = 0; k < sizeof n / sizeof *n; k++) {
            Calls calls = {{0}};
            parallel_allow(threads[t]);
            parallel_for(n[k], note, &calls);
            for (uint32_t i = 0; i < N; i++) assert_int_equal(calls.of[i], i < n[k]);
        }
    parallel_allow(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_is_made_once),
    };
    return cmocka_run_group_tests_name("shared work", tests, NULL, NULL);
}
