/* Prepares a rank: its arenas and, for each instruction, the arguments of the kernel or the
 * pointers and peers of the communication. */
#include "exec/ready.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/number.h"
#include "planner/ir/layout/rows.h"

char *rank_memory(const RankState *r, BufferId b)
{
    uint64_t offset;
    const Program *p = r->info->p;
    BufferId root = program_root(p, b, &offset);
    return (p->buffers.at[root].space == SPACE_host ? r->host : r->device) + offset;
}

static const Shape *arg_shape(const RankState *r, const Instr *in, uint32_t i)
{
    const Program *p = r->info->p;
    return plan_shape_at(r->plan, p->buffers.at[program_arg(p, in, i)].shape);
}

static bool fail(const RankState *r, Pc pc, Arena *arena, Diag *d, const char *what)
{
    const Program *p = r->info->p;
    return diag_error(d, FAULT_internal, "exec-program", instr_loc(r->plan, program_instr(p, pc)),
                      "%s: %s", instr_text(r->plan, p, pc, arena), what);
}

/* ---- local instructions ---- */

/* Sets outer, middle, inner, part_start and part_size (kernels/kernel.h) for a RESHAPE op, which
 * changes how a value lies in memory. */
static bool set_extents(const RankState *r, const Instr *in, KernelArgs *a)
{
    const Mesh *mesh = &r->plan->mesh;
    const Deals *deals = &r->plan->graph.deals;
    const Shape *whole = arg_shape(r, in, in->op == OP_unpack || in->op == OP_place);
    int64_t dim = a->attrs.dim, parts = a->attrs.parts;
    if (dim < 0 || dim >= whole->n_dims) return false;
    a->outer = a->middle = a->inner = 1;
    for (int d = 0; d < whole->n_dims; d++) {
        int64_t n = shape_extent(whole, mesh, deals, d);
        if (d < dim) a->outer *= n;
        if (d == dim) a->middle = n;
        if (d > dim) a->inner *= n;
    }
    int64_t row = a->outer * a->inner;
    if (row == 0) return false;
    if (in->op == OP_slice || in->op == OP_place) {
        const uint32_t part = in->op == OP_slice;
        const Shape *cut = arg_shape(r, in, part);
        AxisSet had = layout_axes_split(&whole->layout, (int)dim);
        AxisSet has = layout_axes_split(&cut->layout, (int)dim);
        a->part_size = a->elements[part] / row;
        a->part_start = mesh_part(mesh, r->rank, (AxisSet)(has & ~had)) * a->part_size;
        return a->part_size * row == a->elements[part] && a->elements[1 - part] == row * a->middle;
    }
    if (parts < 1) return false;
    int64_t packed = a->elements[in->op == OP_pack ? 1 : 0];
    a->part_size = packed / (parts * row);
    return a->part_size * parts * row == packed && parts * a->part_size >= a->middle &&
           a->elements[in->op == OP_pack ? 0 : 1] == row * a->middle;
}

static int64_t rows_of(const RankState *r, const Shape *s, int d)
{
    return shape_local_dim(s, &r->plan->mesh, &r->plan->graph.deals, d);
}

/* Sets the sizes for halo_pack and the other local halo ops: the dimension with and without its
 * halo (the neighbours' rows that this rank also needs), and this rank's rows. */
static bool set_halo(const RankState *r, const Instr *in, KernelArgs *a)
{
    const Deals *deals = &r->plan->graph.deals;
    const int d = (int)a->attrs.dim;
    const Shape *held = arg_shape(r, in, in->op == OP_halo_join ? 2 : in->op == OP_halo_pack);
    if (d < 0 || d >= held->n_dims || !deal_is_around(deals, held->deal[d])) return false;
    Shape own = *held;
    own.deal[d] = 0;
    const uint32_t parts = shape_parts(held, &r->plan->mesh, d);
    if (parts < 2 ||
        !halo_find(deals, held->dim[d], parts, shape_part(held, &r->plan->mesh, d, r->rank),
                   held->deal[d], &a->halo))
        return false;
    a->outer = a->inner = 1;
    for (int i = 0; i < held->n_dims; i++)
        *(i < d ? &a->outer : &a->inner) *= i == d ? 1 : rows_of(r, held, i);
    a->middle = rows_of(r, &own, d);
    a->part_size = rows_of(r, held, d);
    const int64_t row = a->outer * a->inner, strips = 2 * row * a->halo.strip;
    const int64_t of_own = row * a->middle, of_held = row * a->part_size;
    if (in->op == OP_halo_pack) return a->elements[0] == of_own && a->elements[1] == strips;
    if (in->op == OP_halo_cut) return a->elements[0] == of_held && a->elements[1] == strips;
    const bool joins = in->op == OP_halo_join;
    return a->n_args == 3 && a->elements[1] == strips &&
           a->elements[0] == (joins ? of_own : of_held) &&
           a->elements[2] == (joins ? of_held : of_own);
}

