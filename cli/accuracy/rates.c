/* See rates.h. */
#include "cli/accuracy/rates.h"

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

/* Returns true if the words behind a number count tokens of a second: "tok/s", "TGS", "/GPU". */
static bool counts_tokens(const char *words)
{
    static const char *const units[] = {"tok",  "tps",     "tgs",     "wps",
                                        "/gpu", "/device", "per gpu", NULL};
    for (size_t i = 0; units[i] != NULL; i++)
        if (strncasecmp(words, units[i], strlen(units[i])) == 0) return true;
    return *words == 0;
}

double rate_step_s(const Csv *csv, uint32_t row, const Config *c)
{
    char cell[64];
    csv_plain(csv_cell(csv, row, "tokens_per_s_per_gpu"), cell, sizeof cell);
    cell_without_remark(cell);
    const char *end;
    double rate = csv_decimal(cell_behind_words(cell), &end);
    if (!(rate > 0)) return NAN;
    while (*end == ' ') end++;
    rate = cell_middle(rate, &end);
    if (*end == 'k' || *end == 'K') rate *= 1000, end++;
    while (*end == ' ') end++;
    if (!counts_tokens(end)) return NAN;
    const double devices = (double)c->cluster.nodes * c->cluster.devices_per_node;
    return (double)c->global_batch * (double)c->seq / (rate * devices);
}

/* How frameworks count the FLOPs of a token, by the beginning of the row's cell. The first entry
 * that fits counts. Megatron-Core is not listed, because the count depends on its release. kind:
 * source; Megatron-LM, training/training.py: num_floating_point_operations (since 0.12 with half of
 * the attention); NeMo, nemo/utils/flops_formulas.py; Megatron-Bridge,
 * training/utils/flop_utils.py; torchtitan, models/utils.py; llm-foundry,
 * models/mpt/modeling_mpt.py; nanoGPT, model.py; Narayanan et al., arXiv 2104.04473, section 5.1 */
static const struct {
    const char *framework;
    MfuConvention counts;
} conventions[] = {{"Megatron-Bridge", MFU_model},
                   {"Megatron-LM", MFU_square},
                   {"NeMo", MFU_square},
                   {"torchtitan", MFU_square},
                   {"llm-foundry", MFU_all_parameters},
                   {"composer", MFU_all_parameters},
                   {"nanoGPT", MFU_all_parameters},
                   {"", MFU_CONVENTION_COUNT}};

/* If *text begins with `first`, moves *text behind it and returns true. Case does not count. */
static bool skips(const char **text, const char *first)
{
    const size_t n = strlen(first);
    if (strncasecmp(*text, first, n) != 0) return false;
    *text += n;
    return true;
}

/* Returns the framework's convention; MFU_CONVENTION_COUNT: it is not known. */
static MfuConvention convention_of(const char *framework)
{
    if (skips(&framework, "Megatron-Core ")) { /* "0.12", "v0.12", "core_v0.12.0" */
        skips(&framework, "core_");
        skips(&framework, "v");
        if (skips(&framework, "0."))
            return strtol(framework, NULL, 10) >= 12 ? MFU_model : MFU_square;
        return MFU_CONVENTION_COUNT;
    }
    size_t i = 0;
    while (strncasecmp(framework, conventions[i].framework, strlen(conventions[i].framework)) != 0)
        i++;
    return conventions[i].counts;
}

/* Returns true if the row is from Narayanan et al. and recomputes all blocks. They count the
 * forward pass of recomputed blocks twice. */
static bool counts_again(const char *framework, const Config *c)
{
    const PassConfig *ac = config_pass(c, PASS_ac);
    const bool theirs = strncasecmp(framework, "Megatron-LM 2021", 16) == 0 ||
                        strncasecmp(framework, "Megatron-LM 2022", 16) == 0;
    return theirs && ac != NULL && ac->ac == AC_full && ac->ac_every <= 1 && ac->ac_ops.n == 0;
}

/* Returns the FLOPs of a token by the convention of the row's framework. NAN: it is not known. */
static double flops_per_token(const Csv *csv, uint32_t row, const Config *c, const Plan *plan)
{
    const char *framework = csv_cell(csv, row, "framework"), *formula;
    MfuConvention counts = convention_of(framework);
    if (counts == MFU_CONVENTION_COUNT) { /* not known: the usual conventions must agree */
        const double least = mfu_convention_flops(plan, MFU_model, &formula);
        counts = MFU_all_parameters;
        if (mfu_convention_flops(plan, counts, &formula) > 1.1 * least) return NAN;
    }
    const double flops = mfu_convention_flops(plan, counts, &formula);
    if (!counts_again(framework, c)) return flops;
    /* the forward pass of the head runs once */
    const double head = 6. * plan->graph.info.d_model * plan->graph.info.vocab;
    return (flops - head) * 4 / 3 + head;
}

/* Returns the number in a cell, which may end in the unit TFLOP/s. NAN: it has another form, or
 * counts all FLOPs of the hardware. */
static double teraflops(const Csv *csv, uint32_t row)
{
    char cell[64];
    csv_plain(csv_cell(csv, row, "published_tflops"), cell, sizeof cell);
    const char *end;
    const double value = csv_decimal(cell + strspn(cell, " ~"), &end);
    end += strspn(end, " ");
    if (cell_has(end, "hfu") || cell_has(end, "hardware")) return NAN;
    return *end == 0 || strncasecmp(end, "tflop", 5) == 0 ? value : NAN;
}

/* Returns the part of the peak that a row states: "41", "41%", "0.41". NAN: it has another form. */
static double utilisation(const Csv *csv, uint32_t row)
{
    const char *cell = csv_cell(csv, row, "published_mfu");
    const double part = percentage(cell), bare = csv_number(csv, row, "published_mfu");
    if (!isnan(part)) return part;
    return bare > 0 && bare <= 1 ? bare : bare > 1 && bare <= 100 ? bare / 100 : NAN;
}

double flops_step_s(const Csv *csv, uint32_t row, const Config *c, const Plan *plan)
{
    const Device *device = &c->cluster.device;
    const double wide = device->peak_flops[c->compute == DT_f32 ? DT_f32 : DT_bf16],
                 peak = wide > 0 ? wide : device->peak_flops[DT_f16];
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
