/* Opens the mpi backend: prepares the rank, creates the groups in the same order on all ranks, and
 * allocates the staging memory of transfers. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/groups.h"
#include "exec/launch/launch.h"
#include "exec/process/private.h"
#include "planner/base/cores.h"
#include "planner/base/plural.h"
#include "planner/base/str.h"

typedef struct ProcessGroups {
    GroupKeys keys;
    int *index; /* [key]: the transport's number for the group */
} ProcessGroups;

static bool make_groups(Process *p, ProcessGroups *groups, Diag *d)
{
    groups_collect(p->plan, false, p->arena, &groups->keys);
    groups->index = arena_array(p->arena, groups->keys.all.n, sizeof(int));
    for (uint32_t k = 0; k < groups->keys.all.n; k++) {
        AxisSet axes = groups->keys.all.at[k].axes;
        Rank color = mesh_group(&p->plan->mesh, p->rank, axes);
        uint32_t key = mesh_part(&p->plan->mesh, p->rank, axes);
        groups->index[k] = p->transport->group(p->mpi, color, key);
        Loc none = {NULL, 0};
        if (groups->index[k] < 0)
            return diag_error(d, FAULT_run, "mpi", none, "rank %u: %s", p->rank,
                              p->transport->error(p->mpi));
    }
    return true;
}

static int find_group(const ProcessGroups *groups, const Comm *c)
{
    uint32_t k = groups_find(&groups->keys, c->axes, c->stream);
    return k == UINT32_MAX ? 0 : groups->index[k]; /* send and recv use the group of all ranks */
}

static bool prepare_transfers(Process *p, const ProcessGroups *groups, Diag *d)
{
    uint32_t n = p->state.info->n_instr;
    p->transfer = arena_array(p->arena, (size_t)n + 1, sizeof *p->transfer);
    for (Pc pc = 1; pc <= n; pc++) {
        Comm *c = p->state.at[pc].comm;
        if (c == NULL) continue;
        PreparedTransfer *w = arena_alloc(p->arena, sizeof *w);
        *w = (PreparedTransfer){.pc = pc, .comm = c, .group = find_group(groups, c)};
        if (!transfer_prepare(p, w, d)) return false;
        p->transfer[pc] = w;
    }
    return true;
}

/* Assigns staging memory. Communications that start together run at the same time, so each of them
 * has its own memory. All other communications of a stream use the same memory one after the
 * other. */
static bool stage(Process *p, Diag *d)
{
    uint64_t begin[STREAM_COUNT] = {0}, most[STREAM_COUNT] = {0}, total = 0;
    uint32_t n = p->state.info->n_instr;
    uint64_t *offset = arena_array(p->arena, (size_t)n + 1, sizeof *offset);
    uint32_t launch[STREAM_COUNT] = {0};
    for (Pc pc = 1; pc <= n; pc++) {
        const PreparedTransfer *w = p->transfer[pc];
        if (w == NULL) continue;
        Stream s = w->comm->stream;
        if (w->comm->launch == 0 || w->comm->launch != launch[s]) begin[s] = 0;
        launch[s] = w->comm->launch;
        offset[pc] = begin[s];
        begin[s] += (w->staging_bytes + 63) / 64 * 64;
        if (begin[s] > most[s]) most[s] = begin[s];
    }
    for (int s = 0; s < STREAM_COUNT; s++) {
        begin[s] = total;
        total += most[s];
    }
    p->staging_bytes = total;
    p->staging = total ? calloc(1, total) : NULL;
    Loc none = {NULL, 0};
    if (total && p->staging == NULL)
        return diag_error(d, FAULT_run, "exec-memory", none, "no memory for %llu bytes of staging",
                          (unsigned long long)total);
    for (Pc pc = 1; pc <= n; pc++)
        if (p->transfer[pc])
            transfer_stage(p->transfer[pc],
                           p->staging + begin[p->transfer[pc]->comm->stream] + offset[pc]);
    return true;
}

bool transfers_open(Process *p, Diag *d)
{
    ProcessGroups groups = {.index = NULL};
    return make_groups(p, &groups, d) && prepare_transfers(p, &groups, d) && stage(p, d);
}

