/* Computes goodput under failures in two ways: by a closed formula, and by a simulation with random
 * failures. A run writes a checkpoint after each interval of work. A failure loses the work since
 * the last checkpoint. The restart takes time and can fail, too. The failures of a machine with n
 * nodes are a Poisson process with n times the rate of one node. The formulas are from J. T. Daly,
 * A higher order estimate of the optimum checkpoint interval for restart dumps, 2006. */
#include <assert.h>
#include <math.h>

#include "planner/base/rng.h"
#include "sim/sim.h"

/* Work of t seconds takes m e^(r/m) (e^((w + d)/m) - 1) t / w seconds of wall clock. All are in
 * seconds: w is the work between two checkpoints, d the time of a checkpoint, r the time of a
 * restart, m the mean time between failures. */
double faults_goodput(const Faults *f, double interval_s)
{
    assert(f->mtbf_s > 0);
    assert(interval_s > 0);
    double part = (interval_s + f->checkpoint_s) / f->mtbf_s;
    return interval_s / (f->mtbf_s * exp(f->restart_s / f->mtbf_s) * expm1(part));
}

/* Daly's estimate, with d and m as above: sqrt(2 d m) (1 + sqrt(d / 2m) / 3 + d / 18m) - d if d <
 * 2m, otherwise m. Without the two small terms it is Young's estimate. */
double faults_best_interval_s(const Faults *f)
{
    assert(f->mtbf_s > 0);
    double d = f->checkpoint_s, m = f->mtbf_s;
    if (d <= 0) return 1; /* checkpoints cost nothing, so one is written every second */
    if (d >= 2 * m) return m;
    double ratio = d / (2 * m);
    return sqrt(2 * d * m) * (1 + sqrt(ratio) / 3 + ratio / 9) - d;
}

/* Returns the seconds of wall clock that `work_s` seconds of work take, with failures drawn by
 * `seed`. */
double faults_draw_s(const Faults *f, double interval_s, double work_s, uint64_t seed)
{
    uint64_t draws = 0;
    double clock = 0, done = 0, next = 0;
    next = -f->mtbf_s * log1p(-rng_uniform(seed, 0, draws++));
    while (done < work_s) {
        double piece = fmin(interval_s, work_s - done);
        double ends = clock + piece + f->checkpoint_s;
        if (ends <= next) {
            clock = ends;
            done += piece;
            continue;
        }
        do { /* repeat until a restart succeeds */
            clock = next;
            next = clock - f->mtbf_s * log1p(-rng_uniform(seed, 0, draws++));
        } while (clock + f->restart_s > next);
        clock += f->restart_s;
    }
    return clock;
}
