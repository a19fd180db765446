/* See comm_cells.h. */
#include "cli/accuracy/comm_cells.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cli/accuracy/quantity.h"

/* Copies a name's letters and digits in lower case, without a remark in parentheses. */
static void plain_name(const char *text, char *to, size_t most)
{
    size_t n = 0;
    for (; *text != 0 && *text != '(' && n + 1 < most; text++)
        if (isalnum((unsigned char)*text)) to[n++] = (char)tolower((unsigned char)*text);
    to[n] = 0;
}

static void without_end(char *name, const char *end)
{
    const size_t n = strlen(name), own = strlen(end);
    if (n > own && strcmp(name + n - own, end) == 0) name[n - own] = 0;
}

/* Other names of collectives, without prefixes such as "nccl" and ends such as "perf". */
static const struct {
    const char *name;
    Collective kind;
} other_names[] = {{"a2a", COLLECTIVE_all_to_all},        {"all2all", COLLECTIVE_all_to_all},
                   {"bcast", COLLECTIVE_broadcast},       {"p2p", COLLECTIVE_sendrecv},
                   {"pointtopoint", COLLECTIVE_sendrecv}, {"sendreceive", COLLECTIVE_sendrecv},
                   {"sendandrecv", COLLECTIVE_sendrecv},  {"isendirecv", COLLECTIVE_sendrecv}};

static bool find_plain(const char *name, Collective *kind)
{
    for (Collective k = 0; k < COLLECTIVE_COUNT; k++) {
        char own[32];
        plain_name(collective_name(k), own, sizeof own);
        *kind = k;
        if (strcmp(name, own) == 0) return true;
    }
    for (size_t i = 0; i < sizeof other_names / sizeof *other_names; i++) {
        *kind = other_names[i].kind;
        if (strcmp(name, other_names[i].name) == 0) return true;
    }
    return false;
}

bool comm_kind(const char *text, Collective *kind)
{
    static const char *const before[] = {"torchdistributed", "dist", "nccl", "rccl", "mpi"};
    static const char *const behind[] = {"perf", "tensor", "into", "single", "coalesced", "base"};
    char name[64];
    plain_name(text, name, sizeof name);
    if (find_plain(name, kind)) return true;
    const char *at = name;
    for (size_t i = 0; i < sizeof before / sizeof *before; i++)
        if (strncmp(at, before[i], strlen(before[i])) == 0) at += strlen(before[i]);
    memmove(name, at, strlen(at) + 1);
    for (size_t i = 0; i < sizeof behind / sizeof *behind; i++) without_end(name, behind[i]);
    return find_plain(name, kind);
}

/* A unit and its value. */
typedef struct CommUnit {
    const char *name; /* NULL in the last entry */
    double value;
    bool binary; /* behind a power of two, each step of 1,000 is one of 1,024 */
} CommUnit;

static double pow_of(double base, int n)
{
    double value = 1;
    for (; n > 0; n--) value *= base;
    return value;
}

/* Reads "NUMBER UNIT", without a remark in parentheses. The unit's case does not count if `cased`
 * is false. */
static double quantity(const char *cell, const CommUnit *units, bool cased)
{
    char text[64];
    csv_plain(cell, text, sizeof text);
    cell_without_remark(text);
    const char *at = text + strspn(text, " ~"), *end;
    const double value = csv_decimal(at, &end);
    if (isnan(value)) return NAN;
    end += strspn(end, " ");
    for (const CommUnit *u = units; u->name != NULL; u++) {
        if ((cased ? strcmp(end, u->name) : strcasecmp(end, u->name)) != 0) continue;
        const bool power = value >= 1 && fmod(log2(value), 1) == 0;
        double unit = u->value;
        if (u->binary && power) unit = pow_of(1024, (int)(log10(unit) / 3 + .5));
        return value * unit;
    }
    return NAN;
}

double comm_bytes(const char *cell)
{
    static const double ki = 1024;
    static const CommUnit units[] = {{"", 1, false},
                                     {"B", 1, false},
                                     {"byte", 1, false},
                                     {"bytes", 1, false},
                                     {"K", ki, false},
                                     {"Ki", ki, false},
                                     {"KiB", ki, false},
                                     {"M", ki * ki, false},
                                     {"Mi", ki * ki, false},
                                     {"MiB", ki * ki, false},
                                     {"G", ki * ki * ki, false},
                                     {"Gi", ki * ki * ki, false},
                                     {"GiB", ki * ki * ki, false},
                                     {"KB", 1e3, true},
                                     {"MB", 1e6, true},
                                     {"GB", 1e9, true},
                                     {NULL, 0, false}};
    return quantity(cell, units, false);
}

