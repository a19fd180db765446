/* tandem accuracy --runs FILE: published training runs. The library's tandem/published/run.lua
 * knows the rules of each framework and turns a row into a plan. The plan is then simulated. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/accuracy/accuracy.h"
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
 * cells are left out. Otherwise a row's prediction depends on whether the table has a column for
 * other rows. */
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
    const Plan *plan; /* the last one that was simulated */
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

/* Simulates the row's plan with `fewer` micro-batches. 0: with all micro-batches of the row. */
static bool simulate(RowRun *run, Graph *graph, uint32_t fewer)
{
    const PlanOptions how = {.unproven = true, .unplaced = true, .fewer = fewer, .by_period = true};
    const SimOptions once = {.steps = 1};
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
        if (fewer > 0 && !simulate(run, &graph, fewer)) return false;
    }
    if (fewer == 0) return simulate(run, &graph, 0);
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

/* Returns the name of the group in which a row's score of `what` counts. Rows for which a cell was
 * assumed have groups of their own. */
static const char *name_of(Arena *arena, const char *what, bool assumed)
{
    return assumed ? arena_print(arena, "%s, not all stated", what) : what;
}

static bool is_one_of(const char *text, const char *const *words)
{
    while (*words != NULL && strcasecmp(text, *words) != 0) words++;
    return *words != NULL;
}

/* Returns true if a text begins with words. Case does not count, and "-" and "_" are blanks. */
static bool begins(const char *text, const char *words)
{
    for (; *words != 0; text++, words++) {
        const char c = (char)tolower((unsigned char)*text);
        if ((c == '-' || c == '_' ? ' ' : c) != *words) return false;
    }
    return true;
}

/* Returns true if a text contains words, as `begins` compares them. */
static bool has_text(const char *text, const char *words)
{
    while (*text != 0 && !begins(text, words)) text++;
    return *text != 0;
}

typedef struct CellUnit {
    const char *name; /* name: NULL in the last entry */
    double factor;
} CellUnit;

/* Returns true if the text is a unit, or a unit of each step or each device: "s", "s/it", "ms per
 * step". */
static bool is_unit(const char *text, const char *unit)
{
    static const char *const each[] = {"step", "iter",   "it",   "iteration",
                                       "gpu",  "device", "rank", NULL};
    const size_t n = strlen(unit);
    if (strncasecmp(text, unit, n) != 0) return false;
    text += n;
    if (*text == 0) return true;
    if (n == 0) return false;
    text += strspn(text, " ");
    const bool slash = *text == '/', per = strncasecmp(text, "per ", 4) == 0;
    if (!slash && !per) return false;
    text += slash ? 1 : 4;
    return is_one_of(text + strspn(text, " "), each);
}

/* True if the text counts steps in a second: "it/s", "steps per second". */
static bool is_rate(const char *text)
{
    static const char *const steps[] = {"it",    "its",       "iter",       "iters", "step",
                                        "steps", "iteration", "iterations", NULL};
    static const char *const seconds[] = {"s", "sec", "second", NULL};
    char word[16];
    const size_t n = strcspn(text, " /");
    snprintf(word, sizeof word, "%.*s", (int)n, text);
    if (!is_one_of(word, steps)) return false;
    text += n + strspn(text + n, " ");
    const bool slash = *text == '/', per = strncasecmp(text, "per ", 4) == 0;
    if (!slash && !per) return false;
    text += slash ? 1 : 4;
    return is_one_of(text + strspn(text, " "), seconds);
}

/* Ends a cell's text before a remark. A remark is a spread ("1.5 +/- 0.1") or a bracket at the end.
 * The bracket gives a part of the device's memory ("65.3GiB(81%)") or says how steps were counted
 * ("1.5 s (median)"). */
static void without_remark(char *text)
{
    char *spread = strstr(text, "+/-");
    if (spread == NULL) spread = strstr(text, "\302\261"); /* the sign for plus or minus */
    if (spread != NULL && spread > text) *spread = 0;
    size_t n = strlen(text);
    char *open = strrchr(text, '(');
    if (open != NULL && open > text && n > 0 && text[n - 1] == ')') *open = 0;
    for (n = strlen(text); n > 0 && text[n - 1] == ' '; n--) text[n - 1] = 0;
}

/* Removes the device's memory from a part of it: "71 / 80 GB" and "71 GB / 80 GB" become "71 GB".
 */
