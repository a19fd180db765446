/* The processes of a run: runs a rank in this process, starts the others, and measures the costs
 * that the run's prediction needs. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/run/run.h"
#include "planner/base/log.h"
#include "planner/base/plural.h"

bool run_is_inside(void)
{
    return launch_inside(NULL, NULL, NULL);
}

bool run_is_first(void)
{
    uint32_t rank = 0;
    return !launch_inside(NULL, &rank, NULL) || rank == 0;
}

void run_silence(Cli *cli)
{
    cli_forget_diagnostics(cli);
    if (cli->json != NULL) json_decref(cli->json);
    cli->json = NULL;
    cli->out = str_in(cli->arena);
}

const char *run_signal_name(int number)
{
    return number == SIGINT ? "SIGINT" : number == SIGTERM ? "SIGTERM" : "SIGHUP";
}

bool run_launch(Cli *cli, uint32_t n_ranks, const char *const *argv, LaunchEnd *end)
{
    LIST(const char *) words = {NULL, 0, 0};
    /* use the absolute path: the shell may have found the command in a folder where mpirun does not
     * look */
    const char *own = machine_own_path(cli->arena);
    list_push(cli->arena, &words, own != NULL ? own : cli->program);
    for (uint32_t i = 1; argv[i] != NULL; i++) list_push(cli->arena, &words, argv[i]);
    /* whether to show progress is decided here, because some launchers give each rank a terminal of
     * its own */
    list_push(cli->arena, &words,
              color_wanted(cli, STDOUT_FILENO) ? "--color=always" : "--color=never");
    /* a process that only measures for this verb does not have this option */
    const bool is_own = strcmp(argv[1], cli->verb->name) == 0;
    if (is_own && (cli->verb->options & OPTIONS_run) != 0) {
        list_push(cli->arena, &words, "--every");
        list_push(cli->arena, &words, arena_print(cli->arena, "%" PRIu32, progress_every(cli)));
        /* pass on the checkpoint's own path, because the link `latest` may change meanwhile */
        if (cli->options.run.load != NULL) {
            list_push(cli->arena, &words, "--load");
            list_push(cli->arena, &words, cli->options.run.load);
        }
    }
    list_push(cli->arena, &words, NULL);
    double timeout_s = cli->options.run.timeout_s > 0 ? cli->options.run.timeout_s : 60;
    LaunchOptions options = {.n_ranks = n_ranks, .timeout_s = timeout_s};
    uint32_t before = cli->diag.n_errors;
    int code = exec_launch(words.at, &options, end, cli->arena, &cli->diag);
    cli->exit_code = code;
    /* The first rank has written the document, unless the run ended early. */
    if (cli->json != NULL && cli->diag.n_errors == before && end->signal == 0) {
        json_decref(cli->json);
        cli->json = NULL;
    }
    return code == 0;
}

static bool find_needs(Cli *cli, const PlanFile *file, Needs *needs)
{
    /* a store that does not exist contains no costs, so its error is ignored */
    Diag own = diag_in(cli->arena);
    bool there = access(cli->options.db, F_OK) == 0;
    Store *store = there ? store_open(cli->options.db, true, &cli->diag) : NULL;
    if (there && store == NULL) return false;
    needs_find(file->plan, store, run_costs(cli), run_on(cli, "cuda") ? "cuda" : "mpi", cli->arena,
               needs, &own);
    store_close(store);
    return true;
}

static MeasureOn measure_on(Cli *cli, const char *backend)
{
    MeasureOn on = {.backend = backend, .machine = run_costs(cli)};
    on.options.timeout_s = 60;
    run_backend_options(cli, &on.options);
    return on;
}

/* Measures in every process of the run. Only the first process stores the results. */
static bool measure_here(Cli *cli, const PlanFile *file, const Needs *needs, const char *backend,
                         bool first)
{
    MeasureOn on = measure_on(cli, backend);
    const DataSource *data =
        data_synthetic(file->plan->step.seed, file->plan->graph.info.vocab, 0, cli->arena);
    Store *store = first ? store_open(cli->options.db, false, &cli->diag) : NULL;
    if (first && store == NULL) return false;
    bool fine = measure_kernels(file->plan, needs, store, &on, data, cli->arena, &cli->diag);
    store_close(store);
    return fine;
}

