/* Checks that the cluster's device can compute the format of float8{}. */
#include "planner/front/parent.h"

/* Checks that the device multiplies 8-bit operands together with their block scales (mxfp8, nvfp4)
 * in one instruction, as Blackwell does. A rate in peak_flops is not enough: a setting can give a
 * rate to any device. */
static void check_blocks(Draft *draft, const PassConfig *pass)
{
    const Device *device = &draft->config.cluster.device;
    const Float8Recipe recipe = pass->float8.recipe;
    const bool in_four = recipe == FLOAT8_nvfp4;
    const char *name = in_four ? "nvfp4" : "mxfp8";
    if (recipe != FLOAT8_mxfp8 && !in_four) return;
    if (device->block_scales && device->peak_flops[in_four ? DT_e2m1x2 : DT_e8m0] > 0) return;
    diag_error(draft->d, FAULT_input, "dtype-unsupported", pass->loc,
               "recipe = \"%s\" does not work on %s, which cannot multiply %s numbers", name,
               device->name != NULL ? device->name : "the device", name);
    if (device->peak_flops[DT_e4m3] > 0)
        diag_hint(draft->d,
                  "use recipe = \"rowwise\", or a Blackwell GPU for %s, as in clusters.hgx_b200",
                  name);
    else
        diag_hint(draft->d,
                  "leave out float8{}, or use a Blackwell GPU for %s, as in clusters.hgx_b200",
                  name);
}

/* float8{} needs a device with rates for both 8-bit types, e4m3 and e5m2. Its products are summed
 * in fp32, so precision.compute must not be fp64. */
void draft_check_float8(Draft *draft)
{
    const Config *c = &draft->config;
    const double *peak = c->cluster.device.peak_flops;
    for (uint32_t i = 0; i < c->n_passes; i++) {
        const PassConfig *pass = &c->passes[i];
        if (pass->name != PASS_float8) continue;
        if (c->compute == DT_f64) {
            diag_error(draft->d, FAULT_input, "dtype-unsupported", pass->loc,
                       "float8{} does not work with precision.compute = f64, because its products "
                       "are summed in fp32");
            diag_hint(draft->d, "precision.compute may be bf16, fp16 or fp32");
        }
        check_blocks(draft, pass);
        if (peak[DT_e4m3] > 0 && peak[DT_e5m2] > 0) continue;
        diag_error(draft->d, FAULT_input, "dtype-unsupported", pass->loc,
                   "float8{} does not work on %s, which has no rates for e4m3 and e5m2",
                   c->cluster.device.name != NULL ? c->cluster.device.name : "the device");
        diag_hint(draft->d, "leave out float8{}, or use a cluster with a newer GPU");
    }
}
