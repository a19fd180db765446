/* tandem run: executes the plan on this machine's processors or GPUs. mpirun starts one process for
 * each rank. Every process compiles the plan itself and runs its rank. Only the first process
 * prints and stores. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/run/run.h"
#include "exec/data/data_field.h"
#include "planner/base/cores.h"
#include "planner/base/plural.h"
#include "planner/front/front.h"

static bool is_loopback(const Cli *cli)
{
    return run_on(cli, "loopback");
}

bool run_check_ranks(Cli *cli, const Plan *plan)
{
    uint32_t n = cli->options.n;
    if (n == 0 || n == plan->mesh.n_ranks) return true;
    cli_error(cli, FAULT_usage, "ranks-mesh",
              "-n %" PRIu32 " does not fit the plan's mesh, %s = %" PRIu32 " rank%s", n,
              mesh_text(cli->arena, &plan->mesh), plan->mesh.n_ranks, str_s(plan->mesh.n_ranks));
    diag_hint(&cli->diag, "use -n %" PRIu32 ", or change the mesh with --set", plan->mesh.n_ranks);
    return false;
}

/* Returns the path of the file with the run's data, or NULL if the data are drawn at random. */
static const char *data_path(const Cli *cli, const PlanFile *file)
{
    return cli->options.run.data != NULL ? cli->options.run.data : file->config.data_file;
}

const DataSource *run_data(Cli *cli, const PlanFile *file)
{
    const char *path = data_path(cli, file);
    uint64_t seed = file->plan->step.seed;
    if (path != NULL && data_reads_fields(&file->plan->graph))
        return data_grid(path, &file->plan->graph, seed, cli->arena, &cli->diag);
    if (path != NULL && data_reads_images(&file->plan->graph)) {
        diag_error(&cli->diag, FAULT_input, "data-file", (Loc){NULL, 0},
                   "%s cannot be used, because the model reads images and --data takes only text",
                   path);
        diag_hint(&cli->diag, "leave out --data to draw images and tokens at random");
        return NULL;
    }
    if (path != NULL) return data_bytes(path, seed, cli->arena, &cli->diag);
    return data_synthetic(seed, file->plan->graph.info.vocab, 0, cli->arena);
}

bool run_cluster(Cli *cli, const PlanFile *file, Cluster *cluster)
{
    const uint32_t n_ranks = file->plan->mesh.n_ranks;
    *cluster = file->config.cluster;
    if (run_on(cli, "cuda")) {
        const char *gpu = run_gpu(cli);
        if (n_ranks > 1 && run_shares_gpu(cli))
            diag_warning(&cli->diag, "gpu-shared", (Loc){NULL, 0},
                         "%" PRIu32
                         " ranks may share a GPU, but the prediction gives each rank its own GPU",
                         n_ranks);
        if (!cluster->is_local || front_gpu_cluster(gpu, n_ranks, cli->arena, cluster)) return true;
        if (strcmp(gpu, "none") == 0) return true; /* the run itself reports why there is no GPU */
        diag_warning(
            &cli->diag, "unknown-gpu", (Loc){NULL, 0},
            "the library has no GPU called '%s', so the prediction uses the rates of a CPU core",
            gpu);
        return true;
    }
    if (cluster->is_local) return true;
    if (!front_cluster("local_cpu", 1, cli->arena, cluster, &cli->diag)) return false;
    /* the front sets these facts only for plans of this machine, so they are set here */
    if (cluster->devices_per_node < n_ranks) cluster->devices_per_node = n_ranks;
    if (cluster->cores_per_node == 0) cluster->cores_per_node = cores_online();
    if (cluster->device.memory_bytes == 0)
        cluster->device.memory_bytes = machine_memory() / n_ranks;
    return true;
}

static bool predict_here(Cli *cli, const PlanFile *file, Prediction *prediction)
{
    Cluster *cluster = arena_alloc(cli->arena, sizeof *cluster);
    Store *store = store_open(cli->options.db, false, &cli->diag);
    if (store == NULL) return false;
    PredictOptions options = {.cluster = cluster, .trace = true, .unfolded = true, .keep = true};
    if (!run_cluster(cli, file, cluster)) {
        store_close(store);
        return false;
    }
    const CostsOf costs = session_costs(cluster, run_costs(cli), NULL, run_backend(cli));
    options.backend = costs.backend;
    options.machine = costs.machine;
    /* on loopback, all ranks run in one thread */
    if (is_loopback(cli)) cluster->cores_per_node = 1;
    const bool fine = predict(cli, file, store, &options, false, prediction);
    store_close(store);
    return fine;
}

