/* How far a prediction can be trusted: what its costs were fitted to or measured with, when, and
 * how far predictions of that kind were off. Printed with every prediction and stored with the run.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "cli/predict.h"

/* Errors of step times against published runs, from the report of `tandem accuracy` that goes with
 * the costs of this version (docs/accuracy.md). */
static const struct Fit {
    const char *made; /* the day */
    uint32_t n;
    double p50, p90;
} gpu_fit = {
#define FIT(made, n, p50, p90) made, n, p50, p90
#include "cli/error_bar.def"
#undef FIT
};

static int64_t seconds_of_day(const char *day)
{
    int year = 0, month = 0, of_month = 0;
    if (sscanf(day, "%d-%d-%d", &year, &month, &of_month) != 3) return 0;
    /* days since 1970 by the civil calendar: timegm is not in C11 */
    int64_t y = month <= 2 ? year - 1 : year, era = y / 400, m = (month + 9) % 12;
    int64_t of_era = (y - era * 400) * 365 + (y - era * 400) / 4 - (y - era * 400) / 100;
    return (era * 146097 + of_era + (153 * m + 2) / 5 + of_month - 1 - 719468) * 86400;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Runs that this store has predicted and measured. */
static void errors_of_store(Cli *cli, Store *store, Trust *out)
{
    LIST(double) errors = {0};
    DbStatement *st = db_prepare(store_db(store), &cli->diag,
                                 "SELECT predicted_ms, measured_ms FROM v_compare "
                                 "WHERE predicted_ms > 0 AND measured_ms > 0",
                                 "");
    while (db_step(st, &cli->diag))
        list_push(cli->arena, &errors, fabs(db_double(st, 0) / db_double(st, 1) - 1));
    out->n = errors.n;
    if (errors.n == 0) return;
    qsort(errors.at, errors.n, sizeof *errors.at, by_size);
    out->p50 = errors.at[errors.n / 2];
    out->p90 = errors.at[errors.n * 9 / 10];
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

Trust trust_of(Cli *cli, const Cluster *cluster, bool own, Store *store, const char *machine)
{
    if (!cluster->is_local) {
        Trust trust = {.basis = "runs of Tandem's own executor",
                       .made_at = seconds_of_day(gpu_fit.made)};
        if (!own) {
            trust.basis = "published runs";
            trust.n = gpu_fit.n;
            trust.p50 = gpu_fit.p50;
            trust.p90 = gpu_fit.p90;
        }
        if (machine != NULL && store != NULL) {
            int64_t at = oldest(cli, store, machine);
            if (at > 0) trust.made_at = at;
        }
        return trust;
    }
    Trust trust = {.basis = "runs of this store"};
    if (store == NULL) return trust;
    trust.made_at = oldest(cli, store, machine);
    errors_of_store(cli, store, &trust);
    return trust;
}

/* Of collectives: between nodes against those that nothing was fitted to, in a node against all
 * that the model was fitted to, for there are no others. */
Trust trust_of_net(bool between_nodes)
{
    static const struct Fit bars[] = {
#define NET_FIT(made, n, p50, p90) {made, n, p50, p90},
#include "cli/error_bar_net.def"
#undef NET_FIT
    };
    const struct Fit *bar = &bars[between_nodes];
    Trust trust = {.basis = between_nodes ? "published collectives that nothing was fitted to"
                                          : "published collectives, most of them fitted to,",
                   .made_at = seconds_of_day(bar->made)};
    trust.n = bar->n;
    trust.p50 = bar->p50;
    trust.p90 = bar->p90;
    return trust;
}

json_t *trust_json(const Trust *trust)
{
    json_t *root = json_object();
    json_text(root, "basis", trust->basis);
    json_count(root, "calibrated_at", (uint64_t)trust->made_at);
    json_count(root, "n", trust->n);
    json_put(root, "error_p50", trust->n > 0 ? json_real(trust->p50) : json_null());
    json_put(root, "error_p90", trust->n > 0 ? json_real(trust->p90) : json_null());
    return root;
}

bool trust_store(Store *store, int64_t run, const Trust *trust, Diag *d)
{
    return db_run(store_db(store), d,
                  "INSERT OR IGNORE INTO trust(run, basis, calibrated_at, n, error_p50, error_p90) "
                  "VALUES(?,?,?,?,?,?)",
                  "isiidd", run, trust->basis, trust->made_at, (int64_t)trust->n, trust->p50,
                  trust->p90);
}

const char *trust_text(Arena *arena, const Trust *trust)
{
    const char *age = "never calibrated";
    if (trust->made_at > 0) {
        int64_t days = ((int64_t)time(NULL) - trust->made_at) / 86400;
        age = arena_print(arena, "%" PRId64 " days old", days > 0 ? days : 0);
    }
    if (trust->n == 0)
        return arena_print(arena, "costs %s; error not known: no %s to compare with", age,
                           trust->basis);
    return arena_print(arena,
                       "costs %s; of %" PRIu32 " %s half within %.1f %%, 9 of 10 within %.1f %%",
                       age, trust->n, trust->basis, 100 * trust->p50, 100 * trust->p90);
}