/* Sets the sizes for stride_pack and stride_unpack. Whether the op packs or unpacks, the argument
 * with the messages has the strided shape. */
static bool set_pieces(const RankState *r, const Instr *in, KernelArgs *a)
{
    const bool packs = in->op == OP_stride_pack;
    const Deals *deals = &r->plan->graph.deals;
    const Shape *s = arg_shape(r, in, packs), *plain = arg_shape(r, in, !packs);
    const int d = (int)a->attrs.dim;
    if (d < 0 || d >= s->n_dims || d >= plain->n_dims || !deal_is_strided(deals, s->deal[d]) ||
        a->attrs.parts != shape_parts(s, &r->plan->mesh, d) ||
        !strides_find(deals, s->deal[d], shape_part(s, &r->plan->mesh, d, r->rank), &a->strides))
        return false;
    a->strides.to_rows = packs == (plain->deal[d] == s->deal[d]);
    a->outer = a->inner = 1;
    for (int i = 0; i < s->n_dims; i++)
        *(i < d ? &a->outer : &a->inner) *= i == d ? 1 : rows_of(r, s, i);
    a->middle = rows_of(r, s, d);
    const int64_t row = a->outer * a->inner;
    const int64_t sent = a->attrs.parts * a->strides.most * a->strides.rows * row;
    return a->middle == a->strides.pieces * a->strides.rows && a->n_args == 2 &&
           a->elements[packs] == sent && a->elements[!packs] == row * a->middle;
}

static bool bind(const RankState *r, Pc pc, KernelArgs *a)
{
    const Program *p = r->info->p;
    const Instr *in = program_instr(p, pc);
    const Binding *b = r->info->binding[pc];
    if (b == NULL || !plan_bind(r->plan, p, in, r->rank, NULL, a->size, a->start, a->valid))
        return false;
    plan_second(r->plan, p, in, r->rank, b, a->size, a->start, a->second);
    a->binding = b;
    a->rows = 1;
    for (const char *letter = b->ellipsis; letter < b->ellipsis + MAX_DIMS && *letter; letter++)
        a->rows *= a->size[(unsigned char)*letter];
    /* if rows of experts are uneven, an element-wise op computes only the rows that are there */
    if (b->ellipsis[0] && rows_uneven(arg_shape(r, in, 0), &r->plan->graph.deals))
        a->rows = a->elements[0];
    return true;
}

/* Sets the halo for the border part of a convolution. The last input of this op has the shape with
 * the halo and holds the strips. */
static bool set_strips(const RankState *r, const Instr *in, KernelArgs *a)
{
    const Deals *deals = &r->plan->graph.deals;
    const Shape *held = arg_shape(r, in, in->n_in - 1u);
    const int d = op_dim(in->op, 0, INDEX_height);
    const uint32_t parts = shape_parts(held, &r->plan->mesh, d);
    if (!deal_is_around(deals, held->deal[d]) || parts < 2 ||
        !halo_find(deals, held->dim[d], parts, shape_part(held, &r->plan->mesh, d, r->rank),
                   held->deal[d], &a->halo))
        return false;
    const int64_t own = rows_of(r, arg_shape(r, in, 0), d);
    const int64_t row = a->elements[0] / own;
    return a->elements[0] == row * own && a->elements[in->n_in - 1u] == 2 * row * a->halo.strip;
}

/* For the part of a convolution that computes the columns at the sides (ROWS_sides): sets which
 * columns belong to this rank. */
static bool set_own_columns(const RankState *r, const Instr *in, KernelArgs *a)
{
    const Shape *x = arg_shape(r, in, 0);
    const int d = op_dim(in->op, 0, INDEX_width);
    return deal_interval(&r->plan->graph.deals, 0, x->dim[d], shape_parts(x, &r->plan->mesh, d),
                         shape_part(x, &r->plan->mesh, d, r->rank), 0, &a->own_columns);
}

