/* Chooses a run's backend and its options, how plans are lowered for it, and the name under which
 * this machine's measurements of it are stored. */
#include <inttypes.h>
#include <string.h>

#include "cli/run/run.h"
#include "exec/cuda/module.h"
#include "exec/modules.h"

const char *run_backend(const Cli *cli)
{
    return cli->options.backend ? cli->options.backend : "mpi";
}

bool run_on(const Cli *cli, const char *backend)
{
    return strcmp(run_backend(cli), backend) == 0;
}

/* Finds the index of `word` in the list; returns false after a diagnostic. NULL gives 0. */
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

/* In the order of CudaGraphs; NULL: the default has no word. */
static const char *const graphs[] = {NULL, "whole", "cut", "none"};
static const char *const vias[] = {"nccl", "host"};

bool run_check_backend(Cli *cli)
{
    const Options *o = &cli->options;
    uint32_t unused, n = 0;
    while (backend_name(n) != NULL) n++;
    const char **names = arena_array(cli->arena, n, sizeof *names);
    for (uint32_t i = 0; i < n; i++) names[i] = backend_name(i);
    if (!choose(cli, "backend", o->backend, names, n, &unused) ||
        !choose(cli, "graph", o->graph, graphs, 4, &unused) ||
        !choose(cli, "via", o->via, vias, 2, &unused))
        return false;
    bool cuda = o->graph || o->via || o->device_text || o->share_device || o->tf32 || o->cudnn ||
                o->mma || o->record;
    return !cuda || run_on(cli, "cuda") ||
           cli_error(cli, FAULT_usage, "option-value",
                     "--graph, --via, --device, --share-device, --tf32, --cudnn, --mma and "
                     "--record go with --backend cuda");
}

void run_cuda_options(Cli *cli, CudaOptions *cuda)
{
    const Options *o = &cli->options;
    uint32_t choice = 0;
    if (choose(cli, "graph", o->graph, graphs, 4, &choice)) cuda->graphs = (CudaGraphs)choice;
    if (choose(cli, "via", o->via, vias, 2, &choice)) cuda->host_comm = choice == 1;
    cuda->device = o->device_text ? o->device + 1 : 0;
    cuda->share_device = o->share_device;
    cuda->tf32 = o->tf32;
    cuda->cudnn = o->cudnn;
    cuda->mma = o->mma;
    cuda->record = o->record;
    cuda->choices = run_choices(cli);
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

const char *run_machine(Cli *cli)
{
    if (!run_on(cli, "cuda")) return machine_key(cli->arena);
    const CudaModule *module = module_cuda(cli->arena, NULL, &cli->diag);
    uint32_t device = cli->options.device_text ? cli->options.device : 0;
    const char *name = module ? module->device_name(cli->arena, device) : NULL;
    return arena_print(cli->arena, "cuda:%s", name ? name : "none");
}

const char *run_costs(Cli *cli)
{
    const Options *o = &cli->options;
    return arena_print(cli->arena, "%s%s%s", run_machine(cli), o->tf32 ? " tf32" : "",
                       o->cudnn ? " cudnn" : "");
}
