/* tandem accuracy --runs FILE: published training runs. The library's tandem/published/run.lua
 * knows the rules of each framework and turns a row into a plan. The plan is then simulated. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/accuracy/accuracy.h"
#include "cli/accuracy/quantity.h"
#include "cli/accuracy/rates.h"
#include "cli/predict.h"

static const double MIB = 1048576., GIB = 1073741824.;

static void put_quoted(Str *s, const char *text)
{
    str_add(s, "\"");
    for (; *text != 0; text++) {
        if ((unsigned char)*text < ' ' || *text == '"' || *text == '\\')
            str_print(s, "\\%03d", (unsigned char)*text);
        else
            str_add_bytes(s, text, 1);
    }
    str_add(s, "\"");
}

/* Returns a Lua script that gives the row to run.lua: the row's cells as texts, by column. Empty
 * cells are left out. Otherwise a row's prediction would depend on columns that only other rows
 * fill. */
static const char *script_of(const Csv *csv, uint32_t row, Arena *arena)
{
    Str s = str_in(arena);
    str_add(&s, "return require(\"tandem.published.run\").plan {\n");
    for (uint32_t i = 0; i < csv->columns.n; i++) {
        const char *cell = csv->cells.at[(size_t)row * csv->columns.n + i];
        if (cell[0] == 0) continue;
        str_add(&s, "  [");
        put_quoted(&s, csv->columns.at[i]);
        str_add(&s, "] = ");
        put_quoted(&s, cell);
        str_add(&s, ",\n");
    }
    str_add(&s, "}\n");
    return str_text(&s);
}

static const char *first_error(const Diag *d)
{
    for (uint32_t i = 0; i < d->items.n; i++)
        if (d->items.at[i].severity == SEVERITY_error) return d->items.at[i].text;
    return "no reason was given";
}

/* A row while it is being predicted. */
typedef struct RowRun {
    Config config;
    SimReport report;
    const Plan *plan; /* the plan of the last simulation */
    const char *code;
    Arena *arena;
    Diag diag;
} RowRun;

/* Loads the plan that the row's script describes. */
static bool load(const RowOut *out, RowRun *run, Graph *graph)
{
    const Options *o = &out->cli->options;
    PlanOptions options = {
        .set = o->set.at, .n_set = o->set.n, .code = run->code, .cpu_seconds = 10};
    return session_read(out->label, &options, run->arena, &run->config, graph, &run->diag);
}

/* Simulates the row's plan with `fewer` micro-batches. 0: with all micro-batches of the row. exact:
 * simulates each of them. */
static bool simulate(RowRun *run, Graph *graph, uint32_t fewer, bool exact)
{
    const PlanOptions how = {.unproven = true, .unplaced = true, .fewer = fewer, .by_period = true};
    const SimOptions once = {.steps = 1, .exact = exact};
    const PlanFile *file = session_compile(&run->config, graph, &how, run->arena, &run->diag);
    if (file != NULL) run->plan = file->plan;
    return file != NULL && session_simulate(file, &run->config.cluster, &once, run->arena,
                                            &run->report, &run->diag);
}

static bool hold(RowRun *run, Graph *graph, uint32_t n, Held *held)
{
    const PlanOptions how = {.unproven = true, .unplaced = true, .fewer = n, .by_period = true};
    const PlanFile *file = session_compile(&run->config, graph, &how, run->arena, &run->diag);
    if (file != NULL) *held = session_held(file);
    return file != NULL;
}

/* Extrapolates the memory for `of` micro-batches from the memory of two plans, with `low` and with
 * `high` micro-batches. */
static void extrapolate_memory(Held *held, const Held *less, double low, double high, double of)
{
    for (int kind = 0; kind < MEMORY_KIND_COUNT; kind++) {
        double each = ((double)held->logged[kind] - (double)less->logged[kind]) / (high - low);
        if (each > 0) held->logged[kind] += (uint64_t)(each * (of - high));
    }
}

/* Predicts a row. A step of many micro-batches is extrapolated from a step of fewer. The memory
 * that a framework keeps for each micro-batch of a pipeline is extrapolated from two such steps. */