static bool accepts(const RankState *r, Pc pc, const KernelArgs *a, Arena *arena, Diag *d)
{
    const Instr *in = program_instr(r->info->p, pc);
    const OpInfo *info = op_info(in->op);
    uint32_t own = (uint32_t)info->sig.n_in + info->sig.n_out;
    bool has_scratch = own > 0 && a->n_args == own + 1 && a->dtype[own] == DT_u8;
    static const RankMachine cpu = {kernel_cpu_accepts, kernel_cpu_workspace};
    bool on_host = in->stream == STREAM_host || info->flags & OP_SOURCE;
    const RankMachine *machine = r->machine && !on_host ? r->machine : &cpu;
    uint64_t scratch =
        own > 0 && a->n_args >= own ? machine->workspace(in->op, a->dtype, a->elements, own) : 0;
    const char *what = "this backend cannot compute in these types together";
    const char *hint = machine == &cpu
                           ? "use fp64 for all of precision.param, compute and reduce, or for none"
                           : "GPUs compute in fp32, bf16 and fp16, and multiply 8-bit numbers";
    if (scratch > (has_scratch ? (uint64_t)a->elements[own] : 0)) {
        what = "the program was planned for another backend, so it has no scratch memory here";
        hint = "run the script of the plan, which plans for this machine";
    } else if (machine->accepts(in->op, a->dtype, a->n_args)) {
        return true;
    }
    diag_error(d, FAULT_input, "backend-dtype", instr_loc(r->plan, in), "%s: %s",
               instr_text(r->plan, r->info->p, pc, arena), what);
    diag_hint(d, "%s", hint);
    return false;
}

static bool ready_compute(const RankState *r, Pc pc, const Control *control, Arena *arena, Diag *d)
{
    const Program *p = r->info->p;
    const Instr *in = program_instr(p, pc);
    KernelArgs *a = arena_alloc(arena, sizeof *a);
    if (in->args.n > MAX_ARGS) return fail(r, pc, arena, d, "it has too many arguments");
    a->n_in = in->n_in;
    a->n_args = in->args.n;
    a->microbatch = in->microbatch;
    a->attrs = *graph_attrs_at(&r->plan->graph, in->attrs);
    a->control = control;
    for (uint32_t i = 0; i < in->args.n; i++) {
        const Buffer *b = &p->buffers.at[program_arg(p, in, i)];
        a->ptr[i] = rank_memory(r, program_arg(p, in, i));
        a->dtype[i] = b->dtype;
        a->elements[i] = (int64_t)(b->bytes / dtype_bytes(b->dtype));
    }
    Kernel kernel = kernel_cpu(in->op);
    if (kernel == NULL) return fail(r, pc, arena, d, "there is no kernel for this op");
    if (!accepts(r, pc, a, arena, d)) return false;
    bool moves = op_info(in->op)->class_ == OP_CLASS_reshape;
    if (!moves && !bind(r, pc, a))
        return fail(r, pc, arena, d, "the sizes of its arguments contradict each other");
    const int tokens = op_letter(in->op, INDEX_tokens);
    if (op_info(in->op)->flags & OP_SOURCE && a->size[tokens] < a->binding->size[tokens] &&
        a->binding->size[tokens] > KERNEL_MOST_SPLIT_SEQ)
        return diag_error(d, FAULT_input, "exec-program", instr_loc(r->plan, in),
                          "sequences of %lld tokens are too long; at most %d are possible if ranks "
                          "read parts of sequences",
                          (long long)a->binding->size[tokens], KERNEL_MOST_SPLIT_SEQ);
    if (op_is_border(in->op) && !set_strips(r, in, a))
        return fail(r, pc, arena, d, "its strips do not fit its rows");
    if (op_of_rows(in->op) && a->attrs.parts == ROWS_sides && !set_own_columns(r, in, a))
        return fail(r, pc, arena, d, "it has no columns of its own");
    if (moves && in->op != OP_copy &&
        !(op_is_halo(in->op)     ? set_halo(r, in, a)
          : op_is_stride(in->op) ? set_pieces(r, in, a)
                                 : set_extents(r, in, a)))
        return fail(r, pc, arena, d, "its parts do not fit its sizes");
    r->at[pc] = (Ready){.kernel = kernel, .args = a};
    return true;
}

/* ---- communications ---- */

static void find_peers(const RankState *r, const Instr *in, Comm *c)
{
    const Mesh *mesh = &r->plan->mesh;
    uint32_t part = mesh_part(mesh, r->rank, in->axes), n = mesh_size(mesh, in->axes);
    c->part = part;
    c->n_members = n;
    c->leader = mesh_group(mesh, r->rank, in->axes);
    if (in->op != OP_send && in->op != OP_recv) return;
    Rank peer = mesh_member(mesh, r->rank, in->axes, mesh_hop(part, in->hop, n));
    c->n_members = 2;
    c->part = in->op == OP_recv;
    c->leader = in->op == OP_send ? r->rank : peer;
    c->peer = in->op == OP_send ? peer : r->rank;
}

