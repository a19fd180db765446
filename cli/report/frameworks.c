/* Predicts how other frameworks would run the plan. If the plan names a runtime, its framework is
 * predicted, and `sim` predicts Tandem's own executor, too. Otherwise each framework that could run
 * the plan is predicted. */
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/predict.h"
#include "planner/base/parallel.h"
#include "sim/sim.h"

typedef struct Profile {
    const char *name;
    PassName pass;
    uint32_t lacks; /* axes that the framework does not support: 1 << AxisName */
} Profile;
static const Profile profiles[] = {
#define PROFILE(name, pass, lacks) {name, pass, lacks},
#include "cli/report/frameworks.def"
#undef PROFILE
};

/* The prediction for one framework. */
typedef struct FrameworkAnswer {
    const char *name;
    Held held;
    Ps step_ps; /* time of a step; 0: not asked for */
    bool could; /* false if the framework cannot run the plan */
    bool is_new;
    Hash128 key; /* the key under which the store has this answer */
    /* the settings and scripts from which the answer was made; if the store had the answer, only
     * the scripts are set */
    Recipe recipe;
} FrameworkAnswer;
typedef LIST(FrameworkAnswer) Answers;

static bool could_run(const Config *c, const Profile *profile)
{
    for (int axis = 0; axis < AXIS_NAMES; axis++)
        if (profile->lacks >> axis & 1 && c->axis_size[axis] > 1) return false;
    for (uint32_t i = 0; i < c->n_passes; i++)
        if (c->passes[i].name == profile->pass) return true;
    return false;
}

/* The facts that all answers share: the plan, and the question about it. */
typedef struct Question {
    Cli *cli;
    const PlanFile *file;
    bool timed;               /* true if the times of steps are asked for */
    const Scenario *scenario; /* how ranks and experts differ; NULL: all are equal */
    Store *store;             /* the store with earlier answers; NULL: none */
    KnownScripts scripts;
} Question;

struct Frameworks {
    Answers all;
    bool asked;  /* false if other programs cannot run such a plan */
    Ps own_step; /* time of a step with Tandem's own executor; 0: not asked for */
};

/* Returns options with which the scenario is simulated. */
static SimOptions how_of(const Question *q)
{
    const Scenario *s = q->scenario;
    SimOptions how = {.steps = 1, .no_memory = true};
    if (s == NULL) return how;
    how.imbalance = s->imbalance;
    how.loads = s->loads;
    how.unfolded = s->is_uneven;
    how.uneven = s->is_uneven ? &s->uneven : NULL;
    return how;
}

/* Returns the memory of the busiest rank of the scenario. */
static Held held_of(const Question *q, const PlanFile *file)
{
    const SimOptions how = how_of(q);
    return session_held_uneven(file, how.loads, how.imbalance);
}

/* Returns the part of an answer's key that describes the scenario. */
static const char *scenario_key(const Question *q)
{
    const SimOptions how = how_of(q);
    const PredictOptions same = {
        .uneven = how.uneven, .imbalance = how.imbalance, .loads = how.loads};
    return session_scenario(q->cli->arena, &same);
}

/* Returns the time of a step. *aperiodic becomes true if the time can be computed only with all
 * micro-batches. `aperiodic` is NULL if the plan has all of them. */
static Ps step_of(const Question *q, const PlanFile *file, const Runtime *runtime, Arena *arena,
                  bool *aperiodic)
{
    Diag ignored = diag_in(arena);
    SimReport report;
    SimOptions how = how_of(q);
    how.runtime = runtime;
    if (runtime->name == NULL && how.imbalance > 1 && q->scenario->own_drops) {
        how.imbalance = 1;
        how.loads = NULL;
    }
    if (!session_simulate(file, &file->config.cluster, &how, arena, &report, &ignored)) return 0;
    if (aperiodic != NULL) *aperiodic = report.aperiodic;
    return report.step_ps;
}

/* Compiles the plan under another framework's profile, as session_compile does, and fills in the
 * answer. Returns false if options->fewer is set, and only the plan with all micro-batches gives
 * the answer. */
static bool compile_answer(const Question *q, const PlanOptions *o, const Config *config,
                           Graph *graph, Arena *arena, FrameworkAnswer *out)
{
    Diag ignored = diag_in(arena);
    const PlanFile *other = session_compile(config, graph, o, arena, &ignored);
    bool aperiodic = false;
    out->could = other != NULL;
    if (other == NULL) return true;
    out->held = held_of(q, other);
    if (q->timed) out->step_ps = step_of(q, other, &config->runtime, arena, &aperiodic);
    return !aperiodic;
}

