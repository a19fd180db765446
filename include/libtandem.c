/* The public C interface: one handle, one arena. Running out of memory anywhere below unwinds to
 * the call that was made, which is safe because nothing but the arena owns memory. */
#include "include/tandem.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/front/front.h"
#include "planner/ir/text/text.h"
#include "planner/lower/compile.h"
#include "planner/verify/verify.h"
#include "sim/sim.h"

struct TandemPlan {
    Arena *arena;
    Diag diag;
    jmp_buf full;
    locale_t c; /* the locale whose numbers have a point */
    bool out_of_memory;
    bool is_text, compiled, proven, simulated;
    const char *path;
    Config config;
    Plan *plan;
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

/* First statement of every call that allocates: what follows runs again never, `failed` once. */
#define GUARD(plan, failed)                                                                        \
    do {                                                                                           \
        if ((plan)->out_of_memory || setjmp((plan)->full) != 0) return (failed);                   \
    } while (0)

/* Texts, hashes and scripts have decimal points, whatever locale the calling program has chosen;
 * its own stays as it is. */
#define IN_C(plan, type, call)                                                                     \
    do {                                                                                           \
        locale_t before = uselocale((plan)->c);                                                    \
        type result = (call);                                                                      \
        uselocale(before);                                                                         \
        return result;                                                                             \
    } while (0)

static bool ends_in(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);
    return n >= m && strcmp(path + n - m, end) == 0;
}

static bool load_text(TandemPlan *p)
{
    Loc nowhere = {NULL, 0};
    FILE *file = fopen(p->path, "rb");
    if (file == NULL)
        return diag_error(&p->diag, FAULT_input, "plan-open", nowhere, "cannot open %s: %s",
                          p->path, strerror(errno));
    Str text = str_in(p->arena);
    char block[16384];
    size_t n = 0;
    while ((n = fread(block, 1, sizeof block, file)) > 0) str_add_bytes(&text, block, n);
    bool failed = ferror(file) != 0;
    fclose(file);
    if (failed)
        return diag_error(&p->diag, FAULT_input, "plan-open", nowhere, "cannot read %s", p->path);
    p->plan = text_parse(p->path, str_text(&text), text.n, p->arena, &p->diag);
    if (p->plan != NULL) p->config.seed = p->plan->step.seed;
    return p->plan != NULL;
}

static bool load_script(TandemPlan *p, const char *const *settings, size_t n_settings)
{
    FrontOptions front = {.set = settings, .n_set = (uint32_t)n_settings};
    Graph graph;
    memset(&graph, 0, sizeof graph);
    if (!front_load(p->path, &front, p->arena, &p->config, &graph, &p->diag)) return false;
    LowerOptions lower = lower_options_default();
    if (p->config.cluster.is_local) lower.workspace = kernel_cpu_workspace;
    p->plan = plan_compile(&p->config, &graph, &lower, NULL, p->arena, &p->diag);
    return p->plan != NULL;
}

static void load(TandemPlan *p, const char *path, const char *const *settings, size_t n_settings)
{
    if (setjmp(p->full) != 0) return;
    p->path = arena_dup(p->arena, path);
    p->is_text = ends_in(path, ".plan");
    if (p->is_text && n_settings > 0) {
        diag_error(&p->diag, FAULT_usage, "option-value", (Loc){NULL, 0},
                   "settings change a script; %s is a plan's text", path);
        return;
    }
    p->compiled = p->is_text ? load_text(p) : load_script(p, settings, n_settings);
}

TandemPlan *tandem_load(const char *path, const char *const *settings, size_t n_settings)
{
    TandemPlan *p = calloc(1, sizeof *p);
    if (p == NULL) return NULL;
    p->arena = arena_new();
    arena_on_full(p->arena, on_full, p);
    p->diag = diag_in(p->arena);
    p->c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale_t before = uselocale(p->c);
    load(p, path, settings, n_settings);
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
    GUARD(plan, "error[out-of-memory]: no memory left\n");
    Str text = str_in(plan->arena);
    diag_print(&plan->diag, &text);
    return str_text(&text);
}

const char *tandem_diagnostics(TandemPlan *plan)
{
    IN_C(plan, const char *, diagnostics_text(plan));
}

