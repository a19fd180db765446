/* tandem sweep: tries every combination of settings. Each is loaded, compiled and simulated as by
 * `sim`. The plan that the sweep reports as best is also proven. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/sweep/jobs.h"
#include "cli/sweep/space.h"
#include "planner/base/parallel.h"
#include "planner/base/plural.h"

enum { MOST_PLANS = 10000, MOST_READ = 8, SLURM_JOBS = 4 };

typedef struct Sweep {
    Cli *cli;
    SweepKeys keys;
    FrontSweep *script; /* a script that returned a sweep; NULL: FILE is a plan */
    const char *path;   /* path of the plan's script */
    /* the plan with the settings of --set; NULL: no condition needs the plan, or the plan cannot be
     * read */
    const Config *plan;
    uint32_t n_plans;
    /* for each plan, the index of its combination of settings among all combinations of --try */
    uint32_t *combination;
} Sweep;

/* Returns the entry for a key. If both --try and the script give a key, --try counts. */
static SweepKey *place_of(Sweep *sweep, const char *key, uint32_t n_script)
{
    for (uint32_t k = 0; k < n_script; k++)
        if (strcmp(sweep->keys.at[k].key, key) == 0) return &sweep->keys.at[k];
    const SweepKey new_key = {.key = key};
    list_push(sweep->cli->arena, &sweep->keys, new_key);
    return &sweep->keys.at[sweep->keys.n - 1];
}

static bool count_plans(Sweep *sweep)
{
    uint64_t n = 1;
    for (uint32_t k = 0; k < sweep->keys.n; k++) {
        n *= sweep->keys.at[k].values.n;
        if (n > MOST_PLANS)
            return cli_error(sweep->cli, FAULT_usage, "option-value",
                             "more than %d combinations; try some first", MOST_PLANS);
    }
    sweep->n_plans = (uint32_t)n;
    return true;
}

static bool read_keys(Cli *cli, Sweep *sweep)
{
    const uint32_t n_script = sweep->keys.n;
    for (uint32_t i = 0; i < cli->options.sweep.try_.n; i++) {
        const char *text = cli->options.sweep.try_.at[i], *at = strchr(text, '=');
        if (at == NULL || at == text || at[1] == 0 || strstr(at, ",,") != NULL || at[1] == ',' ||
            at[strlen(at) - 1] == ',')
            return cli_error(cli, FAULT_usage, "option-value",
                             "--try %s: KEY=V1,V2,... is expected", text);
        SweepKey key = {.key = arena_copy(cli->arena, text, (size_t)(at - text)),
                        .loc = {arena_print(cli->arena, "--try %s", text), 0}};
        for (uint32_t k = n_script; k < sweep->keys.n; k++)
            if (strcmp(sweep->keys.at[k].key, key.key) == 0)
                return cli_error(cli, FAULT_usage, "option-value", "--try %s is given twice",
                                 key.key);
        while (*at != 0) {
            size_t length = strcspn(at + 1, ",");
            const char *value = arena_copy(cli->arena, at + 1, length);
            for (uint32_t v = 0; v < key.values.n; v++)
                if (strcmp(key.values.at[v], value) == 0)
                    return cli_error(cli, FAULT_usage, "option-value",
                                     "--try %s: the value %s comes twice", text, value);
            list_push(cli->arena, &key.values, value);
            at += 1 + length;
        }
        *place_of(sweep, key.key, n_script) = key;
    }
    return count_plans(sweep);
}

static const char **values_of(const SweepKeys *keys, uint32_t index, Arena *arena)
{
    const char **values = arena_array(arena, keys->n + 1, sizeof *values);
    for (uint32_t k = keys->n; k-- > 0;) {
        values[k] = keys->at[k].values.at[index % keys->at[k].values.n];
        index /= keys->at[k].values.n;
    }
    return values;
}

/* Reads FILE, which is the script of a sweep or of a plan. */
static bool open_file(Cli *cli, Sweep *sweep)
{
    if (session_is_text(cli->args[0]))
        return cli_error(cli, FAULT_usage, "needs-script",
                         "%s is the text of a plan, but `sweep` needs the script", cli->args[0]);
    if (!sweep_script_open(cli, &sweep->keys, &sweep->script)) return false;
    sweep->path = sweep->script != NULL ? sweep->script->plan : cli->args[0];
    if (sweep->script == NULL && cli->options.sweep.try_.n == 0) {
        cli_error(cli, FAULT_usage, "arguments",
                  "tandem sweep needs something to --try, or a script that returns a sweep");
        diag_hint(&cli->diag, "for example: %s", cli->verb->example);
        return false;
    }
    return true;
}

static bool can_start(Cli *cli, const Sweep *sweep)
{
    if (cli->options.sweep.slurm > 0 && cli->options.sweep.shard != NULL)
        return cli_error(cli, FAULT_usage, "option-value",
                         "--slurm makes the shards itself: leave --shard out");
    if (!sweep_order(cli, sweep->script != NULL ? sweep->script->score : NULL)) return false;
    return cli->options.dry_run || cli->options.no_store || cli->options.sweep.slurm > 0 ||
           store_ready(cli->options.db, &cli->diag);
}

