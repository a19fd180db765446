/* Many plans from one script. Each combination of settings is a point, and each point gives
 * a row. */
#ifndef TANDEM_CLI_SWEEP_H
#define TANDEM_CLI_SWEEP_H

#include "cli/cli.h"

/* A setting and its values, from one --try or from one key of a script's `vary`. */
typedef struct SweepKey {
    const char *key;
    TextList values;
    Loc loc; /* location for messages: "--try mesh.tp=1,2", or the line in `vary` */
} SweepKey;
typedef LIST(SweepKey) SweepKeys;

/* fits: the plan fits. too_large: the plan needs more memory than there is. refused: the plan
 * cannot be compiled or proven, so it has no numbers. bounded: a lower bound ruled out the point
 * before its plan was compiled, so it has no numbers. open: no bound has ruled out the point, and
 * it is not simulated yet. */
typedef enum SweepStatus {
    SWEEP_fits,
    SWEEP_too_large,
    SWEEP_refused,
    SWEEP_bounded,
    SWEEP_open
} SweepStatus;

/* ---- cli/report/sweep_table.c */
/* Returns a status as CSV and JSON name it. `open` has no name, because no point is open when
 * results are printed. */
const char *sweep_status_name(SweepStatus status);

/* How often a step of fsdp2 gathers a weight. often: for several micro-batches, and keep_gathered
 * may be set. other: the plan has no fsdp2, or its options exclude keep_gathered. */
typedef enum UnitGathers { UNIT_GATHERS_other, UNIT_GATHERS_often, UNIT_GATHERS_once } UnitGathers;

typedef struct SweepRow {
    /* index of the combination of settings, counted with the last key varying fastest */
    uint32_t index;
    const char **values; /* the value of each key */
    SweepStatus status;
    bool found; /* the store had the result */
    /* The first error, or a rule of NULL if the point fits. The text also gives the reason why
     * `require` of a sweep's script rejected the point. */
    Diagnostic error;
    LIST(Diagnostic) warnings; /* warnings about the plan, if it was compiled */
    const char *plan_id, *trust;
    uint64_t ranks, peak_bytes, run; /* run: number of the run in the store; 0: not stored */
    /* bytes of weights gathered and of gradients reduced by the slowest rank in a step */
    uint64_t unit_bytes;
    UnitGathers gathers;
    Ps step_ps, exposed_ps;
    double tokens_per_s, tokens_per_s_per_device, mfu;
    double usd_per_token;    /* price of a token in USD; 0: unknown */
    double joules_per_token; /* energy of a token in joules; 0: unknown */
    /* unit of the throughput: "tokens" or "points"; NULL: the row has no numbers */
    const char *counts;
    /* the word for a device (plan_file_device); NULL: the row has no numbers */
    const char *device;
    /* `error` is a failure of the system or the store, which says nothing about the point */
    Fault failed;
    const char *unstored; /* the reason why the store did not accept the row; NULL: it did */
    double score;         /* the value of `score` in the script */
    bool unmet;           /* the point fits, but `require` in the script rejects it */
    bool proven;          /* the plan was proven; sweeps and searches prove only their winners */
    bool close;           /* step_ps is a close lower bound, from plans with few layers */
    /* lines about the plan under other frameworks; NULL: its process has printed none */
    const char *best_lines;
} SweepRow;
typedef LIST(SweepRow) SweepRows;

/* Prints, below a table with energies, the assumption that they need. Prints nothing below other
 * tables. */
void energy_note(Cli *cli, const SweepRows *rows);
/* Prints, below a table of GPUs without prices, that no price is known. Prints nothing below other
 * tables. */
void price_note(Cli *cli, const SweepRows *rows);
/* ---- cli/report/sweep_traffic.c */
/* Returns how many bytes of weights and gradients the slowest rank gathers and reduces in
 * a step. */
uint64_t unit_bytes(const RunRecord *record);
UnitGathers unit_gathers(const Config *config);
/* If the schedules in the table move different amounts of weights and gradients, prints a line that
 * says so. */