double comm_us(const char *cell)
{
    static const CommUnit units[] = {
        {"", 1, false},
        {"us", 1, false},
        {"usec", 1, false},
        {"\302\265s", 1, false}, /* the sign micro, and the Greek letter below */
        {"\316\274s", 1, false},
        {"microseconds", 1, false},
        {"ms", 1e3, false},
        {"msec", 1e3, false},
        {"milliseconds", 1e3, false},
        {"s", 1e6, false},
        {"sec", 1e6, false},
        {"seconds", 1e6, false},
        {"ns", 1e-3, false},
        {NULL, 0, false}};
    return quantity(cell, units, false);
}

double comm_gb_per_s(const char *cell)
{
    static const CommUnit units[] = {{"", 1, false},
                                     {"GB/s", 1, false},
                                     {"GBps", 1, false},
                                     {"MB/s", 1e-3, false},
                                     {"MBps", 1e-3, false},
                                     {"TB/s", 1e3, false},
                                     {"GiB/s", 1.073741824, false},
                                     {"Gb/s", .125, false},
                                     {"Gbps", .125, false},
                                     {"Gbit/s", .125, false},
                                     {"Tb/s", 125, false},
                                     {"Tbps", 125, false},
                                     {NULL, 0, false}};
    return quantity(cell, units, true);
}

/* Reads a count at the beginning of a text, and sets *end behind it. Returns 0 for other texts. */
static double count_at(const char *text, const char **end)
{
    double n = 0;
    text += strspn(text, " (");
    for (; isdigit((unsigned char)*text) && n < 1e7; text++) n = 10 * n + (*text - '0');
    *end = text;
    return *text == '.' || isdigit((unsigned char)*text) ? 0 : n;
}

/* Returns true if the text is empty or one of these words. */
static bool is_word(const char *text)
{
    static const char *const words[] = {"",        "gpu",     "gpus",     "rank", "ranks", "device",
                                        "devices", "node",    "nodes",    "host", "hosts", "server",
                                        "servers", "machine", "machines", NULL};
    char word[16];
    text += strspn(text, " ");
    size_t n = strlen(text);
    while (n > 0 && strchr(" )", text[n - 1]) != NULL) n--;
    snprintf(word, sizeof word, "%.*s", (int)n, text);
    return n < sizeof word && cell_is_one_of(word, words);
}

/* Reads "2x8", "2 x 8 GPUs" and "2 nodes x 8 GPUs" as nodes times GPUs. */
static bool read_product(const char *text, double *nodes, double *gpus)
{
    const char *end;
    *nodes = count_at(text, &end);
    const char *times = strpbrk(end, "xX*");
    if (*nodes < 1 || times == NULL) return false;
    char word[16];
    snprintf(word, sizeof word, "%.*s", (int)(times - end), end);
    if (times - end >= (long)sizeof word || !is_word(word)) return false;
    const double each = count_at(times + 1, &end);
    *gpus = *nodes * each;
    return each >= 1 && is_word(end);
}

/* Reads the numbers in one cell: "16", "16 GPUs", "2x8", "16 (2x8)", "16 (2 nodes)". A number that
 * the cell does not give stays 0. */
static bool read_counts(const char *cell, bool counts_nodes, double *gpus, double *nodes)
{
    *gpus = *nodes = 0;
    if (*cell == 0 || read_product(cell, nodes, gpus)) return true;
    *gpus = *nodes = 0;
    const char *end, *open = strchr(cell, '(');
    const double n = count_at(cell, &end);
    *(counts_nodes ? nodes : gpus) = n;
    if (n < 1) return false;
    if (open == NULL) return is_word(end);
    double more = 0, in = 0;
    if (read_product(open, &in, &more)) {
        *nodes = in;
        if (counts_nodes) return in == n;
        *gpus = n;
        return more == n;
    }
    in = count_at(open, &end);
    end += strspn(end, " ");
    if (in >= 1 && is_word(end) && strncasecmp(end, "node", 4) == 0) *nodes = in;
    return true;
}

const char *comm_ranks(const char *gpus, const char *nodes, const char *interconnect,
                       double *n_gpus, double *n_nodes)
{
    static const char open[] = "the number of GPUs or nodes is not stated";
    static const char unequal[] = "its cells state different numbers of GPUs or nodes";
    double of_gpus, in_gpus, more, of_nodes;
    if (!read_counts(gpus, false, &of_gpus, &in_gpus)) return open;
    if (!read_counts(nodes, true, &more, &of_nodes)) return open;
    if (more > 0 && of_gpus > 0 && more != of_gpus) return unequal;
    if (in_gpus > 0 && of_nodes > 0 && in_gpus != of_nodes) return unequal;
    *n_gpus = fmax(of_gpus, more);
    *n_nodes = fmax(in_gpus, of_nodes);
    if (*n_nodes < 1 &&
        (cell_has(interconnect, "single node") || cell_has(interconnect, "one node")))
        *n_nodes = 1;
    if (*n_gpus < 2 || *n_nodes < 1) return open;
    return fmod(*n_gpus, *n_nodes) == 0 ? NULL
                                        : "its nodes have different numbers of GPUs in the group";
}
