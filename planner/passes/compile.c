/* compile: fuses neighbouring ops on the compute stream into kernels, as torch.compile would.
 *
 * The pass itself, on the graph, moves row-by-row ops (op_is_rowwise) down to the ops that read
 * them, and checks its place in `parallel`. pass_fuse, on the lowered program, then sets
 * Instr.fuse. Into one kernel go:
 * - Row-by-row ops on the same rows.
 * - After these, or after the gradient of a norm (which joins no other op): the search for the
 *   largest magnitude of a tensor that the kernel computes (for 8-bit products).
 * - A matrix product and the ops that its library call can apply to the result (compile_product.c).
 * - Without compile, too: the ops of cross-entropy that read the same row of logits, and the op
 *   that transposes a quantised tensor. Each of these is one library kernel.
 *
 * A kernel ends where an instruction on another stream waits for it, and where a complete sum over
 * rows is needed. With the option `block` it also ends at the end of a block, where FSDP gathers
 * and frees weights. A recomputed op joins the kernel of the gradients that read it. The kernel
 * then keeps the value in registers, and writes it to memory only if another kernel reads it. */
#include <assert.h>

#include "planner/passes/compile.h"

static bool is_data_pass(PassName name)
{
    return name == PASS_fsdp2 || name == PASS_ddp || name == PASS_zero;
}

/* True if `parallel` lists compile before a pass that shards parameters or reduces gradients. */
static bool before_data(const Config *config)
{
    bool seen = false, before = false;
    for (uint32_t i = 0; i < config->n_passes; i++) {
        seen = seen || config->passes[i].name == PASS_compile;
        before = before || (seen && is_data_pass(config->passes[i].name));
    }
    return before;
}

NodeId compile_first_reader(const Graph *g, NodeId n)
{
    const Node *node = &g->nodes.at[n];
    for (NodeId id = n + 1; id < g->nodes.n; id++)
        for (uint32_t i = 0; i < g->nodes.at[id].n_in; i++)
            for (uint32_t j = 0; j < node->n_out; j++)
                if (g->nodes.at[id].in[i] == node->out[j]) return id;
    return 0;
}

void compile_move(Graph *g, NodeId n, NodeId to)
{
    Node moved = g->nodes.at[n];
    for (NodeId id = n; id < to; id++) g->nodes.at[id] = g->nodes.at[id + 1];
    g->nodes.at[to] = moved;
    for (NodeId id = n; id <= to; id++)
        for (uint32_t j = 0; j < g->nodes.at[id].n_out; j++)
            g->tensors.at[g->nodes.at[id].out[j]].producer = id;
}

/* True if row-by-row node n should move down, next to `reader`, the row-by-row node that reads its
 * output. For example, in silu(w1 x) * (w3 x) the product w3 x lies between silu and the
 * multiplication; silu moves behind it. */
static bool sinks(const Graph *g, NodeId n, NodeId reader)
{
    const Node *a = &g->nodes.at[n], *b = &g->nodes.at[reader];
    return reader > n + 1 && op_is_rowwise(a->op) && op_is_rowwise(b->op) && a->stage == b->stage &&
           a->region == b->region && a->layer == b->layer;
}

/* Moves row-by-row nodes down to their first reader, so that both can be fused. */
static void sink_rows(Graph *g)
{
    for (NodeId n = (NodeId)g->nodes.n; n-- > 1;) {
        if (!op_is_rowwise(g->nodes.at[n].op)) continue;
        NodeId reader = compile_first_reader(g, n);
        if (reader && sinks(g, n, reader)) compile_move(g, n, reader - 1);
    }
}

static bool pass_compile(Job *job)
{
    const PassConfig *pass = pass_config(job, PASS_compile);
    assert(pass);
    sink_rows(&job->plan->graph);
    if (pass->compile != COMPILE_model || !before_data(job->config)) return true;
    diag_error(job->diag, FAULT_input, "compile-position", pass->loc,
               "compile { per = \"model\" } must be listed after fsdp2{}: otherwise compiled code "
               "would contain FSDP's gathers");
    diag_hint(job->diag, "list compile last, or use compile \"block\"");
    return false;
}

static ModuleId block_of(const Graph *g, ModuleId module)
{
    for (ModuleId m = module; m; m = g->modules.at[m].parent)
        if (g->modules.at[m].is_block) return m;
    return 0;
}

/* Checks that no FSDP unit is inside a block. A block that is compiled before it is sharded is one
 * piece of code, so its weights cannot be gathered in several parts. */
static bool check_units(Job *job, const PassConfig *pass)
{
    const Graph *g = &job->plan->graph;
    if (!job->sharding.is_unit || !before_data(job->config)) return true;
    for (ModuleId m = 1; m < g->modules.n; m++) {
        ModuleId block = block_of(g, g->modules.at[m].parent);
        if (!job->sharding.is_unit[m] || !block) continue;
        diag_error(job->diag, FAULT_input, "compile-position", pass->loc,
                   "compile is listed before fsdp2{}, and FSDP's unit %s lies inside the compiled "
                   "block %s",
                   g->modules.at[m].path, g->modules.at[block].path);
        diag_hint(job->diag, "list compile last, or make each block one unit");
        return false;
    }
    return true;
}

