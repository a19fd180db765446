/* Models devices that differ: some are slower than others, and the time of a kernel varies at
 * random. Both effects multiply the time that the kernel takes alone. The inner model then shares
 * the device as usual. Ranks must not be folded, so that each rank is a class. */
#include <assert.h>
#include <math.h>

#include "planner/base/rng.h"
#include "sim/sim.h"

struct SlowDevice {
    DeviceModel inner;
    const Fold *fold;
    Unevenness how;
    uint64_t *n_started; /* [class]: number of random numbers drawn so far */
};

SlowDevice *slow_device_new(DeviceModel inner, const Fold *fold, const Unevenness *how,
                            Arena *arena)
{
    SlowDevice *s = arena_alloc(arena, sizeof *s);
    *s = (SlowDevice){.inner = inner, .fold = fold, .how = *how};
    s->n_started = arena_array(arena, fold->n_classes, sizeof *s->n_started);
    return s;
}

/* Returns the factor of a kernel's time. The random part is lognormal with median 1: e^(sigma
 * z). */
static double factor_of(SlowDevice *s, uint32_t class_)
{
    double factor = 1;
    Rank rank = s->fold->rank_of[class_];
    if (s->how.straggler == rank && s->how.straggler_factor > 1) factor = s->how.straggler_factor;
    if (s->how.jitter > 0)
        factor *= exp(s->how.jitter * rng_normal(s->how.seed, rank + 1, s->n_started[class_]++));
    return factor;
}

static void job_start(void *self, uint32_t id, uint32_t class_, Ps alone, Ps now)
{
    SlowDevice *s = self;
    Ps longer = ps_of((double)alone * factor_of(s, class_));
    s->inner.start(s->inner.self, id, class_, longer, now);
}

static bool job_next(void *self, Ps now, bool settle, uint32_t *id, Ps *when)
{
    SlowDevice *s = self;
    return s->inner.next(s->inner.self, now, settle, id, when);
}

static void job_finish(void *self, uint32_t id, Ps now)
{
    SlowDevice *s = self;
    s->inner.finish(s->inner.self, id, now);
}

DeviceModel slow_device_model(SlowDevice *s)
{
    return (DeviceModel){job_start, job_next, job_finish, s, s->inner.is_host};
}
