/* Spatial domain parallelism: the ranks of `domain` divide the rows of each field, and those of
 * `domain_w` its columns. This pass sets the layout of the batch, from which all other layouts
 * follow. Where a window, such as that of a convolution, reads rows of a neighbour (a halo,
 * layout/halo.h), ranks exchange strips of rows. In the backward pass, the gradients of these rows
 * are sent back to their owner. */
#include <assert.h>

#include "planner/ir/window.h"
#include "planner/passes/graph/resize.h"
#include "planner/passes/pass.h"

typedef struct Cut {
    Job *job;
    Graph *g;   /* the plan's graph, or that of a trial with another size of the field */
    bool tries; /* only a trial: reports no error and sets no layout */
    AxisName name;
    const char *axis;  /* "domain" */
    uint32_t n;        /* how many ranks the axis has */
    IndexRole role;    /* INDEX_height or INDEX_width */
    const char *lines; /* "rows" or "columns" */
    int8_t *cut_dim;   /* cut_dim[tensor]: 1 + the dimension that the axis splits; 0: none */
} Cut;

/* Returns the rows of part p if `size` rows are split into n parts of ceil(size / n). The last
 * parts may be short or empty. */
static Interval part_of(int64_t size, uint32_t n, uint32_t p)
{
    const int64_t each = (size + n - 1) / n, lo = p * each, hi = lo + each;
    return (Interval){lo < size ? lo : size, hi < size ? hi : size};
}

static int64_t rows_of(Interval at)
{
    return at.hi - at.lo;
}

/* True if `size` rows give each of n parts at least one row. */
static bool divides(int64_t size, uint32_t n)
{
    return rows_of(part_of(size, n, n - 1)) > 0;
}

/* True if an op whose windows read `inputs` rows and give `outputs` rows can be split over n ranks:
 * no part is empty, and each part reads rows of its direct neighbours at most. */
static bool fits(const Window *w, int64_t inputs, int64_t outputs, uint32_t n)
{
    if (!divides(inputs, n) || !divides(outputs, n)) return false;
    for (uint32_t p = 0; p < n; p++) {
        const Interval own = part_of(inputs, n, p);
        const Interval read = window_rows(w, inputs, part_of(outputs, n, p));
        if (read.lo >= read.hi) continue;
        if (own.lo - read.lo > rows_of(part_of(inputs, n, (p + n - 1) % n)) ||
            read.hi - own.hi > rows_of(part_of(inputs, n, (p + 1) % n)))
            return false;
    }
    return true;
}

/* ---- sizes that fit, for hints ---- */

static bool cuts_all(Cut *c, uint32_t *n_cut);

/* True if all ops of graph `g` can be split over n ranks. */
static bool is_split_by(const Cut *c, Graph *g, uint32_t n, Arena *arena)
{
    uint32_t n_cut = 0;
    Cut trial = *c;
    trial.g = g;
    trial.n = n;
    trial.tries = true;
    trial.cut_dim = arena_array(arena, g->tensors.n, sizeof *trial.cut_dim);
    return cuts_all(&trial, &n_cut);
}

/* Returns the numbers of ranks up to 16 over which the whole model can be split: "1, 2, 4". */
static const char *legal(const Cut *c)
{
    Str s = str_in(c->job->scratch);
    for (uint32_t n = 1; n <= 16; n++)
        if (is_split_by(c, c->g, n, c->job->scratch)) str_print(&s, "%s%u", s.n ? ", " : "", n);
    return str_text(&s);
}

/* Returns the nearest smaller and larger size of the field for which the whole model can be split
 * over c->n ranks: "176 or 192". Leaves out a size that is more than FAR away; returns "" if both
 * are. */
static const char *nearest(const Cut *c)
{
    enum { FAR = 512 };
    const int64_t size = graph_field_size(c->g, c->role);
    Str s = str_in(c->job->scratch);
    Arena *arena = arena_new();
    for (int way = -1; way <= 1; way += 2)
        for (int64_t away = 1; away <= FAR && size + way * away >= c->n; away++) {
            Graph g;
            arena_reset(arena);
            if (!graph_resize(c->g, c->role, size + way * away, arena, &g) ||
                !is_split_by(c, &g, c->n, arena))
                continue;
            str_print(&s, "%s%lld", s.n ? " or " : "", (long long)(size + way * away));
            break;
        }
    arena_free(arena);
    return str_text(&s);
}

/* Adds a hint with numbers of ranks, and sizes of the field, that the whole model allows. It is
 * added to the first error only, because all ops that do not fit have the same cause. */
static void hint(const Cut *c)
{
    const char *sizes = nearest(c);
    diag_hint(c->job->diag,
              *sizes ? "%s may be %s; with %s = %u, fields of %s %s would fit the whole model"
                     : "%s may be %s",
              c->axis, legal(c), c->axis, c->n, sizes, c->lines);
}

