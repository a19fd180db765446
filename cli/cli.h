/* Shared by all verbs: options, output, exit code. Only this layer prints for people or exits.
 * Results go to standard output, everything else to standard error. */
#ifndef TANDEM_CLI_CLI_H
#define TANDEM_CLI_CLI_H

#include <jansson.h>

#include "exec/options.h"
#include "planner/base/diag.h"
#include "session/session.h"

typedef LIST(const char *) TextList;

/* The options of single verbs, in groups. A field NAME_text is the text as the user gave it, NULL
 * if it was not given. NAME is its checked value, 0 if it was not given. */
typedef struct ShowOptions {
    const char *after, *role_text, *rank_text;
    uint32_t role, rank; /* UINT32_MAX: not given */
    bool text, mesh, state;
} ShowOptions;

typedef struct NetOptions {
    const char *per_node_text, *min_text, *max_text, *issue, *buffers, *compare;
    const char *collective; /* also an option of import */
    uint32_t per_node;
} NetOptions;

typedef struct AccuracyOptions {
    const char *runs, *kernels, *comm, *plot;
} AccuracyOptions;

typedef struct SweepOptions {
    TextList try_, where; /* KEY=VALUE,VALUE,...; conditions */
    const char *by, *shard, *slurm_text;
    uint32_t shard_index, n_shards; /* --shard 2/8 gives 1, 8; not given: 0, 1 */
    uint32_t slurm;
    bool exhaustive, csv;
} SweepOptions;

typedef struct FitOptions {
    const char *days_text, *usd_text;
    double days, usd;
} FitOptions;

/* Failures and uneven ranks in a simulated run. */
typedef struct ScenarioOptions {
    const char *mtbf_text, *checkpoint_text, *storage_text, *restart_text, *interval_text,
        *jitter_text, *straggler_text, *imbalance_text;
} ScenarioOptions;

typedef struct SimVerbOptions {
    TextList what_if; /* KEY=VALUE or KEY=2x */
    const char *mfu;  /* a convention, or "all"; NULL: not given */
    bool trace, explain, unfolded;
} SimVerbOptions;

typedef struct RunVerbOptions {
    const char *backend, *data, *steps_text, *every_text, *timeout_text;
    const char *save, *load, *save_every_text, *keep_text; /* checkpoints */
    uint32_t steps, every, save_every, keep;
    double timeout_s;
    const char *loads; /* the file to which counts of experts are written; NULL: none */
    bool verify, poison, native;
    BackendValue backend_values[BACKEND_OPTION_COUNT];
} RunVerbOptions;

/* Every option of every verb has its field here; options.c says which verb takes which option. */
typedef struct Options {
    TextList set; /* KEY=VALUE */
    const char *db, *color, *output, *cluster, *nodes, *ranks, *machine;
    const char *seed_text, *n_text, *limit_text, *jobs_text, *price_text, *tokens_text, *pue_text;
    uint64_t seed;
    uint32_t n, limit, jobs, n_nodes; /* 0 when not given */
    double price_usd, tokens, pue;    /* price_usd < 0: not given; pue: 1 when not given */
    bool json, quiet, verbose, help, dry_run, no_store, exact;
    bool n_short; /* n_text was given by -n */
    ShowOptions show;
    SimVerbOptions sim;
    ScenarioOptions scenario;
    SweepOptions sweep;
    FitOptions fit;
    RunVerbOptions run;
    NetOptions net;
    AccuracyOptions accuracy;
} Options;

typedef enum Paint { PAINT_none, PAINT_good, PAINT_bad, PAINT_warn, PAINT_strong } Paint;

typedef struct Verb Verb;
typedef struct Cli {
    Arena *arena;
    Diag diag;
    const Verb *verb;
    Options options;
    const char *program; /* argv[0] */
    const char *const *argv;
    int argc;
    const char *const *args; /* the arguments besides the verb and the options */
    uint32_t n_args;
    Str out; /* the result as text; printed at the end, unless --json is given */
    size_t run_line,
        run_line_end;    /* the part [from, to) of `out` that names the stored run; both 0: none */
    json_t *json;        /* the result as a document, if --json is given */
    FrontScript *script; /* PLAN's script, held open for further loads; NULL: not held */
    struct EarlyAnswers *early; /* answers that a thread computes (whose.c); NULL: none */
    bool color;                 /* colour on standard output */
    int exit_code;              /* 0: the exit code follows from the diagnostics */
} Cli;

struct Verb {
    const char *name, *arguments; /* "PLAN" */
    uint32_t min_args, max_args;
    const char *summary; /* one line */
    const char *about;   /* one or two paragraphs */
    const char *example; /* a real command */
    uint32_t options;    /* the verb takes these groups of options: OPTIONS_... */
    void (*run)(Cli *cli);
};