static TextList settings_of(const Sweep *sweep, uint32_t combination)
{
    Arena *arena = sweep->cli->arena;
    TextList list = {NULL, 0, 0};
    const char **values = values_of(&sweep->keys, combination, arena);
    for (uint32_t k = 0; k < sweep->keys.n; k++)
        list_push(arena, &list, arena_print(arena, "%s=%s", sweep->keys.at[k].key, values[k]));
    return list;
}

/* Returns the plan with the settings of --set, for conditions that name the plan's sizes. Returns
 * NULL if there are no conditions. Also returns NULL if the plan cannot be read: each point then
 * reports its own errors. */
static const Config *plan_of(Cli *cli, const Sweep *sweep)
{
    if (cli->options.sweep.where.n == 0 && sweep->script == NULL) return NULL;
    bool freed;
    const PlanOptions options = space_options(cli, &freed);
    Config *config = arena_alloc(cli->arena, sizeof *config);
    Graph graph;
    Diag ignored = diag_in(cli->arena);
    const bool fine = session_read(sweep->path, &options, cli->arena, config, &graph, &ignored);
    return fine ? config : NULL;
}

/* Returns the settings of all combinations that satisfy --where and belong to this shard, in order.
 * A shard may be empty. Returns NULL after diagnostics. */
static TextList *all_settings(Sweep *sweep)
{
    Cli *cli = sweep->cli;
    TextList *all = arena_array(cli->arena, sweep->n_plans + 1, sizeof *all);
    sweep->combination = arena_array(cli->arena, sweep->n_plans + 1, sizeof *sweep->combination);
    sweep->plan = plan_of(cli, sweep);
    uint32_t n = 0, n_kept = 0;
    for (uint32_t i = 0; i < sweep->n_plans; i++) {
        const TextList list = settings_of(sweep, i);
        bool holds;
        if (!where_holds(cli, &list, sweep->plan, &holds)) return NULL;
        if (holds && !sweep_script_holds(cli, sweep->script, &list, sweep->plan, &holds))
            return NULL;
        if (!holds || n_kept++ % cli->options.sweep.n_shards != cli->options.sweep.shard_index)
            continue;
        sweep->combination[n] = i;
        all[n++] = list;
    }
    if (n_kept == 0)
        cli_error(cli, FAULT_usage, "option-value", "%s leaves none of %" PRIu32 " combination%s",
                  cli->options.sweep.where.n > 0 ? "--where" : "`where`", sweep->n_plans,
                  str_s(sweep->n_plans));
    sweep->n_plans = n;
    return n_kept > 0 ? all : NULL;
}

/* Checks a sweep before the script of its job is printed, because a job that fails has waited in
 * the queue for nothing. One of the first points must load, and each part of the sweep must have a
 * point. */
static bool slurm_can_start(Cli *cli, const PointJob *job)
{
    if (cli->options.sweep.slurm > job->n)
        return cli_error(cli, FAULT_usage, "option-value",
                         "--slurm %" PRIu32 ": the sweep has only %" PRIu32 " point%s",
                         cli->options.sweep.slurm, job->n, str_s(job->n));
    const TextList set = cli->options.set;
    Diag first = diag_in(cli->arena);
    bool fine = false;
    for (uint32_t i = 0; i < job->n && i < MOST_READ && !fine; i++) {
        const TextList *own = &job->settings[i];
        cli->options.set = (TextList){NULL, 0, 0};
        for (uint32_t k = 0; k < set.n; k++) list_push(cli->arena, &cli->options.set, set.at[k]);
        for (uint32_t k = 0; k < own->n; k++) list_push(cli->arena, &cli->options.set, own->at[k]);
        const PlanOptions options = plan_file_options(cli, NULL);
        Config *config = arena_alloc(cli->arena, sizeof *config);
        Graph graph;
        Diag d = diag_in(cli->arena);
        fine = session_read(job->path, &options, cli->arena, config, &graph, &d);
        if (i == 0) first = d;
    }
    cli->options.set = set;
    if (!fine) cli->diag = first;
    return fine;
}

/* Prints the script of an array job that runs the same command in parts. Each part writes a store
 * of its own, because a store on a network file system cannot be shared. */
