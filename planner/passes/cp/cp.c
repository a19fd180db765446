/* Context parallelism: the ranks of cp divide the tokens of each sequence, SPLIT(tokens). Most ops
 * work token by token and need no communication. Attention needs the tokens of other ranks; `mode`
 * says how it gets them:
 *
 *   all_gather   the keys and values of all tokens are gathered before attention, and their
 *                gradients are scattered afterwards
 *   ring         keys and values travel from rank to rank. In each hop, a rank attends to the
 *                keys of one other rank. With the option all_to_all, groups of neighbouring ranks
 *                first exchange tokens for heads, and the ring connects these groups
 *   all_to_all   ranks exchange tokens for heads, SPLIT(tokens) -> SPLIT(heads), and back
 *                afterwards. Each rank attends to whole sequences with some of the heads
 *
 * With all_gather and ring, sequences are divided in a zigzag (deal_zigzag), so that all ranks have
 * equal work under a causal mask. With all_to_all, each rank has contiguous tokens.
 *
 * State-space layers exchange tokens for heads in every mode (cp_scan.c). The routing of experts
 * needs whole sequences, so its input is gathered. The places that an expert has for tokens (rooms,
 * layout/rows.h) are divided over the ranks of cp, so that no rank repeats another's work. The
 * results of a token's experts are summed and scattered to the rank that has the token.
 *
 * Parameters are whole on cp, so each rank has a partial sum of their gradients, as between ranks
 * with different samples. This pass only sets layouts; lowering inserts the communication. */
#include <assert.h>

#include "planner/ir/experts.h"
#include "planner/ir/layout/mesh_view.h"
#include "planner/passes/pass.h"

static const char *const modes[] = {
#define X(name) #name,
    CP_MODES(X)
#undef X
        NULL};

static void check_seq(const Job *job, const PassConfig *pass, int64_t parts)
{
    const int64_t seq = job->config->seq;
    if (seq % parts == 0) return;
    diag_error(job->diag, FAULT_input, "divides-seq",
               job->config->batch_loc.file ? job->config->batch_loc : pass->loc,
               "seq = %lld cannot be divided into %lld equal parts over cp = %lld%s",
               (long long)seq, (long long)parts, (long long)pass_ranks(job->config, PASS_cp),
               parts % (2 * (int64_t)pass_ranks(job->config, PASS_cp)) ? ""
               : parts > 2 * (int64_t)pass_ranks(job->config, PASS_cp)
                   ? " (two chunks on each rank) and tp"
                   : " (two chunks on each rank)");
    diag_hint(job->diag, "seq may be %s", str_multiples(job->scratch, seq, parts));
}

/* True if the model has state-space layers, which scan the tokens in order. */
static bool scans(const Job *job)
{
    const Graph *g = &job->plan->graph;
    for (NodeId id = 1; id < g->nodes.n; id++)
        if (op_scans_tokens(g->nodes.at[id].op)) return true;
    return false;
}

/* True if all attention ops of the model have a form for one hop of a ring. */
static bool may_ring(const Job *job)
{
    const Graph *g = &job->plan->graph;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const OpKind op = g->nodes.at[id].op;
        if (op_mixes_tokens(op) && op_part(op) == OP_none) return false;
    }
    return !scans(job);
}

/* Returns the end of a hint that recommends mode = "ring", whose ranks are not limited by the count
 * of heads. Returns "" if the model cannot use a ring. */
static const char *or_ring(const Job *job, const PassConfig *pass)
{
    return pass->cp.mode == CP_all_to_all && may_ring(job) ? "; or use mode = \"ring\"" : "";
}

/* Returns how many KV heads attention node n has. */
static int64_t kv_heads(const Job *job, const Node *n)
{
    return job->plan->graph.tensors.at[n->in[1]].dim[op_dim(n->op, 1, INDEX_groups)];
}

/* True if n ranks of cp can exchange tokens for heads in all layers: n * tp divides the KV
 * heads. */
static bool heads_divide(const Job *job, uint32_t n)
{
    const Graph *g = &job->plan->graph;
    const int64_t ranks = (int64_t)n * pass_ranks(job->config, PASS_tp);
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *at = &g->nodes.at[id];
        if (op_mixes_tokens(at->op) && kv_heads(job, at) % ranks != 0) return false;
    }
    return true;
}

/* Checks that each of `size` ranks gets whole KV heads, with all of their query heads. Otherwise
 * reports "divides-heads". */
