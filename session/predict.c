/* Simulates a plan and stores the prediction under a key, so that it is never simulated twice. The
 * key contains all that the simulation reads: the plan's id, the cluster, the scenario, the seed,
 * the engine's version, and a hash of all costs. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "session/needs.h"
#include "session/session.h"
#include "sim/compute/imbalance.h"

const char *cluster_text(Arena *arena, const Cluster *cluster)
{
    return arena_print(arena, "%s, %" PRIu32 " x %" PRIu32, cluster->name, cluster->nodes,
                       cluster->devices_per_node);
}

void hash_to_bytes(Hash128 id, unsigned char bytes[16])
{
    for (int i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)(id.hi >> (56 - 8 * i));
        bytes[8 + i] = (unsigned char)(id.lo >> (56 - 8 * i));
    }
}

static const Plan *simulated(const PlanFile *file)
{
    return file->whole != NULL ? file->whole : file->plan;
}

Held session_held(const PlanFile *file)
{
    KnownHeld *memory = file->memory;
    if (memory != NULL && memory->known) return memory->held;
    const Held held = sim_held(simulated(file), &file->config.cluster, &file->config.runtime);
    if (memory != NULL) *memory = (KnownHeld){true, held};
    return held;
}

Held session_held_uneven(const PlanFile *file, const struct RowLoads *loads, double imbalance)
{
    if (loads == NULL && !(imbalance > 1)) return session_held(file);
    return sim_held_uneven(simulated(file), &file->config.cluster, &file->config.runtime, loads,
                           imbalance);
}

/* True if `how` asks for the default simulation, whose result may already be known: all its bytes
 * are zero, except in members that do not change the result. */
static bool is_plain(const PlanFile *file, const SimOptions *how)
{
    static const SimOptions plain;
    SimOptions rest = *how;
    if (rest.imbalance <= 1) rest.imbalance = 0;
    if (rest.seed == file->config.seed) rest.seed = 0;
    /* without measured costs, the backend changes nothing */
    if (rest.store == NULL) rest.backend = NULL;
    return memcmp(&rest, &plain, sizeof rest) == 0;
}

bool session_simulate(const PlanFile *file, const Cluster *cluster, const SimOptions *how,
                      Arena *arena, SimReport *report, Diag *d)
{
    SimOptions sim = *how;
    if (file->ahead != NULL && file->ahead->known && cluster == &file->config.cluster &&
        is_plain(file, how)) {
        *report = file->ahead->report;
        return true;
    }
    memset(report, 0, sizeof *report);
    report->aperiodic = file->unsettled;
    if (file->unsettled) return true;
    if (sim.runtime == NULL) sim.runtime = &file->config.runtime;
    if (sim.steps == 0) sim.steps = 1;
    if (sim.seed == 0) sim.seed = file->config.seed;
    if (file->whole != NULL)
        sim.placed = file->plan;
    else
        sim.microbatches = file->microbatches;
    Held held;
    if (sim.runtime == &file->config.runtime && sim.runtime->name != NULL && !sim.no_memory &&
        cluster == &file->config.cluster) {
        held = session_held(file);
        sim.held = &held;
    }
    return sim_run(simulated(file), cluster, &sim, arena, report, d);
}

void session_simulate_ahead(const PlanFile *file, Arena *arena)
{
    KnownReport *ahead = file->ahead;
    Diag d = diag_in(arena);
    SimOptions plain;
    memset(&plain, 0, sizeof plain);
    const bool fine =
        session_simulate(file, &file->config.cluster, &plain, arena, &ahead->report, &d);
    /* after an error, session_predict simulates again and reports it */
    ahead->known = fine && d.items.n == 0;
}

static void fill_record(RunRecord *record, const SimReport *report, Arena *arena)
{
    record->status = report->fits ? "ok" : "infeasible";
    record->step_ps = report->step_ps;
    record->compute_ps = report->compute_ps;
    record->exposed_ps = report->exposed_ps;
    record->peak_bytes = report->peak_bytes;
    record->peak_rank = report->peak_rank;
    record->tokens_per_s_per_device = report->tokens_per_s_per_device;
    record->mfu = report->mfu;
    record->mfu_formula = arena_print(arena, "%s, over %s", report->mfu_formula, report->peak_name);
    for (uint32_t i = 0; i < report->collectives.n; i++)
        list_push(arena, &record->collectives, report->collectives.at[i]);
    for (uint32_t i = 0; i < report->memory_rows.n; i++)
        list_push(arena, &record->memory, report->memory_rows.at[i]);
}

static const char key_query[] =
    "SELECT id, EXISTS(SELECT 1 FROM trace WHERE run = id) FROM run WHERE kind = 'predicted' AND "
    "plan = ? AND cluster = ? AND scenario = ? AND backend = ? AND engine = ? AND calibration = ? "
    "AND seed = ?";

/* Finds the stored prediction with the key in out->record. trace: only one whose trace is stored,
 * too. */
static bool find_stored(Store *store, bool trace, Arena *arena, Predicted *out, Diag *d)
{
    const RunRecord *r = &out->record;
    unsigned char plan[16];
    hash_to_bytes(r->plan, plan);
    DbStatement *st =
        db_prepare(store_db(store), d, key_query, "bsssssi", plan, sizeof plan, r->cluster,
                   r->scenario, r->backend, r->engine, r->calibration, (int64_t)r->seed);
    bool there = db_step(st, d);
    int64_t id = there ? db_int(st, 0) : 0;
    bool has_trace = there && db_int(st, 1) != 0;
    db_reset(st);
    if (id == 0 || (trace && !has_trace)) return false;
    RunRecord old;
    memset(&old, 0, sizeof old);
    if (!store_load_run(store, id, arena, &old, NULL, d)) return false;
    out->record = old;
    out->id = id;
    out->found = true;
    return true;
}

