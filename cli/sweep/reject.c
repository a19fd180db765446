/* Rejects points by lower bounds, before they are compiled. */
#include <inttypes.h>
#include <sched.h>
#include <string.h>

#include "cli/sweep/point.h"
#include "session/bound.h"

/* Locks the list of best speeds. Returns false if another process keeps the lock. A process that
 * was killed may keep it for ever. The search is right without the list; it only takes longer. */
static bool take_turn(BestSpeeds *best)
{
    enum { MOST_TRIES = 100000 };
    for (int i = 0; i < MOST_TRIES; i++) {
        if (!atomic_flag_test_and_set(&best->busy)) return true;
        sched_yield();
    }
    return false;
}

void best_enter(BestSpeeds *best, double tokens_per_s)
{
    if (best == NULL || !take_turn(best)) return;
    uint32_t at = N_BEST;
    while (at > 0 && best->tokens_per_s[at - 1] < tokens_per_s) at--;
    for (uint32_t i = N_BEST; i-- > at + 1;) best->tokens_per_s[i] = best->tokens_per_s[i - 1];
    if (at < N_BEST) best->tokens_per_s[at] = tokens_per_s;
    atomic_flag_clear(&best->busy);
}

static double least_of_best(BestSpeeds *best)
{
    if (!take_turn(best)) return 0;
    const double least = best->tokens_per_s[N_BEST - 1];
    atomic_flag_clear(&best->busy);
    return least;
}

static bool reject(json_t *row, uint64_t bytes, const char *rule, const char *text)
{
    const Diagnostic why = {.rule = rule, .text = text};
    point_status(row, SWEEP_bounded, &why);
    json_count(row, "peak_bytes", bytes);
    return true;
}

bool bounds_decide(const PointJob *job, Cli *one, const Config *config, const Graph *graph,
                   json_t *row)
{
    const Bounds b = bounds_of(config, graph);
    const Device *device = &config->cluster.device;
    Arena *arena = one->arena;
    const uint64_t need = b.state_bytes + b.kept_bytes;
    const uint64_t usable = device->memory_bytes > device->reserved_bytes
                                ? device->memory_bytes - device->reserved_bytes
                                : 0;
    if (device->memory_bytes > 0 && need > usable)
        return reject(row, need, "bound-memory",
                      arena_print(arena,
                                  "needs at least %s (state %s, activations kept for gradients "
                                  "%s); %s are usable",
                                  str_bytes(arena, need), str_bytes(arena, b.state_bytes),
                                  str_bytes(arena, b.kept_bytes), str_bytes(arena, usable)));
    /* Measured kernels may be faster than the kernel models of the time bound. */
    if (job->best != NULL && b.step_ps > 0 && one->options.machine == NULL) {
        const double tokens = (double)config->global_batch * (double)config->seq,
                     most = tokens * PS_PER_S / (double)b.step_ps;
        if (most < least_of_best(job->best))
            return reject(row, need, "bound-time",
                          arena_print(arena,
                                      "takes at least %s a step, so at most %s %s/s: %d other "
                                      "points are faster",
                                      format_time(arena, b.step_ps),
                                      str_count(arena, (uint64_t)most), graph_counts(graph),
                                      N_BEST));
    }
    if (!job->bounds_only) return false;
    point_status(row, SWEEP_open, NULL);
    json_count(row, "step_ps", (uint64_t)b.step_ps);
    return true;
}

bool shorter_decides(Cli *one, const Config *config, Graph *graph, const PlanOptions *load,
                     json_t *row)
{
    PlanOptions shorter = *load;
    shorter.fewer = bound_microbatches(config);
    shorter.unplaced = shorter.unproven = true;
    if (shorter.fewer == 0) return false;
    Diag told = diag_in(one->arena); /* the whole plan reports the same */
    const PlanFile *file = session_compile(config, graph, &shorter, one->arena, &told);
    if (file == NULL || file->plan->programs.n == 0) return false;
    const Capacity c = session_capacity(file, one->arena);
    const uint64_t need = bound_bytes(file->plan), usable = c.device_bytes > c.reserved_bytes
                                                                ? c.device_bytes - c.reserved_bytes
                                                                : 0;
    if (need <= usable) return false;
    return reject(row, need, "bound-memory",
                  arena_print(one->arena, "needs at least %s at one time; %s are usable",
                              str_bytes(one->arena, need), str_bytes(one->arena, usable)));
}