static bool check_heads(const Job *job, const PassConfig *pass, const Node *n, uint32_t size)
{
    const Graph *g = &job->plan->graph;
    const int64_t groups = kv_heads(job, n);
    const int64_t heads = groups * g->tensors.at[n->in[0]].dim[op_dim(n->op, 0, INDEX_heads)];
    const uint32_t tp = pass_ranks(job->config, PASS_tp);
    const bool ring = pass->cp.mode == CP_ring;
    const char *what = ring ? "all_to_all" : "cp", *and_tp = "";
    if (groups % ((int64_t)size * tp) == 0) return true;
    diag_error(job->diag, FAULT_input, "divides-heads", pass->loc,
               "cp { %s }: heads = %lld with kv_heads = %lld cannot be divided over %s%s = %u, "
               "because a rank would hold a fraction of a KV head (%s)",
               ring ? "all_to_all" : "mode = \"all_to_all\"", (long long)heads, (long long)groups,
               tp == 1 ? "" : arena_print(job->scratch, "tp = %u and then over ", tp), what, size,
               g->modules.at[n->module].path);
    if (groups % tp != 0 && groups % size != 0) {
        diag_hint(job->diag, "tp times %s may be %s%s", what, str_divisors(job->scratch, groups),
                  or_ring(job, pass));
        return false;
    }
    const char *less = str_divisors(job->scratch, groups % size ? 1 : groups / size);
    if (groups % tp != 0) {
        diag_hint(job->diag, "tp may be %s%s", less, or_ring(job, pass));
        return false;
    }
    if (groups % size == 0)
        and_tp = arena_print(job->scratch, "; with %s = %u, tp may be %s", what, size, less);
    diag_hint(job->diag, "%s may be %s%s%s", what, str_divisors(job->scratch, groups / tp), and_tp,
              or_ring(job, pass));
    return false;
}

/* Returns the end of a hint that recommends to use the ranks of cp as data ranks, each with
 * sequences of its own. */
static const char *or_data_ranks(const Job *job, uint32_t cp)
{
    const Config *c = job->config;
    const AxisName units = axes_first(axes_with(AXIS_UNITS));
    const uint32_t *size = c->ep_mode == EP_folded ? c->axis_before : c->axis_size;
    const int64_t step = c->micro_batch * config_data_ranks(c) * cp;
    const char *batch =
        c->global_batch % step == 0
            ? ""
            : arena_print(job->scratch, " and global a multiple of %lld", (long long)step);
    return arena_print(job->scratch, "; or mesh.cp = 1 with mesh.%s = %u%s", axis_name_text(units),
                       size[units] * cp, batch);
}

/* Reports an error for an op, other than attention, that needs all tokens of a sequence. */
static bool check_node(const Job *job, const PassConfig *pass, const Node *n)
{
    const char *own = job->plan->graph.modules.at[n->module].path;
    const char *path = own && own[0] ? own : "the model";
    if (op_sends_tokens(n->op) && pass->cp.mode == CP_ring && pass->cp.all_to_all > 1) {
        diag_error(job->diag, FAULT_input, "cp-experts", pass->loc,
                   "cp { all_to_all = %u } with mode = \"ring\" does not work with experts (%s), "
                   "because they need whole sequences",
                   pass->cp.all_to_all, path);
        diag_hint(job->diag, "leave out all_to_all, or use mode = \"all_to_all\"");
        return false;
    }
    if (op_scans_tokens(n->op) && pass->cp.mode == CP_ring && pass->cp.all_to_all > 1) {
        diag_error(job->diag, FAULT_input, "cp-scan", pass->loc,
                   "cp { all_to_all = %u } with mode = \"ring\" does not work with state-space "
                   "layers (%s), because they need whole sequences",
                   pass->cp.all_to_all, path);
        diag_hint(job->diag, "leave out all_to_all, or use mode = \"all_to_all\"");
        return false;
    }
    const bool shares_experts = (pass_axes(job, PASS_cp) & ~job->context.lent_axes) == 0;
    if (op_sends_tokens(n->op) && op_whole_letter(n->op, INDEX_rooms) && !shares_experts) {
        diag_error(job->diag, FAULT_input, "cp-dropless", pass->loc,
                   "cp = %u cannot divide the tokens of dropless experts (%s), because their "
                   "number is not known in advance",
                   pass_ranks(job->config, PASS_cp), path);
        const uint32_t ranks = pass_ranks(job->config, PASS_cp) * pass_ranks(job->config, PASS_tp);
        /* Recommends to fold experts only if they are not divided yet: otherwise ep is a factor of
         * the mesh, and folding would change the number of ranks. */
        const bool folds = config_ranks(job->config, axes_trading(INDEX_experts)) == 1 &&
                           experts_common(&job->plan->graph) % ranks == 0;
        diag_hint(
            job->diag, "%scapacity_factor = \"all\" or a number%s",
            folds ? arena_print(job->scratch, "use ep_mode = \"folded\" with ep = %u; or ", ranks)
                  : "",
            folds ? "" : or_data_ranks(job, pass_ranks(job->config, PASS_cp)));
        return false;
    }
    if (op_takes_tokens(n->op)) {
        diag_error(
            job->diag, FAULT_input, "cp-span", pass->loc,
            "cp = %u divides sequences, but %s takes a part of each sequence (nn.span), which "
            "lies on some ranks of cp only: the others would be idle",
            pass_ranks(job->config, PASS_cp), path);
        diag_hint(job->diag, "set cp = 1 and use a larger dp_shard or tp");
        return false;
    }
    if (pass->cp.mode == CP_ring && op_mixes_tokens(n->op) && op_part(n->op) == OP_none) {
        diag_error(
            job->diag, FAULT_input, "cp-ring", pass->loc,
            "cp { mode = \"ring\" } supports only plain attention, and the model uses %s (%s)",
            op_info(n->op)->name, path);
        diag_hint(job->diag, "use mode = \"all_gather\"");
        return false;
    }
    return true;
}

