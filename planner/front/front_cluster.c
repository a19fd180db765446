/* Loads a cluster of the library by its name: evaluates a tiny plan that uses the cluster, and
 * takes the cluster from the result. */
#define _GNU_SOURCE /* for strcasestr */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "planner/front/parent.h"

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

ClusterNames front_cluster_names(Arena *arena)
{
    ClusterNames names = {.n = 0};
    DIR *dir = opendir(arena_print(arena, "%s/clusters", front_scripts_dir()));
    if (dir == NULL) return names;
    for (const struct dirent *e = readdir(dir); e != NULL && names.n < 64; e = readdir(dir)) {
        size_t length = strlen(e->d_name);
        if (length > 4 && strcmp(e->d_name + length - 4, ".lua") == 0)
            names.at[names.n++] = arena_copy(arena, e->d_name, length - 4);
    }
    closedir(dir);
    qsort(names.at, names.n, sizeof *names.at, by_name);
    return names;
}

/* True if the script clusters/NAME.lua returns a cluster. Some scripts there are only helpers of
 * others, and hints must not propose them. */
static bool loads(const char *name, uint32_t nodes, Arena *arena)
{
    Diag unseen = diag_in(arena);
    Cluster other;
    return name != NULL && front_cluster(name, nodes, arena, &other, &unseen);
}

/* Adds a hint to the error about an unknown cluster: the name nearest to `name`, otherwise all
 * names that contain it, as "h100" is contained in "dgx_h100". */
static void hint_cluster(const char *name, uint32_t nodes, Arena *arena, Diag *d)
{
    static const char prefix[] = "clusters.";
    const ClusterNames all = front_cluster_names(arena);
    const bool prefixed = strncmp(name, prefix, sizeof prefix - 1) == 0;
    const char *word = prefixed ? name + sizeof prefix - 1 : name;
    const char *near = str_nearest(word, all.at, all.n);
    Str some = str_in(arena);
    for (size_t i = 0; i < all.n && strlen(word) > 2; i++)
        if (strcasestr(all.at[i], word) != NULL && loads(all.at[i], nodes, arena))
            str_print(&some, "%s%s", some.n > 0 ? ", " : "", all.at[i]);
    if (loads(near, nodes, arena))
        diag_hint(d, "did you mean '%s'?", near);
    else if (some.n > 0)
        diag_hint(d, "clusters with this word in their name: %s", str_text(&some));
    else
        diag_hint(d, "the clusters of the library are in %s/clusters", front_scripts_dir());
}

/* Evaluates a Lua expression that returns a cluster. Only plans can be loaded, so the expression is
 * put into a plan with a model of one embedding. */
static bool read_cluster(const char *name, const char *expression, Arena *arena, Config *config,
                         Diag *d)
{
    const char *code = arena_print(
        arena,
        "local nn = require 'tandem.nn'\n"
        "local c = %s\n"
        "local shards = c.nodes * c.devices_per_node\n"
        "local e = nn.embedding(2, 2)\n"
        "return plan { cluster = c, batch = { seq = 1 }, mesh = { dp_shard = shards > 0 and "
        "shards or 1 },\n"
        "precision = { compute = 'fp32' }, model = nn.module { e = e,\n"
        "forward = function(m, x, y) return nn.cross_entropy(m.e(x), y) end } }\n",
        expression);
    Graph graph;
    memset(config, 0, sizeof *config);
    memset(&graph, 0, sizeof graph);
    return front_load_text(name, code, NULL, arena, config, &graph, d);
}

bool front_read_cluster(const char *name, uint32_t nodes, Arena *arena, Config *config, Diag *d)
{
    const char *file = arena_print(arena, "%s/clusters/%s.lua", front_scripts_dir(), name);
    bool fine = name[0] != 0 && strlen(name) < 64 &&
                strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(name);
    if (!fine || access(file, R_OK) != 0) {
        diag_error(d, FAULT_usage, "unknown-cluster", (Loc){NULL, 0}, "there is no cluster '%.64s'",
                   name);
        hint_cluster(name, nodes, arena, d);
        return false;
    }
    return read_cluster(name,
                        arena_print(arena, "require 'clusters.%s' { nodes = %u }", name, nodes),
                        arena, config, d);
}

bool front_cluster(const char *name, uint32_t nodes, Arena *arena, Cluster *cluster, Diag *d)
{
    Config config;
    memset(&config, 0, sizeof config);
    bool loaded = front_read_cluster(name, nodes, arena, &config, d);
    *cluster = config.cluster;
    return loaded;
}

bool front_gpu_cluster(const char *gpu, uint32_t n_devices, Arena *arena, Cluster *cluster)
{
    static const char fine[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 -_";
    if (strspn(gpu, fine) != strlen(gpu)) return false;
    Config config;
    Diag unseen = diag_in(arena);
    const char *expression =
        arena_print(arena,
                    "require 'tandem.gpus'.find '%s' and require 'clusters.gpu' { gpu = "
                    "require 'tandem.gpus'.find '%s', "
                    "devices_per_node = %u, nics_per_node = %u } or error ''",
                    gpu, gpu, n_devices, n_devices);
    if (!read_cluster(gpu, expression, arena, &config, &unseen)) return false;
    *cluster = config.cluster;
    return true;
}

/* Appends a text as a Lua string. */
static void add_quoted(Str *out, const char *text)
{
    str_add(out, "'");
    for (; *text != 0; text++)
        if (*text == '\'' || *text == '\\' || (unsigned char)*text < ' ')
            str_print(out, "\\%03u", (unsigned)(unsigned char)*text);
        else
            str_print(out, "%c", *text);
    str_add(out, "'");
}

bool front_published_cluster(const char *gpu, const char *interconnect, uint32_t per_node,
                             bool between, Arena *arena, Cluster *cluster, Diag *d)
{
    Config config;
    Str expression = str_in(arena);
    str_add(&expression, "require 'tandem.collective' { gpu = ");
    add_quoted(&expression, gpu);
    str_add(&expression, ", interconnect = ");
    add_quoted(&expression, interconnect);
    str_print(&expression, ", per_node = %u, between = %s }", (unsigned)per_node,
              between ? "true" : "false");
    if (!read_cluster("a published collective", str_text(&expression), arena, &config, d))
        return false;
    *cluster = config.cluster;
    return true;
}