/* Finds out whether the first and the last member of the group exchange strips with each other,
 * too. */
static bool set_neighbours(const RankState *r, const Instr *in, Comm *c)
{
    const Deals *deals = &r->plan->graph.deals;
    const Shape *s = arg_shape(r, in, 0);
    const int d = halo_dim(s, deals, in->axes);
    Halo halo;
    if (d < 0 || !halo_find(deals, s->dim[d], c->n_members, c->part, s->deal[d], &halo))
        return false;
    c->wraps = halo.wraps;
    return true;
}

/* Sets the tables of counts of an uneven exchange. Returns false if the buffers do not fit the
 * group. */
static bool set_counts(const RankState *r, const Instr *in, Comm *c)
{
    const Mesh *mesh = &r->plan->mesh;
    const Deals *deals = &r->plan->graph.deals;
    const Program *p = r->info->p;
    if (in->n_in != 3 || !rows_uneven(arg_shape(r, in, 0), deals)) return false;
    for (uint32_t k = 0; k < 2; k++) {
        const Shape *s = arg_shape(r, in, 1 + k), *rows = arg_shape(r, in, 3 * k);
        if (s->n_dims != 2 || p->buffers.at[program_arg(p, in, 1 + k)].dtype != DT_i32)
            return false;
        c->counts[k] = (const int32_t *)(void *)rank_memory(r, program_arg(p, in, 1 + k));
        c->experts[k] = shape_local_dim(s, mesh, deals, 0);
        c->samples[k] = shape_local_dim(s, mesh, deals, 1);
        c->width = 1;
        for (int d = ROWS_DIMS; d < rows->n_dims; d++) c->width *= rows_of(r, rows, d);
    }
    const int64_t n = c->n_members, there = c->experts[0] > c->experts[1];
    return c->experts[!there] == n * c->experts[there] &&
           c->samples[there] == n * c->samples[!there];
}

/* Checks the arguments of a communication. Returns a message that says what is wrong; NULL: nothing
 * is wrong. */
static const char *check_comm(const Comm *c)
{
    bool reduces = c->op == OP_all_reduce || c->op == OP_reduce_scatter;
    bool ends = c->op == OP_send || c->op == OP_recv;
    uint64_t n = c->n_members, in = c->in_bytes, out = c->out_bytes;
    if (ends) return c->leader == c->peer ? "it sends to itself" : NULL;
    if (c->in == NULL || c->out == NULL) return "it lacks an input or an output";
    if (reduces && c->reduce == REDUCE_none) return "it states no reduction";
    if (c->op == OP_all_gather && out != in * n)
        return "its output is not as large as its parts together";
    if (c->op == OP_reduce_scatter && in != out * n)
        return "its input is not as large as its parts together";
    if (c->op == OP_all_reduce && in != out) return "its input and output differ in size";
    if (c->op == OP_all_to_all && (in != out || in % n != 0)) return "its parts differ in size";
    if (c->op == OP_halo_exchange && (in != out || in % 2 != 0)) return "its strips differ in size";
    if (c->op == OP_rotate && in != out) return "its input and output differ in size";
    if ((c->op == OP_all_to_all || c->op == OP_halo_exchange || c->op == OP_rotate ||
         c->op == OP_exchange_uneven) &&
        c->in == c->out)
        return "it cannot work in place";
    return NULL;
}

