/* Spatial domain parallelism: shares the rows of each field over domain, and its columns over
 * domain_w. The batch is read in these parts, and the other layouts follow. A window that reads a
 * neighbour's rows needs them as a halo. The change of layout then becomes an exchange of strips.
 * The gradient sends the shares of these rows back to their owner. */
#include <assert.h>

#include "planner/ir/window.h"
#include "planner/passes/pass.h"

typedef struct Cut {
    Job *job;
    const char *axis; /* "domain" */
    uint32_t n;       /* ranks along it */
    IndexRole role;   /* the index that it cuts */
    const char *lines;
    bool *is_cut; /* [tensor] */
} Cut;

static bool fits(const Window *w, int64_t inputs, int64_t outputs, uint32_t n)
{
    if (inputs % n || outputs % n) return false;
    const int64_t own = inputs / n, each = outputs / n;
    for (uint32_t p = 0; p < n; p++) {
        const Interval read = window_reads(w, p * each, (p + 1) * each);
        const bool wraps = w->mode == WINDOW_periodic;
        int64_t before = p * own - read.lo, after = read.hi - (p + 1) * own;
        if (p == 0 && !wraps) before = 0;
        if (p + 1 == n && !wraps) after = 0;
        if (before > own || after > own) return false;
    }
    return true;
}

/* Lists the numbers of ranks from 1 to 16 that fit the window. */
static const char *legal(const Cut *c, const Window *w, int64_t inputs, int64_t outputs)
{
    Str s = str_in(c->job->scratch);
    for (uint32_t n = 1; n <= 16; n++)
        if (fits(w, inputs, outputs, n)) str_print(&s, "%s%u", s.n ? ", " : "", n);
    return str_text(&s);
}

static void check_window(const Cut *c, const Node *n, const Binding *b)
{
    const Attrs *attrs = graph_attrs_at(&c->job->plan->graph, n->attrs);
    const char letter = op_letter(n->op, c->role);
    const Window w = op_window(n->op, b, attrs, letter);
    const int64_t inputs = b->size[(int)window_reach(letter)], outputs = b->size[(int)letter];
    if (fits(&w, inputs, outputs, c->n)) return;
    const bool divides = inputs % c->n == 0 && outputs % c->n == 0;
    diag_error(c->job->diag, FAULT_input, divides ? "domain-halo" : "domain-divides", n->loc,
               divides ? "%s of %lld %s, made %lld, over %s = %u: its window (%lld wide, stride "
                         "%lld, dilation %lld) would reach beyond the neighbouring rank's part"
                       : "%s of %lld %s, made %lld, over %s = %u: parts would differ in size "
                         "(window %lld wide, stride %lld, dilation %lld)",
               op_info(n->op)->name, (long long)inputs, c->lines, (long long)outputs, c->axis, c->n,
               (long long)w.kernel, (long long)w.stride, (long long)w.dilation);
    diag_hint(c->job->diag, "%s may be %s", c->axis, legal(c, &w, inputs, outputs));
}

/* Returns whether the index is cut in an input of the node. Then it is also cut in the outputs,
 * unless the op needs it whole. */
static bool follows(const Cut *c, const Node *n, const Binding *b, bool *windowed)
{
    const char letter = op_letter(n->op, c->role);
    bool reads = op_info(n->op)->flags & OP_SOURCE;
    if (!letter) return false;
    for (uint32_t i = 0; i < n->n_in; i++)
        for (int d = 0; d < b->n_dims[i]; d++) {
            if (b->letter[i][d] != letter || !c->is_cut[n->in[i]]) continue;
            reads = true;
            *windowed = *windowed || b->reads[i][d];
        }
    for (uint32_t j = 0; reads && j < n->n_out; j++)
        for (int d = 0; d < b->n_dims[n->n_in + j]; d++)
            *windowed = *windowed || b->reads[n->n_in + j][d];
    return reads && op_may_split(n->op, letter);
}

static bool cut_fields(Job *job, AxisName axis)
{
    const Graph *g = &job->plan->graph;
    Cut c = {.job = job,
             .axis = axis_name_text(axis),
             .n = mesh_size(&job->plan->mesh, mesh_axes(&job->plan->mesh, axis)),
             .role = axis_info(axis)->cuts,
             .lines = axis_info(axis)->cuts == INDEX_height ? "rows" : "columns",
             .is_cut = arena_array(job->scratch, g->tensors.n, sizeof *c.is_cut)};
    uint32_t n_cut = 0;
    const uint32_t before = job->diag->n_errors;
    if (c.n == 1) return true;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        Binding b;
        bool windowed = false;
        if (!graph_bind(g, n, &b, job->diag)) return false;
        if (!follows(&c, n, &b, &windowed)) continue;
        if (windowed && op_info(n->op)->flags & OP_WINDOWED) check_window(&c, n, &b);
        for (uint32_t j = 0; j < n->n_out; j++)
            for (int d = 0; d < b.n_dims[n->n_in + j]; d++)
                if (b.letter[n->n_in + j][d] == op_letter(n->op, c.role))
                    c.is_cut[n->out[j]] = true;
        n_cut++;
    }
    if (n_cut == 0) {
        diag_error(job->diag, FAULT_input, "domain-matched-nothing",
                   pass_config(job, PASS_domain)->loc,
                   "%s = %u but the model reads no fields: there are no %s to share out", c.axis,
                   c.n, c.lines);
        diag_hint(job->diag, "make %s a part of dp_shard", c.axis);
    }
    return job->diag->n_errors == before;
}

static bool pass_domain(Job *job)
{
    bool fine = true;
    const AxisNames axes = axes_of_pass("domain");
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        if (axes_have(axes, (AxisName)a)) fine = cut_fields(job, (AxisName)a) && fine;
    return fine;
}

#define SUMMED_APART                                                                               \
    "gradients would be summed over ranks with other samples only: those that hold the rest of a " \
    "field would train a model of their own, each on its part"
static const PassEdge before[] = {
    {PASS_tp, "1x1 convolutions cut before fields are shared out are cut as if of whole fields"},
    {PASS_float8,
     "what is converted before fields are shared out is scaled by whole fields, of which a rank "
     "has a part"},
    {PASS_ac,
     "a region marked before fields are shared out saves whole ones, and its recomputation leaves "
     "out the exchange of halos"},
    {PASS_fsdp2, SUMMED_APART},
    {PASS_zero, SUMMED_APART},
    {PASS_ddp, SUMMED_APART},
    {PASS_compile, "code compiled before fields are shared out is made for whole ones"},
    {0, NULL},
};

static void print(const PassConfig *pass, Str *out)
{
    (void)pass;
    str_print(out, "domain");
}

const PassSpec pass_spec_domain = {
    .name = "domain",
    .doc = {"domain", "",
            "Shares the rows of each field over mesh.domain, and its columns over mesh.domain_w."},
    .before = before,
    .reports = true,
    .run = pass_domain,
    .print = print,
};
