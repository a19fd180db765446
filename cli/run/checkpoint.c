/* The options of `tandem run` about checkpoints, and its lines about them. */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

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
                         "--%s: --verify runs a smaller plan for one step", option);
    if (option != NULL && (*(o->save != NULL ? o->save : o->load) == 0))
        return cli_error(cli, FAULT_usage, "option-value", "--%s: a folder is expected", option);
    return true;
}

bool run_checkpoint_ready(Cli *cli, const PlanFile *file, uint32_t steps)
{
    RunVerbOptions *o = &cli->options.run;
    CheckpointInfo from = {.path = NULL};
    if (o->load != NULL && !checkpoint_find(o->load, file->plan, cli->arena, &from, &cli->diag))
        return false;
    const bool over = from.step > steps, loads = o->load != NULL;
    const bool none = loads && from.step == steps && o->save == NULL;
    if (over || none)
        cli_error(cli, FAULT_usage, "checkpoint-steps",
                  "%s was saved after %" PRIu64 " steps, and the training has %" PRIu32, from.path,
                  from.step, steps);
    if (over || none)
        diag_hint(&cli->diag,
                  "--steps counts from the first step of the training: add --steps %" PRIu64
                  " or more",
                  from.step + 1);
    if (over || none) return false;
    if (loads) o->load = from.path;
    return o->save == NULL || checkpoint_may_save(o->save, &from, cli->arena, &cli->diag);
}

/* Names a file by its last name and size, so that it may lie elsewhere on another machine. */
static const char *data_text(const Cli *cli, const char *path)
{
    struct stat is;
    if (path == NULL) return "data drawn at random";
    const char *slash = strrchr(path, '/');
    if (stat(path, &is) != 0) return NULL;
    return arena_print(cli->arena, "the %" PRIu64 " bytes of %s", (uint64_t)is.st_size,
                       slash != NULL ? slash + 1 : path);
}

CheckpointOptions run_checkpoint_options(const Cli *cli, const char *data)
{
    const RunVerbOptions *o = &cli->options.run;
    return (CheckpointOptions){.save = o->save,
                               .every = o->save_every,
                               .keep = o->keep,
                               .load = o->load,
                               .data = data_text(cli, data),
                               .version = TANDEM_VERSION};
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
                  result->n_saves, result->n_saves == 1 ? "" : "s",
                  format_time(cli->arena, result->save_ps / result->n_saves));
}

const char *run_checkpoint_kept(const Cli *cli)
{
    const char *save = cli->options.run.save;
    const char *newest = save != NULL ? checkpoint_newest(save, cli->arena) : NULL;
    return newest != NULL ? arena_print(cli->arena, "the newest checkpoint is %s", newest)
                          : "their weights are lost";
}