static uint32_t steps_of(const Cli *cli, const PlanFile *file)
{
    if (cli->options.run.steps > 0) return cli->options.run.steps;
    return file->config.train_steps > 0 ? file->config.train_steps : 10;
}

static void exec_options(Cli *cli, const PlanFile *file, ExecOptions *options)
{
    const Optimizer *optimizer = &file->config.optimizer;
    *options = (ExecOptions){.backend = run_backend(cli),
                             .steps = steps_of(cli, file),
                             .checkpoint = run_checkpoint_options(cli, data_path(cli, file)),
                             .lr = optimizer->lr,
                             .warmup_steps = optimizer->warmup_steps,
                             .total_steps = optimizer->total_steps,
                             .min_lr_ratio = optimizer->min_lr_ratio,
                             .trace_step = EXEC_TRACE_MIDDLE,
                             .version = TANDEM_VERSION};
    options->backend_options.timeout_s =
        cli->options.run.timeout_s > 0 ? cli->options.run.timeout_s : 60;
    options->backend_options.measure = true;
    options->backend_options.poison = cli->options.run.poison;
    run_backend_options(cli, &options->backend_options);
}

/* Returns the record of a run before its first step, without results. */
static RunRecord run_record(Cli *cli, const PlanFile *file, const char *status)
{
    RunRecord record;
    memset(&record, 0, sizeof record);
    record.kind = RUN_measured;
    record.plan = file->id;
    record.plan_name = file->path;
    record.plan_text = session_text(file, cli->arena);
    record.program = file->plan;
    if (file->proven) record.proven_by = build_name(cli->arena);
    record.cluster = run_machine(cli);
    record.scenario = record.calibration = record.mfu_formula = "";
    record.backend = run_backend(cli);
    record.engine = "tandem " TANDEM_VERSION;
    record.seed = file->plan->step.seed;
    record.n_ranks = file->plan->mesh.n_ranks;
    record.status = status;
    return record;
}

static bool store_measured(Cli *cli, const PlanFile *file, const ExecResult *result,
                           const Prediction *prediction, Steps *steps, int64_t *id)
{
    const Plan *plan = file->plan;
    RunRecord record = run_record(cli, file, "ok");
    /* `compare` finds the prediction of a run by this key */
    record.calibration = prediction->record.calibration;
    record.step_ps = steps_median(steps);
    record.peak_bytes = result->highest_touched;
    double step_s = (double)record.step_ps / (double)PS_PER_S;
    if (step_s > 0)
        record.tokens_per_s_per_device = plan->step.global_tokens / step_s / plan->mesh.n_ranks;
    record.trace = &result->trace;
    record.steps_done = steps->progress.done;
    measured_times(cli->arena, plan, &result->trace, &record);
    Store *store = store_open(cli->options.db, false, &cli->diag);
    if (store == NULL) return false;
    *id = store_run(store, &record, &cli->diag);
    bool fine = *id != 0 && cores_store(store, *id, &result->cores, &cli->diag);
    store_close(store);
    return fine;
}

/* Stores a run that ended early, so that the store shows the attempt. Returns its id, or 0 if it
 * could not be stored. */
static int64_t store_failed(Cli *cli, const PlanFile *file, uint32_t steps_done)
{
    RunRecord record = run_record(cli, file, "failed");
    record.steps_done = steps_done;
    Store *store = store_open(cli->options.db, false, &cli->diag);
    if (store == NULL) return 0;
    int64_t id = store_run(store, &record, &cli->diag);
    store_close(store);
    return id;
}

/* Reports the step at which the run was interrupted, and the results that are in the store. */
static void tell_interrupted(Cli *cli, const PlanFile *file, const LaunchEnd *end)
{
    const char *name = run_signal_name(end->signal), *db = cli->options.db;
    const int64_t id = store_failed(cli, file, end->stepped ? end->step : 0);
    const char *kept = id != 0
                           ? arena_print(cli->arena, "%s lists run %" PRId64 " as failed", db, id)
                           : arena_print(cli->arena, "%s stores nothing of it", db);
    if (end->stepped)
        cli_error(cli, FAULT_run, "run-interrupted",
                  "interrupted by %s at step %" PRIu32 " of %" PRIu32
                  "; the ranks have ended and %s; %s",
                  name, end->step, steps_of(cli, file), run_checkpoint_kept(cli), kept);
    else
        cli_error(cli, FAULT_run, "run-interrupted",
                  "interrupted by %s before the first step; the ranks have ended, and %s", name,
                  kept);
}

