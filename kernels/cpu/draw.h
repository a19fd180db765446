/* Random numbers that kernels draw again whenever they are asked: functions of (seed, step,
 * micro-batch, place in the model, global element). No sharding, order of execution or
 * recomputation changes them. */
#ifndef TANDEM_KERNELS_CPU_DRAW_H
#define TANDEM_KERNELS_CPU_DRAW_H

#include "kernels/cpu/cpu.h"
#include "planner/base/rng.h"

typedef struct Draw {
    uint64_t seed, stream;
    double drop;
} Draw;

/* Of an instruction: attrs.drop, attrs.site. */
Draw cpu_draw(const KernelArgs *a);
static inline bool draw_keeps(const Draw *d, int64_t global_element)
{
    return rng_uniform(d->seed, d->stream, (uint64_t)global_element) >= d->drop;
}

#endif
