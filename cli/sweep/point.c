/* Decides points in one of several processes. Each process stores a prediction as soon as it has
 * one. If the sweep is killed, the store keeps these predictions, and the same command goes on from
 * them. A point that was decided before is looked up. Its key consists of the settings, the build
 * and the measured costs; the scripts are compared by content. No script runs for it. */
#include "cli/sweep/point.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cli/predict.h"
#include "cli/sweep/jobs.h"
#include "planner/base/cores.h"
#include "planner/base/log.h"
#include "planner/base/parallel.h"

/* A process that simulates points. */
typedef struct Decider {
    const PointJob *job;
    Store *store;        /* where results are stored; NULL: nowhere */
    Arena *kept;         /* memory that is not freed between points */
    FrontScript *script; /* the plan's script, which stays open for all points */
    PlanReuse *reuse;    /* plans that points share; NULL: no two points share one */
    KnownScripts scripts;
    const char *context; /* the part of a point's key that is the same for all points */
    const char *build;
    BestPlan best;        /* the fastest plan of this process, if job->proves_best */
    const char *no_store; /* the reason why this process cannot open the store; NULL: it can */
} Decider;

/* Returns the first error that explains why a point has no numbers. If there is none, returns the
 * first error "does not fit". */
static const Diagnostic *first_error(const Diag *d, bool infeasible)
{
    for (uint32_t i = 0; i < d->items.n; i++)
        if (d->items.at[i].severity == SEVERITY_error &&
            (d->items.at[i].fault == FAULT_infeasible) == infeasible)
            return &d->items.at[i];
    return NULL;
}

/* Compiles and simulates a point. Proves it unless job->unproven. Returns false after diagnostics,
 * or if the plan has too few micro-batches to compute the time of the whole step. */
static bool predict_point(const Decider *decider, Cli *one, const Config *config, Graph *graph,
                          const PlanOptions *load, PlanFile **file, Prediction *prediction)
{
    PredictOptions options;
    Scenario scenario;
    *file = session_finish(config, graph, load, one->arena, &one->diag);
    if (*file != NULL && load->unproven) {
        session_fit(*file, one->arena, &one->diag);
        session_identify(*file);
    }
    if (*file == NULL || first_error(&one->diag, false) != NULL ||
        !scenario_read(one, *file, &scenario) ||
        !predict_options(one, *file, decider->store, &scenario, &options))
        return false;
    options.unkeyed = decider->store == NULL;
    return predict(one, *file, decider->store, &options, true, prediction);
}

/* Adds the speed of a fitting point to the list of best speeds. A search will probably report such
 * a point, so its plan is proven now. If the proof fails, the search repeats and reports it. */
static void enter(const Decider *decider, Cli *one, const PlanFile *file, json_t *row)
{
    const PointJob *job = decider->job;
    if (job->best == NULL) return;
    const double speed = json_number_value(json_object_get(row, "tokens_per_s"));
    Diag ignored = diag_in(one->arena); /* a failed proof is reported later */
    if (job->unproven && speed >= best_least(job->best) &&
        session_prove(file, true, one->arena, &ignored)) {
        json_put(row, "proven", json_true());
        if (decider->store != NULL)
            store_put_proof(decider->store, file->id, decider->build, &one->diag);
    }
    best_enter(job->best, speed);
}

/* The data that decide() needs in addition to the answer for a point. */
typedef struct Made {
    Recipe recipe;        /* its settings and scripts */
    bool unstored;        /* the run could not be stored */
    const PlanFile *file; /* its plan, if it fits; NULL: it does not, or other points share it */
} Made;

