/* Predicts the time of a row of published kernels. */
#include "cli/accuracy/kernel_row.h"

static double products_s(const KernelRow *row, const GemmFit *fit)
{
    const Device *device = row->device;
    GemmFit gemm = fit != NULL ? *fit : *kernel_gemm_fit(device);
    /* on Ampere, power limits slow down long products by one factor, whatever data they multiply;
     * they do not slow down short products */
    const bool throttled = row->loops && device->light_power < 1;
    const Device lasting = kernel_sustained(device);
    double s = 0;
    if (row->block) {
        gemm.eight = gemm.block;
        gemm.stores_apart = true;
    }
    for (int i = 0; i < KERNEL_ROW_PRODUCTS && row->product[i][0] > 0; i++) {
        const double *p = row->product[i];
        GemmWork work = kernel_product(row->dtype, row->groups, p[0], p[1], p[2]);
        work.out_bytes = row->out_bytes;
        s += throttled ? cost_lasting_product_s(&lasting, &work, &gemm)
                       : cost_product_s(device, &work, &gemm);
    }
    return s * row->repeats + kernel_softmax_s(device, row->scores);
}

double kernel_row_predicted_s(const KernelRow *row, const KernelFit *fit)
{
    static const KernelFit own;
    if (fit == NULL) fit = &own;
    const Device *device = row->device;
    double s = row->n_kernels * device->kernel_floor_s + kernel_memory_s(device, row->bytes);
    s += products_s(row, fit->gemm);
    if (row->traffic.bytes > 0) s += kernel_traffic_s(device, &row->traffic, fit->traffic);
    for (int backward = 0; backward < 2 && row->attention.heads > 0; backward++) {
        if (!(backward ? row->backward : row->forward)) continue;
        AttentionWork work = row->attention;
        work.backward = backward;
        s += row->times * cost_attention_s(device, &work, fit->attention[backward]);
        work.causal = false;
        work.keys *= row->full_keys;
        if (row->times_full > 0)
            s += row->times_full * cost_attention_s(device, &work, fit->attention[backward]);
    }
    return s;
}
