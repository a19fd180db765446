/* Fuses matrix products with the following ops that the product's library call can apply to its
 * result (kernels/epilogue.h), such as adding a bias.
 *
 * In the backward pass such an op is often not next to a product. The gradient of a bias comes
 * before both products of its linear. The gradient of GELU comes before the product that computes
 * the next weight's gradient. compile_gradients therefore moves such nodes down to a product that
 * can compute them. */
#include "kernels/epilogue.h"
#include "planner/passes/compile.h"

/* ---- on the graph: moving gradient nodes down to a product ---- */

static bool reads(const Node *n, TensorId t)
{
    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i] == t) return true;
    return false;
}

/* Returns the tensor whose value t has: t itself, or the tensor that ops named `pass` have passed
 * on to t unchanged. */
static TensorId value_of(const Graph *g, TensorId t)
{
    NodeId producer = g->tensors.at[t].producer;
    while (producer && g->nodes.at[producer].op == OP_pass) {
        t = g->nodes.at[producer].in[0];
        producer = g->tensors.at[t].producer;
    }
    return t;
}

static bool is_product(OpKind op)
{
    return op_info(op)->class_ == OP_CLASS_contract;
}

/* True for a product that computes the gradient of a weight, which sums over tokens. */
static bool sums_tokens(OpKind op)
{
    return is_product(op) && op_dim(op, op_info(op)->sig.n_in, INDEX_samples) < 0;
}

/* True if the node's result is a partial sum on some mesh axis. A collective follows then, which
 * must not be delayed by moving the node. */
static bool is_partial(const Plan *plan, const Node *n)
{
    Binding b;
    if (!graph_bind(&plan->graph, n, &b, NULL)) return true;
    for (uint32_t a = 0; a < plan->mesh.n_axes; a++)
        if (n->split[a] && op_axis_layout(n->op, &b, n->n_in, n->split[a]) == PARTIAL_SUM)
            return true;
    return false;
}

/* True if node n may move down to index `to`: no node up to there reads n's output or adds to it,
 * and all are in n's stage and layer. */
static bool may_go(const Graph *g, NodeId n, NodeId to)
{
    const Node *node = &g->nodes.at[n];
    for (NodeId id = n + 1; id <= to; id++) {
        const Node *at = &g->nodes.at[id];
        if (at->stage != node->stage || at->layer != node->layer) return false;
        for (uint32_t j = 0; j < node->n_out; j++) {
            if (reads(at, node->out[j])) return false;
            for (uint32_t k = 0; k < at->n_out; k++)
                if (at->out[k] == node->out[j]) return false;
        }
    }
    return true;
}

/* Returns the weight-gradient product that sums over the same tensor as node `n`, the gradient of a
 * bias; 0: none. */
static NodeId same_sum(const Graph *g, NodeId n)
{
    const TensorId sum = value_of(g, g->nodes.at[n].in[0]);
    for (NodeId id = n + 1; id < g->nodes.n; id++) {
        const Node *at = &g->nodes.at[id];
        for (uint32_t i = 0; i < at->n_in && sums_tokens(at->op); i++)
            if (value_of(g, at->in[i]) == sum) return id;
    }
    return 0;
}

static void sink_bias_gradients(Graph *g)
{
    for (NodeId n = (NodeId)g->nodes.n; n-- > g->n_forward + 1;) {
        if (!op_sums_bias(g->nodes.at[n].op)) continue;
        NodeId to = same_sum(g, n);
        if (to && may_go(g, n, to)) compile_move(g, n, to);
    }
}

static void sink_into_gelu(Plan *plan)
{
    Graph *g = &plan->graph;
    for (NodeId n = (NodeId)g->nodes.n; n-- > g->n_forward + 1;) {
        const Node *node = &g->nodes.at[n];
        NodeId reader = is_product(node->op) ? compile_first_reader(g, n) : 0;
        if (!reader || !(op_info(g->nodes.at[reader].op)->flags & OP_IN_PRODUCT) ||
            is_partial(plan, node))
            continue;
        if (may_go(g, n, reader - 1)) compile_move(g, n, reader - 1);
    }
}

