/* Calls that may run in parallel: each call is made once, and as many run at the same time as the
 * process allows threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

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

enum { MOST_LATE_S = 60 };

/* Counts the calls that run at once. Each call waits until `wanted` calls have begun. */
typedef struct Meeting {
    pthread_mutex_t lock;
    pthread_cond_t all_here;
    uint32_t wanted, begun, running, most; /* most: the largest number that ran at once */
    pthread_t caller;
    bool is_late, elsewhere; /* elsewhere: a call ran in another thread */
} Meeting;

static void meet(void *self, uint32_t i)
{
    Meeting *m = self;
    struct timespec until;
    (void)i;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += MOST_LATE_S;
    pthread_mutex_lock(&m->lock);
    m->begun++;
    m->running++;
    if (m->running > m->most) m->most = m->running;
    m->elsewhere = m->elsewhere || !pthread_equal(pthread_self(), m->caller);
    if (m->begun >= m->wanted) pthread_cond_broadcast(&m->all_here);
    while (m->begun < m->wanted && !m->is_late)
        m->is_late = pthread_cond_timedwait(&m->all_here, &m->lock, &until) != 0;
    m->running--;
    pthread_mutex_unlock(&m->lock);
}

static Meeting meeting_of(uint32_t wanted, uint32_t threads, uint32_t calls)
{
    Meeting m = {.lock = PTHREAD_MUTEX_INITIALIZER,
                 .all_here = PTHREAD_COND_INITIALIZER,
                 .wanted = wanted,
                 .caller = pthread_self()};
    parallel_allow(threads);
    parallel_for(calls, meet, &m);
    parallel_allow(1);
    return m;
}

/* Each of the first `n` calls ends only when all of them have begun. */
static void as_many_calls_run_at_once_as_are_allowed(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 4; n++) {
        const Meeting m = meeting_of(n, n, 40);
        assert_false(m.is_late);
        assert_int_equal(m.begun, 40);
        assert_int_equal(m.most, n);
        assert_int_equal(m.elsewhere, n > 1);
    }
}

/* One call needs no thread of its own. */
static void a_single_call_runs_in_its_caller(void **state)
{
    (void)state;
    assert_false(meeting_of(1, 4, 1).elsewhere);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_is_made_once),
        cmocka_unit_test(as_many_calls_run_at_once_as_are_allowed),
        cmocka_unit_test(a_single_call_runs_in_its_caller),
    };
    return cmocka_run_group_tests_name("shared work", tests, NULL, NULL);
}
