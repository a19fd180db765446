/* Loads a plan: reads a script (or the text of a plan), compiles it, verifies it, and checks that
 * it fits into memory. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "planner/base/plural.h"
#include "planner/front/check/blame.h"
#include "planner/front/fold.h"
#include "planner/ir/layout/padding.h"
#include "planner/ir/layout/rows.h"
#include "planner/lower/compile.h"
#include "planner/lower/expand.h"
#include "planner/verify/fit.h"
#include "session/reuse.h"

enum { MOST_TEXT_BYTES = 1 << 30 };

bool session_is_text(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot != NULL && (strcmp(dot, ".plan") == 0 || strcmp(dot, ".txt") == 0);
}

static bool read_file(const char *path, Str *out, Diag *d)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return diag_error(d, FAULT_input, "plan-open", (Loc){NULL, 0}, "cannot open %s: %s", path,
                          strerror(errno));
    char block[65536];
    size_t n = 0;
    bool fine = true;
    while (fine && (n = fread(block, 1, sizeof block, file)) > 0) {
        str_add_bytes(out, block, n);
        if (out->n > MOST_TEXT_BYTES)
            fine = diag_error(d, FAULT_input, "plan-open", (Loc){NULL, 0},
                              "%s is longer than 1 GiB", path);
    }
    if (fine && ferror(file))
        fine = diag_error(d, FAULT_input, "plan-open", (Loc){NULL, 0}, "cannot read %s: %s", path,
                          strerror(errno));
    fclose(file);
    return fine;
}

/* Loads the cluster of --cluster for a plan that was read from text, because such a text has no
 * cluster. */
static void named_cluster(PlanFile *file, const PlanOptions *o, uint32_t n_ranks, Arena *arena,
                          Diag *d)
{
    uint32_t nodes = o->nodes;
    Cluster one;
    if (!front_cluster(o->cluster, nodes > 0 ? nodes : 1, arena, &one, d)) return;
    if (nodes == 0 && one.devices_per_node > 0) {
        uint32_t need = (n_ranks + one.devices_per_node - 1) / one.devices_per_node;
        if (need > 1 && !front_cluster(o->cluster, need, arena, &one, d)) return;
    }
    uint64_t world = (uint64_t)one.nodes * one.devices_per_node;
    if (nodes > 0 && !one.is_local && world != n_ranks) {
        diag_error(d, FAULT_input, "mesh-product", (Loc){NULL, 0},
                   "the plan has %" PRIu32 " rank%s, but the cluster has %" PRIu32
                   " node%s x %" PRIu32 " = %" PRIu64 " devices",
                   n_ranks, str_s(n_ranks), one.nodes, str_s(one.nodes), one.devices_per_node,
                   world);
        diag_hint(d, "leave out --nodes to get as many nodes as the ranks need");
        return;
    }
    file->config.cluster = one;
    file->has_cluster = true;
}

static PlanFile *load_text(const char *path, const PlanOptions *o, Arena *arena, Diag *d)
{
    if (o->n_set > 0 || o->seed != NULL) {
        diag_error(d, FAULT_usage, "option-value", (Loc){NULL, 0},
                   "--set and --seed work only with a script, but %s is the text of a plan", path);
        return NULL;
    }
    Str text = str_in(arena);
    if (!read_file(path, &text, d)) return NULL;
    PlanFile *file = arena_alloc(arena, sizeof *file);
    file->path = file->config.file = path;
    file->is_text = true;
    Diag seals = diag_in(arena);
    file->plan = text_parse_sealed(path, str_text(&text), text.n, arena, d, &seals);
    if (file->plan == NULL) return NULL;
    if (seals.n_errors > 0) {
        /* report seals after the verification: its errors say what is wrong, a seal only that some
         * value was changed */
        if (verify_plan(file->plan, VERIFY_all, true, d)) diag_add_all(d, &seals);
        return NULL;
    }
    file->config.seed = file->plan->step.seed;
    if (o->cluster != NULL) named_cluster(file, o, file->plan->mesh.n_ranks, arena, d);
    return d->n_errors == 0 ? file : NULL;
}

bool session_read(const char *path, const PlanOptions *o, Arena *arena, Config *config,
                  Graph *graph, Diag *d)
{
    FrontOptions front = {.set = o->set,
                          .n_set = o->n_set,
                          .shrink = o->shrink,
                          .cpu_seconds = o->cpu_seconds,
                          .cluster = o->cluster,
                          .nodes = o->nodes};
    memset(graph, 0, sizeof *graph);
    memset(config, 0, sizeof *config);
    config->file = path;
    const bool held = o->script != NULL && !o->shrink;
    const uint32_t before = d->items.n;
    bool fine = held ? front_load_held(o->script, &front, arena, config, graph, d)
                     : front_load_text(path, o->code, &front, arena, config, graph, d);
    if (o->made_of != NULL) *o->made_of = recipe_of(config, o, arena);
    if (!fine) front_blame_settings(o->set, o->n_set, before, d);
    if (!fine) return false;
    if (o->seed != NULL) config->seed = *o->seed;
    return true;
}