enum { /* groups of options; an option of group 0 belongs to every verb */
       OPTIONS_plan = 1,
       OPTIONS_text_plan = 2,
       OPTIONS_show = 4,
       OPTIONS_sim = 8,
       OPTIONS_run = 16,
       OPTIONS_trace = 32,
       OPTIONS_runs = 64,
       OPTIONS_calibrate = 128,
       OPTIONS_net = 512,
       OPTIONS_import = 1024,
       OPTIONS_accuracy = 256,
       OPTIONS_sweep = 2048,
       OPTIONS_db = 8192,
       OPTIONS_search = 16384,
       OPTIONS_fit = 32768,
       NEEDS_STORE =
           4096 /* no group of options: marks a verb that can do nothing without a store */
};

/* ---- verbs.c ---- */
extern const Verb *const verbs;
extern const uint32_t n_verbs;
const Verb *verb_find(const char *name);
int cli_main(int argc, char **argv);

/* ---- options.c ---- */
typedef enum OptionKind { OPTION_flag, OPTION_text, OPTION_list, OPTION_maybe } OptionKind;

typedef struct Option {
    const char *name;
    char letter; /* 0: only the long form */
    OptionKind kind;
    const char *value; /* the name of its value in the help; NULL for a flag */
    size_t field;      /* offset in Options */
    uint32_t groups;   /* 0: every verb */
    const char *help;
} Option;
extern const Option *const options_list;
extern const uint32_t options_count;
/* Reads 1000000, 300K or 1.5T: from 1 to 1e18. The k-th letter of `units` stands for 1000^k. */
bool option_thousands(const char *text, const char *units, double *value);
/* Reads argv[2..]; returns false after reporting diagnostics. */
bool options_parse(Cli *cli, int argc, char **argv);
/* appends the options of a verb, one or two lines each */
void options_help(const Verb *verb, Str *out);

/* ---- help.c ---- */
void help_verb(const Verb *verb, Str *out);
void help_overview(Str *out);
bool help_topic(const char *name, Str *out); /* false if there is no such topic */
extern const char *const help_topics[];      /* ends in NULL */

/* ---- output.c ---- */
const char *paint(const Cli *cli, Paint paint, const char *text);
bool color_wanted(const Cli *cli, int fd);
/* Prints diagnostics and results; returns the exit code of the process. */
int cli_finish(Cli *cli);
/* Prints the diagnostics found so far to standard error (for long-running verbs). */
void cli_flush_diagnostics(Cli *cli);
/* Drops the diagnostics found so far, so that they are not printed. They still count for the exit
 * code. */
void cli_forget_diagnostics(Cli *cli);
/* Writes a file. The file appears under its name only when it is complete. A device, a pipe or the
 * target of a link is written directly. Returns false after a diagnostic. */
bool cli_write_file(Cli *cli, const char *path, const void *bytes, size_t n);
/* Tests whether cli_write_file can create the file `path` now. Returns the system's error, or NULL
 * if it can. Leaves no file behind. */
