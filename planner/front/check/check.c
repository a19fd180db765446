/* Checks that compare several values of a plan, such as the product of the mesh with the cluster.
 */
#include <string.h>
#include <unistd.h>

#include "planner/base/cores.h"
#include "planner/front/parent.h"

static void check_missing(Draft *draft)
{
    static const char *const needed[][2] = {
        {"model", "model = require \"models.llama\" \"tiny\""},
        {"batch", "batch = { global = 8, micro = 1, seq = 128 }"},
        {"batch.seq", "for example batch = { global = 8, micro = 1, seq = 128 }"},
        {"cluster.name", NULL},
        {"cluster.device", NULL},
        {"cluster.device.name", NULL},
        {"cluster.device.arch", NULL},
        {"cluster.device.memory_bytes", NULL},
        {"cluster.device.hbm_bytes_per_s", NULL},
        {"cluster.device.gemm_efficiency", NULL},
        {"cluster.device.memory_efficiency", NULL},
        {"cluster.device.peak_flops", "peak_flops = { bf16 = 989.4e12 }"},
        {"cluster.intra_bytes_per_s", NULL},
        {"cluster.devices_per_node", NULL},
    };
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        const char *path = needed[i][0], *dot = strrchr(path, '.');
        if (strcmp(path, "batch.seq") == 0 && draft_has_fields(draft)) continue;
        if (draft_has(draft, path)) continue;
        if (dot != NULL &&
            !draft_has_table(draft, arena_copy(draft->arena, path, (size_t)(dot - path))))
            continue; /* the missing or wrong table was already reported */
        diag_error(draft->d, FAULT_input, "missing-key", draft_loc(draft, path),
                   "the plan has no %s", path);
        if (needed[i][1] != NULL) diag_hint(draft->d, "%s", needed[i][1]);
        draft->unsure = true;
    }
}

static void check_passes(Draft *draft)
{
    for (uint32_t i = 0; i < draft->seen.n; i++) {
        const char *path = draft->seen.at[i].path;
        if (strncmp(path, "parallel.", 9) != 0 || strchr(path + 9, '.') != NULL) continue;
        if (strspn(path + 9, "0123456789") != strlen(path + 9)) continue;
        bool is_table = i + 1 < draft->seen.n &&
                        strncmp(draft->seen.at[i + 1].path, path, strlen(path)) == 0 &&
                        draft->seen.at[i + 1].path[strlen(path)] == '.';
        if (!is_table || draft_has(draft, arena_print(draft->arena, "%s.kind", path))) continue;
        diag_error(draft->d, FAULT_input, "wrong-type", draft->seen.at[i].loc,
                   "%s must be a pass, but is a plain table", path);
        diag_hint(draft->d, "write tp { ... }, ac \"full\", fsdp2 { ... } or ddp { ... }");
    }
    if (draft_has(draft, "optimizer") && !draft_has(draft, "optimizer.kind")) {
        diag_error(draft->d, FAULT_input, "wrong-type", draft_loc(draft, "optimizer"),
                   "optimizer must be adamw { ... } or sgd { ... }");
        diag_hint(draft->d, "for example optimizer = adamw { lr = 3e-4 }");
    }
}

