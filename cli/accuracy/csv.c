/* Reads comma-separated tables as spreadsheets write them. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/accuracy/accuracy.h"
#include "planner/base/plural.h"

enum { MOST_CSV_BYTES = 64 << 20, MOST_COLUMNS = 256 };

static bool slurp(const char *path, Str *out, Diag *d)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return diag_error(d, FAULT_input, "csv-open", (Loc){path, 0},
                          "the file cannot be opened: %s", strerror(errno));
    char block[65536];
    size_t n = 0;
    while (out->n <= MOST_CSV_BYTES && (n = fread(block, 1, sizeof block, file)) > 0)
        str_add_bytes(out, block, n);
    bool fine = !ferror(file) && out->n <= MOST_CSV_BYTES;
    fclose(file);
    if (fine) return true;
    return diag_error(d, FAULT_input, "csv-open", (Loc){path, 0},
                      "the file cannot be read, or is longer than %d MiB", MOST_CSV_BYTES >> 20);
}

/* Reads one field from *at on, and moves *at to the comma, line end or end of text that follows.
 * Returns NULL if a quote is not closed, or if other text follows a closing quote. */
static const char *field(const char **at, uint32_t *line, Arena *arena)
{
    const char *p = *at;
    if (*p != '"') {
        size_t n = strcspn(p, ",\r\n");
        *at = p + n;
        return arena_copy(arena, p, n);
    }
    Str text = str_in(arena);
    for (p++; *p != 0; p++) {
        if (*p == '"' && p[1] != '"') break;
        if (*p == '"') p++;
        if (*p == '\n') (*line)++;
        str_add_bytes(&text, p, 1);
    }
    if (*p != '"' || (p[1] != 0 && strchr(",\r\n", p[1]) == NULL)) return NULL;
    *at = p + 1;
    return str_text(&text);
}

/* Reads one line. Its fields are the names of the columns (first line) or cells (other lines). */
static bool record(const char **at, uint32_t *line, Arena *arena, Csv *csv, Diag *d)
{
    uint32_t begin = *line, n = 0;
    bool heads = csv->columns.n == 0;
    for (;;) {
        const char *text = field(at, line, arena);
        if (text == NULL || n == MOST_COLUMNS)
            return diag_error(d, FAULT_input, "csv-syntax", (Loc){csv->path, begin},
                              text == NULL ? "a quoted field is not closed"
                                           : "more fields than columns can have");
        if (heads)
            list_push(arena, &csv->columns, text);
        else
            list_push(arena, &csv->cells, text);
        n++;
        if (**at != ',') break;
        (*at)++;
    }
    if (**at == '\r') (*at)++;
    if (**at == '\n') (*at)++;
    (*line)++;
    if (n != csv->columns.n)
        return diag_error(d, FAULT_input, "csv-syntax", (Loc){csv->path, begin},
                          "the line has %u field%s, but the table has %u column%s", n, str_s(n),
                          csv->columns.n, str_s(csv->columns.n));
    if (!heads) csv->n_rows++;
    return true;
}

bool csv_read(const char *path, Arena *arena, Csv *csv, Diag *d)
{
    memset(csv, 0, sizeof *csv);
    csv->path = arena_dup(arena, path);
    Str text = str_in(arena);
    if (!slurp(path, &text, d)) return false;
    const char *at = str_text(&text);
    uint32_t line = 1;
    if (strlen(at) != text.n || text.n == 0)
        return diag_error(d, FAULT_input, "csv-syntax", (Loc){path, 0},
                          "the file is not a table of text");
    while (*at != 0)
        if (!record(&at, &line, arena, csv, d)) return false;
    return true;
}

static uint32_t find_column(const Csv *csv, const char *name)
{
    for (uint32_t i = 0; i < csv->columns.n; i++)
        if (strcmp(csv->columns.at[i], name) == 0) return i;
    return UINT32_MAX;
}

