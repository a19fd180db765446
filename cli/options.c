/* The table of all options. It serves to read the command line, to print the help, and to find the
 * option that a misspelt one means. */
#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define FIELD(name) offsetof(Options, name)
/* How the command line gives an option of a backend: the option's kind, and the member of
 * BackendValue that it sets. */
#define OPTION_OF_flag   OPTION_flag
#define OPTION_OF_word   OPTION_text
#define OPTION_OF_number OPTION_text
#define OPTION_OF_text   OPTION_text
#define VALUE_OF_flag    is_set
#define VALUE_OF_word    text
#define VALUE_OF_number  text
#define VALUE_OF_text    text
static const Option option_table[] = {
    {"set", 's', OPTION_list, "KEY=VALUE", FIELD(set), OPTIONS_plan | OPTIONS_accuracy,
     "change a value of the plan, as in --set mesh.tp=4; repeatable"},
    {"try", 't', OPTION_list, "KEY=V1,V2,...", FIELD(sweep.try_), OPTIONS_sweep,
     "try these values of a setting, as in mesh.tp=1,2,4; repeated: all combinations"},
    {"what-if", 0, OPTION_list, "KEY=VALUE", FIELD(sim.what_if), OPTIONS_sim,
     "predict also with this value, as in nic=2x, gpu=B200 or mesh.tp=4; repeatable"},
    {"where", 0, OPTION_list, "CONDITION", FIELD(sweep.where), OPTIONS_sweep | OPTIONS_search,
     "keep only combinations for which this is true, as in \"tp*pp <= 64 and micro > 1\""},
    {"shard", 0, OPTION_text, "I/N", FIELD(sweep.shard), OPTIONS_sweep,
     "predict only part I of N equal parts of the sweep"},
    {"slurm", 0, OPTION_text, "N", FIELD(sweep.slurm_text), OPTIONS_sweep,
     "print a Slurm array job of N parts instead; later join the stores with `db merge`"},
    {"by", 0, OPTION_text, "WHAT", FIELD(sweep.by), OPTIONS_sweep,
     "rank by tokens (per second; default), gpu (per second and GPU), memory, usd, energy"},
    {"exhaustive", 0, OPTION_flag, NULL, FIELD(sweep.exhaustive), OPTIONS_search,
     "simulate every plan of the search, even if a lower bound rejects it"},
    {"prove", 0, OPTION_flag, NULL, FIELD(sweep.prove), OPTIONS_sweep,
     "prove every plan of the sweep, not only the best one"},
    {"csv", 0, OPTION_flag, NULL, FIELD(sweep.csv), OPTIONS_sweep | OPTIONS_search,
     "print all rows as CSV, instead of a table"},
    {"price", 0, OPTION_text, "USD", FIELD(price_text),
     OPTIONS_sim | OPTIONS_sweep | OPTIONS_search | OPTIONS_fit,
     "the price of a GPU for an hour, instead of the library's"},
    {"tokens", 0, OPTION_text, "N", FIELD(tokens_text), OPTIONS_sim | OPTIONS_sweep | OPTIONS_fit,
     "predict days, GPU hours, cost and energy of a training on N tokens, as in 300B"},
    {"pue", 0, OPTION_text, "FACTOR", FIELD(pue_text), OPTIONS_sim | OPTIONS_sweep | OPTIONS_fit,
     "print the energy of boards at their power limits, times the site's PUE, as in 1.1"},
    {"days", 0, OPTION_text, "N", FIELD(fit.days_text), OPTIONS_fit,
     "with --tokens: the least number of nodes that trains in this many days"},
    {"usd", 0, OPTION_text, "N", FIELD(fit.usd_text), OPTIONS_fit,
     "with --tokens: the least number of nodes whose training costs at most this many USD"},
    {"seed", 0, OPTION_text, "N", FIELD(seed_text), OPTIONS_plan,
     "the seed of initial weights and data, instead of the plan's"},
    {"cluster", 0, OPTION_text, "NAME", FIELD(cluster), OPTIONS_text_plan,
     "use this cluster of the library, instead of the plan's"},
    {"nodes", 0, OPTION_text, "N", FIELD(nodes), OPTIONS_text_plan,
     "with --cluster: the number of nodes (default: as many as the ranks need)"},
    {"nodes", 0, OPTION_text, "N", FIELD(nodes), OPTIONS_net, "the number of nodes (default 1)"},
    {"gpus", 'n', OPTION_text, "N", FIELD(n_text), OPTIONS_net,
     "the number of GPUs in the group: whole nodes, or a part of one (default: all)"},
    {"per-node", 0, OPTION_text, "N", FIELD(net.per_node_text), OPTIONS_net,
     "use only this many GPUs of each node"},
    {"collective", 0, OPTION_text, "NAME", FIELD(net.collective), OPTIONS_net,
     "all_reduce (default), all_gather, reduce_scatter, all_to_all, broadcast, ..."},
    {"collective", 0, OPTION_text, "NAME", FIELD(net.collective), OPTIONS_import,
     "the collective that was measured, if the file does not state it"},
    {"min", 0, OPTION_text, "SIZE", FIELD(net.min_text), OPTIONS_net,
     "the smallest size, as in 8, 64K or 1M (default 8)"},
    {"max", 0, OPTION_text, "SIZE", FIELD(net.max_text), OPTIONS_net,
     "the largest size (default 8G)"},
    {"issue", 0, OPTION_text, "HOW", FIELD(net.issue), OPTIONS_net,
     "how nccl-tests issues calls: blocking (default), pipelined or one_process"},
    {"buffers", 0, OPTION_text, "WHERE", FIELD(net.buffers), OPTIONS_net,
     "buffers: plain (default), symmetric (windows), copy_engine (no SMs)"},
    {"compare", 0, OPTION_text, "FILE", FIELD(net.compare), OPTIONS_net,
     "an output of nccl-tests whose sizes are predicted and whose times are printed, too"},
    {"machine", 0, OPTION_text, "NAME", FIELD(machine), OPTIONS_import,
     "the name under which the measurements are stored, such as the machine's"},
    {"machine", 0, OPTION_text, "NAME", FIELD(machine), OPTIONS_sim | OPTIONS_sweep,
     "use the measurements that were imported under this name"},
    {"after", 0, OPTION_text, "PASS", FIELD(show.after), OPTIONS_show,
     "stop after this pass and print its result; all: show every graph"},
    {"role", 0, OPTION_text, "N", FIELD(show.role_text), OPTIONS_show,
     "print only the program of this role, from 0"},
    {"text", 0, OPTION_flag, NULL, FIELD(show.text), OPTIONS_show,
     "print the exact text form, which `tandem check` reads back"},
    {"mesh", 0, OPTION_flag, NULL, FIELD(show.mesh), OPTIONS_show,
     "print the mesh: axes, the node of each rank, the samples that each rank reads"},
    {"state", 0, OPTION_flag, NULL, FIELD(show.state), OPTIONS_show,
     "print the content of a checkpoint, and the cost of gathering it on rank 0"},
    {"rank", 0, OPTION_text, "R", FIELD(show.rank_text), OPTIONS_show,
     "with --state: list the slices of this rank; with --mesh: print only this rank"},
    {"mfu", 0, OPTION_text, "CONVENTION", FIELD(sim.mfu), OPTIONS_sim,
     "the formula of MFU: model, square, all_parameters, parameters, hardware (HFU) or all"},
    {"trace", 0, OPTION_flag, NULL, FIELD(sim.trace), OPTIONS_sim,
     "store the begin and end of each instruction, for `tandem trace` and `compare`"},
    {"mtbf", 0, OPTION_text, "HOURS", FIELD(scenario.mtbf_text), OPTIONS_sim,
     "hours between failures of one node (or 200d): predict the speed with failures"},
    {"checkpoint", 0, OPTION_text, "SECONDS", FIELD(scenario.checkpoint_text), OPTIONS_sim,
     "with --mtbf: the time to write a checkpoint (default 60)"},
    {"storage", 0, OPTION_text, "BYTES", FIELD(scenario.storage_text), OPTIONS_sim,
     "with --mtbf: the rate at which all ranks together write, as in 40G bytes/s"},
    {"restart", 0, OPTION_text, "SECONDS", FIELD(scenario.restart_text), OPTIONS_sim,
     "with --mtbf: the time to restart after a failure (default 300)"},
    {"interval", 0, OPTION_text, "SECONDS", FIELD(scenario.interval_text), OPTIONS_sim,
     "with --mtbf: the time between checkpoints (default: Daly's optimum)"},
    {"jitter", 0, OPTION_text, "SIGMA", FIELD(scenario.jitter_text), OPTIONS_sim,
     "vary kernel times at random (lognormal, as in 0.05); simulates every rank"},
    {"straggler", 0, OPTION_text, "RANK:FACTOR", FIELD(scenario.straggler_text), OPTIONS_sim,
     "make one rank slower, as in 3:1.2 (rank 3, factor 1.2); simulates every rank"},
    {"imbalance", 0, OPTION_text, "FACTOR|drawn|FILE", FIELD(scenario.imbalance_text), OPTIONS_sim,
     "uneven experts: the load of the busiest rank, a random draw, or counts"},
    {"explain", 0, OPTION_flag, NULL, FIELD(sim.explain), OPTIONS_sim,
     "print the critical path, the waits of each role, and settings that would help"},
    {"unfolded", 0, OPTION_flag, NULL, FIELD(sim.unfolded), OPTIONS_sim,
     "simulate every rank, even if several ranks do the same work"},
    {"ranks", 'n', OPTION_text, "N", FIELD(n_text), OPTIONS_run | OPTIONS_calibrate,
     "the number of processes; must equal the product of the plan's mesh"},
    {"backend", 0, OPTION_text, "NAME", FIELD(run.backend), OPTIONS_run | OPTIONS_calibrate,
     "mpi: one process a rank (default); cuda: GPUs; loopback: one process for all"},
#define BACKEND_OPTION(backend, type, id, name, kind, member, value, words, least, most, uses,     \
                       help)                                                                       \
    {name,                                                                                         \
     0,                                                                                            \
     OPTION_OF_##kind,                                                                             \
     value,                                                                                        \
     FIELD(run.backend_values[BACKEND_OPTION_##id].VALUE_OF_##kind),                               \
     ((uses)&BACKEND_RUNS ? OPTIONS_run : 0) |                                                     \
         ((uses)&BACKEND_CALIBRATES ? OPTIONS_calibrate : 0),                                      \
     help},
#include "exec/module/options.def"
    {"steps", 0, OPTION_text, "N", FIELD(run.steps_text), OPTIONS_run,
     "the number of steps of the training, instead of the plan's"},
    {"data", 0, OPTION_text, "FILE", FIELD(run.data), OPTIONS_run,
     "train on the bytes of this text, instead of the plan's data"},
    {"save", 0, OPTION_text, "DIR", FIELD(run.save), OPTIONS_run,
     "write a checkpoint into this folder after the last step"},
    {"save-every", 0, OPTION_text, "N", FIELD(run.save_every_text), OPTIONS_run,
     "with --save: also after every N steps"},
    {"keep", 0, OPTION_text, "N", FIELD(run.keep_text), OPTIONS_run,
     "with --save: keep the newest N checkpoints of the folder (default: all)"},
    {"load", 0, OPTION_text, "DIR", FIELD(run.load), OPTIONS_run,
     "continue from a checkpoint, or from the newest one of this folder"},
    {"verify", 0, OPTION_flag, NULL, FIELD(run.verify), OPTIONS_run,
     "run a small copy of the plan in fp64, and compare it with a run on one rank"},
    {"every", 0, OPTION_text, "N", FIELD(run.every_text), OPTIONS_run,
     "print every Nth step (default 10; 1 on a terminal and with -v)"},
    {"timeout", 0, OPTION_text, "SECONDS", FIELD(run.timeout_text), OPTIONS_run,
     "end the run when a communication takes longer than this (default 60)"},
    {"loads", 0, OPTION_text, "FILE", FIELD(run.loads), OPTIONS_run,
     "write how often each expert was chosen, as a file for `sim --imbalance`"},
    {"poison", 0, OPTION_flag, NULL, FIELD(run.poison), OPTIONS_run,
     "fill unused memory with NaNs, so that a wrong read shows"},
    {"ranks", 'n', OPTION_text, "N", FIELD(n_text), OPTIONS_import,
     "the number of ranks of the collective, if the file does not state it"},
    {"output", 'o', OPTION_text, "FILE", FIELD(output), OPTIONS_trace,
     "write to this file instead of standard output"},
    {"output", 'o', OPTION_text, "PATH", FIELD(output), OPTIONS_db,
     "export: write to this file or folder instead of standard output"},
    {"ranks", 0, OPTION_text, "LIST", FIELD(ranks), OPTIONS_trace,
     "write only these ranks, as in 0,1,8"},
    {"limit", 0, OPTION_text, "N", FIELD(limit_text), OPTIONS_runs | OPTIONS_sweep,
     "print at most this many rows (default 20)"},
    {"runs", 0, OPTION_text, "FILE", FIELD(accuracy.runs), OPTIONS_accuracy,
     "a table of published training runs"},
    {"kernels", 0, OPTION_text, "FILE", FIELD(accuracy.kernels), OPTIONS_accuracy,
     "a table of measured kernels"},
    {"comm", 0, OPTION_text, "FILE", FIELD(accuracy.comm), OPTIONS_accuracy,
     "a table of measured collectives"},
    {"plot", 0, OPTION_text, "FILE", FIELD(accuracy.plot), OPTIONS_accuracy,
     "plot predictions over measurements into this SVG file"},
    {"exact", 0, OPTION_flag, NULL, FIELD(exact), OPTIONS_accuracy | OPTIONS_sweep | OPTIONS_search,
     "simulate every micro-batch, even if they repeat each other"},
    {"jobs", 'j', OPTION_text, "N", FIELD(jobs_text),
     OPTIONS_accuracy | OPTIONS_sweep | OPTIONS_search | OPTIONS_fit,
     "the number of processes that predict at once (default: one for each core)"},
    {"dry-run", 0, OPTION_flag, NULL, FIELD(dry_run), 0,
     "print what would be done, and store nothing"},
    {"db", 0, OPTION_text, "FILE", FIELD(db), 0,
     "the store (default tandem.db); none: store nothing"},
    {"json", 0, OPTION_flag, NULL, FIELD(json), 0, "print one JSON document on standard output"},
    {"quiet", 'q', OPTION_flag, NULL, FIELD(quiet), 0, "print no warnings, notes or progress"},
    {"verbose", 'v', OPTION_flag, NULL, FIELD(verbose), 0,
     "print more notes, and every step of a run"},
    {"color", 0, OPTION_maybe, "WHEN", FIELD(color), 0,
     "color the output: auto (default), always or never; NO_COLOR turns it off"},
    {"help", 'h', OPTION_flag, NULL, FIELD(help), 0, "print this text"},
};
enum { N_OPTIONS = sizeof option_table / sizeof option_table[0] };
const Option *const options_list = option_table;
const uint32_t options_count = N_OPTIONS;

static bool takes(const Verb *verb, const Option *option)
{
    return option->groups == 0 || (option->groups & verb->options) != 0;
}

void options_help(const Verb *verb, Str *out)
{
    for (uint32_t i = 0; i < N_OPTIONS; i++) {
        const Option *option = &option_table[i];
        if (!takes(verb, option)) continue;
        Str left = str_in(out->arena);
        if (option->letter != 0)
            str_print(&left, "-%c, ", option->letter);
        else
            str_add(&left, "    ");
        str_print(&left, "--%s", option->name);
        if (option->kind == OPTION_maybe)
            str_print(&left, "[=%s]", option->value);
        else if (option->value != NULL)
            str_print(&left, " %s", option->value);
        help_line(out, 23, str_text(&left), option->help);
    }
}

static bool bad_value(Cli *cli, const char *option, const char *text, const char *wanted)
{
    return cli_error(cli, FAULT_usage, "option-value", "%s%s %s: %s is expected",
                     option[0] == '-' ? "" : "--", option, text, wanted);
}

static bool read_count(Cli *cli, const char *option, const char *text, uint64_t most,
                       uint64_t *value)
{
    if (text == NULL) return true;
    char *end = NULL;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != 0 || errno != 0 || n > most)
        return bad_value(cli, option, text,
                         text[0] < '0' || text[0] > '9' || *end != 0
                             ? "a whole number"
                             : arena_print(cli->arena, "a whole number up to %" PRIu64, most));
    *value = n;
    return true;
}

