/* Loads the PLAN of the command line, and prints the first lines of the report, which several verbs
 * share. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "cli/cli.h"
#include "exec/data/data_field.h"
#include "planner/base/cores.h"
#include "planner/base/parallel.h"
#include "planner/front/fold.h"
#include "planner/ir/experts.h"
#include "planner/ir/text/text.h"
#include "planner/passes/passes.h"
#include "sim/sim.h"

const char *graph_counts(const Graph *graph)
{
    return data_reads_fields(graph) ? "points" : "tokens";
}

const char *plan_file_counts(const PlanFile *file)
{
    return graph_counts(&file->plan->graph);
}

const char *plan_file_device(const PlanFile *file)
{
    return file->config.cluster.is_local ? "rank" : "GPU";
}

PlanFile *plan_file_load(Cli *cli, const char *path, const PlanOptions *options)
{
    PlanOptions o = plan_file_options(cli, options);
    o.tries_hints = true;
    return session_load(path, &o, cli->arena, &cli->diag);
}

/* The arguments of plan_file_open, for the function that session_load calls. */
typedef struct Opened {
    Cli *cli;
    bool timed;
} Opened;

static void ask_early(void *self, const Config *config)
{
    const Opened *o = self;
    frameworks_ask_early(o->cli, config, o->timed);
}

PlanFile *plan_file_open(Cli *cli, const char *path, bool timed)
{
    const uint32_t n_cores = cores_usable();
    parallel_allow(n_cores);
    if (!session_is_text(path)) cli->script = front_open(path, NULL, 0, cli->arena);
    Opened opened = {cli, timed};
    const PlanOptions options = {.script = cli->script,
                                 .settles_later = true,
                                 .after_read = n_cores > 1 ? ask_early : NULL,
                                 .self = &opened};
    return plan_file_load(cli, path, &options);
}

void plan_file_close(Cli *cli)
{
    frameworks_forget(cli);
    front_close(cli->script);
    cli->script = NULL;
}

bool plan_file_mesh(Cli *cli, const char *path, Config *config, Mesh *mesh)
{
    const PlanOptions o = plan_file_options(cli, NULL);
    return session_mesh(path, &o, cli->arena, config, mesh, &cli->diag);
}

bool plan_may_run(Cli *cli, const PlanFile *file)
{
    if (file->config.original == NULL) return true;
    cli_error(cli, FAULT_input, "dialect-original",
              "%s repeats known mistakes of %s, so it can be checked and simulated, but not run",
              file->path, file->config.original);
    diag_hint(&cli->diag, "leave out as = \"original\"");
    return false;
}

uint64_t plan_instructions(const Plan *plan, bool communications_only)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        const Program *p = &plan->programs.at[i];
        for (Pc pc = 1; pc < p->code.n; pc++)
            n += !communications_only || op_info(p->code.at[pc].op)->class_ == OP_CLASS_comm;
    }
    return n;
}

const char *mesh_text(Arena *arena, const Mesh *mesh)
{
    Str text = str_in(arena);
    for (uint32_t i = 0; i < mesh->n_axes; i++)
        str_print(&text, "%s%s %" PRIu32, i > 0 ? " x " : "", mesh->axis[i].text,
                  mesh->axis[i].size);
    return mesh->n_axes == 0 ? "1" : str_text(&text);
}

const char *plan_mesh_text(Arena *arena, const PlanFile *file)
{
    return file->is_text || file->config.ep_mode != EP_folded
               ? mesh_text(arena, &file->plan->mesh)
               : config_mesh_text(arena, &file->config);
}

void report_folded(Cli *cli, const Config *config)
{
    const char *folded =
        config->ep_mode == EP_folded ? config_folded_text(cli->arena, config) : NULL;
    if (folded != NULL)
        str_print(&cli->out, "experts     folded over %" PRIu32 " ranks: %s\n",
                  config_expert_ranks(config), folded);
}

