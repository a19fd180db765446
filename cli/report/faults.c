/* tandem sim --mtbf ...: predicts the fraction of the speed that remains if devices fail from time
 * to time. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/predict.h"
#include "planner/base/plural.h"
#include "planner/ir/experts.h"
#include "planner/ir/state/state.h"

enum { DRAWN_RUNS = 64 };

typedef struct Drawn {
    double mean, low, high; /* goodput of the simulated trainings: mean, lowest, highest */
} Drawn;

/* Simulates trainings with random failures. Each training lasts a hundred mean times between
 * failures or a thousand checkpoint intervals, whichever is longer. */
static Drawn draw_runs(const Faults *f, double interval_s, uint64_t seed)
{
    double work_s = fmax(100 * f->mtbf_s, 1000 * interval_s);
    work_s = fmin(work_s, 1e6 * interval_s);
    Drawn drawn = {0, INFINITY, 0};
    for (uint64_t i = 0; i < DRAWN_RUNS; i++) {
        double part = work_s / faults_draw_s(f, interval_s, work_s, seed * DRAWN_RUNS + i);
        drawn.mean += part / DRAWN_RUNS;
        drawn.low = fmin(drawn.low, part);
        drawn.high = fmax(drawn.high, part);
    }
    return drawn;
}

static bool positive(Cli *cli, const char *option, const char *text, bool zero, double *value)
{
    if (text == NULL) return true;
    char *end = NULL;
    *value = strtod(text, &end);
    if (end != text && *end == 0 && *value < 1e12 && (*value > 0 || (zero && *value == 0)))
        return true;
    return cli_error(cli, FAULT_usage, "option-value", "--%s %s: a positive number is expected",
                     option, text);
}

/* Reads a time with a unit. A plain number counts in the unit of the option, which is `own`
 * seconds. */
static bool duration(Cli *cli, const char *option, const char *text, const char *own, bool zero,
                     double *seconds)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}};
    if (text == NULL) return true;
    char *end = NULL;
    double value = strtod(text, &end);
    if (end != text && value < 1e12 && (value > 0 || (zero && value == 0))) {
        for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
            if (strcmp(*end != 0 ? end : own, units[i].name) != 0) continue;
            *seconds = value * units[i].seconds;
            return true;
        }
    }
    cli_error(cli, FAULT_usage, "option-value", "--%s %s: a positive time is expected", option,
              text);
    diag_hint(&cli->diag, "as in 90s, 30min, 2h or 1d; a number alone is in %s",
              strcmp(own, "h") == 0 ? "hours" : "seconds");
    return false;
}

/* Reads --storage, a rate in bytes/s. Returns the time in which all ranks together write the plan's
 * weights and moments at this rate. The training waits for the whole time. `bytes` receives the
 * size. */
static bool checkpoint_of(Cli *cli, const PlanFile *file, double *seconds, uint64_t *bytes)
{
    const char *text = cli->options.scenario.storage_text;
    double rate;
    if (text == NULL) return true;
    if (cli->options.scenario.checkpoint_text != NULL)
        return cli_error(cli, FAULT_usage, "option-value",
                         "--storage and --checkpoint both give the time of a checkpoint");
    if (!option_thousands(text, "KMGT", &rate))
        return cli_error(cli, FAULT_usage, "option-value",
                         "--storage %s: bytes a second are expected, as in 40G", text);
    *bytes = state_total(state_of(file->plan, cli->arena)).written_bytes;
    *seconds = (double)*bytes / rate;
    return true;
}

static const char *hours(Arena *arena, double seconds)
{
    if (seconds < 120) return arena_print(arena, "%.3g s", seconds);
    if (seconds < 7200) return arena_print(arena, "%.3g min", seconds / 60);
    return arena_print(arena, seconds < 999.5 * 3600 ? "%.3g h" : "%.0f h", seconds / 3600);
}

static void report(Cli *cli, const PlanFile *file, const Prediction *p, const Faults *f,
                   double interval_s, bool best, uint64_t bytes)
{
    double goodput = faults_goodput(f, interval_s);
    Drawn drawn = draw_runs(f, interval_s, file->config.seed);
    double speed = p->record.tokens_per_s_per_device * p->record.n_ranks;
    if (cli->json != NULL) {
        json_t *root = json_object();
        json_number(root, "mtbf_s", f->mtbf_s);
        json_number(root, "checkpoint_s", f->checkpoint_s);
        if (bytes > 0) json_count(root, "checkpoint_bytes", bytes);
        json_number(root, "restart_s", f->restart_s);
        json_number(root, "interval_s", interval_s);
        json_number(root, "best_interval_s", faults_best_interval_s(f));
        json_number(root, "goodput", goodput);
        json_number(root, "drawn_goodput", drawn.mean);
        json_number(root, "tokens_per_s", speed * goodput);
        json_put(cli->json, "faults", root);
        return;
    }
    Arena *arena = cli->arena;
    str_print(&cli->out,
              "faults      of %" PRIu32 " node%s, one fails every %s; a restart takes %s\n",
              file->config.cluster.nodes, str_s(file->config.cluster.nodes),
              hours(arena, f->mtbf_s), hours(arena, f->restart_s));
    str_print(&cli->out, "            a checkpoint every %s%s takes %s\n", hours(arena, interval_s),
              best ? " (Daly's optimum)" : "", hours(arena, f->checkpoint_s));
    if (bytes > 0)
        str_print(&cli->out, "checkpoint  %s at %s bytes a second; the training waits for it\n",
                  str_bytes(arena, bytes), cli->options.scenario.storage_text);
    str_print(
        &cli->out,
        "goodput     %.2f %% (mean of %d simulated runs: %.2f %%, from %.2f to %.2f): %s %s/s\n",
        100 * goodput, DRAWN_RUNS, 100 * drawn.mean, 100 * drawn.low, 100 * drawn.high,
        str_count(arena, (uint64_t)(speed * goodput + .5)), plan_file_counts(file));
}