static bool read_small(Cli *cli, const char *option, const char *text, uint32_t least,
                       uint32_t *value)
{
    uint64_t wide = *value;
    if (!read_count(cli, option, text, INT32_MAX, &wide)) return false;
    if (text != NULL && wide < least)
        return bad_value(cli, option, text, arena_print(cli->arena, "at least %" PRIu32, least));
    *value = (uint32_t)wide;
    return true;
}

static bool read_price(Cli *cli, const char *text, double *value)
{
    if (text == NULL) return true;
    char *end = NULL;
    *value = strtod(text, &end);
    if (end != text && *end == 0 && *value >= 0 && *value < 1e6) return true;
    return bad_value(cli, "price", text, "dollars an hour, as in 2.5,");
}

static bool read_pue(Cli *cli, const char *text, double *value)
{
    *value = 1;
    if (text == NULL) return true;
    char *end = NULL;
    *value = strtod(text, &end);
    if (end != text && *end == 0 && *value >= 1 && *value <= 10) return true;
    return bad_value(cli, "pue", text, "a factor from 1 to 10, as in 1.1,");
}

static bool read_limit(Cli *cli, const char *option, const char *text, double *value)
{
    if (text == NULL) return true;
    char *end = NULL;
    *value = strtod(text, &end);
    if (end != text && *end == 0 && *value > 0 && *value < 1e15) return true;
    return bad_value(cli, option, text, "a positive number");
}

