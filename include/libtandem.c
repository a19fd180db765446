/* The public C interface. Each handle has one arena. If memory runs out during a call, the call
 * jumps back to its entry (longjmp). The jump leaks nothing, because arenas own all memory. */
#include "include/tandem.h"

#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session/session.h"

struct TandemPlan {
    /* owns all memory of the handle; NULL if memory ran out before tandem_load could finish */
    Arena *arena;
    Diag diag;
    /* the arenas that the running call has made and must free if memory runs out */
    ArenaScope scope;
    jmp_buf full;
    locale_t c; /* the locale "C", which writes 0.5 and never 0,5 */
    bool out_of_memory;
    bool compiled, proven, simulated;
    const char *path;
    const PlanFile *file;
    Plan *plan; /* the compiled plan, which belongs to `file`; NULL: the script did not compile */
    SimReport report;
};

const char *tandem_version(void)
{
    return "0.1.0";
}

static void on_full(void *self)
{
    TandemPlan *plan = self;
    plan->out_of_memory = true;
    longjmp(plan->full, 1);
}

/* Runs the expression `call` as the body of a public function and returns its result. If memory
 * runs out, arena_full jumps to the `else` branch, which frees the arenas that `call` has made.
 * This function and all later ones on this handle then return `failed`. During the call the locale
 * is "C", so that plans, hashes and scripts contain decimal points. */
#define CALL(plan, type, failed, call)                                                             \
    do {                                                                                           \
        type volatile result = (failed); /* volatile, because it is set after setjmp */            \
        if ((plan)->out_of_memory) return result;                                                  \
        locale_t before = uselocale((plan)->c);                                                    \
        arena_scope_open(&(plan)->scope, on_full, (plan));                                         \
        if (setjmp((plan)->full) == 0) {                                                           \
            result = (call);                                                                       \
            arena_scope_close(&(plan)->scope);                                                     \
        } else {                                                                                   \
            result = (failed);                                                                     \
            arena_scope_unwind(&(plan)->scope);                                                    \
        }                                                                                          \
        uselocale(before);                                                                         \
        return result;                                                                             \
    } while (0)

static void load(TandemPlan *p, const char *path, const char *const *settings, size_t n_settings)
{
    p->arena = arena_new();
    p->diag = diag_in(p->arena);
    p->path = arena_dup(p->arena, path);
    const PlanOptions options = {.set = settings, .n_set = (uint32_t)n_settings, .unproven = true};
    p->file = session_load(p->path, &options, p->arena, &p->diag);
    if (p->file == NULL) return;
    p->plan = p->file->plan;
    p->compiled = true;
}

static void load_in_scope(TandemPlan *p, const char *path, const char *const *settings,
                          size_t n_settings)
{
    arena_scope_open(&p->scope, on_full, p);
    if (setjmp(p->full) == 0) {
        load(p, path, settings, n_settings);
        arena_scope_close(&p->scope);
    } else {
        arena_scope_unwind(&p->scope);
        p->arena = NULL;
        p->compiled = false;
    }
}

TandemPlan *tandem_load(const char *path, const char *const *settings, size_t n_settings)
{
    TandemPlan *p = calloc(1, sizeof *p);
    if (p == NULL) return NULL;
    p->c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (p->c == (locale_t)0) {
        free(p);
        return NULL;
    }
    locale_t before = uselocale(p->c);
    load_in_scope(p, path, settings, n_settings);
    uselocale(before);
    return p;
}

void tandem_free(TandemPlan *plan)
{
    if (plan == NULL) return;
    arena_free(plan->arena);
    if (plan->c != (locale_t)0) freelocale(plan->c);
    free(plan);
}

int tandem_status(const TandemPlan *plan)
{
    return plan->out_of_memory ? 1 : diag_exit_code(&plan->diag);
}

static const char *diagnostics_text(TandemPlan *plan)
{
    Str text = str_in(plan->arena);
    diag_print(&plan->diag, &text);
    return str_text(&text);
}

