/* Estimates how far a prediction can be trusted. The estimate is printed with every prediction and
 * stored with the run. It contains the source of the costs, their date, and the errors of similar
 * predictions. Under a profile (a framework's runtime settings), these are the errors of published
 * runs of this profile on this GPU. If there are too few such runs the error is unknown, because
 * errors of other runs would say nothing about this one. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/predict.h"
#include "planner/base/plural.h"
#include "sim/runtime/runtime.h"

/* The errors of one class of measurements. They come from the report of `tandem accuracy` for the
 * costs of this version (tests/bench/error_bar.py). */
typedef struct Class {
    ErrorOf of;
    const char *profile, *gpu;
    uint32_t n;
    double p50, p90;
    bool assumed; /* the measurements do not give their power limit */
} Class;
static const Class classes[] = {
#define MADE(day)
#define WIDER(of, p50, p90)
#define BAR(of, profile, gpu, n, p50, p90)     {ERROR_##of, profile, gpu, n, p50, p90, false},
#define ASSUMED(of, profile, gpu, n, p50, p90) {ERROR_##of, profile, gpu, n, p50, p90, true},
#include "cli/report/error_bar.def"
#undef MADE
#undef BAR
#undef ASSUMED
};
static const char made[] =
#define MADE(day) day
#define BAR(of, profile, gpu, n, p50, p90)
#define ASSUMED(of, profile, gpu, n, p50, p90)
#include "cli/report/error_bar.def"
#undef MADE
#undef WIDER
#undef BAR
#undef ASSUMED
    ;
enum { ENOUGH = 5 }; /* errors of fewer measurements than this say nothing */

typedef struct TrustFit {
    const char *made; /* the day on which the table was made */
    uint32_t n;
    double p50, p90;
} TrustFit;

static int64_t seconds_of_day(const char *day)
{
    int year = 0, month = 0, of_month = 0;
    if (sscanf(day, "%d-%d-%d", &year, &month, &of_month) != 3) return 0;
    /* converts a date to days since 1970, because C11 has no timegm */
    int64_t y = month <= 2 ? year - 1 : year, era = y / 400, m = (month + 9) % 12;
    int64_t of_era = (y - era * 400) * 365 + (y - era * 400) / 4 - (y - era * 400) / 100;
    return (era * 146097 + of_era + (153 * m + 2) / 5 + of_month - 1 - 719468) * 86400;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Computes the errors of those runs in this store that were both predicted and measured. */
static void errors_of_store(Cli *cli, Store *store, Trust *out)
{
    LIST(double) errors = {0};
    DbStatement *st = db_prepare(store_db(store), &cli->diag,
                                 "SELECT predicted_ms, measured_ms FROM v_compare "
                                 "WHERE predicted_ms > 0 AND measured_ms > 0",
                                 "");
    while (db_step(st, &cli->diag))
        list_push(cli->arena, &errors, fabs(db_double(st, 0) / db_double(st, 1) - 1));
    ErrorBar *bar = &out->bar[ERROR_step];
    bar->n = errors.n;
    if (errors.n == 0) return;
    qsort(errors.at, errors.n, sizeof *errors.at, by_size);
    bar->p50 = errors.at[errors.n / 2];
    bar->p90 = errors.at[errors.n * 9 / 10];
}

static int64_t oldest(Cli *cli, Store *store, const char *machine)
{
    DbStatement *st = db_prepare(
        store_db(store), &cli->diag,
        "SELECT min(made_at) FROM (SELECT made_at FROM kernel_cost WHERE machine = ?1 UNION ALL "
        "SELECT made_at FROM collective_cost WHERE machine = ?1) WHERE made_at > 0",
        "s", machine);
    int64_t at = db_step(st, &cli->diag) && !db_is_null(st, 0) ? db_int(st, 0) : 0;
    db_reset(st);
    return at;
}

const char *trust_gpu(Arena *arena, const char *device)
{
    return device == NULL ? "" : arena_copy(arena, device, strcspn(device, "-"));
}

static const Class *class_of(ErrorOf of, const char *profile, const char *gpu, bool assumed)
{
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        const Class *c = &classes[i];
        if (c->of == of && c->assumed == assumed && strcmp(c->profile, profile) == 0 &&
            strcmp(c->gpu, gpu) == 0)
            return c;
    }
    return NULL;
}