static void check_batch(Draft *draft)
{
    Config *c = &draft->config;
    int64_t data = config_data_ranks(c);
    int64_t step = c->micro_batch * data; /* cannot overflow: both factors are below 2^30 */
    if (c->height && c->denominator == DENOMINATOR_microbatch_mean)
        c->denominator =
            /* no grid point is padding, so the denominators give the same loss */
            DENOMINATOR_kept;
    if (c->denominator == DENOMINATOR_microbatch_mean) {
        diag_warning(draft->d, "mean-of-means", draft_loc(draft, "batch.denominator"),
                     "the loss is the mean of the means of %lld sequences each, so a token of a "
                     "short text has more weight than others",
                     (long long)c->micro_batch);
        diag_hint(draft->d, "set denominator = \"kept\" to give all tokens the same weight");
    }
    if (c->global_batch == 0) c->global_batch = step;
    if (c->global_batch % step == 0) return;
    diag_error(draft->d, FAULT_input, "divides-batch", draft_loc(draft, "batch.global"),
               "batch.global = %lld is not a multiple of batch.micro = %lld times %lld data ranks",
               (long long)c->global_batch, (long long)c->micro_batch, (long long)data);
    const int64_t below = c->global_batch / step * step;
    Str hint = str_in(draft->arena);
    if (below > 0) str_print(&hint, "%lld or ", (long long)below);
    str_print(&hint, "%lld", (long long)(below + step));
    if (c->global_batch % data == 0)
        str_print(&hint, "; or micro may be %s",
                  str_divisors(draft->arena, c->global_batch / data));
    diag_hint(draft->d, "global may be %s", str_text(&hint));
}

static void check_nccl(Draft *draft)
{
    const char *hint, *wrong = nccl_settings_wrong(&draft->config.nccl, &hint);
    if (wrong == NULL) return;
    diag_error(draft->d, FAULT_input, "nccl-settings", draft_loc(draft, "nccl"), "nccl: %s", wrong);
    if (hint != NULL) diag_hint(draft->d, "%s", hint);
}

static void dtype_unsupported(Draft *draft, Loc loc, const char *path, DType type)
{
    const Device *device = &draft->config.cluster.device;
    diag_error(draft->d, FAULT_input, "dtype-unsupported", loc,
               "%s = %s, but %s cannot compute in this type", path, dtype_name(type),
               device->name != NULL ? device->name : "the device");
    Str s = str_in(draft->arena);
    for (int t = 1; t < DT_COUNT; t++)
        if (device->peak_flops[t] > 0)
            str_print(&s, "%s%s", s.n > 0 ? ", " : "", dtype_name((DType)t));
    if (s.n > 0) diag_hint(draft->d, "it can compute in %s", str_text(&s));
}

/* Checks the dtypes of fsdp2 { mp = ... }, which replace those of `precision`, by the rules for
 * `precision`. */
static void check_policy(Draft *draft, uint32_t pass)
{
    const MpPolicy *mp = &draft->config.passes[pass].fsdp2.mp;
    const double *peak = draft->config.cluster.device.peak_flops;
    const char *const names[] = {"param", "output"};
    const DType types[] = {mp->param, mp->output};
    for (int i = 0; i < 2; i++) {
        if (!types[i] || peak[types[i]] > 0) continue;
        const char *path = arena_print(draft->arena, "fsdp2.mp.%s", names[i]);
        Loc loc =
            draft_loc(draft, arena_print(draft->arena, "parallel.%u.mp.%s", pass + 1, names[i]));
        dtype_unsupported(draft, loc, path, types[i]);
    }
    if (mp->param != DT_f16 && mp->reduce != DT_f16) return;
    diag_warning(draft->d, "fp16-unscaled", draft->config.passes[pass].loc,
                 "small gradients become 0 in fp16, because this version has no loss scaling");
    diag_hint(draft->d, "use bf16");
}

static void check_precision(Draft *draft)
{
    static const char *const names[] = {"param", "compute", "reduce"};
    const Config *c = &draft->config;
    const DType types[] = {c->param, c->compute, c->reduce};
    if (!draft_has(draft, "cluster.device.peak_flops")) return;
    const double *peak = c->cluster.device.peak_flops;
    for (int i = 1; i < 3; i++) {
        if (peak[types[i]] > 0 || (i == 2 && !c->cluster.is_local)) continue;
        const char *path = arena_print(draft->arena, "precision.%s", names[i]);
        dtype_unsupported(draft, draft_loc(draft, path), path, types[i]);
    }
    draft_check_float8(draft);
    check_nccl(draft);
    for (uint32_t i = 0; i < c->n_passes; i++)
        if (c->passes[i].name == PASS_fsdp2) check_policy(draft, i);
    if (c->compute == DT_f16 || c->reduce == DT_f16) {
        diag_warning(
            draft->d, "fp16-unscaled",
            draft_loc(draft, c->compute == DT_f16 ? "precision.compute" : "precision.reduce"),
            "small gradients become 0 in fp16, because this version has no loss scaling");
        diag_hint(draft->d, "use bf16");
    }
    if (dtype_bytes(c->reduce) < dtype_bytes(c->compute) && draft_has(draft, "precision.reduce")) {
        diag_warning(
            draft->d, "precision-reduce", draft_loc(draft, "precision.reduce"),
            "gradients are computed in %s, but summed over ranks in %s, which is less exact",
            dtype_name(c->compute), dtype_name(c->reduce));
    }
}

