/* DDP: every rank stores all parameters. Gradients are summed by an all_reduce for each bucket, a
 * unit of some megabytes. Buckets are filled from the last layer backwards, so that a bucket's
 * all_reduce overlaps with the backward pass of earlier layers. */
#include <assert.h>

#include "planner/passes/pass.h"

bool units_by_bucket(Job *job, double size, BucketKind kind)
{
    Graph *g = &job->plan->graph;
    const Mesh *mesh = &job->plan->mesh;
    double room = 0;
    UnitId bucket = 0;
    AxisSet own = 0;
    uint32_t n = 0, rank = 0;
    for (TensorId t = (TensorId)g->tensors.n; t-- > 1;) {
        const Tensor *at = &g->tensors.at[t];
        if (at->role != ROLE_param || at->frozen) continue;
        Shape local = {.n_dims = at->n_dims, .layout = at->use};
        for (int i = 0; i < at->n_dims; i++) local.dim[i] = at->dim[i], local.deal[i] = at->deal[i];
        if (param_second_rank(job, t) != UINT32_MAX) {
            unit_take(job, unit_new(job, at->name, 0, job->data_axes), t);
            continue;
        }
        double takes = (double)shape_local_elements(&local, mesh, &g->deals);
        if (kind == BUCKET_bytes) takes *= dtype_bytes(at->reduce_dtype);
        if (!bucket || takes > room || param_rank(job, t) != rank || own_axes(job, t) != own) {
            rank = param_rank(job, t);
            own = own_axes(job, t);
            bucket = unit_new(job, arena_print(job->arena, "bucket %u", n++), 0,
                              (AxisSet)(job->data_axes & ~own));
            room = size;
        }
        room -= takes;
        unit_take(job, bucket, t);
    }
    return true;
}

static bool pass_ddp(Job *job)
{
    double mib = pass_config(job, PASS_ddp)->ddp.bucket_mib;
    return units_by_bucket(job, mib * 1024 * 1024, BUCKET_bytes);
}

static const PassOption options[] = {
    OPTION(f64, ddp.bucket_mib, 1e-6, 1e6, 25, "MiB",
           "The size of a bucket: the gradients that are summed by one collective."),
    OPTION_END,
};

static void print(const PassConfig *pass, Str *out)
{
    str_print(out, "ddp(buckets of %g MiB)", pass->ddp.bucket_mib);
}

static void warn_axes(const Config *config, const PassConfig *pass, Diag *d)
{
    (void)pass;
    if (config_ranks(config, axes_cutting_batch() & ~axes_with(AXIS_UNITS)) <= 1)
        diag_warning(d, "not-applied", config->mesh_loc,
                     "ddp{} has no effect, because mesh.dp_replicate is 1");
}

const PassSpec pass_spec_ddp = {
    .name = "ddp",
    .doc =
        {"ddp", "",
         "Keeps all parameters on every data rank, and sums gradients over data ranks in buckets."},
    .options = options,
    .reports = true,
    .is_data = true,
    .run = pass_ddp,
    .trials = OPTION_WORDS("parallel.ddp.bucket_mib=100"),
    .print = print,
    .warn_axes = warn_axes,
};