/* Makes the answer for a point: loads, compiles and simulates it as `sim` does. */
static json_t *answer_of(const Decider *decider, Cli *one, uint32_t index, Made *made)
{
    json_t *row = json_object();
    if (bounds_known_decide(decider->job, one, index, row)) return row;
    const PlanOptions given = {.made_of = &made->recipe,
                               .unproven = decider->job->unproven,
                               .script = decider->script,
                               .reuse = decider->reuse};
    PlanOptions load = plan_file_options(one, &given);
    Config *config = arena_alloc(one->arena, sizeof *config);
    Graph graph;
    PlanFile *file = NULL;
    Prediction prediction = {.aperiodic = false};
    bool predicted = false;
    if (session_read(decider->job->path, &load, one->arena, config, &graph, &one->diag)) {
        if (decider->job->bounded &&
            bounds_decide(decider->job, one, config, &graph, &load, index, row))
            return row;
        const Diag before = one->diag;
        load.fewer = one->options.exact ? 0 : session_fewer(config, false);
        predicted = predict_point(decider, one, config, &graph, &load, &file, &prediction);
        if (prediction.aperiodic) {
            one->diag = before; /* the whole plan would give the same result */
            load.fewer = 0;
            predicted = predict_point(decider, one, config, &graph, &load, &file, &prediction);
        }
    }
    const Diagnostic *error = first_error(&one->diag, false);
    bool refused = file == NULL || error != NULL;
    if (predicted) {
        const Diagnostic *failure = first_error(&one->diag, false);
        predict_fits(one, file, &prediction);
        const uint64_t held = prediction.held.process_bytes;
        if (held > 0) prediction.record.peak_bytes = held;
        point_prediction(row, one, file, &prediction);
        if (first_error(&one->diag, true) == NULL) enter(decider, one, file, row);
        if (file->proven) json_put(row, "proven", json_true());
        made->unstored = failure != NULL;
        if (failure != NULL) json_text(row, "unstored", failure->text);
    } else if (!refused) {
        refused = true;
        error = first_error(&one->diag, false);
    }
    if (!refused) error = first_error(&one->diag, true);
    if (!refused && error == NULL && file->kept == NULL) made->file = file;
    if (refused && error != NULL && (error->fault == FAULT_internal || error->fault == FAULT_store))
        json_count(row, "failed", error->fault);
    point_status(row,
                 refused         ? SWEEP_refused
                 : error != NULL ? SWEEP_too_large
                                 : SWEEP_fits,
                 error);
    if (!refused) point_warnings(row, &one->diag);
    return row;
}

/* Returns the hash of everything on which an answer depends, except the scripts. */
static Hash128 key_of(const Decider *decider, const Cli *one)
{
    const PlanOptions given = {.set = one->options.set.at,
                               .n_set = one->options.set.n,
                               .cluster = one->options.cluster,
                               .nodes = one->options.n_nodes,
                               .seed = one->options.seed_text != NULL ? &one->options.seed : NULL};
    Str key = str_in(one->arena);
    str_add(&key, decider->context);
    str_add(&key, recipe_head(decider->job->path, &given, one->arena));
    return hash_bytes(str_text(&key), key.n);
}

/* Returns true if an answer from the store has all numbers that a table reads, with possible
 * values. Another program may have written it. */
static bool is_answer(const json_t *row)
{
    const json_int_t status = json_integer_value(json_object_get(row, "status"));
    if (!json_is_object(row) || !json_is_integer(json_object_get(row, "status")) || status < 0 ||
        status > SWEEP_bounded)
        return false;
    if (status != SWEEP_fits) return true;
    return json_integer_value(json_object_get(row, "step_ps")) > 0 &&
           json_integer_value(json_object_get(row, "ranks")) > 0 &&
           json_integer_value(json_object_get(row, "peak_bytes")) > 0;
}

/* True if the answer can be used although proofs were asked for: its plan is proven, or the point
 * has no prediction. A plan that does not fit does have a prediction, so it needs a proof, too. */
static bool is_judged(const json_t *row)
{
    const json_int_t status = json_integer_value(json_object_get(row, "status"));
    return (status != SWEEP_fits && status != SWEEP_too_large) ||
           json_is_true(json_object_get(row, "proven"));
}

static json_t *found_answer(Decider *decider, const Cli *one, Hash128 key, Diag *d)
{
    FoundAnswer found;
    if (!store_find_answer(decider->store, key, one->arena, &found, d)) return NULL;
    if (!recipe_is_fresh(&decider->scripts, &found, decider->job->path, decider->kept)) return NULL;
    json_t *row = json_loads(found.answer, 0, NULL);
    if (is_answer(row) && (decider->job->unproven || is_judged(row))) return row;
    json_decref(row);
    return NULL;
}

/* Stores an answer. It is not stored if the scripts did not run to their end. The list of scripts
 * is then incomplete, so a later command could not tell whether they have changed. */