double faults_report(Cli *cli, const PlanFile *file, const Prediction *p)
{
    const Options *o = &cli->options;
    double node_s = 0, interval_s = 0;
    uint64_t bytes = 0;
    Faults f = {.checkpoint_s = 60, .restart_s = 300};
    if (!duration(cli, "mtbf", o->scenario.mtbf_text, "h", false, &node_s) ||
        !duration(cli, "checkpoint", o->scenario.checkpoint_text, "s", true, &f.checkpoint_s) ||
        !duration(cli, "restart", o->scenario.restart_text, "s", true, &f.restart_s) ||
        !duration(cli, "interval", o->scenario.interval_text, "s", false, &interval_s) ||
        !checkpoint_of(cli, file, &f.checkpoint_s, &bytes))
        return 0;
    f.mtbf_s = node_s / fmax(file->config.cluster.nodes, 1);
    bool best = interval_s <= 0;
    if (best) interval_s = faults_best_interval_s(&f);
    /* below this goodput, the simulated trainings would take too long */
    double goodput = faults_goodput(&f, interval_s);
    if (!(goodput >= .01)) {
        cli_error(cli, FAULT_usage, "option-value",
                  "--mtbf %s: less than 1 %% of the work gets done (%.2g %%): of %" PRIu32
                  " nodes one fails every %s",
                  o->scenario.mtbf_text, 100 * goodput, file->config.cluster.nodes,
                  hours(cli->arena, f.mtbf_s));
        diag_hint(&cli->diag,
                  "--interval, --checkpoint and --restart must be much shorter than that");
        return 0;
    }
    report(cli, file, p, &f, interval_s, best, bytes);
    return goodput;
}

bool unevenness_of(Cli *cli, uint32_t n_ranks, Unevenness *out)
{
    const Options *o = &cli->options;
    *out = (Unevenness){.straggler_factor = 1};
    if (o->scenario.jitter_text == NULL && o->scenario.straggler_text == NULL) return false;
    if (!positive(cli, "jitter", o->scenario.jitter_text, true, &out->jitter)) return false;
    if (out->jitter > 2)
        return cli_error(cli, FAULT_usage, "option-value", "--jitter %s: at most 2",
                         o->scenario.jitter_text);
    if (o->scenario.straggler_text == NULL) return true;
    char *end = NULL;
    unsigned long rank = strtoul(o->scenario.straggler_text, &end, 10);
    double factor = *end == ':' ? strtod(end + 1, &end) : 0;
    if (o->scenario.straggler_text[0] < '0' || o->scenario.straggler_text[0] > '9' || *end != 0 ||
        rank >= n_ranks || !(factor >= 1 && factor <= 1000))
        return cli_error(cli, FAULT_usage, "option-value",
                         "--straggler %s: RANK:FACTOR is expected, with a rank below %" PRIu32
                         " and a factor from 1 to 1000, as in 3:1.2",
                         o->scenario.straggler_text, n_ranks);
    out->straggler = (Rank)rank;
    out->straggler_factor = factor;
    return true;
}

/* Returns the most rows that the experts of one rank can get, relative to the mean over ranks. It
 * is limited because a token chooses an expert only once. 0: the plan has no experts. */
static double most_imbalance(const PlanFile *file, uint32_t ep, Arena *arena)
{
    const Graph *g = &file->plan->graph;
    const NodeId *rows = experts_rows(g, arena);
    double most = 0;
    for (TensorId t = 1; rows && t < g->tensors.n; t++) {
        if (!rows[t]) continue;
        const Attrs *a = graph_attrs_at(g, g->nodes.at[rows[t]].attrs);
        double here = (double)a->experts / ep, of_each = fmin((double)a->top_k, here);
        most = fmax(most, of_each * ep / (double)a->top_k);
    }
    return most;
}

/* Returns true if the plan has experts, and none of them ever drops a token. */
static bool drops_nobody(const Graph *g)
{
    bool any = false, all = true;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const OpKind op = g->nodes.at[id].op;
        if (!op_sends_tokens(op)) continue;
        any = true;
        all = all && op_whole_letter(op, INDEX_rooms) != 0;
    }
    return any && all;
}

/* Warns if a rank would get more rows than it has memory for: a run with Tandem's executor would
 * then end with an error. */
