/* Completes the mesh, and checks that its ranks are those of the cluster. */
#include <string.h>

#include "planner/front/parent.h"

/* greatest number of settings that a hint may test: each test compiles a plan, which can take a
 * second */
enum { MOST_TRIES = 8 };

static bool is_factor(const Draft *draft, int axis)
{
    return !axes_have(axes_with(AXIS_FOLDS), (AxisName)axis) || draft->config.ep_mode == EP_extra;
}

uint64_t draft_other_axes(const Draft *draft, int axis)
{
    uint64_t product = 1;
    for (int a = 0; a < AXIS_NAMES; a++)
        if (a != axis && draft->mesh[a] > 1 && is_factor(draft, a))
            product *= (uint64_t)draft->mesh[a];
    return product;
}

static const char *mesh_text(const Draft *draft)
{
    Str s = str_in(draft->arena);
    for (int a = 0; a < AXIS_NAMES; a++)
        if (draft->mesh[a] != 0 && is_factor(draft, a))
            str_print(&s, "%s%s %lld", s.n > 0 ? " x " : "", axis_name_text((AxisName)a),
                      (long long)draft->mesh[a]);
    return s.n > 0 ? str_text(&s) : "1";
}

/* Stores a setting, such as mesh.tp=4, with which the mesh would use all devices.
 * session_try_fillings later compiles the plan with it, and the hint names only settings that work.
 */
static void propose(Draft *draft, const char *key, uint64_t size)
{
    const unsigned long long n = size;
    list_push(draft->arena, &draft->config.fills, arena_print(draft->arena, "%s=%llu", key, n));
}

static void add_filling(Draft *draft, Str *hint, const char *key, uint64_t size)
{
    const unsigned long long n = size;
    propose(draft, key, size);
    str_print(hint, "%s%s = %llu", hint->n > 0 ? ", or " : "", strchr(key, '.') + 1, n);
}

static void hint_mesh(Draft *draft, uint64_t world)
{
    Str s = str_in(draft->arena);
    if (!draft_has(draft, "mesh")) {
        diag_hint(draft->d, "add mesh = { dp_shard = -1 }, which uses all devices");
        return;
    }
    for (int a = 0; a < AXIS_NAMES; a++) {
        uint64_t rest = draft_other_axes(draft, a);
        if (draft->mesh[a] != 0 && is_factor(draft, a) && world % rest == 0)
            add_filling(draft, &s,
                        arena_print(draft->arena, "mesh.%s", axis_name_text((AxisName)a)),
                        world / rest);
    }
    uint64_t all = draft_other_axes(draft, -1);
    const Cluster *c = &draft->config.cluster;
    if (c->devices_per_node > 0 && all % c->devices_per_node == 0)
        add_filling(draft, &s, "cluster.nodes", all / c->devices_per_node);
    if (s.n > 0) diag_hint(draft->d, "these sizes fill the cluster: %s", str_text(&s));
}

/* Reports that axis `open` has size -1, but the product of the other axes does not divide the
 * number of devices, `world`. The hint lists sizes of other axes that would. */
static void refuse_open(Draft *draft, int open, Loc loc, uint64_t world)
{
    Str axes = str_in(draft->arena), legal = str_in(draft->arena);
    uint32_t n = 0;
    for (int a = 0; a < AXIS_NAMES; a++) {
        if (a == open || draft->mesh[a] <= 1 || !is_factor(draft, a)) continue;
        const char *name = axis_name_text((AxisName)a);
        const uint64_t rest = draft_other_axes(draft, a);
        str_print(&axes, "%s%s %lld", n++ > 0 ? " x " : "", name, (long long)draft->mesh[a]);
        if (world % rest != 0) continue;
        str_print(&legal, "%s%s may be %s", legal.n > 0 ? ", or " : "", name,
                  str_divisors(draft->arena, (int64_t)(world / rest)));
        for (uint64_t size = 1; size <= world / rest; size++)
            if (world / rest % size == 0)
                propose(draft, arena_print(draft->arena, "mesh.%s", name), size);
    }
    if (draft->config.fills.n > MOST_TRIES) draft->config.fills.n = 0;
    const uint64_t product = draft_other_axes(draft, open);
    if (n > 1) str_print(&axes, " = %llu", (unsigned long long)product);
    diag_error(draft->d, FAULT_input, "mesh-product", loc,
               "mesh.%s = -1 has no size, because the other axes (%s) do not divide the cluster's "
               "%llu devices",
               axis_name_text((AxisName)open), str_text(&axes), (unsigned long long)world);
    if (legal.n > 0)
        diag_hint(draft->d, "%s", str_text(&legal));
    else
        diag_hint(draft->d, "their product may be %s", str_divisors(draft->arena, (int64_t)world));
}