/* For the plan with few micro-batches: builds the programs of all micro-batches if a simulation
 * needs them (file->whole), and finds out whether results for the short plan hold for the whole
 * step (file->unsettled). */
static void lengthen(PlanFile *file, const Config *config, const PlanOptions *o, Arena *arena)
{
    file->unsettled = !o->unplaced && !session_settled(file->plan);
    if (o->by_period || file->unsettled) return;
    /* the short and the whole step have different schedules, so their programs differ */
    if (!plan_expands_from(config, file->microbatches)) return;
    file->whole = plan_expand(file->plan, file->microbatches, arena, NULL);
    file->unsettled = file->whole == NULL;
}

/* Compiles the plan into file->plan, in `arena`. After an error, file->plan remains NULL. */
static void make_plan(PlanFile *file, Planned *planned, Graph *graph, const PlanOptions *o,
                      const LowerOptions *lower, Arena *arena, Diag *d)
{
    Graph own;
    if ((o->script != NULL && !o->shrink) || o->fewer > 0) {
        own = graph_copy(graph, arena);
        graph = &own;
    }
    if (o->fewer > 0) {
        file->microbatches = session_microbatches(&planned->config);
        session_set_microbatches(&planned->config, graph, o->fewer, arena);
    }
    file->plan = plan_compile_planned(planned, graph, lower, o->stop_after, arena, d);
    if (o->fewer > 0 && file->plan != NULL) lengthen(file, &planned->config, o, arena);
}

static LowerOptions lower_options(const Config *config, const PlanOptions *o)
{
    LowerOptions lower = lower_options_default();
    if (o->workspace != NULL)
        lower.workspace = o->workspace;
    else if (config->cluster.is_local)
        lower.workspace = kernel_cpu_workspace;
    if (o->shrink) lower.dtypes = o->dtypes != NULL ? *o->dtypes : dtype_map_all(DT_f64);
    lower.parent = o->parent;
    lower.unplaced = o->unplaced;
    lower.unpadded = o->unpadded;
    /* with by_period, only times are needed, not the programs of all micro-batches */
    if (o->fewer > 0 && !o->by_period) lower.microbatches = session_microbatches(config);
    return lower;
}

/* Uses the plan in the entry `kept` of the list of reusable plans (reuse.h). If the entry is empty,
 * first compiles the plan into it. */
static void take_kept(PlanFile *file, KeptPlan *kept, Planned *planned, Graph *graph,
                      const PlanOptions *o, const LowerOptions *lower, Diag *d)
{
    if (!kept->known) make_plan(&kept->file, planned, graph, o, lower, kept->arena, &kept->told);
    kept->known = kept->file.plan != NULL;
    file->plan = kept->file.plan;
    file->microbatches = kept->file.microbatches;
    file->whole = kept->file.whole;
    file->unsettled = kept->file.unsettled;
    file->kept = kept;
    diag_add_all(d, &kept->told);
}

PlanFile *session_compile(const Config *config, Graph *graph, const PlanOptions *o, Arena *arena,
                          Diag *d)
{
    PlanFile *file = arena_alloc(arena, sizeof *file);
    *file = (PlanFile){.path = config->file, .has_cluster = true, .config = *config};
    file->memory = arena_alloc(arena, sizeof *file->memory);
    file->ahead = arena_alloc(arena, sizeof *file->ahead);
    const LowerOptions lower = lower_options(config, o);
    Planned *planned = arena_alloc(arena, sizeof *planned);
    config_planned(config, planned);
    const uint32_t before = d->items.n;
    KeptPlan *kept = reuse_find(o, &lower, planned, graph, arena);
    if (kept != NULL)
        take_kept(file, kept, planned, graph, o, &lower, d);
    else
        make_plan(file, planned, graph, o, &lower, arena, d);
    plan_place_diagnostics(config, d, before);
    front_blame_settings(o->set, o->n_set, before, d);
    return file->plan != NULL ? file : NULL;
}

static bool is_padded(const Plan *plan)
{
    for (DealId i = 1; i < plan->graph.deals.deals.n; i++)
        if (deal_is_padded(&plan->graph.deals, i) && !deal_is_rows(&plan->graph.deals, i))
            return true;
    return false;
}

/* The runtime changes the passes only in two ways. Its profile sets keep_gathered and
 * float8.keep_quantised if the plan does not (child_runtime_defaults). And the passes float8,
 * compile and pad depend on whether a runtime is named. */
bool session_same_program(const Config *a, const Plan *plan, const Config *b)
{
    if (!a->runtime.name != !b->runtime.name && (a->runtime.name || is_padded(plan))) return false;
    return session_same_passes(a, b);
}