static void warn_of_bound(Cli *cli, const PlanFile *file, double factor)
{
    const PassConfig *ep = config_pass(&file->config, PASS_ep);
    if (file->config.runtime.name != NULL || ep == NULL || factor <= ep->ep.bound) return;
    double enough = round(factor * 100) / 100;
    if (enough < factor) enough += .01; /* round up, so that the proposed bound is enough */
    diag_warning(&cli->diag, "rows-over-bound", ep->loc,
                 "--imbalance %s: a rank gets %.4g times its mean share of rows and has memory for "
                 "%.9g times; `run` would end with an error",
                 cli->options.scenario.imbalance_text, factor, ep->ep.bound);
    diag_hint(&cli->diag, "bound may be %.9g", enough);
}

/* Returns true if the whole text is a number. Otherwise --imbalance gives a word or the name of a
 * file. */
static bool is_number(const char *text)
{
    char *end = NULL;
    strtod(text, &end);
    return end != text && *end == 0;
}

/* Returns false after an error if --imbalance is no number, not the word "drawn", and not the name
 * of a readable file. Called before any other message about the plan, so that the user sees a
 * typing mistake first. */
static bool is_readable(Cli *cli, const char *text)
{
    static const char *const words[] = {"drawn"};
    struct stat there;
    const char *why = NULL;
    if (*text == 0)
        why = "the text is empty";
    else if (stat(text, &there) != 0 || access(text, R_OK) != 0)
        why = strerror(errno);
    else if (S_ISDIR(there.st_mode))
        why = "it is a folder";
    if (why == NULL) return true;
    cli_error(cli, FAULT_usage, "option-value",
              "--imbalance '%s': a factor, `drawn` or a file of counts is expected (%s)", text,
              why);
    if (str_nearest(text, words, 1) != NULL) diag_hint(&cli->diag, "did you mean 'drawn'?");
    return false;
}

double imbalance_of(Cli *cli, const PlanFile *file, const RowLoads **loads)
{
    const char *text = cli->options.scenario.imbalance_text;
    double factor = 1;
    *loads = NULL;
    if (text == NULL) return 1;
    RowLoads *own = arena_alloc(cli->arena, sizeof *own);
    const bool drawn = strcmp(text, "drawn") == 0, number = is_number(text);
    if (number && !positive(cli, "imbalance", text, false, &factor)) return 1;
    if (!number && !drawn && !is_readable(cli, text)) return 1;
    const Mesh *mesh = &file->plan->mesh;
    const uint32_t ep = mesh_size(mesh, experts_axes(&file->plan->graph));
    const double most = most_imbalance(file, ep, cli->arena);
    if (most == 0) {
        cli_error(cli, FAULT_usage, "option-value", "--imbalance %s: the plan has no experts",
                  text);
    } else if (file->config.runtime.name == NULL && !drops_nobody(&file->plan->graph)) {
        cli_error(cli, FAULT_usage, "option-value",
                  "--imbalance %s: under Tandem's executor each expert has a fixed number of "
                  "places, so an uneven choice drops tokens but takes no longer",
                  text);
        diag_hint(&cli->diag,
                  "it is for experts that drop no token: capacity_factor = \"dropless\", or "
                  "a plan with runtime = \"megatron\" and capacity_factor = 1.0");
    } else if (ep == 1) {
        cli_error(cli, FAULT_usage, "option-value",
                  "--imbalance %s: the plan does not divide experts over ranks (ep = 1)", text);
    } else if (drawn) {
        factor = fmin(shares_drawn(file, ep, cli->arena, own), most);
        if (own->n_layers > 0) *loads = own;
        warn_of_bound(cli, file, factor);
        return factor;
    } else if (!number && !((factor = shares_read(cli, file, text, ep, own)) > 0)) {
        return 1;
    } else if (!(factor >= 1 && factor <= most)) {
        cli_error(cli, FAULT_usage, "option-value",
                  "--imbalance %s: a factor from 1 (all ranks receive the same number of rows) "
                  "to %g (one of %" PRIu32 " ranks receives all rows that it can) is expected",
                  text, most, ep);
        if (number && access(text, F_OK) == 0) diag_hint(&cli->diag, "./%s names the file", text);
    } else {
        if (!number) *loads = own;
        warn_of_bound(cli, file, factor);
        return factor;
    }
    return 1;
}

bool scenario_read(Cli *cli, const PlanFile *file, Scenario *out)
{
    Cli quiet = *cli;
    quiet.diag = diag_in(cli->arena);
    out->told = diag_in(cli->arena);
    out->is_uneven = unevenness_of(&quiet, file->plan->mesh.n_ranks, &out->uneven);
    out->uneven.seed = file->config.seed;
    out->imbalance = imbalance_of(&quiet, file, &out->loads);
    out->own_drops = !drops_nobody(&file->plan->graph);
    for (uint32_t i = 0; i < quiet.diag.items.n; i++) {
        const Diagnostic *item = &quiet.diag.items.at[i];
        diag_add(item->severity == SEVERITY_error ? &cli->diag : &out->told, *item);
    }
    return quiet.diag.n_errors == 0;
}