bool option_thousands(const char *text, const char *units, double *value)
{
    char *end = NULL;
    *value = strtod(text, &end);
    const char *unit = end != text && *end != 0 ? strchr(units, *end) : NULL;
    if (unit != NULL) *value *= pow(1000, (double)(unit - units + 1)), end++;
    return end != text && *end == 0 && *value >= 1 && *value <= 1e18;
}

static bool read_tokens(Cli *cli, const char *text, double *value)
{
    if (text == NULL || option_thousands(text, "KMBT", value)) return true;
    return bad_value(cli, "tokens", text, "a number, as in 300B or 15T,");
}

/* Reads the value of --shard: 2/8 means the second of eight parts. */
static bool read_shard(Cli *cli, const char *text, uint32_t *index, uint32_t *n)
{
    char *end = NULL;
    *index = 0, *n = 1;
    if (text == NULL) return true;
    const unsigned long at = strtoul(text, &end, 10);
    const bool first = end != text && *end == '/' && end[1] >= '0' && end[1] <= '9';
    const unsigned long of = first ? strtoul(end + 1, &end, 10) : 0;
    if (!first || *end != 0 || at < 1 || at > of || of > INT32_MAX)
        return bad_value(cli, "shard", text, "I/N, as in 2/8,");
    *index = (uint32_t)at - 1, *n = (uint32_t)of;
    return true;
}

