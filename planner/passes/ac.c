/* Activation checkpointing: marks modules as recompute regions. Activations inside a region are
 * discarded after the forward pass; where the backward pass reads one, lowering computes it again.
 *
 *   full       each block is a region, so only its input is kept
 *   selective  each attention module is a region
 *   a list     the modules that match these path patterns are regions
 *   every      of these regions, only every n-th
 *   ops        within regions, outputs of these ops are kept nevertheless
 *
 * Recomputation reads the same inputs as the forward pass and touches no state. */
#include <assert.h>
#include <string.h>

#include "planner/passes/pass.h"

static ModuleId region_of(const Graph *g, const bool *is_region, ModuleId module)
{
    for (ModuleId m = module; m; m = g->modules.at[m].parent)
        if (is_region[m]) return m;
    return 0;
}

/* Returns an array with an entry for each module: true if it is a recompute region. Of nested
 * regions only the outermost is one, because recomputing it includes the inner ones. */
static bool *regions(Job *job, const PassConfig *pass, uint32_t *n_regions)
{
    const Graph *g = &job->plan->graph;
    bool *is_region = arena_array(job->scratch, g->modules.n + 1, sizeof *is_region);
    for (uint32_t i = 0; pass->ac == AC_modules && i < pass->ac_modules.n; i++)
        pattern_mark(job, "ac.modules", &pass->ac_modules.at[i], is_region);
    for (ModuleId m = 1; m < g->modules.n; m++) {
        const Module *at = &g->modules.at[m];
        if (pass->ac == AC_full) is_region[m] = at->is_block;
        if (pass->ac == AC_selective) is_region[m] = strcmp(at->class_, "attention") == 0;
    }
    for (ModuleId m = g->modules.n;
         m-- > 1;) { /* backwards, because a module comes after the module that contains it */
        if (is_region[m] && region_of(g, is_region, g->modules.at[m].parent)) is_region[m] = false;
        *n_regions += is_region[m];
    }
    return is_region;
}

/* Removes all regions except every n-th (n = `every`) in the order of the model. */
static void thin_out(const Graph *g, uint32_t every, bool *is_region)
{
    uint32_t n = 0;
    for (ModuleId m = 1; m < g->modules.n; m++)
        if (is_region[m] && ++n % every != 0) is_region[m] = false;
}

static void refuse(Job *job, const PassConfig *pass, uint32_t n_regions)
{
    static const char *const names[] = {"none", "full", "selective", "modules"};
    if (n_regions > 0) {
        diag_error(job->diag, FAULT_input, "ac-matched-nothing", pass->loc,
                   "ac: every = %u is more than the %u regions of the model, so nothing would be "
                   "recomputed",
                   pass->ac_every, n_regions);
        diag_hint(job->diag, "every may be at most %u", n_regions);
        return;
    }
    diag_error(job->diag, FAULT_input, "ac-matched-nothing", pass->loc,
               "ac \"%s\" finds no module to recompute in this model", names[pass->ac]);
    diag_hint(job->diag, pass->ac == AC_full ? "mark the repeated module with nn.block"
                                             : "selective recomputes modules made by nn.attention");
}

/* ---- the option `ops`: outputs that are kept within regions ---- */

/* True if `name` is the op's name or its first words. For example, "linear" matches linear,
 * linear_q and linear_q_rowwise. */
static bool names_op(const char *name, OpKind op)
{
    const char *text = op_info(op)->name;
    size_t n = strlen(name);
    return n > 0 && strncmp(text, name, n) == 0 && (text[n] == 0 || text[n] == '_');
}

static bool is_known(const char *name)
{
    for (int op = 1; op < OP_COUNT; op++)
        if (op_info((OpKind)op)->class_ != OP_CLASS_comm && names_op(name, (OpKind)op)) return true;
    return false;
}

static void refuse_op(Job *job, const Pattern *op)
{
    const Graph *g = &job->plan->graph;
    const char *names[OP_COUNT];
    bool seen[OP_COUNT] = {false};
    uint32_t n_names = 0;
    for (NodeId n = 1; n < g->nodes.n; n++) {
        OpKind of = g->nodes.at[n].op;
        if (g->nodes.at[n].region && !seen[of]) names[n_names++] = op_info(of)->name;
        seen[of] = seen[of] || g->nodes.at[n].region;
    }
    if (is_known(op->path))
        diag_error(job->diag, FAULT_input, "ac-matched-nothing", op->loc,
                   "ac.ops: the recomputed regions contain no '%s', so nothing would be kept",
                   op->path);
    else
        diag_error(job->diag, FAULT_input, "ac-unknown-op", op->loc,
                   "ac.ops: there is no op called '%s'", op->path);
    const char *near = str_nearest(op->path, names, n_names);
    Str s = str_in(job->scratch);
    for (uint32_t i = 0; i < n_names; i++) str_print(&s, "%s%s", i ? ", " : "", names[i]);
    if (near)
        diag_hint(job->diag, "did you mean '%s'?", near);
    else
        diag_hint(job->diag, "there are: %s", str_text(&s));
}

/* The option `alternate`: of the matrix products in each region, the outputs of the second, fourth
 * and so on are not kept. */
static void drop_every_second(Job *job)
{
    Graph *g = &job->plan->graph;
    uint32_t *seen = arena_array(job->scratch, g->modules.n + 1, sizeof *seen);
    for (NodeId n = 1; n < g->nodes.n; n++) {
        Node *node = &g->nodes.at[n];
        if (!node->region || op_info(node->op)->class_ != OP_CLASS_contract) continue;
        if (seen[node->region]++ % 2 == 1) node->keep = false;
    }
}

