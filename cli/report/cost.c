/* tandem sim --tokens: predicts how long a whole training takes at the predicted speed, and what it
 * costs. The price comes from --price, or else from the library (scripts/clusters/node.lua gives
 * its date). For a cluster without a price only the hours are printed. */
#include "cli/predict.h"

double price_of(const Cli *cli, const Cluster *cluster)
{
    return cli->options.price_usd >= 0 ? cli->options.price_usd : cluster->device.usd_per_hour;
}

double joules_per_token_of(const Cli *cli, const Cluster *cluster, double tokens_per_s_per_device)
{
    return tokens_per_s_per_device > 0
               ? cluster->device.watts * cli->options.pue / tokens_per_s_per_device
               : 0;
}

void energy_report(Cli *cli, const PlanFile *file, const Prediction *p, double goodput)
{
    const Device *device = &file->config.cluster.device;
    const RunRecord *r = &p->record;
    const double speed = r->tokens_per_s_per_device,
                 joules = joules_per_token_of(cli, &file->config.cluster, speed);
    if (!(joules > 0)) {
        if (cli->options.pue_text == NULL) return;
        cli_error(cli, FAULT_usage, "option-value", "--pue: the power of a %s is not known",
                  device->name != NULL ? device->name : "device");
        diag_hint(&cli->diag, "add for example --set cluster.device.watts=700");
        return;
    }
    const double step_s = (double)r->step_ps / (double)PS_PER_S,
                 kwh = device->watts * cli->options.pue * r->n_ranks * step_s / 3.6e6,
                 mwh = joules * cli->options.tokens / 3.6e9 / goodput;
    if (cli->json != NULL) {
        json_t *root = json_object();
        json_number(root, "watts_per_device", device->watts);
        json_number(root, "pue", cli->options.pue);
        json_number(root, "joules_per_token", joules);
        json_number(root, "kwh_per_step", kwh);
        json_put(root, "mwh", mwh > 0 ? json_real(mwh) : json_null());
        json_put(cli->json, "energy", root);
        return;
    }
    str_print(&cli->out, "energy      %.4g kWh a step, ", kwh);
    if (mwh > 0) str_print(&cli->out, "%.4g MWh in all, ", mwh);
    str_print(&cli->out, "if each board takes its limit of %.4g W; PUE %.4g\n", device->watts,
              cli->options.pue);
}

void training_report(Cli *cli, const PlanFile *file, const Prediction *p, double goodput)
{
    const RunRecord *r = &p->record;
    double speed = r->tokens_per_s_per_device * r->n_ranks * goodput;
    if (!(speed > 0)) return;
    double seconds = cli->options.tokens / speed, gpu_hours = seconds / 3600 * r->n_ranks;
    double steps = cli->options.tokens * (double)PS_PER_S * goodput / (speed * (double)r->step_ps);
    double price = price_of(cli, &file->config.cluster), usd = gpu_hours * price;
    if (cli->json != NULL) {
        json_t *root = json_object();
        json_number(root, "tokens", cli->options.tokens);
        json_number(root, "steps", steps);
        json_number(root, "seconds", seconds);
        json_number(root, "device_hours", gpu_hours);
        json_number(root, "goodput", goodput);
        json_put(root, "usd_per_device_hour", price > 0 ? json_real(price) : json_null());
        json_put(root, "usd", price > 0 ? json_real(usd) : json_null());
        json_put(cli->json, "training", root);
        return;
    }
    Arena *arena = cli->arena;
    str_print(&cli->out, "training    %.4g %s: %s steps, %.1f days, %s GPU hours",
              cli->options.tokens, plan_file_counts(file), str_count(arena, (uint64_t)(steps + .5)),
              seconds / 86400, str_count(arena, (uint64_t)(gpu_hours + .5)));
    if (price > 0)
        str_print(&cli->out, ", %s USD at %.2f an hour", str_count(arena, (uint64_t)(usd + .5)),
                  price);
    str_print(&cli->out, "%s\n", goodput < 1 ? ", failures included" : "");
}
