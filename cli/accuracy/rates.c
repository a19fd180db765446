/* See rates.h. */
#include "cli/accuracy/rates.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/accuracy/quantity.h"
#include "sim/utilisation.h"

double percentage(const char *text)
{
    const char *end;
    const double value = csv_decimal(text + strspn(text, " ~"), &end);
    end += strspn(end, " ");
    if (*end != '%' || !(value > 0 && value <= 100)) return NAN;
    end += 1 + strspn(end + 1, " ");
    /* "81 % of 80 GB", but not "81 % of reserved" */
    const bool of_device = strncmp(end, "of ", 3) == 0 && strtod(end + 3, NULL) > 0;
    return *end == 0 || of_device ? value / 100 : NAN;
}

/* Returns true if the cell says that its number is the sum over several devices: "96k (total)",
 * "800 TFLOP/s per node". A number of samples, "(global batch 64)", does not say so. */
static bool is_sum(const char *cell)
{
    static const char *const words[] = {"total",    "aggregate", "cluster", "global",
                                        "per node", "/node",     NULL};
    for (size_t i = 0; words[i] != NULL; i++)
        for (const char *at = cell; *at != 0; at++)
            if (cell_begins(at, words[i]) && !cell_begins(at + strlen(words[i]), " batch"))
                return true;
    return false;
}

/* Returns true if the words behind a number count tokens of a second: "tok/s", "TGS", "/GPU". */
static bool counts_tokens(const char *words)
{
    static const char *const units[] = {"tok",  "tps",     "tgs",     "wps",
                                        "/gpu", "/device", "per gpu", NULL};
    if (cell_has(words, "node")) return false; /* perhaps the tokens of one node, or of several */
    for (size_t i = 0; units[i] != NULL; i++)
        if (strncasecmp(words, units[i], strlen(units[i])) == 0) return true;
    return *words == 0;
}

double rate_step_s(const Csv *csv, uint32_t row, const Config *c)
{
    char cell[64];
    csv_plain(csv_cell(csv, row, "tokens_per_s_per_gpu"), cell, sizeof cell);
    if (is_sum(cell)) return NAN;
    cell_without_remark(cell);
    const char *end;
    double rate = csv_decimal(cell_behind_words(cell), &end);
    if (!(rate > 0)) return NAN;
    while (*end == ' ') end++;
    /* "12k-13k" is a range, as "12-13k" is, but "12k-13" is not */
    const bool both =
        (*end == 'k' || *end == 'K') && (end[1] == '-' || strncmp(end + 1, "\342\200\223", 3) == 0);
    if (both) end++;
    rate = cell_middle(rate, &end);
    if (*end == 'k' || *end == 'K')
        rate *= 1000, end++;
    else if (both)
        return NAN;
    while (*end == ' ') end++;
    if (!counts_tokens(end)) return NAN;
    const double devices = (double)c->cluster.nodes * c->cluster.devices_per_node;
    return (double)c->global_batch * (double)c->seq / (rate * devices);
}

/* How frameworks count the FLOPs of a token, by the beginning of the row's cell `framework`. The
 * first entry that fits counts. MFU_CONVENTION_COUNT: the way to count is not known. Megatron-Core
 * is not listed, because its way depends on its release. since: the year and month (YYYYMM) from
 * which `later` replaces `counts`; 0: it never does. If the row gives no month, neither is used.
 * again: the forward pass of recomputed blocks counts twice. unsure: in some releases it does.
 * peak: the FLOP/s of which MFU is a part; 0: those of the row's GPU. kind: source; Megatron-LM,
 * training/training.py: num_floating_point_operations (half of the attention since March 2025);
 * NeMo, nemo/utils/flops_formulas.py (half since #14424, release 25.09); Megatron-Bridge,
 * training/utils/flop_utils.py; torchtitan, models/utils.py; llm-foundry,
 * models/mpt/modeling_mpt.py; nanoGPT, model.py (estimate_mfu: a part of A100's peak); MaxText,
 * utils/maxtext_utils.py (half; it names releases of spring 2025 as its model); LitGPT,
 * pretrain.py: measure_flops; Levanter, utils/flop_utils.py; Megatron-DeepSpeed, utils.py:
 * throughput_calculator; GPT-NeoX, logging.py: get_flops; Colossal-AI, performance_evaluator.py (it
 * prints two counts); Narayanan et al., arXiv 2104.04473, section 5.1 */
