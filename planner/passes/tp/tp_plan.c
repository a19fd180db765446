/* tp { plan = { ["layers.*.attention.wo"] = "rowwise" } }: styles of modules by path pattern. A
 * style splits the module's weight and requests layouts of its input or output; lowering inserts
 * the communication that follows.
 *
 *   colwise            weight split by outputs; the output stays split
 *   colwise_rep        like colwise, but the output is gathered
 *   rowwise            weight split by inputs (an embedding: by the vocabulary)
 *   rowwise_rep        like rowwise, but the input is whole
 *   sequence_parallel  whole weights; the output is computed and kept split by tokens */
#include <assert.h>
#include <string.h>

#include "planner/passes/pass.h"

static const char *const style_names[TP_PLAN_STYLE_COUNT] = {
#define X(name) #name,
    TP_PLAN_STYLES(X)
#undef X
};

static bool is_column(TpPlanStyle s)
{
    return s == TP_PLAN_colwise || s == TP_PLAN_colwise_rep;
}

/* True if cross-entropy reads tensor t. Its vocabulary may then be split unevenly. */
static bool feeds_loss(const Graph *g, TensorId t)
{
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        if (n->n_in == 0 || n->in[0] != t) continue;
        if (op_starts_loss(n->op)) return true;
        if (op_info(n->op)->flags & OP_AFFINE && feeds_loss(g, n->out[0])) return true;
    }
    return false;
}

/* True if the op's first input also has this index of weight and output: it counts experts, which
 * ep divides, not tp. */
static bool is_of_all(const Binding *b, char letter)
{
    for (int d = 0; d < b->n_dims[0]; d++)
        if (b->letter[0][d] == letter) return true;
    return false;
}

/* Returns the first dimension of the weight that the output has, too (column = true), or does not
 * have (row); -1: none. */
static int dim_to_cut(Job *job, const Node *n, bool column)
{
    Binding b;
    if (!graph_bind(&job->plan->graph, n, &b, job->diag)) return -1;
    for (int d = 0; d < b.n_dims[1]; d++) {
        bool in_output = false;
        for (int k = 0; k < b.n_dims[n->n_in]; k++)
            in_output = in_output || b.letter[n->n_in][k] == b.letter[1][d];
        if (in_output && is_of_all(&b, b.letter[1][d])) continue;
        const bool segments = op_role(n->op, b.letter[1][d]) ==
                              /* fused projections are never split between their segments */
                              INDEX_segments;
        if (in_output == column && !segments) return d;
    }
    return -1;
}

/* The splits of weights that patterns have asked for so far. */
typedef struct Asked {
    Job *job;
    const TpOptions *options;
    uint32_t *of_param; /* of_param[tensor]: 1 + index of the pattern that split it; 0: none */
    int8_t *dim;        /* [tensor] */
} Asked;

static void cut_weight(Asked *a, const Node *n, uint32_t pattern)
{
    Graph *g = &a->job->plan->graph;
    bool column = is_column((TpPlanStyle)a->options->plan.at[pattern].style);
    const bool looks_up = op_info(n->op)->flags & OP_LOOKS_UP;
    TensorId id = n->in[1];
    Tensor *t = &g->tensors.at[id];
    int dim = dim_to_cut(a->job, n, column);
    if (dim < 0) return;
    if (a->of_param[id] && a->dim[id] != dim) {
        const Pattern *p = &a->options->plan.at[pattern];
        const Pattern *other = &a->options->plan.at[a->of_param[id] - 1];
        diag_error(
            a->job->diag, FAULT_input, "tp-plan-tied", p->loc,
            "'%s' splits the shared weight %s by dimension %d, but '%s' splits it by dimension %d",
            p->path, t->name, dim, other->path, a->dim[id]);
        diag_hint(a->job->diag, "use rowwise for the embedding and colwise for the head");
        return;
    }
    a->of_param[id] = pattern + 1;
    a->dim[id] = (int8_t)dim;
    if (column) {
        t->tp = !looks_up && feeds_loss(g, n->out[0]) ? TP_vocab : TP_column;
        t->column_dim = (uint8_t)dim;
    } else if (looks_up) {
        t->tp = TP_vocab;
        t->column_dim = (uint8_t)dim;
    } else {
        t->tp = TP_row;
        t->row_dim = (uint8_t)dim;
    }
}