/* ---- each op ---- */

static bool check_window(const Cut *c, const Node *n, const Binding *b)
{
    const Attrs *attrs = graph_attrs_at(c->g, n->attrs);
    const char letter = op_letter(n->op, c->role);
    const Window w = op_window(n->op, b, attrs, letter);
    const int64_t inputs = b->size[(int)window_reach(letter)], outputs = b->size[(int)letter];
    if (fits(&w, inputs, outputs, c->n)) return true;
    if (c->tries) return false;
    /* nn.pad is a pooling with windows of one point */
    const bool pads = w.kernel == 1 && w.stride == 1;
    const bool reaches = divides(inputs, c->n) && divides(outputs, c->n);
    diag_error(c->job->diag, FAULT_input, reaches ? "domain-halo" : "domain-divides", n->loc,
               reaches ? "%s of %lld %s to %lld with %s = %u: its window (%lld wide, stride %lld, "
                         "dilation %lld) would reach beyond the neighbouring rank"
                       : "%s of %lld %s to %lld with %s = %u would leave nothing for the last rank "
                         "(window %lld wide, stride %lld, dilation %lld)",
               pads ? "padding" : op_info(n->op)->name, (long long)inputs, c->lines,
               (long long)outputs, c->axis, c->n, (long long)w.kernel, (long long)w.stride,
               (long long)w.dilation);
    hint(c);
    return false;
}

/* An output dimension (hI) has I = rows / size rows, a piece, for each value of h. Only h is split,
 * so every rank must have equally many pieces. Reports "domain-windows" otherwise. */
static bool check_pieces(const Cut *c, const Node *n, int64_t rows, int64_t size)
{
    if (size % c->n == 0) return true;
    if (c->tries) return false;
    diag_error(c->job->diag, FAULT_input, "domain-windows", n->loc,
               "%s of %lld %s with %s = %u: its %lld windows of %lld %s cannot be divided evenly "
               "over the ranks",
               op_info(n->op)->name, (long long)rows, c->lines, c->axis, c->n, (long long)size,
               (long long)(rows / size), c->lines);
    hint(c);
    return false;
}

/* Returns the letter of the op's index that the axis splits: that of a split dimension of an input
 * or, for the batch, that of the output. Returns 0 if there is none, or if the op needs the index
 * whole; lowering then gathers its inputs. */
static char cut_letter(const Cut *c, const Node *n, const Binding *b)
{
    if (op_info(n->op)->flags & OP_SOURCE) return op_letter(n->op, c->role);
    for (uint32_t i = 0; i < n->n_in; i++) {
        const int d = c->cut_dim[n->in[i]] - 1;
        const char letter = d >= 0 ? b->letter[i][d] : 0;
        if (op_may_split(n->op, letter) && op_strides_over(b, letter, c->n)) return letter;
    }
    return 0;
}

/* If an op needed whole rows of a split input, its output is whole, too. Requests that the output
 * be split again, so that the ops after it divide their work. */
static void cut_again(const Cut *c, const Node *n)
{
    bool was_cut = false;
    for (uint32_t i = 0; i < n->n_in; i++) was_cut = was_cut || c->cut_dim[n->in[i]];
    const int d = op_dim(n->op, n->n_in, c->role);
    if (!was_cut || d < 0 || !op_is_whole(n->op, n->n_in, c->role)) return;
    c->cut_dim[n->out[0]] = (int8_t)(d + 1);
    if (c->tries) return;
    Tensor *out = &c->g->tensors.at[n->out[0]];
    const Mesh *mesh = &c->job->plan->mesh;
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        if (mesh->axis[a].name == c->name) out->use.on[a] = SPLIT(d);
    out->use_is_fixed = true;
}

/* Splits the outputs of a node over c->n ranks, and counts the node in *n_cut. Reports an error and
 * returns false if that is impossible. */
static bool cut_node(const Cut *c, const Node *n, uint32_t *n_cut)
{
    Binding b;
    if (!graph_bind(c->g, n, &b, c->job->diag)) return false;
    const char letter = cut_letter(c, n, &b);
    if (!letter) {
        cut_again(c, n);
        return true;
    }
    bool windowed = false;
    for (uint32_t arg = 0; arg < (uint32_t)n->n_in + n->n_out; arg++)
        for (int d = 0; d < b.n_dims[arg]; d++) {
            if (b.letter[arg][d] != letter) continue;
            windowed = windowed || b.reads[arg][d];
            if (arg < n->n_in) continue;
            const TensorId out = n->out[arg - n->n_in];
            const int64_t rows = c->g->tensors.at[out].dim[d], size = b.size[(int)letter];
            c->cut_dim[out] = (int8_t)(d + 1);
            if (!b.reads[arg][d] && rows != size && !check_pieces(c, n, rows, size)) return false;
        }
    ++*n_cut;
    return !windowed || check_window(c, n, &b);
}