static void report_text(Cli *cli, const PlanFile *file)
{
    const Plan *plan = file->plan;
    const ModelInfo *info = &plan->graph.info;
    Str *out = &cli->out;
    static const char *const by_what[DENOMINATOR_COUNT] = {"", ", loss by all tokens",
                                                           ", loss by the micro-batches' means"};
    str_print(out, "plan        %s  (%s)\n",
              paint(cli, PAINT_strong, hash_short(cli->arena, file->id)),
              str_readable(cli->arena, file->path, SIZE_MAX));
    str_print(out, "model       %s  %s parameters", info->name != NULL ? info->name : "unnamed",
              str_count(cli->arena, info->n_params));
    const uint64_t active = experts_active_params(&plan->graph);
    const bool mixes = active < info->n_params_no_embedding;
    if (mixes || info->n_params_no_embedding < info->n_params)
        str_print(out, " (%s without the input embedding%s)",
                  str_count(cli->arena, info->n_params_no_embedding),
                  mixes ? arena_print(cli->arena, ", %s of them for a token",
                                      str_count(cli->arena, active))
                        : "");
    str_add(out, "\n");
    str_print(out, "mesh        %s = %" PRIu32 " rank%s", plan_mesh_text(cli->arena, file),
              plan->mesh.n_ranks, plan->mesh.n_ranks == 1 ? "" : "s");
    if (file->has_cluster)
        str_print(out, " on %s, %" PRIu32 " x %" PRIu32 " %s", file->config.cluster.name,
                  file->config.cluster.nodes, file->config.cluster.devices_per_node,
                  file->config.cluster.device.name);
    str_add(out, "\n");
    if (!file->is_text) report_folded(cli, &file->config);
    str_print(out,
              "batch       %" PRId64 " %s of %" PRId64 " %s a step, in %" PRIu32
              " micro-batch%s%s\n",
              plan->step.global_batch, data_reads_fields(&plan->graph) ? "fields" : "sequences",
              plan->step.seq, plan_file_counts(file), plan->step.n_microbatches,
              plan->step.n_microbatches == 1 ? "" : "es", by_what[plan->step.denominator]);
    if (!file->is_text) str_print(out, "parallel    %s\n", passes_text(cli->arena, &file->config));
    PipelineFacts pipe;
    if (!file->is_text && passes_pipeline(&file->config, plan, cli->arena, &pipe))
        str_print(out,
                  "pipeline    %" PRIu32 " stages; at most %" PRIu32
                  " of their activations on a rank at once (rank %" PRIu32
                  "); idle %.1f %% if forward, input gradients and weight gradients take equal "
                  "times\n",
                  pipe.n_stages, pipe.peak, pipe.rank, 100 * pipe.idle);
    str_print(out, "program     %" PRIu32 " role%s, %s instructions, %s of them communication\n",
              plan->programs.n, plan->programs.n == 1 ? "" : "s",
              str_count(cli->arena, plan_instructions(plan, false)),
              str_count(cli->arena, plan_instructions(plan, true)));
}

static void report_json(Cli *cli, const PlanFile *file)
{
    const Plan *plan = file->plan;
    const ModelInfo *info = &plan->graph.info;
    json_t *model = json_object(), *mesh = json_object();
    json_text(cli->json, "plan_id", hash_hex(cli->arena, file->id));
    json_text(cli->json, "file", file->path);
    json_text(model, "name", info->name);
    json_count(model, "params", info->n_params);
    json_count(model, "params_without_input_embedding", info->n_params_no_embedding);
    const uint64_t active = experts_active_params(&plan->graph);
    json_count(model, "params_for_a_token", active);
    json_put(cli->json, "model", model);
    for (uint32_t i = 0; i < plan->mesh.n_axes; i++)
        json_count(mesh, plan->mesh.axis[i].text, plan->mesh.axis[i].size);
    json_put(cli->json, "mesh", mesh);
    json_count(cli->json, "ranks", plan->mesh.n_ranks);
    json_text(cli->json, "cluster", file->has_cluster ? file->config.cluster.name : NULL);
    json_count(cli->json, "global_batch", (uint64_t)plan->step.global_batch);
    json_count(cli->json, "seq", (uint64_t)plan->step.seq);
    json_count(cli->json, "microbatches", plan->step.n_microbatches);
    PipelineFacts pipe;
    if (!file->is_text && passes_pipeline(&file->config, plan, cli->arena, &pipe)) {
        json_t *pipeline = json_object();
        json_count(pipeline, "stages", pipe.n_stages);
        json_count(pipeline, "peak_activations", pipe.peak);
        json_count(pipeline, "peak_rank", pipe.rank);
        json_put(pipeline, "idle_where_equal", json_real(pipe.idle));
        json_put(cli->json, "pipeline", pipeline);
    }
    json_count(cli->json, "roles", plan->programs.n);
    json_count(cli->json, "instructions", plan_instructions(plan, false));
    json_count(cli->json, "communications", plan_instructions(plan, true));
}

void plan_file_report(Cli *cli, const PlanFile *file)
{
    if (cli->json != NULL)
        report_json(cli, file);
    else
        report_text(cli, file);
}

static uint32_t worst_program(const Plan *plan)
{
    uint32_t worst = 0;
    for (uint32_t i = 1; i < plan->programs.n; i++)
        if (plan->programs.at[i].bytes > plan->programs.at[worst].bytes) worst = i;
    return worst;
}

