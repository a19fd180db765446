/* Exchanges rows between ranks that have samples and ranks that have experts. Each rank may send a
 * different number of rows. On both sides, the rows of one expert from one rank are contiguous. The
 * exchange moves these runs, expert by expert and, for each expert, rank by rank. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "exec/ready.h"
#include "planner/ir/layout/rows.h"

static int64_t sum(const int32_t *counts, int64_t n)
{
    int64_t all = 0;
    for (int64_t i = 0; i < n; i++) all += counts[i];
    return all;
}

bool uneven_to_experts(const Comm *c)
{
    return c->experts[0] > c->experts[1];
}

int64_t uneven_rows_to(const Comm *c)
{
    return sum(c->counts[1], c->experts[1] * c->samples[1]);
}

int64_t uneven_room(const Comm *c)
{
    return (int64_t)(c->out_bytes / dtype_bytes(c->dtype)) / c->width;
}

int64_t uneven_piece(const Comm *c, int side, int64_t expert, int64_t part, int64_t samples)
{
    return sum(c->counts[side] + expert * c->samples[side] + part * samples, samples);
}

static void end_rows(const Comm *c, int64_t n)
{
    const uint64_t bytes = (uint64_t)(n * c->width) * dtype_bytes(c->dtype);
    assert(bytes <= c->out_bytes);
    memset(c->out + bytes, 0, c->out_bytes - bytes);
}

void uneven_move(const Comm *const *member, uint32_t n)
{
    const Comm *one = member[0];
    const bool there = uneven_to_experts(one);
    const uint64_t row = (uint64_t)one->width * dtype_bytes(one->dtype);
    const int64_t experts = one->experts[there], samples = one->samples[!there];
    int64_t at[MAX_MEMBERS] = {0}; /* [rank]: how many rows of the rank's samples have been moved */
    assert(n <= MAX_MEMBERS);
    for (uint32_t j = 0; j < n; j++) {
        int64_t here = 0; /* how many rows of rank j's experts have been moved */
        for (int64_t e = 0; e < experts; e++)
            for (uint32_t i = 0; i < n; i++) {
                const int64_t rows = uneven_piece(member[i], !there, j * experts + e, 0, samples);
                const uint64_t bytes = (uint64_t)rows * row, of_i = (uint64_t)at[i] * row,
                               of_j = (uint64_t)here * row;
                if (there)
                    memcpy(member[j]->out + of_j, member[i]->in + of_i, bytes);
                else
                    memcpy(member[i]->out + of_i, member[j]->in + of_j, bytes);
                here += rows;
                at[i] += rows;
            }
    }
    for (uint32_t i = 0; i < n; i++) end_rows(member[i], uneven_rows_to(member[i]));
}

/* Returns the smallest bound, in whole thousandths, that is at least `times`. */
static double bound_of(double times)
{
    return ceil(times * ROWS_MEAN - 1e-9) / ROWS_MEAN;
}

const char *uneven_overflow(const Plan *plan, const Program *p, Pc pc, const Comm *c, Rank rank,
                            Arena *arena)
{
    const Graph *g = &plan->graph;
    const Instr *in = program_instr(p, pc);
    const Shape *to = plan_shape_at(plan, p->buffers.at[program_arg(p, in, 3)].shape);
    const int64_t rows = uneven_rows_to(c);
    const double mean = rows_mean(to, &plan->mesh, &g->deals),
                 bound = (double)g->deals.deals.at[to->deal[ROWS_DIMS - 1]].bound / ROWS_MEAN;
    const double all = (double)rows_most(to, &plan->mesh, &g->deals);
    return arena_print(arena,
                       "%s, micro-batch %u: rank %u gets %lld rows for its experts, but has memory "
                       "for only %lld (ep { bound = %.9g } times a mean of %.9g). This exchange "
                       "needs bound = %.9g; with %.9g every exchange fits",
                       g->modules.at[g->nodes.at[in->origin].module].path, in->microbatch, rank,
                       (long long)rows, (long long)uneven_room(c), bound, mean,
                       bound_of((double)rows / mean), bound_of(all / mean));
}