static const char *diagnostics_json(TandemPlan *plan)
{
    GUARD(plan, "[{\"severity\":\"error\",\"rule\":\"out-of-memory\"}]");
    Str text = str_in(plan->arena);
    diag_json(&plan->diag, &text);
    return str_text(&text);
}

const char *tandem_diagnostics_json(TandemPlan *plan)
{
    IN_C(plan, const char *, diagnostics_json(plan));
}

static bool check(TandemPlan *plan)
{
    if (!plan->compiled) return false;
    GUARD(plan, false);
    plan->proven = verify_plan(plan->plan, VERIFY_all, plan->is_text, &plan->diag);
    if (!plan->proven || plan->is_text) return plan->proven;
    const Cluster *cluster = &plan->config.cluster;
    CommMemories communicators;
    const Capacity capacity = cluster_capacity(
        cluster, comm_memory_most(plan->plan, cluster, NULL, plan->arena, &communicators));
    return verify_fit(plan->plan, &capacity, &plan->diag);
}

bool tandem_check(TandemPlan *plan)
{
    IN_C(plan, bool, check(plan));
}

static bool simulate(TandemPlan *p, const TandemSimOptions *options, Store *store)
{
    const Cluster *cluster = &p->config.cluster;
    SimOptions sim = {.unfolded = options->unfolded,
                      .seed = options->seed,
                      .steps = 1,
                      .store = cluster->is_local ? store : NULL,
                      .machine = options->machine,
                      .backend = cluster->is_local ? "mpi" : ""};
    if (setjmp(p->full) != 0) return false;
    memset(&p->report, 0, sizeof p->report);
    p->simulated = sim_run(p->plan, cluster, &sim, p->arena, &p->report, &p->diag);
    return p->simulated;
}

static bool may_simulate(TandemPlan *p)
{
    if (!p->compiled || p->out_of_memory) return false;
    if (!p->proven) check(p);
    if (!p->proven) return false;
    GUARD(p, false);
    if (!p->is_text) return true;
    return diag_error(&p->diag, FAULT_usage, "no-cluster", (Loc){NULL, 0},
                      "%s is a plan's text and names no hardware", p->path);
}

static Store *open_store(TandemPlan *p, const char *path)
{
    GUARD(p, NULL);
    return store_open(path, true, &p->diag);
}

static bool predict(TandemPlan *plan, const TandemSimOptions *options)
{
    static const TandemSimOptions defaults = {.unfolded = false};
    if (!may_simulate(plan)) return false;
    if (options == NULL) options = &defaults;
    Store *store = options->store != NULL ? open_store(plan, options->store) : NULL;
    if (store == NULL && options->store != NULL) return false;
    bool fine = simulate(plan, options, store);
    store_close(store);
    return fine;
}

bool tandem_simulate(TandemPlan *plan, const TandemSimOptions *options)
{
    IN_C(plan, bool, predict(plan, options));
}

/* name, in every compiled plan (else only after tandem_simulate), value */
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
    GUARD(plan, NULL);
    return hash_hex(plan->arena, text_plan_id(plan->plan, plan->arena));
}

const char *tandem_plan_id(TandemPlan *plan)
{
    IN_C(plan, const char *, plan_id(plan));
}

static const char *plan_text(TandemPlan *plan)
{
    if (!plan->compiled) return NULL;
    GUARD(plan, NULL);
    Str text = str_in(plan->arena);
    text_print(plan->plan, TEXT_WITH_LOCATIONS, &text);
    return str_text(&text);
}

const char *tandem_plan_text(TandemPlan *plan)
{
    IN_C(plan, const char *, plan_text(plan));
}

static const char *plan_show(TandemPlan *plan)
{
    if (!plan->compiled) return NULL;
    GUARD(plan, NULL);
    Str text = str_in(plan->arena);
    text_show(plan->plan, UINT32_MAX, plan->arena, &text);
    return str_text(&text);
}

const char *tandem_plan_show(TandemPlan *plan)
{
    IN_C(plan, const char *, plan_show(plan));
}

static const char *report_json(TandemPlan *plan)
{
    if (!plan->compiled) return NULL;
    GUARD(plan, NULL);
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
    IN_C(plan, const char *, report_json(plan));
}
