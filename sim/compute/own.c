/* See own.h. */
#include "sim/compute/own.h"

#include <math.h>

#include "sim/compute/kernels.h"
#include "sim/runtime/runtime.h"

#define OP_any OP_none

const OwnFit *own_fit(const Runtime *runtime, const Device *device, OpKind op)
{
    static const OwnFit fits[OP_COUNT] = {
#define OWN(op, ...) [OP_##op] = {__VA_ARGS__},
#include "sim/compute/kernels_own.def"
    };
    if (!runtime_is_own(runtime) || !kernel_is_timed(device)) return NULL;
    return &fits[fits[op].part > 0 ? op : OP_any];
}

double own_memory_s(const Device *device, const OwnFit *fit, double rows, double bytes)
{
    return kernel_memory_s(device, bytes) / fit->part +
           rows * fit->row_us * 1e-6 / fmax(device->sms, 1);
}