static bool predict_row(const RowOut *out, RowRun *run)
{
    Graph graph;
    if (!load(out, run, &graph)) return false;
    const Config *c = &run->config;
    const uint32_t stages = config_ranks(c, axes_with(AXIS_STAGES)), n = session_microbatches(c);
    uint32_t fewer = out->cli->options.exact ? 0 : session_fewer(c, true);
    run->report.aperiodic = true;
    for (bool first = true; fewer > 0 && run->report.aperiodic; first = false) {
        /* a long pipeline needs more micro-batches until its steps are periodic */
        if (!first) fewer = 4 * fewer <= n ? 2 * fewer : 0;
        if (fewer > 0 && !simulate(run, &graph, fewer, false)) return false;
    }
    if (fewer == 0) return simulate(run, &graph, 0, out->cli->options.exact);
    const Runtime *how = &c->runtime;
    Held less;
    if (stages == 1 || !(how->keeps_outputs || how->keeps_sent || how->keeps_received)) return true;
    if (!hold(run, &graph, fewer - stages, &less)) return false;
    extrapolate_memory(&run->report.held, &less, fewer - stages, fewer, n);
    return true;
}

/* Returns true if the row's script gave a note with this rule. */
static bool has_note(const Diag *d, const char *rule)
{
    for (uint32_t i = 0; i < d->items.n; i++)
        if (strcmp(d->items.at[i].rule, rule) == 0) return true;
    return false;
}

/* Returns the row's framework from the note "known-framework" of the row's script: "2025-04
 * Megatron-LM", "2022 Megatron-LM" or "- HF Trainer". */
static RowFramework framework_of(const RowRun *run)
{
    for (uint32_t i = 0; i < run->diag.items.n; i++) {
        if (strcmp(run->diag.items.at[i].rule, "known-framework") != 0) continue;
        const char *text = run->diag.items.at[i].text, *name = strchr(text, ' ');
        if (name == NULL) break;
        char *end;
        const int year = (int)strtol(text, &end, 10),
                  month = *end == '-' && end > text ? (int)strtol(end + 1, NULL, 10) : 0;
        return (RowFramework){name + 1, 100 * year + month};
    }
    return (RowFramework){"", 0};
}

/* Reports the values that the row's script assumed, in a document or with --verbose. */
static void tell_assumed(const RowRun *run, const RowOut *out)
{
    static const char *const told[] = {"assumed-cell", "assumed-time", "measured-cell",
                                       "untimed-row", "left-out-cell"};
    if (!out->cli->options.verbose && !out->cli->options.json) return;
    for (uint32_t i = 0; i < run->diag.items.n; i++)
        for (size_t k = 0; k < sizeof told / sizeof *told; k++)
            if (strcmp(run->diag.items.at[i].rule, told[k]) == 0)
                row_note(out, arena_print(run->arena, "%.300s", run->diag.items.at[i].text));
}

/* Returns the name of the group in which a row's score of `what` counts. Rows for which a cell was
 * assumed have groups of their own. */
static const char *name_of(Arena *arena, const char *what, bool assumed)
{
    return assumed ? arena_print(arena, "%s, not all stated", what) : what;
}

/* Measured columns. A run that ran out of memory may say so there. */
static const char *const measured[] = {"step_time_s", "peak_mem", "tokens_per_s_per_gpu"};
enum { N_MEASURED = sizeof measured / sizeof *measured };

/* Returns true if a measured cell says that the run ran out of memory: "OOM", "OOM (>80 GB)". */
static bool tells_failure(const char *cell)
{
    cell += strspn(cell, " ");
    return cell_begins(cell, "oom") || cell_begins(cell, "out of memory") ||
           cell_begins(cell, "cuda oom");
}

/* Copies the first word of a cell. */
static const char *first_word(const char *cell, char *to, size_t most)
{
    cell += strspn(cell, " ");
    snprintf(to, most, "%.*s", (int)strcspn(cell, " (,;"), cell);
    return to;
}

/* Returns true if the row says that the run ran out of memory. */
static bool ran_out(const Csv *csv, uint32_t row)
{
    static const char *const words[] = {"1", "1.0", "yes", "y", "true", NULL};
    static const char *const denials[] = {"no", "not", "without", NULL};
    char first[16];
    const char *cell = csv_cell(csv, row, "oom");
    if (cell_is_one_of(first_word(cell, first, sizeof first), denials) ||
        cell_begins(cell, "did not"))
        return false;
    for (int i = 0; i < N_MEASURED; i++)
        if (tells_failure(csv_cell(csv, row, measured[i]))) return true;
    return cell_is_one_of(first, words) || cell_has(cell, "oom") || cell_has(cell, "out of memory");
}

