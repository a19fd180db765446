/* float8{}: the covered linears multiply 8-bit or 4-bit operands. Before each product, an operand
 * is quantised: divided by a scale that maps its largest magnitude to the largest value of the
 * type.
 *
 *   tensorwise  one scale for the whole operand
 *   rowwise     one scale for each row
 *   mxfp8       one scale, a power of two, for each block of 32 values
 *   nvfp4       4-bit values; one scale for each block of 16, and one for the operand
 *
 * The graph gets a node for each of these steps. If an operand is split over ranks, the layouts
 * make its largest magnitude a maximum over all of them; scales of blocks never leave their rank.
 * Between steps, weights keep their dtype.
 *
 * Not covered are routers, experts, modules that the user excludes, and sizes that the hardware's
 * 8-bit products do not support. The head is covered only on request, because its logits determine
 * the loss. */
#include "planner/passes/graph/float8.h"

#include <assert.h>
#include <string.h>

/* Rows of 8-bit operands must be multiples of this many bytes. (With blocks, rows must be multiples
 * of a block instead.) */
enum { MULTIPLE = 16 };

#define REASONS(X)                                                                                 \
    X(covered, "")                                                                                 \
    X(head, "rounded logits would change the loss")                                                \
    X(router, "a router chooses the experts of a token, and rounding would change the choice")     \
    X(expert, "float8 converts linears, but experts are grouped products")                         \
    X(skipped, "float8.skip excludes it")                                                          \
    X(not_named, "float8.only does not include it")                                                \
    X(indivisible, NULL)  /* report() names the multiple */                                        \
    X(split_tokens, NULL) /* report() names the sequence length */
typedef enum Reason {
#define X(name, why) REASON_##name,
    REASONS(X)
#undef X
        REASON_COUNT
} Reason;

static const char *const recipes[] = {
#define X(name) #name,
    FLOAT8_RECIPES(X)
#undef X
        NULL};

static const Scaling scaling_of[FLOAT8_RECIPE_COUNT] = {[FLOAT8_tensorwise] = SCALING_tensorwise,
                                                        [FLOAT8_rowwise] = SCALING_rowwise,
                                                        [FLOAT8_mxfp8] = SCALING_blocks,
                                                        [FLOAT8_nvfp4] = SCALING_pairs};

/* A quantised form of a tensor: one of its copies with scales along some index. All nodes of a
 * pipeline stage that need this form share it. */
typedef struct QuantisedForm {
    TensorId of;
    uint32_t stage, next; /* the pipeline stage; index of another form of the same tensor */
    OpKind scale;
    Quantised to;
} QuantisedForm;

typedef struct Float8 {
    Job *job;
    const PassConfig *pass;
    Scaling scaling;
    bool *skip, *only; /* [module] */
    bool *logits;      /* logits[tensor]: true for the logits of the loss */
    LIST(QuantisedForm) casts;
    uint32_t *casts_of; /* casts_of[tensor]: index of its newest form in `casts`; 0: none */
    uint32_t n[REASON_COUNT];
    const char *first[REASON_COUNT]; /* [reason]: a module that was not covered for this reason */
    /* local sizes (inputs, outputs) that were refused. Each is reported once, not for each
     * layer. */
    int64_t refused[16][2];
    uint32_t n_refused;
    /* a message about the first sequence that does not give each rank whole blocks of tokens */
    const char *split_tokens;
} Float8;

/* ---- which linears are covered ---- */

static bool within(const Graph *g, const bool *named, ModuleId module)
{
    for (ModuleId m = module; m; m = g->modules.at[m].parent)
        if (named[m]) return true;
    return false;
}

/* Marks the logits, which cross-entropy reads. If a bias or a norm computes them, its input is
 * marked, too. */