/* Returns how many ranks exchange tokens for heads with each other; 1: none do. */
static uint32_t n_exchanging(const Job *job, const PassConfig *pass)
{
    if (pass->cp.mode == CP_all_to_all) return pass_ranks(job->config, PASS_cp);
    return pass->cp.mode == CP_ring && pass->cp.all_to_all > 1 ? pass->cp.all_to_all : 1;
}

/* True if a ring can connect groups of n ranks. A group has two chunks of the sequence, an early
 * and a late one (zigzag). n must be even, so that each rank of a group has tokens of one chunk
 * only. */
static bool may_refine(const Job *job, const PassConfig *pass)
{
    const uint32_t size = pass_ranks(job->config, PASS_cp), n = pass->cp.all_to_all;
    return n % 2 == 0 && n < size && size % n == 0;
}

void cp_refine(Job *job)
{
    cp_scan_refine(job);
    Mesh *mesh = &job->plan->mesh;
    const PassConfig *pass = pass_config(job, PASS_cp);
    const AxisSet axes = pass_axes(job, PASS_cp);
    if (!axes) return;
    const uint32_t n = n_exchanging(job, pass), first = (uint32_t)__builtin_ctz(axes);
    if (pass->cp.mode == CP_ring && n > 1 && may_refine(job, pass))
        mesh_refine(mesh, job->arena, first, pass->cp.all_to_all);
    if (n == 1 || pass_ranks(job->config, PASS_tp) == 1 || scans(job)) return;
    if (pass->cp.mode == CP_ring && !may_refine(job, pass)) return;
    mesh_nest_last(mesh, pass->cp.mode == CP_ring ? first + 1 : first);
    /* folded experts are divided among ranks that have the same heads */
    config_nest_experts(job->config, mesh);
}

/* Checks the option all_to_all, the size of a group: only a ring has groups, and the size must be
 * even, divide cp, and be less than cp. Reports "cp-groups" otherwise. */
static void check_groups(const Job *job, const PassConfig *pass)
{
    const uint32_t size = pass_ranks(job->config, PASS_cp), n = pass->cp.all_to_all;
    if (n <= 1 || (pass->cp.mode == CP_ring && may_refine(job, pass))) return;
    if (pass->cp.mode != CP_ring) {
        diag_error(job->diag, FAULT_input, "cp-groups", pass->loc,
                   "cp: all_to_all = %u is only for mode = \"ring\", not for mode = \"%s\"", n,
                   modes[pass->cp.mode]);
        diag_hint(job->diag, "use mode = \"ring\", or leave out all_to_all");
        return;
    }
    Str legal = str_in(job->scratch);
    for (uint32_t k = 2; k < size; k += 2)
        if (size % k == 0) str_print(&legal, "%s%u", legal.n ? ", " : "", k);
    diag_error(job->diag, FAULT_input, "cp-groups", pass->loc,
               "cp { all_to_all = %u }: the size of a group must be an even divisor of cp = %u, "
               "and less than cp",
               n, size);
    diag_hint(job->diag, "all_to_all may be %s", legal.n ? str_text(&legal) : "1");
}