static bool ready_comm(const RankState *r, Pc pc, Arena *arena, Diag *d)
{
    const Program *p = r->info->p;
    const Instr *in = program_instr(p, pc);
    const bool uneven = in->op == OP_exchange_uneven;
    if (in->args.n < 1 || in->args.n > (uneven ? 4 : 2))
        return fail(r, pc, arena, d, "it has the wrong number of arguments");
    Comm *c = arena_alloc(arena, sizeof *c);
    c->op = in->op;
    c->stream = in->stream;
    c->axes = in->axes;
    c->match = in->match;
    c->launch = in->launch;
    c->reduce = (Reduce)graph_attrs_at(&r->plan->graph, in->attrs)->reduce;
    c->dtype = p->buffers.at[program_arg(p, in, 0)].dtype;
    for (uint32_t i = 0; i < in->args.n; i++) {
        const Buffer *b = &p->buffers.at[program_arg(p, in, i)];
        char *at = rank_memory(r, program_arg(p, in, i));
        if (i > 0 && i < in->n_in) continue; /* this input is a table of counts */
        if (b->dtype != c->dtype) return fail(r, pc, arena, d, "its arguments differ in dtype");
        if (i < in->n_in)
            c->in = at, c->in_bytes = b->bytes;
        else
            c->out = at, c->out_bytes = b->bytes;
    }
    find_peers(r, in, c);
    if (c->op == OP_halo_exchange && !set_neighbours(r, in, c))
        return fail(r, pc, arena, d, "its buffers have no halo along its axes");
    if (uneven && !set_counts(r, in, c))
        return fail(r, pc, arena, d, "its rows or counts do not fit its group");
    const char *wrong = check_comm(c);
    if (wrong) return fail(r, pc, arena, d, wrong);
    bool reduces = c->op == OP_all_reduce || c->op == OP_reduce_scatter;
    if (reduces && !number_is_real(c->dtype)) {
        diag_error(d, FAULT_input, "backend-dtype", instr_loc(r->plan, in),
                   "%s: this backend reduces floating-point types only",
                   instr_text(r->plan, p, pc, arena));
        return false;
    }
    r->at[pc] = (Ready){.comm = c};
    return true;
}

/* ---- the rank ---- */

static bool allocate(void **block, char **at, uint64_t bytes, bool poison, Diag *d)
{
    size_t size = (size_t)((bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN + ARENA_SLACK);
    if (posix_memalign(block, ARENA_ALIGN, size) != 0) {
        *block = NULL;
        Loc none = {NULL, 0};
        return diag_error(d, FAULT_run, "exec-memory", none, "no memory for an arena of %llu bytes",
                          (unsigned long long)bytes);
    }
    *at = *block;
    if (poison)
        poison_fill(*at, size);
    else
        memset(*at, 0, size);
    return true;
}

bool rank_prepare(RankState *r, const Plan *plan, const ProgramInfo *info, Rank rank,
                  const Control *control, const RankMachine *machine, Arena *arena, Diag *d)
{
    const Program *p = info->p;
    r->plan = plan;
    r->info = info;
    r->rank = rank;
    r->machine = machine;
    r->at = arena_array(arena, p->code.n, sizeof *r->at);
    uint32_t errors = d->n_errors;
    const char *missing = kernel_cpu_blas_missing();
    if (missing != NULL) {
        diag_error(d, FAULT_run, "openblas", (Loc){NULL, 0}, "OpenBLAS cannot be loaded: %s",
                   missing);
        diag_hint(d, "install libopenblas0-serial (Debian), or name its folder in LD_LIBRARY_PATH");
        return false;
    }
    for (Pc pc = 1; pc < p->code.n; pc++) {
        bool is_comm = op_info(program_instr(p, pc)->op)->class_ == OP_CLASS_comm;
        bool fine = is_comm ? ready_comm(r, pc, arena, d) : ready_compute(r, pc, control, arena, d);
        if (!fine && d->n_errors > errors + 3) break; /* the first few errors suffice */
    }
    return d->n_errors == errors;
}

void rank_move(RankState *r, char *device)
{
    const Program *p = r->info->p;
    r->device = device;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = program_instr(p, pc);
        for (uint32_t i = 0; i < in->args.n; i++) {
            char *at = rank_memory(r, program_arg(p, in, i));
            if (r->at[pc].args != NULL)
                r->at[pc].args->ptr[i] = at;
            else if (i > 0 && i < in->n_in)
                r->at[pc].comm->counts[i - 1] = (const int32_t *)(void *)at;
            else if (i < in->n_in)
                r->at[pc].comm->in = at;
            else
                r->at[pc].comm->out = at;
        }
    }
}

bool rank_open(RankState *r, const Plan *plan, const ProgramInfo *info, Rank rank,
               const Control *control, const BackendOptions *options, Arena *arena, Diag *d)
{
    const Program *p = info->p;
    *r = (RankState){.poison = options->poison, .measure = options->measure};
    if (!allocate(&r->blocks[0], &r->device, p->bytes, r->poison || r->measure, d)) return false;
    if (!allocate(&r->blocks[1], &r->host, p->host_bytes, r->poison || r->measure, d)) return false;
    r->n_before = arena_array(arena, p->code.n, sizeof *r->n_before);
    r->n_touches = arena_array(arena, p->buffers.n, sizeof *r->n_touches);
    r->loads = loads_new(plan, arena);
    return rank_prepare(r, plan, info, rank, control, NULL, arena, d);
}

void rank_close(RankState *r)
{
    free(r->blocks[0]);
    free(r->blocks[1]);
    r->blocks[0] = r->blocks[1] = NULL;
}
