/* Checks the structure of a program: offsets of buffers, arguments of ops, dtypes, and sizes of
 * collectives. */
#include <assert.h>

#include "planner/verify/value/value.h"

#define RULE "verify-structure"

/* True if buffer b may hold strips of a halo, which have fewer rows than the value. */
static bool is_strips(const Verifier *v, const Buffer *b)
{
    const Shape *s = &v->plan->shapes.at[b->shape];
    for (int d = 0; d < s->n_dims; d++)
        if (b->bytes && b->bytes == value_strip_bytes(v, s, d, b->dtype)) return true;
    return false;
}

static_assert(CATEGORY_waiting + 1 == CATEGORY_COUNT, "all categories of buffers come before it");

static void check_buffer(Verifier *v, BufferId id)
{
    const Program *p = v->p;
    const Buffer *b = &p->buffers.at[id];
    if (b->shape >= v->plan->shapes.n || b->dtype == DT_none || b->dtype >= DT_COUNT ||
        b->category >= CATEGORY_waiting || b->space > SPACE_host || b->parent >= p->buffers.n ||
        b->tensor >= v->g->tensors.n || (b->unit && b->unit >= v->g->units.n)) {
        verify_report(v, RULE, 0, "buffer %u has a field out of range", id);
        return;
    }
    uint64_t bytes = v->local_elements[b->shape] * dtype_bytes(b->dtype);
    if (b->packed ? b->bytes < bytes && !is_strips(v, b) : b->bytes != bytes)
        verify_report(v, RULE, 0, "buffer %u has %llu bytes, but its shape needs %llu", id,
                      (unsigned long long)b->bytes, (unsigned long long)bytes);
    uint64_t room = b->space == SPACE_host ? p->host_bytes : p->bytes;
    if (b->parent) {
        const Buffer *parent = &p->buffers.at[b->parent];
        room = parent->bytes;
        if (parent->parent || b->parent == id)
            verify_report(v, RULE, 0, "buffer %u is a part of a buffer that is itself a part", id);
        if (b->space != parent->space)
            verify_report(v, RULE, 0,
                          "buffer %u and the buffer that contains it are in different memories",
                          id);
    }
    if (room > UINT64_C(1) << 62 || b->bytes > room || b->offset > room - b->bytes)
        verify_report(v, RULE, 0,
                      "buffer %u (%llu bytes at offset %llu) does not fit into %s (%llu bytes)", id,
                      (unsigned long long)b->bytes, (unsigned long long)b->offset,
                      b->parent ? "its parent" : "the arena", (unsigned long long)room);
    if (b->offset % dtype_bytes(b->dtype))
        verify_report(v, RULE, 0,
                      "the offset of buffer %u is not a multiple of the size of its dtype", id);
}

static bool fields_ok(const Verifier *v, Pc pc)
{
    const Program *p = v->p;
    const Instr *in = &p->code.at[pc];
    if (in->op == OP_none || in->op >= OP_COUNT || in->stream == STREAM_none ||
        in->stream >= STREAM_COUNT || in->phase >= PHASE_COUNT)
        return false;
    if ((uint64_t)in->args.first + in->args.n > p->args.n || in->n_in > in->args.n ||
        (uint64_t)in->after.first + in->after.n > p->after.n || in->args.n > MAX_ARGS)
        return false;
    for (uint32_t i = 0; i < in->args.n; i++) {
        BufferId b = program_arg(p, in, i);
        if (!b || b >= p->buffers.n) return false;
    }
    for (uint32_t k = 0; k < in->after.n; k++) {
        Pc before = p->after.at[in->after.first + k];
        if (!before || before >= pc) return false;
    }
    return in->attrs < v->g->attrs.n && in->origin < v->g->nodes.n &&
           (in->unit == 0 || in->unit < v->g->units.n) &&
           in->microbatch < v->plan->step.n_microbatches;
}

/* Returns the set of arguments that must have fp64: bit i stands for argument i. */
static uint32_t double_args(OpKind op)
{
    if (op == OP_sumsq) return 2;
    if (op == OP_clip_coef) return 7;
    if (op == OP_step_mean) return 15;
    if (op == OP_adamw) return 16;
    return op == OP_sgd ? 4 : 0;
}