void traffic_note(Cli *cli, const SweepKeys *keys, const SweepRows *rows);

/* ---- cli/report/sweep_rows.c */
/* Returns the unit of the rows' throughput: "tokens" or "points". */
const char *rows_count(const SweepRows *rows);
/* Returns the word for a device: "GPU" or "rank". */
const char *rows_device(const SweepRows *rows);
bool row_is_predicted(const SweepRow *row); /* true if the row has the numbers of a prediction */
/* Returns true if the row has a warning with the same rule and the same text. */
bool row_has_warning(const SweepRow *row, const Diagnostic *warning);
/* rows_priced: true if any row has a price. rows_powered: true if any row has an energy. */
bool rows_priced(const SweepRows *rows);
bool rows_powered(const SweepRows *rows);

/* Return the days, the USD and the MWh that the training of --tokens takes with this row's plan. 0:
 * unknown. */
double row_days(const Cli *cli, const SweepRow *r);
double row_usd(const Cli *cli, const SweepRow *r);
double row_mwh(const Cli *cli, const SweepRow *r);

/* Tells, below the table, which plans are proven. Prints nothing if there is only one plan. */
void sweep_print_proven(Cli *cli, const SweepRows *rows);

/* ---- where.c */
/* Sets *holds to true if all conditions of --where are true for these settings. plan: gives the
 * sizes of axes that no setting names; NULL: these are unknown. Returns false after reporting
 * diagnostics. */
bool where_holds(Cli *cli, const TextList *settings, const Config *plan, bool *holds);

/* Appends the names that a condition may use for these settings, and their values. If two settings
 * give the same name, the later one counts. */
void where_names(Cli *cli, const TextList *settings, const Config *plan, FrontPairs *names);

/* ---- script.c: `tandem sweep FILE.lua`, where a script lists the points */
/* Opens the command's FILE. If it is the script of a sweep, appends its `vary` to `keys`. If it is
 * a plan, sets *script to NULL. Returns false after diagnostics. */
bool sweep_script_open(Cli *cli, SweepKeys *keys, FrontSweep **script);
/* Calls `where` of the script for a point. If the script has no `where`, the answer is true. */
bool sweep_script_holds(Cli *cli, FrontSweep *script, const TextList *settings, const Config *plan,
                        bool *holds);
/* Calls `require` and `score` of the script for every row that fits, in the order of the points.
 * settings: the settings of each point. */
bool sweep_script_judge(Cli *cli, FrontSweep *script, const TextList *settings, const Config *plan,
                        SweepRows *rows);
/* A value of a result: one row of results.def. */
typedef struct ResultInfo {
    const char *name, *meaning;
} ResultInfo;
extern const ResultInfo sweep_results[];
extern const uint32_t n_sweep_results;

/* ---- sweep_table.c */
/* Returns the settings of a row, such as "mesh.tp=2 batch.micro=1". Each setting follows the text
 * `before`. */
const char *sweep_settings(Arena *arena, const SweepKeys *keys, const char *const *values,
                           const char *before);
/* Returns the settings of a point in the same form as sweep_settings. */
const char *point_text(Arena *arena, const TextList *settings, const char *before);
/* Prints the settings of these points, for --dry-run. In JSON, the list has the given key. */
void points_list(Cli *cli, const char *key, const TextList *settings, uint32_t n);
void csv_field(Str *out, const char *text); /* appends a field of CSV, in quotes if it needs them */
/* Reads --by. Called before any prediction. `score`: the name of the script's score; NULL: it has
 * none. */
bool sweep_order(Cli *cli, const char *score);
bool sweep_ranks_by_tokens(void); /* true if the order is that of tokens per second */
/* Returns the best of the rows, or NULL if no row fits and fulfils `require`. */
SweepRow *sweep_best(const SweepRows *rows);
/* Prints the rows as text, CSV or JSON, the best first. */
void sweep_report(Cli *cli, const SweepKeys *keys, SweepRows *rows);

#endif