/* Counts the measurements with this profile and GPU for which no power limit was assumed. NULL
 * stands for any profile or any GPU. */
static uint32_t rows_of(ErrorOf of, const char *profile, const char *gpu)
{
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        const Class *c = &classes[i];
        const bool counts = (profile == NULL || strcmp(c->profile, profile) == 0) &&
                            (gpu == NULL || strcmp(c->gpu, gpu) == 0);
        if (c->of == of && counts && !c->assumed) n += c->n;
    }
    return n;
}

/* Returns the largest class with the same profile or, if there is none, with the same GPU. Returns
 * NULL if there is neither. */
static const Class *nearest(ErrorOf of, const char *profile, const char *gpu)
{
    const Class *best = NULL;
    for (int by_gpu = 0; by_gpu < 2 && best == NULL; by_gpu++)
        for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
            const Class *c = &classes[i];
            const bool near = by_gpu ? strcmp(c->gpu, gpu) == 0 : strcmp(c->profile, profile) == 0;
            if (c->of != of || c->assumed || !near || c->n < ENOUGH) continue;
            if (best == NULL || c->n > best->n) best = c;
        }
    return best;
}

ErrorBar trust_bar(ErrorOf of, const char *profile, const char *gpu)
{
    const Class *own = class_of(of, profile, gpu, false);
    ErrorBar bar = {.n_both = own == NULL ? 0 : own->n,
                    .n_profile = rows_of(of, profile, NULL),
                    .n_gpu = rows_of(of, NULL, gpu)};
    if (bar.n_both < ENOUGH) own = class_of(of, profile, gpu, true);
    const bool has_bar = own != NULL && own->n >= ENOUGH;
    const Class *other = has_bar ? NULL : nearest(of, profile, gpu);
    if (has_bar) {
        bar.assumed = own->assumed;
        bar.profile = own->profile;
        bar.gpu = own->gpu;
        bar.n = own->n;
        bar.p50 = own->p50;
        bar.p90 = own->p90;
    } else if (other != NULL) {
        bar.near_profile = other->profile;
        bar.near_gpu = other->gpu;
        bar.n_near = other->n;
    }
    return bar;
}

static Trust trust_of_cluster(Cli *cli, const Cluster *cluster, const Runtime *runtime)
{
    Trust trust = {.basis = "runs of Tandem's own executor",
                   .made_at = seconds_of_day(made),
                   .is_modelled = true};
    if (runtime_is_own(runtime)) return trust;
    trust.basis = "published runs";
    trust.profile = runtime->name;
    trust.gpu = trust_gpu(cli->arena, cluster->device.name);
    for (ErrorOf of = 0; of < ERROR_COUNT; of++)
        trust.bar[of] = trust_bar(of, trust.profile, trust.gpu);
    return trust;
}

Trust trust_of(Cli *cli, const Cluster *cluster, const Runtime *runtime, Store *store,
               const char *machine)
{
    if (!cluster->is_local) {
        Trust trust = trust_of_cluster(cli, cluster, runtime);
        if (machine != NULL && store != NULL) {
            int64_t at = oldest(cli, store, machine);
            if (at > 0) trust.made_at = at, trust.is_modelled = false;
        }
        return trust;
    }
    Trust trust = {.basis = "runs of this store"};
    if (store == NULL) return trust;
    trust.made_at = oldest(cli, store, machine);
    errors_of_store(cli, store, &trust);
    return trust;
}

/* If no measurements of collectives by size were published for such a machine, returns words for
 * its kind. Returns NULL for other machines. */
static const char *unmeasured(const Cluster *cluster, const NcclQuestion *q)
{
    if (cluster->intra == FABRIC_pcie && q->ranks_per_node > 1)
        return "published collectives of PCIe boxes";
    if (q->ranks_per_node > 8) return "published collectives by size of such a domain";
    bool routed = cluster->topology.kind != TOPOLOGY_tree && q->n_nodes > 1;
    if (routed || (cluster->nodes_per_group > 0 && q->n_nodes > cluster->nodes_per_group))
        return "published collectives of such a network";
    return NULL;
}