typedef struct Fuser {
    const Plan *plan;
    Program *p;
    bool compiles;
    bool mixes; /* recomputed ops may join kernels of the backward pass */
    CompilePer per;
    bool *is_awaited; /* is_awaited[pc]: an instruction on another stream waits for this one */
    /* The first instruction of the current kernel, and the newest one on the compute stream, which
     * is also the last of the kernel. */
    Pc first, last;
    uint32_t n_kernels;
} Fuser;

static const Shape *row_shape(const Fuser *f, const Instr *in)
{
    return plan_shape_at(f->plan, f->p->buffers.at[program_arg(f->p, in, plan_rows_arg(in))].shape);
}

/* True if the two instructions have the same rows [b, s] and equally many elements in each, as all
 * instructions of a row-by-row kernel must. */
static bool same_rows(const Fuser *f, const Instr *a, const Instr *b)
{
    const Shape *x = row_shape(f, a), *y = row_shape(f, b);
    const Mesh *mesh = &f->plan->mesh;
    const Deals *deals = &f->plan->graph.deals;
    if (x->n_dims < 2 || y->n_dims < 2) return false;
    for (int d = 0; d < 2; d++)
        if (shape_local_dim(x, mesh, deals, d) != shape_local_dim(y, mesh, deals, d)) return false;
    return shape_local_elements(x, mesh, deals) == shape_local_elements(y, mesh, deals);
}

static bool reads_row_of_logits(const Instr *in)
{
    return op_info(in->op)->flags & OP_OF_LOSS && op_dim(in->op, 0, INDEX_vocab) >= 0;
}

/* True if the instruction may be part of a row-by-row kernel, as far as its op and its number of
 * arguments show. */
static bool goes_by_rows(const Instr *in)
{
    const OpInfo *info = op_info(in->op);
    const uint32_t n = (uint32_t)info->sig.n_in + info->sig.n_out;
    const bool scratch = !op_is_rowwise(in->op) && in->args.n == n + 1;
    return op_joins_kernel(in->op) && !reads_row_of_logits(in) && (in->args.n == n || scratch);
}

/* True if an instruction of the current kernel writes buffer b. */
static bool is_made_here(const Fuser *f, BufferId b)
{
    for (Pc pc = f->first; pc <= f->last; pc++) {
        const Instr *part = &f->p->code.at[pc];
        for (uint32_t i = part->n_in; part->stream == STREAM_compute && i < part->args.n; i++)
            if (program_arg(f->p, part, i) == b) return true;
    }
    return false;
}

static bool finds_magnitude(OpKind op)
{
    return op_info(op)->flags & OP_MAGNITUDE && op_info(op)->flags & OP_IN_KERNEL;
}

/* True if `in` cannot follow `before` in one row-by-row kernel. A search for a largest magnitude
 * only follows in a kernel that computes its input. Otherwise both must be row-by-row ops. The
 * gradient of a norm is none: it also sums over rows, so it visits them in another order. */
static bool is_alone(const Fuser *f, const Instr *before, const Instr *in)
{
    if (finds_magnitude(in->op)) return !is_made_here(f, program_arg(f->p, in, 0));
    return !op_is_rowwise(in->op) || !op_is_rowwise(before->op);
}

/* True if `in` reads a sum or maximum that an instruction of the current kernel computes, over rows
 * or within a row. Until the kernel ends, each of its threads has only a part of it. */
static bool needs_sum(const Fuser *f, const Instr *in)
{
    for (Pc pc = f->first; pc <= f->last; pc++) {
        const Instr *part = &f->p->code.at[pc];
        if (part->stream != STREAM_compute) continue;
        for (uint32_t j = 0; j < op_info(part->op)->sig.n_out; j++) {
            if (!finds_magnitude(part->op) && !op_sums_rows(part->op, j)) continue;
            const BufferId sum = program_root(f->p, program_arg(f->p, part, part->n_in + j), NULL);
            for (uint32_t i = 0; i < in->args.n; i++)
                if (program_root(f->p, program_arg(f->p, in, i), NULL) == sum) return true;
        }
    }
    return false;
}

/* True if both are ops of cross-entropy (maximum, sum of exponentials, logit of the label) on the
 * same logits, so that one kernel can read each row once for both. */
static bool shares_logits(const Fuser *f, const Instr *before, const Instr *in)
{
    return reads_row_of_logits(before) && reads_row_of_logits(in) &&
           op_starts_loss(f->p->code.at[f->first].op) && !op_starts_loss(in->op) &&
           program_arg(f->p, before, 0) == program_arg(f->p, in, 0);
}

/* True if both phases are the same. If `mixes` is true, recomputation and the backward pass also
 * count as the same. */
static bool same_phase(const Instr *a, const Instr *b, bool mixes)
{
    const bool backward = a->phase == PHASE_backward || b->phase == PHASE_backward;
    const bool again = a->phase == PHASE_recompute || b->phase == PHASE_recompute;
    return a->phase == b->phase || (mixes && backward && again);
}