static void find_logits(Float8 *f)
{
    const Graph *g = &f->job->plan->graph;
    f->logits = arena_array(f->job->scratch, g->tensors.n, sizeof *f->logits);
    for (NodeId id = g->nodes.n; id-- > 1;) {
        const Node *n = &g->nodes.at[id];
        const bool follows = op_info(n->op)->flags & OP_AFFINE;
        if (op_starts_loss(n->op) || (follows && f->logits[n->out[0]])) f->logits[n->in[0]] = true;
    }
}

static bool has_blocks(const Float8 *f)
{
    return f->scaling == SCALING_blocks || f->scaling == SCALING_pairs;
}

/* The inputs or outputs of a weight: their count on one rank, and in all. */
typedef struct WeightSide {
    int64_t local, all;
} WeightSide;

/* Returns how many inputs (summed = true) or outputs weight t has. With blocks, counts only the
 * last of these dimensions, because blocks extend along it. */
static WeightSide side_of(const Float8 *f, const Tensor *t, bool summed, const Binding *b)
{
    const Mesh *mesh = &f->job->plan->mesh;
    Shape s = {.n_dims = t->n_dims, .layout = t->use};
    WeightSide side = {1, 1};
    for (int d = 0; d < t->n_dims; d++) s.dim[d] = t->dim[d], s.deal[d] = t->deal[d];
    for (int d = 0; d < t->n_dims; d++) {
        bool in_output = false;
        for (int k = 0; k < b->n_dims[2]; k++)
            in_output = in_output || b->letter[2][k] == b->letter[1][d];
        if (in_output == summed) continue;
        if (has_blocks(f)) side = (WeightSide){1, 1};
        side.local *= shape_local_dim(&s, mesh, &f->job->plan->graph.deals, d);
        side.all *= t->dim[d];
    }
    return side;
}

static int multiple_of(const Float8 *f)
{
    /* for 4-bit values a block of 32 is required, too: 16 bytes */
    return has_blocks(f) ? FLOAT8_BLOCK : MULTIPLE;
}

static void refuse_sizes(Float8 *f, const Node *n, const Tensor *w, WeightSide inputs,
                         WeightSide outputs)
{
    Diag *d = f->job->diag;
    const int multiple = multiple_of(f);
    const int64_t k = inputs.local, m = outputs.local;
    for (uint32_t i = 0; i < f->n_refused; i++)
        if (f->refused[i][0] == k && f->refused[i][1] == m) return;
    if (f->n_refused < 16) f->refused[f->n_refused][0] = k, f->refused[f->n_refused++][1] = m;
    uint32_t tp =
        mesh_size(&f->job->plan->mesh, mesh_axes_of(&f->job->plan->mesh, axes_with(AXIS_WEIGHTS)));
    bool is_cut = layout_axes_split(&w->use, -1) != 0;
    diag_error(d, FAULT_input, "float8-divides", n->loc,
               "%s is %lld x %lld on each rank%s, but recipe = \"%s\" needs multiples of %d",
               w->name, (long long)k, (long long)m,
               is_cut ? arena_print(f->job->scratch, " (tp = %u)", tp) : "",
               recipes[f->pass->float8.recipe], multiple);
    const WeightSide *side = k % multiple ? &inputs : &outputs;
    const char *which = k % multiple ? "inputs" : "outputs";
    const long long below = side->local / multiple * multiple, above = below + multiple;
    diag_hint(d, "use %s%lld %s on each rank%s, or float8 { skip_indivisible = true }",
              below > 0 ? arena_print(f->job->scratch, "%lld or ", below) : "", above, which,
              side->local < side->all ? ", or a smaller tp" : "");
}

/* True if each rank has whole blocks of tokens. The gradient of a weight sums over tokens, so its
 * operands have blocks along the tokens. */