bool csv_needs(const Csv *csv, const char *const *names, Diag *d)
{
    bool fine = true;
    for (uint32_t i = 0; names[i] != NULL; i++) {
        if (find_column(csv, names[i]) != UINT32_MAX) continue;
        fine = diag_error(d, FAULT_input, "csv-column", (Loc){csv->path, 1},
                          "the table has no column '%s'", names[i]);
        const char *near = str_nearest(names[i], csv->columns.at, csv->columns.n);
        if (near != NULL) diag_hint(d, "if column '%s' is meant, change its name", near);
    }
    return fine;
}

const char *csv_cell(const Csv *csv, uint32_t row, const char *column)
{
    uint32_t i = find_column(csv, column);
    return i == UINT32_MAX ? "" : csv->cells.at[(size_t)row * csv->columns.n + i];
}

double csv_decimal(const char *text, const char **end)
{
    char *after;
    const double value = strtod(text, &after);
    *end = after;
    if (after == text || !isfinite(value)) return NAN;
    return strspn(text, "0123456789.eE+-") < (size_t)(after - text) ? NAN : value;
}

double csv_number(const Csv *csv, uint32_t row, const char *column)
{
    const char *end;
    const double value = csv_decimal(csv_cell(csv, row, column), &end);
    return *end != 0 ? NAN : value;
}

void csv_plain(const char *cell, char *to, size_t most)
{
    size_t n = 0, group = 0; /* group: where the newest group of digits begins in `to` */
    bool again = false;      /* a mark before this group of digits was left out */
    bool bare = true;        /* only digits and such marks so far */
    for (size_t i = 0; cell[i] != 0 && n + 1 < most; i++) {
        const char c = cell[i];
        const bool mark = c == ',' || c == '\'' || (c == ' ' && bare);
        const size_t length = n - group;
        const bool leads =
            length > 0 && length <= 3 && to[group] != '0' && (group == 0 || to[group - 1] != '.');
        if (mark && (again ? length == 3 : leads) && strspn(cell + i + 1, "0123456789") == 3) {
            group = n;
            again = true;
            continue;
        }
        to[n++] = c;
        if (c >= '0' && c <= '9') continue;
        group = n;
        again = bare = false;
    }
    to[n] = 0;
}

/* Returns true if the cell says in words that the source does not give this value. If `remark` is
 * true, a cell in which other text follows these words states something, so it does not count. */
static bool is_open(const char *cell, bool remark)
{
    static const char *const whole[] = {"",
                                        "-",
                                        "?",
                                        "nan",
                                        "null",
                                        "na",
                                        "n.a.",
                                        "tbd",
                                        "--",
                                        "\342\200\223" /* en dash */,
                                        "\342\200\224" /* em dash */};
    static const char *const begins[] = {
        "n/a",           "not stated",   "unknown",       "unstated",   "not specified",
        "unspecified",   "not given",    "not reported",  "unreported", "undisclosed",
        "not disclosed", "not measured", "not published", "see "};
    static const char blanks[] = " \t\r\n";
    const char *text = cell + strspn(cell, blanks);
    size_t n = strlen(text);
    while (n > 0 && strchr(blanks, text[n - 1]) != NULL) n--;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (strlen(whole[i]) == n && strncasecmp(text, whole[i], n) == 0) return true;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncasecmp(text, begins[i], strlen(begins[i])) == 0 &&
            (!remark || n == strlen(begins[i])))
            return true;
    return false;
}

void csv_empty_open(Csv *csv)
{
    static const char *const remarks[] = {"missing", "flag", "notes"};
    for (uint32_t i = 0; i < csv->cells.n; i++) {
        bool remark = false;
        for (size_t k = 0; k < sizeof remarks / sizeof *remarks; k++)
            remark |= strcmp(csv->columns.at[i % csv->columns.n], remarks[k]) == 0;
        if (is_open(csv->cells.at[i], remark)) csv->cells.at[i] = "";
    }
}
