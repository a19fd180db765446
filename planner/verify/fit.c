/* Checks that the memory of each program fits into the devices and hosts of the cluster. The memory
 * of a plan is known to the byte. */
#include "planner/verify/fit.h"

#include "planner/ir/experts.h"

uint64_t plan_host_bytes(const Plan *plan, uint32_t devices_per_node, uint32_t *node)
{
    uint64_t most = 0, here = 0;
    *node = 0;
    for (Rank r = 0; r < plan->mesh.n_ranks; r++) {
        if (devices_per_node && r % devices_per_node == 0) here = 0;
        here += plan_program(plan, r)->host_bytes;
        if (here <= most) continue;
        most = here;
        *node = devices_per_node ? r / devices_per_node : 0;
    }
    return most;
}

static const FitAdvice any_plan = {
    .state = "sgd{} instead of adamw{}",
    .within = "a smaller micro-batch, ac \"full\", a larger tp, or reshard_after_forward = true",
};

static bool fits_devices(const Plan *plan, const Capacity *capacity, const FitAdvice *advice,
                         Diag *d)
{
    const uint64_t device_bytes = capacity->device_bytes, reserved_bytes = capacity->reserved_bytes;
    uint32_t worst = UINT32_MAX;
    for (uint32_t i = 0; i < plan->programs.n; i++)
        if (worst == UINT32_MAX || plan->programs.at[i].bytes > plan->programs.at[worst].bytes)
            worst = i;
    if (worst == UINT32_MAX) return true;
    const uint64_t usable = usable_bytes(device_bytes, reserved_bytes);
    const Program *p = &plan->programs.at[worst];
    if (p->bytes <= usable) return true;
    Rank rank = 0;
    while (rank + 1 < plan->mesh.n_ranks && plan->program_of[rank] != worst) rank++;
    uint64_t by[CATEGORY_COUNT] = {0};
    int most = CATEGORY_none;
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const Buffer *at = &p->buffers.at[b];
        if (!at->parent && at->persistent && at->category < CATEGORY_COUNT)
            by[at->category] += at->bytes;
    }
    uint64_t resident = 0;
    for (int c = 0; c < CATEGORY_COUNT; c++) {
        resident += by[c];
        if (by[c] > by[most]) most = c;
    }
    diag_error(
        d, FAULT_infeasible, "does-not-fit", (Loc){NULL, 0},
        "rank %u (program %u) needs %s, but only %s of the device are usable (%s less %s reserved)",
        rank, worst, str_bytes(d->arena, p->bytes), str_bytes(d->arena, usable),
        str_bytes(d->arena, device_bytes), str_bytes(d->arena, reserved_bytes));
    if (resident > usable)
        diag_hint(d,
                  "%s are kept between steps, mostly %s; shard over more ranks (a larger "
                  "dp_shard%s or tp)%s%s",
                  str_bytes(d->arena, resident), category_name((Category)most),
                  experts_most(&plan->graph) > 0 ? ", ep" : "", advice->state[0] ? ", or " : "",
                  advice->state);
    else
        diag_hint(d, "only %s are kept between steps, so reduce the memory within a step: try %s",
                  str_bytes(d->arena, resident), advice->within);
    return false;
}

/* Checks that the host memory of a node suffices for all ranks of the node. */
static bool fits_hosts(const Plan *plan, const Capacity *c, Diag *d)
{
    uint32_t node;
    if (!c->host_bytes) return true;
    const uint64_t need = plan_host_bytes(plan, c->devices_per_node, &node);
    if (need <= c->host_bytes) return true;
    const uint32_t ranks = c->devices_per_node && c->devices_per_node < plan->mesh.n_ranks
                               ? c->devices_per_node
                               : plan->mesh.n_ranks;
    const AxisSet shard = mesh_axes_of(&plan->mesh, axes_with(AXIS_UNITS));
    const uint64_t shards = mesh_size(&plan->mesh, shard);
    diag_error(d, FAULT_infeasible, "host-does-not-fit", (Loc){NULL, 0},
               "the %u ranks of node %u need %s of host memory, but a node has %s", ranks, node,
               str_bytes(d->arena, need), str_bytes(d->arena, c->host_bytes));
    diag_hint(d, "use dp_shard = %llu or more, or leave out offload",
              (unsigned long long)(shards * ((need - 1) / c->host_bytes + 1)));
    return false;
}

bool verify_fit(const Plan *plan, const Capacity *c, Diag *d)
{
    return verify_fit_advising(plan, c, &any_plan, d);
}

bool verify_fit_advising(const Plan *plan, const Capacity *c, const FitAdvice *advice, Diag *d)
{
    const bool devices = fits_devices(plan, c, advice, d);
    return fits_hosts(plan, c, d) && devices;
}