/* True if both instructions compute graph nodes of the same micro-batch in the same phase
 * (same_phase), and b waits for no other stream. */
static bool in_step(const Instr *a, const Instr *b, bool mixes)
{
    return a->origin && b->origin && !b->after.n && same_phase(a, b, mixes) &&
           a->microbatch == b->microbatch;
}

/* True if both belong to the same unit of compilation: to the same block if per is COMPILE_block;
 * otherwise always. */
static bool same_code(const Plan *plan, CompilePer per, const Instr *a, const Instr *b)
{
    const Graph *g = &plan->graph;
    ModuleId first = g->nodes.at[a->origin].module, next = g->nodes.at[b->origin].module;
    return per != COMPILE_block || block_of(g, first) == block_of(g, next);
}

bool compile_together(const Plan *plan, CompilePer per, const Instr *first, const Instr *next)
{
    return in_step(first, next, false) && same_code(plan, per, first, next);
}

/* True if `in` may continue the current kernel, whose last instruction is `before`. */
static bool joins(const Fuser *f, const Instr *before, const Instr *in)
{
    if (f->is_awaited[f->last] || !in_step(before, in, f->mixes)) return false;
    const bool both_by_rows = f->compiles && goes_by_rows(before) && goes_by_rows(in);
    if (!both_by_rows && !in_step(before, in, false)) return false;
    if (shares_logits(f, before, in)) return true;
    if (!both_by_rows || !same_code(f->plan, f->per, before, in)) return false;
    return !is_alone(f, before, in) && same_rows(f, before, in) && !needs_sum(f, in);
}

/* Fuses an op that quantises a tensor with the op that transposes the result, if it comes next. A
 * library kernel does both, so this needs no compile. */
static bool turn_fuse(Fuser *f, Pc pc)
{
    Program *p = f->p;
    Instr *in = &p->code.at[pc], *next = in;
    if (!(op_info(in->op)->flags & OP_QUANTISES) || f->is_awaited[pc]) return false;
    do next++;
    while (next < p->code.at + p->code.n && next->stream != STREAM_compute);
    if (next == p->code.at + p->code.n || !(op_info(next->op)->flags & OP_TURNS)) return false;
    if (next->after.n || program_arg(p, next, 0) != program_arg(p, in, in->n_in)) return false;
    in->fuse = next->fuse = ++f->n_kernels;
    return true;
}

static void fuse_program(Fuser *f, const ProductFuser *products)
{
    Program *p = f->p;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        for (uint32_t k = 0; k < in->after.n; k++)
            f->is_awaited[p->after.at[in->after.first + k]] = true;
    }
    for (Pc pc = 1; pc < p->code.n; pc++) {
        Instr *in = &p->code.at[pc];
        if (in->stream != STREAM_compute) continue;
        if (products && !in->fuse && product_fuse(products, pc, f->n_kernels + 1)) f->n_kernels++;
        /* it belongs to a fused product or copy now, so the row-by-row kernel ends here */
        if (in->fuse || turn_fuse(f, pc)) {
            f->last = 0;
            continue;
        }
        Instr *before = f->last ? &p->code.at[f->last] : NULL;
        if (before && joins(f, before, in)) {
            if (!before->fuse) before->fuse = ++f->n_kernels;
            in->fuse = before->fuse;
        } else {
            f->first = pc;
        }
        f->last = pc;
    }
}

bool pass_fuse(Job *job)
{
    const PassConfig *pass = pass_config(job, PASS_compile);
    if (pass && !check_units(job, pass)) return false;
    for (uint32_t i = 0; i < job->plan->programs.n; i++) {
        Program *p = &job->plan->programs.at[i];
        Fuser f = {.plan = job->plan, .p = p, .compiles = pass != NULL};
        if (pass) f.per = pass->compile;
        /* A plan that predicts another framework (`runtime`) gets no such fusion, because the model
         * of its times does not include it. */
        f.mixes = pass && !job->config->runtime.name;
        f.is_awaited = arena_array(job->scratch, p->code.n + 1, sizeof *f.is_awaited);
        /* Other frameworks run these ops as separate kernels after the product, so their times must
         * not change either. */
        const bool products = pass && !job->config->runtime.name;
        ProductFuser with;
        if (products) with = product_fuser(job->plan, p, f.per, f.is_awaited, job->scratch);
        fuse_program(&f, products ? &with : NULL);
    }
    return true;
}

static const char *const pers[] = {
#define X(name) #name,
    COMPILE_PERS(X)
#undef X
        NULL};

static const PassOption options[] = {
    OPTION_AS("compile.per", word, compile, 0, 0, pers, 0, "",
              "block: only ops of the same block are fused. model: any consecutive ops are fused."),
    OPTION_END,
};

static void print(const PassConfig *pass, Str *out)
{
    str_print(out, "compile(%s)", pers[pass->compile]);
}

const PassSpec pass_spec_compile = {
    .name = "compile",
    .doc = {"compile", "", "Fuses neighbouring ops into one kernel."},
    .options = options,
    .short_key = "per",
    .reports = true,
    .run = pass_compile,
    .print = print,
};
