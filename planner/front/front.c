/* Loads a plan: its configuration and its graph. */
#include "planner/front/front.h"

#include <string.h>

#include "planner/front/child/child.h"
#include "planner/front/parent.h"

bool front_sets_are_fine(const FrontOptions *options, Diag *d)
{
    uint32_t before = d->n_errors;
    if (options->n_set > CHILD_MOST_SETS)
        return diag_error(d, FAULT_usage, "set-syntax", (Loc){NULL, 0},
                          "there are more than %d --set options", CHILD_MOST_SETS);
    for (uint32_t i = 0; i < options->n_set; i++) {
        const char *text = options->set[i], *equals = strchr(text, '=');
        size_t n = equals != NULL ? (size_t)(equals - text) : 0, parts = 1;
        bool fine = n > 0 && n < 200 && text[0] != '.' && text[n - 1] != '.' && strlen(text) < 1000;
        for (size_t k = 0; k < n; k++) {
            fine = fine && (unsigned char)text[k] > ' ' && !(text[k] == '.' && text[k + 1] == '.');
            parts += text[k] == '.';
        }
        if (fine && parts <= 5) continue;
        diag_error(d, FAULT_usage, "set-syntax", (Loc){NULL, 0},
                   "--set %.80s does not have the form key.path=value", text);
        diag_hint(d, "for example --set mesh.tp=4");
    }
    return d->n_errors == before;
}

static bool load(const char *path, const char *code, const FrontOptions *options, Draft *draft,
                 Graph *graph)
{
    static const FrontOptions none = {.cpu_seconds = 0};
    if (options == NULL) options = &none;
    if (!front_sets_are_fine(options, draft->d)) return false;
    graph_init(graph, draft->arena);
    draft->config.file = arena_dup(draft->arena, path);
    Config *named = NULL;
    const char *cluster = front_named_cluster(options);
    if (cluster != NULL) {
        uint32_t nodes = options->nodes > 0 ? options->nodes : 1;
        named = arena_alloc(draft->arena, sizeof *named);
        if (!front_read_cluster(cluster, nodes, draft->arena, named, draft->d)) return false;
        draft_name_cluster(draft, options, &named->cluster);
    }
    Arena *own = arena_new();
    Script *s = arena_alloc(own, sizeof *s);
    *s = script_none(NULL);
    arena_at_end(own, script_stop, s);
    Rebuild b = {.graph = graph, .draft = draft, .arena = draft->arena};
    const bool heard = script_start(s, draft->config.file, code, options, SCRIPT_once, draft->d) &&
                       script_listen(s, draft, &b, options->shrink);
    arena_free(own);
    for (uint32_t i = 0; named != NULL && i < named->scripts.n; i++)
        list_push(draft->arena, &draft->config.scripts, named->scripts.at[i]);
    if (!heard) return false;
    /* rebuild_finish limits the number of parameters if `varied`, that is, for small models of
     * --verify */
    b.varied = options->shrink;
    if (!rebuild_finish(&b, draft->d))
        return diag_error(draft->d, FAULT_internal, "front-damaged", (Loc){path, 0},
                          "the script's model is not complete");
    return draft->d->n_errors == 0;
}

bool front_load_text(const char *name, const char *code, const FrontOptions *options, Arena *arena,
                     Config *config, Graph *graph, Diag *d)
{
    Draft *draft = arena_alloc(arena, sizeof *draft);
    *draft = draft_new(arena, d);
    uint32_t before = d->n_errors;
    load(name, code, options, draft, graph);
    *config = draft->config;
    return d->n_errors == before;
}

bool front_load(const char *path, const FrontOptions *options, Arena *arena, Config *config,
                Graph *graph, Diag *d)
{
    return front_load_text(path, NULL, options, arena, config, graph, d);
}