bool session_same_passes(const Config *a, const Config *b)
{
    if (a->n_passes != b->n_passes) return false;
    for (uint32_t i = 0; i < a->n_passes; i++) {
        const PassConfig *x = &a->passes[i], *y = &b->passes[i];
        if (x->name != y->name || x->tp.keep_gathered != y->tp.keep_gathered) return false;
        if (x->name == PASS_float8 || x->name == PASS_compile) return false;
    }
    return true;
}

void session_identify(PlanFile *file)
{
    KeptPlan *kept = file->kept;
    if (kept != NULL && file != &kept->file) {
        if (kept->file.id.hi == 0 && kept->file.id.lo == 0) session_identify(&kept->file);
        file->id = kept->file.id;
        return;
    }
    Arena *scratch = arena_new();
    file->id = text_plan_id(file->plan, scratch);
    /* a whole plan with as many micro-batches as this short plan must get another id */
    if (file->microbatches > 0) {
        const char *whole =
            arena_print(scratch, "%s %" PRIu32, hash_hex(scratch, file->id), file->microbatches);
        file->id = hash_bytes(whole, strlen(whole));
    }
    arena_free(scratch);
}

/* For a reusable plan: verifies it and computes its id at its first use. At each use, reports the
 * verifier's errors, and checks that the plan fits this cluster. */
static void judge_kept(PlanFile *file, const PlanOptions *o, Arena *arena, Diag *d)
{
    KeptPlan *kept = file->kept;
    if (!kept->judged) {
        /* an earlier attempt may have run out of memory half-way */
        kept->proofs = diag_in(kept->arena);
        kept->proven = verify_plan(kept->file.plan, VERIFY_all, false, &kept->proofs);
        kept->judged = true;
    }
    diag_add_all(d, &kept->proofs);
    file->proven = kept->proven;
    if (kept->proven && !o->unfitted) session_fit(file, arena, d);
    session_identify(file);
}

/* Verifies a plan that was just loaded, checks that it fits, and computes its id. */
static PlanFile *judge(PlanFile *file, const PlanOptions *o, Arena *arena, Diag *d)
{
    if (o->stop_after != NULL || o->unproven) return file;
    if (file->kept != NULL) {
        judge_kept(file, o, arena, d);
        return file;
    }
    if (o->settles_later && !file->is_text)
        session_begin_proof(file, o->unfitted, arena);
    else
        file->proven = session_prove(file, o->unfitted, arena, d);
    if (file->plan->programs.n == 0)
        return NULL; /* the text contains no programs, which was reported */
    session_identify(file);
    return file;
}

PlanFile *session_finish(const Config *config, Graph *graph, const PlanOptions *o, Arena *arena,
                         Diag *d)
{
    PlanFile *file = session_compile(config, graph, o, arena, d);
    if (file == NULL) return NULL;
    file->recipe = recipe_of(config, o, arena);
    /* results for this short plan do not hold for the whole step */
    if (file->unsettled) return file;
    return judge(file, o, arena, d);
}

static PlanFile *load_script(const char *path, const PlanOptions *o, Arena *arena, Diag *d)
{
    Config *config = arena_alloc(arena, sizeof *config);
    Graph graph;
    const uint32_t first = d->items.n;
    if (!session_read(path, o, arena, config, &graph, d)) {
        if (o->tries_hints && config->fills.n > 0) session_try_fillings(path, o, config, first, d);
        return NULL;
    }
    if (o->after_read != NULL) o->after_read(o->self, config);
    return session_finish(config, &graph, o, arena, d);
}

PlanFile *session_load(const char *path, const PlanOptions *o, Arena *arena, Diag *d)
{
    bool is_text = o->code == NULL && session_is_text(path);
    if (is_text && (o->shrink || o->stop_after != NULL)) {
        diag_error(d, FAULT_usage, "needs-script", (Loc){NULL, 0},
                   "%s is the text of a plan, but this command needs the script", path);
        return NULL;
    }
    if (!is_text) return load_script(path, o, arena, d);
    PlanFile *file = load_text(path, o, arena, d);
    return file != NULL ? judge(file, o, arena, d) : NULL;
}

const char *session_text(const PlanFile *file, Arena *arena)
{
    Str text = str_in(arena);
    text_print(file->plan, TEXT_WITH_LOCATIONS, &text);
    return str_text(&text);
}

bool session_mesh(const char *path, const PlanOptions *o, Arena *arena, Config *config, Mesh *mesh,
                  Diag *d)
{
    Graph graph;
    if (session_is_text(path)) {
        const PlanFile *file = load_text(path, o, arena, d);
        if (file == NULL) return false;
        *config = file->config;
        *mesh = file->plan->mesh;
        return true;
    }
    const uint32_t first = d->items.n;
    memset(config, 0, sizeof *config);
    if (!session_read(path, o, arena, config, &graph, d)) {
        if (o->tries_hints && config->fills.n > 0) session_try_fillings(path, o, config, first, d);
        return false;
    }
    *mesh = config_mesh(config);
    return true;
}
