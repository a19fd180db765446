/* Lists the distinct kernels and collectives of a plan with their measured times, and hashes all
 * costs that a prediction reads. */
#include "session/needs.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "planner/front/front.h"
#include "session/session.h"
#include "sim/compute/work.h"
#include "sim/sim.h"

static int by_key(const void *a, const void *b)
{
    const KernelNeed *x = a, *y = b;
    int order = strcmp(x->key, y->key);
    if (order != 0) return order;
    if (x->program != y->program) return x->program < y->program ? -1 : 1;
    return (x->pc > y->pc) - (x->pc < y->pc);
}

static int by_kind(const void *a, const void *b)
{
    const CollectiveNeed *x = a, *y = b;
    if (x->op != y->op) return x->op < y->op ? -1 : 1;
    if (x->n_ranks != y->n_ranks) return x->n_ranks < y->n_ranks ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    if (x->program != y->program) return x->program < y->program ? -1 : 1;
    return (x->pc > y->pc) - (x->pc < y->pc);
}

static void collect(const Plan *plan, uint32_t program, Arena *arena, Needs *needs)
{
    const Program *p = &plan->programs.at[program];
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = program_instr(p, pc);
        OpClass class_ = op_info(in->op)->class_;
        /* a point-to-point message is not measured; the simulator has a model for it */
        if (in->op == OP_send || in->op == OP_recv) continue;
        if (class_ == OP_CLASS_comm) {
            CollectiveNeed need = {.op = in->op,
                                   .axes = in->axes,
                                   .n_ranks = mesh_size(&plan->mesh, in->axes),
                                   .program = program,
                                   .pc = pc,
                                   .n = 1,
                                   .bytes = plan_comm_bytes(plan, p, in),
                                   .known_ps = -1};
            need.dtype = p->buffers.at[program_arg(p, in, 0)].dtype;
            list_push(arena, &needs->collectives, need);
        } else if (class_ != OP_CLASS_none) {
            KernelNeed need = {.key = cost_key(plan, p, in, arena),
                               .op = in->op,
                               .program = program,
                               .pc = pc,
                               .n = 1,
                               .known_ps = -1};
            list_push(arena, &needs->kernels, need);
        }
    }
}

static bool same_collective(const CollectiveNeed *a, const CollectiveNeed *b)
{
    return a->op == b->op && a->n_ranks == b->n_ranks && a->bytes == b->bytes;
}

/* Merges equal neighbours in the sorted lists, and counts them in `n`. */
static void make_distinct(Needs *needs)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < needs->kernels.n; i++) {
        KernelNeed *at = needs->kernels.at;
        if (n > 0 && strcmp(at[n - 1].key, at[i].key) == 0)
            at[n - 1].n++;
        else
            at[n++] = at[i];
    }
    needs->kernels.n = n;
    n = 0;
    for (uint32_t i = 0; i < needs->collectives.n; i++) {
        CollectiveNeed *at = needs->collectives.at;
        if (n > 0 && same_collective(&at[n - 1], &at[i]))
            at[n - 1].n++;
        else
            at[n++] = at[i];
    }
    needs->collectives.n = n;
}

/* Returns the measured time of a collective at exactly this size, or -1. (store_get_collective also
 * interpolates between sizes.) */
static Ps exact_collective(Store *store, const char *machine, const char *backend,
                           const CollectiveNeed *need, Diag *d)
{
    DbStatement *st = db_prepare(store_db(store), d,
                                 "SELECT median_ps FROM collective_cost WHERE machine = ? AND "
                                 "backend = ? AND op = ? AND n_ranks = ? AND bytes = ?",
                                 "sssii", machine, backend, op_info(need->op)->name,
                                 (int64_t)need->n_ranks, (int64_t)need->bytes);
    Ps known = db_step(st, d) ? db_int(st, 0) : -1;
    db_reset(st);
    return known;
}

void needs_find(const Plan *plan, Store *store, const char *machine, const char *backend,
                Arena *arena, Needs *needs, Diag *d)
{
    memset(needs, 0, sizeof *needs);
    for (uint32_t i = 0; i < plan->programs.n; i++) collect(plan, i, arena, needs);
    if (needs->kernels.n > 0)
        qsort(needs->kernels.at, needs->kernels.n, sizeof *needs->kernels.at, by_key);
    if (needs->collectives.n > 0)
        qsort(needs->collectives.at, needs->collectives.n, sizeof *needs->collectives.at, by_kind);
    make_distinct(needs);
    for (uint32_t i = 0; i < needs->kernels.n; i++) {
        KernelNeed *need = &needs->kernels.at[i];
        const Program *p = &plan->programs.at[need->program];
        if (store != NULL)
            need->known_ps = work_measured(store, machine, need->key, plan, p,
                                           program_instr(p, need->pc), arena, d);
        needs->missing_kernels += need->known_ps < 0;
    }
    for (uint32_t i = 0; i < needs->collectives.n; i++) {
        CollectiveNeed *need = &needs->collectives.at[i];
        need->used_ps = -1;
        if (store != NULL) {
            need->known_ps = exact_collective(store, machine, backend, need, d);
            need->used_ps = store_get_collective(store, machine, backend, need->op, need->n_ranks,
                                                 need->bytes, d);
        }
        needs->missing_collectives += need->known_ps < 0;
    }
}

const char *calibration_id(const Cluster *cluster, const Runtime *runtime, const Needs *needs,
                           Arena *arena)
{
    Str s = str_in(arena);
    field_text(cluster, runtime, &s);
    for (uint32_t i = 0; needs != NULL && i < needs->kernels.n; i++)
        str_print(&s, "%s %lld\n", needs->kernels.at[i].key,
                  (long long)needs->kernels.at[i].known_ps);
    for (uint32_t i = 0; needs != NULL && i < needs->collectives.n; i++) {
        const CollectiveNeed *need = &needs->collectives.at[i];
        str_print(&s, "%d %u %llu %lld\n", (int)need->op, need->n_ranks,
                  (unsigned long long)need->bytes, (long long)need->used_ps);
    }
    return hash_short(arena, hash_bytes(str_text(&s), s.n));
}