/* Replaces the size -1 of an axis by world / (product of the other axes). world: devices of the
 * cluster. Reports an error if two axes are -1, or if the quotient is not an integer. */
static void resolve_mesh(Draft *draft, uint64_t world)
{
    int open = -1;
    for (int a = 0; a < AXIS_NAMES; a++) {
        if (draft->mesh[a] != -1) continue;
        const char *path = arena_print(draft->arena, "mesh.%s", axis_name_text((AxisName)a));
        if (!is_factor(draft, a)) {
            diag_error(draft->d, FAULT_input, "mesh-free-axis", draft_loc(draft, path),
                       "mesh.%s = -1 does not work with ep_mode = \"folded\", because %s is not a "
                       "factor of the number of ranks",
                       axis_name_text((AxisName)a), axis_name_text((AxisName)a));
            diag_hint(draft->d, "give the axis a size");
            return;
        }
        if (open >= 0) {
            diag_error(draft->d, FAULT_input, "mesh-free-axis", draft_loc(draft, path),
                       "mesh has -1 for two axes, %s and %s, so their sizes are unknown",
                       axis_name_text((AxisName)open), axis_name_text((AxisName)a));
            diag_hint(draft->d, "give one of them a size");
            return;
        }
        open = a;
    }
    if (open < 0) return;
    const char *name = axis_name_text((AxisName)open);
    Loc loc = draft_loc(draft, arena_print(draft->arena, "mesh.%s", name));
    uint64_t rest = draft_other_axes(draft, open);
    if (draft->config.cluster.is_local) {
        diag_error(
            draft->d, FAULT_input, "mesh-free-axis", loc,
            "mesh.%s = -1 has no size, because the plan names no cluster with a number of devices",
            name);
        diag_hint(draft->d,
                  "give the axis a size, or name a cluster: --cluster dgx_h100 --nodes 1");
    } else if (rest > world || world % rest != 0) {
        refuse_open(draft, open, loc, world);
    } else {
        draft->mesh[open] = (int64_t)(world / rest);
    }
}

/* True if the mesh fits into a cluster that --cluster named without a number of nodes. Such a mesh
 * may leave devices unused; any other must use all devices. */
static bool fits_named(const Draft *draft, double product, uint64_t world)
{
    return draft->named != NULL && draft->named_nodes == 0 && product <= (double)world;
}

bool draft_check_mesh(Draft *draft)
{
    Config *c = &draft->config;
    uint32_t before = draft->d->n_errors;
    uint64_t world = (uint64_t)c->cluster.nodes * c->cluster.devices_per_node;
    resolve_mesh(draft, world);
    if (draft->d->n_errors > before) return false;
    double product = 1;
    for (int a = 0; a < AXIS_NAMES; a++) {
        int64_t size = draft->mesh[a] > 0 ? draft->mesh[a] : 1;
        if (is_factor(draft, a)) product *= (double)size;
        c->axis_size[a] = (uint32_t)size;
        c->axis_loc[a] =
            draft_loc(draft, arena_print(draft->arena, "mesh.%s", axis_name_text((AxisName)a)));
    }
    if (product > MOST_RANKS)
        return diag_error(draft->d, FAULT_input, "out-of-range", c->mesh_loc,
                          "the mesh has %.0f ranks, but at most %d are possible", product,
                          MOST_RANKS);
    if (c->cluster.is_local) {
        c->cluster.nodes = 1;
        c->cluster.devices_per_node = (uint32_t)product;
    } else if (product != (double)world && !fits_named(draft, product, world)) {
        diag_error(draft->d, FAULT_input, "mesh-product", c->mesh_loc,
                   "mesh %s = %.0f rank%s, but the cluster has %u node%s x %u = %llu devices",
                   mesh_text(draft), product, product == 1 ? "" : "s", c->cluster.nodes,
                   c->cluster.nodes == 1 ? "" : "s", c->cluster.devices_per_node,
                   (unsigned long long)world);
        hint_mesh(draft, world);
    }
    if (c->ep_mode == EP_folded && draft->d->n_errors == before) draft_fold_experts(draft);
    draft_check_topology(draft);
    return draft->d->n_errors == before;
}
