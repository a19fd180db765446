/* Reads the text that nccl-tests prints. A row has bytes, count, type, operation and root. The
 * next columns are time in us, algbw, busbw and errors, once out of place and once in place.
 * The header line shows which columns exist: all_gather, for example, has no operation, and
 * sendrecv no root. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/import/import.h"

enum { MOST_LINE = 4096, MOST_WORDS = 24 };

typedef struct TableHeader {
    /* indices of columns; -1: the table does not have the column */
    int32_t type, first_time, second_time;
    uint32_t n;
} TableHeader;

static uint32_t words_of(char *line, char **word)
{
    uint32_t n = 0;
    for (char *p = line; n < MOST_WORDS;) {
        while (isspace((unsigned char)*p)) p++;
        if (*p == 0) break;
        word[n++] = p;
        while (*p != 0 && !isspace((unsigned char)*p)) p++;
        if (*p != 0) *p++ = 0;
    }
    return n;
}

/* Reads the line "# size count type redop root time algbw busbw #wrong time ...". */
static bool read_header(char *line, TableHeader *header)
{
    char *word[MOST_WORDS];
    uint32_t n = words_of(line + 1, word);
    if (n < 6 || strcmp(word[0], "size") != 0 || strcmp(word[1], "count") != 0) return false;
    *header = (TableHeader){-1, -1, -1, n};
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(word[i], "type") == 0) header->type = (int32_t)i;
        if (strcmp(word[i], "time") != 0) continue;
        if (header->first_time < 0)
            header->first_time = (int32_t)i;
        else
            header->second_time = (int32_t)i;
    }
    return header->first_time > 0;
}

static bool number(const char *text, double *value)
{
    char *end = NULL;
    *value = strtod(text, &end);
    return end != text && *end == 0 && isfinite(*value) && *value >= 0;
}

/* Reads a time. Some versions print "N/A" if a time was not measured. */
static bool read_time(const char *text, double *us)
{
    if (strcmp(text, "N/A") != 0) return number(text, us);
    *us = 0;
    return true;
}

static bool read_row(char *line, const TableHeader *header, NcclTestRow *row)
{
    char *word[MOST_WORDS];
    double bytes;
    *row = (NcclTestRow){0};
    if (words_of(line, word) != header->n) return false;
    if (!number(word[0], &bytes) || bytes > 0x1p60 || !number(word[1], &row->count)) return false;
    row->bytes = (uint64_t)bytes;
    if (header->type >= 0) snprintf(row->type, sizeof row->type, "%.15s", word[header->type]);
    if (!read_time(word[header->first_time], &row->us)) return false;
    return header->second_time < 0 || read_time(word[header->second_time], &row->in_place_us);
}

/* Finds the name of a collective in a line, such as "all_reduce_perf" in a command or in
 * "Collective test starting: all_reduce_perf". */
static void find_kind(const char *line, NcclTestText *out)
{
    for (Collective kind = 0; kind < COLLECTIVE_COUNT && !out->known; kind++) {
        char name[32];
        snprintf(name, sizeof name, "%s_perf", collective_name(kind));
        if (kind == COLLECTIVE_all_to_all) snprintf(name, sizeof name, "alltoall_perf");
        const char *at = strstr(line, name);
        /* not a match inside a longer name: "all_reduce_perf" contains "reduce_perf" */
        if (at == NULL || (at > line && (isalnum((unsigned char)at[-1]) || at[-1] == '_')))
            continue;
        out->kind = kind;
        out->known = true;
    }
}

static bool read_line(const char *path, uint32_t number_of, char *line, TableHeader *header,
                      NcclTestText *out, Arena *arena, Diag *d)
{
    find_kind(line, out);
    const char *start = line + strspn(line, " \t");
    if (*start == '#') {
        TableHeader found;
        if (strncmp(start, "#  Rank ", 8) == 0 || strncmp(start, "# Rank ", 7) == 0) out->n_ranks++;
        if (read_header(line + (start - line), &found)) *header = found;
        return true;
    }
    /* the line comes from the log of NCCL or MPI */
    if (!isdigit((unsigned char)*start) || header->n == 0) return true;
    NcclTestRow row;
    if (!read_row(line, header, &row))
        return diag_error(
            d, FAULT_input, "import-syntax", (Loc){path, number_of},
            "a row of nccl-tests has %u columns of numbers here, which is not a known number",
            header->n);
    list_push(arena, &out->rows, row);
    return true;
}

bool nccl_tests_read(const char *path, Arena *arena, NcclTestText *out, Diag *d)
{
    *out = (NcclTestText){0};
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return diag_error(d, FAULT_input, "import-open", (Loc){path, 0},
                          "the file cannot be opened: %s", strerror(errno));
    char line[MOST_LINE];
    TableHeader header = {0};
    /* whole: the last line read was complete, so the next one begins a new line */
    bool fine = true, whole = true;
    uint32_t n = 1;
    while (fine && fgets(line, sizeof line, file) != NULL) {
        bool ends = strchr(line, '\n') != NULL;
        if (whole) fine = read_line(path, n, line, &header, out, arena, d);
        whole = ends;
        n += ends;
    }
    fclose(file);
    if (!fine || out->rows.n > 0) return fine;
    diag_error(d, FAULT_input, "import-format", (Loc){path, 0},
               "the file has no table of nccl-tests, which begins with a line \"# size count type "
               "... time");
    diag_hint(d, "`import` also reads SQLite exports of nsys, and Chrome traces (JSON) of PyTorch");
    return false;
}
