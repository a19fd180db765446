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
    const bool remark = *end == '(' && end[1 + strcspn(end + 1, "(")] == 0; /* "78% (62 GiB)" */
    return *end == 0 || of_device || remark ? value / 100 : NAN;
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

/* How frameworks count the FLOPs of a token, by the beginning of the framework's name in lower
 * case, with a blank for "-" and "_". The first entry that fits counts. MFU_CONVENTION_COUNT: the
 * way to count is not known. since: the year and month (YYYYMM) from which `later` replaces
 * `counts`; 0: it never does. doubt: the first month whose releases may count in either way. If the
 * row gives no month, or a month in doubt, the way to count is not known. again: the framework
 * counts the forward pass of recomputed blocks twice. until: the last month in which it did so; 0:
 * it still does. unsure: only some releases do so. peak: the FLOP/s by which the framework divides
 * to get MFU; 0: those of the row's GPU. kind: source; Megatron-LM, training/training.py:
 * num_floating_point_operations (half of the attention since March 2025; core_r0.12); NeMo,
 * nemo/utils/flops_formulas.py (half since #14424, release 25.09); Megatron-Bridge,
 * training/utils/flop_utils.py; torchtitan, models/utils.py; llm-foundry,
 * models/mpt/modeling_mpt.py; nanoGPT, model.py (estimate_mfu: a part of A100's peak); MaxText,
 * utils/maxtext_utils.py (half; it names releases of spring 2025 as its model); LitGPT,
 * pretrain.py: measure_flops; Levanter, utils/flop_utils.py; Megatron-DeepSpeed, utils.py:
 * throughput_calculator; GPT-NeoX, logging.py: get_flops; Colossal-AI, performance_evaluator.py (it
 * prints two counts); Narayanan et al., arXiv 2104.04473, section 5.1 */
typedef struct Counting {
    const char *framework;
    MfuConvention counts, later;
    int doubt, since, until;
    bool again, unsure;
    double peak;
} Counting;
static const Counting countings[] = {
    {.framework = "megatron bridge", .counts = MFU_model},
    {.framework = "megatron deepspeed", .counts = MFU_square, .again = true},
    {.framework = "gpt neox", .counts = MFU_square, .again = true},
    {.framework = "megatron lm",
     .counts = MFU_square,
     .later = MFU_model,
     .doubt = 202503,
     .since = 202504,
     .again = true,
     .until = 202212},
    {.framework = "deepspeed", .counts = MFU_CONVENTION_COUNT, .unsure = true},
    {.framework = "internevo", .counts = MFU_CONVENTION_COUNT, .unsure = true},
    {.framework = "nemo automodel", .counts = MFU_CONVENTION_COUNT},
    {.framework = "nemo",
     .counts = MFU_square,
     .later = MFU_model,
     .doubt = 202509,
     .since = 202509},
    {.framework = "torchtitan", .counts = MFU_square},
    {.framework = "llm foundry", .counts = MFU_all_parameters},
    {.framework = "composer", .counts = MFU_all_parameters},
    {.framework = "nanogpt", .counts = MFU_all_parameters, .peak = 312e12},
    {.framework = "maxtext",
     .counts = MFU_square,
     .later = MFU_model,
     .doubt = 202503,
     .since = 202506},
    {.framework = "litgpt", .counts = MFU_square},
    {.framework = "lit gpt", .counts = MFU_square},
    {.framework = "levanter", .counts = MFU_square},
    {.framework = "colossal", .counts = MFU_CONVENTION_COUNT, .again = true},
    {.framework = "", .counts = MFU_CONVENTION_COUNT},
};

static const Counting *counting_of(const char *framework)
{
    const Counting *c = countings;
    while (!cell_begins(framework, c->framework)) c++;
    return c;
}

/* Returns the second number of a release of Megatron-Core that the name contains: 12 for "core
 * 0.12" and "core_v0.12.0". -1: it contains none. */
static int core_release(const char *framework)
{
    for (const char *at = framework; *at != 0; at++) {
        if (!cell_begins(at, "core")) continue;
        const char *number = at + 4 + strspn(at + 4, " _-vr");
        if (strncmp(number, "0.", 2) == 0 && isdigit((unsigned char)number[2]))
            return (int)strtol(number + 2, NULL, 10);
    }
    return -1;
}

