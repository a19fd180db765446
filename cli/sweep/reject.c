/* Rules out points by lower bounds of their memory and time, before they are compiled. */
#include <inttypes.h>
#include <sched.h>
#include <string.h>

#include "cli/sweep/point.h"
#include "session/bound.h"
#include "session/bound_layers.h"

/* Locks the list of best speeds. Returns false if another process holds the lock for too long: a
 * process that was killed never releases it. Without the list the search only takes longer, and its
 * result is the same. */
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

static double best_at(BestSpeeds *best, uint32_t place)
{
    if (!take_turn(best)) return 0;
    const double speed = best->tokens_per_s[place];
    atomic_flag_clear(&best->busy);
    return speed;
}

double best_least(BestSpeeds *best)
{
    return best_at(best, N_BEST - 1);
}

double best_most(BestSpeeds *best)
{
    return best_at(best, 0);
}

static bool reject(json_t *row, uint64_t bytes, const char *rule, const char *text)
{
    const Diagnostic why = {.rule = rule, .text = text};
    point_status(row, SWEEP_bounded, &why);
    json_count(row, "peak_bytes", bytes);
    return true;
}

/* Returns true if bounds of time hold for this point. They come from models of kernels, and
 * measured kernels may be faster. */
static bool is_timed(const PointJob *job, const Cli *one, Ps step_ps)
{
    return job->best != NULL && step_ps > 0 && one->options.machine == NULL;
}

/* Returns the tokens per second of a step that takes this time. */
static double speed_of(const Config *c, Ps step_ps)
{
    return (double)c->global_batch * (double)c->seq * PS_PER_S / (double)step_ps;
}

/* counts: the noun for what a step trains on, such as "tokens" */
static bool is_too_slow(const PointJob *job, Cli *one, double most, const char *counts, Ps step_ps,
                        uint64_t need, json_t *row)
{
    Arena *arena = one->arena;
    if (!is_timed(job, one, step_ps) || most >= best_least(job->best)) return false;
    return reject(row, need, "bound-time",
                  arena_print(arena,
                              "takes at least %s a step, so at most %s %s/s: %d other "
                              "points are faster",
                              format_time(arena, step_ps), str_count(arena, (uint64_t)most), counts,
                              N_BEST));
}

/* Rules out a point by the sum of weights, gradients, moments and activations of all ranks. */
static bool is_too_large(Cli *one, const Device *device, const Bounds *b, json_t *row)
{
    Arena *arena = one->arena;
    const uint64_t need = b->state_bytes + b->kept_bytes;
    const uint64_t usable = usable_bytes(device->memory_bytes, device->reserved_bytes);
    if (device->memory_bytes == 0 || need <= usable) return false;
    return reject(row, need, "bound-memory",
                  arena_print(arena,
                              "needs at least %s (state %s, activations kept for gradients "
                              "%s); %s are usable",
                              str_bytes(arena, need), str_bytes(arena, b->state_bytes),
                              str_bytes(arena, b->kept_bytes), str_bytes(arena, usable)));
}

/* Rules out a point by the bytes that one rank must hold at the same time. */
static bool is_too_full(Cli *one, uint64_t need, uint64_t usable, json_t *row)
{
    if (need <= usable) return false;
    return reject(row, need, "bound-memory",
                  arena_print(one->arena, "needs at least %s at one time; %s are usable",
                              str_bytes(one->arena, need), str_bytes(one->arena, usable)));
}

/* Rules out a point by the memory of a plan with fewer micro-batches. */
static bool shorter_decides(Cli *one, const Config *config, Graph *graph, const PlanOptions *load,
                            json_t *row)
{
    PlanOptions shorter = *load;
    shorter.fewer = bound_microbatches(config);
    shorter.by_period = shorter.unplaced = shorter.unproven = true;
    if (shorter.fewer == 0) return false;
    /* the plan of all micro-batches would report the same error */
    Diag ignored = diag_in(one->arena);
    const PlanFile *file = session_compile(config, graph, &shorter, one->arena, &ignored);
    if (file == NULL || file->plan->programs.n == 0) return false;
    const Capacity c = session_capacity(file, one->arena);
    return is_too_full(one, bound_bytes(file->plan, false),
                       usable_bytes(c.device_bytes, c.reserved_bytes), row);
}

/* Returns true if a close bound is worth its time. It is not if ten points are likely to be faster
 * than this one anyway. */
static bool is_worth_it(const PointJob *job, const Cli *one, double most, Ps step_ps)
{
    return !job->bounds_only || !is_timed(job, one, step_ps) || most >= best_least(job->likely);
}

/* Rules out a point by the time of plans with only a few layers. `step_ps` has the rough bound, and
 * receives the close one. */
static bool layers_decide(const PointJob *job, Cli *one, const Config *config, Graph *graph,
                          const PlanOptions *load, Ps *step_ps, json_t *row)
{
    LayerBounds b;
    const bool known = bound_layers(job->path, load, config, graph, one->arena, &b);
    if (known && b.step_ps > *step_ps) *step_ps = b.step_ps;
    if (is_too_slow(job, one, speed_of(config, *step_ps), graph_counts(graph), *step_ps, 0, row))
        return true;
    if (known && b.bytes > 0) {
        if (is_too_full(one, b.bytes, b.usable_bytes, row)) return true;
        if (b.step_ps > 0) best_enter(job->likely, speed_of(config, b.step_ps));
        return false;
    }
    return shorter_decides(one, config, graph, load, row);
}

bool bounds_known_decide(const PointJob *job, Cli *one, uint32_t index, json_t *row)
{
    if (job->bound == NULL) return false;
    const SweepRow *known = &job->bound[index];
    return is_too_slow(job, one, known->tokens_per_s, known->counts, known->step_ps,
                       known->peak_bytes, row);
}

bool bounds_decide(const PointJob *job, Cli *one, const Config *config, Graph *graph,
                   const PlanOptions *load, uint32_t index, json_t *row)
{
    const SweepRow *known = job->bound != NULL ? &job->bound[index] : NULL;
    Ps step_ps = known != NULL ? known->step_ps : 0;
    uint64_t need = known != NULL ? known->peak_bytes : 0;
    if (known == NULL) {
        const Bounds b = bounds_of(config, graph);
        need = b.state_bytes + b.kept_bytes;
        if (is_too_large(one, &config->cluster.device, &b, row)) return true;
        step_ps = bound_step_ps(config, graph);
        if (is_too_slow(job, one, speed_of(config, step_ps), graph_counts(graph), step_ps, need,
                        row))
            return true;
    }
    const bool tries = (known == NULL || !known->close) &&
                       is_worth_it(job, one, speed_of(config, step_ps), step_ps);
    if (tries && layers_decide(job, one, config, graph, load, &step_ps, row)) return true;
    if (!job->bounds_only) return false;
    point_status(row, SWEEP_open, NULL);
    if (tries) json_put(row, "close", json_true());
    json_count(row, "step_ps", (uint64_t)step_ps);
    json_count(row, "peak_bytes", need);
    json_put(row, "tokens_per_s", json_real(step_ps > 0 ? speed_of(config, step_ps) : 0));
    json_text(row, "counts", graph_counts(graph));
    return true;
}