static void order_streams(Process *p)
{
    Pc end[STREAM_COUNT] = {0};
    uint32_t n = p->state.info->n_instr;
    p->next_on_stream = arena_array(p->arena, (size_t)n + 1, sizeof(Pc));
    for (Pc pc = 1; pc <= n; pc++) {
        Stream s = program_instr(p->state.info->p, pc)->stream;
        if (end[s])
            p->next_on_stream[end[s]] = pc;
        else
            p->first_on_stream[s] = pc;
        end[s] = pc;
    }
    p->finished = arena_array(p->arena, (size_t)n + 1, sizeof(bool));
    p->active = arena_array(p->arena, (size_t)n + 1, sizeof *p->active);
    p->local = arena_array(p->arena, (size_t)n + 1, sizeof *p->local);
    p->next = arena_array(p->arena, (size_t)n + 1, sizeof *p->next);
}

/* Returns true if `fine` is true on all ranks. All ranks create the groups together, so no rank may
 * begin to create them if another rank has failed. */
static bool all_are_fine(Backend *self, bool fine, Diag *d)
{
    Process *p = self->state;
    unsigned char mine = fine, *all = arena_array(p->arena, p->n_ranks, 1);
    Loc none = {NULL, 0};
    if (!self->exchange(self, &mine, 1, all, d)) return false;
    for (Rank r = 0; r < p->n_ranks; r++)
        if (!all[r] && fine)
            return diag_error(d, FAULT_run, "rank-open", none, "rank %u could not begin", r);
    return fine;
}

/* Sets *out to true if this machine runs more ranks than the number of cores that they may use. All
 * ranks must call this function. */
static bool find_shared_cores(Backend *self, bool *out, Diag *d)
{
    typedef struct Place {
        Hash128 host;
        CoreSet cores;
    } Place;
    Process *p = self->state;
    char host[256] = {0};
    uint32_t n = 0;
    /* if this fails, all machines count as one */
    if (gethostname(host, sizeof host - 1) != 0) host[0] = 0;
    const Place mine = {hash_bytes(host, strlen(host)), cores_set()};
    Place *all = arena_array(p->arena, p->n_ranks, sizeof *all);
    CoreSet *here = arena_array(p->arena, p->n_ranks, sizeof *here);
    if (!self->exchange(self, &mine, sizeof mine, all, d)) return false;
    for (uint32_t r = 0; r < p->n_ranks; r++)
        if (memcmp(&all[r].host, &mine.host, sizeof mine.host) == 0) here[n++] = all[r].cores;
    *out = cores_are_short(here, n);
    return true;
}

bool process_open(Backend *self, const Plan *plan, const BackendOptions *options, Diag *d)
{
    Process *p = self->state;
    Loc none = {NULL, 0};
    char why[512] = "";
    p->plan = plan;
    p->options = *options;
    if (options->own != NULL) p->own = *(const ProcessOptions *)options->own;
    if (p->options.timeout_s <= 0) p->options.timeout_s = 60;
    uint32_t n = 0, mine = 0;
    if (launch_inside(&n, &mine, NULL)) p->status = status_join(n);
    p->slot = p->status ? &p->status->slots[mine] : &p->alone;
    atomic_store(&p->slot->pid, (int32_t)getpid());
    atomic_store(&p->slot->state, STATUS_open);
    p->mpi = p->transport->open(&p->rank, &p->n_ranks, why, sizeof why);
    if (p->mpi == NULL)
        return diag_error(d, FAULT_run, "mpi", none, "MPI cannot be started: %s", why);
    if (p->n_ranks != plan->mesh.n_ranks) {
        diag_error(d, FAULT_usage, "ranks-mismatch", none,
                   "%u process%s started, but the plan's mesh has %u rank%s", p->n_ranks,
                   p->n_ranks == 1 ? "" : "es", plan->mesh.n_ranks, str_s(plan->mesh.n_ranks));
        diag_hint(d, "start %u process%s, or change the mesh with --set", plan->mesh.n_ranks,
                  plan->mesh.n_ranks == 1 ? "" : "es");
        return false;
    }
    const ProgramInfo *info = program_info(plan, plan_program(plan, p->rank), p->arena);
    bool fine = rank_open(&p->state, plan, info, p->rank, &p->control, &p->options, p->arena, d);
    if (!all_are_fine(self, fine, d) || !transfers_open(p, d)) return false;
    if (!find_shared_cores(self, &p->shares_cores, d)) return false;
    order_streams(p);
    return true;
}
