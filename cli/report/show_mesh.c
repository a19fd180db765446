/* tandem show --mesh: prints the coordinates of each rank in the mesh. No pass has run before, so
 * this works even for meshes that the plan's passes refuse. */
#include <inttypes.h>

#include "cli/cli.h"
#include "planner/front/fold.h"
#include "planner/ir/layout/mesh_view.h"

enum { MOST_ROWS = 64 };

typedef struct View {
    Cli *cli;
    const Config *config;
    const Mesh *mesh;
    uint32_t per_node; /* number of ranks in a node; 0: unknown */
    EpFold fold;
} View;

static void show_axes(const View *v)
{
    static const char *const heads[] = {"axis", ">size", ">stride", ">groups", ">nodes of a group"};
    Table t = table_in(v->cli->arena, 5, heads);
    json_t *list = v->cli->json != NULL ? json_array() : NULL;
    for (uint32_t a = 0; a < v->mesh->n_axes; a++) {
        const Axis *axis = &v->mesh->axis[a];
        AxisSet set = (AxisSet)(1u << a);
        uint32_t nodes = v->per_node ? mesh_nodes_of_groups(v->mesh, set, v->per_node) : 0;
        table_cell(&t, "%s", axis->text);
        table_cell(&t, "%" PRIu32, axis->size);
        table_cell(&t, "%" PRIu32, axis->stride);
        table_cell(&t, "%" PRIu32, v->mesh->n_ranks / axis->size);
        table_cell(&t, v->per_node ? "%" PRIu32 : "-", nodes);
        if (list == NULL) continue;
        json_t *row = json_object();
        json_text(row, "axis", axis->text);
        json_count(row, "size", axis->size);
        json_count(row, "stride", axis->stride);
        json_array_append_new(list, row);
    }
    table_print(&t, &v->cli->out);
    if (list != NULL) json_put(v->cli->json, "axes", list);
}

static void show_submeshes(const View *v)
{
    Str *out = &v->cli->out;
    json_t *sizes = v->cli->json != NULL ? json_object() : NULL;
    str_add(out, "flattened  ");
    for (uint32_t i = 0; mesh_flattened[i] != NULL; i++) {
        AxisSet axes;
        mesh_named(v->mesh, mesh_flattened[i], &axes);
        uint32_t n = mesh_size(v->mesh, axes);
        str_print(out, "%s %s = %" PRIu32, i > 0 ? "," : "", mesh_flattened[i], n);
        if (sizes != NULL) json_count(sizes, mesh_flattened[i], n);
    }
    str_add(out, "\n");
    if (sizes != NULL) json_put(v->cli->json, "flattened", sizes);
}

static void show_data(const View *v)
{
    Cli *cli = v->cli;
    Str *out = &cli->out;
    const Mesh *mesh = v->mesh;
    Str text = str_in(cli->arena);
    DpMesh dp = {0};
    Loc none = {NULL, 0};
    if (mesh_has_dp(mesh)) mesh_dp(mesh, cli->arena, none, &cli->diag, &dp);
    for (uint32_t i = 0; i < dp.n_dims; i++)
        str_print(&text, "%s%s %" PRIu32, i > 0 ? " x " : "", dp.name[i],
                  mesh_size(mesh, dp.axes[i]));
    str_print(out, "data mesh   %s%s\n", dp.n_dims == 0 ? "none" : str_text(&text),
              dp.n_dims == 2 ? " (hybrid sharding)" : "");
    AxisSet all = (AxisSet)((1u << mesh->n_axes) - 1),
            same = (AxisSet)(all & ~mesh_data_axes(mesh));
    str_print(out,
              "samples     %" PRIu32 " data rank%s; ranks that differ in %s alone read the same\n",
              mesh_dp_size(mesh), mesh_dp_size(mesh) == 1 ? "" : "s",
              same ? mesh_axes_text(cli->arena, mesh, same) : "nothing");
    report_folded(cli, v->config);
    if (v->fold.ep > 1)
        str_print(out, "            ep %" PRIu32 " x ep_shard %" PRIu32 " in a stage\n", v->fold.ep,
                  v->fold.ep_shard);
    if (cli->json == NULL) return;
    json_text(cli->json, "data_mesh", dp.n_dims == 0 ? NULL : str_text(&text));
    json_count(cli->json, "dp_size", mesh_dp_size(mesh));
    json_text(cli->json, "same_samples", mesh_axes_text(cli->arena, mesh, same));
    json_count(cli->json, "ep_folded", v->fold.ep);
    json_count(cli->json, "ep_shard", v->fold.ep_shard);
}