/* Refuses an option that would have no effect because another option is missing. */
static bool has_needed_options(Cli *cli)
{
    const Options *o = &cli->options;
    const bool is_net = (cli->verb->options & OPTIONS_net) != 0;
    const struct {
        bool given, other;
        const char *name, *others;
    } pairs[] = {
        {o->nodes != NULL && !is_net, o->cluster != NULL, "nodes", "--cluster"},
        {o->show.rank_text != NULL, o->show.mesh || o->show.state, "rank", "--state or --mesh"},
        {o->scenario.checkpoint_text != NULL, o->scenario.mtbf_text != NULL, "checkpoint",
         "--mtbf"},
        {o->scenario.storage_text != NULL, o->scenario.mtbf_text != NULL, "storage", "--mtbf"},
        {o->scenario.restart_text != NULL, o->scenario.mtbf_text != NULL, "restart", "--mtbf"},
        {o->scenario.interval_text != NULL, o->scenario.mtbf_text != NULL, "interval", "--mtbf"},
    };
    bool fine = true;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (!pairs[i].given || pairs[i].other) continue;
        fine = cli_error(cli, FAULT_usage, "option-value", "--%s needs %s", pairs[i].name,
                         pairs[i].others);
        if (strcmp(pairs[i].name, "nodes") == 0)
            diag_hint(&cli->diag, "--set cluster.nodes=%s changes the cluster of the plan",
                      o->nodes);
    }
    return fine;
}