static void slurm_script(Cli *cli)
{
    Str text = str_in(cli->arena), *out = &text;
    const uint32_t jobs = cli->options.jobs > 0 ? cli->options.jobs : SLURM_JOBS;
    str_print(out,
              "#!/bin/sh\n#SBATCH --job-name=tandem-sweep\n#SBATCH --array=1-%" PRIu32
              "\n#SBATCH --ntasks=1\n#SBATCH --cpus-per-task=%" PRIu32 "\n"
              "# Afterwards: for store in tandem-sweep-*.db; do tandem db merge \"$store\"; done\n"
              "exec tandem",
              cli->options.sweep.slurm, jobs);
    for (int i = 1; i < cli->argc; i++) {
        const char *word = cli->argv[i];
        if (strcmp(word, "--slurm") == 0) {
            i++;
            continue;
        }
        if (strncmp(word, "--slurm=", 8) == 0) continue;
        str_add(out, " ");
        cli_add_word(out, word);
    }
    str_print(out, " --shard \"$SLURM_ARRAY_TASK_ID/%" PRIu32 "\" \\\n   ",
              cli->options.sweep.slurm);
    if (cli->options.jobs == 0) str_print(out, " --jobs %" PRIu32, jobs);
    str_add(out, " --db \"tandem-sweep-$SLURM_ARRAY_TASK_ID.db\"\n");
    if (cli->json != NULL)
        json_text(cli->json, "script", str_text(out));
    else
        str_add(&cli->out, str_text(out));
}

/* If there are more parts than points, some parts have nothing to do. This is no error. */
static void empty_shard(Cli *cli)
{
    if (cli->json == NULL) {
        str_print(&cli->out, "sweep       shard %s has no points\n", cli->options.sweep.shard);
        return;
    }
    json_text(cli->json, "file", cli->args[0]);
    json_count(cli->json, "fit", 0);
    json_put(cli->json, "rows", json_array());
}

/* Adds the sweep to the store, and then simulates its points. */
static bool decide_stored(Cli *cli, PointJob *job, SweepRows *rows)
{
    if (cli->options.no_store) return points_decide(job, rows);
    Store *store = store_open(cli->options.db, false, &cli->diag);
    if (store == NULL) return false;
    job->sweep = sweep_begin(cli, store, job->path, job->settings, job->n);
    /* each process opens the store itself, because SQLite's connections do not survive a fork */
    store_close(store);
    if (job->sweep == 0 || !points_decide(job, rows)) return false;
    /* points that could not be stored have reported a full disk already */
    Diag unseen = diag_in(cli->arena);
    store = store_open(cli->options.db, false, &unseen);
    if (store != NULL) sweep_end(store, job->sweep, &unseen);
    store_close(store);
    return true;
}

/* Prints the lines about the best plan: those of the process that simulated it, or stored ones, or
 * else new ones. */
static void print_best_plan(Cli *cli, const PointJob *job, const SweepRows *rows)
{
    if (!job->prints_best || rows->n == 0) return;
    const SweepRow *best = &rows->at[0];
    if (best->status != SWEEP_fits || best->unmet) return;
    if (best->best_lines != NULL) {
        str_add(&cli->out, best->best_lines);
        return;
    }
    const TextList *own = &job->settings[best->index];
    for (uint32_t i = 0; i < own->n; i++) list_push(cli->arena, &cli->options.set, own->at[i]);
    /* threads are allowed again: the processes that simulated the points have ended */
    parallel_allow(jobs_number(cli->options.jobs, MOST_JOBS));
    Diag ignored = diag_in(cli->arena);
    const bool stores = !cli->options.no_store;
    Store *store = stores ? store_open_brief(cli->options.db, &ignored) : NULL;
    const char *found = best_found(cli, job->path, store);
    store_close(store);
    if (found != NULL) {
        str_add(&cli->out, found);
        return;
    }
    store = stores ? store_open(cli->options.db, false, &ignored) : NULL;
    best_print(cli, job->path, store);
    store_close(store);
}

static void decide_points(Cli *cli, Sweep *sweep)
{
    if (!can_start(cli, sweep) || !read_keys(cli, sweep)) return;
    PointJob job = {.cli = cli,
                    .path = sweep->path,
                    .settings = all_settings(sweep),
                    .unproven = !cli->options.sweep.prove,
                    .proves_best = !cli->options.sweep.prove && sweep_ranks_by_tokens(),
                    .prints_best = cli->json == NULL && !cli->options.sweep.csv};
    if (job.settings == NULL) return;
    job.n = sweep->n_plans;
    if (cli->options.sweep.slurm > 0) {
        if (slurm_can_start(cli, &job)) slurm_script(cli);
        return;
    }
    if (cli->options.dry_run) {
        points_list(cli, "points", job.settings, job.n);
        return;
    }
    if (job.n == 0) {
        empty_shard(cli);
        return;
    }
    SweepRows rows = {NULL, 0, 0};
    if (!decide_stored(cli, &job, &rows)) return;
    if (!sweep_script_judge(cli, sweep->script, job.settings, sweep->plan, &rows)) return;
    for (uint32_t i = 0; i < rows.n; i++)
        rows.at[i].values = values_of(&sweep->keys, sweep->combination[i], cli->arena);
    if (!sweep_prove(&job, &rows)) return;
    sweep_report(cli, &sweep->keys, &rows);
    print_best_plan(cli, &job, &rows);
}

void cmd_sweep(Cli *cli)
{
    Sweep sweep = {.cli = cli};
    if (!open_file(cli, &sweep)) return;
    decide_points(cli, &sweep);
    front_sweep_close(sweep.script);
}
