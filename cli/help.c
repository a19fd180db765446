/* The texts of `tandem help` and `--help`. The options come from the table in options.c. */
#include <string.h>

#include "cli/cli.h"

/* clang-format off: a literal is a printed line */
static const char exit_codes[] =
    "Exit status\n"
    "  0  done; every verdict passes\n"
    "  1  internal error: input or output failed, or a proof failed on a plan that Tandem made\n"
    "  2  usage: unknown verb, option or value\n"
    "  3  the script or plan is invalid\n"
    "  4  infeasible: the plan does not fit (its prediction is stored nevertheless)\n"
    "  5  a comparison or threshold failed (run --verify)\n"
    "  6  the run failed: a rank died or hung\n"
    "  7  the store is damaged, foreign, newer or locked\n"
    "  128 + a signal's number (130: SIGINT, 143: SIGTERM)  a run was interrupted\n";

static const char environment[] =
    "Environment\n"
    "  TANDEM_DB        the store, if --db is not given (default tandem.db)\n"
    "  TANDEM_SCRIPTS   the folder of the Lua library (models, clusters, plans)\n"
    "  TANDEM_LOG       quiet, info or debug: notes on standard error\n"
    "  NO_COLOR         no colour on any terminal\n";

static const char plans[] =
    "Plans\n"
    "  A plan is a Lua script that returns plan{ model, cluster, batch, mesh, parallel, "
    "precision,\n"
    "  optimizer }. `parallel` is an ordered list of passes: tp{}, ac \"selective\", fsdp2{} or "
    "ddp{}.\n"
    "  Scripts run in a sandbox: no files, no network, bounded time and memory.\n"
    "  --set changes a value of the script: --set mesh.tp=4 --set batch.micro=2\n"
    "  PLAN may also be the text of a plan (`tandem show PLAN --text > x.plan`).\n"
    "  The plan's id is a hash of its structure; paths, names and prices do not enter it.\n";

static const char store[] =
    "The store\n"
    "  One SQLite file (--db, default tandem.db) holds predictions, measured runs, their traces, "
    "and\n"
    "  the measured costs of this machine. `tandem runs` lists the runs. Any SQLite tool reads\n"
    "  the file, as `sqlite3 tandem.db` does; the views begin with v_. A prediction is keyed by "
    "plan\n"
    "  id, cluster, seed, engine version and calibration: an equal one is never simulated twice.\n";

static const char verify[] =
    "Proofs and comparisons\n"
    "  `tandem check` proves from the lowered program alone: layouts, the scale of every "
    "gradient,\n"
    "  the order of accesses to overlapping memory, the absence of deadlock, that each element is\n"
    "  handled exactly once, and that the plan fits. `tandem run PLAN --verify` runs a "
    "scaled-down\n"
    "  version in fp64 on many ranks in one process. It compares every gradient and every updated\n"
    "  weight with a run on one rank.\n";
/* clang-format on */

static const struct Topic {
    const char *name, *text;
} topics[] = {{"exit-codes", exit_codes},
              {"environment", environment},
              {"plans", plans},
              {"store", store},
              {"verify", verify}};
enum { N_TOPICS = sizeof topics / sizeof topics[0] };
const char *const help_topics[] = {"exit-codes", "environment", "plans", "store", "verify", NULL};

void help_verb(const Verb *verb, Str *out)
{
    str_print(out, "tandem %s%s%s [options]\n%s.\n", verb->name, verb->arguments[0] ? " " : "",
              verb->arguments, verb->summary);
    if (verb->about[0] != 0) str_print(out, "\n%s\n", verb->about);
    str_add(out, "\nOptions\n");
    options_help(verb, out);
    str_print(out, "\nExample\n  %s\n\n%s", verb->example, exit_codes);
}

void help_overview(Str *out)
{
    str_add(out, "tandem " TANDEM_VERSION ": plan, predict and run sharded training\n\n"
                 "usage: tandem VERB [arguments] [options]\n\n");
    for (uint32_t i = 0; i < n_verbs; i++) {
        const char *left = arena_print(out->arena, "%s %s", verbs[i].name, verbs[i].arguments);
        help_line(out, 20, left, verbs[i].summary);
    }
    str_add(out, "\nExamples\n  tandem check scripts/plans/llama3_8b.lua\n  tandem sim "
                 "scripts/plans/llama3_8b.lua --set mesh.tp=4 --set mesh.dp_shard=4\n  tandem run "
                 "scripts/plans/tiny_text.lua -n 4\n\n`tandem VERB --help` lists a verb's "
                 "options.\nTopics for `tandem help`:");
    for (uint32_t i = 0; i < N_TOPICS; i++) str_print(out, " %s", topics[i].name);
    str_add(out, "\n");
}

bool help_topic(const char *name, Str *out)
{
    for (uint32_t i = 0; i < N_TOPICS; i++) {
        if (strcmp(topics[i].name, name) != 0) continue;
        str_add(out, topics[i].text);
        return true;
    }
    return false;
}

static const char *nearest_topic(Cli *cli, const char *word)
{
    const char **names = arena_array(cli->arena, n_verbs + N_TOPICS, sizeof *names);
    for (uint32_t i = 0; i < n_verbs; i++) names[i] = verbs[i].name;
    for (uint32_t i = 0; i < N_TOPICS; i++) names[n_verbs + i] = topics[i].name;
    return str_nearest(word, names, n_verbs + N_TOPICS);
}

void cmd_help(Cli *cli)
{
    if (cli->n_args == 0) {
        help_overview(&cli->out);
    } else {
        const char *word = cli->args[0];
        const Verb *verb = verb_find(word);
        if (verb != NULL) {
            help_verb(verb, &cli->out);
        } else if (!help_topic(word, &cli->out)) {
            cli_error(cli, FAULT_usage, "unknown-topic", "there is no help on '%s'", word);
            const char *near = nearest_topic(cli, word);
            if (near != NULL)
                diag_hint(&cli->diag, "did you mean `tandem help %s`?", near);
            else
                diag_hint(&cli->diag, "`tandem help` lists the verbs and topics");
        }
    }
    if (cli->json != NULL) json_text(cli->json, "text", str_text(&cli->out));
}
