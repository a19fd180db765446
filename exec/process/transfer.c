/* Transfers of the mpi backend. A communication is started without waiting for its end, and makes
 * progress whenever it is polled. */
#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "exec/process/private.h"
#include "planner/base/clock.h"

/* If the inputs of an all_reduce have at most this many bytes together, every rank gathers all
 * inputs and adds them itself. This takes one round of messages instead of two. */
enum { SMALL_BYTES = 32768 };

/* Returns true if MPI may do the reduction itself. MPI cannot add low-precision numbers or compute
 * means. */
static bool is_native(const Process *p, const Comm *c)
{
    return p->own.native && c->reduce != REDUCE_mean && (c->dtype == DT_f32 || c->dtype == DT_f64);
}

static TransferMethod method_of(const Process *p, const Comm *c)
{
    if (c->n_members == 1) return METHOD_none;
    if (c->op == OP_all_gather) return METHOD_gather;
    if (c->op == OP_all_to_all) return METHOD_exchange;
    if (c->op == OP_exchange_uneven) return METHOD_rows;
    if (c->op == OP_halo_exchange) return METHOD_strips;
    if (c->op == OP_rotate) return METHOD_rotate;
    if (c->op == OP_send) return METHOD_send;
    if (c->op == OP_recv) return METHOD_recv;
    if (c->op == OP_reduce_scatter)
        return is_native(p, c) ? METHOD_native_reduce_scatter : METHOD_exchange_sum;
    assert(c->op == OP_all_reduce);
    if (is_native(p, c)) return METHOD_native_all_reduce;
    return c->in_bytes * c->n_members <= SMALL_BYTES ? METHOD_gather_sum
                                                     : METHOD_exchange_sum_gather;
}

/* Divides `total` elements into one block for each member, as evenly as possible. */
static void cut(Process *p, PreparedTransfer *w, int total)
{
    int members = (int)w->comm->n_members, at = 0;
    w->counts = arena_array(p->arena, (size_t)members, sizeof(int));
    w->displs = arena_array(p->arena, (size_t)members, sizeof(int));
    for (int i = 0; i < members; i++) {
        w->counts[i] = total / members + (i < total % members);
        w->displs[i] = at;
        at += w->counts[i];
    }
}

/* Prepares to receive `n` elements from each member into the staging memory. */
static void arrive(Process *p, PreparedTransfer *w, int n)
{
    uint32_t members = w->comm->n_members;
    w->in_counts = arena_array(p->arena, members, sizeof(int));
    w->in_displs = arena_array(p->arena, members, sizeof(int));
    w->part = arena_array(p->arena, members, sizeof *w->part);
    for (uint32_t i = 0; i < members; i++) {
        w->in_counts[i] = n;
        w->in_displs[i] = (int)i * n;
    }
    w->staging_bytes = (uint64_t)n * members * (uint64_t)w->bytes;
}

static void prepare_lists(Process *p, PreparedTransfer *w)
{
    int **lists[] = {&w->counts, &w->displs, &w->in_counts, &w->in_displs};
    for (int k = 0; k < 4; k++) *lists[k] = arena_array(p->arena, w->comm->n_members, sizeof(int));
}

/* Prepares a rotation: the whole input goes to the next member, and the output comes from the
 * previous one. */
static void rotate(Process *p, PreparedTransfer *w)
{
    const uint32_t n = w->comm->n_members, me = w->comm->part;
    prepare_lists(p, w);
    w->counts[(me + 1) % n] = w->in_counts[(me + n - 1) % n] = w->n;
}

/* Prepares a halo exchange. Strip 0 of each member goes to the next member, and strip 1 to the
 * previous one. If two members form a ring, both strips go to the same peer and come from it. */
static void cut_strips(Process *p, PreparedTransfer *w, int strip)
{
    const uint32_t n = w->comm->n_members, me = w->comm->part;
    const bool first = me == 0 && !w->comm->wraps, last = me + 1 == n && !w->comm->wraps;
    prepare_lists(p, w);
    const uint32_t next = (me + 1) % n, previous = (me + n - 1) % n;
    if (!first) w->displs[previous] = strip, w->counts[previous] = strip;
    if (!last) w->in_displs[next] = strip, w->in_counts[next] = strip;
    if (!last) w->displs[next] = 0, w->counts[next] += strip;
    if (!first) w->in_displs[previous] = 0, w->in_counts[previous] += strip;
}