static void keep_answer(const Decider *decider, Cli *one, Hash128 key, Recipe *recipe,
                        const json_t *row)
{
    if (recipe->scripts.n == 0) return;
    recipe_read_scripts(recipe, decider->store, one->arena, &one->diag);
    char *text = json_dumps(row, JSON_COMPACT);
    store_put_answer(decider->store, key, recipe, json_integer_value(json_object_get(row, "run")),
                     decider->build, text, &one->diag);
    free(text);
}

/* Makes a copy of the command for one point. Its results do not go to the output of the sweep. */
static void begin_point(const PointJob *job, Arena *arena, Cli *one)
{
    *one = *job->cli;
    one->arena = arena;
    one->diag = diag_in(arena);
    one->out = str_in(arena);
    one->json = NULL;
}

/* Sets the settings of --set and of the point. */
static void settings_of_point(const PointJob *job, uint32_t index, Cli *one)
{
    one->options.set = (TextList){NULL, 0, 0};
    const TextList *all[] = {&job->cli->options.set, &job->settings[index]};
    for (uint32_t l = 0; l < 2; l++)
        for (uint32_t i = 0; i < all[l]->n; i++)
            list_push(one->arena, &one->options.set, all[l]->at[i]);
}

/* Makes the answer for one point, and writes it as one line of JSON. Returns true if
 * decider->best has taken the plan, which is in `arena`. */
static bool decide(Decider *decider, uint32_t index, Arena *arena, FILE *out)
{
    const PointJob *job = decider->job;
    Cli one;
    begin_point(job, arena, &one);
    settings_of_point(job, index, &one);
    const bool stored = decider->store != NULL;
    const Hash128 key = stored ? key_of(decider, &one) : (Hash128){0, 0};
    bool failed = false;
    Made made = {.recipe = {.head = ""}};
    json_t *row = stored ? found_answer(decider, &one, key, &one.diag) : NULL;
    if (row == NULL) {
        row = answer_of(decider, &one, index, &made);
        /* an answer that a time bound gave depends on the other points, so it is not stored */
        const json_t *error = json_object_get(row, "error");
        const char *rule = json_string_value(json_object_get(error, "rule"));
        const bool open = json_integer_value(json_object_get(row, "status")) == SWEEP_open;
        failed = json_object_get(row, "failed") != NULL;
        if (failed || open || (rule != NULL && strcmp(rule, "bound-time") == 0))
            made.unstored = true;
        if (stored && !made.unstored) keep_answer(decider, &one, key, &made.recipe, row);
    } else {
        json_put(row, "found", json_true());
    }
    const double speed = json_number_value(json_object_get(row, "tokens_per_s"));
    if (json_integer_value(json_object_get(row, "status")) == SWEEP_fits) {
        if (json_object_get(row, "found") != NULL) best_enter(job->best, speed);
        best_enter(job->fastest, speed);
    }
    json_count(row, "index", index);
    if (decider->no_store != NULL) json_text(row, "unstored", decider->no_store);
    if (job->sweep != 0 && stored && !failed)
        sweep_put_point(decider->store, job->sweep, index, &job->settings[index],
                        json_integer_value(json_object_get(row, "run")),
                        (SweepStatus)json_integer_value(json_object_get(row, "status")), arena,
                        &one.diag);
    json_dumpf(row, out, JSON_COMPACT);
    fputc('\n', out);
    log_debug("%" PRIu32 " of %" PRIu32 ": status %d", index + 1, job->n,
              (int)json_integer_value(json_object_get(row, "status")));
    const bool is_best = job->fastest != NULL && made.file != NULL && speed > decider->best.speed;
    if (is_best) {
        json_decref(decider->best.row);
        decider->best = (BestPlan){decider->best.arena,
                                   made.file,
                                   made.recipe,
                                   key,
                                   speed,
                                   made.unstored ? NULL : json_incref(row)};
    }
    json_decref(row);
    return is_best;
}

/* Adds lines to the best plan's answer: the predictions for this plan under other frameworks. Adds
 * none if they need a plan with all micro-batches. */