static bool tokens_fit(Float8 *f, const Node *n)
{
    const Config *c = f->job->config;
    const PassConfig *tp = pass_config(f->job, PASS_tp);
    const int d = op_dim(n->op, 0, INDEX_tokens);
    const int64_t tokens = f->job->plan->graph.tensors.at[n->in[0]].dim[d];
    AxisNames axes = axes_cutting(INDEX_tokens);
    if (tp && (tp->tp.sequence || tp->tp.plan.n)) axes |= axes_with(AXIS_WEIGHTS);
    const int64_t ranks = config_ranks(c, axes), least = ranks * FLOAT8_BLOCK;
    if (!has_blocks(f) || tokens % least == 0) return true;
    if (f->split_tokens != NULL) return false;
    f->split_tokens = arena_print(f->job->scratch,
                                  "each sequence has %lld tokens on %lld rank%s, but recipe = "
                                  "\"%s\" needs a multiple of %d on each rank",
                                  (long long)tokens, (long long)ranks, ranks == 1 ? "" : "s",
                                  recipes[f->pass->float8.recipe], FLOAT8_BLOCK);
    if (f->pass->float8.skip_indivisible) return false;
    diag_error(f->job->diag, FAULT_input, "float8-tokens", n->loc, "%s", f->split_tokens);
    const long long below = tokens / least * least, above = below + least;
    diag_hint(f->job->diag, "use sequences of %s%lld tokens, or recipe = \"rowwise\"",
              below > 0 ? arena_print(f->job->scratch, "%lld or ", below) : "", above);
    return false;
}

/* For a plan that --verify has shrunk: true if every dimension with blocks allows blocks of at
 * least two values. */
static bool has_small_blocks(const Float8 *f, const Node *n)
{
    const Graph *g = &f->job->plan->graph;
    const Tensor *x = &g->tensors.at[n->in[0]], *w = &g->tensors.at[n->in[1]];
    const SigTerm *of = &op_info(n->op)->sig.in[1], *out = &op_info(n->op)->sig.out[0];
    int64_t size[3] = {x->dim[op_dim(n->op, 0, INDEX_tokens)]};
    for (uint32_t d = 0; d < of->n_dims; d++) {
        bool kept = false;
        for (uint32_t k = 0; k < out->n_dims; k++)
            kept = kept || out->dim[k].letter == of->dim[d].letter;
        size[kept ? 1 : 2] = w->dim[d];
    }
    for (uint32_t i = 0; i < 3; i++)
        if (float8_block(f->pass, size[i]) < 2) return false;
    return true;
}

static Reason reason_of_sizes(Float8 *f, const Node *n, const Tensor *w)
{
    Binding b;
    if (f->pass->float8.any_size)
        return f->scaling == SCALING_pairs && !has_small_blocks(f, n) ? REASON_indivisible
                                                                      : REASON_covered;
    graph_bind(&f->job->plan->graph, n, &b, f->job->diag);
    const WeightSide k = side_of(f, w, true, &b), m = side_of(f, w, false, &b);
    if (k.local % multiple_of(f) == 0 && m.local % multiple_of(f) == 0)
        return tokens_fit(f, n) ? REASON_covered : REASON_split_tokens;
    if (!f->pass->float8.skip_indivisible) refuse_sizes(f, n, w, k, m);
    return REASON_indivisible;
}

static Reason reason_of(Float8 *f, const Node *n)
{
    const Graph *g = &f->job->plan->graph;
    const Tensor *w = &g->tensors.at[n->in[1]];
    const char *path = g->modules.at[n->module].path;
    if (f->logits[n->out[0]] && !f->pass->float8.head) return REASON_head;
    if (strstr(path, "router")) return REASON_router;
    if (!op_info(n->op)->scaled[f->scaling]) return REASON_expert;
    if (strstr(path, "experts") || strstr(path, "shared_expert")) return REASON_expert;
    if (within(g, f->skip, n->module)) return REASON_skipped;
    if (f->pass->float8.only.n > 0 && !within(g, f->only, n->module)) return REASON_not_named;
    return reason_of_sizes(f, n, w);
}

static bool is_linear(const Graph *g, const Node *n)
{
    return op_info(n->op)->class_ == OP_CLASS_contract &&
           g->tensors.at[n->in[1]].role == ROLE_param;
}