const char *tandem_diagnostics(TandemPlan *plan)
{
    CALL(plan, const char *, "error[out-of-memory]: no memory left\n", diagnostics_text(plan));
}

static const char *diagnostics_json(TandemPlan *plan)
{
    Str text = str_in(plan->arena);
    diag_json(&plan->diag, &text);
    return str_text(&text);
}

const char *tandem_diagnostics_json(TandemPlan *plan)
{
    CALL(plan, const char *, "[{\"severity\":\"error\",\"rule\":\"out-of-memory\"}]",
         diagnostics_json(plan));
}

static bool check(TandemPlan *plan)
{
    if (!plan->compiled) return false;
    const uint32_t before = plan->diag.n_errors;
    plan->proven = session_prove(plan->file, false, plan->arena, &plan->diag);
    /* A plan that is too large for its device is proven, but it still counts as an error here. */
    return plan->diag.n_errors == before;
}

bool tandem_check(TandemPlan *plan)
{
    CALL(plan, bool, false, check(plan));
}

/* True if a diagnostic from index `from` on says that the store could not be read. The simulation
 * has then used a modelled cost in place of a measured one, so its result is refused. */
static bool store_failed(const Diag *d, uint32_t from)
{
    for (uint32_t i = from; i < d->items.n; i++)
        if (d->items.at[i].severity == SEVERITY_error && d->items.at[i].fault == FAULT_store)
            return true;
    return false;
}

static bool simulate(TandemPlan *p, const TandemSimOptions *options, Store *store)
{
    const Cluster *cluster = &p->file->config.cluster;
    const CostsOf costs = session_costs(cluster, options->machine, options->machine, NULL);
    SimOptions sim = {.unfolded = options->unfolded,
                      .seed = options->seed,
                      .store = costs.machine != NULL ? store : NULL,
                      .machine = costs.machine,
                      .backend = costs.backend};
    const uint32_t before = p->diag.items.n;
    p->simulated = session_simulate(p->file, cluster, &sim, p->arena, &p->report, &p->diag) &&
                   !store_failed(&p->diag, before);
    return p->simulated;
}

static bool may_simulate(TandemPlan *p)
{
    if (!p->compiled) return false;
    if (!p->proven) check(p);
    if (!p->proven) return false;
    if (p->file->has_cluster) return true;
    return diag_error(&p->diag, FAULT_usage, "no-cluster", (Loc){NULL, 0},
                      "%s is a plan's text and names no hardware", p->path);
}

static bool predict(TandemPlan *plan, const TandemSimOptions *options)
{
    static const TandemSimOptions defaults = {.unfolded = false};
    if (!may_simulate(plan)) return false;
    if (options == NULL) options = &defaults;
    Store *store = options->store != NULL ? store_open(options->store, true, &plan->diag) : NULL;
    if (store == NULL && options->store != NULL) return false;
    bool fine = simulate(plan, options, store);
    store_close(store);
    return fine;
}

bool tandem_simulate(TandemPlan *plan, const TandemSimOptions *options)
{
    CALL(plan, bool, false, predict(plan, options));
}

/* X(name, always, value): the values that tandem_number returns. always: true if every compiled
 * plan has the value; false if it exists only after tandem_simulate. */
