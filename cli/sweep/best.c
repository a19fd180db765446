/* The lines about the best plan of a sweep: its memory and time under each framework that could run
 * it. The ranking of a sweep holds for only one executor. */
#include <stdlib.h>
#include <string.h>

#include "cli/sweep/point.h"

/* Returns the hash of everything on which the lines about the best plan depend, except
 * the scripts. */
static Hash128 key_of_best(const Cli *cli, const char *path, const PlanOptions *o)
{
    const char *asked =
        arena_print(cli->arena, "%s\nlines of the best plan\ncolor %d\n%s", build_name(cli->arena),
                    cli->color, recipe_head(path, o, cli->arena));
    return hash_bytes(asked, strlen(asked));
}

static PlanOptions options_of(Cli *cli)
{
    const PlanOptions quick = {.unproven = true};
    return plan_file_options(cli, &quick);
}

const char *best_found(Cli *cli, const char *path, Store *store)
{
    FoundAnswer found;
    KnownScripts scripts = {.fresh = {NULL, 0, 0}};
    Diag ignored = diag_in(cli->arena); /* without the store, the lines are computed again */
    const PlanOptions o = options_of(cli);
    if (store == NULL ||
        !store_find_answer(store, key_of_best(cli, path, &o), cli->arena, &found, &ignored) ||
        !recipe_is_fresh(&scripts, &found, path, cli->arena))
        return NULL;
    json_t *answer = json_loads(found.answer, 0, NULL);
    const char *text = json_string_value(json_object_get(answer, "text"));
    if (text != NULL) text = arena_dup(cli->arena, text);
    json_decref(answer);
    return text;
}

static void keep_best(Cli *cli, const char *path, Recipe *recipe, const char *text, Store *store)
{
    if (store == NULL || recipe->scripts.n == 0) return;
    Diag ignored = diag_in(cli->arena); /* only these lines are lost; the points are in the store */
    const PlanOptions o = options_of(cli);
    json_t *lines = json_object();
    json_text(lines, "text", text);
    char *answer = json_dumps(lines, JSON_COMPACT);
    recipe_read_scripts(recipe, store, cli->arena, &ignored);
    if (answer != NULL)
        store_put_answer(store, key_of_best(cli, path, &o), recipe, 0, build_name(cli->arena),
                         answer, &ignored);
    free(answer);
    json_decref(lines);
}

const char *best_lines_of(Cli *cli, const PlanFile *file, Recipe *recipe, Store *store)
{
    const size_t before = cli->out.n;
    frameworks_print(cli, frameworks_ask(cli, file, true, NULL, store), "best plan", store, recipe);
    const char *text = arena_dup(cli->arena, str_text(&cli->out) + before);
    keep_best(cli, file->path, recipe, text, store);
    return text;
}

void best_print(Cli *cli, const char *path, Store *store)
{
    Diag ignored = diag_in(cli->arena); /* the warnings were printed with the point */
    Config *config = arena_alloc(cli->arena, sizeof *config);
    Graph graph;
    Recipe recipe = {.head = ""};
    PlanOptions own = options_of(cli);
    PlanFile shell = {.path = path, .has_cluster = true};
    const PlanFile *file = &shell;
    cli->script = front_open(path, NULL, 0, cli->arena);
    own.script = cli->script;
    own.made_of = &recipe;
    bool fine = session_read(path, &own, cli->arena, config, &graph, &ignored);
    shell.config = *config;
    if (fine && config->runtime.name != NULL) {
        file = session_finish(config, &graph, &own, cli->arena, &ignored);
        fine = file != NULL;
    }
    if (fine) best_lines_of(cli, file, &recipe, store);
    plan_file_close(cli);
}