/* Checks the options whose texts are numbers or words, and stores their values. */
static bool check_values(Cli *cli)
{
    Options *o = &cli->options;
    const bool is_net = (cli->verb->options & OPTIONS_net) != 0;
    o->show.role = o->show.rank = UINT32_MAX;
    bool fine = read_count(cli, "seed", o->seed_text, UINT64_MAX, &o->seed);
    fine = read_small(cli, "role", o->show.role_text, 0, &o->show.role) && fine;
    fine = read_small(cli, "rank", o->show.rank_text, 0, &o->show.rank) && fine;
    const char *n_name = o->n_short ? "-n" : is_net ? "gpus" : "ranks";
    fine = read_small(cli, n_name, o->n_text, 1, &o->n) && fine;
    fine = read_small(cli, "jobs", o->jobs_text, 1, &o->jobs) && fine;
    fine = read_small(cli, "slurm", o->sweep.slurm_text, 1, &o->sweep.slurm) && fine;
    fine = read_shard(cli, o->sweep.shard, &o->sweep.shard_index, &o->sweep.n_shards) && fine;
    fine = read_small(cli, "steps", o->run.steps_text, 1, &o->run.steps) && fine;
    fine = read_small(cli, "every", o->run.every_text, 1, &o->run.every) && fine;
    fine = read_small(cli, "save-every", o->run.save_every_text, 1, &o->run.save_every) && fine;
    fine = read_small(cli, "keep", o->run.keep_text, 1, &o->run.keep) && fine;
    fine = read_small(cli, "limit", o->limit_text, 1, &o->limit) && fine;
    fine = read_small(cli, "nodes", o->nodes, 1, &o->n_nodes) && fine;
    fine = read_small(cli, "per-node", o->net.per_node_text, 1, &o->net.per_node) && fine;
    if (o->run.timeout_text != NULL) {
        char *end = NULL;
        o->run.timeout_s = strtod(o->run.timeout_text, &end);
        if (end == o->run.timeout_text || *end != 0 ||
            !(o->run.timeout_s > 0 && o->run.timeout_s < 1e9))
            fine = bad_value(cli, "timeout", o->run.timeout_text, "a positive number of seconds");
    }
    if (o->color != NULL && strcmp(o->color, "auto") != 0 && strcmp(o->color, "always") != 0 &&
        strcmp(o->color, "never") != 0)
        fine = bad_value(cli, "color", o->color, "auto, always or never");
    o->price_usd = -1;
    fine = read_price(cli, o->price_text, &o->price_usd) && fine;
    fine = read_limit(cli, "days", o->fit.days_text, &o->fit.days) && fine;
    fine = read_limit(cli, "usd", o->fit.usd_text, &o->fit.usd) && fine;
    fine = read_pue(cli, o->pue_text, &o->pue) && fine;
    fine = read_tokens(cli, o->tokens_text, &o->tokens) && fine;
    for (uint32_t i = 0; i < o->set.n; i++)
        if (strchr(o->set.at[i], '=') == NULL || o->set.at[i][0] == '=')
            fine = bad_value(cli, "set", o->set.at[i], "KEY=VALUE");
    return has_needed_options(cli) && fine;
}

