/* State-space layers under context parallelism. A scan needs whole sequences, so ranks exchange
 * tokens for heads before the convolutions, and back after the scan.
 *
 * cp divides groups of heads first. If cp has more ranks than there are groups, several ranks share
 * a group. Each of them has other heads of the group, but all of the group's B and C. In the
 * convolutions, these ranks divide the features of B and C.
 *
 * cp never divides a dimension that tp has divided: if tp divides groups, cp divides the heads in
 * each group; if tp divides heads, cp divides groups. */
#include <assert.h>

#include "planner/ir/layout/mesh_view.h"
#include "planner/passes/pass.h"

/* What a rank of tp leaves for cp to divide: its count of groups, and of heads in each group. 1: tp
 * divides this dimension, so cp may not. */
typedef struct ScanSizes {
    int64_t groups, heads;
    bool tp; /* tp divides groups or heads */
} ScanSizes;

static bool is_cut(const Job *job, const Tensor *t, int dim)
{
    return dim >= 0 && layout_axes_split(&t->use, dim) & pass_axes(job, PASS_tp);
}

/* Returns the sizes of the group and head dimensions of a node of a state-space layer, and 1 for a
 * dimension that tp divides. In a node without heads (the convolution of B and C), the features of
 * a group take the place of heads. */
static ScanSizes sizes_of(const Job *job, const Node *n)
{
    const Graph *g = &job->plan->graph;
    const int groups = op_dim(n->op, 0, INDEX_groups), heads = op_dim(n->op, 0, INDEX_heads);
    const Tensor *x = &g->tensors.at[n->in[0]];
    const int inner = heads >= 0 ? heads : op_dim(n->op, 0, INDEX_head);
    ScanSizes s = {x->dim[groups], x->dim[inner], false};
    bool groups_cut = false, heads_cut = false;
    for (uint32_t i = 0; i < n->n_in; i++) {
        const Tensor *t = &g->tensors.at[n->in[i]];
        if (t->role != ROLE_param) continue;
        groups_cut = groups_cut || is_cut(job, t, op_dim(n->op, i, INDEX_groups));
        heads_cut = heads_cut || is_cut(job, t, op_dim(n->op, i, INDEX_heads));
    }
    if (groups_cut) s.groups = 1;
    if (heads_cut) s.heads = 1;
    s.tp = groups_cut || heads_cut;
    return s;
}

/* True if mesh axis `axis`, an entry of cp, divides groups; otherwise it divides heads. Sets *rest
 * to the number of ranks along those entries of cp that divide heads. */
static bool cuts_groups(const Job *job, const ScanSizes *s, uint32_t axis, uint32_t *rest)
{
    const Mesh *mesh = &job->plan->mesh;
    const AxisSet cp = pass_axes(job, PASS_cp);
    int64_t groups = s->groups;
    bool outer = true, of_groups = false;
    *rest = 1;
    for (uint32_t a = 0; a < mesh->n_axes; a++) {
        if (!(cp >> a & 1)) continue;
        outer = outer && groups % mesh->axis[a].size == 0;
        if (outer)
            groups /= mesh->axis[a].size;
        else
            *rest *= mesh->axis[a].size;
        if (a == axis) of_groups = outer;
    }
    return of_groups;
}

char cp_scan_letter(const Job *job, const Node *n, uint32_t axis)
{
    const ScanSizes s = sizes_of(job, n);
    uint32_t rest;
    if (cuts_groups(job, &s, axis, &rest)) return op_letter(n->op, INDEX_groups);
    const char heads = op_letter(n->op, INDEX_heads);
    return heads ? heads : op_letter(n->op, INDEX_head);
}

static int64_t gcd(int64_t a, int64_t b)
{
    return b == 0 ? a : gcd(b, a % b);
}

/* True if cp may become two mesh axes: an outer one that divides groups, and an inner one whose
 * ranks share a group and divide its heads. */
static bool may_refine(const Job *job)
{
    return pass_config(job, PASS_cp)->cp.mode != CP_ring && pass_ranks(job->config, PASS_tp) == 1;
}