static void check_dtypes(Verifier *v, Pc pc)
{
    const Instr *in = &v->p->code.at[pc];
    OpClass class_ = op_info(in->op)->class_;
    for (uint32_t i = 0; i < verify_n_args(in); i++) {
        DType t = v->p->buffers.at[program_arg(v->p, in, i)].dtype;
        if (in->op == OP_exchange_uneven && (i == 1 || i == 2)) {
            if (t != DT_i32)
                verify_report(v, RULE, pc, "argument %u is not a tensor of counts of rows", i);
            continue;
        }
        if (class_ == OP_CLASS_reshape || class_ == OP_CLASS_comm) {
            DType first = v->p->buffers.at[program_arg(v->p, in, 0)].dtype;
            if (t != first)
                verify_report(v, RULE, pc, "moves %s into %s", dtype_name(first), dtype_name(t));
            continue;
        }
        if (in->op == OP_cast || in->op == OP_fill || in->op == OP_pass) continue;
        /* verify-dtype checks the dtypes of the graph */
        if (op_takes_tokens(in->op) && t == DT_i32) continue;
        bool integer = op_index_args(in->op) >> i & 1;
        if (integer ? t != DT_i32 : !dtype_is_real(t))
            verify_report(v, RULE, pc, "argument %u has dtype %s, but must have %s", i,
                          dtype_name(t), integer ? "i32" : "real numbers");
        else if ((double_args(in->op) >> i & 1) && t != DT_f64)
            verify_report(v, RULE, pc, "argument %u has dtype %s, but must have f64", i,
                          dtype_name(t));
    }
}

static void check_scratch(Verifier *v, Pc pc)
{
    const Instr *in = &v->p->code.at[pc];
    uint32_t n = verify_n_args(in);
    if (in->args.n == n) return;
    const Buffer *b = &v->p->buffers.at[program_arg(v->p, in, n)];
    if (in->args.n > n + 1 || b->category != CATEGORY_workspace || b->persistent || b->parent)
        verify_report(v, RULE, pc,
                      "has more arguments than its op takes, but only scratch memory may be added");
}

static void check_compute(Verifier *v, Pc pc)
{
    const Instr *in = &v->p->code.at[pc];
    const OpInfo *info = op_info(in->op);
    const uint32_t n_args = info->sig.n_in + info->sig.n_out;
    /* op_bind does not refuse a wrong number, because it can derive the shapes of outputs */
    if (in->n_in != info->sig.n_in || in->args.n < n_args) {
        verify_report(v, RULE, pc, "needs %u inputs and %u outputs", info->sig.n_in,
                      info->sig.n_out);
        return;
    }
    check_scratch(v, pc);
    const Bound *bound = verify_bound(v, pc);
    if (bound->fault)
        verify_report(v, RULE, pc, "has arguments that do not fit its op: %s", bound->fault);
    for (uint32_t j = 0; j < info->sig.n_out && (info->flags & OP_UPDATES); j++)
        if (program_arg(v->p, in, j) != program_arg(v->p, in, in->n_in + j))
            verify_report(v, RULE, pc, "output %u must be the same buffer as input %u", j, j);
    const int64_t turned = verify_attrs(v, pc)->rope_dims;
    if (turned < 0 || turned % 2 != 0)
        verify_report(
            v, RULE, pc,
            "rotates pairs of elements, so rope_dims = %lld must be even and not negative",
            (long long)turned);
    if (in->axes || in->match || in->hop)
        verify_report(v, RULE, pc, "is a computation, which cannot have a group, a match or a hop");
}