bool transfer_prepare(Process *p, PreparedTransfer *w, Diag *d)
{
    const Comm *c = w->comm;
    w->bytes = (int)dtype_bytes(c->dtype);
    w->method = method_of(p, c);
    uint64_t total = (c->in_bytes > c->out_bytes ? c->in_bytes : c->out_bytes) / (uint64_t)w->bytes;
    if (total + c->n_members > INT_MAX)
        return diag_error(d, FAULT_internal, "exec-program",
                          instr_loc(p->plan, program_instr(p->state.info->p, w->pc)),
                          "%s: MPI cannot count 2^31 elements or more",
                          instr_text(p->plan, p->state.info->p, w->pc, p->arena));
    w->n = (int)((c->in ? c->in_bytes : c->out_bytes) / (uint64_t)w->bytes);
    switch (w->method) {
    case METHOD_none:
    case METHOD_gather:
    case METHOD_native_all_reduce:
    case METHOD_send:
    case METHOD_recv: break;
    case METHOD_native_reduce_scatter: w->n = (int)(c->out_bytes / (uint64_t)w->bytes); break;
    case METHOD_gather_sum: arrive(p, w, w->n); break;
    case METHOD_exchange_sum:
    case METHOD_exchange_sum_gather:
        cut(p, w, w->n);
        w->n = w->counts[c->part];
        arrive(p, w, w->n);
        break;
    case METHOD_exchange: cut(p, w, w->n); break;
    case METHOD_strips: cut_strips(p, w, w->n / 2); break;
    case METHOD_rotate: rotate(p, w); break;
    case METHOD_rows:
        prepare_lists(p, w);
        w->staging_bytes = uneven_to_experts(c) ? c->out_bytes : c->in_bytes;
        break;
    }
    return true;
}

void transfer_stage(PreparedTransfer *w, char *staging)
{
    w->staging = staging;
    if (w->part == NULL) return;
    for (uint32_t i = 0; i < w->comm->n_members; i++)
        w->part[i] = staging + (size_t)w->in_displs[i] * (size_t)w->bytes;
}

static void check(Process *p, const PreparedTransfer *w, bool fine)
{
    if (fine) return;
    const char *what = instr_text(p->plan, p->state.info->p, w->pc, p->arena);
    process_end(
        p, "mpi",
        arena_print(p->arena, "rank %u, %s: %s", p->rank, what, p->transport->error(p->mpi)));
}

/* Copies rows between the buffer on the experts' side and the staging memory. In the buffer, the
 * rows of one expert from all members are contiguous. In the staging memory, all rows of one member
 * are contiguous. */
static void stage_rows(const PreparedTransfer *w, char *side, bool to_staging)
{
    const Comm *c = w->comm;
    const int64_t n = c->n_members, of = uneven_to_experts(c);
    const int64_t experts = c->experts[of], samples = c->samples[!of];
    const size_t row = (size_t)c->width * (size_t)w->bytes;
    const int *displs = of ? w->in_displs : w->displs;
    size_t at = 0;
    for (int64_t e = 0; e < experts; e++)
        for (int64_t i = 0; i < n; i++) {
            size_t staged = (size_t)displs[i] * (size_t)w->bytes;
            for (int64_t k = 0; k < e; k++)
                staged += (size_t)uneven_piece(c, (int)of, k, i, samples) * row;
            const size_t bytes = (size_t)uneven_piece(c, (int)of, e, i, samples) * row;
            if (to_staging)
                memcpy(w->staging + staged, side + at, bytes);
            else
                memcpy(side + at, w->staging + staged, bytes);
            at += bytes;
        }
}

/* Computes how many elements go to each member and how many come from it. */
static void count_rows(PreparedTransfer *w)
{
    const Comm *c = w->comm;
    const int n = (int)c->n_members, of = uneven_to_experts(c);
    const int64_t experts = c->experts[of], samples = c->samples[!of];
    for (int side = 0; side < 2; side++) {
        int *counts = side ? w->in_counts : w->counts, *displs = side ? w->in_displs : w->displs;
        int at = 0;
        for (int i = 0; i < n; i++) {
            int64_t rows = 0; /* on the samples' side, the rows for all experts of a member are
                                 contiguous */
            for (int64_t e = 0; e < experts; e++)
                rows += side == of ? uneven_piece(c, side, e, i, samples)
                                   : uneven_piece(c, side, i * experts + e, 0, samples);
            counts[i] = (int)(rows * c->width);
            displs[i] = at;
            at += counts[i];
        }
    }
}

static bool post_rows(Process *p, PreparedTransfer *w)
{
    const Comm *c = w->comm;
    const bool there = uneven_to_experts(c);
    if (uneven_rows_to(c) > uneven_room(c))
        process_end(p, "rows-over-bound",
                    uneven_overflow(p->plan, p->state.info->p, w->pc, c, p->rank, p->arena));
    count_rows(w);
    if (!there) stage_rows(w, c->in, true);
    return p->transport->all_to_all(p->mpi, w->group, there ? c->in : w->staging, w->counts,
                                    w->displs, there ? w->staging : c->out, w->in_counts,
                                    w->in_displs, w->bytes, &w->request);
}