bool float8_gathers_first(const Job *job, const Node *n, uint32_t axis, char letter)
{
    const PassConfig *pass = pass_config(job, PASS_float8);
    const Graph *g = &job->plan->graph;
    return pass && pass->float8.gather_first && pass->float8.recipe == FLOAT8_rowwise &&
           op_info(n->op)->flags & (OP_MAGNITUDE | OP_QUANTISES) &&
           g->tensors.at[n->in[0]].role != ROLE_param &&
           axis_info(job->plan->mesh.axis[axis].name)->flags & AXIS_WEIGHTS &&
           op_role(n->op, letter) == INDEX_tokens;
}

/* ---- rewriting ---- */

static Quantised quantised(Float8 *f, const Node *reader, uint32_t i)
{
    Graph *g = &f->job->plan->graph;
    TensorId x = reader->in[i];
    OpKind scale = float8_scale(g, reader, i, x);
    for (uint32_t c = f->casts_of[x]; c; c = f->casts.at[c].next)
        if (f->casts.at[c].scale == scale && f->casts.at[c].stage == reader->stage)
            return f->casts.at[c].to;
    QuantisedForm cast = {
        .of = x,
        .stage = reader->stage,
        .next = f->casts_of[x],
        .scale = scale,
        .to = float8_quantise(f->job, reader, i, x, float8_type(reader->op, DT_e4m3), 0)};
    f->casts_of[x] = (uint32_t)list_push(f->job->scratch, &f->casts, cast);
    return cast.to;
}

static void append(Float8 *f, Node n)
{
    Graph *g = &f->job->plan->graph;
    NodeId id = (NodeId)list_push(f->job->arena, &g->nodes, n);
    for (uint32_t j = 0; j < n.n_out; j++) g->tensors.at[n.out[j]].producer = id;
}

/* Appends linear n in its 8-bit form, which reads quantised operands. */
static void cover(Float8 *f, Node n)
{
    Graph *g = &f->job->plan->graph;
    n.op = op_info(n.op)->scaled[f->scaling];
    Quantised x = quantised(f, &n, 0), w = quantised(f, &n, 1);
    Attrs attrs = float8_attrs(g, n.op, x.value, w.value);
    n.n_in = (uint8_t)float8_inputs(x, w, n.in);
    n.attrs = graph_attrs(g, f->job->arena, &attrs);
    append(f, n);
}

/* Rebuilds the list of nodes, with each quantisation directly before its first reader. */
static void rewrite(Float8 *f, const Reason *reasons)
{
    Graph *g = &f->job->plan->graph;
    uint32_t n_nodes = g->nodes.n, n_tensors = g->tensors.n;
    Node *old = g->nodes.at;
    f->casts_of = arena_array(f->job->scratch, n_tensors, sizeof *f->casts_of);
    list_reserve_none(f->job->scratch, &f->casts);
    memset(&g->nodes, 0, sizeof g->nodes);
    list_reserve_none(f->job->arena, &g->nodes);
    for (NodeId id = 1; id < n_nodes; id++) {
        if (reasons[id] == REASON_covered && is_linear(g, &old[id]))
            cover(f, old[id]);
        else
            append(f, old[id]);
    }
}

/* ---- reports ---- */

static void report(Float8 *f)
{
    const char *why[REASON_COUNT] = {
#define X(name, text) text,
        REASONS(X)
#undef X
    };
    why[REASON_indivisible] =
        arena_print(f->job->scratch, "on a rank, a dimension of its weight is not a multiple of %d",
                    multiple_of(f));
    why[REASON_split_tokens] = f->split_tokens;
    Diag *d = f->job->diag;
    bool shrunk = f->pass->float8.any_size;
    uint32_t n = 0;
    for (int r = 0; r < REASON_COUNT; r++) n += f->n[r];
    if (f->n[REASON_covered] == 0 && !shrunk) {
        diag_error(
            d, FAULT_input, "float8-matched-nothing", f->pass->loc,
            "float8{} excludes all %u linears of the model, so nothing would be computed in 8 bits",
            n);
        for (int r = 1; r < REASON_COUNT; r++)
            if (f->n[r] > 0) diag_hint(d, "%s: %s", f->first[r], why[r]);
        return;
    }
    for (int r = 1; r < REASON_COUNT && !shrunk; r++)
        if (f->n[r] > 0)
            diag_note(d, "float8-excluded", f->pass->loc,
                      "float8{} does not convert %s%s (of %u linears): %s", f->first[r],
                      f->n[r] > 1 ? arena_print(f->job->scratch, " and %u more", f->n[r] - 1) : "",
                      n, why[r]);
}