/* Splits the bias of a column linear like its outputs. The bias of a row linear stays whole,
 * because it is added after the sum over ranks. */
static void cut_bias(Asked *a, const Node *n, uint32_t pattern)
{
    Graph *g = &a->job->plan->graph;
    Tensor *t = &g->tensors.at[n->in[1]];
    bool column = is_column((TpPlanStyle)a->options->plan.at[pattern].style);
    t->tp = !column ? TP_none : feeds_loss(g, n->out[0]) ? TP_vocab : TP_column;
    t->column_dim = 0;
    const Node *made = &g->nodes.at[graph_product(g, n->in[0])];
    /* the bias has the last dimensions of the output */
    const int behind = g->tensors.at[n->in[0]].n_dims - t->n_dims;
    if (op_dim(made->op, made->n_in, INDEX_segments) == behind) t->column_dim = 1;
}

static bool is_weighted(const Graph *g, const Node *n)
{
    const OpInfo *info = op_info(n->op);
    const bool weighs = info->class_ == OP_CLASS_contract || info->flags & OP_LOOKS_UP;
    return weighs && g->tensors.at[n->in[1]].role == ROLE_param;
}

/* Sets plan->of_module. Reports a module that matches two patterns with different styles. Returns
 * how many modules match. */
static uint32_t resolve(Job *job, const Patterns *patterns, TpPlan *plan)
{
    const Graph *g = &job->plan->graph;
    uint32_t n_modules = g->modules.n ? g->modules.n : 1, n = 0;
    plan->of_module = arena_array(job->scratch, n_modules, sizeof *plan->of_module);
    for (uint32_t i = 0; i < patterns->n; i++) {
        bool *matched = arena_array(job->scratch, n_modules, sizeof *matched);
        n += pattern_mark(job, "tp.plan", &patterns->at[i], matched);
        for (ModuleId m = 1; m < g->modules.n; m++) {
            if (!matched[m]) continue;
            uint32_t other = plan->of_module[m];
            plan->of_module[m] = i + 1;
            if (!other || patterns->at[other - 1].style == patterns->at[i].style) continue;
            diag_error(job->diag, FAULT_input, "pattern-twice", patterns->at[i].loc,
                       "'%s' asks for %s and '%s' asks for %s, but both name the module %s",
                       patterns->at[i].path, style_names[patterns->at[i].style],
                       patterns->at[other - 1].path, style_names[patterns->at[other - 1].style],
                       g->modules.at[m].path);
            break;
        }
    }
    return n;
}

static bool is_within(const Graph *g, ModuleId module, ModuleId outer)
{
    for (; module; module = g->modules.at[module].parent)
        if (module == outer) return true;
    return false;
}

/* Returns the last node of a module, whose output is the module's. */
static NodeId last_node(const Graph *g, ModuleId module)
{
    for (NodeId id = g->nodes.n; id-- > 1;)
        if (is_within(g, g->nodes.at[id].module, module)) return id;
    return 0;
}

/* True if the output of a module has the shape [samples, tokens, ...]. */
static bool leaves_sequence(const Job *job, const DimRoles *roles, ModuleId module)
{
    const Graph *g = &job->plan->graph;
    NodeId last = last_node(g, module);
    if (!last || g->nodes.at[last].n_out == 0) return false;
    const Tensor *out = &g->tensors.at[g->nodes.at[last].out[0]];
    return out->role == ROLE_activation && out->n_dims >= 3 &&
           roles_dim(&roles[g->nodes.at[last].out[0]], INDEX_tokens) >= 0;
}

/* Checks that each style suits its modules: colwise and rowwise need a weight, sequence_parallel an
 * output with tokens. */
