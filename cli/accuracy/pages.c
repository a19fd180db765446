/* Adds facts that belong in a column of the table. A page states such a fact once for all its rows,
 * or a cell states it in words. scripts/tandem/published/pages.csv lists these facts:
 *
 *   table   the section that reads the rows: runs, kernels, comm
 *   where   conditions, separated by " & ": column~text (the cell contains it), column=text (it is
 *           the whole cell); upper and lower case count as equal
 *   column, value   the column and the value that each such row gets if its cell is empty
 *   kind, from      where the fact comes from (docs/reference/constants.md) */
#include <ctype.h>
#include <string.h>

#include "cli/accuracy/accuracy.h"
#include "planner/front/front.h"

static bool begins(const char *text, const char *word, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (tolower((unsigned char)text[i]) != tolower((unsigned char)word[i])) return false;
    return true;
}

static bool contains(const char *text, const char *word, size_t n)
{
    for (size_t left = strlen(text); left >= n; left--, text++)
        if (begins(text, word, n)) return true;
    return false;
}

static bool agrees(const Csv *csv, uint32_t row, const char *where, Arena *arena)
{
    for (;;) {
        const size_t name = strcspn(where, "~="), n = strcspn(where, "&");
        if (where[name] == 0 || name >= n) return false; /* this part is not a condition */
        const char *cell = csv_cell(csv, row, arena_copy(arena, where, name));
        const char *text = where + name + 1;
        size_t length = n - name - 1;
        while (where[n] != 0 && length > 0 && text[length - 1] == ' ') length--;
        if (where[name] == '=' ? strlen(cell) != length || !begins(cell, text, length)
                               : !contains(cell, text, length))
            return false;
        if (where[n] == 0) return true;
        where += n + 1;
        where += strspn(where, " ");
    }
}

static bool has_column(const Csv *csv, const char *name)
{
    for (uint32_t i = 0; i < csv->columns.n; i++)
        if (strcmp(csv->columns.at[i], name) == 0) return true;
    return false;
}

/* Adds a column whose cells are all empty. */
static void add_column(Csv *csv, const char *name, Arena *arena)
{
    Csv wide = {.path = csv->path, .n_rows = csv->n_rows};
    for (uint32_t i = 0; i < csv->columns.n; i++)
        list_push(arena, &wide.columns, csv->columns.at[i]);
    list_push(arena, &wide.columns, name);
    for (uint32_t row = 0; row < csv->n_rows; row++) {
        for (uint32_t i = 0; i < csv->columns.n; i++)
            list_push(arena, &wide.cells, csv->cells.at[(size_t)row * csv->columns.n + i]);
        list_push(arena, &wide.cells, "");
    }
    *csv = wide;
}

static void fill(Csv *csv, const Csv *pages, uint32_t page, Arena *arena)
{
    const char *where = csv_cell(pages, page, "where"), *name = csv_cell(pages, page, "column");
    for (uint32_t row = 0; row < csv->n_rows; row++) {
        if (csv_cell(csv, row, name)[0] != 0 || !agrees(csv, row, where, arena)) continue;
        if (!has_column(csv, name)) add_column(csv, name, arena);
        uint32_t at = 0;
        while (strcmp(csv->columns.at[at], name) != 0) at++;
        csv->cells.at[(size_t)row * csv->columns.n + at] = csv_cell(pages, page, "value");
    }
}

bool csv_add_pages(Csv *csv, const char *table, Arena *arena, Diag *d)
{
    static const char *const columns[] = {"table", "where", "column", "value", NULL};
    const char *path = arena_print(arena, "%s/tandem/published/pages.csv", front_scripts_dir());
    Csv pages;
    csv_empty_open(csv);
    if (!csv_read(path, arena, &pages, d) || !csv_needs(&pages, columns, d)) return false;
    for (uint32_t i = 0; i < pages.n_rows; i++)
        if (strcmp(csv_cell(&pages, i, "table"), table) == 0) fill(csv, &pages, i, arena);
    return true;
}
