/* Warns if a sweep compares schedules that need different amounts of traffic. A schedule determines
 * how often a rank gathers weights and reduces gradients. If schedules differ in this, their
 * ranking shows the cost of this traffic, too. */
#include <inttypes.h>
#include <string.h>

#include "cli/sweep/sweep.h"

uint64_t unit_bytes(const RunRecord *r)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < r->collectives.n; i++) {
        const CollectiveRow *row = &r->collectives.at[i];
        if (strcmp(row->stream, stream_name(STREAM_dp_gather)) == 0 ||
            strcmp(row->stream, stream_name(STREAM_dp_reduce)) == 0)
            bytes += row->n * row->bytes;
    }
    return bytes;
}

UnitGathers unit_gathers(const Config *config)
{
    const PassConfig *pass = config_pass(config, PASS_fsdp2);
    if (pass == NULL) return UNIT_GATHERS_other;
    const Fsdp2Options *o = &pass->fsdp2;
    if (o->keep_gathered) return UNIT_GATHERS_once;
    /* keep_gathered is refused beside these options */
    return o->reshard_after_forward == RESHARD_to || o->reshard_root ? UNIT_GATHERS_other
                                                                     : UNIT_GATHERS_often;
}

static bool is_schedule(const char *key)
{
    return strcmp(key, "parallel.pp.schedule") == 0 || strcmp(key, "parallel.pp") == 0;
}

static bool differ_only_in(uint32_t key, uint32_t n_keys, const SweepRow *a, const SweepRow *b)
{
    for (uint32_t k = 0; k < n_keys; k++)
        if ((k == key) == (strcmp(a->values[k], b->values[k]) == 0)) return false;
    return true;
}

/* Returns true if the larger number exceeds the smaller one by more than 1/50. */
static bool unequal(uint64_t a, uint64_t b)
{
    const uint64_t less = a < b ? a : b, more = a < b ? b : a;
    return less > 0 && more - less > less / 50;
}

/* Appends the bytes of each schedule whose row has the same other settings as row `a`. */
static void list_schedules(Cli *cli, uint32_t key, uint32_t n_keys, const SweepRows *rows,
                           const SweepRow *a)
{
    const char *before = "";
    for (uint32_t i = 0; i < rows->n; i++) {
        const SweepRow *row = &rows->at[i];
        if (!row_is_predicted(row) || (row != a && !differ_only_in(key, n_keys, a, row))) continue;
        str_print(&cli->out, "%s%s %s", before, row->values[key],
                  str_bytes(cli->arena, row->unit_bytes));
        before = ", ";
    }
}

/* Returns the end of the line: how the schedules can move the same, or why they do not. */
static const char *remedy(const SweepRow *a, const SweepRow *b)
{
    if (a->gathers == UNIT_GATHERS_once && b->gathers == UNIT_GATHERS_once)
        return "; each gathers a weight once, but the slowest ranks hold different layers";
    if (a->gathers == UNIT_GATHERS_often && b->gathers == UNIT_GATHERS_often)
        return "; with --set parallel.fsdp2.keep_gathered=true each gathers a weight once";
    return "";
}

void traffic_note(Cli *cli, const SweepKeys *keys, const SweepRows *rows)
{
    uint32_t key = 0;
    while (key < keys->n && !is_schedule(keys->at[key].key)) key++;
    for (uint32_t i = 0; key < keys->n && i < rows->n; i++)
        for (uint32_t k = i + 1; k < rows->n; k++) {
            const SweepRow *a = &rows->at[i], *b = &rows->at[k];
            if (!row_is_predicted(a) || !row_is_predicted(b) ||
                !unequal(a->unit_bytes, b->unit_bytes) || !differ_only_in(key, keys->n, a, b))
                continue;
            str_add(&cli->out,
                    "traffic     schedules move different bytes of weights and gradients in "
                    "a step: ");
            list_schedules(cli, key, keys->n, rows, a);
            str_print(&cli->out, "%s\n", remedy(a, b));
            return;
        }
}