/* Returns false if a diagnostic says that the launcher failed before it started any rank. */
static bool was_started(const Cli *cli)
{
    static const char *const before[] = {"mpirun-missing", "module-missing", "rank-status"};
    for (uint32_t i = 0; i < cli->diag.items.n; i++)
        for (size_t k = 0; k < sizeof before / sizeof before[0]; k++)
            if (strcmp(cli->diag.items.at[i].rule, before[k]) == 0) return false;
    return true;
}

/* Returns the number of diagnostics with this rule. */
static uint32_t told(const Cli *cli, const char *rule)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < cli->diag.items.n; i++)
        n += strcmp(cli->diag.items.at[i].rule, rule) == 0;
    return n;
}

static void tell_experts(Cli *cli, const Graph *g, const ExpertLoads *experts)
{
    if (experts->busiest == 0) return;
    str_print(&cli->out,
              "experts     most tokens %.2f x the mean of a layer (%s), fewest %.2f x; %.1f %% of "
              "all choices dropped\n",
              experts->busiest, g->modules.at[experts->module].path, experts->idlest,
              100 * experts->dropped_part);
}

static void summary(Cli *cli, const PlanFile *file, Steps *s, const ExecResult *result, int64_t id,
                    const Prediction *prediction)
{
    Ps median = steps_median(s);
    double last = steps_last_loss(s);
    uint64_t touched = result->highest_touched;
    if (cli->json != NULL) {
        json_count(cli->json, "steps", s->progress.done);
        json_number(cli->json, "first_loss", s->first_loss);
        json_number(cli->json, "last_loss", last);
        json_count(cli->json, "step_ps", (uint64_t)median);
        json_count(cli->json, "predicted_step_ps", (uint64_t)s->predicted_ps);
        json_count(cli->json, "arena_bytes", s->bytes);
        json_count(cli->json, "written_bytes", s->written);
        json_count(cli->json, "highest_byte_touched", touched);
        json_count(cli->json, "host_byte_touched", result->host_touched);
        json_count(cli->json, "outside_bytes", result->outside_bytes);
        if (result->experts.busiest > 0) {
            json_number(cli->json, "expert_busiest", result->experts.busiest);
            json_number(cli->json, "expert_idlest", result->experts.idlest);
            json_number(cli->json, "choices_dropped", result->experts.dropped_part);
        }
        json_count(cli->json, "plain_products", told(cli, "product-plain"));
        json_put(cli->json, "cores", cores_json(&result->cores));
        json_put(cli->json, "run", json_integer(id));
        json_put(cli->json, "prediction", json_integer(prediction->id));
        json_text(cli->json, "plan_id", hash_hex(cli->arena, file->id));
        return;
    }
    Str *out = &cli->out;
    str_print(out,
              "done        %" PRIu32 " step%s in %.1f s; loss %.4f at first, mean of the last "
              "%" PRIu32 ": %.4f (%.2f of the first)\n",
              s->progress.done, str_s(s->progress.done), s->seconds, s->first_loss,
              s->progress.done < 10 ? s->progress.done : 10, last, last / s->first_loss);
    str_print(out,
              "step        %s measured (median), %s predicted: %s (predicted / measured - 1)\n",
              format_time(cli->arena, median), format_time(cli->arena, s->predicted_ps),
              format_error(cli->arena, (double)s->predicted_ps, (double)median));
    tell_experts(cli, &file->plan->graph, &result->experts);
    cores_text(&result->cores, file->plan->mesh.n_ranks, out);
    str_print(out, "memory      %s measured (highest byte touched %s), %s predicted: %s\n",
              str_bytes(cli->arena, touched), str_count(cli->arena, touched),
              str_bytes(cli->arena, s->bytes),
              format_error(cli->arena, (double)s->bytes, (double)touched));
    if (result->host_touched > 0)
        str_print(out, "host        %s measured (highest byte touched %s), %s predicted\n",
                  str_bytes(cli->arena, result->host_touched),
                  str_count(cli->arena, result->host_touched),
                  str_bytes(cli->arena, host_bytes_of(file->plan)));
    if (run_on(cli, "cuda"))
        str_print(out, "outside     %s outside the arena: context, communicators, libraries\n",
                  str_bytes(cli->arena, result->outside_bytes));
    str_print(out,
              "run         %" PRId64 " in %s, against prediction %" PRId64
              "; `tandem compare` tells more\n",
              id, cli->options.db, prediction->id);
}