void compile_gradients(Job *job)
{
    if (!pass_config(job, PASS_compile) || job->config->runtime.name) return;
    sink_bias_gradients(&job->plan->graph);
    sink_into_gelu(job->plan);
}

/* ---- on the lowered program: setting Instr.fuse ---- */

ProductFuser product_fuser(const Plan *plan, Program *p, CompilePer per, const bool *is_awaited,
                           Arena *scratch)
{
    ProductFuser f = {.plan = plan, .p = p, .per = per, .is_awaited = is_awaited};
    f.n_touches = arena_array(scratch, p->buffers.n + 1, sizeof *f.n_touches);
    for (Pc pc = 1; pc < p->code.n; pc++)
        for (uint32_t i = 0; i < p->code.at[pc].args.n; i++)
            for (BufferId b = program_arg(p, &p->code.at[pc], i); b; b = p->buffers.at[b].parent)
                f.n_touches[b]++;
    return f;
}

static EpiloguePart part_of(const ProductFuser *f, const Instr *in)
{
    const Graph *g = &f->plan->graph;
    EpiloguePart part = {.op = in->op, .n_in = in->n_in};
    part.accumulates = graph_attrs_at(g, in->attrs)->accumulate & 1;
    for (uint32_t i = 0; i < in->args.n; i++) {
        const Buffer *b = &f->p->buffers.at[program_arg(f->p, in, i)];
        part.at[i] = program_arg(f->p, in, i);
        part.dtype[i] = b->dtype;
        part.elements[i] =
            shape_local_elements(plan_shape_at(f->plan, b->shape), &f->plan->mesh, &g->deals);
    }
    return part;
}

/* True if only the instructions run[0] to run[n - 1] use the first output of run[i], so that it
 * need not be written to memory. */
static bool stays_inside(const ProductFuser *f, const Pc *run, uint32_t n, uint32_t i)
{
    const Program *p = f->p;
    BufferId made = program_arg(p, &p->code.at[run[i]], p->code.at[run[i]].n_in);
    const Buffer *b = &p->buffers.at[made];
    uint32_t inside = 0;
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t j = 0; j < p->code.at[run[k]].args.n; j++)
            inside += program_arg(p, &p->code.at[run[k]], j) == made;
    return !b->parent && !b->persistent && !b->result && inside == f->n_touches[made];
}

/* Sets `run` to the product at pc and the following instructions of the compute stream that may be
 * in one kernel with it. Returns how many there are. */
static uint32_t find_run(const ProductFuser *f, Pc pc, Pc run[EPILOGUE_PARTS])
{
    const Program *p = f->p;
    uint32_t n = 0;
    for (; pc < p->code.n && n < EPILOGUE_PARTS; pc++) {
        const Instr *in = &p->code.at[pc];
        if (in->stream != STREAM_compute) continue;
        if (n > 0 && (f->is_awaited[run[n - 1]] ||
                      !compile_together(f->plan, f->per, &p->code.at[run[0]], in)))
            break;
        run[n++] = pc;
    }
    return n;
}

bool product_fuse(const ProductFuser *f, Pc pc, uint32_t kernel)
{
    Program *p = f->p;
    EpiloguePart part[EPILOGUE_PARTS];
    Pc run[EPILOGUE_PARTS];
    Epilogue e;
    int64_t size['z' + 1];
    Binding b;
    if (!is_product(p->code.at[pc].op) || !p->code.at[pc].origin) return false;
    if (!plan_bind(f->plan, p, &p->code.at[pc], 0, &b, size, NULL, NULL)) return false;
    uint32_t n = find_run(f, pc, run);
    for (uint32_t i = 0; i < n; i++) part[i] = part_of(f, &p->code.at[run[i]]);
    const Product product = product_of(&b, size);
    for (n = epilogue_of(part, n, &product, &e); n > 1;
         n = epilogue_of(part, n - 1, &product, &e)) {
        bool fine = true;
        for (uint32_t i = 0; i < n; i++)
            fine = fine && (!epilogue_passes_on(&e, i) || stays_inside(f, run, n, i));
        if (fine) break;
    }
    for (uint32_t i = 0; n > 1 && i < n; i++) p->code.at[run[i]].fuse = kernel;
    return n > 1;
}
