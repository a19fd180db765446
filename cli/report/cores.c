/* Prints, beside a measured run's times, whether its ranks had the cores to themselves. */
#include <inttypes.h>
#include <math.h>

#include "cli/run/run.h"

/* on an idle system, other programs use less than this fraction of a core */
static const double negligible = 0.1;

void cores_text(const CoreUse *use, uint32_t n_ranks, Str *out)
{
    if (use->cores == 0) return;
    str_print(out,
              "cores       %" PRIu32 ": on average %.2f of %" PRIu32
              " rank%s ran and %.2f were ready to run; other work used %.2f cores\n",
              use->cores, use->running, n_ranks, n_ranks == 1 ? "" : "s", use->ready, use->others);
    if (use->others < negligible || use->ready - use->running < negligible) return;
    str_add(
        out,
        "            ranks waited for cores that other work used, so these times and their ratio "
        "to the\n            prediction are not those of a free machine\n");
}

json_t *cores_json(const CoreUse *use)
{
    const bool known = use->cores > 0;
    json_t *cores = json_object();
    json_put(cores, "cores", known ? json_integer(use->cores) : json_null());
    json_number(cores, "running", known ? use->running : NAN);
    json_number(cores, "ready", known ? use->ready : NAN);
    json_number(cores, "others", known ? use->others : NAN);
    return cores;
}

bool cores_store(Store *store, int64_t run, const CoreUse *use, Diag *d)
{
    if (use->cores == 0) return true;
    return db_run(store_db(store), d,
                  "INSERT OR REPLACE INTO cores(run, cores, running, ready, others) "
                  "VALUES(?,?,?,?,?)",
                  "iiddd", run, (int64_t)use->cores, use->running, use->ready, use->others);
}

bool cores_read(Store *store, int64_t run, CoreUse *use, Diag *d)
{
    const uint32_t before = d->n_errors;
    *use = (CoreUse){0, 0, 0, 0};
    DbStatement *st =
        db_prepare(store_db(store), d,
                   "SELECT cores, running, ready, others FROM cores WHERE run = ?", "i", run);
    if (db_step(st, d))
        *use = (CoreUse){(uint32_t)db_int(st, 0), db_double(st, 1), db_double(st, 2),
                         db_double(st, 3)};
    db_reset(st);
    return d->n_errors == before;
}