/* Returns the first measured column whose cell cannot be understood, or NULL if there is none. */
static const char *unreadable(const Csv *csv, uint32_t row)
{
    static const char *const none[] = {"", "none", NULL};
    static const char *const fitted[] = {"0",           "0.0",     "no",  "n",       "false",
                                         "ok",          "no oom",  "fit", "not oom", "fits",
                                         "did not oom", "success", "ran", "none",    NULL};
    for (int i = 0; i < 2; i++) { /* a rate in unknown words is left out */
        const char *text = csv_cell(csv, row, measured[i]);
        const bool part = i == 1 && percentage(text) > 0;
        const bool known = part || tells_failure(text) || cell_is_one_of(text, none);
        if (!known && isnan(cell_quantity(csv, row, measured[i]))) return measured[i];
    }
    char first[16];
    const char *oom = csv_cell(csv, row, "oom");
    const bool known = ran_out(csv, row) || cell_is_one_of(oom, none) ||
                       cell_is_one_of(oom, fitted) ||
                       cell_is_one_of(first_word(oom, first, sizeof first), fitted);
    return known ? NULL : "oom";
}

/* Returns the name of the group in which a row's step time counts. If a data loader limits the
 * step, the time says nothing about the simulator. If the power limit was assumed, the error may be
 * the assumption's. */
static const char *step_name(const RowRun *run, bool assumed)
{
    if (assumed) return "step time, not all stated";
    if (has_note(&run->diag, "assumed-time")) return "step time, power not stated";
    return run->report.input_ps > 0 ? "step time, set by a loader" : "step time";
}

/* Scores the time of a step. If the row states only FLOP/s, the time also depends on the convention
 * by which its framework counts them, so it is a group of its own. */
static void score_step(const Csv *csv, const RowRun *run, const RowOut *out, bool assumed)
{
    const double predicted_s = (double)run->report.step_ps / (double)PS_PER_S;
    double step_s = cell_quantity(csv, out->row, "step_time_s");
    if (csv_cell(csv, out->row, "step_time_s")[0] == 0)
        step_s = rate_step_s(csv, out->row, &run->config);
    if (has_note(&run->diag, "untimed-row")) return;
    if (step_s > 0) {
        row_score(out, step_name(run, assumed), step_s, predicted_s);
        return;
    }
    const RowFramework framework = framework_of(run);
    step_s = flops_step_s(csv, out->row, &framework, &run->config, run->plan);
    if (step_s > 0)
        row_score(out, name_of(run->arena, "step, from FLOP/s", assumed), step_s, predicted_s);
}

/* Returns true if the tool that printed the row's memory divides by 10^9. "gigabytes" is in the
 * names under which Composer and Megatron-Bridge log their memory.
 * kind: source; Composer: callbacks/memory_monitor.py; Megatron-Bridge:
 * training/utils/train_utils.py (report_memory); LitGPT: finetune/lora.py */
static bool has_decimal_gb(const Csv *csv, uint32_t row)
{
    static const char *const words[] = {"1e9", "10^9", "decimal", "gigabytes", NULL};
    static const char *const tools[] = {"litgpt", "lit gpt", "composer", "llm foundry", NULL};
    const char *kind = csv_cell(csv, row, "peak_mem_kind"), *cell = csv_cell(csv, row, "peak_mem");
    for (size_t i = 0; words[i] != NULL; i++)
        if (cell_has(kind, words[i])) return true;
    if (!cell_has(kind, "gb") && !cell_has(cell, "gb")) return false;
    for (size_t i = 0; tools[i] != NULL; i++)
        if (cell_has(csv_cell(csv, row, "framework"), tools[i])) return true;
    return false;
}

/* Returns the measured memory in bytes. A number without a unit may be larger than the memory of
 * any device. Then it counts MiB or bytes. A percentage is a part of the device's memory. */