/* Refuses blocks together with cp: a rank of cp has two chunks of each sequence, and a block may
 * not extend from one into the other. */
static bool check_chunks(Float8 *f)
{
    Diag *d = f->job->diag;
    if (!has_blocks(f) || !f->job->context.seq_deal) return true;
    diag_error(d, FAULT_input, "float8-blocks-chunks", f->pass->loc,
               "recipe = \"%s\" does not work with cp = %u in this mode, because each rank has two "
               "separate chunks of a sequence",
               recipes[f->pass->float8.recipe],
               config_ranks(f->job->config, axes_cutting(INDEX_tokens)));
    diag_hint(d, "use cp { mode = \"all_to_all\" }, or recipe = \"rowwise\"");
    return false;
}

/* Checks the option fsdp_gather, which gathers weights in 8 bits and therefore needs one scale for
 * each whole weight. */
static bool check_gather(Float8 *f)
{
    const Float8Options *o = &f->pass->float8;
    const Config *config = f->job->config;
    Diag *d = f->job->diag;
    if (!o->fsdp_gather) return true;
    if (o->recipe != FLOAT8_tensorwise) {
        diag_error(d, FAULT_input, "float8-gather-rowwise", f->pass->loc,
                   "fsdp_gather = true does not work with recipe = \"%s\", whose backward pass "
                   "needs other scales of a weight than the forward pass",
                   recipes[o->recipe]);
        diag_hint(d, "use recipe = \"tensorwise\", or leave out fsdp_gather");
        return false;
    }
    const PassConfig *fsdp2 = pass_config(f->job, PASS_fsdp2);
    const bool over_ep = !fsdp2 || fsdp2->fsdp2.over_ep;
    const AxisNames left_out = over_ep ? 0 : axes_trading(INDEX_experts);
    f->job->sharding.gathers_bytes = config_ranks(config, axes_with(AXIS_STATES) & ~left_out) > 1;
    if (!f->job->sharding.gathers_bytes)
        diag_warning(d, "not-applied", f->pass->loc,
                     "float8 { fsdp_gather = true } has no effect, because no weight is gathered "
                     "with mesh.dp_shard = %u",
                     config_ranks(config, axes_with(AXIS_UNITS)));
    return true;
}

/* Warns if the option gather_first has no effect. Only rowwise tokens can be gathered before they
 * are quantised; otherwise they are always quantised first. */
static void check_order(Float8 *f)
{
    if (f->pass->float8.gather_first && f->scaling != SCALING_rowwise)
        diag_warning(f->job->diag, "not-applied", f->pass->loc,
                     "float8 { gather_first = true } has no effect with recipe = \"%s\"",
                     recipes[f->pass->float8.recipe]);
}