/* Reports "cp-tp" for tp.plan in a model with state-space layers. Their inputs exchange tokens for
 * heads, and cp divides a dimension that tp leaves whole (cp_scan.c). With a plan of path patterns,
 * tp may divide tokens there, or only some inputs of a layer. */
static void check_scan_plan(const Job *job, const PassConfig *pass)
{
    const uint32_t tp = pass_ranks(job->config, PASS_tp);
    if (tp == 1 || pass_config(job, PASS_tp)->tp.plan.n == 0 || !scans(job)) return;
    diag_error(job->diag, FAULT_input, "cp-tp", pass->loc,
               "cp does not work with tp = %u and its table tp.plan in a model with state-space "
               "layers, because such a plan may divide tokens over tp where cp exchanges them for "
               "heads",
               tp);
    diag_hint(job->diag, "leave out the plan for tp");
}

/* Reports "cp-tp" if tp also divides tokens where cp exchanges them for heads. Heads are divided
 * first over tp and then over cp (cp_refine), but tokens would have to be divided in the opposite
 * order. State-space layers exchange heads in every mode, so they never allow this under tp. */
static void check_axes(const Job *job, const PassConfig *pass)
{
    const uint32_t tp = pass_ranks(job->config, PASS_tp);
    const PassConfig *options = pass_config(job, PASS_tp);
    const bool all = pass->cp.mode == CP_all_to_all;
    const bool tokens = tp > 1 && (options->tp.sequence || options->tp.plan.n > 0);
    if (n_exchanging(job, pass) > 1 && (tokens || (tp > 1 && scans(job)))) {
        diag_error(
            job->diag, FAULT_input, "cp-tp", pass->loc,
            "cp { %s } does not work with tp = %u%s, because both would divide %s over ranks",
            all ? "mode = \"all_to_all\"" : "all_to_all", tp,
            !tokens                ? " in a model with state-space layers"
            : options->tp.sequence ? " and its sequence parallelism"
                                   : " and its table tp.plan",
            tokens ? "tokens" : "the heads");
        diag_hint(job->diag, "%s%s",
                  !tokens || !heads_divide(job, n_exchanging(job, pass)) ? ""
                  : options->tp.sequence ? "tp { sequence = false }, or "
                                         : "leave out the plan for tp, or ",
                  !all            ? "leave out all_to_all"
                  : may_ring(job) ? "use mode = \"ring\" or \"all_gather\""
                                  : "use mode = \"all_gather\"");
    } else {
        check_scan_plan(job, pass);
    }
    if (pass_config(job, PASS_tile)) {
        diag_error(job->diag, FAULT_input, "cp-tile", pass_config(job, PASS_tile)->loc,
                   "tile{} does not work with cp = %u, because each piece would have to gather "
                   "tokens from all ranks of cp",
                   pass_ranks(job->config, PASS_cp));
        diag_hint(job->diag, "leave out tile: cp already divides the logits");
    }
}

/* Chooses how a sequence is divided over `size` ranks (a zigzag of two chunks for each group of
 * ranks that exchange heads), and gives the tokens of the batch this deal. */
static void deal_out(Job *job, const PassConfig *pass, uint32_t size)
{
    Graph *g = &job->plan->graph;
    const uint32_t exchanging = n_exchanging(job, pass);
    job->context.seq_deal = deal_zigzag(&g->deals, job->arena, job->config->seq, size / exchanging);
    const DealId deal = sequence_deal(job, size);
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        for (uint32_t j = 0; op_info(n->op)->flags & OP_SOURCE && j < n->n_out; j++) {
            /* -1 for images, which have no tokens */
            const int tokens = op_dim(n->op, n->n_in + j, INDEX_tokens);
            if (tokens >= 0) g->tensors.at[n->out[j]].deal[tokens] = deal;
        }
    }
}

/* Returns the last entries of `axes` whose sizes multiply to n: the innermost n ranks. */
static AxisSet inner_axes(const Mesh *mesh, AxisSet axes, uint32_t n)
{
    AxisSet inner = 0;
    for (uint32_t a = mesh->n_axes; a-- > 0 && mesh_size(mesh, inner) < n;)
        if (axes >> a & 1) inner = (AxisSet)(inner | 1u << a);
    assert(mesh_size(mesh, inner) == n);
    return inner;
}