/* A framework that the store has no answer for: its configuration, its model, and where its answer
 * goes. */
typedef struct Missing {
    FrameworkAnswer *to;
    PlanOptions how;
    Config config;
    Graph graph;
} Missing;
typedef LIST(Missing) MissingList;

/* Makes an answer: compiles the plan under another profile and simulates it. A profile may set
 * defaults of passes, but usually the plan's program does not change and is used again. If the
 * program changes, a step of fewer micro-batches is simulated where session_fewer allows it, as in
 * sweeps. */
static void make_answer(const Question *q, Missing *m, Arena *arena)
{
    FrameworkAnswer *out = m->to;
    const Config *config = &m->config;
    const PlanFile same = {.path = q->file->path,
                           .has_cluster = true,
                           .config = *config,
                           .plan = q->file->plan,
                           .whole = q->file->whole,
                           .microbatches = q->file->microbatches};
    if (q->file->plan != NULL && session_same_program(&q->file->config, q->file->plan, config)) {
        bool aperiodic = false;
        out->held = held_of(q, &same);
        out->step_ps = q->timed ? step_of(q, &same, &config->runtime, arena, &aperiodic) : 0;
        out->could = true;
        if (!aperiodic) return;
    }
    const bool uneven = q->scenario != NULL && q->scenario->is_uneven;
    m->how.fewer = q->timed && !uneven ? session_fewer(config, false) : 0;
    if (compile_answer(q, &m->how, config, &m->graph, arena, out)) return;
    m->how.fewer = 0;
    compile_answer(q, &m->how, config, &m->graph, arena, out);
}

/* Answers that several threads compute at the same time. The scripts were run before; the threads
 * only read the plan. */
typedef struct Making {
    const Question *q;
    MissingList missing;
} Making;

/* Makes the i-th answer. The call after the last answer simulates the plan itself. */
static void make_one(void *self, uint32_t i)
{
    Making *all = self;
    if (i == all->missing.n) {
        session_simulate_ahead(all->q->file, all->q->cli->arena);
        return;
    }
    Arena *arena = arena_new();
    make_answer(all->q, &all->missing.at[i], arena);
    arena_free(arena);
}

/* Returns true if all ranks, and all experts, are equal. */
static bool is_even(const Scenario *s)
{
    return s == NULL || (!s->is_uneven && s->imbalance <= 1 && s->loads == NULL);
}

/* Returns true if `sim` will simulate the plan itself with the same options as the answers. */
static bool looks_ahead(const Question *q)
{
    const Options *o = &q->cli->options;
    const Scenario *s = q->scenario;
    if (!q->timed || s == NULL || q->file->plan == NULL || o->machine != NULL) return false;
    if (!is_even(s)) return false;
    if (o->sim.trace || o->sim.unfolded) return false;
    const PredictOptions plain = session_plain_options(q->file);
    return !session_has_prediction(q->file, q->store, &plain, q->cli->arena);
}

static json_t *answer_json(const FrameworkAnswer *a)
{
    json_t *root = json_object();
    json_text(root, "runtime", a->name);
    json_count(root, "allocated_bytes", a->held.allocated_bytes);
    json_count(root, "reserved_bytes", a->held.reserved_bytes);
    json_count(root, "process_bytes", a->held.process_bytes);
    json_put(root, "fits", json_boolean(a->held.fits));
    if (a->step_ps > 0) json_count(root, "step_ps", (uint64_t)a->step_ps);
    return root;
}

static uint64_t count_of(const json_t *row, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(row, key));
}

/* Reads an answer from the store. Returns false if it has none, or if the scripts have changed
 * since. */
static bool find_answer(Question *q, FrameworkAnswer *out)
{
    Arena *arena = q->cli->arena;
    /* without the store the answer is computed again, so errors of the store do not matter here */
    Diag ignored = diag_in(arena);
    FoundAnswer found;
    if (q->store == NULL || !store_find_answer(q->store, out->key, arena, &found, &ignored))
        return false;
    if (!recipe_is_fresh(&q->scripts, &found, q->file->path, arena)) return false;
    json_t *row = json_loads(found.answer, 0, NULL);
    if (row == NULL) return false;
    out->could = json_object_get(row, "fits") != NULL;
    out->held = (Held){.allocated_bytes = count_of(row, "allocated_bytes"),
                       .reserved_bytes = count_of(row, "reserved_bytes"),
                       .process_bytes = count_of(row, "process_bytes"),
                       .fits = json_is_true(json_object_get(row, "fits"))};
    out->step_ps = (Ps)count_of(row, "step_ps");
    json_decref(row);
    recipe_add_list(&out->recipe, found.list, arena);
    return true;
}