/* Sets Node.keep for the ops that `ops` lists. An op that quantises a weight is never kept: the
 * weight is gathered again in the backward pass, and is then quantised again. */
static void keep_ops(Job *job, const PassConfig *pass)
{
    Graph *g = &job->plan->graph;
    for (uint32_t i = 0; i < pass->ac_ops.n; i++) {
        const Pattern *op = &pass->ac_ops.at[i];
        uint32_t n_kept = 0;
        for (NodeId n = 1; n < g->nodes.n; n++) {
            Node *node = &g->nodes.at[n];
            if (!node->region || !names_op(op->path, node->op)) continue;
            if (graph_weight(g, node->out[0])) continue;
            node->keep = true;
            n_kept++;
        }
        if (n_kept == 0 && (!op->may_miss || !is_known(op->path))) refuse_op(job, op);
    }
}

static bool pass_ac(Job *job)
{
    const PassConfig *pass = pass_config(job, PASS_ac);
    assert(pass);
    if (pass->ac == AC_none) return true;
    if (pass->ac == AC_selective && pass->ac_ops.n > 0) {
        diag_error(job->diag, FAULT_input, "ac-ops", pass->loc,
                   "ac: mode = \"selective\" and ops exclude each other, because ops keeps outputs "
                   "of whole blocks");
        diag_hint(job->diag, "leave out mode, or replace it by a list of modules");
        return false;
    }
    uint32_t before = job->diag->n_errors, n_matched = 0, n_regions = 0;
    Graph *g = &job->plan->graph;
    bool *is_region = regions(job, pass, &n_regions);
    if (job->diag->n_errors > before) return false;
    if (pass->ac_every > 1) thin_out(g, pass->ac_every, is_region);
    for (NodeId n = 1; n < g->nodes.n; n++) {
        ModuleId region = region_of(g, is_region, g->nodes.at[n].module);
        g->nodes.at[n].region = region;
        n_matched += region != 0;
    }
    /* a model that --verify has shrunk may lack the layers that the patterns match */
    bool shrunk = pass->ac == AC_modules && n_regions == 0;
    if (n_matched == 0 && !shrunk) refuse(job, pass, n_regions);
    if (n_matched > 0) keep_ops(job, pass);
    if (pass->ac_alternate) drop_every_second(job);
    return job->diag->n_errors == before;
}

static const char *const modes[] = {"none", "full", "selective", NULL};

static const PassOption options[] = {
    OPTION_AS("ac.mode", word, ac, 0, 0, modes, AC_full, "",
              "full: each block is recomputed. selective: each attention module is recomputed. `ac "
              "\"full\"` is short for ac { mode = \"full\" }."),
    OPTION_AS("ac.every", u32, ac_every, 1, 65536, NULL, 1, "regions",
              "Recompute only every Nth region. Default: each."),
    OPTION_AS("ac.alternate", bool, ac_alternate, 0, 1, NULL, 0, "",
              "true: only every second product that ops names is kept, beginning with the first "
              "product of a region."),
    OPTION_LIST("ac.modules", modules, ac_modules, 0,
                "ac \"full\" recomputes every block, and ac \"none\" recomputes nothing",
                "as mode says", "", "Paths of the modules to recompute, instead of a mode."),
    OPTION_LIST(
        "ac.ops", ops, ac_ops, 0, NULL, "none", "",
        "Ops whose outputs a region keeps, by the names that `tandem show --after ac` prints."),
    OPTION_END,
};

#define GATHERS_AGAIN                                                                              \
    "recomputation would cut through units that are already sharded, and would gather their "      \
    "weights again"
static const PassEdge before[] = {
    {PASS_fsdp2, GATHERS_AGAIN},
    {PASS_zero, GATHERS_AGAIN},
    {0, NULL},
};

static void print(const PassConfig *pass, Str *out)
{
    str_print(out, "ac(%s", pass->ac == AC_modules ? "modules" : modes[pass->ac]);
    if (pass->ac_every > 1) str_print(out, ", every %u", pass->ac_every);
    for (uint32_t i = 0; i < pass->ac_ops.n; i++)
        str_print(out, "%s%s", i > 0 ? " " : ", keeps ", pass->ac_ops.at[i].path);
    str_add(out, ")");
}

static void shrink(PassConfig *pass, Shrink *s)
{
    (void)s;
    if (pass->ac_every > 2) pass->ac_every = 2; /* a shrunk model has two layers */
}

static void warn_options(const Config *config, const PassConfig *pass, Diag *d)
{
    (void)config;
    if (pass->ac == AC_none && pass->ac_every > 1)
        diag_warning(d, "not-applied", pass->loc,
                     "ac{}: every = %u has no effect, because mode = \"none\" recomputes nothing",
                     pass->ac_every);
}

const PassSpec pass_spec_ac = {
    .name = "ac",
    .doc = {"ac", "",
            "Activation checkpointing: the backward pass computes activations again, so they need "
            "not be kept."},
    .options = options,
    .short_key = "mode",
    .before = before,
    .reports = true,
    .run = pass_ac,
    .trials = OPTION_WORDS("parallel.ac=none", "parallel.ac=selective"),
    .print = print,
    .shrink = shrink,
    .warn_options = warn_options,
};