/* Returns the size of errors of predicted collectives. Between nodes, these are errors on networks
 * that were not used in the fit. Within a node, only the errors of the fit itself are known. */
Trust trust_of_net(const Cluster *cluster, const NcclQuestion *q)
{
    bool between_nodes = q->n_nodes > 1;
    static const TrustFit bars[] = {
#define NET_FIT(made, n, p50, p90) {made, n, p50, p90},
#include "cli/report/error_bar_net.def"
#undef NET_FIT
    };
    const TrustFit *bar = &bars[between_nodes];
    Trust trust = {.basis = between_nodes ? "published collectives of networks left out of the fit"
                                          : "published collectives, most of them in the fit",
                   .made_at = seconds_of_day(bar->made),
                   .is_modelled = true};
    const char *nobody = unmeasured(cluster, q);
    if (nobody != NULL)
        trust.basis = nobody;
    else
        trust.bar[ERROR_step] = (ErrorBar){.n = bar->n, .p50 = bar->p50, .p90 = bar->p90};
    return trust;
}

/* Writes a text, or null if the class has no profile or no GPU because it covers all. */
static void text_or_null(json_t *root, const char *key, const char *text)
{
    json_put(root, key, text == NULL ? json_null() : json_string(text));
}

/* Returns words for the measurements most like the plan: "31 published runs of torchtitan on H100",
 * or "none". */
static const char *near_text(Arena *arena, const ErrorBar *bar)
{
    if (bar->near_profile == NULL) return "none";
    return arena_print(arena, "%" PRIu32 " published runs of %s on %s", bar->n_near,
                       bar->near_profile, bar->near_gpu);
}

static void bar_json(json_t *root, const Trust *trust, const ErrorBar *bar)
{
    json_count(root, "n", bar->n);
    json_put(root, "error_p50", bar->n > 0 ? json_real(bar->p50) : json_null());
    json_put(root, "error_p90", bar->n > 0 ? json_real(bar->p90) : json_null());
    if (trust->profile == NULL) return;
    text_or_null(root, "profile", bar->profile);
    text_or_null(root, "gpu", bar->gpu);
    json_put(root, "assumed", json_boolean(bar->assumed));
    text_or_null(root, "nearest_profile", bar->near_profile);
    text_or_null(root, "nearest_gpu", bar->near_gpu);
    json_count(root, "n_profile", bar->n_profile);
    json_count(root, "n_gpu", bar->n_gpu);
    json_count(root, "n_both", bar->n_both);
}

json_t *trust_json(const Trust *trust)
{
    json_t *root = json_object();
    json_text(root, "basis", trust->basis);
    json_count(root, "calibrated_at", (uint64_t)trust->made_at);
    bar_json(root, trust, &trust->bar[ERROR_step]);
    static const char *const memory[] = {
        [ERROR_allocated] = "allocated", [ERROR_reserved] = "reserved"};
    for (ErrorOf of = ERROR_allocated; trust->profile != NULL && of < ERROR_COUNT; of++) {
        json_t *object = json_object();
        bar_json(object, trust, &trust->bar[of]);
        json_put(root, memory[of], object);
    }
    return root;
}

bool trust_store(Store *store, int64_t run, const Trust *trust, Diag *d)
{
    const ErrorBar *bar = &trust->bar[ERROR_step];
    const CostCounts *c = &trust->counts;
    return db_run(store_db(store), d,
                  "INSERT OR IGNORE INTO trust(run, basis, calibrated_at, n, error_p50, error_p90, "
                  "kernels_measured, kernels_modelled, collectives_measured, collectives_modelled) "
                  "VALUES(?,?,?,?,?,?,?,?,?,?)",
                  "isiiddiiii", run, trust->basis, trust->made_at, (int64_t)bar->n, bar->p50,
                  bar->p90, (int64_t)c->kernels_measured, (int64_t)c->kernels_modelled,
                  (int64_t)c->collectives_measured, (int64_t)c->collectives_modelled);
}

