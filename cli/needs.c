/* The distinct kernels and collectives of a plan, and the identity of what is known about them. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cli/run/measure.h"
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
        /* Sends have no group to measure: the simulator's own model of a message serves. */
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

/* Sorted lists become lists of distinct elements that count. */
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

/* store_get_collective would also interpolate; here only what was measured counts. */
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
        if (store != NULL) need->known_ps = exact_collective(store, machine, backend, need, d);
        needs->missing_collectives += need->known_ps < 0;
    }
}

static void add_numbers(Str *s, const double *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        str_add_double(s, numbers[i]);
        str_add(s, " ");
    }
}

/* A profile's numbers: two that differ in any predict differently. */
static void add_runtime(Str *s, const Runtime *runtime)
{
    double numbers[] = {runtime->kernel_s,
                        runtime->compiled_s,
                        runtime->tensor_s,
                        runtime->collective_s,
                        runtime->unit_s,
                        runtime->update_s,
                        runtime->step_s,
                        (double)runtime->attention,
                        (double)runtime->compiled,
                        runtime->is_compiled != 0,
                        runtime->expandable != 0,
                        (double)runtime->reports_rank,
                        runtime->compiles_loss,
                        runtime->bucket_elements,
                        runtime->prefetch_elements,
                        runtime->live_elements,
                        runtime->reuse_elements,
                        runtime->persist_elements,
                        runtime->added_bytes,
                        runtime->head_outside,
                        runtime->holds_arguments,
                        runtime->holds_logits,
                        runtime->expands_kv,
                        runtime->casts_gradients,
                        runtime->starts_whole,
                        runtime->pads_late,
                        runtime->host_optimizer,
                        runtime->keeps_outputs,
                        runtime->keeps_sent,
                        runtime->keeps_received};
    str_print(s, " %s ", runtime->name);
    add_numbers(s, numbers, sizeof numbers / sizeof numbers[0]);
    for (int op = 1; op < OP_COUNT; op++) {
        const RuntimeOp *as = &runtime->op[op];
        double of_op[] = {as->kernels, as->passes,      as->saved,    as->scratch,
                          as->tensors, as->scores,      as->stacks,   as->remade,
                          as->folded,  as->keeps_graph, as->in_place, (double)as->kernel};
        add_numbers(s, of_op, sizeof of_op / sizeof of_op[0]);
    }
}

const char *calibration_id(const Cluster *cluster, const Runtime *runtime, const Needs *needs,
                           Arena *arena)
{
    const Device *device = &cluster->device;
    Str s = str_in(arena);
    str_print(&s, "%s %s %u ", device->name, device->arch, device->sms);
    double numbers[] = {(double)device->memory_bytes,
                        (double)device->reserved_bytes,
                        device->hbm_bytes_per_s,
                        device->gemm_efficiency,
                        device->memory_efficiency,
                        device->launch_s,
                        device->kernel_floor_s,
                        (double)cluster->nodes,
                        (double)cluster->devices_per_node,
                        (double)cluster->intra,
                        cluster->intra_bytes_per_s,
                        (double)cluster->nics_per_node,
                        cluster->nic_bytes_per_s,
                        cluster->oversubscription,
                        (double)cluster->nodes_per_group,
                        cluster->group_oversubscription,
                        cluster->fabric.message_s,
                        cluster->fabric.achieved,
                        cluster->fabric.ramp_s,
                        cluster->fabric.ramp_bytes,
                        cluster->fabric.spread_s,
                        cluster->fabric.simple_only ? 1 : 0,
                        cluster->fabric.no_nvls ? 1 : 0,
                        cluster->fabric.sharp ? 1 : 0,
                        cluster->collective_launch_s,
                        (double)cluster->cores_per_node};
    add_numbers(&s, numbers, sizeof numbers / sizeof numbers[0]);
    double host[] = {cluster->host_link_bytes_per_s, cluster->host_bytes_per_s,
                     (double)cluster->host_memory_bytes};
    if (host[0] > 0 || host[1] > 0 || host[2] > 0) add_numbers(&s, host, 3);
    const PcieBox *box = &cluster->pcie;
    double pcie[] = {box->sockets, box->switches, box->socket_bytes_per_s, box->peer,
                     box->intel ? 1 : 0};
    if (cluster->intra == FABRIC_pcie) add_numbers(&s, pcie, sizeof pcie / sizeof pcie[0]);
    const Topology *t = &cluster->topology;
    double places[] = {
        t->kind,    t->sizes[0], t->sizes[1], t->sizes[2],         t->sizes[3],           t->groups,
        t->routers, t->nodes,    t->ways_out, t->link_bytes_per_s, t->way_out_bytes_per_s};
    if (t->kind != TOPOLOGY_tree) add_numbers(&s, places, sizeof places / sizeof places[0]);
    if (device->sustained > 0) add_numbers(&s, &device->sustained, 1);
    if (runtime->name != NULL) add_runtime(&s, runtime);
    add_numbers(&s, device->peak_flops, DT_COUNT);
    for (uint32_t i = 0; needs != NULL && i < needs->kernels.n; i++)
        str_print(&s, "%s %lld\n", needs->kernels.at[i].key,
                  (long long)needs->kernels.at[i].known_ps);
    for (uint32_t i = 0; needs != NULL && i < needs->collectives.n; i++) {
        const CollectiveNeed *need = &needs->collectives.at[i];
        str_print(&s, "%d %u %llu %lld\n", (int)need->op, need->n_ranks,
                  (unsigned long long)need->bytes, (long long)need->known_ps);
    }
    return format_id(arena, hash_bytes(str_text(&s), s.n));
}