/* Called in processes other than the first. Drops diagnostics about problems that all processes
 * find, because the first process reports these. */
static void drop_shared(Cli *cli)
{
    static const char *const shared[] = {"not-finite",    "plan-mismatch",  "version-mismatch",
                                         "backend-dtype", "exec-program",   "ranks-mismatch",
                                         "device-shared", "device-mismatch"};
    Diag all = cli->diag;
    cli_forget_diagnostics(cli);
    for (uint32_t i = 0; i < all.items.n; i++) {
        const Diagnostic *one = &all.items.at[i];
        bool told = run_is_of_checkpoint(one);
        for (size_t k = 0; k < sizeof shared / sizeof shared[0]; k++)
            told = told || strcmp(one->rule, shared[k]) == 0;
        if (!told) diag_add(&cli->diag, *one);
    }
}

/* Moves the error about too many rows to the script's line of ep { bound }, where the user can
 * correct it. */
static void blame_bound(Cli *cli, const PlanFile *file)
{
    const PassConfig *ep = config_pass(&file->config, PASS_ep);
    for (size_t i = 0; ep != NULL && i < cli->diag.items.n; i++) {
        Diagnostic *at = &cli->diag.items.at[i];
        if (strcmp(at->rule, "rows-over-bound") == 0) at->loc = ep->loc;
    }
}

/* Checks whether --loads can count choices: only training steps of a model with experts have any.
 * `plan` is NULL before it is loaded. */
static bool may_count(Cli *cli, const Plan *plan)
{
    const char *path = cli->options.run.loads, *why = NULL;
    if (path == NULL) return true;
    if (cli->options.run.verify)
        why = "--verify trains no step of the whole plan";
    else if (plan != NULL && loads_new(plan, cli->arena) == NULL)
        why = "the plan has no experts";
    if (why == NULL) return true;
    return cli_error(cli, FAULT_usage, "option-value", "--loads '%s': %s", path, why);
}

/* Trains in this process, which is the only one or one of the ranks. */
static void run_here(Cli *cli, const PlanFile *file)
{
    bool first = run_is_first();
    ExecOptions options;
    exec_options(cli, file, &options);
    options.data = run_data(cli, file);
    if (options.data == NULL) return;
    const char *counts = plan_file_counts(file);
    Steps steps = {.cli = cli,
                   .counts = strcmp(counts, "tokens") == 0 ? "tok" : counts,
                   .progress = progress_by_lines(cli, options.steps),
                   .n_steps = options.steps};
    for (uint32_t i = 0; i < file->plan->programs.n; i++) {
        const Program *program = &file->plan->programs.at[i];
        const uint64_t written = plan_written_bytes(program);
        if (program->bytes > steps.bytes) steps.bytes = program->bytes;
        if (written > steps.written) steps.written = written;
    }
    Prediction prediction;
    memset(&prediction, 0, sizeof prediction);
    if (first) {
        if (!predict_here(cli, file, &prediction) || !shares_writable(cli, data_path(cli, file)))
            return;
        steps.predicted_ps = prediction.record.step_ps;
        cli_flush_diagnostics(cli);
        options.on_step = steps_add;
        options.self = &steps;
    }
    ExecResult result;
    memset(&result, 0, sizeof result);
    if (!exec_run(file->plan, &options, cli->arena, &result, &cli->diag)) {
        if (!first) drop_shared(cli);
        /* a rank's failure is reported by the process that started it */
        else if (!run_is_inside())
            store_failed(cli, file, steps.progress.done);
        return;
    }
    if (!first) return;
    steps.traced = result.trace.step;
    run_checkpoint_summary(cli, &result);
    /* no step was run: the run only wrote its checkpoint again */
    if (steps.progress.done == 0) return;
    int64_t id = 0;
    if (store_measured(cli, file, &result, &prediction, &steps, &id))
        summary(cli, file, &steps, &result, id, &prediction);
    if (cli->options.run.loads && result.experts.counts)
        shares_write(cli, file->plan, result.experts.counts, cli->options.run.loads);
}

