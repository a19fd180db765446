/* See slowest.h. */
#include "tests/support/slowest.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

bool slowest_note(Slowest *s, const char *name, double cpu_s)
{
    if (cpu_s > s->cpu_s) {
        s->cpu_s = cpu_s;
        snprintf(s->name, sizeof s->name, "%s", name);
    }
    return cpu_s <= SLOWEST_LIMIT_S;
}

void slowest_print(const Slowest *s, const char *group)
{
    printf("%s: slowest case: %.2f s of processor time: %s\n", group, s->cpu_s, s->name);
    fflush(stdout);
}

static double used_s(int whose)
{
    struct rusage use;
    if (getrusage(whose, &use) != 0) abort();
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

double slowest_own_s(void)
{
    return used_s(RUSAGE_SELF);
}

double slowest_children_s(void)
{
    return used_s(RUSAGE_CHILDREN);
}