static json_t *rank_row(const View *v, Rank rank, const uint32_t *at)
{
    json_t *row = json_object(), *coordinates = json_object();
    json_count(row, "rank", rank);
    if (v->per_node) json_count(row, "node", rank / v->per_node);
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        if (mesh_axes(v->mesh, (AxisName)a))
            json_count(coordinates, axis_name_text((AxisName)a), at[a]);
    json_put(row, "at", coordinates);
    json_count(row, "dp_rank", mesh_dp_rank(v->mesh, rank));
    return row;
}

static void show_ranks(const View *v, Rank first, Rank end)
{
    const char *heads[AXIS_NAMES + 6];
    uint32_t n = 0;
    /* folded experts (ep uses ranks of other axes again) have columns of their own, so the axis ep
     * is left out */
    const AxisNames left_out = v->fold.ep > 1 ? axes_with(AXIS_FOLDS) : 0;
    heads[n++] = ">rank";
    heads[n++] = ">node";
    heads[n++] = ">device";
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        if (mesh_axes(v->mesh, (AxisName)a) && !axes_have(left_out, (AxisName)a))
            heads[n++] = arena_print(v->cli->arena, ">%s", axis_name_text((AxisName)a));
    heads[n++] = ">dp_rank";
    if (v->fold.ep > 1) heads[n++] = ">ep", heads[n++] = ">ep_shard";
    Table t = table_in(v->cli->arena, n, heads);
    json_t *rows = v->cli->json != NULL ? json_array() : NULL;
    for (Rank r = first; r < end; r++) {
        uint32_t at[AXIS_NAMES], ep, shard, node = v->per_node ? r / v->per_node : 0;
        mesh_place(v->mesh, r, at);
        table_cell(&t, "%" PRIu32, r);
        table_cell(&t, v->per_node ? "%" PRIu32 : "-", node);
        table_cell(&t, v->per_node ? "%" PRIu32 : "-", v->per_node ? r % v->per_node : 0);
        for (uint32_t a = 0; a < AXIS_NAMES; a++)
            if (mesh_axes(v->mesh, (AxisName)a) && !axes_have(left_out, (AxisName)a))
                table_cell(&t, "%" PRIu32, at[a]);
        table_cell(&t, "%" PRIu32, mesh_dp_rank(v->mesh, r));
        if (v->fold.ep > 1) {
            mesh_ep_place(v->mesh, &v->fold, r, &ep, &shard);
            table_cell(&t, "%" PRIu32, ep);
            table_cell(&t, "%" PRIu32, shard);
        }
        if (rows != NULL) json_array_append_new(rows, rank_row(v, r, at));
    }
    table_print(&t, &v->cli->out);
    if (rows != NULL) json_put(v->cli->json, "placement", rows);
}

void show_mesh(Cli *cli, const Config *config, const Mesh *mesh)
{
    View v = {.cli = cli, .config = config, .mesh = mesh};
    v.per_node = config->cluster.devices_per_node;
    if (config_lends_experts(config)) v.fold = mesh_fold_ep(mesh, config_expert_ranks(config));
    str_print(&cli->out, "mesh        %s = %" PRIu32 " rank%s",
              config->ep_mode == EP_folded ? config_mesh_text(cli->arena, config)
                                           : mesh_text(cli->arena, mesh),
              mesh->n_ranks, mesh->n_ranks == 1 ? "" : "s");
    if (config->cluster.name != NULL)
        str_print(&cli->out, " on %s, %" PRIu32 " x %" PRIu32, config->cluster.name,
                  config->cluster.nodes, config->cluster.devices_per_node);
    str_add(&cli->out, "\n");
    show_axes(&v);
    show_submeshes(&v);
    show_data(&v);
    Rank one = cli->options.show.rank;
    if (one != UINT32_MAX) {
        show_ranks(&v, one, one + 1);
        return;
    }
    show_ranks(&v, 0, mesh->n_ranks < MOST_ROWS ? mesh->n_ranks : MOST_ROWS);
    if (mesh->n_ranks > MOST_ROWS)
        str_print(&cli->out, "... %" PRIu32 " more ranks; --rank R shows one\n",
                  mesh->n_ranks - MOST_ROWS);
}