/* Returns the convention of a framework; MFU_CONVENTION_COUNT: it is not known. */
static MfuConvention convention_of(const RowFramework *framework)
{
    const Counting *known = counting_of(framework->name);
    const bool core = cell_begins(framework->name, "megatron core");
    const int release = core || known->until != 0 ? core_release(framework->name) : -1;
    if (release >= 0) return release >= 12 ? MFU_model : MFU_square;
    if (core || known->since == 0) return known->counts;
    /* a year without its month begins in January and ends in December */
    const int first = framework->month % 100 == 0 ? framework->month + 1 : framework->month,
              last = framework->month % 100 == 0 ? framework->month + 12 : framework->month;
    if (framework->month == 0) return MFU_CONVENTION_COUNT;
    return first >= known->since ? known->later
           : last < known->doubt ? known->counts
                                 : MFU_CONVENTION_COUNT;
}

/* Returns true if the row's framework counts the forward pass of recomputed blocks twice, and the
 * row recomputes all of them. */
static bool counts_again(const RowFramework *framework, const Config *c)
{
    const PassConfig *ac = config_pass(c, PASS_ac);
    const Counting *known = counting_of(framework->name);
    const bool then =
        known->until == 0 || (framework->month > 0 && framework->month <= known->until);
    return known->again && then && ac != NULL && ac->ac == AC_full && ac->ac_every <= 1 &&
           ac->ac_ops.n == 0;
}

/* Returns the FLOPs of a token by the convention of the row's framework. NAN: it is not known. */
static double flops_per_token(const RowFramework *framework, const Config *c, const Plan *plan)
{
    const char *formula;
    MfuConvention counts = convention_of(framework);
    if (counts == MFU_CONVENTION_COUNT) { /* not known: the usual conventions must agree */
        const double least = mfu_convention_flops(plan, MFU_model, &formula);
        counts = MFU_all_parameters;
        if (mfu_convention_flops(plan, counts, &formula) > 1.1 * least) return NAN;
    }
    const double flops = mfu_convention_flops(plan, counts, &formula);
    if (counting_of(framework->name)->unsure && config_pass(c, PASS_ac) != NULL) return NAN;
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
    if (cell_has(cell, "hfu") || cell_has(cell, "hardware") || is_sum(cell)) return NAN;
    cell_without_remark(cell);
    const double value = csv_decimal(cell + strspn(cell, " ~"), &end);
    end += strspn(end, " ");
    if (cell_begins(end, "model ")) end += strlen("model ");
    const bool is_unit = cell_begins(end, "tf"); /* "TF", "TFLOP/s" */
    return *end == 0 || is_unit ? value : NAN;
}

/* Returns the part of the peak in a text: "41", "41%", "0.41", "MFU 41%". NAN: it has another form.
 */
static double part_of_peak(char *text)
{
    char *name = strstr(text, "MFU");
    if (strstr(text, " of ") != NULL) return NAN; /* "50% of 312": perhaps another GPU's peak */
    if (name != NULL) memset(name, ' ', 3);
    for (size_t n = strlen(text); n > 0 && text[n - 1] == ' '; n--) text[n - 1] = 0;
    const char *end, *start = text + strspn(text, " :=");
    const double part = percentage(start), number = csv_decimal(start, &end),
                 bare = *end == 0 ? number : NAN;
    if (!isnan(part)) return part;
    return bare > 0 && bare <= 1 ? bare : bare > 1 && bare <= 100 ? bare / 100 : NAN;
}

/* Returns the part of the peak that a row states. The cell may also state the part that counts all
 * FLOPs of the hardware (HFU): "MFU 41% / HFU 51%", "41% (HFU 51%)". NAN: it has another form. */
static double utilisation(const Csv *csv, uint32_t row)
{
    char cell[64];
    csv_plain(csv_cell(csv, row, "published_mfu"), cell, sizeof cell);
    double found = NAN;
    for (char *at = cell, *next; at != NULL; at = next) {
        const size_t n = strcspn(at, "/(),;");
        next = at[n] != 0 ? at + n + 1 : NULL;
        at[n] = 0;
        if (strpbrk(at, "0123456789") == NULL || cell_has(at, "hfu") || cell_has(at, "hardware"))
            continue;
        if (!isnan(found)) return NAN; /* two parts of the model's FLOPs */
        found = part_of_peak(at);
        if (isnan(found)) return NAN;
    }
    return found;
}

double flops_step_s(const Csv *csv, uint32_t row, const RowFramework *framework, const Config *c,
                    const Plan *plan)
{
    const Device *device = &c->cluster.device;
    const double wide = device->peak_flops[c->compute == DT_f32 ? DT_f32 : DT_bf16],
                 named = counting_of(framework->name)->peak,
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
    const double flops = flops_per_token(framework, c, plan) * tokens;
    return flops > 0 ? flops / (flops_per_s * devices) : NAN;
}
