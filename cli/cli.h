/* Declarations that all verbs share: options, output, exit code. Only this layer prints for people
 * or ends the process. Results go to standard output, everything else to standard error. */
#ifndef TANDEM_CLI_CLI_H
#define TANDEM_CLI_CLI_H

#include <jansson.h>

#include "exec/module/options.h"
#include "planner/base/diag.h"
#include "session/session.h"

typedef LIST(const char *) TextList;

/* The options of single verbs, in groups. NAME_text is an option's value as the user gave it, or
 * NULL if the option was not given. NAME is its checked value, or 0 if the option was not given. */
typedef struct ShowOptions {
    const char *after, *role_text, *rank_text;
    uint32_t role, rank; /* role and rank to show; UINT32_MAX: the option was not given */
    bool text, mesh, state;
} ShowOptions;

typedef struct NetOptions {
    const char *per_node_text, *min_text, *max_text, *issue, *buffers, *compare;
    const char *collective; /* this option also belongs to import */
    uint32_t per_node;
} NetOptions;

typedef struct AccuracyOptions {
    const char *runs, *kernels, *comm, *plot;
} AccuracyOptions;

typedef struct SweepOptions {
    TextList try_, where; /* try_: KEY=VALUE,VALUE,...; where: conditions */
    const char *by, *shard, *slurm_text;
    uint32_t shard_index, n_shards; /* for --shard 2/8: 1 and 8; without the option: 0 and 1 */
    uint32_t slurm;
    bool exhaustive, csv, prove;
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
    TextList what_if; /* each is KEY=VALUE or KEY=2x */
    const char *mfu;  /* the name of a convention, or "all"; NULL: the option was not given */
    bool trace, explain, unfolded;
} SimVerbOptions;

typedef struct RunVerbOptions {
    const char *backend, *data, *steps_text, *every_text, *timeout_text;
    /* values of the options about checkpoints */
    const char *save, *load, *save_every_text, *keep_text;
    uint32_t steps, every, save_every, keep;
    double timeout_s;
    /* the file to which the run writes how often experts were chosen; NULL: none */
    const char *loads;
    bool verify, poison;
    BackendValue backend_values[BACKEND_OPTION_COUNT];
} RunVerbOptions;

/* Every option of every verb has a field here. The table in options.c says which verb has which
 * option. */
typedef struct Options {
    TextList set; /* values of --set, each such as "mesh.tp=4" */
    const char *db, *color, *output, *cluster, *nodes, *ranks, *machine;
    const char *seed_text, *n_text, *limit_text, *jobs_text, *price_text, *tokens_text, *pue_text;
    uint64_t seed;
    uint32_t n, limit, jobs, n_nodes; /* 0: the option was not given */
    double price_usd, tokens, pue;    /* price_usd < 0: not given; pue: 1 if not given */
    bool json, quiet, verbose, help, dry_run, no_store, exact;
    bool n_short; /* the user gave n_text by the short form -n */
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
    const char *program; /* name of the command (argv[0]) */
    const char *const *argv;
    int argc;
    const char *const *args; /* all arguments except the verb and the options */
    uint32_t n_args;
    Str out; /* the result as text, which is printed at the end, or not at all with --json */
    /* the line of `out` that names the stored run: its first byte, and the byte after its end; both
     * 0: there is no such line */
    size_t run_line, run_line_end;
    json_t *json; /* with --json: the result as a document; otherwise NULL */
    /* The process of PLAN's script. It stays open, because a verb may load the plan again. NULL:
     * there is none. */
    FrontScript *script;
    /* predictions for frameworks, which a thread makes in the background (frameworks.c); NULL:
     * none */
    struct EarlyAnswers *early;
    bool color;    /* true if standard output is printed in colour */
    int exit_code; /* the exit code; 0: it follows from the diagnostics */
} Cli;

struct Verb {
    const char *name, *arguments; /* arguments: as the help shows them, such as "PLAN" */
    uint32_t min_args, max_args;
    const char *summary; /* one line about the verb */
    const char *about;   /* one or two paragraphs about the verb */
    const char *example; /* a command that can be run as it is */
    uint32_t options;    /* the groups of options that the verb takes: OPTIONS_... */
    void (*run)(Cli *cli);
};

/* Groups of options. A verb takes all options of its groups. An option of group 0 belongs to every
 * verb. */