static bool simulate(const PlanFile *file, Store *store, const PredictOptions *options,
                     Arena *arena, Predicted *out, Diag *d)
{
    SimOptions sim;
    memset(&sim, 0, sizeof sim);
    sim.unfolded = options->unfolded;
    sim.trace = options->trace;
    sim.exact = options->exact;
    sim.uneven = options->uneven;
    sim.imbalance = options->imbalance;
    sim.loads = options->loads;
    sim.seed = out->record.seed;
    sim.store = options->machine ? store : NULL;
    sim.machine = options->machine;
    sim.backend = options->backend;
    SimReport report;
    if (!session_simulate(file, options->cluster, &sim, arena, &report, d)) return false;
    out->aperiodic = report.aperiodic;
    if (report.aperiodic) return false;
    fill_record(&out->record, &report, arena);
    if (options->trace) {
        Trace *trace = arena_alloc(arena, sizeof *trace);
        *trace = report.trace;
        out->record.trace = trace;
    }
    out->host_bound = report.host_bound;
    out->counts = report.counts;
    out->n_events = report.n_events;
    out->n_classes = report.n_classes;
    return true;
}

const char *session_scenario(Arena *arena, const PredictOptions *options)
{
    const Unevenness *u = options->uneven;
    Str s = str_in(arena);
    if (options->unfolded || u != NULL) str_add(&s, "unfolded");
    if (u != NULL)
        str_print(&s, ", jitter %s, rank %" PRIu32 " x %s", str_exact(arena, u->jitter),
                  u->straggler,
                  str_exact(arena, u->straggler_factor > 1 ? u->straggler_factor : 1.));
    if (options->imbalance > 1)
        str_print(&s, "%sexperts x %s", s.n > 0 ? ", " : "", str_exact(arena, options->imbalance));
    const RowLoads *loads = options->loads;
    if (loads != NULL) {
        const size_t n = (size_t)loads->n_layers * loads->n_ranks;
        const char *hash = hash_hex(arena, hash_bytes(loads->share, n * sizeof *loads->share));
        str_print(&s, "%sby rank #%.8s", s.n > 0 ? " " : "", hash);
    }
    return str_text(&s);
}

PredictOptions session_plain_options(const PlanFile *file)
{
    return (PredictOptions){.cluster = &file->config.cluster, .backend = "", .imbalance = 1};
}

/* Fills in the members of out->record that form the key. */
static void begin(const PlanFile *file, Store *store, const PredictOptions *options, Arena *arena,
                  Predicted *out, Diag *d)
{
    assert(options->cluster != NULL);
    memset(out, 0, sizeof *out);
    RunRecord *record = &out->record;
    Needs needs;
    memset(&needs, 0, sizeof needs);
    assert(!options->unkeyed || store == NULL);
    if (options->machine != NULL && !options->unkeyed)
        needs_find(file->plan, store, options->machine, options->backend, arena, &needs, d);
    record->kind = RUN_predicted;
    record->plan = file->id;
    record->plan_name = file->path;
    record->cluster = cluster_text(arena, options->cluster);
    record->scenario = session_scenario(arena, options);
    record->backend = options->backend;
    record->engine = SIM_ENGINE_VERSION;
    record->calibration =
        options->unkeyed ? ""
                         : calibration_id(options->cluster, &file->config.runtime, &needs, arena);
    record->seed = file->config.seed;
    record->n_ranks = file->plan->mesh.n_ranks;
}

bool session_has_prediction(const PlanFile *file, Store *store, const PredictOptions *options,
                            Arena *arena)
{
    Predicted out;
    Diag ignored = diag_in(arena);
    if (store == NULL) return false;
    begin(file, store, options, arena, &out, &ignored);
    return find_stored(store, options->trace, arena, &out, &ignored);
}

bool session_predict(const PlanFile *file, Store *store, const PredictOptions *options,
                     Arena *arena, Predicted *out, Diag *d)
{
    RunRecord *record = &out->record;
    begin(file, store, options, arena, out, d);
    const uint32_t before = d->n_errors;
    /* do this first: find_stored refuses a prediction whose proof is damaged, and this writes a new
     * proof */
    if (store != NULL && file->proven && options->keep &&
        !store_put_proof(store, file->id, build_name(arena), d))
        return false;
    if (store != NULL && find_stored(store, options->trace, arena, out, d)) return true;
    /* the stored prediction is damaged, which was reported */
    if (d->n_errors > before) return false;
    if (!simulate(file, store, options, arena, out, d)) return false;
    if (store == NULL || !options->keep) return true;
    /* A plan that was loaded from text has no recipe, so its text is stored. Readers of a trace
     * need every instruction, so the text is also stored with a trace. */
    if (file->is_text || options->trace) record->plan_text = session_text(file, arena);
    record->program = file->plan;
    if (file->proven) record->proven_by = build_name(arena);
    Recipe recipe = file->recipe;
    recipe_read_scripts(&recipe, store, arena, d);
    if (!file->is_text) record->recipe = &recipe;
    out->id = store_run(store, record, d);
    /* `recipe` is a local variable */
    record->recipe = NULL;
    return true;
}