static double memory_of(const Csv *csv, uint32_t row, uint64_t device_bytes)
{
    enum { MOST_GIB = 2000, MOST_MIB = 2000 * 1024 };
    const double part = percentage(csv_cell(csv, row, "peak_mem"));
    if (part > 0) return part * (double)device_bytes;
    const char *kind = csv_cell(csv, row, "peak_mem_kind");
    const bool in_mb = strstr(kind, " MB") != NULL || strstr(kind, " MiB") != NULL;
    char plain[64];
    const char *end;
    csv_plain(csv_cell(csv, row, "peak_mem"), plain, sizeof plain);
    cell_without_remark(plain);
    /* the cell names no unit */
    const bool bare = !isnan(csv_decimal(cell_behind_words(plain), &end)) && *end == 0;
    const double value = cell_quantity(csv, row, "peak_mem");
    if (bare && value > MOST_MIB) return value;
    if (bare && (in_mb || value > MOST_GIB)) return value * MIB;
    /* no device holds more than its memory, so a number of unknown GB is in units of 10^9 */
    const bool in_gib = cell_has(kind, "gib") || cell_has(plain, "gib");
    const double device = (double)device_bytes;
    const bool too_large = !in_gib && value * GIB > device && value * 1e9 <= device;
    return value * (too_large || has_decimal_gb(csv, row) ? 1e9 : GIB);
}

/* Returns true if a tool outside of the framework measured the memory. Such a tool sees all memory
 * of a process. */
static bool of_process(const char *kind)
{
    static const char *const tools[] = {"process", "nvidia smi", "rocm smi",   "amd smi",    "nvml",
                                        "nvtop",   "dcgm",       "device mem", "gpu memory", NULL};
    for (size_t i = 0; tools[i] != NULL; i++)
        if (cell_begins(kind, tools[i])) return true;
    const bool without = cell_has(kind, "without cuda") || cell_has(kind, "excluding cuda");
    if (cell_has(kind, "process total") || cell_has(kind, "cuda context")) return !without;
    /* "used (nvidia smi)"; a cell that begins with "peak_mem" means the framework's number */
    return !cell_begins(kind, "peak mem") &&
           (cell_has(kind, "nvidia smi") || cell_has(kind, "nvml"));
}

/* Returns true if peak_mem is given as a part of a whole, and this whole is not the device's memory
 * but for example the reserved memory: "12.3 / 14.5 GiB", "12.3 of 14.5 GiB", "85% of 14.5 GiB". */
static bool is_other_part(const Csv *csv, uint32_t row, uint64_t device_bytes)
{
    const char *cell = csv_cell(csv, row, "peak_mem"), *slash = strchr(cell, '/'),
               *of = strstr(cell, " of ");
    const double whole = slash != NULL ? strtod(slash + 1, NULL)
                         : of != NULL  ? strtod(of + 4, NULL)
                                       : 0;
    if (!(whole > 0)) return false;
    const char *number = cell_behind_words(cell);
    const double part = strtod(number, NULL);
    const double unit = percentage(cell) > 0 ? GIB : memory_of(csv, row, device_bytes) / part;
    const double ratio = unit * whole / (double)device_bytes;
    return !(ratio > 0.85 && ratio < 1.15); /* GB for GiB, and memory that the driver keeps */
}

/* Returns true if the cell says that its number was not measured on one device: an estimate, or the
 * sum over several devices. */
static bool is_no_measurement(const char *kind)
{
    static const char *const words[] = {"estimat",   "analytic", "simulat",   "predict",
                                        "theoretic", "modelled", "modeled",   "calculat",
                                        "all gpus",  "sum over", "sum of",    "total over",
                                        "total of",  "per node", "node tota", NULL};
    for (size_t i = 0; words[i] != NULL; i++)
        if (cell_has(kind, words[i])) return true;
    return false;
}

/* Scores the memory of a row. The row may say which kind of memory it gives. If it does not, the
 * framework's profile (its runtime settings) says which kind the framework reports. */