/* Copies the received rows to the output. */
static void take_rows(const PreparedTransfer *w)
{
    const Comm *c = w->comm;
    const uint64_t end = (uint64_t)(uneven_rows_to(c) * c->width) * (uint64_t)w->bytes;
    if (uneven_to_experts(c)) stage_rows(w, c->out, false);
    memset(c->out + end, 0, c->out_bytes - end);
}

void transfer_post(Process *p, PreparedTransfer *w)
{
    const Transport *t = p->transport;
    const Comm *c = w->comm;
    /* the place of this rank's elements in a gathered output */
    const char *own = c->out + (size_t)c->part * c->in_bytes;
    TransportRequest *r = &w->request;
    bool fine = true, is_max = c->reduce == REDUCE_max;
    w->is_second = false;
    w->start = clock_ps();
    switch (w->method) {
    case METHOD_none: memmove(c->out, c->in, c->out_bytes); break;
    case METHOD_gather:
        fine = t->all_gather(p->mpi, w->group, c->in == own ? NULL : c->in, w->n, c->out, NULL,
                             NULL, w->bytes, r);
        break;
    case METHOD_gather_sum:
        fine = t->all_gather(p->mpi, w->group, c->in, w->n, w->staging, NULL, NULL, w->bytes, r);
        break;
    case METHOD_exchange_sum:
    case METHOD_exchange_sum_gather:
        fine = t->all_to_all(p->mpi, w->group, c->in, w->counts, w->displs, w->staging,
                             w->in_counts, w->in_displs, w->bytes, r);
        break;
    case METHOD_exchange:
        fine = t->all_to_all(p->mpi, w->group, c->in, w->counts, w->displs, c->out, w->counts,
                             w->displs, w->bytes, r);
        break;
    case METHOD_rows: fine = post_rows(p, w); break;
    case METHOD_strips: /* a rank without a neighbour gets a strip of zeros */
        if (c->part == 0 && !c->wraps) memset(c->out, 0, c->out_bytes / 2);
        if (c->part + 1 == c->n_members && !c->wraps)
            memset(c->out + c->out_bytes / 2, 0, c->out_bytes / 2);
        fine = t->all_to_all(p->mpi, w->group, c->in, w->counts, w->displs, c->out, w->in_counts,
                             w->in_displs, w->bytes, r);
        break;
    case METHOD_rotate:
        fine = t->all_to_all(p->mpi, w->group, c->in, w->counts, w->displs, c->out, w->in_counts,
                             w->in_displs, w->bytes, r);
        break;
    case METHOD_native_all_reduce:
        fine = t->all_reduce(p->mpi, w->group, c->in == c->out ? NULL : c->in, c->out, w->n,
                             w->bytes, is_max, r);
        break;
    case METHOD_native_reduce_scatter:
        fine = t->reduce_scatter(p->mpi, w->group, c->in, c->out, w->n, w->bytes, is_max, r);
        break;
    case METHOD_send:
        fine = t->send(p->mpi, c->peer, c->match % 32768, c->in, w->n, w->bytes, r);
        break;
    case METHOD_recv:
        fine = t->recv(p->mpi, c->leader, c->match % 32768, c->out, w->n, w->bytes, r);
        break;
    }
    check(p, w, fine);
}

/* Adds the blocks that have arrived. Starts to gather the sums if the method has this second
 * phase. */
static bool sum(Process *p, PreparedTransfer *w)
{
    const Comm *c = w->comm;
    bool gathers = w->method == METHOD_exchange_sum_gather;
    char *to = gathers ? c->out + (size_t)w->displs[c->part] * (size_t)w->bytes : c->out;
    reduce_in_order(c->dtype, c->reduce, to, w->part, c->n_members, (uint64_t)w->n);
    if (!gathers) return true;
    w->is_second = true;
    check(p, w,
          p->transport->all_gather(p->mpi, w->group, NULL, w->n, c->out, w->counts, w->displs,
                                   w->bytes, &w->request));
    return false;
}

bool transfer_poll(Process *p, PreparedTransfer *w, bool may_continue)
{
    bool is_done = false, sums = w->part != NULL && !w->is_second;
    if (w->method == METHOD_none) return true;
    /* all members of a group must start their second phases in the same order */
    if (sums && w->method == METHOD_exchange_sum_gather && !may_continue) return false;
    check(p, w, p->transport->test(p->mpi, &w->request, &is_done));
    if (!is_done) return false;
    if (w->method == METHOD_rows) take_rows(w);
    return sums ? sum(p, w) : true;
}

bool transfer_may_continue(const Process *p, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++) {
        const PreparedTransfer *w = p->active[k];
        bool will = w->method == METHOD_exchange_sum_gather && !w->is_second;
        if (w->comm->stream == p->active[i]->comm->stream && will) return false;
    }
    return true;
}