static bool calibrate_kernels(Cli *cli, const PlanFile *file, const Needs *needs)
{
    if (needs->missing_kernels == 0) return true;
    bool cuda = run_on(cli, "cuda");
    log_info("measuring %" PRIu32 " kernel%s on %s", needs->missing_kernels,
             str_s(needs->missing_kernels), cuda ? run_costs(cli) : machine_cpu(cli->arena));
    return measure_here(cli, file, needs, cuda ? "cuda" : "loopback", true);
}

static bool calibrate_collectives(Cli *cli, const PlanFile *file, const Needs *needs)
{
    if (needs->missing_collectives == 0) return true;
    log_info("measuring %" PRIu32 " collective%s on %" PRIu32 " rank%s", needs->missing_collectives,
             str_s(needs->missing_collectives), file->plan->mesh.n_ranks,
             str_s(file->plan->mesh.n_ranks));
    TextList argv = {NULL, 0, 0};
    const char *const head[] = {"tandem", "calibrate", file->path, "--db", cli->options.db};
    for (uint32_t i = 0; i < 5; i++) list_push(cli->arena, &argv, head[i]);
    for (uint32_t i = 0; i < cli->options.set.n; i++) {
        list_push(cli->arena, &argv, "--set");
        list_push(cli->arena, &argv, cli->options.set.at[i]);
    }
    if (cli->options.quiet) list_push(cli->arena, &argv, "--quiet");
    if (run_on(cli, "cuda")) {
        list_push(cli->arena, &argv, "--backend");
        list_push(cli->arena, &argv, "cuda");
        run_repeat_options(cli, BACKEND_CALIBRATES, &argv);
    }
    list_push(cli->arena, &argv, NULL);
    json_t *document = cli->json;
    cli->json = NULL; /* a run that only measures writes no document */
    LaunchEnd end;
    bool fine = run_launch(cli, file->plan->mesh.n_ranks, argv.at, &end);
    cli->json = document;
    if (end.signal != 0)
        cli_error(cli, FAULT_run, "run-interrupted",
                  "interrupted by %s while %" PRIu32
                  " ranks measured collectives: the run has not begun; %s keeps what was measured "
                  "before",
                  run_signal_name(end.signal), file->plan->mesh.n_ranks, cli->options.db);
    else if (!fine && cli->diag.n_errors == 0)
        cli_error(cli, FAULT_run, "calibrate-failed", "measuring collectives failed with code %d",
                  cli->exit_code);
    return fine;
}

bool run_calibrate(Cli *cli, const PlanFile *file)
{
    Needs needs;
    if (!find_needs(cli, file, &needs)) return false;
    uint32_t n_ranks = file->plan->mesh.n_ranks;
    /* on GPUs, the plan's ranks measure all costs, each on its own GPU */
    if (run_on(cli, "cuda") && n_ranks > 1) {
        needs.missing_collectives += needs.missing_kernels;
        return calibrate_collectives(cli, file, &needs);
    }
    if (!calibrate_kernels(cli, file, &needs)) return false;
    return run_on(cli, "loopback") || n_ranks == 1 || calibrate_collectives(cli, file, &needs);
}

void run_measure_inside(Cli *cli, const PlanFile *file)
{
    Needs needs;
    bool first = run_is_first();
    if (!first)
        run_silence(cli);
    else if (launch_is_supervised())
        cli_forget_diagnostics(cli); /* the process that started this rank prints the diagnostics */
    if (!find_needs(cli, file, &needs)) return;
    bool cuda = run_on(cli, "cuda");
    if (cuda && needs.missing_kernels > 0 && !measure_here(cli, file, &needs, "cuda", first))
        return;
    Backend *backend = backend_named(cuda ? "cuda" : "mpi", cli->arena, NULL, &cli->diag);
    if (backend == NULL) return;
    Store *store = first ? store_open(cli->options.db, false, &cli->diag) : NULL;
    if (first && store == NULL) return;
    MeasureOn on = measure_on(cli, backend->name);
    measure_collectives(file->plan, &needs, backend, &on.options, store, on.machine, cli->arena,
                        &cli->diag);
    store_close(store);
}