static bool cuts_all(Cut *c, uint32_t *n_cut)
{
    for (NodeId id = 1; id < c->g->nodes.n; id++)
        if (!cut_node(c, &c->g->nodes.at[id], n_cut)) return false;
    return true;
}

static bool cut_fields(Job *job, AxisName axis)
{
    Graph *g = &job->plan->graph;
    Cut c = {.job = job,
             .g = g,
             .name = axis,
             .axis = axis_name_text(axis),
             .n = mesh_size(&job->plan->mesh, mesh_axes(&job->plan->mesh, axis)),
             .role = axis_info(axis)->cuts,
             .lines = axis_info(axis)->cuts == INDEX_height ? "rows" : "columns",
             .cut_dim = arena_array(job->scratch, g->tensors.n, sizeof *c.cut_dim)};
    uint32_t n_cut = 0;
    if (c.n == 1) return true;
    if (!cuts_all(&c, &n_cut)) return false;
    if (n_cut == 0) {
        diag_error(job->diag, FAULT_input, "domain-matched-nothing",
                   pass_config(job, PASS_domain)->loc,
                   "%s = %u, but the model reads no fields, so there are no %s to divide", c.axis,
                   c.n, c.lines);
        diag_hint(job->diag, "set %s = 1 and use a larger dp_shard", c.axis);
    }
    return n_cut > 0;
}

static bool pass_domain(Job *job)
{
    bool fine = true;
    const AxisNames axes = axes_of_pass("domain");
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        if (axes_have(axes, (AxisName)a)) fine = cut_fields(job, (AxisName)a) && fine;
    job->keep_halos = pass_config(job, PASS_domain)->domain.keep_halos;
    job->own_statistics = pass_config(job, PASS_domain)->domain.as == DOMAIN_original;
    if (job->own_statistics && pass_ranks(job->config, PASS_domain) > 1) {
        diag_note(job->diag, "domain-original", pass_config(job, PASS_domain)->loc,
                  "domain { as = \"original\" } repeats a bug of miles-credit, whose gradients of "
                  "group norm lack the terms of other ranks");
        diag_hint(job->diag, "leave out `as` to sum these gradients over domain");
    }
    job->interior_first = pass_config(job, PASS_domain)->domain.interior_first;
    return fine;
}

static const PassOption options[] = {
    OPTION_WORD(domain.as, OPTION_WORDS("exact", "original"), DOMAIN_exact, "",
                "original: repeats a bug of miles-credit. The gradients of a group norm lack the "
                "terms of other ranks, and `check` refuses the plan."),
    OPTION_FLAG(domain.keep_halos, 0, "",
                "true: halos are kept for the backward pass. This needs memory, but each halo is "
                "exchanged only once."),
    OPTION_FLAG(domain.interior_first, 1, "",
                "true: a convolution computes points that need no halo while the halo is "
                "exchanged. false: it waits for the halo."),
    OPTION_END,
};

#define SUMMED_APART                                                                               \
    "gradients would not be summed over the ranks of a field, so these ranks would train "         \
    "different models"
static const PassEdge before[] = {
    {PASS_tp, "tp would split 1x1 convolutions of whole fields, but a rank of domain holds only a "
              "part of each field"},
    {PASS_float8, "float8 would compute scales of whole fields, but a rank of domain holds only a "
                  "part of each field"},
    {PASS_ac,
     "the recomputation would cover whole fields, and would leave out the exchange of halos"},
    {PASS_fsdp2, SUMMED_APART},
    {PASS_zero, SUMMED_APART},
    {PASS_ddp, SUMMED_APART},
    {PASS_compile, "the code would be compiled for whole fields"},
    {0, NULL},
};

static void print(const PassConfig *pass, Str *out)
{
    const char *words[] = {pass->domain.as == DOMAIN_original ? "original" : NULL,
                           pass->domain.keep_halos ? "keep halos" : NULL,
                           pass->domain.interior_first ? NULL : "whole rows"};
    uint32_t n = 0;
    str_add(out, "domain");
    for (uint32_t i = 0; i < 3; i++)
        if (words[i] != NULL) str_print(out, "%s%s", n++ == 0 ? "(" : ", ", words[i]);
    if (n > 0) str_add(out, ")");
}

const PassSpec pass_spec_domain = {
    .name = "domain",
    .doc = {"domain", "",
            "Divides the rows of each field over the ranks of mesh.domain, and its columns over "
            "those of mesh.domain_w."},
    .options = options,
    .before = before,
    .reports = true,
    .run = pass_domain,
    .trials =
        OPTION_WORDS("parallel.domain.keep_halos=true", "parallel.domain.interior_first=false"),
    .print = print,
};