static void check_reshape(Verifier *v, Pc pc)
{
    const Instr *in = &v->p->code.at[pc];
    const uint32_t n_in = in->op == OP_halo_join || in->op == OP_halo_fold ? 2 : 1;
    if (in->n_in != n_in || in->args.n != n_in + 1) {
        verify_report(v, RULE, pc, "needs %u inputs and one output", n_in);
        return;
    }
    const Attrs *attrs = verify_attrs(v, pc);
    const Shape *s = &v->plan->shapes.at[v->p->buffers.at[program_arg(v->p, in, 0)].shape];
    if (in->op != OP_copy && (attrs->dim < 0 || attrs->dim >= s->n_dims || attrs->parts < 1 ||
                              attrs->parts > v->plan->mesh.n_ranks))
        verify_report(v, RULE, pc, "cannot cut dimension %lld into %lld parts",
                      (long long)attrs->dim, (long long)attrs->parts);
    if (in->axes || in->match || in->hop)
        verify_report(v, RULE, pc,
                      "is a local instruction, which cannot have a group, a match or a hop");
}

static uint64_t arg_bytes(const Verifier *v, const Instr *in, uint32_t i)
{
    return v->p->buffers.at[program_arg(v->p, in, i)].bytes;
}

static void check_comm(Verifier *v, Pc pc)
{
    const Instr *in = &v->p->code.at[pc];
    const Mesh *mesh = &v->plan->mesh;
    const bool uneven = in->op == OP_exchange_uneven;
    uint32_t n_in = in->op == OP_recv ? 0 : uneven ? 3 : 1, n_out = in->op == OP_send ? 0 : 1;
    if (in->n_in != n_in || in->args.n != n_in + n_out) {
        verify_report(v, RULE, pc, "needs %u inputs and %u outputs", n_in, n_out);
        return;
    }
    if (!in->axes || in->axes >> mesh->n_axes) {
        verify_report(v, RULE, pc, "has a group with an axis that is not in the mesh");
        return;
    }
    if (!in->match || in->match >= v->plan->n_match)
        verify_report(v, RULE, pc, "has match %u, but the plan's matches are above 0 and below %u",
                      in->match, v->plan->n_match);
    if (verify_attrs(v, pc)->dim || verify_attrs(v, pc)->parts)
        verify_report(v, RULE, pc, "states a dimension, but only its buffers may state it");
    if (in->stream == STREAM_compute || in->stream == STREAM_host)
        verify_report(v, RULE, pc, "is a communication, which cannot run on stream %s",
                      stream_name(in->stream));
    if (verify_is_p2p(in)) {
        if (!in->hop || (in->axes & (in->axes - 1)))
            verify_report(v, RULE, pc, "needs exactly one mesh axis and a distance (hop)");
        return;
    }
    uint64_t n = mesh_size(mesh, in->axes), a = arg_bytes(v, in, 0), b = arg_bytes(v, in, 1);
    if (uneven) return; /* the numbers of rows follow from the buffers' shapes */
    bool fits = in->op == OP_all_gather       ? b / n == a && b % n == 0
                : in->op == OP_reduce_scatter ? a / n == b && a % n == 0
                                              : a == b;
    if (!fits)
        verify_report(v, RULE, pc,
                      "reads %llu bytes and writes %llu, which is wrong for a group of %llu ranks",
                      (unsigned long long)a, (unsigned long long)b, (unsigned long long)n);
}

/* Checks that only copies use both host and device memory, on the stream of their direction. */
static void check_spaces(Verifier *v, Pc pc)
{
    const Instr *in = &v->p->code.at[pc];
    uint32_t n_host = 0;
    for (uint32_t i = 0; i < in->args.n; i++)
        n_host += v->p->buffers.at[program_arg(v->p, in, i)].space == SPACE_host;
    bool crosses = n_host > 0 && n_host < in->args.n;
    if (crosses && in->op == OP_copy) {
        bool to_host = v->p->buffers.at[program_arg(v->p, in, 1)].space == SPACE_host;
        if (in->stream != (to_host ? STREAM_copy_out : STREAM_copy_in))
            verify_report(v, RULE, pc, "copies %s the device on stream %s",
                          to_host ? "out of" : "into", stream_name(in->stream));
        return;
    }
    if (crosses)
        verify_report(v, RULE, pc, "has arguments in both host memory and device memory");
    else if (n_host > 0 && in->stream != STREAM_host)
        verify_report(v, RULE, pc, "uses host memory on stream %s", stream_name(in->stream));
    else if (n_host == 0 && in->stream == STREAM_host && in->args.n > 0)
        verify_report(v, RULE, pc, "uses device memory on the host's stream");
}

