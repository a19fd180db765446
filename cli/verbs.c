/* The table of verbs, and how the first argument selects one. */
#include <assert.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "planner/base/log.h"

#define PLAN_GROUPS (OPTIONS_plan | OPTIONS_text_plan)

/* clang-format off: in `about`, a literal is a printed line */
static const Verb verb_table[] = {
    {"check", "PLAN", 1, 1, "Validate a plan and prove that it is correct",
     "Compiles the script (or the text of a plan) into one program for each role. Proves layouts,\n"
     "scale, races, deadlock and coverage of these programs. Says whether the plan fits the "
     "device.",
     "tandem check scripts/plans/llama3_8b.lua --set mesh.tp=4 --set mesh.dp_shard=4", PLAN_GROUPS,
     cmd_check},
    {"show", "PLAN", 1, 1, "Print the program of each role, or the graph after a pass",
     "Prints all programs in a form for people; --text prints the exact form. --after prints the "
     "graph\n"
     "after a pass, --mesh the mesh, --state the content of a checkpoint.",
     "tandem show scripts/plans/tiny_text.lua --after tp", PLAN_GROUPS | OPTIONS_show, cmd_show},
    {"sim", "PLAN", 1, 1, "Predict time, memory and communication, and store the prediction",
     "Runs the plan in virtual time on the plan's cluster. A plan that does not fit is also "
     "predicted.\n"
     "A stored prediction is not made again.",
     "tandem sim scripts/plans/llama3_8b.lua", PLAN_GROUPS | OPTIONS_sim, cmd_sim},
    {"sweep", "PLAN|SWEEP", 1, 1, "Predict every combination of settings, and rank them",
     "Compiles and simulates each combination of the --try values, and proves the best plan. A\n"
     "combination that does not fit or is refused is listed with its reason. Predictions are "
     "stored as\n"
     "they are made, so the same command continues after a stop. --set applies to all "
     "combinations.\n"
     "SWEEP is a script that names a plan, values, conditions and a score:\n"
     "docs/how-to/sweep-from-a-script.md.",
     "tandem sweep scripts/plans/llama3_8b.lua --set mesh.dp_shard=-1 --try mesh.tp=1,2,4,8",
     PLAN_GROUPS | OPTIONS_sweep, cmd_sweep},
    {"search", "PLAN", 1, 1, "Find the fastest layout of a model on its cluster",
     "Tries sizes of each mesh axis that the model can use, with micro-batches, recomputation and\n"
     "sharding, if all sizes divide evenly. Lower bounds reject points before they are compiled.\n"
     "The other points are simulated, and the ten best are proven in full. --set fixes a setting.",
     "tandem search scripts/plans/llama3_8b.lua --set batch.micro=1", PLAN_GROUPS | OPTIONS_search,
     cmd_search},
    {"fit", "PLAN", 1, 1, "Find changes that make a plan fit its cluster",
     "Tries single changes, then pairs: recomputation, micro-batch, sharding, tensor and pipeline\n"
     "ranks, moments in bf16, host memory. Prints the changes that fit, the fastest first, and "
     "the\n"
     "largest micro-batch, sequence and number of layers that fit. --tokens adds days and prices\n"
     "for several numbers of nodes; --days and --usd find the smallest number that is enough.",
     "tandem fit scripts/plans/llama3_8b.lua --set batch.micro=4", PLAN_GROUPS | OPTIONS_fit,
     cmd_fit},
    {"run", "PLAN", 1, 1, "Train: execute the plan's program, and compare with the prediction",
     "First measures the costs of this machine that the store lacks. With the mpi backend, it "
     "then\n"
     "starts one process for each rank under mpirun. If you start the command with mpirun or srun\n"
     "yourself, each of its processes is one rank.",
     "tandem run scripts/plans/tiny_text.lua -n 4", OPTIONS_plan | OPTIONS_run, cmd_run},
    {"compare", "[RUN [RUN]]", 0, 2,
     "Compare a measured run with its prediction, or two runs with each other",
     "RUN is the number of a measured run (see `tandem runs`); the default is the newest.\n"
     "Two numbers, of any runs, print both runs side by side.",
     "tandem compare", NEEDS_STORE, cmd_compare},
    {"calibrate", "[PLAN]", 0, 1,
     "Measure this machine's kernels and collectives, and store the times",
     "Measures each kernel and each collective that the plan needs, with its sizes. Predictions "
     "for\n"
     "this machine then use these times. Times that the store has already are listed as `known`.\n"
     "The default plan is plans/tiny_text.lua of the library.",
     "tandem calibrate scripts/plans/tiny_text.lua", OPTIONS_plan | OPTIONS_calibrate,
     cmd_calibrate},
    {"accuracy", "", 0, 0, "Score predictions against published measurements",
     "Makes a plan of every row of a table of training runs, simulates it and compares. Does the "
     "same\n"
     "with kernels and collectives. Rows that cannot become a plan are counted by reason.",
     "tandem accuracy --runs tests/data/published_runs.csv", OPTIONS_accuracy, cmd_accuracy},
    {"net", "CLUSTER|PLAN", 1, 1, "Predict collectives by size, in the columns of nccl-tests",
     "CLUSTER is a cluster of the library, PLAN a script with a cluster. Each line has the time, "
     "and "
     "the\n"
     "algorithm, protocol and channels that NCCL would choose.",
     "tandem net dgx_h100 --nodes 2 --collective all_gather --min 1M", OPTIONS_net, cmd_net},
    {"import", "FILE...", 1, 1024, "Store measurements of other tools",
     "FILE is an output of nccl-tests, an SQLite export of nsys, or a Chrome trace of PyTorch's\n"
     "profiler. `tandem sim --machine NAME` then uses the collectives, and the kernels of traces\n"
     "with shapes. Import the traces of all ranks at once: only the rank that starts a collective\n"
     "last shows its time, because the others wait for it.",
     "tandem import all_reduce.txt --machine dgx1", OPTIONS_import, cmd_import},
    {"trace", "RUN", 1, 1, "Write a run's steady step as a Chrome trace",
     "Writes one track for each rank and stream; open the file in Perfetto or chrome://tracing.",
     "tandem trace 2 -o step.json", OPTIONS_trace, cmd_trace},
    {"explain", "[RULE]", 0, 1, "Explain the rule of a diagnostic",
     "RULE is the word in brackets, as in error[divides-heads]. Without RULE all rules are listed.",
     "tandem explain divides-heads", 0, cmd_explain},
    {"runs", "", 0, 0, "List predictions and measured runs, newest first",
     "`tandem compare` and `tandem trace` take the numbers in this list.", "tandem runs --limit 5",
     OPTIONS_runs, cmd_runs},
    {"db", "path|info|check|prune|merge FILE|export NAME|RUN", 1, 2,
     "Inspect, check, prune, merge or export the store",
     "path, info and check print the store's place, its content, and whether it is sound. prune\n"
     "removes rows that no command can find any more. merge copies the rows of another store. "
     "export\n"
     "prints a table or view as CSV, or writes the scripts of a run's plan to a folder (--output). "
     "The\n"
     "store is an SQLite file with views for people (v_run, v_sweep, ...): any SQLite tool reads "
     "it.",
     "tandem db export v_sweep", NEEDS_STORE | OPTIONS_db, cmd_db},
    {"doctor", "", 0, 0, "Look for MPI, CUDA, cores, memory and the store", "", "tandem doctor", 0,
     cmd_doctor},
    {"help", "[TOPIC]", 0, 1, "Print this overview, or help on a verb or a topic", "",
     "tandem help exit-codes", 0, cmd_help},
};
/* clang-format on */
const Verb *const verbs = verb_table;
const uint32_t n_verbs = sizeof verb_table / sizeof verb_table[0];