static void keep_answer(const Cli *cli, Store *store, FrameworkAnswer *a)
{
    Diag ignored = diag_in(cli->arena);
    if (store == NULL || cli->options.dry_run || !a->is_new || a->recipe.scripts.n == 0) return;
    recipe_read_scripts(&a->recipe, store, cli->arena, &ignored);
    json_t *row = a->could ? answer_json(a) : json_object();
    char *text = json_dumps(row, JSON_COMPACT);
    store_put_answer(store, a->key, &a->recipe, 0, build_name(cli->arena), text, &ignored);
    free(text);
    json_decref(row);
}

/* Looks up the answer for one framework. If the store does not have it, runs the plan's script for
 * that framework and adds the result to `missing`. */
static void begin_answer(Question *q, FrameworkAnswer *a, MissingList *missing)
{
    Arena *arena = q->cli->arena;
    Diag ignored = diag_in(arena);
    Missing m = {.to = a, .how = plan_file_options(q->cli, NULL)};
    PlanOptions *o = &m.how;
    const char **set = arena_array(arena, o->n_set + 1, sizeof *set);
    for (uint32_t i = 0; i < o->n_set; i++) set[i] = o->set[i];
    set[o->n_set] = arena_print(arena, "runtime=%s", a->name);
    o->set = set;
    o->n_set++;
    o->script = q->cli->script;
    const char *asked = arena_print(arena, "%s\nframework %s\n%s\n%s", build_name(arena),
                                    q->timed ? "time" : "memory", scenario_key(q),
                                    recipe_head(q->file->path, o, arena));
    a->key = hash_bytes(asked, strlen(asked));
    if (find_answer(q, a)) return;
    a->is_new = true;
    o->unproven = o->unplaced = true;
    o->made_of = &a->recipe;
    if (session_read(q->file->path, o, arena, &m.config, &m.graph, &ignored))
        list_push(arena, missing, m);
}

/* Prints an answer. head: the words before the framework's name. */
static void print_answer(Cli *cli, const char *head, const FrameworkAnswer *a)
{
    Arena *arena = cli->arena;
    str_print(&cli->out, "%s%s: %s, %s", head, a->name, str_bytes(arena, a->held.process_bytes),
              a->held.fits ? paint(cli, PAINT_good, "fits")
                           : paint(cli, PAINT_bad, "DOES NOT FIT"));
    if (a->step_ps > 0) str_print(&cli->out, ", step %s", format_time(arena, a->step_ps));
    str_add(&cli->out, "\n");
}

/* Returns the frameworks that could run the plan, without answers. */
static Answers possible_frameworks(const Config *c, Arena *arena)
{
    Answers all = {NULL, 0, 0};
    for (size_t i = 0; i < sizeof profiles / sizeof *profiles; i++) {
        const FrameworkAnswer a = {.name = profiles[i].name, .recipe = {.head = ""}};
        if (could_run(c, &profiles[i])) list_push(arena, &all, a);
    }
    return all;
}

/* ---- answers that a thread computes while the plan itself is compiled */

typedef struct EarlyAnswers EarlyAnswers;
struct EarlyAnswers {
    Question q;
    PlanFile file; /* a plan file that has only the configuration */
    Answers all;
    Making making;    /* answers that need a program of their own: the framework's profile (Runtime)
                         changes it */
    MissingList rest; /* answers that perhaps need no program of their own */
    /* index of the first answer that no thread has begun; read and written atomically */
    uint32_t next;
    pthread_t thread;
};

static void *answer_early(void *self)
{
    EarlyAnswers *e = self;
    for (uint32_t i; (i = __atomic_fetch_add(&e->next, 1, __ATOMIC_RELAXED)) < e->making.missing.n;)
        make_one(&e->making, i);
    return NULL;
}