/* Checks an instruction whose fields are in range. It reads no field that twins do not share,
 * except that their match numbers may be too large. */
static void check_instr(Verifier *v, Pc pc)
{
    const Instr *in = &v->p->code.at[pc];
    const OpInfo *info = op_info(in->op);
    const Attrs *attrs = verify_attrs(v, pc);
    bool sums = (info->flags & (OP_ACCUMULATES | OP_MERGES)) != 0;
    if (attrs->accumulate >> (verify_n_args(in) - in->n_in) || attrs->accumulate < 0 ||
        (attrs->accumulate && !sums))
        verify_report(v, RULE, pc, "must add to its outputs, but its op cannot add");
    switch (info->class_) {
    case OP_CLASS_none: break;
    case OP_CLASS_compute:
    case OP_CLASS_contract: check_compute(v, pc); break;
    case OP_CLASS_reshape: check_reshape(v, pc); break;
    case OP_CLASS_comm: check_comm(v, pc); break;
    }
    if (in->args.n) check_dtypes(v, pc);
    check_spaces(v, pc);
}

/* Checks all instructions. Of several twins (equal ones, twins.h), only the first is checked if it
 * has no fault. Also fills v->twins. */
static void check_code(Verifier *v)
{
    const Program *p = v->p;
    Twins *twins = v->twins ? &v->twins[v->program] : NULL;
    TwinTable table = twins_table(v->arena);
    bool *fine = arena_array(v->arena, p->code.n + 1, sizeof *fine); /* [group] */
    if (twins) *twins = twins_of_buffers(p, v->arena);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        const uint32_t before = v->n_reported + v->n_left_out;
        if (!fields_ok(v, pc)) {
            verify_report(v, RULE, in->op < OP_COUNT ? pc : 0,
                          "instruction %u has a field out of range", pc);
            continue;
        }
        if (twins && in->match < v->plan->n_match) twins_add_instr(twins, &table, p, pc);
        const uint32_t group = twins ? twins->of_instr[pc] : 0;
        if (group && fine[group]) continue;
        check_instr(v, pc);
        if (group) fine[group] = v->n_reported + v->n_left_out == before;
    }
}

/* Checks that the members of a launch group (Instr.launch) come directly one after the other on one
 * stream. */
static void check_launches(Verifier *v)
{
    typedef struct ProgramState {
        Stream stream;
        bool begun, ended;
    } ProgramState;
    uint32_t n = v->p->code.n, now[STREAM_COUNT] = {0};
    ProgramState *runs = arena_array(v->arena, n + 1, sizeof *runs);
    for (Pc pc = 1; pc < n; pc++) {
        const Instr *in = &v->p->code.at[pc];
        uint32_t *current = &now[in->stream];
        if (in->launch && !verify_is_comm(in))
            verify_report(v, RULE, pc, "has a launch number, but only communications may have one");
        if (in->launch == *current) continue;
        if (*current) runs[*current].ended = true;
        *current = in->launch;
        if (!in->launch) continue;
        if (in->launch > n || runs[in->launch].begun) {
            verify_report(v, RULE, pc,
                          "the instructions with launch %u must follow each other on one stream",
                          in->launch);
            *current = 0;
            continue;
        }
        runs[in->launch] = (ProgramState){in->stream, true, false};
    }
}

void verify_whole_program(Verifier *v)
{
    for (BufferId b = 1; b < v->p->buffers.n; b++) check_buffer(v, b);
    check_launches(v);
    verify_kernels(v);
}

bool verify_structure_program(Verifier *v)
{
    const Program *p = v->p;
    uint32_t before = v->n_reported;
    if (p->code.n == 0 || p->buffers.n == 0 || p->purpose > PURPOSE_gather) {
        verify_report(v, RULE, 0, "has no instruction 0 or no buffer 0");
        return false;
    }
    for (BufferId b = 1; b < p->buffers.n; b++) check_buffer(v, b);
    if (v->n_reported > before) return false;
    check_code(v);
    if (v->n_reported == before) check_launches(v);
    if (v->n_reported == before) verify_kernels(v);
    return v->n_reported == before;
}