const char *cli_write_fault(Cli *cli, const char *path);
bool cli_error(Cli *cli, Fault fault, const char *rule, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Takes over the reference to the value. */
void json_put(json_t *object, const char *key, json_t *value);
void json_text(json_t *object, const char *key, const char *value);
void json_count(json_t *object, const char *key, uint64_t value);
void json_number(json_t *object, const char *key, double value); /* writes null unless the number is
                                                                  * finite */
/* Returns a diagnostic as JSON, which diagnostic_of reads in another process. */
json_t *diagnostic_json(const Diagnostic *item);
/* Reads a diagnostic from JSON. A missing text becomes NULL. All texts become NULL if the severity
 * or the fault is unknown. */
Diagnostic diagnostic_of(const json_t *row, Arena *arena);
const char *format_time(Arena *arena, Ps ps);         /* "12.3 ms", three digits */
const char *format_ratio(Arena *arena, double ratio); /* "+3.5 %" */
/* Returns "error +3.5 %": a prediction's error is predicted / measured - 1, in every verb. */
const char *format_error(Arena *arena, double predicted, double measured);

/* A text table, whose columns are aligned when it is printed. */
typedef struct Table {
    Arena *arena;
    uint32_t n_columns;
    const char *const *heads; /* a leading '>' aligns to the right */
    LIST(const char *) cells;
} Table;
Table table_in(Arena *arena, uint32_t n_columns, const char *const *heads);
void table_cell(Table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void table_print(const Table *t, Str *out);

/* ---- planfile.c ---- */
/* Returns the name of the things that a step counts: "tokens", or the "points" of a grid. */
const char *graph_counts(const Graph *graph);
const char *plan_file_counts(const PlanFile *file);
/* Returns "GPU"; "rank" if the ranks are processes of this machine. */
const char *plan_file_device(const PlanFile *file);
/* Calls session_load with `options` (may be NULL) and the options of the command line, which take
 * precedence. */
PlanFile *plan_file_load(Cli *cli, const char *path, const PlanOptions *options);
/* Loads the plan like plan_file_load without `options`. The script stays open as cli->script until
 * plan_file_close. Two threads then work beside the caller. One proves a script's plan, until
 * session_settle. The other computes the answers of plan_file_ask that need a program of their own
 * (`timed` as there). */
PlanFile *plan_file_open(Cli *cli, const char *path, bool timed);
void plan_file_close(Cli *cli);
/* Returns a copy of `options` (NULL: zeros), with the options of the command line added. */
PlanOptions plan_file_options(Cli *cli, const PlanOptions *options);
/* Refuses to run a plan that reproduces another system's mistakes; such a plan may only be
 * inspected. */
bool plan_may_run(Cli *cli, const PlanFile *file);
/* Number in all programs together. */
uint64_t plan_instructions(const Plan *plan, bool communications_only);
const char *mesh_text(Arena *arena, const Mesh *mesh); /* "dp_shard 8 x tp 2"; "1 rank" */
/* Like mesh_text, but shows a mesh with folded experts as the script gives it, without ep. */
const char *plan_mesh_text(Arena *arena, const PlanFile *file);
/* If experts are folded: adds a line that names the ranks over which they are divided. */
void report_folded(Cli *cli, const Config *config);
/* Adds the lines that `check` and `sim` have in common. */
void plan_file_report(Cli *cli, const PlanFile *file);
/* plan_file_memory reports the worst rank's arena, reserved bytes and the device's memory, as text
 * and JSON. */
uint64_t host_bytes_of(const Plan *plan); /* host memory of the rank that needs the most */
void plan_file_memory(Cli *cli, const PlanFile *file);
/* Computes the process memory under the plan's runtime. If the plan names no runtime, computes it
 * for each framework that could run it; `file` may then hold only a configuration, without a plan.
 * A plan's text and a plan for this machine have no such answers. `timed`: also step times.
 * `scenario`: how ranks or experts differ, for the step times; NULL: they do not differ. Looks up
 * stored answers in `store`, which may be NULL. */
typedef struct Whose Whose;
struct Scenario;
Whose *plan_file_ask(Cli *cli, const PlanFile *file, bool timed, const struct Scenario *scenario,
                     Store *store);
/* Begins to compute those answers in a thread, before the plan is compiled. plan_file_ask takes
 * them if it is asked for the same. plan_file_forget drops them. */
void plan_file_ask_early(Cli *cli, const Config *config, bool timed);
void plan_file_forget(Cli *cli);
/* Reports the answers, and stores new ones in `store`, which may be NULL. head: words at the
 * beginning of each line that name the plan, as in "best plan"; "": it is the command's plan.
 * made_of: receives the scripts of the answers; may be NULL. */
void plan_file_tell(Cli *cli, Whose *whose, const char *head, Store *store, Recipe *made_of);

/* Reads the configuration and the mesh of PLAN, before any pass; returns false after reporting
 * diagnostics. */
bool plan_file_mesh(Cli *cli, const char *path, Config *config, Mesh *mesh);

/* ---- show_state.c, show_mesh.c ---- */
void show_state(Cli *cli, const PlanFile *file);
void show_mesh(Cli *cli, const Config *config, const Mesh *mesh);

/* ---- cmd_explain.c ---- */
typedef struct Rule {
    const char *id, *text, *reason, *fix;
    const char *bug; /* the error that would stay silent without the rule; "": none */
} Rule;
const Rule *rule_find(const char *id);
extern const Rule *const rules;
extern const uint32_t n_rules;

/* ---- machine.c ---- */
/* Returns the key of this machine's measurements: "local:<cpu model>:<cores>:<kernels of
 * OpenBLAS>". */
const char *machine_key(Arena *arena);
const char *machine_cpu(Arena *arena);
uint64_t machine_memory(void);
/* path of this command; NULL: unknown */
const char *machine_own_path(Arena *arena);
const char *find_in_path(Arena *arena, const char *program); /* returns NULL if it is not there */

/* ---- the verbs ---- */
void cmd_check(Cli *cli);
void cmd_show(Cli *cli);
void cmd_sim(Cli *cli);
void cmd_sweep(Cli *cli);
void cmd_search(Cli *cli);
void cmd_fit(Cli *cli);
void cmd_run(Cli *cli);
void cmd_compare(Cli *cli);
void cmd_calibrate(Cli *cli);
void cmd_explain(Cli *cli);
void cmd_runs(Cli *cli);
void cmd_db(Cli *cli);
void cmd_doctor(Cli *cli);
void cmd_help(Cli *cli);
void cmd_trace(Cli *cli);
void cmd_net(Cli *cli);
void cmd_import(Cli *cli);
void cmd_accuracy(Cli *cli);

#endif
