/* tandem accuracy --kernels FILE: predicts published kernels from their shapes, with the cost
 * models that the simulator uses. */
#include "cli/accuracy/accuracy.h"
#include "cli/accuracy/kernel_row.h"

static void score_row(const Csv *csv, RowOut *out)
{
    /* kept while the process runs, so that each device is loaded once */
    static KernelDevices devices;
    if (devices.arena == NULL) devices.arena = arena_new();
    KernelRow row;
    const char *why = kernel_row(&devices, csv, out->row, &row);
    if (why != NULL)
        row_reason(out, why);
    else
        row_score(out, row.what, row.measured_s, kernel_row_predicted_s(&row, NULL));
}

bool score_kernels(Cli *cli, const Csv *csv, Scores *scores)
{
    return jobs_run(csv, 1, "kernel", score_row, cli, scores);
}
