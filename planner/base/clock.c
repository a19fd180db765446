/* The monotonic clock. */
#include "planner/base/clock.h"

#include <time.h>

int64_t clock_ps(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return ((int64_t)t.tv_sec * 1000000000 + (int64_t)t.tv_nsec) * 1000;
}

double clock_s(void)
{
    return (double)clock_ps() / 1e12;
}
