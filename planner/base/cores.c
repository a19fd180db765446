/* Asks Linux for the number of processor cores, and for the set of cores that this process may
 * use. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "planner/base/cores.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

uint32_t cores_online(void)
{
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}

CoreSet cores_set(void)
{
    CoreSet set;
    cpu_set_t own;
    memset(&set, 0, sizeof set);
    if (sched_getaffinity(0, sizeof own, &own) != 0)
        return set; /* the system refuses, because the machine has more cores than `own` has bits */
    for (unsigned k = 0; k < CORE_SET_WORDS * 64 && k < CPU_SETSIZE; k++)
        if (CPU_ISSET(k, &own)) set.word[k / 64] |= UINT64_C(1) << k % 64;
    return set;
}

static uint32_t count(const CoreSet *set)
{
    uint32_t n = 0;
    for (int k = 0; k < CORE_SET_WORDS * 64; k++) n += (uint32_t)(set->word[k / 64] >> k % 64 & 1);
    return n;
}

uint32_t cores_usable(void)
{
    const CoreSet set = cores_set();
    const uint32_t n = count(&set);
    return n > 0 ? n : cores_online();
}

bool cores_are_short(const CoreSet *all, uint32_t n)
{
    CoreSet together;
    bool known = true;
    memset(&together, 0, sizeof together);
    for (uint32_t i = 0; i < n; i++) {
        known = known && count(&all[i]) > 0;
        for (int k = 0; k < CORE_SET_WORDS; k++) together.word[k] |= all[i].word[k];
    }
    return n > (known ? count(&together) : cores_online());
}