static void score_memory(const Csv *csv, const RowRun *run, const RowOut *out, bool assumed)
{
    static const char *const names[] = {"memory reserved", "memory allocated", "memory of process"};
    const char *kind = csv_cell(csv, out->row, "peak_mem_kind");
    const double bytes = memory_of(csv, out->row, run->config.cluster.device.memory_bytes);
    if (!(bytes > 0) || strstr(kind, "at OOM") != NULL || strstr(kind, "param_opt") != NULL) return;
    /* A device cannot hold more than its memory, so a larger number is wrong. The cell may give GB,
     * but is read in GiB, which are 7 % larger: hence the margin of 15 %. */
    if (bytes > 1.15 * (double)run->config.cluster.device.memory_bytes) return;
    if (is_no_measurement(kind) || is_no_measurement(csv_cell(csv, out->row, "peak_mem"))) return;
    /* "39.3 GB (reserved)" */
    const char *cell = csv_cell(csv, out->row, "peak_mem");
    if (!cell_has(kind, "reserved") && !cell_has(kind, "alloc") &&
        (cell_has(cell, "reserved") || cell_has(cell, "alloc")))
        kind = cell_has(cell, "alloc") ? "alloc" : "reserved";
    /* PyTorch's active memory is the allocated memory, and blocks that wait for another stream */
    const bool allocated = cell_has(kind, "alloc") || cell_has(kind, "active");
    const MemoryKind of = cell_has(kind, "reserved") ? MEMORY_reserved
                          : allocated                ? MEMORY_allocated
                          : of_process(kind)         ? MEMORY_process
                                                     : run->config.runtime.reports;
    const char *name = name_of(run->arena, names[of], assumed);
    if (has_note(&run->diag, "measured-cell"))
        name = arena_print(run->arena, "%s, GPUs from measured memory", names[of]);
    row_score(out, name, bytes, (double)run->report.held.logged[of]);
}

/* Scores a row that gives the memory that the model needs (parameters and optimizer, then
 * activations) but describes no run. The score is the verdict whether this memory fits the
 * device. */
static void score_need(const Csv *csv, const RowRun *run, const RowOut *out, bool assumed,
                       bool *fits)
{
    const char *kind = csv_cell(csv, out->row, "peak_mem_kind");
    const char *rest = csv_cell(csv, out->row, "peak_mem2");
    if (strstr(kind, "param_opt") == NULL || strstr(rest, "activation_mem") == NULL) return;
    double gib = cell_quantity(csv, out->row, "peak_mem") + strtod(rest, NULL);
    *fits = gib * GIB <= (double)run->config.cluster.device.memory_bytes;
    row_score(out, name_of(run->arena, "memory needed", assumed), gib * GIB,
              (double)run->report.held.allocated_bytes);
}

/* Returns true if the row describes a run that gave a result. A run that ended without a number and
 * without a reason says nothing. */
static bool was_run(const Csv *csv, uint32_t row, bool oom)
{
    static const char *const numbers[] = {"step_time_s", "tokens_per_s_per_gpu", "peak_mem",
                                          "published_tflops", "published_mfu"};
    for (uint32_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (csv_cell(csv, row, numbers[i])[0] != 0) return true;
    return oom;
}

static void score_row(const Csv *csv, RowOut *out)
{
    Arena *arena = arena_new();
    RowRun run;
    memset(&run, 0, sizeof run);
    run.arena = arena;
    run.diag = diag_in(arena);
    run.code = script_of(csv, out->row, arena);
    const char *bad = unreadable(csv, out->row);
    if (bad != NULL) {
        const char *cell = csv_cell(csv, out->row, bad);
        row_reason(out, arena_print(arena, "%s is not known: %.40s", bad, cell));
    } else if (!predict_row(out, &run)) {
        row_reason(out, first_error(&run.diag));
    } else if (is_other_part(csv, out->row, run.config.cluster.device.memory_bytes)) {
        const char *cell = csv_cell(csv, out->row, "peak_mem");
        row_reason(
            out, arena_print(arena,
                             "peak_mem is a part of another number than the device's memory: %.40s",
                             cell));
    } else {
        out->profile = run.config.runtime.name;
        out->gpu = trust_gpu(arena, run.config.cluster.device.name);
        tell_assumed(&run, out);
        bool oom = ran_out(csv, out->row);
        static const char *const nothing[] = {"", "none", "nothing", "no", NULL};
        const bool assumed = !cell_is_one_of(csv_cell(csv, out->row, "missing"), nothing) ||
                             has_note(&run.diag, "assumed-cell");
        score_step(csv, &run, out, assumed);
        score_memory(csv, &run, out, assumed);
        bool fits = !oom;
        score_need(csv, &run, out, assumed, &fits);
        if (was_run(csv, out->row, oom))
            row_verdict(out, name_of(arena, "fits", assumed), fits, run.report.fits);
        else
            row_reason(out, "the row does not state whether the run fitted");
    }
    arena_free(arena);
}

bool score_runs(Cli *cli, const Csv *csv, Scores *scores)
{
    return jobs_run(csv, cli->options.jobs, "id", score_row, cli, scores);
}