/* Returns the largest divisor of `ranks` that divides the group count of every state-space node. */
static int64_t common_groups(const Job *job, int64_t ranks)
{
    const Graph *g = &job->plan->graph;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        if (op_scans_tokens(n->op))
            ranks = gcd(ranks, g->tensors.at[n->in[0]].dim[op_dim(n->op, 0, INDEX_groups)]);
    }
    return ranks;
}

/* True if the node's heads can be divided over cp, refined into `outer` ranks for groups and
 * `inner` ranks for heads. */
static bool node_fits(const Job *job, const Node *n, int64_t outer, int64_t inner)
{
    const Graph *g = &job->plan->graph;
    if (op_mixes_tokens(n->op) && pass_config(job, PASS_cp)->cp.mode == CP_all_to_all) {
        const Tensor *keys = &g->tensors.at[n->in[1]];
        return keys->dim[op_dim(n->op, 1, INDEX_groups)] % (outer * inner) == 0;
    }
    if (!op_scans_tokens(n->op)) return true;
    const ScanSizes s = sizes_of(job, n);
    if (s.groups % outer != 0) return s.heads % (outer * inner) == 0;
    return s.groups / outer % inner == 0 || s.heads % inner == 0;
}

/* True if cp = ranks would divide the sequence and the heads of all layers evenly. refined: cp is
 * two mesh axes, as in may_refine. */
static bool ranks_fit(const Job *job, uint32_t ranks, bool refined)
{
    const Graph *g = &job->plan->graph;
    if (job->config->seq % cp_parts(job, ranks) != 0) return false;
    const int64_t common = refined ? common_groups(job, ranks) : ranks;
    for (NodeId id = 1; id < g->nodes.n; id++)
        if (!node_fits(job, &g->nodes.at[id], common, ranks / common)) return false;
    return true;
}

static void hint(const Job *job)
{
    if (pass_config(job, PASS_cp)->cp.mode == CP_ring && pass_ranks(job->config, PASS_tp) == 1 &&
        ranks_fit(job, pass_ranks(job->config, PASS_cp), true)) {
        diag_hint(job->diag, "use mode = \"all_gather\"");
        return;
    }
    Str legal = str_in(job->scratch);
    for (uint32_t k = 1; k <= 1024; k++)
        if (ranks_fit(job, k, may_refine(job))) str_print(&legal, "%s%u", legal.n ? ", " : "", k);
    diag_hint(job->diag, "cp may be %s", str_text(&legal));
}

bool cp_scan_fits(const Job *job, const Node *n)
{
    const Graph *g = &job->plan->graph;
    const PassConfig *pass = pass_config(job, PASS_cp);
    const ScanSizes s = sizes_of(job, n);
    const uint32_t cp = pass_ranks(job->config, PASS_cp);
    const bool has_heads = op_letter(n->op, INDEX_heads) != 0;
    uint32_t rest;
    cuts_groups(job, &s, 0, &rest);
    if (s.heads % rest == 0) return true;
    const Tensor *x = &g->tensors.at[n->in[0]];
    const long long groups = x->dim[op_dim(n->op, 0, INDEX_groups)];
    const char *path = g->modules.at[n->module].path;
    if (has_heads)
        diag_error(
            job->diag, FAULT_input, "divides-heads", pass->loc,
            "cp%s = %u cannot divide heads = %lld of a state-space layer with %lld group%s%s (%s)",
            pass->cp.mode == CP_ring ? " { mode = \"ring\" } with cp" : "", cp,
            groups * (long long)x->dim[op_dim(n->op, 0, INDEX_heads)], groups,
            groups == 1 ? "" : "s", s.tp ? ", because tp divides heads or groups already" : "",
            path);
    else
        diag_error(job->diag, FAULT_input, "divides-heads", pass->loc,
                   "cp = %u: %u ranks hold the same group of a state-space layer, but cannot "
                   "divide its state = %lld evenly (%s)",
                   cp, rest, (long long)s.heads, path);
    hint(job);
    return false;
}

void cp_scan_refine(Job *job)
{
    const AxisSet axes = pass_axes(job, PASS_cp);
    if (!axes || !may_refine(job)) return;
    const int64_t size = pass_ranks(job->config, PASS_cp), common = common_groups(job, size);
    if (common > 1 && common < size)
        mesh_refine(&job->plan->mesh, job->arena, (uint32_t)__builtin_ctz(axes),
                    (uint32_t)(size / common));
}