static void check_styles(Job *job, const Patterns *patterns, const TpPlan *plan)
{
    const Graph *g = &job->plan->graph;
    bool *has = arena_array(job->scratch, g->modules.n + 1, sizeof *has);
    const DimRoles *roles = graph_roles(g, job->scratch);
    bool *told = arena_array(job->scratch, patterns->n + 1, sizeof *told);
    for (NodeId id = 1; id < g->nodes.n; id++)
        has[g->nodes.at[id].module] |= is_weighted(g, &g->nodes.at[id]);
    for (ModuleId m = 1; m < g->modules.n; m++) {
        uint32_t i = plan->of_module[m];
        if (!i || told[i]) continue;
        bool sequence = patterns->at[i - 1].style == TP_PLAN_sequence_parallel;
        if (sequence ? leaves_sequence(job, roles, m) : has[m]) continue;
        told[i] = true; /* one report for each pattern, not for each layer */
        diag_error(job->diag, FAULT_input, "tp-style", patterns->at[i - 1].loc,
                   "'%s' = \"%s\": nn.%s (%s) cannot be split that way", patterns->at[i - 1].path,
                   style_names[patterns->at[i - 1].style], g->modules.at[m].class_,
                   g->modules.at[m].path);
        diag_hint(
            job->diag,
            sequence
                ? "only a module with an output [batch, seq, ...] can be sequence_parallel"
                : "name a linear or an embedding; other modules can only be sequence_parallel");
    }
}

uint32_t tp_plan_params(Job *job, const TpOptions *options, TpPlan *plan)
{
    Graph *g = &job->plan->graph;
    for (TensorId t = 1; options->plan_only && t < g->tensors.n; t++) g->tensors.at[t].tp = TP_none;
    uint32_t n = resolve(job, &options->plan, plan);
    if (options->plan.n == 0) return 0;
    check_styles(job, &options->plan, plan);
    Asked a = {.job = job,
               .options = options,
               .of_param = arena_array(job->scratch, g->tensors.n, sizeof *a.of_param),
               .dim = arena_array(job->scratch, g->tensors.n, sizeof *a.dim)};
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *node = &g->nodes.at[id];
        uint32_t i = plan->of_module[node->module];
        if (!i) continue;
        if (options->plan.at[i - 1].style == TP_PLAN_sequence_parallel) {
            for (uint32_t k = 0; k < node->n_in; k++) {
                Tensor *t = &g->tensors.at[node->in[k]];
                if (t->role == ROLE_param && t->module == node->module) t->tp = TP_none;
            }
        } else if (is_weighted(g, node)) {
            cut_weight(&a, node, i - 1);
        } else if (op_adds_bias(node->op) && g->tensors.at[node->in[1]].role == ROLE_param) {
            cut_bias(&a, node, i - 1);
        }
    }
    return n;
}

/* Requests layout `on` for an activation on all mesh axes of tp. */
static void require(const Job *job, TensorId tensor, int8_t on)
{
    Tensor *t = &job->plan->graph.tensors.at[tensor];
    AxisSet axes = pass_axes(job, PASS_tp);
    if (t->role != ROLE_activation) return;
    for (uint32_t a = 0; a < job->plan->mesh.n_axes; a++)
        if (axes >> a & 1) t->use.on[a] = on;
    t->use_is_fixed = true;
}

void tp_plan_activations(Job *job, const TpOptions *options, const TpPlan *plan)
{
    const Graph *g = &job->plan->graph;
    const DimRoles *roles = options->plan.n ? graph_roles(g, job->scratch) : NULL;
    for (ModuleId m = 1; m < g->modules.n; m++) {
        if (!plan->of_module[m]) continue;
        NodeId last = last_node(g, m);
        if (!last) continue;
        TensorId out = g->nodes.at[last].out[0];
        switch ((TpPlanStyle)options->plan.at[plan->of_module[m] - 1].style) {
        case TP_PLAN_colwise_rep: require(job, out, WHOLE); break;
        case TP_PLAN_sequence_parallel:
            require(job, out, SPLIT(roles_dim(&roles[out], INDEX_tokens)));
            break;
        case TP_PLAN_rowwise_rep:
            for (NodeId id = 1; id < g->nodes.n; id++)
                if (g->nodes.at[id].module == m && is_weighted(g, &g->nodes.at[id]))
                    require(job, g->nodes.at[id].in[0], WHOLE);
            break;
        case TP_PLAN_colwise:
        case TP_PLAN_rowwise:
        case TP_PLAN_STYLE_COUNT: break;
        }
    }
}
