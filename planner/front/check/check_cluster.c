/* Chooses the cluster of a plan: that of the script or that of --cluster, then changed by settings
 * such as --set cluster.nodes=2. Checks that several nodes have a network. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "planner/front/keys/fields.h"
#include "planner/front/parent.h"

/* True if --set gave this value: its location is then the text of the setting. */
static bool is_setting(const Seen *seen)
{
    return seen->loc.file != NULL && strncmp(seen->loc.file, "--set ", 6) == 0;
}

static const char *last_setting(const FrontOptions *o, const char *key)
{
    const size_t n = strlen(key);
    for (uint32_t i = o->n_set; i > 0; i--)
        if (strncmp(o->set[i - 1], key, n) == 0 && o->set[i - 1][n] == '=')
            return o->set[i - 1] + n + 1;
    return NULL;
}

const char *front_named_cluster(const FrontOptions *o)
{
    const char *other = o->cluster != NULL ? last_setting(o, "cluster") : NULL;
    return other != NULL ? other : o->cluster;
}

void draft_name_cluster(Draft *draft, const FrontOptions *o, const Cluster *named)
{
    draft->named = named;
    draft->named_nodes = o->nodes;
    draft->sets_gpu = last_setting(o, "gpu") != NULL;
}

/* --set gpu= has changed the device of the script's cluster; moves that device into the cluster of
 * --cluster. The price is then unknown, unless it is the same GPU: it was the price of nodes with
 * another GPU. */
static void take_gpu(Draft *draft, const Cluster *script)
{
    Device *device = &draft->config.cluster.device;
    const bool same = strcmp(device->name, script->device.name) == 0;
    const double price = same ? device->usd_per_hour : 0;
    *device = script->device;
    device->usd_per_hour = price;
}

/* Copies the values that --set cluster.KEY=VALUE gave from `script`, the script's cluster, to the
 * cluster of --cluster. */
static void keep_settings(Draft *draft, const Cluster *script)
{
    Cluster *c = &draft->config.cluster;
    for (uint32_t i = 0; i < draft->seen.n; i++) {
        const Seen *seen = &draft->seen.at[i];
        if (strncmp(seen->path, "cluster.", 8) != 0 || !is_setting(seen)) continue;
        const Field *f = field_of_plan(seen->path);
        if (f == NULL) continue; /* an unknown key was already reported */
        size_t at = f->offset - offsetof(Draft, config.cluster), n = field_bytes(f->kind);
        if (n > 0) memcpy((char *)c + at, (const char *)script + at, n);
        if (strcmp(seen->path, "cluster.nodes") == 0) draft->named_nodes = c->nodes;
    }
}

void draft_take_named(Draft *draft, uint64_t ranks)
{
    Cluster *c = &draft->config.cluster;
    const Cluster script = *c;
    const uint32_t nodes = c->nodes;
    bool is_open = false;
    if (draft->named == NULL) return;
    *c = *draft->named;
    if (draft->sets_gpu && script.device.name != NULL) take_gpu(draft, &script);
    keep_settings(draft, &script);
    if (draft->named_nodes > 0 || c->devices_per_node == 0) return;
    for (int a = 0; a < AXIS_NAMES; a++) is_open = is_open || draft->mesh[a] == -1;
    const uint64_t per_node = c->devices_per_node;
    uint64_t need = ranks <= MOST_RANKS ? (ranks + per_node - 1) / per_node : 1;
    c->nodes = is_open ? nodes : (uint32_t)need;
}

void draft_check_network(Draft *draft)
{
    const Cluster *c = &draft->config.cluster;
    if (draft->unsure || c->is_local || c->nodes < 2) return;
    /* in a torus or dragonfly, the links have their own rates, and NICs do not matter */
    if (c->topology.kind != TOPOLOGY_tree) return;
    if (c->nics_per_node > 0 && c->nic_bytes_per_s > 0) return;
    const char *key = c->nics_per_node == 0 ? "nics_per_node" : "nic_bytes_per_s";
    Loc loc = draft_loc(draft, arena_print(draft->arena, "cluster.%s", key));
    diag_error(draft->d, FAULT_input, "cluster-network", loc,
               "cluster.%s is 0, but %u nodes need a network", key, c->nodes);
    diag_hint(draft->d, "nics_per_node is the number of network cards; nic_bytes_per_s is the rate "
                        "of one card, 50e9 for 400 Gb/s");
}

bool draft_check_topology(Draft *draft)
{
    const Topology *t = &draft->config.cluster.topology;
    Loc loc = draft_loc(draft, "cluster.topology");
    double places = 1, links = t->link_bytes_per_s;
    if (t->kind == TOPOLOGY_tree) return true;
    if (t->kind == TOPOLOGY_torus) {
        for (uint32_t a = 0; a < MOST_TORUS_AXES; a++) places *= t->sizes[a] < 2 ? 1 : t->sizes[a];
    } else {
        places = (double)t->groups * t->routers * t->nodes;
        links = fmin(links, t->way_out_bytes_per_s);
        if (t->groups < 2 || (double)t->routers * t->ways_out < t->groups - 1.)
            return diag_error(draft->d, FAULT_input, "out-of-range", loc,
                              "a dragonfly of %u groups with %u routers and %u ways_out reaches "
                              "%.0f other groups, but must reach all of them",
                              t->groups, t->routers, t->ways_out, (double)t->routers * t->ways_out);
    }
    if (links <= 0)
        return diag_error(draft->d, FAULT_input, "out-of-range", loc,
                          "the links of the topology have 0 bytes/s; set link_bytes_per_s%s",
                          t->kind == TOPOLOGY_torus ? "" : " and way_out_bytes_per_s");
    if (places >= draft->config.cluster.nodes && places <= MOST_RANKS) return true;
    return diag_error(
        draft->d, FAULT_input, "out-of-range", loc,
        "a %s has %.0f places for %u nodes, but must have one for each node, and at most %d",
        t->kind == TOPOLOGY_torus ? "torus" : "dragonfly", places, draft->config.cluster.nodes,
        MOST_RANKS);
}
