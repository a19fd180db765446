/* The parent's side of a held script: one process answers requests for many settings, and each
 * distinct model is traced only once. */
#include <assert.h>
#include <string.h>

#include "planner/front/parent.h"

typedef struct NamedCluster {
    const char *name;
    uint32_t nodes;
    Config *config;
} NamedCluster;

struct FrontScript {
    Arena *own; /* contains this struct; freeing it also ends the process */
    const char *path, *code;
    double cpu_s;
    Script script;
    Traces traces;
    LIST(NamedCluster) clusters;
};

FrontScript *front_open(const char *path, const char *code, double cpu_seconds, Arena *arena)
{
    Arena *own = arena_new();
    FrontScript *s = arena_alloc(own, sizeof *s);
    s->own = own;
    s->script = script_none(&s->traces);
    arena_at_end(own, script_stop, &s->script);
    s->path = arena_dup(arena, path);
    s->code = code;
    s->cpu_s = cpu_seconds;
    s->traces.arena = s->traces.texts.arena = arena;
    return s;
}

const void *front_trace(const FrontScript *s, const Graph *graph)
{
    for (uint32_t i = 0; i < s->traces.list.n; i++)
        if (s->traces.list.at[i]->graph.nodes.at == graph->nodes.at) return s->traces.list.at[i];
    return NULL;
}

void front_close(FrontScript *s)
{
    if (s != NULL) arena_free(s->own);
}

/* Returns the cluster of --cluster. It is loaded at the first request and reused. */
static const Config *named_cluster(FrontScript *s, const FrontOptions *o, Diag *d)
{
    const char *name = front_named_cluster(o);
    const uint32_t nodes = o->nodes > 0 ? o->nodes : 1;
    for (uint32_t i = 0; i < s->clusters.n; i++) {
        const NamedCluster *c = &s->clusters.at[i];
        if (c->nodes == nodes && strcmp(c->name, name) == 0) return c->config;
    }
    Arena *arena = s->traces.arena;
    NamedCluster c = {arena_dup(arena, name), nodes, arena_alloc(arena, sizeof *c.config)};
    if (!front_read_cluster(name, nodes, arena, c.config, d)) return NULL;
    list_push(arena, &s->clusters, c);
    return c.config;
}

static void send_request(Script *s, const FrontOptions *o, Arena *arena)
{
    StreamWriter w = {.bytes = str_in(arena)};
    put_u32(&w, o->n_set);
    for (uint32_t i = 0; i < o->n_set; i++) put_text(&w, o->set[i], strlen(o->set[i]));
    script_send(s, &w);
}

/* Returns the settings that change model.config, one in each line. */
static const char *model_settings(const FrontOptions *o, Arena *arena)
{
    Str text = str_in(arena);
    for (uint32_t i = 0; i < o->n_set; i++)
        if (strncmp(o->set[i], "model", 5) == 0) str_print(&text, "%s\n", o->set[i]);
    return str_text(&text);
}

/* Sends the request to the script's process and reads the answer. Starts the process if it does not
 * run. */
static bool ask(FrontScript *s, const FrontOptions *o, Draft *draft, Rebuild *b)
{
    Script *script = &s->script;
    if (script->pid < 0) {
        *script = script_none(&s->traces);
        FrontOptions own = {.cpu_seconds = s->cpu_s};
        if (!script_start(script, s->path, s->code, &own, SCRIPT_held, draft->d)) return false;
    }
    script->done = script->ended = false;
    script->channel.total = 0;
    s->traces.model = model_settings(o, draft->arena);
    send_request(script, o, draft->arena);
    return script_listen(script, draft, b, false);
}

static bool load(FrontScript *s, const FrontOptions *o, Draft *draft, Graph *graph)
{
    if (!front_sets_are_fine(o, draft->d)) return false;
    graph_init(graph, draft->arena);
    draft->config.file = s->path;
    const Config *named = NULL;
    if (o->cluster != NULL) {
        named = named_cluster(s, o, draft->d);
        if (named == NULL) return false;
        draft_name_cluster(draft, o, &named->cluster);
    }
    Rebuild b = {.graph = graph, .draft = draft, .arena = draft->arena};
    const uint32_t n_before = draft->d->items.n;
    const bool heard = ask(s, o, draft, &b);
    for (uint32_t i = 0; named != NULL && i < named->scripts.n; i++)
        list_push(draft->arena, &draft->config.scripts, named->scripts.at[i]);
    if (!heard) return false;
    if (b.known) return true;
    b.varied = false;
    if (!rebuild_finish(&b, draft->d))
        return diag_error(draft->d, FAULT_internal, "front-damaged", (Loc){s->path, 0},
                          "the script's model is not complete");
    /* a graph whose trace reported warnings is not kept: the next request must trace it again to
     * report them again */
    if (b.kept != NULL && draft->d->items.n == n_before) traces_keep(&s->traces, &b);
    return draft->d->n_errors == 0;
}

bool front_load_held(FrontScript *s, const FrontOptions *options, Arena *arena, Config *config,
                     Graph *graph, Diag *d)
{
    assert(!options->shrink);
    Draft *draft = arena_alloc(arena, sizeof *draft);
    *draft = draft_new(arena, d);
    draft->texts = &s->traces.texts;
    const uint32_t before = d->n_errors;
    load(s, options, draft, graph);
    *config = draft->config;
    return d->n_errors == before;
}