static void store_value(Cli *cli, const Option *option, const char *value)
{
    char *field = (char *)&cli->options + option->field;
    switch (option->kind) {
    case OPTION_flag: *(bool *)(void *)field = true; break;
    case OPTION_text: *(const char **)(void *)field = value; break;
    case OPTION_maybe: *(const char **)(void *)field = value != NULL ? value : "always"; break;
    case OPTION_list: list_push(cli->arena, (TextList *)(void *)field, value); break;
    }
}

static bool unknown_option(Cli *cli, const char *word)
{
    const char *names[N_OPTIONS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < N_OPTIONS; i++)
        if (takes(cli->verb, &option_table[i])) names[n++] = option_table[i].name;
    const char *bare = word + strspn(word, "-");
    const char *end = strchr(bare, '=');
    if (end != NULL) bare = arena_copy(cli->arena, bare, (size_t)(end - bare));
    cli_error(cli, FAULT_usage, "unknown-option", "tandem %s has no option %s", cli->verb->name,
              word);
    const char *near = str_nearest(bare, names, n);
    bool has_set = false;
    for (size_t i = 0; i < n; i++) has_set = has_set || strcmp(names[i], "set") == 0;
    if (near != NULL)
        diag_hint(&cli->diag, "did you mean --%s?", near);
    else
        diag_hint(&cli->diag, "`tandem %s --help` lists the options%s", cli->verb->name,
                  has_set ? "; --set KEY=VALUE changes a value of the plan" : "");
    return false;
}