uint64_t host_bytes_of(const Plan *plan)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < plan->programs.n; i++)
        if (plan->programs.at[i].host_bytes > most) most = plan->programs.at[i].host_bytes;
    return most;
}

static void communicators_json(Cli *cli, const Plan *plan, const CommMemories *list)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < list->n; i++) {
        const CommMemory *m = &list->at[i];
        json_t *row = json_object();
        json_text(row, "axes", mesh_axes_text(cli->arena, &plan->mesh, m->axes));
        json_text(row, "stream", stream_name(m->stream));
        json_count(row, "ranks", m->n_ranks);
        json_count(row, "nodes", m->n_nodes);
        json_count(row, "channels", m->channels);
        json_count(row, "peers", m->n_peers);
        json_count(row, "ring_bytes", m->ring_bytes);
        json_count(row, "tree_bytes", m->tree_bytes);
        json_count(row, "switch_bytes", m->switch_bytes);
        json_count(row, "message_bytes", m->message_bytes);
        json_count(row, "bytes", m->bytes);
        json_array_append_new(rows, row);
    }
    json_put(cli->json, "communicators", rows);
}

void plan_file_memory(Cli *cli, const PlanFile *file)
{
    const Plan *plan = file->plan;
    assert(plan->programs.n > 0);
    uint32_t worst = worst_program(plan);
    Rank rank = 0;
    while (plan->program_of[rank] != worst) rank++;
    uint64_t arena_bytes = plan->programs.at[worst].bytes;
    const Device *device = &file->config.cluster.device;
    CommMemories communicators = {NULL, 0, 0};
    uint64_t reserved = 0;
    if (file->has_cluster)
        reserved = device->reserved_bytes +
                   comm_memory_most(plan, &file->config.cluster, NULL, cli->arena, &communicators);
    uint64_t total = arena_bytes + reserved;
    uint32_t node;
    const uint64_t host = plan_host_bytes(plan, file->config.cluster.devices_per_node, &node),
                   host_has = file->has_cluster ? file->config.cluster.host_memory_bytes : 0;
    const bool host_fits = !host_has || host <= host_has;
    bool fits = !file->has_cluster || total <= device->memory_bytes;
    if (cli->json != NULL) {
        json_count(cli->json, "peak_bytes", arena_bytes);
        json_count(cli->json, "peak_rank", rank);
        json_count(cli->json, "host_bytes", host_bytes_of(plan));
        if (!file->has_cluster) return;
        json_count(cli->json, "reserved_bytes", reserved);
        communicators_json(cli, plan, &communicators);
        json_count(cli->json, "device_bytes", device->memory_bytes);
        json_put(cli->json, "fits", json_boolean(fits && host_fits));
        return;
    }
    if (host > 0)
        str_print(&cli->out, "host        %s of host memory a rank",
                  str_bytes(cli->arena, host_bytes_of(plan)));
    if (host > 0 && host_has)
        str_print(&cli->out, ", %s on node %" PRIu32 ": %s %s", str_bytes(cli->arena, host), node,
                  host_fits ? paint(cli, PAINT_good, "fits")
                            : paint(cli, PAINT_bad, "DOES NOT FIT"),
                  str_bytes(cli->arena, host_has));
    if (host > 0) str_add(&cli->out, "\n");
    str_print(&cli->out, "memory      %s on rank %" PRIu32, str_bytes(cli->arena, arena_bytes),
              rank);
    if (!file->has_cluster) {
        str_add(&cli->out, "; no device to compare with (--cluster names one)\n");
        return;
    }
    str_print(&cli->out, " + %s reserved: %s %s\n", str_bytes(cli->arena, reserved),
              fits ? paint(cli, PAINT_good, "fits") : paint(cli, PAINT_bad, "DOES NOT FIT"),
              str_bytes(cli->arena, device->memory_bytes));
}

Plan *plan_stored(Cli *cli, Store *store, int64_t id, const RunRecord *run)
{
    const char *text = store_plan_text(store, run->plan, cli->arena, &cli->diag);
    if (text == NULL) return NULL;
    const char *name = arena_print(cli->arena, "the plan of run %" PRId64, id);
    Plan *plan = text_parse(name, text, strlen(text), cli->arena, &cli->diag);
    if (plan != NULL) return plan;
    /* the script gives a plan with another id, so only a new run has a plan that can be read */
    if (run->kind == RUN_predicted)
        diag_hint(&cli->diag, "`tandem sim %s --trace` predicts again", run->plan_name);
    else
        diag_hint(&cli->diag,
                  "`tandem run %s` measures again; `tandem compare RUN %" PRId64
                  "` compares two runs without their plans",
                  run->plan_name, id);
    return NULL;
}