void frameworks_ask_early(Cli *cli, const Config *config, bool timed)
{
    static const Scenario even = {.imbalance = 1};
    if (config->cluster.is_local || config->runtime.name != NULL) return;
    Diag ignored = diag_in(cli->arena);
    EarlyAnswers *e = arena_alloc(cli->arena, sizeof *e);
    e->file = (PlanFile){.path = config->file, .has_cluster = true, .config = *config};
    const bool looks = timed && !cli->options.dry_run && access(cli->options.db, F_OK) == 0;
    Store *store = looks ? store_open_brief(cli->options.db, &ignored) : NULL;
    e->q = (Question){.cli = cli, .file = &e->file, .timed = timed, .store = store};
    if (timed) e->q.scenario = &even;
    e->all = possible_frameworks(config, cli->arena);
    MissingList missing = {0};
    for (uint32_t i = 0; i < e->all.n; i++) begin_answer(&e->q, &e->all.at[i], &missing);
    store_close(store);
    e->q.store = NULL;
    for (uint32_t i = 0; i < missing.n; i++) {
        const bool may_share = session_same_passes(config, &missing.at[i].config);
        list_push(cli->arena, may_share ? &e->rest : &e->making.missing, missing.at[i]);
    }
    e->making.q = &e->q;
    if (pthread_create(&e->thread, NULL, answer_early, e) == 0) cli->early = e;
}

/* Makes the answers that the thread has not begun, and waits for the thread. */
static void settle_early(Cli *cli)
{
    (void)answer_early(cli->early);
    (void)pthread_join(cli->early->thread, NULL);
    cli->early = NULL;
}

void frameworks_forget(Cli *cli)
{
    EarlyAnswers *e = cli->early;
    if (e == NULL) return;
    (void)__atomic_fetch_add(&e->next, e->making.missing.n, __ATOMIC_RELAXED);
    settle_early(cli);
}

/* Returns all answers. If the plan names a runtime, they are for its framework and, in `sim`, for
 * Tandem's own executor. Otherwise they are for every framework that could run the plan. */
static Answers answers(Question *q)
{
    Answers all = {NULL, 0, 0};
    const PlanFile *file = q->file;
    Arena *arena = q->cli->arena;
    if (file->config.runtime.name != NULL) {
        const FrameworkAnswer own = {
            .name = file->config.runtime.name, .held = held_of(q, file), .could = true};
        list_push(arena, &all, own);
        return all;
    }
    Making making = {.q = q};
    const EarlyAnswers *early = q->cli->early;
    if (early != NULL && (early->q.timed != q->timed || !is_even(q->scenario))) {
        frameworks_forget(q->cli);
        early = NULL;
    }
    if (early != NULL) {
        all = early->all;
        making.missing = early->rest;
    } else {
        all = possible_frameworks(&file->config, arena);
        for (uint32_t i = 0; i < all.n; i++) begin_answer(q, &all.at[i], &making.missing);
    }
    parallel_for(making.missing.n + looks_ahead(q), make_one, &making);
    if (early != NULL) settle_early(q->cli);
    return all;
}

Frameworks *frameworks_ask(Cli *cli, const PlanFile *file, bool timed, const Scenario *scenario,
                           Store *store)
{
    Frameworks *frameworks = arena_alloc(cli->arena, sizeof *frameworks);
    if (!file->has_cluster || file->is_text || file->config.cluster.is_local) return frameworks;
    Question question = {
        .cli = cli, .file = file, .timed = timed, .scenario = scenario, .store = store};
    const Runtime own = {.name = NULL};
    frameworks->asked = true;
    frameworks->all = answers(&question);
    if (timed && file->config.runtime.name != NULL)
        frameworks->own_step = step_of(&question, file, &own, cli->arena, NULL);
    return frameworks;
}

static void put_json(Cli *cli, const Frameworks *frameworks)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < frameworks->all.n; i++)
        if (frameworks->all.at[i].could)
            json_array_append_new(list, answer_json(&frameworks->all.at[i]));
    json_put(cli->json, "frameworks", list);
    if (frameworks->own_step > 0)
        json_count(cli->json, "own_step_ps", (uint64_t)frameworks->own_step);
}

void frameworks_print(Cli *cli, Frameworks *frameworks, const char *head, Store *store,
                      Recipe *made_of)
{
    for (uint32_t i = 0; i < frameworks->all.n; i++) {
        FrameworkAnswer *a = &frameworks->all.at[i];
        keep_answer(cli, store, a);
        for (uint32_t k = 0; made_of != NULL && k < a->recipe.scripts.n; k++)
            recipe_add(made_of, &a->recipe.scripts.at[k], cli->arena);
    }
    if (cli->json != NULL && frameworks->asked) {
        put_json(cli, frameworks);
        return;
    }
    head = head[0] != 0 ? arena_print(cli->arena, "%-12sin ", head) : "framework   ";
    if (frameworks->own_step > 0)
        str_print(&cli->out, "%sTandem's own executor: step %s\n", head,
                  format_time(cli->arena, frameworks->own_step));
    for (uint32_t i = 0; i < frameworks->all.n; i++)
        if (frameworks->all.at[i].could) print_answer(cli, head, &frameworks->all.at[i]);
}