static void check_optimizer(Draft *draft)
{
    const Optimizer *o = &draft->config.optimizer;
    static const char *const adam_only[] = {"optimizer.beta1", "optimizer.beta2", "optimizer.eps",
                                            "optimizer.state", "optimizer.rounding"};
    for (int i = 0; o->kind == OPTIMIZER_sgd && i < 5; i++)
        if (draft_has(draft, adam_only[i]))
            diag_error(draft->d, FAULT_input, "unknown-key", draft_loc(draft, adam_only[i]),
                       "unknown key '%s' in sgd{}", strchr(adam_only[i], '.') + 1);
    if (o->rounding == ROUNDING_stochastic && draft->config.param != DT_bf16) {
        diag_error(
            draft->d, FAULT_input, "rounding-dtype", draft_loc(draft, "optimizer.rounding"),
            "rounding = \"stochastic\" is only for weights in bf16, but they are stored in %s",
            dtype_name(draft->config.param));
        diag_hint(draft->d, "set precision.param = \"bf16\", or leave out rounding");
    }
    static const char *const below_one[] = {"optimizer.beta1", "optimizer.beta2"};
    const double beta[] = {o->beta1, o->beta2};
    for (int i = 0; i < 2; i++)
        if (beta[i] >= 1)
            diag_error(draft->d, FAULT_input, "out-of-range", draft_loc(draft, below_one[i]),
                       "%s = %g must be below 1, because the average would never change",
                       below_one[i], beta[i]);
    /* a smaller eps would become 0 in fp32 */
    if (o->kind == OPTIMIZER_adamw && o->eps < 1e-37)
        diag_error(draft->d, FAULT_input, "out-of-range", draft_loc(draft, "optimizer.eps"),
                   "optimizer.eps = %g must be at least 1e-37, because a weight without a gradient "
                   "would become 0 / 0",
                   o->eps);
    if (o->lr <= 0)
        diag_error(draft->d, FAULT_input, "out-of-range", draft_loc(draft, "optimizer.lr"),
                   "optimizer.lr = %g must be more than 0", o->lr);
    if (o->total_steps > 0 && o->warmup_steps > o->total_steps)
        diag_error(draft->d, FAULT_input, "out-of-range",
                   draft_loc(draft, "optimizer.warmup_steps"),
                   "warmup_steps = %lld is more than total_steps = %lld",
                   (long long)o->warmup_steps, (long long)o->total_steps);
}

/* Reports options of pp{} that have no effect: `round` without layers_per_stage, an empty `split`.
 */
static void check_idle(Draft *draft, const PpOptions *pp, Loc loc)
{
    if (pp->round && !pp->layers_per_stage) {
        diag_error(draft->d, FAULT_input, "pp-layers-per-stage", loc,
                   "pp.round has no effect without layers_per_stage");
        diag_hint(draft->d, "add layers_per_stage, or leave out round");
    }
    if (pp->has_split && !pp->n_split) {
        diag_error(draft->d, FAULT_input, "pp-split", loc, "pp.split is an empty list");
        diag_hint(draft->d, "leave out split to get equal stages");
    }
}