typedef struct Counting {
    const char *framework;
    MfuConvention counts, later;
    int since;
    bool again, unsure;
    double peak;
} Counting;
static const Counting countings[] = {
    {.framework = "Megatron-Bridge", .counts = MFU_model},
    {.framework = "Megatron-DeepSpeed", .counts = MFU_square, .again = true},
    {.framework = "GPT-NeoX", .counts = MFU_square, .again = true},
    {.framework = "Megatron-LM 2021", .counts = MFU_square, .again = true},
    {.framework = "Megatron-LM 2022", .counts = MFU_square, .again = true},
    {.framework = "Megatron-LM", .counts = MFU_square, .later = MFU_model, .since = 202504},
    {.framework = "DeepSpeed", .counts = MFU_CONVENTION_COUNT, .unsure = true},
    {.framework = "InternEvo", .counts = MFU_CONVENTION_COUNT, .unsure = true},
    {.framework = "NeMo Automodel", .counts = MFU_CONVENTION_COUNT},
    {.framework = "NeMo", .counts = MFU_square, .later = MFU_model, .since = 202509},
    {.framework = "torchtitan", .counts = MFU_square},
    {.framework = "llm-foundry", .counts = MFU_all_parameters},
    {.framework = "composer", .counts = MFU_all_parameters},
    {.framework = "nanoGPT", .counts = MFU_all_parameters, .peak = 312e12},
    {.framework = "MaxText", .counts = MFU_square, .later = MFU_model, .since = 202505},
    {.framework = "LitGPT", .counts = MFU_square},
    {.framework = "Lit-GPT", .counts = MFU_square},
    {.framework = "Levanter", .counts = MFU_square},
    {.framework = "Colossal", .counts = MFU_CONVENTION_COUNT, .again = true},
    {.framework = "", .counts = MFU_CONVENTION_COUNT},
};

/* If *text begins with `first`, moves *text behind it and returns true. Case does not count. */
static bool skips(const char **text, const char *first)
{
    const size_t n = strlen(first);
    if (strncasecmp(*text, first, n) != 0) return false;
    *text += n;
    return true;
}

static const Counting *counting_of(const char *framework)
{
    const Counting *c = countings;
    while (strncasecmp(framework, c->framework, strlen(c->framework)) != 0) c++;
    return c;
}

static int two_digits(const char *text)
{
    const bool both = isdigit((unsigned char)text[0]) && isdigit((unsigned char)text[1]);
    return both ? 10 * (text[0] - '0') + text[1] - '0' : -1;
}

/* Returns the year and month (YYYYMM) in a text: "2025-04", or "25.04" as NeMo names its releases.
 * A year alone gives month 0. 0: the text has neither. */
static int month_in(const char *text)
{
    for (const char *at = text; *at != 0; at++) {
        if (at > text && (isdigit((unsigned char)at[-1]) || at[-1] == '.')) continue;
        const int first = two_digits(at), next = first < 0 ? -1 : two_digits(at + 2);
        if (first == 20 && next >= 0 && !isdigit((unsigned char)at[4])) {
            const int month = at[4] == '-' ? two_digits(at + 5) : 0;
            return 100 * (2000 + next) + (month > 0 && month <= 12 ? month : 0);
        }
        const int month = first >= 23 && first <= 39 && at[2] == '.' ? two_digits(at + 3) : 0;
        if (month > 0 && month <= 12) return 100 * (2000 + first) + month;
    }
    return 0;
}

/* Returns the framework's convention; MFU_CONVENTION_COUNT: it is not known. */
static MfuConvention convention_of(const Csv *csv, uint32_t row)
{
    const char *framework = csv_cell(csv, row, "framework");
    const Counting *known = counting_of(framework);
    if (skips(&framework, "Megatron-Core ")) { /* "0.12", "v0.12", "core_v0.12.0" */
        skips(&framework, "core_");
        skips(&framework, "v");
        if (skips(&framework, "0."))
            return strtol(framework, NULL, 10) >= 12 ? MFU_model : MFU_square;
        return MFU_CONVENTION_COUNT;
    }
    if (known->since == 0) return known->counts;
    int month = month_in(csv_cell(csv, row, "framework_month"));
    if (month == 0) month = month_in(framework);
    if (month / 100 == known->since / 100 && month % 100 == 0) month = 0;
    return month == 0 ? MFU_CONVENTION_COUNT : month >= known->since ? known->later : known->counts;
}