void trust_load_counts(Store *store, int64_t run, Trust *trust, Diag *d)
{
    DbStatement *st = db_prepare(store_db(store), d,
                                 "SELECT kernels_measured, kernels_modelled, collectives_measured, "
                                 "collectives_modelled FROM trust WHERE run = ? AND "
                                 "kernels_measured NOTNULL",
                                 "i", run);
    if (db_step(st, d))
        trust->counts = (CostCounts){(uint32_t)db_int(st, 0), (uint32_t)db_int(st, 1),
                                     (uint32_t)db_int(st, 2), (uint32_t)db_int(st, 3)};
    db_reset(st);
}

static const char *bar_text(Arena *arena, const Trust *trust, ErrorOf of)
{
    static const char *const names[] = {"step time", "memory allocated", "memory reserved"};
    const ErrorBar *bar = &trust->bar[of];
    if (bar->n > 0)
        return arena_print(arena,
                           "%s: errors of %" PRIu32 " published runs of %s on %s%s: half within "
                           "%.1f %%, 9 of 10 within %.1f %%",
                           names[of], bar->n, bar->profile, bar->gpu,
                           bar->assumed ? " (with an assumed power limit)" : "", 100 * bar->p50,
                           100 * bar->p90);
    return arena_print(arena, "%s error unknown: %s published runs of %s on %s; nearest: %s",
                       names[of], bar->n_both > 0 ? "too few" : "no", trust->profile, trust->gpu,
                       near_text(arena, bar));
}

const char *trust_text(Arena *arena, const Trust *trust)
{
    const ErrorBar *bar = &trust->bar[ERROR_step];
    const char *age = trust->is_modelled ? "are modelled" : "never calibrated";
    if (trust->made_at > 0 && !trust->is_modelled) {
        const int64_t days = ((int64_t)time(NULL) - trust->made_at) / 86400,
                      at_least = days > 0 ? days : 0;
        age = arena_print(arena, "%" PRId64 " day%s old", at_least, str_s((uint64_t)at_least));
    }
    if (trust->profile != NULL)
        return arena_print(arena, "costs %s; %s", age, bar_text(arena, trust, ERROR_step));
    if (bar->n == 0)
        return arena_print(arena, "costs %s; error not known: no %s to compare with", age,
                           trust->basis);
    /* a store has few runs, so its ninth decile is simply the largest error */
    const bool own = !trust->is_modelled;
    if (own && bar->n == 1)
        return arena_print(arena, "costs %s; error of 1 earlier run of this store: %.1f %%", age,
                           100 * bar->p50);
    return arena_print(arena,
                       "costs %s; errors of %" PRIu32 " %s: half within %.1f %%, %s within %.1f %%",
                       age, bar->n, trust->basis, 100 * bar->p50,
                       own && bar->n < 10 ? "all" : "9 of 10", 100 * bar->p90);
}

void trust_report(Cli *cli, const Trust *trust)
{
    Arena *arena = cli->arena;
    str_print(&cli->out, "trust       %s\n", trust_text(arena, trust));
    for (ErrorOf of = ERROR_allocated; trust->profile != NULL && of < ERROR_COUNT; of++)
        str_print(&cli->out, "            %s\n", bar_text(arena, trust, of));
    const CostCounts *c = &trust->counts;
    uint32_t kernels = c->kernels_measured + c->kernels_modelled,
             collectives = c->collectives_measured + c->collectives_modelled;
    /* an older version of Tandem stored the run, and it did not count costs */
    if (kernels == 0) return;
    str_print(&cli->out, "measured    costs of %" PRIu32 " of %" PRIu32 " kernel%s",
              c->kernels_measured, kernels, str_s(kernels));
    if (collectives > 0)
        str_print(&cli->out, ", and of %" PRIu32 " of %" PRIu32 " communication%s",
                  c->collectives_measured, collectives, str_s(collectives));
    str_print(&cli->out, "; the others are modelled\n");
}