/* Sets pp->chunks, the number of stages on each rank, if the user gave none: from the stages in a
 * CSV schedule, otherwise the least that the schedule allows. Reports contradictions between
 * chunks, layers_per_stage, split and the CSV file. */
static void fill_chunks(Draft *draft, PpOptions *pp, Loc loc)
{
    check_idle(draft, pp, loc);
    uint32_t p = config_ranks(&draft->config, axes_with(AXIS_STAGES)), n_stages = 0;
    for (uint32_t r = 0; r < pp->own.n; r++)
        for (uint32_t i = 0; i < pp->own.at[r].actions.n; i++)
            if (pp->own.at[r].actions.at[i].stage >= n_stages)
                n_stages = pp->own.at[r].actions.at[i].stage + 1;
    if (pp->csv && p > 1 && (n_stages % p != 0 || (pp->chunks && pp->chunks * p != n_stages))) {
        diag_error(draft->d, FAULT_input, "pp-stages", loc,
                   "the schedule in %s has %u stages, which %s pp = %u", pp->csv, n_stages,
                   pp->chunks ? arena_print(draft->arena, "are not chunks = %u x", pp->chunks)
                              : "are not a multiple of",
                   p);
        diag_hint(draft->d, n_stages % p == 0 ? "leave out chunks" : "stages are numbered from 0");
    }
    const char *other = pp->is_own    ? "a schedule of your own"
                        : pp->chunks  ? "chunks"
                        : pp->n_split ? "split"
                                      : NULL;
    if (pp->layers_per_stage && other) {
        diag_error(draft->d, FAULT_input, "pp-layers-per-stage", loc,
                   "pp: layers_per_stage = %u and %s exclude each other, because both set the "
                   "number of stages",
                   pp->layers_per_stage, other);
        diag_hint(draft->d, "leave out one of them");
    }
    if (!pp->chunks && pp->csv && p > 0 && n_stages >= p) pp->chunks = n_stages / p;
    if (!pp->chunks) pp->chunks = pp->is_own ? 1 : schedule_traits(pp->schedule).least_chunks;
}

/* For the cluster local_cpu: sets memory and cores to those of this machine. */
static void fill_local(Config *c)
{
    if (!c->cluster.is_local) return;
    long pages = sysconf(_SC_PHYS_PAGES);
    long page = sysconf(_SC_PAGESIZE);
    if (c->cluster.cores_per_node == 0) c->cluster.cores_per_node = cores_online();
    if (c->cluster.host_memory_bytes == 0 && pages > 0 && page > 0)
        c->cluster.host_memory_bytes = (uint64_t)pages * (uint64_t)page;
    if (c->cluster.device.memory_bytes == 0 && pages > 0 && page > 0)
        c->cluster.device.memory_bytes =
            (uint64_t)pages * (uint64_t)page / c->cluster.devices_per_node;
}

bool draft_finish(Draft *draft)
{
    Config *c = &draft->config;
    c->model_loc = draft_loc(draft, "model");
    c->mesh_loc = draft_loc(draft, "mesh");
    c->batch_loc = draft_loc(draft, "batch");
    c->precision_loc = draft_loc(draft, "precision");
    draft_take_named(draft, draft_other_axes(draft, -1));
    draft_choose_attention(draft);
    check_missing(draft);
    draft_check_fields(draft);
    check_passes(draft);
    draft_check_lists(draft);
    check_optimizer(draft);
    bool knows_mesh = !draft->unsure && draft_check_mesh(draft);
    for (uint32_t i = 0; i < c->n_passes; i++) {
        fill_chunks(draft, &c->passes[i].pp, c->passes[i].loc);
        if (c->passes[i].name != PASS_compile) continue;
        c->runtime.is_compiled = true;
        c->runtime.compiled = c->passes[i].compile;
    }
    draft_find_scattered(c);
    draft_check_network(draft);
    if (knows_mesh) check_batch(draft);
    if (knows_mesh) fill_local(c);
    check_precision(draft);
    return draft->d->n_errors == draft->n_errors_before;
}