const Verb *verb_find(const char *name)
{
    for (uint32_t i = 0; i < n_verbs; i++)
        if (strcmp(verbs[i].name, name) == 0) return &verbs[i];
    return NULL;
}

/* Returns Tandem's verb for a word that other tools use, such as "sim" for "predict". Returns NULL
 * if there is none. */
static const char *usual_word(const char *name)
{
    static const char *const words[][2] = {
        {"predict", "sim"},    {"simulate", "sim"},     {"estimate", "sim"},
        {"train", "run"},      {"verify", "check"},     {"validate", "check"},
        {"prove", "check"},    {"plan", "check"},       {"diff", "compare"},
        {"tune", "search"},    {"optimize", "search"},  {"list", "runs"},
        {"ls", "runs"},        {"export", "db export"}, {"merge", "db merge"},
        {"prune", "db prune"}, {"version", "--version"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i][0], name) == 0) return words[i][1];
    return NULL;
}

static void unknown_verb(Cli *cli, const char *name)
{
    static const char *const options[] = {"--help", "--version"};
    const char **names = arena_array(cli->arena, n_verbs, sizeof *names);
    for (uint32_t i = 0; i < n_verbs; i++) names[i] = verbs[i].name;
    const char *near = usual_word(name);
    if (near == NULL && name[0] == '-') near = str_nearest(name, options, 2);
    if (near == NULL) near = str_nearest(name, names, n_verbs);
    cli_error(cli, FAULT_usage, "unknown-verb", "tandem has no verb '%s'", name);
    if (near != NULL)
        diag_hint(&cli->diag, "did you mean `tandem %s`?", near);
    else
        diag_hint(&cli->diag, "`tandem help` lists them");
}

/* Reports that no verb was given. The options were not read, but with --json the user still gets a
 * document. */
static void no_verb(Cli *cli, const char *name)
{
    for (int i = 2; i < cli->argc; i++)
        if (strcmp(cli->argv[i], "--json") == 0) cli->options.json = true;
    if (cli->options.json) {
        cli->json = json_object();
        json_text(cli->json, "schema", "tandem.error/1");
        json_text(cli->json, "version", TANDEM_VERSION);
    }
    unknown_verb(cli, name);
}

