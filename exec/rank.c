/* The state of a rank during a step: which instructions may start and which have finished, which
 * buffers are no longer needed, and where numbers are not finite. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "exec/ready.h"
#include "kernels/number.h"

void rank_begin(RankState *r)
{
    const Program *p = r->info->p;
    memcpy(r->n_before, r->info->n_before, p->code.n * sizeof *r->n_before);
    memcpy(r->n_touches, r->info->n_touches, p->buffers.n * sizeof *r->n_touches);
    r->n_left = r->info->n_instr;
    r->not_finite = false;
    for (BufferId b = 1; r->poison && b < p->buffers.n; b++) {
        /* this buffer still holds the result of the previous step, which has been read */
        const Buffer *at = &p->buffers.at[b];
        char *arena = at->space == SPACE_host ? r->host : r->device;
        if (at->result && !at->parent) poison_fill(arena + at->offset, at->bytes);
    }
}

uint32_t rank_starters(const RankState *r, Pc *next)
{
    uint32_t n = 0;
    for (Pc pc = 1; pc <= r->info->n_instr; pc++)
        if (r->n_before[pc] == 0) next[n++] = pc;
    return n;
}

void rank_compute(RankState *r, Pc pc)
{
    const Ready *at = &r->at[pc];
    const Instr *in = program_instr(r->info->p, pc);
    OpKind op = in->op;
    assert(at->kernel != NULL);
    if (r->not_finite && (op_info(op)->flags & OP_UPDATES)) return;
    at->kernel(at->args);
    if (r->loads != NULL) loads_count(r->loads, r->plan, r->rank, in, at->args);
    if (op == OP_clip_coef) {
        const double *out = at->args->ptr[2];
        if (!isfinite(out[0])) r->not_finite = true;
    }
}

/* Poisons a buffer that no later instruction of this step reads. First notes the highest byte of
 * the buffer that was written. */
static void poison_buffer(RankState *r, BufferId root)
{
    const Buffer *b = &r->info->p->buffers.at[root];
    char *arena = b->space == SPACE_host ? r->host : r->device;
    uint64_t *highest = &r->highest[b->space];
    if (b->persistent || b->result) return;
    uint64_t end = b->offset + b->bytes;
    if (end > *highest) {
        uint64_t lo = b->offset > *highest ? b->offset : *highest;
        uint64_t found = poison_end(arena, lo, end);
        if (found > lo) *highest = found;
    }
    if (!r->info->passes_on[root]) poison_fill(arena + b->offset, b->bytes);
}

uint32_t rank_finish(RankState *r, Pc pc, Pc *next)
{
    const ProgramInfo *info = r->info;
    const Instr *in = program_instr(info->p, pc);
    assert(r->n_left > 0);
    r->n_left--;
    for (uint32_t i = 0; r->poison && i < in->args.n; i++) {
        uint64_t offset;
        BufferId root = program_root(info->p, program_arg(info->p, in, i), &offset);
        assert(r->n_touches[root] > 0);
        if (--r->n_touches[root] == 0) poison_buffer(r, root);
    }
    uint32_t n = 0;
    for (uint32_t i = info->first[pc]; i < info->first[pc + 1]; i++) {
        Pc then = info->then[i];
        assert(r->n_before[then] > 0);
        if (--r->n_before[then] == 0) next[n++] = then;
    }
    return n;
}

static bool inspect(RankState *r, Space space, Diag *d)
{
    const bool host = space == SPACE_host;
    const char *arena = host ? r->host : r->device;
    uint64_t bytes = host ? r->info->p->host_bytes : r->info->p->bytes, slack = bytes + ARENA_SLACK;
    uint64_t *highest = &r->highest[space];
    uint64_t beyond = poison_end(arena, bytes, slack);
    uint64_t end = poison_end(arena, *highest, bytes);
    if (end > *highest) *highest = end;
    if (beyond == bytes) return true;
    *highest = beyond;
    Loc none = {NULL, 0};
    return diag_error(d, FAULT_internal, "arena-overrun", none,
                      "rank %u wrote up to byte %llu of %s of %llu bytes", r->rank,
                      (unsigned long long)beyond, host ? "a host arena" : "an arena",
                      (unsigned long long)bytes);
}

bool rank_inspect(RankState *r, Diag *d)
{
    return !r->poison || (inspect(r, SPACE_device, d) && inspect(r, SPACE_host, d));
}

uint64_t rank_highest(const RankState *r, Space space)
{
    if (r->poison || !r->measure) return r->highest[space];
    const Program *p = r->info->p;
    return space == SPACE_host ? poison_end(r->host, 0, p->host_bytes + ARENA_SLACK)
                               : poison_end(r->device, 0, p->bytes + ARENA_SLACK);
}

static bool bad_in(const void *at, DType dtype, uint64_t n, BadNumber *bad)
{
    for (uint64_t i = 0; i < n; i++) {
        double x = number_read(dtype, at, i);
        if (isfinite(x)) continue;
        bad->element = i;
        bad->value = x;
        return true;
    }
    return false;
}

bool rank_find_bad(const RankState *r, Pc pc, BadNumber *bad)
{
    const Program *p = r->info->p;
    const Instr *in = program_instr(p, pc);
    for (uint32_t i = in->n_in; i < in->args.n; i++) {
        BufferId b = program_arg(p, in, i);
        const Buffer *at = &p->buffers.at[b];
        if (!number_is_real(at->dtype)) continue;
        if (!bad_in(rank_memory(r, b), at->dtype,
                    at->bytes / dtype_bytes(at->dtype) * dtype_numbers(at->dtype), bad))
            continue;
        bad->rank = r->rank;
        bad->pc = pc;
        bad->output = i - in->n_in;
        return true;
    }
    return false;
}

Pc rank_unfinished(const RankState *r, Stream stream, const bool *finished)
{
    for (Pc pc = 1; pc <= r->info->n_instr; pc++)
        if (program_instr(r->info->p, pc)->stream == stream && !finished[pc]) return pc;
    return 0;
}