static bool pass_float8(Job *job)
{
    Graph *g = &job->plan->graph;
    Float8 f = {.job = job, .pass = pass_config(job, PASS_float8)};
    assert(f.pass);
    const Float8Options *o = &f.pass->float8;
    uint32_t before = job->diag->n_errors;
    f.scaling = scaling_of[o->recipe];
    check_order(&f);
    f.skip = arena_array(job->scratch, g->modules.n + 1, sizeof *f.skip);
    f.only = arena_array(job->scratch, g->modules.n + 1, sizeof *f.only);
    for (uint32_t i = 0; i < o->skip.n; i++)
        pattern_mark(job, "float8.skip", &o->skip.at[i], f.skip);
    for (uint32_t i = 0; i < o->only.n; i++)
        pattern_mark(job, "float8.only", &o->only.at[i], f.only);
    if (!check_gather(&f) || !check_chunks(&f) || job->diag->n_errors > before) return false;
    find_logits(&f);
    Reason *reasons = arena_array(job->scratch, g->nodes.n, sizeof *reasons);
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        if (!is_linear(g, n)) continue;
        Reason r = reasons[id] = reason_of(&f, n);
        if (f.n[r]++ == 0) f.first[r] = g->modules.at[n->module].path;
    }
    if (job->diag->n_errors == before) report(&f);
    if (job->diag->n_errors > before) return false;
    rewrite(&f, reasons);
    return true;
}

static const PassOption options[] = {
    OPTION_WORD(float8.recipe, recipes, FLOAT8_tensorwise, "",
                "tensorwise: 8-bit numbers with one scale for a tensor. rowwise: one scale for "
                "each row. mxfp8: one scale for each block of 32 numbers. nvfp4: 4-bit numbers "
                "with one scale for each block of 16."),
    OPTION_FLAG(float8.fsdp_gather, 0, "",
                "true: sharded weights are gathered in 8 bits. Only with tensorwise scales."),
    OPTION_FLAG(float8.head, 0, "",
                "true: the head, which computes the logits, is converted, too."),
    OPTION_FLAG(float8.skip_indivisible, 0, "",
                "true: a linear stays as it is if, on a rank, a size of its weight is not a "
                "multiple of 16 (mxfp8, nvfp4: 32). false: such a linear is an error."),
    OPTION_FLAG(
        float8.keep_quantised, 0, "",
        "true: the backward pass reads the quantised input that the forward pass made. false: it "
        "quantises the input again. tensorwise always keeps the quantised input."),
    OPTION_FLAG(
        float8.gather_first, 0, "",
        "true: with sequence parallelism, tokens are gathered before they are quantised, so each "
        "rank of tp quantises all of them, as torchao does. false: quantised tokens are gathered. "
        "Only with rowwise scales."),
    OPTION_LIST("float8.skip", modules, float8.skip, 0, NULL, "none", "",
                "Paths of modules that are not converted."),
    OPTION_LIST("float8.only", modules, float8.only, 0,
                "leave out `only` to convert every linear, or leave out float8{}", "every linear",
                "", "Paths of the only modules that are converted."),
    OPTION_END,
};

static const PassEdge before[] = {
    {PASS_ac, "the recomputed forward pass would round differently from the first one"},
    {PASS_fsdp2, "weights that are already sharded would still be gathered in 16 bits"},
    {PASS_zero, "weights that are already sharded would still be gathered in 16 bits"},
    {PASS_compile, "the code would be compiled for 16 bits"},
    {0, NULL},
};

static void print(const PassConfig *pass, Str *out)
{
    str_print(out, "float8(%s%s%s%s)", recipes[pass->float8.recipe],
              pass->float8.fsdp_gather ? ", 8-bit gathers" : "",
              pass->float8.gather_first ? ", gathers before scales" : "",
              pass->float8.keep_quantised ? ", quantised inputs are kept" : "");
}

static void shrink(PassConfig *pass, Shrink *s)
{
    pass->float8.any_size = true;
    if (pass->float8.recipe != FLOAT8_mxfp8 && pass->float8.recipe != FLOAT8_nvfp4) return;
    pass->float8.cuts = 1; /* preliminary, because the shrunk mesh is not known yet */
    s->block = FLOAT8_SMALL_BLOCK;
}

const PassSpec pass_spec_float8 = {
    .name = "float8",
    .doc = {"float8", "", "Computes the products of linears with 8-bit or 4-bit numbers."},
    .options = options,
    .short_key = "recipe",
    .before = before,
    .reports = true,
    .run = pass_float8,
    .print = print,
    .shrink = shrink,
};
