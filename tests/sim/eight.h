/* One node of eight H100 whose kernels need no launch, so that their times follow from their work
 * alone. */
#ifndef TANDEM_TESTS_SIM_EIGHT_H
#define TANDEM_TESTS_SIM_EIGHT_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "planner/front/config.h"
#include "sim/sim.h"

static inline Cluster eight_h100(void)
{
    Cluster c = {.name = "node", .nodes = 1, .devices_per_node = 8, .intra = FABRIC_nvswitch};
    c.intra_bytes_per_s = 450e9;
    c.device = (Device){.name = "H100", .arch = "Hopper", .sms = 132, .hbm_bytes_per_s = 3.35e12};
    for (int t = 1; t < DT_COUNT; t++) c.device.peak_flops[t] = 989e12;
    c.device.memory_bytes = UINT64_C(80) << 30;
    return c;
}

/* Asserts that `longer` is `factor` times `time`, except for rounding: up to one picosecond for
 * each kernel. */
static inline void assert_times(Ps longer, Ps time, double factor)
{
    enum { KERNELS = 64 };
    if (llabs((long long)longer - llround((double)time * factor)) > KERNELS)
        fail_msg("%lld is not %g x %lld", (long long)longer, factor, (long long)time);
}

#endif