static void add_best_lines(const Decider *decider, Cli *one, Recipe *recipe)
{
    const BestPlan *best = &decider->best;
    if (best->file->config.runtime.name != NULL && best->file->microbatches > 0) return;
    const json_t *index = json_object_get(best->row, "index");
    settings_of_point(decider->job, (uint32_t)json_integer_value(index), one);
    one->script = decider->script;
    const char *text = best_found(one, decider->job->path, decider->store);
    if (text == NULL) {
        /* this process has no more points, so it may use several threads */
        parallel_allow(jobs_number(one->options.jobs, MOST_JOBS));
        text = best_lines_of(one, best->file, recipe, decider->store);
    }
    json_text(best->row, "best_lines", text);
}

/* Proves the fastest plan of this process, unless another process has a faster one, and writes its
 * answer once more. If the proof has anything to report, nothing is written: sweep_prove() then
 * proves the plan again, and reports it. */
static void prove_best(const Decider *decider, FILE *out)
{
    const BestPlan *best = &decider->best;
    if (best->row == NULL || best_most(decider->job->fastest) > best->speed) return;
    Cli one;
    begin_point(decider->job, best->arena, &one);
    if (!session_prove(best->file, true, one.arena, &one.diag) || one.diag.items.n > 0) return;
    json_put(best->row, "proven", json_true());
    Recipe recipe = best->recipe;
    if (decider->store != NULL) {
        store_put_proof(decider->store, best->file->id, decider->build, &one.diag);
        keep_answer(decider, &one, best->key, &recipe, best->row);
    }
    if (decider->job->prints_best) add_best_lines(decider, &one, &recipe);
    json_dumpf(best->row, out, JSON_COMPACT);
    fputc('\n', out);
}

/* Gives the memory of the newest plan to decider->best, and returns other memory for the next
 * point. */
static Arena *hand_over(BestPlan *best, Arena *arena)
{
    Arena *spare = best->arena;
    best->arena = arena;
    if (spare == NULL) return arena_new();
    arena_reset(spare);
    return spare;
}

/* Returns the name of this machine. It contains the BLAS library only if the store has measured
 * costs. Other costs do not depend on this library, and loading it takes long. */
static const char *machine_of(const Decider *decider, Diag *d)
{
    if (measured_any(decider->store, d)) return machine_key(decider->kept);
    return arena_print(decider->kept, "%s:%u", machine_cpu(decider->kept),
                       (unsigned)cores_online());
}

/* Returns the part of a point's key that is the same for all points of this process. */
static const char *context_of(const Decider *decider, Diag *d)
{
    const Options *o = &decider->job->cli->options;
    const char *how = decider->job->bounded ? "bounded" : "";
    return arena_print(decider->kept, "%s\nmachine %s\nprice %s\npue %g\ncosts %s\n%s\n%s%s\n",
                       decider->build, o->machine != NULL ? o->machine : "",
                       o->price_text != NULL ? o->price_text : "", o->pue, machine_of(decider, d),
                       hash_hex(decider->kept, measured_state(decider->store, d)), how,
                       o->exact ? " exact" : "");
}

void points_work(void *self, const Worker *worker)
{
    const PointJob *job = self;
    Arena *kept = arena_new(), *arena = arena_new();
    Diag diag = diag_in(kept);
    Decider decider = {.job = job, .kept = kept, .build = build_name(kept)};
    /* let malloc keep freed memory, because each point needs about as much as the one before */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    const Options *o = &job->cli->options;
    decider.script = front_open(job->path, NULL, 0, kept);
    if (job->n_pieces < job->n_order) decider.reuse = reuse_new(kept);
    if (!o->no_store) decider.store = store_open(o->db, false, &diag);
    if (!o->no_store && decider.store == NULL)
        decider.no_store = diag.n_errors > 0 ? diag.items.at[0].text : "it cannot be opened";
    if (decider.store != NULL) decider.context = context_of(&decider, &diag);
    for (uint32_t p; (p = atomic_fetch_add(job->next, 1)) < job->n_pieces;)
        for (uint32_t i = job->piece[p]; i < job->piece[p + 1]; i++) {
            if (decide(&decider, job->order[i], arena, worker->file))
                arena = hand_over(&decider.best, arena);
            else
                arena_reset(arena);
            job_item_done(worker);
        }
    prove_best(&decider, worker->file);
    json_decref(decider.best.row);
    if (decider.best.arena != NULL) arena_free(decider.best.arena);
    reuse_free(decider.reuse);
    front_close(decider.script);
    store_close(decider.store);
    arena_free(arena);
    arena_free(kept);
}
