/* tandem show: prints the program of each role for people, the exact text of the plan, or the graph
 * after a pass. */
#include <inttypes.h>
#include <string.h>

#include "cli/cli.h"
#include "planner/lower/compile.h"

static bool known_pass(Cli *cli, const char *name)
{
    const uint32_t n = compile_count() + 1;
    const char **names = arena_array(cli->arena, n, sizeof *names);
    Str list = str_in(cli->arena);
    for (uint32_t i = 0; i < n; i++) {
        names[i] = i < compile_count() ? compile_name(i) : "all";
        if (strcmp(names[i], name) == 0) return true;
        str_print(&list, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    cli_error(cli, FAULT_usage, "unknown-pass", "there is no pass '%s'", name);
    const char *near = str_nearest(name, names, n);
    if (near != NULL)
        diag_hint(&cli->diag, "did you mean '%s'?", near);
    else
        diag_hint(&cli->diag, "in order: %s", str_text(&list));
    return false;
}

static void show_programs(Cli *cli, const Plan *plan, Str *out)
{
    Arena *scratch = arena_new();
    if (cli->options.show.text)
        text_print(plan, TEXT_WITH_LOCATIONS | TEXT_WITH_SEALS, out);
    else
        text_show(plan, cli->options.show.role, scratch, out);
    arena_free(scratch);
}

/* Prints the graph after each pass, under a line with the pass's name. Ends at the pass that lowers
 * the graph to programs. */
static void show_every_pass(Cli *cli)
{
    const uint32_t before = cli->diag.items.n;
    json_t *passes = json_array();
    for (uint32_t i = 0; i < compile_count(); i++) {
        PlanOptions options = {.stop_after = compile_name(i), .unproven = true};
        cli->diag.items.n =
            before; /* drop the warnings of the last load, which this load gives again */
        const PlanFile *file = plan_file_load(cli, cli->args[0], &options);
        if (file == NULL || file->plan->programs.n > 0) break;
        Str text = str_in(cli->arena);
        graph_print(&file->plan->graph, &file->plan->mesh, &text);
        str_print(&cli->out, "after %s\n%s", options.stop_after, str_text(&text));
        json_t *pass = json_object();
        json_text(pass, "pass", options.stop_after);
        json_text(pass, "text", str_text(&text));
        json_array_append_new(passes, pass);
    }
    if (cli->json == NULL) {
        json_decref(passes);
        return;
    }
    json_text(cli->json, "form", "graph");
    json_text(cli->json, "after", cli->options.show.after);
    json_object_set_new(cli->json, "passes", passes);
}

static bool known_rank(Cli *cli, uint32_t n_ranks)
{
    return cli->options.show.rank == UINT32_MAX || cli->options.show.rank < n_ranks ||
           cli_error(cli, FAULT_usage, "option-value",
                     "--rank %" PRIu32 ": the plan has %" PRIu32 " rank%s", cli->options.show.rank,
                     n_ranks, n_ranks == 1 ? "" : "s");
}

static void show_mesh_of(Cli *cli)
{
    Config config;
    Mesh mesh;
    if (!plan_file_mesh(cli, cli->args[0], &config, &mesh)) return;
    if (!known_rank(cli, mesh.n_ranks)) return;
    show_mesh(cli, &config, &mesh);
}

static void show_state_of(Cli *cli)
{
    PlanOptions options = {.unfitted = true};
    const PlanFile *file = plan_file_load(cli, cli->args[0], &options);
    if (file != NULL && known_rank(cli, file->plan->mesh.n_ranks)) show_state(cli, file);
}

/* Checks that the requested forms do not contradict each other. --mesh and --state print no graph,
 * and a graph has no exact text. */
static bool forms_agree(Cli *cli)
{
    const char *after = cli->options.show.after;
    const char *other = cli->options.show.mesh    ? "--mesh"
                        : cli->options.show.state ? "--state"
                        : cli->options.show.text && after != NULL && strcmp(after, "all") == 0
                            ? "--text"
                            : NULL;
    return after == NULL || other == NULL ||
           cli_error(cli, FAULT_usage, "option-value",
                     "--after %s and %s exclude each other, because only --after prints a graph",
                     after, other);
}

void cmd_show(Cli *cli)
{
    if (!forms_agree(cli)) return;
    if (cli->options.show.mesh || cli->options.show.state) {
        if (cli->options.show.mesh)
            show_mesh_of(cli);
        else
            show_state_of(cli);
        if (cli->json == NULL) return;
        json_text(cli->json, "form", cli->options.show.mesh ? "mesh" : "state");
        json_text(cli->json, "text", str_text(&cli->out));
        return;
    }
    if (cli->options.show.after != NULL && strcmp(cli->options.show.after, "all") == 0) {
        show_every_pass(cli);
        return;
    }
    PlanOptions options = {.stop_after = cli->options.show.after, .unproven = true};
    if (cli->options.show.after != NULL && !known_pass(cli, cli->options.show.after)) return;
    PlanFile *file = plan_file_load(cli, cli->args[0], &options);
    if (file == NULL) return;
    const Plan *plan = file->plan;
    bool has_programs = plan->programs.n > 0;
    if (cli->options.show.role != UINT32_MAX && cli->options.show.role >= plan->programs.n) {
        cli_error(cli, FAULT_usage, "option-value",
                  "--role %" PRIu32 ": the plan has %" PRIu32 " program%s", cli->options.show.role,
                  plan->programs.n, plan->programs.n == 1 ? "" : "s");
        return;
    }
    Str *out = &cli->out;
    if (has_programs)
        show_programs(cli, plan, out);
    else
        graph_print(&plan->graph, &plan->mesh, out);
    if (cli->json == NULL) return;
    json_text(cli->json, "form",
              has_programs ? (cli->options.show.text ? "text" : "friendly") : "graph");
    json_text(cli->json, "after", cli->options.show.after);
    json_text(cli->json, "text", str_text(out));
}