static void without_whole(char *text)
{
    char *slash = strchr(text, '/');
    if (slash == NULL) return;
    const char *whole = slash + 1 + strspn(slash + 1, " ");
    const size_t n = strspn(whole, "0123456789.");
    char *end = slash;
    while (end > text && end[-1] == ' ') end--;
    const bool has_unit = end > text && isalpha((unsigned char)end[-1]);
    if (n > 0 && has_unit) *end = 0;
    if (n > 0 && !has_unit) memmove(slash, whole + n, strlen(whole + n) + 1);
}

/* If a second number follows ("1.41-1.43"), returns the middle of both, and moves *end behind it.
 * NAN: the second number is smaller, or more than a tenth larger. */
static double middle(double value, const char **end)
{
    const char *at = *end;
    const size_t dash = *at == '-' ? 1 : strncmp(at, "\342\200\223", 3) == 0 ? 3 : 0;
    if (dash == 0) return value;
    const double other = csv_decimal(at + dash + strspn(at + dash, " "), end);
    while (**end == ' ') (*end)++;
    return other >= value && other <= 1.1 * value ? (value + other) / 2 : NAN;
}

/* Returns the number in a cell, in the first unit of the column: "2.84", "2.84 s", "2840 ms", "0.35
 * it/s", "65.3 GiB", "65,300 MiB". PyTorch's tools write GB for GiB. Returns NAN for other texts,
 * for a unit of another column and for an empty cell. */
static double quantity(const Csv *csv, uint32_t row, const char *column)
{
    static const CellUnit times[] = {{"", 1},      {"s", 1},       {"sec", 1},
                                     {"secs", 1},  {"second", 1},  {"seconds", 1},
                                     {"ms", 1e-3}, {"msec", 1e-3}, {"milliseconds", 1e-3},
                                     {"min", 60},  {NULL, 0}};
    static const CellUnit sizes[] = {{"", 1},           {"GiB", 1},         {"GB", 1},
                                     {"G", 1},          {"TB", 1e3},        {"MiB", 1 / 1024.},
                                     {"MB", 1 / 1024.}, {"bytes", 1 / GIB}, {"B", 1 / GIB},
                                     {NULL, 0}};
    char cell[64];
    csv_plain(csv_cell(csv, row, column), cell, sizeof cell);
    without_remark(cell);
    const bool is_time = strcmp(column, "step_time_s") == 0;
    if (!is_time) without_whole(cell);
    const char *text = cell, *end;
    text += strspn(text, " ~");
    double value = csv_decimal(text, &end);
    if (isnan(value)) return NAN;
    while (*end == ' ') end++;
    value = middle(value, &end);
    if (is_time && is_rate(end)) return value > 0 ? 1 / value : NAN;
    for (const CellUnit *u = is_time ? times : sizes; u->name != NULL; u++)
        if (is_unit(end, u->name)) return value * u->factor;
    return NAN;
}

/* Returns true if the row says that the run ran out of memory. */
static bool ran_out(const Csv *csv, uint32_t row)
{
    static const char *const words[] = {"1", "1.0", "yes", "y", "true", NULL};
    static const char *const denials[] = {"no", "not", "without", NULL};
    char first[16];
    const char *cell = csv_cell(csv, row, "oom");
    cell += strspn(cell, " ");
    snprintf(first, sizeof first, "%.*s", (int)strcspn(cell, " (,;"), cell);
    if (is_one_of(first, denials)) return false;
    return is_one_of(first, words) || has_text(cell, "oom") || has_text(cell, "out of memory");
}

/* Returns the first measured column whose cell cannot be understood, or NULL if there is none. */
static const char *unreadable(const Csv *csv, uint32_t row)
{
    static const char *const columns[] = {"step_time_s", "peak_mem"};
    static const char *const none[] = {"", "none", NULL};
    static const char *const fitted[] = {"0",      "0.0", "no",      "n",    "false", "ok",
                                         "no oom", "fit", "not oom", "fits", NULL};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        const char *text = csv_cell(csv, row, columns[i]);
        const bool part = i == 1 && percentage(text) > 0;
        if (!is_one_of(text, none) && !part && isnan(quantity(csv, row, columns[i])))
            return columns[i];
    }
    const bool known = ran_out(csv, row) || is_one_of(csv_cell(csv, row, "oom"), none) ||
                       is_one_of(csv_cell(csv, row, "oom"), fitted);
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
    double step_s = quantity(csv, out->row, "step_time_s");
    if (csv_cell(csv, out->row, "step_time_s")[0] == 0)
        step_s = rate_step_s(csv, out->row, &run->config);
    if (has_note(&run->diag, "untimed-row")) return;
    if (step_s > 0) {
        row_score(out, step_name(run, assumed), step_s, predicted_s);
        return;
    }
    step_s = flops_step_s(csv, out->row, &run->config, run->plan);
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
        if (has_text(kind, words[i])) return true;
    if (!has_text(kind, "gb") && !has_text(cell, "gb")) return false;
    for (size_t i = 0; tools[i] != NULL; i++)
        if (has_text(csv_cell(csv, row, "framework"), tools[i])) return true;
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
    /* the cell names no unit */
    const bool bare = !isnan(csv_number(csv, row, "peak_mem"));
    const double value = quantity(csv, row, "peak_mem");
    if (bare && value > MOST_MIB) return value;
    if (bare && (in_mb || value > MOST_GIB)) return value * MIB;
    return value * (has_decimal_gb(csv, row) ? 1e9 : GIB);
}

