/* The pages of docs/reference and the figure of the README, which are generated from tables of the
 * code. `make docs` writes them; test_reference compares them with the committed files. */
#ifndef TANDEM_TESTS_DOCS_PAGES_H
#define TANDEM_TESTS_DOCS_PAGES_H

#include "planner/base/str.h"

typedef struct Page {
    const char *path; /* relative to the source tree */
    const char *(*make)(Arena *arena);
} Page;
extern const Page pages[];
extern const uint32_t n_pages;

const char *page_command(Arena *arena);
const char *page_rules(Arena *arena);
const char *page_json(Arena *arena);
const char *page_plan(Arena *arena);
const char *page_store(Arena *arena);
const char *page_plan_text(Arena *arena);
const char *page_lua(Arena *arena);
const char *page_sweep(Arena *arena);
const char *page_picture(Arena *arena);

/* Writes the first lines of a page: its title, and where it comes from. */
Str page_begin(Arena *arena, const char *title, const char *source);
/* Writes text, wrapped at 100 columns. */
void page_text(Str *out, const char *text);
/* Escapes `|` in the text of a table cell, where it would end the cell. */
const char *page_cell(Arena *arena, const char *text);
/* Turns names that are separated by spaces into `a`, `b`. */
const char *page_names(Arena *arena, const char *names);

/* One row of cli/documents.def or of store/columns.def. */
typedef struct DocumentRow {
    const char *verbs, *keys, *text;
} DocumentRow;
extern const DocumentRow document_rows[];
extern const uint32_t n_document_rows;
typedef struct ColumnRow {
    const char *table, *columns, *text; /* columns NULL: the text describes the table itself */
} ColumnRow;
extern const ColumnRow column_rows[];
extern const uint32_t n_column_rows;
/* Returns true if `word` is one of the words of `words`. */
bool page_has_word(const char *words, const char *word);

#endif
