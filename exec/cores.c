/* Reads three counters of Linux: how long each process ran, how long it was ready but had no core,
 * and how long the cores of the machine were busy. */
#include "exec/cores.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "planner/base/clock.h"
#include "planner/base/cores.h"
#include "planner/base/str.h"

/* shortest period that is measured; the machine's counters advance only about every 10 ms */
enum { SHORTEST_NS = 200000000 };

static bool read_process(CoreTime *now)
{
    FILE *file = fopen("/proc/self/schedstat", "r");
    if (file == NULL) return false;
    int n = fscanf(file, "%" SCNd64 " %" SCNd64, &now->ran, &now->waited);
    fclose(file);
    return n == 2;
}

/* Reads the counters of the machine: user nice system idle iowait irq softirq steal. All except
 * idle and iowait are busy time. */
static bool read_machine(CoreTime *now)
{
    int64_t t[8];
    long ticks = sysconf(_SC_CLK_TCK);
    FILE *file = fopen("/proc/stat", "r");
    if (file == NULL) return false;
    int n = fscanf(file,
                   "cpu %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64
                   " %" SCNd64 " %" SCNd64,
                   &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]);
    fclose(file);
    if (n != 8 || ticks <= 0) return false;
    now->busy = (t[0] + t[1] + t[2] + t[5] + t[6] + t[7]) * (INT64_C(1000000000) / ticks);
    return now->busy > 0;
}

bool cores_now(CoreTime *now)
{
    memset(now, 0, sizeof *now);
    now->at = clock_ps() / 1000;
    return read_process(now) && read_machine(now);
}

CoreShare cores_share(const CoreTime *before, const CoreTime *after)
{
    char host[256] = {0};
    CoreShare share;
    memset(&share, 0, sizeof share);
    if (after->at - before->at < SHORTEST_NS) return share;
    if (gethostname(host, sizeof host - 1) != 0) return share;
    share.time = (CoreTime){after->at - before->at, after->ran - before->ran,
                            after->waited - before->waited, after->busy - before->busy};
    share.host = hash_bytes(host, strlen(host)).lo;
    share.cores = cores_online();
    return share;
}

CoreUse cores_use(const CoreShare *all, uint32_t n)
{
    CoreUse use = {0, 0, 0, 0};
    for (uint32_t i = 0; i < n; i++) {
        const CoreShare *one = &all[i];
        if (one->cores == 0) return (CoreUse){0, 0, 0, 0};
        const double wall = (double)one->time.at;
        bool first = true; /* this is the first process of its machine, so the machine is counted
                              now */
        for (uint32_t k = 0; k < i; k++) first = first && all[k].host != one->host;
        use.running += (double)one->time.ran / wall;
        use.ready += (double)(one->time.ran + one->time.waited) / wall;
        if (!first) continue;
        use.cores += (uint32_t)one->cores;
        use.others += (double)one->time.busy / wall;
    }
    use.others = use.others > use.running ? use.others - use.running : 0;
    return use;
}