enum {
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
        4096 /* a group without options: it marks a verb that can do nothing without a store */
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
    char letter; /* the short form of the option; 0: none */
    OptionKind kind;
    /* the name of the option's value in the help; NULL: a flag, which has no value */
    const char *value;
    size_t field;    /* offset in Options of the field that the option sets */
    uint32_t groups; /* groups to which the option belongs; 0: every verb has it */
    const char *help;
} Option;
extern const Option *const options_list;
extern const uint32_t options_count;
/* Reads a number with a unit, such as 1000000, 300K or 1.5T, from 1 to 1e18. The k-th letter of
 * `units` stands for 1000^k. Returns false for any other text. */
bool option_thousands(const char *text, const char *units, double *value);
/* Reads the options from argv[2] on. Returns false after reporting diagnostics. */
bool options_parse(Cli *cli, int argc, char **argv);
/* Appends the help of all options of a verb, one or two lines each. */
void options_help(const Verb *verb, Str *out);

/* ---- help.c ---- */
void help_verb(const Verb *verb, Str *out);
void help_overview(Str *out);
/* Appends the help of a topic. Returns false if there is no topic of this name. */
bool help_topic(const char *name, Str *out);
extern const char *const help_topics[]; /* the last entry is NULL */

/* ---- output.c ---- */
const char *paint(const Cli *cli, Paint paint, const char *text);
bool color_wanted(const Cli *cli, int fd);
/* Prints diagnostics and results. Returns the exit code of the process. */
int cli_finish(Cli *cli);
/* Prints the diagnostics so far to standard error. A slow verb calls this function early, so that
 * the user need not wait for the diagnostics. */
void cli_flush_diagnostics(Cli *cli);
/* Drops the diagnostics so far without printing them. They still count for the exit code. */
void cli_forget_diagnostics(Cli *cli);
/* Appends a line of help: `left` in a column of this width, then `text`. If `left` is wider than
 * the column, `text` goes to a second line. */
void help_line(Str *out, int width, const char *left, const char *text);
/* Appends a word in the quotes that a shell needs. */
void cli_add_word(Str *out, const char *word);
/* Writes a file. The file gets its name only when it is complete. A device, a pipe or the target of
 * a link is written directly. Returns false after a diagnostic. */
bool cli_write_file(Cli *cli, const char *path, const void *bytes, size_t n);
/* Tests whether cli_write_file could write the file `path` now. Returns the system's error, or NULL
 * if it could. Leaves no file behind. */
