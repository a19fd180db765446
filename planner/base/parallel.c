#include "planner/base/parallel.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

enum { MOST_THREADS = 16 };

static uint32_t allowed = 1;

void parallel_allow(uint32_t n)
{
    allowed = n < 1 ? 1 : n > MOST_THREADS ? MOST_THREADS : n;
}

typedef struct SharedWork {
    void (*work)(void *self, uint32_t i);
    void *self;
    /* `next`: the smallest i for which no thread has called work(self, i) yet; changed
     * atomically */
    uint32_t n, next;
} SharedWork;

static void *take_calls(void *shared)
{
    SharedWork *s = shared;
    for (uint32_t i; (i = __atomic_fetch_add(&s->next, 1, __ATOMIC_RELAXED)) < s->n;)
        s->work(s->self, i);
    return NULL;
}

void parallel_for(uint32_t n, void (*work)(void *self, uint32_t i), void *self)
{
    SharedWork shared = {.work = work, .self = self, .n = n};
    pthread_t thread[MOST_THREADS];
    uint32_t n_threads = 0;
    const uint32_t others = (n < allowed ? n : allowed) - (n > 0);
    /* If the system refuses a thread, the loop ends, and the threads that exist share all calls. */
    while (n_threads < others && pthread_create(&thread[n_threads], NULL, take_calls, &shared) == 0)
        n_threads++;
    take_calls(&shared);
    for (uint32_t i = 0; i < n_threads; i++) pthread_join(thread[i], NULL);
}