static void check_arguments(Cli *cli)
{
    const Verb *verb = cli->verb;
    bool empty = false;
    for (uint32_t i = 0; i < cli->n_args; i++) empty = empty || cli->args[i][0] == 0;
    if (empty)
        cli_error(cli, FAULT_usage, "arguments", "tandem %s: an argument is empty", verb->name);
    else if (cli->n_args < verb->min_args)
        cli_error(cli, FAULT_usage, "arguments", "tandem %s needs %s", verb->name, verb->arguments);
    else if (cli->n_args > verb->max_args)
        cli_error(cli, FAULT_usage, "arguments", "tandem %s: '%s' is one argument too many",
                  verb->name, cli->args[verb->max_args]);
    else
        return;
    diag_hint(&cli->diag, "for example: %s", verb->example);
}

static void out_of_memory(void *self)
{
    (void)self;
    static const char text[] = "error[out-of-memory]: no memory left\n";
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)written;
    _exit(1);
}

/* Allocates memory for the JSON library. Its calls fail only for lack of memory. The failure is
 * handled here, so callers need no check. */
static void *take_memory(size_t bytes)
{
    void *at = malloc(bytes);
    if (at == NULL) out_of_memory(NULL);
    return at;
}

/* Handles `--db none`. Predictions are then made but not stored, and proofs need no store. Verbs
 * that need a store refuse. */
static bool without_store(Cli *cli, bool from_environment)
{
    if (strcmp(cli->options.db, "none") != 0) return true;
    cli->options.no_store = true;
    if (cli->verb->options & OPTIONS_sim) cli->options.dry_run = true;
    if (cli->options.run.verify)
        return true; /* run --verify runs on loopback and reads nothing from the store */
    const uint32_t needs = NEEDS_STORE | OPTIONS_run | OPTIONS_trace | OPTIONS_runs |
                           OPTIONS_calibrate | OPTIONS_import;
    if (!(cli->verb->options & needs)) return true;
    cli_error(cli, FAULT_usage, "option-value", "%s none: tandem %s needs a store",
              from_environment ? "TANDEM_DB is" : "--db", cli->verb->name);
    diag_hint(&cli->diag, "%s, or name a file (a file called none: ./none)",
              from_environment ? "unset TANDEM_DB" : "leave out --db");
    return false;
}

static void run_verb(Cli *cli, int argc, char **argv)
{
    bool fine = options_parse(cli, argc - 1, argv + 1);
    cli->color = !cli->options.json && color_wanted(cli, STDOUT_FILENO);
    if (cli->options.help) {
        cli->diag = diag_in(cli->arena);
        help_verb(cli->verb, &cli->out);
        return;
    }
    if (cli->options.json) {
        cli->json = json_object();
        json_text(cli->json, "schema", arena_print(cli->arena, "tandem.%s/1", cli->verb->name));
        json_text(cli->json, "version", TANDEM_VERSION);
    }
    if (fine) check_arguments(cli);
    if (cli->diag.n_errors > 0) return;
    bool from_environment = cli->options.db == NULL;
    if (from_environment) cli->options.db = getenv("TANDEM_DB");
    if (cli->options.db == NULL || cli->options.db[0] == 0) cli->options.db = "tandem.db";
    if (!without_store(cli, from_environment)) return;
    LogLevel level = cli->options.quiet ? LOG_quiet : cli->options.verbose ? LOG_debug : LOG_info;
    log_configure(level, -1);
    cli->verb->run(cli);
    plan_file_close(cli); /* closed even if the plan was refused */
}

int cli_main(int argc, char **argv)
{
    /* Ignore the signal about a closed pipe: if the reader leaves early, as `| head` does, the
     * results must still reach the store. */
    signal(SIGPIPE, SIG_IGN);
    /* a file that reaches the size limit then gives an error, like a full disk */
    signal(SIGXFSZ, SIG_IGN);
    setlocale(LC_ALL, "C");
    arena_on_full(out_of_memory, NULL);
    json_set_alloc_funcs(take_memory, free);
    Arena *arena = arena_new();
    Cli cli = {.arena = arena, .diag = diag_in(arena), .out = str_in(arena)};
    cli.program = argc > 0 ? argv[0] : "tandem";
    cli.argv = (const char *const *)argv;
    cli.argc = argc;
    const char *word = argc > 1 ? argv[1] : "help";
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) word = "help";
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        str_add(&cli.out, "tandem " TANDEM_VERSION "\n");
    } else {
        cli.verb = verb_find(word);
        if (cli.verb != NULL && argc > 1)
            run_verb(&cli, argc, argv);
        else if (cli.verb != NULL)
            help_overview(&cli.out);
        else
            no_verb(&cli, word);
    }
    int code = cli_finish(&cli);
    arena_free(arena);
    return code;
}
