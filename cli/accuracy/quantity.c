/* See quantity.h. */
#include "cli/accuracy/quantity.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const double GIB = 1073741824.;

bool cell_is_one_of(const char *text, const char *const *words)
{
    while (*words != NULL && strcasecmp(text, *words) != 0) words++;
    return *words != NULL;
}

bool cell_begins(const char *text, const char *words)
{
    for (; *words != 0; text++, words++) {
        const char c = (char)tolower((unsigned char)*text);
        if ((c == '-' || c == '_' ? ' ' : c) != *words) return false;
    }
    return true;
}

bool cell_has(const char *text, const char *words)
{
    while (*text != 0 && !cell_begins(text, words)) text++;
    return *text != 0;
}

typedef struct CellUnit {
    const char *name; /* name: NULL in the last entry */
    double factor;
} CellUnit;

/* Returns true if the text is the unit, alone or per step or device: "s", "s/it", "ms per step". */
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
    return cell_is_one_of(text + strspn(text, " "), each);
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
    if (!cell_is_one_of(word, steps)) return false;
    text += n + strspn(text + n, " ");
    const bool slash = *text == '/', per = strncasecmp(text, "per ", 4) == 0;
    if (!slash && !per) return false;
    text += slash ? 1 : 4;
    return cell_is_one_of(text + strspn(text, " "), seconds);
}

const char *cell_behind_words(const char *text)
{
    static const char *const words[] = {"max", "peak", "avg", "mean", "average", "TGS", NULL};
    text += strspn(text, " ~");
    if (strncmp(text, "\342\211\210", 3) == 0) text += 3; /* the sign for "about" */
    for (size_t i = 0; words[i] != NULL; i++) {
        const size_t n = strlen(words[i]);
        if (strncasecmp(text, words[i], n) == 0 && strchr(" :=", text[n]) != NULL && text[n] != 0)
            return text + n + strspn(text + n, " :=~");
    }
    return text + strspn(text, " ");
}

/* Ends a text before a last word such as "peak" or "median", and before the mark of a footnote: "65
 * GB peak", "1.2 s*". */
static void without_words(char *text)
{
    static const char *const words[] = {"peak", "max", "alloc", "allocated", "reserved",
                                        "used", "avg", "mean",  "median",    NULL};
    size_t n = strlen(text);
    while (n > 0 && strchr("* ", text[n - 1]) != NULL) text[--n] = 0;
    for (size_t i = 0; words[i] != NULL; i++) {
        const size_t own = strlen(words[i]);
        if (n <= own + 1 || text[n - own - 1] != ' ' || strcasecmp(text + n - own, words[i]) != 0)
            continue;
        for (n -= own; n > 0 && text[n - 1] == ' '; n--) {
        }
        text[n] = 0;
        return;
    }
}

void cell_without_remark(char *text)
{
    char *spread = strstr(text, "+/-");
    if (spread == NULL) spread = strstr(text, "\302\261"); /* the sign for plus or minus */
    if (spread != NULL && spread > text) *spread = 0;
    size_t n = strlen(text);
    char *open = strrchr(text, '(');
    if (open != NULL && open > text && n > 0 && text[n - 1] == ')') *open = 0;
    for (n = strlen(text); n > 0 && text[n - 1] == ' '; n--) text[n - 1] = 0;
    without_words(text);
}

/* Removes the device's memory from a part of it: "71 / 80 GB" and "71 GB / 80 GB" become "71 GB".
 */
static void without_whole(char *text)
{
    char *slash = strchr(text, '/'), *of = strstr(text, " of ");
    if (slash == NULL && of != NULL) { /* "71 GB of 80" */
        memmove(of + 2, of + 4, strlen(of + 4) + 1);
        slash = of + 1;
        *slash = '/';
    }
    if (slash == NULL) return;
    const char *whole = slash + 1 + strspn(slash + 1, " ");
    const size_t n = strspn(whole, "0123456789.");
    char *end = slash;
    while (end > text && end[-1] == ' ') end--;
    const bool has_unit = end > text && isalpha((unsigned char)end[-1]);
    if (n > 0 && has_unit) *end = 0;
    if (n > 0 && !has_unit) memmove(slash, whole + n, strlen(whole + n) + 1);
}

double cell_middle(double value, const char **end)
{
    const char *at = *end;
    const size_t dash = *at == '-' ? 1 : strncmp(at, "\342\200\223", 3) == 0 ? 3 : 0;
    if (dash == 0) return value;
    const double other = csv_decimal(at + dash + strspn(at + dash, " "), end);
    while (**end == ' ') (*end)++;
    return other >= value && other <= 1.1 * value ? (value + other) / 2 : NAN;
}

double cell_quantity(const Csv *csv, uint32_t row, const char *column)
{
    static const CellUnit times[] = {{"", 1},      {"s", 1},       {"sec", 1},
                                     {"secs", 1},  {"second", 1},  {"seconds", 1},
                                     {"ms", 1e-3}, {"msec", 1e-3}, {"milliseconds", 1e-3},
                                     {"min", 60},  {NULL, 0}};
    static const CellUnit sizes[] = {
        {"", 1},           {"GiB", 1},         {"GB", 1},      {"Gi", 1},
        {"gigabytes", 1},  {"G", 1},           {"TB", 1e3},    {"MiB", 1 / 1024.},
        {"MB", 1 / 1024.}, {"bytes", 1 / GIB}, {"B", 1 / GIB}, {NULL, 0}};
    char cell[64];
    csv_plain(csv_cell(csv, row, column), cell, sizeof cell);
    cell_without_remark(cell);
    const bool is_time = strcmp(column, "step_time_s") == 0;
    if (!is_time) without_whole(cell);
    const char *text = cell_behind_words(cell), *end;
    double value = csv_decimal(text, &end);
    if (isnan(value)) return NAN;
    while (*end == ' ') end++;
    value = cell_middle(value, &end);
    if (is_time && is_rate(end)) return value > 0 ? 1 / value : NAN;
    for (const CellUnit *u = is_time ? times : sizes; u->name != NULL; u++)
        if (is_unit(end, u->name)) return value * u->factor;
    return NAN;
}
