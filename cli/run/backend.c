/* Chooses the backend of a run and the backend's options. Also determines how plans are lowered for
 * it, and under which name measurements of this machine are stored. */
#include <inttypes.h>
#include <string.h>

#include "cli/run/run.h"
#include "exec/cuda/module.h"
#include "exec/cuda/options.h"
#include "exec/module/modules.h"

const char *run_backend(const Cli *cli)
{
    return cli->options.run.backend ? cli->options.run.backend : "mpi";
}

bool run_on(const Cli *cli, const char *backend)
{
    return strcmp(run_backend(cli), backend) == 0;
}

/* Finds the index of `word` in a list of words. NULL gives 0. Returns false after a diagnostic. */
static bool choose(Cli *cli, const char *option, const char *word, const char *const *words,
                   uint32_t n, uint32_t *choice)
{
    *choice = 0;
    if (word == NULL) return true;
    for (uint32_t i = 0; i < n; i++)
        if (words[i] != NULL && strcmp(words[i], word) == 0) {
            *choice = i;
            return true;
        }
    Str all = str_in(cli->arena);
    for (uint32_t i = 0; i < n; i++)
        if (words[i] != NULL) str_print(&all, "%s%s", all.n > 0 ? ", " : "", words[i]);
    cli_error(cli, FAULT_usage, "option-value", "--%s %s: this version has %s", option, word,
              str_text(&all));
    const char *near = str_nearest(word, words + (words[0] == NULL), n - (words[0] == NULL));
    if (near != NULL) diag_hint(&cli->diag, "did you mean %s?", near);
    return false;
}

static bool is_given(const Cli *cli, int id)
{
    const BackendValue *value = &cli->options.run.backend_values[id];
    return value->is_set || value->text != NULL;
}

/* Stores the value of an option that belongs to the backend. Returns false after a diagnostic. */
static bool read_own(Cli *cli, int id, void *own)
{
    const BackendOption *option = &backend_options[id];
    const BackendValue *value = &cli->options.run.backend_values[id];
    uint32_t unused, n = 0;
    if (backend_set_option(option, value, own)) return true;
    if (option->kind == BACKEND_KIND_word) {
        while (option->words[n] != NULL) n++;
        const char **words = arena_array(cli->arena, n, sizeof *words);
        for (uint32_t i = 0; i < n; i++) words[i] = option->words[i][0] ? option->words[i] : NULL;
        return choose(cli, option->name, value->text, words, n, &unused);
    }
    return cli_error(cli, FAULT_usage, "option-value",
                     "--%s %s: a whole number from %" PRIu32 " to %" PRIu32 " is expected",
                     option->name, value->text, option->least, option->most);
}

static void *read_own_options(Cli *cli, const char *backend, bool *fine)
{
    void *own = backend_own_options(backend, cli->arena);
    *fine = true;
    for (int id = 0; id < BACKEND_OPTION_COUNT && own != NULL; id++)
        if (strcmp(backend_options[id].backend, backend) == 0)
            *fine = read_own(cli, id, own) && *fine;
    return own;
}

bool run_check_backend(Cli *cli)
{
    const Options *o = &cli->options;
    uint32_t unused, n = 0;
    while (backend_name(n) != NULL) n++;
    const char **names = arena_array(cli->arena, n, sizeof *names);
    for (uint32_t i = 0; i < n; i++) names[i] = backend_name(i);
    if (!choose(cli, "backend", o->run.backend, names, n, &unused)) return false;
    for (int id = 0; id < BACKEND_OPTION_COUNT; id++) {
        const char *backend = backend_options[id].backend;
        if (!is_given(cli, id)) continue;
        if (!read_own(cli, id, backend_own_options(backend, cli->arena))) return false;
        if (!run_on(cli, backend))
            return cli_error(cli, FAULT_usage, "option-value", "--%s goes with --backend %s",
                             backend_options[id].name, backend);
    }
    return true;
}

void run_backend_options(Cli *cli, BackendOptions *options)
{
    bool fine;
    options->own = read_own_options(cli, run_backend(cli), &fine);
    if (run_on(cli, "cuda")) options->choices = run_choices(cli);
}

void run_repeat_options(Cli *cli, uint32_t uses, TextList *argv)
{
    for (int id = 0; id < BACKEND_OPTION_COUNT; id++) {
        const BackendOption *option = &backend_options[id];
        if (!(option->uses & uses) || !is_given(cli, id)) continue;
        list_push(cli->arena, argv, arena_print(cli->arena, "--%s", option->name));
        if (option->kind != BACKEND_KIND_flag)
            list_push(cli->arena, argv, cli->options.run.backend_values[id].text);
    }
}

bool run_plan_options(Cli *cli, PlanOptions *options)
{
    options->unfitted = true;
    if (!run_on(cli, "cuda")) {
        options->workspace = kernel_cpu_workspace;
        return true;
    }
    const CudaModule *module = module_cuda(cli->arena, NULL, &cli->diag);
    options->workspace = module ? module->workspace : NULL;
    return module != NULL;
}

const char *run_gpu(Cli *cli)
{
    const CudaModule *module = module_cuda(cli->arena, NULL, &cli->diag);
    bool fine;
    const CudaOptions *own = read_own_options(cli, "cuda", &fine);
    uint32_t device = own->device ? own->device - 1 : 0;
    const char *name = module ? module->device_name(cli->arena, device) : NULL;
    return name != NULL ? name : "none";
}

bool run_shares_gpu(Cli *cli)
{
    bool fine;
    const CudaOptions *own = read_own_options(cli, "cuda", &fine);
    return own->share_device;
}

const char *run_machine(Cli *cli)
{
    if (!run_on(cli, "cuda")) return machine_key(cli->arena);
    return arena_print(cli->arena, "cuda:%s", run_gpu(cli));
}

const char *run_costs(Cli *cli)
{
    Str costs = str_in(cli->arena);
    str_add(&costs, run_machine(cli));
    for (int id = 0; id < BACKEND_OPTION_COUNT; id++)
        if (backend_options[id].uses & BACKEND_CHANGES_COSTS && is_given(cli, id))
            str_print(&costs, " %s", backend_options[id].name);
    return str_text(&costs);
}