#define NUMBERS(X)                                                                                 \
    X(params, true, (double)p->plan->graph.info.n_params)                                          \
    X(params_without_input_embedding, true, (double)p->plan->graph.info.n_params_no_embedding)     \
    X(ranks, true, (double)p->plan->mesh.n_ranks)                                                  \
    X(roles, true, (double)p->plan->programs.n)                                                    \
    X(tokens_per_step, true, p->plan->step.global_tokens)                                          \
    X(arena_bytes, true, (double)worst_arena(p))                                                   \
    X(step_s, false, (double)p->report.step_ps / (double)PS_PER_S)                                 \
    X(compute_s, false, (double)p->report.compute_ps / (double)PS_PER_S)                           \
    X(exposed_s, false, (double)p->report.exposed_ps / (double)PS_PER_S)                           \
    X(tokens_per_s, false, p->report.tokens_per_s)                                                 \
    X(tokens_per_s_per_device, false, p->report.tokens_per_s_per_device)                           \
    X(mfu, false, p->report.mfu)                                                                   \
    X(model_flops_per_token, false, p->report.model_flops_per_token)                               \
    X(total_bytes, false, (double)p->report.total_bytes)                                           \
    X(peak_rank, false, (double)p->report.peak_rank)                                               \
    X(fits, false, p->report.fits ? 1.0 : 0.0)                                                     \
    X(events, false, (double)p->report.n_events)

static uint64_t worst_arena(const TandemPlan *p)
{
    uint64_t worst = 0;
    for (uint32_t i = 0; i < p->plan->programs.n; i++)
        if (p->plan->programs.at[i].bytes > worst) worst = p->plan->programs.at[i].bytes;
    return worst;
}

bool tandem_number(const TandemPlan *p, const char *name, double *value)
{
    if (!p->compiled || p->out_of_memory) return false;
#define X(id, always, expression)                                                                  \
    if (strcmp(name, #id) == 0) {                                                                  \
        if (!(always) && !p->simulated) return false;                                              \
        *value = (expression);                                                                     \
        return true;                                                                               \
    }
    NUMBERS(X)
#undef X
    return false;
}

static const char *const number_names[] = {
#define X(id, always, expression) #id,
    NUMBERS(X)
#undef X
};

const char *tandem_number_name(size_t i)
{
    return i < sizeof number_names / sizeof number_names[0] ? number_names[i] : NULL;
}

static const char *plan_id(TandemPlan *plan)
{
    if (!plan->compiled) return NULL;
    return hash_hex(plan->arena, text_plan_id(plan->plan, plan->arena));
}

const char *tandem_plan_id(TandemPlan *plan)
{
    CALL(plan, const char *, NULL, plan_id(plan));
}

static const char *plan_text(TandemPlan *plan)
{
    if (!plan->compiled) return NULL;
    Str text = str_in(plan->arena);
    text_print(plan->plan, TEXT_WITH_LOCATIONS | TEXT_WITH_SEALS, &text);
    return str_text(&text);
}

const char *tandem_plan_text(TandemPlan *plan)
{
    CALL(plan, const char *, NULL, plan_text(plan));
}

static const char *plan_show(TandemPlan *plan)
{
    if (!plan->compiled) return NULL;
    Str text = str_in(plan->arena);
    text_show(plan->plan, UINT32_MAX, plan->arena, &text);
    return str_text(&text);
}

const char *tandem_plan_show(TandemPlan *plan)
{
    CALL(plan, const char *, NULL, plan_show(plan));
}

static const char *report_json(TandemPlan *plan)
{
    if (!plan->compiled) return NULL;
    Str text = str_in(plan->arena);
    str_add(&text, "{\"schema\":\"tandem.report/1\"");
    for (size_t i = 0; tandem_number_name(i) != NULL; i++) {
        double value = 0;
        if (!tandem_number(plan, tandem_number_name(i), &value)) continue;
        str_print(&text, ",\"%s\":", tandem_number_name(i));
        if (isfinite(value))
            str_add_double(&text, value);
        else
            str_add(&text, "null");
    }
    if (plan->simulated) {
        str_add(&text, ",\"mfu_formula\":");
        str_add_json(&text, plan->report.mfu_formula);
        str_add(&text, ",\"peak\":");
        str_add_json(&text, plan->report.peak_name);
    }
    str_add(&text, "}");
    return str_text(&text);
}

const char *tandem_report_json(TandemPlan *plan)
{
    CALL(plan, const char *, NULL, report_json(plan));
}