/* Returns true if the row's framework counts the forward pass of recomputed blocks twice, and the
 * row recomputes all of them. */
static bool counts_again(const char *framework, const Config *c)
{
    const PassConfig *ac = config_pass(c, PASS_ac);
    return counting_of(framework)->again && ac != NULL && ac->ac == AC_full && ac->ac_every <= 1 &&
           ac->ac_ops.n == 0;
}

/* Returns the FLOPs of a token by the convention of the row's framework. NAN: it is not known. */
static double flops_per_token(const Csv *csv, uint32_t row, const Config *c, const Plan *plan)
{
    const char *formula;
    MfuConvention counts = convention_of(csv, row);
    if (counts == MFU_CONVENTION_COUNT) { /* not known: the usual conventions must agree */
        const double least = mfu_convention_flops(plan, MFU_model, &formula);
        counts = MFU_all_parameters;
        if (mfu_convention_flops(plan, counts, &formula) > 1.1 * least) return NAN;
    }
    const double flops = mfu_convention_flops(plan, counts, &formula);
    const char *framework = csv_cell(csv, row, "framework");
    if (counting_of(framework)->unsure && config_pass(c, PASS_ac) != NULL) return NAN;
    if (!counts_again(framework, c)) return flops;
    /* the forward pass of the head runs once */
    const double head = 6. * plan->graph.info.d_model * plan->graph.info.vocab;
    return (flops - head) * 4 / 3 + head;
}

/* Returns the number in a cell, which may end in the unit TFLOP/s. NAN: it has another form, counts
 * all FLOPs of the hardware, or is a sum over devices. */
static double teraflops(const Csv *csv, uint32_t row)
{
    char cell[64];
    csv_plain(csv_cell(csv, row, "published_tflops"), cell, sizeof cell);
    const char *end;
    const double value = csv_decimal(cell + strspn(cell, " ~"), &end);
    end += strspn(end, " ");
    if (cell_has(end, "hfu") || cell_has(end, "hardware") || is_sum(end)) return NAN;
    const bool is_unit = cell_begins(end, "tf"); /* "TF", "TFLOP/s" */
    return *end == 0 || is_unit ? value : NAN;
}

/* Returns the part of the peak that a row states: "41", "41%", "0.41". NAN: it has another form. */
static double utilisation(const Csv *csv, uint32_t row)
{
    char cell[64];
    csv_plain(csv_cell(csv, row, "published_mfu"), cell, sizeof cell);
    char *name = strstr(cell, "MFU"); /* "41% MFU", "MFU 41%" */
    if (name != NULL) memset(name, ' ', 3);
    for (size_t n = strlen(cell); n > 0 && cell[n - 1] == ' '; n--) cell[n - 1] = 0;
    const char *end, *text = cell + strspn(cell, " :=");
    const double part = percentage(text), number = csv_decimal(text, &end),
                 bare = *end == 0 ? number : NAN;
    if (!isnan(part)) return part;
    return bare > 0 && bare <= 1 ? bare : bare > 1 && bare <= 100 ? bare / 100 : NAN;
}

double flops_step_s(const Csv *csv, uint32_t row, const Config *c, const Plan *plan)
{
    const Device *device = &c->cluster.device;
    const double wide = device->peak_flops[c->compute == DT_f32 ? DT_f32 : DT_bf16],
                 named = counting_of(csv_cell(csv, row, "framework"))->peak,
                 peak = named > 0  ? named
                        : wide > 0 ? wide
                                   : device->peak_flops[DT_f16];
    double flops_per_s = 1e12 * teraflops(csv, row);
    /* for a run in 8 bits, the row does not say whether its utilisation is relative to the 8-bit
     * peak or to the 16-bit peak */
    const bool narrow = config_pass(c, PASS_float8) != NULL;
    if (isnan(flops_per_s) && !narrow) flops_per_s = peak * utilisation(csv, row);
    if (!(flops_per_s > 0)) return NAN;
    const double devices = (double)c->cluster.nodes * c->cluster.devices_per_node;
    const double tokens = (double)c->global_batch * (double)c->seq;
    const double flops = flops_per_token(csv, row, c, plan) * tokens;
    return flops > 0 ? flops / (flops_per_s * devices) : NAN;
}