static void dry_run(Cli *cli, const PlanFile *file)
{
    const Plan *plan = file->plan;
    plan_file_memory(cli, file);
    str_print(&cli->out,
              "would run   %" PRIu32 " rank%s on %s; the first instructions of role 0:\n",
              plan->mesh.n_ranks, str_s(plan->mesh.n_ranks),
              is_loopback(cli) ? "loopback, in one process" : run_backend(cli));
    const Program *p = &plan->programs.at[0];
    for (Pc pc = 1; pc < p->code.n && pc <= 20; pc++) {
        text_instr(plan, p, pc, cli->arena, &cli->out);
        str_add(&cli->out, "\n");
    }
}

/* Prints the report now, above the lines of the steps, because all of it is known before the first
 * step. */
static void print_now(Cli *cli)
{
    fputs(str_text(&cli->out), stdout);
    fflush(stdout);
    cli->out = str_in(cli->arena);
}

/* Runs in the process that the user started: measures missing costs, then starts the ranks. */
static void run_from_outside(Cli *cli, PlanFile *file)
{
    if (!run_checkpoint_ready(cli, file, steps_of(cli, file))) return;
    if (cli->options.dry_run) {
        plan_file_report(cli, file);
        dry_run(cli, file);
        return;
    }
    /* report these errors now: later every rank would report them, or only after
     * all measurements */
    if (run_data(cli, file) == NULL || !store_ready(cli->options.db, &cli->diag) ||
        !shares_writable(cli, data_path(cli, file)))
        return;
    if (!run_fits_here(cli, file->plan)) return;
    /* on GPUs, predictions use cost models; GPUs are measured only by `tandem calibrate --backend
     * cuda` */
    if (!run_on(cli, "cuda") && !run_calibrate(cli, file)) return;
    if (is_loopback(cli) || (run_on(cli, "cuda") && file->plan->mesh.n_ranks == 1)) {
        plan_file_report(cli, file);
        if (cli->json == NULL) print_now(cli);
        run_here(cli, file);
        return;
    }
    /* the first rank writes the document; this process writes one only if the ranks fail */
    if (cli->json != NULL || !cli->options.quiet) plan_file_report(cli, file);
    print_now(cli);
    const bool is_text = cli->json == NULL;
    if (is_text) cli_flush_diagnostics(cli);
    LaunchEnd end;
    const bool ran = run_launch(cli, file->plan->mesh.n_ranks, cli->argv, &end);
    /* the first rank's document contains these diagnostics */
    if (!is_text && cli->json == NULL) cli_forget_diagnostics(cli);
    if (ran) return;
    if (end.signal != 0)
        tell_interrupted(cli, file, &end);
    else if (cli->exit_code == FAULT_run && was_started(cli))
        /* with another exit code, the first rank failed only after it had stored the run */
        store_failed(cli, file, end.stepped ? end.step : 0);
}

void cmd_run(Cli *cli)
{
    if (!run_check_backend(cli) || !run_check_checkpoint(cli)) return;
    if (session_is_text(cli->args[0])) {
        cli_error(cli, FAULT_usage, "needs-script",
                  "%s is the text of a plan, but `run` needs the script", cli->args[0]);
        diag_hint(&cli->diag, "only the script has the learning rate and the data");
        return;
    }
    bool inside = run_is_inside() && !is_loopback(cli);
    bool silent = inside && !run_is_first();
    if (!may_count(cli, NULL)) {
        if (silent) run_silence(cli);
        return;
    }
    if (cli->options.run.verify) {
        if (silent)
            run_silence(cli);
        else
            run_verify(cli);
        return;
    }
    PlanOptions options = {.workspace = NULL};
    if (!run_plan_options(cli, &options)) return;
    PlanFile *file = plan_file_load(cli, cli->args[0], &options);
    bool fine = file != NULL && cli->diag.n_errors == 0 && plan_may_run(cli, file) &&
                may_count(cli, file->plan) && run_check_ranks(cli, file->plan);
    if (silent) run_silence(cli); /* the first process reports the following errors */
    if (!fine) return;
    /* the process that started this rank has printed this plan's warnings */
    if (inside && cli->json == NULL && launch_is_supervised()) cli_forget_diagnostics(cli);
    if (!inside) {
        run_from_outside(cli, file);
    } else {
        /* the report was printed above as text, or the user does not want it */
        if (cli->json != NULL) plan_file_report(cli, file);
        run_here(cli, file);
    }
    blame_bound(cli, file);
}
