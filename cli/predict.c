/* Makes a prediction, with the size of its error and with warnings. */
#include "cli/predict.h"

#include <inttypes.h>
#include <string.h>

/* Adds the warnings that follow from the numbers of a simulation. */
static void warn_of(Cli *cli, const PlanFile *file, const PredictOptions *options,
                    const Predicted *made)
{
    if (made->host_bound) {
        diag_warning(
            &cli->diag, "host-bound", (Loc){NULL, 0},
            "the host needs more time to issue the instructions than the predicted step takes");
        diag_hint(&cli->diag, "use CUDA graphs, as the prediction assumes");
    }
    const CostCounts *counts = &made->counts;
    const bool is_here = options->cluster->is_local || strcmp(options->backend, "cuda") == 0;
    if (!is_here || counts->kernels_modelled == 0) return;
    diag_warning(&cli->diag, "not-calibrated", (Loc){NULL, 0},
                 "%" PRIu32 " of %" PRIu32
                 " kernels are not measured on this machine, so their costs come from %s model",
                 counts->kernels_modelled, counts->kernels_modelled + counts->kernels_measured,
                 options->cluster->is_local ? "a generic" : "the GPU's");
    diag_hint(&cli->diag, "`tandem calibrate %s` measures these kernels", file->path);
}

static bool is_infeasible(const Diag *d)
{
    for (uint32_t i = 0; i < d->items.n; i++)
        if (d->items.at[i].severity == SEVERITY_error && d->items.at[i].fault == FAULT_infeasible)
            return true;
    return false;
}

void predict_fits(Cli *cli, const PlanFile *file, const Prediction *prediction)
{
    const Runtime *runtime = &file->config.runtime;
    const Held *held = &prediction->held;
    if (runtime->name == NULL || held->fits || is_infeasible(&cli->diag)) return;
    cli_error(cli, FAULT_infeasible, "does-not-fit", "%s would need %s, but the device has %s",
              runtime->name, str_bytes(cli->arena, held->process_bytes),
              str_bytes(cli->arena, file->config.cluster.device.memory_bytes));
}

bool predict(Cli *cli, const PlanFile *file, Store *store, const PredictOptions *options,
             bool keep_unstored, Prediction *prediction)
{
    Predicted made;
    const bool fine = session_predict(file, store, options, cli->arena, &made, &cli->diag);
    prediction->aperiodic = made.aperiodic;
    if (!fine) return false;
    *prediction = (Prediction){.record = made.record,
                               .id = made.id,
                               .found = made.found,
                               .n_events = made.n_events,
                               .n_classes = made.n_classes};
    if (file->config.runtime.name != NULL)
        prediction->held = session_held_uneven(file, options->loads, options->imbalance);
    prediction->trust =
        trust_of(cli, options->cluster, &file->config.runtime, store, options->machine);
    if (made.found) {
        trust_load_counts(store, made.id, &prediction->trust, &cli->diag);
        return true;
    }
    warn_of(cli, file, options, &made);
    prediction->trust.counts = made.counts;
    if (store == NULL || !options->keep) return true;
    if (made.id != 0) return trust_store(store, made.id, &prediction->trust, &cli->diag);
    /* without the store the prediction can still be shown; the store's error was reported */
    return keep_unstored;
}