static bool pass_cp(Job *job)
{
    const Graph *g = &job->plan->graph;
    const AxisSet axes = pass_axes(job, PASS_cp);
    const PassConfig *pass = pass_config(job, PASS_cp);
    const uint32_t size = mesh_size(&job->plan->mesh, axes), before = job->diag->n_errors;
    uint32_t n_attention = 0, n_scans = 0;
    bool heads_fit = true, rest_fits = true;
    assert(pass);
    if (size == 1) return true;
    check_axes(job, pass);
    check_groups(job, pass);
    const uint32_t exchanging = n_exchanging(job, pass);
    if (job->diag->n_errors > before) return false;
    check_seq(job, pass, cp_parts(job, size));
    if (pass->cp.mode != CP_all_to_all && job->diag->n_errors == before) deal_out(job, pass, size);
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        rest_fits = rest_fits && check_node(job, pass, n);
        if (op_scans_tokens(n->op)) {
            heads_fit = heads_fit && cp_scan_fits(job, n);
            n_scans++;
        }
        if (!op_mixes_tokens(n->op)) continue;
        n_attention++;
        heads_fit = heads_fit && (exchanging == 1 || check_heads(job, pass, n, exchanging));
    }
    if (n_attention + n_scans == 0) {
        diag_error(job->diag, FAULT_input, "cp-matched-nothing", pass->loc,
                   "cp = %u, but the model has no attention, so its tokens need no exchange", size);
        diag_hint(job->diag, "set cp = 1 and use a larger dp_shard");
    }
    if (exchanging > 1) job->context.heads_axes = inner_axes(&job->plan->mesh, axes, exchanging);
    if (n_scans) job->context.scan_axes = axes;
    job->context.rooms_axes = (AxisSet)(axes & ~job->context.lent_axes);
    if (pass->cp.mode == CP_ring)
        job->context.ring_axes = (AxisSet)(axes & ~job->context.heads_axes);
    return job->diag->n_errors == before;
}

static const PassOption options[] = {
    OPTION_WORD(cp.mode, modes, CP_all_gather, "",
                "all_gather: keys and values are gathered. all_to_all: tokens are exchanged for "
                "heads (Ulysses). ring: keys and values travel from rank to rank. "
                "`cp \"ring\"` is short for it."),
    OPTION(u32, cp.all_to_all, 1, 1024, 1, "ranks",
           "Only for mode = \"ring\": the number of ranks in a group. Ranks of a group exchange "
           "tokens for heads, and the ring connects the groups. 1: no groups."),
    OPTION_END,
};

#define SUMMED_APART                                                                               \
    "gradients would not be summed over the ranks of a sequence, so these ranks would "            \
    "train different models"
static const PassEdge before[] = {
    {PASS_float8, "float8 would compute scales of whole sequences, but a rank of cp holds only a "
                  "part of each sequence"},
    {PASS_ac, "the recomputation would cover whole sequences, and would leave out the exchange "
              "around attention"},
    {PASS_fsdp2, SUMMED_APART},
    {PASS_zero, SUMMED_APART},
    {PASS_ddp, SUMMED_APART},
    {PASS_compile, "the code would be compiled for whole sequences"},
    {0, NULL},
};

static void print(const PassConfig *pass, Str *out)
{
    str_print(out, "cp(%s", modes[pass->cp.mode]);
    if (pass->cp.all_to_all > 1) str_print(out, ", all_to_all %u", pass->cp.all_to_all);
    str_add(out, ")");
}

/* For --verify: shrinks a ring over groups to two groups of two ranks. */
static void shrink(PassConfig *pass, Shrink *s)
{
    const AxisName tokens = axes_first(axes_cutting(INDEX_tokens));
    if (pass->cp.mode != CP_ring || pass->cp.all_to_all <= 1) return;
    pass->cp.all_to_all = 2;
    s->config->axis_size[tokens] = 4;
    s->stays[tokens] = true;
}

const PassSpec pass_spec_cp = {
    .name = "cp",
    .doc = {"cp", "", "Divides the tokens of each sequence over the ranks of mesh.cp."},
    .options = options,
    .short_key = "mode",
    .before = before,
    .reports = true,
    .run = pass_cp,
    .print = print,
    .shrink = shrink,
};