/* getopt returns LONG_BASE + i for option_table[i]; letters are below 256 */
enum { LONG_BASE = 256 };

static bool bad_option(Cli *cli, char **argv, int answer, int at)
{
    if (answer == ':')
        return cli_error(cli, FAULT_usage, "option-value", "option %s needs a value",
                         argv[at > 0 ? at : 1]);
    if (optopt >= LONG_BASE)
        return cli_error(cli, FAULT_usage, "option-value", "option --%s takes no value",
                         option_table[optopt - LONG_BASE].name);
    if (optopt != 0) {
        char word[] = {'-', (char)optopt, 0};
        return unknown_option(cli, arena_dup(cli->arena, word));
    }
    return unknown_option(cli, argv[at]);
}

bool options_parse(Cli *cli, int argc, char **argv)
{
    assert(argc >= 1 && cli->verb != NULL);
    struct option wide[N_OPTIONS + 1];
    char narrow[2 * N_OPTIONS + 2];
    uint32_t n = 0, m = 0;
    narrow[m++] = ':';
    for (uint32_t i = 0; i < N_OPTIONS; i++) {
        const Option *option = &option_table[i];
        if (!takes(cli->verb, option)) continue;
        int has = option->kind == OPTION_flag    ? no_argument
                  : option->kind == OPTION_maybe ? optional_argument
                                                 : required_argument;
        wide[n++] = (struct option){option->name, has, NULL, LONG_BASE + (int)i};
        if (option->letter == 0) continue;
        narrow[m++] = option->letter;
        if (has == required_argument) narrow[m++] = ':';
    }
    wide[n] = (struct option){NULL, 0, NULL, 0};
    narrow[m] = 0;
    bool fine = true;
    opterr = 0;
    optind = 0; /* this makes glibc start anew, for tests that call this function more than once */
    for (;;) {
        int at = optind == 0 ? 1 : optind;
        int answer = getopt_long(argc, argv, narrow, wide, NULL);
        if (answer == -1) break;
        if (answer == '?' || answer == ':') {
            fine = bad_option(cli, argv, answer, optind > at ? optind - 1 : at) && fine;
            continue;
        }
        uint32_t i = 0;
        if (answer >= LONG_BASE)
            i = (uint32_t)answer - LONG_BASE;
        else
            while (option_table[i].letter != (char)answer || !takes(cli->verb, &option_table[i]))
                i++;
        store_value(cli, &option_table[i], optarg);
        if (option_table[i].field == offsetof(Options, n_text))
            cli->options.n_short = answer == 'n';
    }
    cli->args = (const char *const *)&argv[optind];
    cli->n_args = (uint32_t)(argc - optind);
    return check_values(cli) && fine;
}
