/* Prints the utilisation in other common conventions (--mfu). The step and the peak rate are the
 * same; only the FLOPs that count for a token differ. */
#include <math.h>
#include <string.h>

#include "cli/predict.h"
#include "sim/utilisation.h"

bool mfu_check(Cli *cli)
{
    MfuConvention convention;
    const char *name = cli->options.sim.mfu;
    if (name == NULL || strcmp(name, "all") == 0 || mfu_convention_find(name, &convention))
        return true;
    cli_error(cli, FAULT_usage, "option-value", "--mfu %s is not a convention", name);
    Str names = str_in(cli->arena);
    for (MfuConvention c = 0; c < MFU_CONVENTION_COUNT; c++)
        str_print(&names, "%s, ", mfu_convention_name(c));
    diag_hint(&cli->diag, "give one of %sall", str_text(&names));
    return false;
}

void mfu_report(Cli *cli, const PlanFile *file, const Prediction *p)
{
    const char *wanted = cli->options.sim.mfu, *formula;
    const double of_model = mfu_convention_flops(file->plan, MFU_model, &formula);
    json_t *list = json_array();
    for (MfuConvention c = 0; c < MFU_CONVENTION_COUNT; c++) {
        const char *name = mfu_convention_name(c);
        if (strcmp(wanted, "all") != 0 && strcmp(wanted, name) != 0) continue;
        const double flops = mfu_convention_flops(file->plan, c, &formula);
        const double share = of_model > 0 ? p->record.mfu * flops / of_model : 0;
        const bool known = flops > 0;
        if (!known) formula = "this convention has no formula for models on grids";
        if (cli->json != NULL) {
            json_t *row = json_object();
            json_text(row, "convention", name);
            json_number(row, "mfu", known ? share : NAN);
            json_number(row, "flops_per_token", known ? flops : NAN);
            json_text(row, "formula", formula);
            json_array_append_new(list, row);
        } else {
            const char *percent = known ? arena_print(cli->arena, "%.1f %%", share * 100) : "-";
            str_print(&cli->out, "            %s by %s: %s\n", percent, name, formula);
        }
    }
    if (cli->json != NULL)
        json_put(cli->json, "mfu_by", list);
    else
        json_decref(list);
}