const char *cli_write_fault(Cli *cli, const char *path);
bool cli_error(Cli *cli, Fault fault, const char *rule, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Sets object[key] = value, and takes over the caller's reference to the value. */
void json_put(json_t *object, const char *key, json_t *value);
void json_text(json_t *object, const char *key, const char *value);
void json_count(json_t *object, const char *key, uint64_t value);
/* Sets object[key] to the number, or to null if the number is not finite. */
void json_number(json_t *object, const char *key, double value);
/* Returns a diagnostic as JSON. diagnostic_of can read it, in another process, too. */
json_t *diagnostic_json(const Diagnostic *item);
/* Reads a diagnostic from JSON. A text that is missing becomes NULL. If the severity or the fault
 * is unknown, all texts become NULL. */
Diagnostic diagnostic_of(const json_t *row, Arena *arena);
/* Returns a time with three digits: "12.3 ms". */
const char *format_time(Arena *arena, Ps ps);
/* Returns a ratio in percent, with its sign: "+3.5 %". */
const char *format_ratio(Arena *arena, double ratio);
/* Returns "error +3.5 %". In every verb, the error of a prediction is predicted / measured - 1. */
const char *format_error(Arena *arena, double predicted, double measured);

/* A text table. Its columns are aligned when it is printed. */
typedef struct Table {
    Arena *arena;
    uint32_t n_columns;
    /* the titles of the columns; a title that begins with '>' is aligned to the right */
    const char *const *heads;
    LIST(const char *) cells;
} Table;
Table table_in(Arena *arena, uint32_t n_columns, const char *const *heads);
void table_cell(Table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void table_print(const Table *t, Str *out);

/* ---- planfile.c ---- */
/* Returns the name of the items that a model processes: "tokens", or "points" of a grid. */
const char *graph_counts(const Graph *graph);
const char *plan_file_counts(const PlanFile *file);
/* Returns the word for a device: "GPU", or "rank" if the ranks are processes of this machine. */
const char *plan_file_device(const PlanFile *file);
/* Calls session_load with `options` (may be NULL) and the options of the command line. If both give
 * an option, the command line decides. */
PlanFile *plan_file_load(Cli *cli, const char *path, const PlanOptions *options);
/* Loads the plan like plan_file_load without `options`, and keeps its script open as cli->script
 * until plan_file_close. Two threads then work beside the caller. One proves the plan;
 * session_settle waits for it. The other begins the predictions for frameworks
 * (frameworks_ask_early); `timed` has the same meaning as in frameworks_ask. */
PlanFile *plan_file_open(Cli *cli, const char *path, bool timed);
void plan_file_close(Cli *cli);
/* Returns a copy of `options`, with the options of the command line added. If `options` is NULL,
 * all of its fields count as zero. */
PlanOptions plan_file_options(Cli *cli, const PlanOptions *options);
/* Returns the plan of run `id`, read from its stored text. Reports an error and returns NULL if the
 * store has no text, or if another version of Tandem stored it in another form. The hint of the
 * error then says how to make the run again. */
Plan *plan_stored(Cli *cli, Store *store, int64_t id, const RunRecord *run);
/* Returns false after an error if the plan reproduces another system's mistakes. Such a plan may be
 * inspected but not run. */
bool plan_may_run(Cli *cli, const PlanFile *file);
/* Returns the number of instructions in all programs together. */
uint64_t plan_instructions(const Plan *plan, bool communications_only);
/* Returns the sizes of a mesh: "dp_shard 8 x tp 2", or "1 rank". */
const char *mesh_text(Arena *arena, const Mesh *mesh);
/* Like mesh_text, but if experts are folded (ep uses ranks of other axes again), the mesh is shown
 * as the script gives it, without ep. */
const char *plan_mesh_text(Arena *arena, const PlanFile *file);
/* If experts are folded: prints a line that names the ranks over which they are divided. */
void report_folded(Cli *cli, const Config *config);
/* Prints the lines that `check` and `sim` have in common. */
void plan_file_report(Cli *cli, const PlanFile *file);
/* Reports the worst rank's arena, reserved bytes and the device's memory, as text and JSON. */
void plan_file_memory(Cli *cli, const PlanFile *file);
/* Returns the host memory of the rank that needs the most. */
uint64_t host_bytes_of(const Plan *plan);

/* ---- frameworks.c ---- */
/* Predictions for other frameworks that could run the plan. */
typedef struct Frameworks Frameworks;
struct Scenario;
/* Predicts how much memory a process of each framework would need and, with `timed`, how long a
 * step would take. If the plan names a runtime, there is one prediction, for its framework.
 * Otherwise there is one for each framework that could run the plan; `file` may then hold only a
 * configuration, without a plan. Returns no predictions if the plan was given as text or was made
 * for this machine. `scenario`: how ranks or experts differ, for the step times; NULL: they do
 * not differ. `store`: holds earlier predictions; may be NULL. */
Frameworks *frameworks_ask(Cli *cli, const PlanFile *file, bool timed,
                           const struct Scenario *scenario, Store *store);
/* Begins to make these predictions in a thread, before the plan is compiled. Only those that need a
 * program of their own are begun. A later frameworks_ask takes them, and frameworks_forget drops
 * them. */
void frameworks_ask_early(Cli *cli, const Config *config, bool timed);
void frameworks_forget(Cli *cli);
/* Prints the predictions, and puts new ones into `store`, which may be NULL. head: words at the
 * beginning of each line that name the plan, such as "best plan"; "": the command's own plan.
 * made_of: receives the scripts from which the predictions were made; may be NULL. */
void frameworks_print(Cli *cli, Frameworks *frameworks, const char *head, Store *store,
                      Recipe *made_of);

/* Reads the configuration and the mesh of PLAN before any pass runs. Returns false after reporting
 * diagnostics. */
bool plan_file_mesh(Cli *cli, const char *path, Config *config, Mesh *mesh);

/* ---- show_state.c, show_mesh.c ---- */
void show_state(Cli *cli, const PlanFile *file);
void show_mesh(Cli *cli, const Config *config, const Mesh *mesh);

/* ---- cmd_explain.c ---- */
typedef struct Rule {
    const char *id, *text, *reason, *fix;
    const char *bug; /* the error that nobody would notice without the rule; "": none */
} Rule;
const Rule *rule_find(const char *id);
extern const Rule *const rules;
extern const uint32_t n_rules;

/* ---- machine.c ---- */
/* Returns the name under which the store keeps this machine's measurements: "local:<cpu
 * model>:<cores>:<kernels of OpenBLAS>". */
const char *machine_key(Arena *arena);
const char *machine_cpu(Arena *arena);
uint64_t machine_memory(void);
/* Returns the path of this command's file, or NULL if it is unknown. */
const char *machine_own_path(Arena *arena);
/* Returns the path of a program in the folders of $PATH, or NULL if none has it. */
const char *find_in_path(Arena *arena, const char *program);

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
