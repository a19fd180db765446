/* Options of `tandem run` about checkpoints, and the lines that it prints about them. */
#include <inttypes.h>
#include <string.h>

#include "cli/run/run.h"
#include "planner/base/plural.h"

bool run_check_checkpoint(Cli *cli)
{
    const RunVerbOptions *o = &cli->options.run;
    const char *option = o->save_every > 0 ? "save-every" : o->keep > 0 ? "keep" : NULL;
    if (option != NULL && o->save == NULL)
        return cli_error(cli, FAULT_usage, "option-value", "--%s needs --save DIR", option);
    option = o->save != NULL ? "save" : o->load != NULL ? "load" : NULL;
    if (option != NULL && o->verify)
        return cli_error(cli, FAULT_usage, "option-value",
                         "--%s: --verify runs a smaller plan for one step; leave one of them out",
                         option);
    option = o->save != NULL && *o->save == 0   ? "save"
             : o->load != NULL && *o->load == 0 ? "load"
                                                : NULL;
    if (option != NULL)
        return cli_error(cli, FAULT_usage, "option-value", "--%s: a folder is expected", option);
    return true;
}

bool run_checkpoint_ready(Cli *cli, const PlanFile *file, uint32_t steps)
{
    RunVerbOptions *o = &cli->options.run;
    CheckpointInfo from = {.path = NULL};
    if (o->load != NULL && !checkpoint_find(o->load, file->plan, cli->arena, &from, &cli->diag))
        return false;
    if (o->load != NULL && !checkpoint_has_steps(&from, steps, o->save != NULL, &cli->diag))
        return false;
    if (o->load != NULL) o->load = from.path;
    return o->save == NULL || checkpoint_can_save(o->save, &from, cli->arena, &cli->diag);
}

CheckpointOptions run_checkpoint_options(const Cli *cli, const char *data)
{
    const RunVerbOptions *o = &cli->options.run;
    /* only the first process writes the manifest and prints warnings */
    const bool named = (o->save != NULL || o->load != NULL) && run_is_first();
    return (CheckpointOptions){.save = o->save,
                               .every = o->save_every,
                               .keep = o->keep,
                               .load = o->load,
                               .data = named ? checkpoint_data(data, cli->arena) : NULL,
                               .version = TANDEM_VERSION};
}

bool run_is_of_checkpoint(const Diagnostic *item)
{
    static const char prefix[] = "checkpoint-";
    return strncmp(item->rule, prefix, sizeof prefix - 1) == 0;
}

void run_checkpoint_warnings(Cli *cli)
{
    const Diag all = cli->diag;
    Diag others = diag_in(cli->arena);
    cli_forget_diagnostics(cli);
    for (uint32_t i = 0; i < all.items.n; i++) {
        const bool own = run_is_of_checkpoint(&all.items.at[i]);
        diag_add(own ? &cli->diag : &others, all.items.at[i]);
    }
    if (cli->diag.items.n > 0) cli_flush_diagnostics(cli);
    for (uint32_t i = 0; i < others.items.n; i++) diag_add(&cli->diag, others.items.at[i]);
}

void run_checkpoint_summary(Cli *cli, const ExecResult *result)
{
    const CheckpointInfo *from = &result->loaded, *to = &result->saved;
    if (cli->json != NULL) {
        json_count(cli->json, "first_step", from->step);
        json_text(cli->json, "loaded", from->path);
        json_text(cli->json, "saved", to->path);
        return;
    }
    if (from->path != NULL)
        str_print(&cli->out, "loaded      %s: after %" PRIu64 " step%s\n", from->path, from->step,
                  str_s(from->step));
    if (to->path != NULL)
        str_print(&cli->out, "saved       %s: %" PRIu32 " save%s, %s each\n", to->path,
                  result->n_saves, str_s(result->n_saves),
                  format_time(cli->arena, result->save_ps / result->n_saves));
}

const char *run_checkpoint_kept(const Cli *cli)
{
    const char *save = cli->options.run.save;
    const char *newest = save != NULL ? checkpoint_newest(save, cli->arena) : NULL;
    if (newest != NULL) return arena_print(cli->arena, "the newest checkpoint is %s", newest);
    return save != NULL && cli->options.run.save_every == 0
               ? "their weights are lost, because without --save-every only the end is saved"
               : "their weights are lost";
}