/* Returns true if a tool measured the memory from outside, which sees all memory of a process. */
static bool of_process(const char *kind)
{
    static const char *const tools[] = {"process", "nvidia smi", "rocm smi",   "amd smi",    "nvml",
                                        "nvtop",   "dcgm",       "device mem", "gpu memory", NULL};
    for (size_t i = 0; tools[i] != NULL; i++)
        if (begins(kind, tools[i])) return true;
    const bool without = has_text(kind, "without cuda") || has_text(kind, "excluding cuda");
    if (has_text(kind, "process total") || has_text(kind, "cuda context")) return !without;
    /* "used (nvidia smi)"; a cell that begins with "peak_mem" means the framework's number */
    return !begins(kind, "peak mem") && (has_text(kind, "nvidia smi") || has_text(kind, "nvml"));
}

/* Returns true if peak_mem is a part of something else than the device's memory, such as the
 * reserved memory: "12.3 / 14.5 GiB". */
static bool is_other_part(const Csv *csv, uint32_t row, uint64_t device_bytes)
{
    const char *cell = csv_cell(csv, row, "peak_mem"), *slash = strchr(cell, '/');
    const double whole = slash == NULL ? 0 : strtod(slash + 1, NULL);
    if (!(whole > 0)) return false;
    const double part = strtod(cell + strspn(cell, " ~"), NULL);
    const double ratio = memory_of(csv, row, device_bytes) * whole / part / (double)device_bytes;
    return !(ratio > 0.85 && ratio < 1.15); /* GB for GiB, and memory that the driver keeps */
}

/* Scores the memory of a row. The profile says which kind of memory the framework reports, unless
 * the row itself says it. */
static void score_memory(const Csv *csv, const RowRun *run, const RowOut *out, bool assumed)
{
    static const char *const names[] = {"memory reserved", "memory allocated", "memory of process"};
    const char *kind = csv_cell(csv, out->row, "peak_mem_kind");
    const double bytes = memory_of(csv, out->row, run->config.cluster.device.memory_bytes);
    if (!(bytes > 0) || strstr(kind, "at OOM") != NULL || strstr(kind, "param_opt") != NULL) return;
    MemoryKind of = has_text(kind, "reserved") ? MEMORY_reserved
                    : has_text(kind, "alloc")  ? MEMORY_allocated
                    : of_process(kind)         ? MEMORY_process
                                               : run->config.runtime.reports;
    const char *name = name_of(run->arena, names[of], assumed);
    if (has_note(&run->diag, "measured-cell"))
        name = arena_print(run->arena, "%s, GPUs from measured memory", names[of]);
    row_score(out, name, bytes, (double)run->report.held.logged[of]);
}

/* Scores a row that gives the memory that the model needs (parameters and optimizer, then
 * activations), and no run. The score is the verdict whether this memory fits the device. */
static void score_need(const Csv *csv, const RowRun *run, const RowOut *out, bool assumed,
                       bool *fits)
{
    const char *kind = csv_cell(csv, out->row, "peak_mem_kind");
    const char *rest = csv_cell(csv, out->row, "peak_mem2");
    if (strstr(kind, "param_opt") == NULL || strstr(rest, "activation_mem") == NULL) return;
    double gib = quantity(csv, out->row, "peak_mem") + strtod(rest, NULL);
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
        row_reason(out, arena_print(arena, "peak_mem is no part of the device's: %.40s", cell));
    } else {
        out->profile = run.config.runtime.name;
        out->gpu = trust_gpu(arena, run.config.cluster.device.name);
        bool oom = ran_out(csv, out->row);
        const bool assumed =
            csv_cell(csv, out->row, "missing")[0] != 0 || has_note(&run.diag, "assumed-cell");
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
