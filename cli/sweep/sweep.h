/* Many plans from one script: each combination of settings is a row. */
#ifndef TANDEM_CLI_SWEEP_H
#define TANDEM_CLI_SWEEP_H

#include "cli/cli.h"

/* One --try, or one key of a script's `vary`: a setting and its values. */
typedef struct SweepKey {
    const char *key;
    TextList values;
    Loc loc; /* "--try mesh.tp=1,2", or the line of `vary` */
} SweepKey;
typedef LIST(SweepKey) SweepKeys;

/* fits: the plan fits. too_large: it needs more memory than there is. refused: it cannot be
 * compiled or proven, so it has no numbers. bounded: a lower bound rejected the point before its
 * whole plan was compiled, so it has no numbers. open: no bound has rejected the point, and it is
 * not simulated yet. */
typedef enum SweepStatus {
    SWEEP_fits,
    SWEEP_too_large,
    SWEEP_refused,
    SWEEP_bounded,
    SWEEP_open
} SweepStatus;

/* ---- cli/report/sweep_table.c */
/* Returns a status as CSV and JSON write it. An open point is decided first, so it has no name. */
const char *sweep_status_name(SweepStatus status);

typedef struct SweepRow {
    uint32_t index;      /* number of the combination; the last key varies fastest */
    const char **values; /* one for each key */
    SweepStatus status;
    bool found; /* its result was found in the store */
    /* The first error; its rule is NULL if the point fits. The text also says why `require` of a
     * sweep's script is false. */
    Diagnostic error;
    LIST(Diagnostic) warnings; /* warnings about a point that was compiled */
    const char *plan_id, *trust;
    uint64_t ranks, peak_bytes, run; /* run 0: not stored */
    uint64_t unit_bytes; /* weights gathered and gradients reduced by the slowest rank */
    bool fsdp2;          /* the plan's data pass is fsdp2 */
    Ps step_ps, exposed_ps;
    double tokens_per_s, tokens_per_s_per_device, mfu;
    double usd_per_token;    /* 0: the price is unknown */
    double joules_per_token; /* 0: the power is unknown */
    const char *counts;      /* "tokens" or "points"; NULL: there are no numbers */
    const char *device;      /* plan_file_device; NULL: there are no numbers */
    Fault failed; /* the system or the store failed (see `error`), so the row is no answer */
    const char *unstored; /* why the store refused the row; NULL: it is stored */
    double score;         /* the value of the script's `score` */
    bool unmet;           /* it fits, but the script's `require` rejects it */
    bool proven;          /* this plan was proven (a search proves only its winners) */
    bool close;           /* step_ps is a tight bound, from plans of a few layers */
} SweepRow;
typedef LIST(SweepRow) SweepRows;

/* Prints under a table the assumption behind its energies; prints nothing if the table has none. */
void energy_note(Cli *cli, const SweepRows *rows);
/* Prints under a table of real GPUs that their price is not known; prints nothing if it is. */
void price_note(Cli *cli, const SweepRows *rows);
/* ---- cli/report/sweep_traffic.c */
/* Prints a line if the compared schedules move different numbers of bytes of weights and
 * gradients. */
void traffic_note(Cli *cli, const SweepKeys *keys, const SweepRows *rows);

/* ---- cli/report/sweep_rows.c */
/* Returns the unit of throughput: "tokens" or "points". */
const char *rows_count(const SweepRows *rows);
/* Returns the name of a device: "GPU" or "rank". */
const char *rows_device(const SweepRows *rows);
/* True if the price, or the power, of any row is known. */
bool rows_priced(const SweepRows *rows);
bool rows_powered(const SweepRows *rows);

/* Return the days, USD and MWh of the training run of --tokens with this row's plan; 0: unknown. */
double row_days(const Cli *cli, const SweepRow *r);
double row_usd(const Cli *cli, const SweepRow *r);
double row_mwh(const Cli *cli, const SweepRow *r);

/* ---- where.c */
/* Sets *holds to true if every --where is true for these settings. plan: has the sizes of axes that
 * no setting names; NULL: they are unknown. Returns false after reporting diagnostics. */
bool where_holds(Cli *cli, const TextList *settings, const Config *plan, bool *holds);

/* Appends the names by which a condition may refer to a setting, and their values. If a name occurs
 * twice, the later value is used. */
void where_names(Cli *cli, const TextList *settings, const Config *plan, FrontPairs *names);

/* ---- script.c: `tandem sweep FILE.lua`, where a script lists the points */
/* Opens the command's FILE if it is a sweep, and appends its `vary` to `keys`. If it is a plan,
 * sets *script to NULL. Returns false after diagnostics. */
bool sweep_script_open(Cli *cli, SweepKeys *keys, FrontSweep **script);
/* Calls the script's `where`; without one, it returns true for every point. */
bool sweep_script_holds(Cli *cli, FrontSweep *script, const TextList *settings, const Config *plan,
                        bool *holds);
/* Calls `require` and `score` for every row that fits, in the order of the points. settings: the
 * settings of each point. */
bool sweep_script_judge(Cli *cli, FrontSweep *script, const TextList *settings, const Config *plan,
                        SweepRows *rows);
/* One row of the table of values that a result has. */
typedef struct ResultInfo {
    const char *name, *meaning;
} ResultInfo;
extern const ResultInfo sweep_results[];
extern const uint32_t n_sweep_results;

/* ---- sweep_table.c */
/* Returns "mesh.tp=2 batch.micro=1", with `before` in front of each setting. */
const char *sweep_settings(Arena *arena, const SweepKeys *keys, const char *const *values,
                           const char *before);
/* Returns the settings of one point in the same form. */
const char *point_text(Arena *arena, const TextList *settings, const char *before);
/* Prints the settings of these points (--dry-run); JSON has them as a list under this key. */
void points_list(Cli *cli, const char *key, const TextList *settings, uint32_t n);
void csv_field(Str *out, const char *text); /* appends a field of CSV, quoted if necessary */
/* Reads --by; called before any prediction. `score`: the name of the script's score; NULL: none. */
bool sweep_order(Cli *cli, const char *score);
/* Ranks the rows and prints them as text, CSV or JSON. */
void sweep_report(Cli *cli, const SweepKeys *keys, SweepRows *rows);

#endif
