/* Prints results and diagnostics: colours, tables, numbers, JSON. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

bool color_wanted(const Cli *cli, int fd)
{
    const char *when = cli->options.color;
    if (when != NULL && strcmp(when, "always") == 0) return true;
    if (when != NULL && strcmp(when, "never") == 0) return false;
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    if (no != NULL && no[0] != 0) return false;
    return isatty(fd) && term != NULL && strcmp(term, "dumb") != 0;
}

static const char *paint_code(Paint paint)
{
    switch (paint) {
    case PAINT_none: return "0";
    case PAINT_good: return "32";
    case PAINT_bad: return "31";
    case PAINT_warn: return "33";
    case PAINT_strong: return "1";
    }
    assert(0 && "a paint");
    return "0";
}

const char *paint(const Cli *cli, Paint color, const char *text)
{
    if (!cli->color || color == PAINT_none) return text;
    return arena_print(cli->arena, "\033[%sm%s\033[0m", paint_code(color), text);
}

bool cli_error(Cli *cli, Fault fault, const char *rule, const char *format, ...)
{
    Str text = str_in(cli->arena);
    va_list args;
    va_start(args, format);
    str_vprint(&text, format, args);
    va_end(args);
    return diag_error(&cli->diag, fault, rule, (Loc){NULL, 0}, "%s", str_text(&text));
}

void cli_forget_diagnostics(Cli *cli)
{
    if (cli->exit_code == 0) cli->exit_code = diag_exit_code(&cli->diag);
    cli->diag = diag_in(cli->arena);
}

/* Appends the diagnostics so far to the list in the JSON document. */
static void add_diagnostics(Cli *cli)
{
    Str text = str_in(cli->arena);
    diag_json(&cli->diag, &text);
    json_error_t error;
    json_t *more = json_loads(str_text(&text), 0, &error);
    assert(more != NULL);
    json_t *list = json_object_get(cli->json, "diagnostics");
    if (list == NULL) {
        json_object_set_new(cli->json, "diagnostics", more);
        return;
    }
    json_array_extend(list, more);
    json_decref(more);
}

void cli_flush_diagnostics(Cli *cli)
{
    if (cli->json != NULL) add_diagnostics(cli);
    Diag shown = cli->diag;
    if (cli->options.quiet) {
        shown = diag_in(cli->arena);
        for (uint32_t i = 0; i < cli->diag.items.n; i++)
            if (cli->diag.items.at[i].severity == SEVERITY_error)
                list_push(cli->arena, &shown.items, cli->diag.items.at[i]);
    }
    Str text = str_in(cli->arena);
    diag_print(&shown, &text);
    fputs(str_text(&text), stderr);
    fflush(stderr);
    cli_forget_diagnostics(cli);
}

int cli_finish(Cli *cli)
{
    int code = diag_exit_code(&cli->diag);
    if (cli->exit_code != 0) code = cli->exit_code;
    if (cli->json != NULL) {
        json_put(cli->json, "ok", json_boolean(code == 0));
        json_put(cli->json, "exit_code", json_integer(code));
    }
    cli_flush_diagnostics(cli);
    int failed = 0;
    errno = 0;
    if (cli->json != NULL) {
        failed = json_dumpf(cli->json, stdout, JSON_INDENT(2)) != 0 || putchar('\n') == EOF;
        json_decref(cli->json);
        cli->json = NULL;
    } else if (cli->out.n > 0) {
        failed = fwrite(cli->out.at, 1, cli->out.n, stdout) != cli->out.n;
    }
    /* only this last write shows whether the disk is full or the pipe was closed */
    if (fflush(stdout) != 0 || ferror(stdout)) failed = 1;
    /* the reader has closed the pipe because it needs no more lines, as `| head` does */
    bool left = failed && errno == EPIPE;
    if (failed && !left && code == 0) {
        fputs("error[output]: cannot write to standard output\n", stderr);
        code = 1;
    }
    return code;
}

/* Returns the path to which a file's bytes are first written. Usually this is a temporary file in
 * the same folder. If `path` is a device, a pipe or a link, it is `path` itself, and *in_place is
 * set. */
static const char *part_of(Cli *cli, const char *path, bool *in_place)
{
    struct stat there;
    *in_place = lstat(path, &there) == 0 && !S_ISREG(there.st_mode);
    return *in_place ? path : arena_print(cli->arena, "%s.tmp.%ld", path, (long)getpid());
}

const char *cli_write_fault(Cli *cli, const char *path)
{
    bool in_place = false;
    const char *part = part_of(cli, path, &in_place);
    FILE *file = fopen(part, in_place ? "ab" : "wbx");
    if (file == NULL) return strerror(errno);
    fclose(file);
    if (!in_place) remove(part);
    return NULL;
}

bool cli_write_file(Cli *cli, const char *path, const void *bytes, size_t n)
{
    bool in_place = false;
    const char *part = part_of(cli, path, &in_place);
    FILE *file = fopen(part, in_place ? "wb" : "wbx");
    bool fine = file != NULL && fwrite(bytes, 1, n, file) == n && fflush(file) == 0;
    if (fine && !in_place) fine = fsync(fileno(file)) == 0;
    int error = errno;
    if (file != NULL && fclose(file) != 0 && fine) fine = false, error = errno;
    if (fine && !in_place && rename(part, path) != 0) fine = false, error = errno;
    if (fine) return true;
    if (file != NULL && !in_place) remove(part);
    return cli_error(cli, FAULT_internal, "output", "cannot write %s: %s", path, strerror(error));
}

void json_put(json_t *object, const char *key, json_t *value)
{
    int failed = json_object_set_new(object, key, value);
    assert(failed == 0); /* it fails only if a value is NULL, because its text is not UTF-8 */
    (void)failed;
}

void json_text(json_t *object, const char *key, const char *value)
{
    Arena *arena = NULL;
    json_t *text = value == NULL ? json_null() : json_string(value);
    if (text == NULL) { /* a path may contain bytes that are not UTF-8; JSON may not */
        arena = arena_new();
        text = json_string(str_readable(arena, value, SIZE_MAX));
    }
    json_put(object, key, text);
    if (arena != NULL) arena_free(arena);
}

void json_count(json_t *object, const char *key, uint64_t value)
{
    json_put(object, key, json_integer((json_int_t)value));
}

void json_number(json_t *object, const char *key, double value)
{
    json_put(object, key, isfinite(value) ? json_real(value) : json_null());
}

static void put_loc(json_t *row, const char *file, const char *line, Loc loc)
{
    if (loc.file == NULL) return;
    json_text(row, file, loc.file);
    json_count(row, line, loc.line);
}

json_t *diagnostic_json(const Diagnostic *item)
{
    json_t *row = json_object();
    json_count(row, "severity", item->severity);
    json_count(row, "fault", item->fault);
    json_text(row, "rule", item->rule);
    json_text(row, "text", item->text);
    if (item->hint != NULL) json_text(row, "hint", item->hint);
    put_loc(row, "file", "line", item->loc);
    put_loc(row, "library", "library_line", item->library);
    return row;
}

static const char *text_of(const json_t *row, const char *key, Arena *arena)
{
    const char *text = json_string_value(json_object_get(row, key));
    return text != NULL ? arena_dup(arena, text) : NULL;
}

static Loc loc_of(const json_t *row, const char *file, const char *line, Arena *arena)
{
    return (Loc){text_of(row, file, arena),
                 (uint32_t)json_integer_value(json_object_get(row, line))};
}

Diagnostic diagnostic_of(const json_t *row, Arena *arena)
{
    const json_int_t severity = json_integer_value(json_object_get(row, "severity"));
    const json_int_t fault = json_integer_value(json_object_get(row, "fault"));
    if (severity < 0 || severity > SEVERITY_note || fault < 0 || fault > FAULT_store)
        /* another program may have written this row, with a rule that does not exist */
        return (Diagnostic){.rule = NULL};
    return (Diagnostic){.severity = (Severity)severity,
                        .fault = (Fault)fault,
                        .rule = text_of(row, "rule", arena),
                        .loc = loc_of(row, "file", "line", arena),
                        .library = loc_of(row, "library", "library_line", arena),
                        .text = text_of(row, "text", arena),
                        .hint = text_of(row, "hint", arena)};
}

const char *format_time(Arena *arena, Ps ps)
{
    double s = (double)ps / (double)PS_PER_S;
    double size = fabs(s);
    if (size >= 100) return arena_print(arena, "%.1f s", s);
    if (size >= 1) return arena_print(arena, "%.3f s", s);
    if (size >= 0.1) return arena_print(arena, "%.1f ms", s * 1e3);
    if (size >= 1e-3) return arena_print(arena, "%.2f ms", s * 1e3);
    if (size >= 1e-6) return arena_print(arena, "%.2f us", s * 1e6);
    return arena_print(arena, "%.0f ns", s * 1e9);
}

const char *format_ratio(Arena *arena, double ratio)
{
    return isfinite(ratio) ? arena_print(arena, "%+.1f %%", (ratio - 1) * 100) : "-";
}

const char *format_error(Arena *arena, double predicted, double measured)
{
    return arena_print(arena, "error %s",
                       measured > 0 ? format_ratio(arena, predicted / measured) : "-");
}

Table table_in(Arena *arena, uint32_t n_columns, const char *const *heads)
{
    assert(n_columns > 0);
    Table t = {.arena = arena, .n_columns = n_columns, .heads = heads};
    return t;
}

void table_cell(Table *t, const char *format, ...)
{
    Str text = str_in(t->arena);
    va_list args;
    va_start(args, format);
    str_vprint(&text, format, args);
    va_end(args);
    list_push(t->arena, &t->cells, str_text(&text));
}

static void print_cell(const char *text, uint32_t width, bool right, bool last, Str *out)
{
    uint32_t n = (uint32_t)strlen(text);
    uint32_t gap = width > n ? width - n : 0;
    if (right) str_print(out, "%*s", (int)gap, "");
    str_add(out, text);
    if (!right && !last) str_print(out, "%*s", (int)gap, "");
    while (last && out->n > 0 && out->at[out->n - 1] == ' ')
        out->n--; /* leave out empty cells at the end of a row */
    str_add(out, last ? "\n" : "  ");
}

void table_print(const Table *t, Str *out)
{
    assert(t->cells.n % t->n_columns == 0);
    uint32_t *width = arena_array(t->arena, t->n_columns, sizeof *width);
    for (uint32_t i = 0; i < t->cells.n + t->n_columns; i++) {
        uint32_t column = i % t->n_columns;
        const char *head = t->heads[column] + (t->heads[column][0] == '>');
        size_t n = strlen(i < t->n_columns ? head : t->cells.at[i - t->n_columns]);
        if (n > width[column]) width[column] = (uint32_t)n;
    }
    for (uint32_t i = 0; i < t->cells.n + t->n_columns; i++) {
        uint32_t column = i % t->n_columns;
        bool right = t->heads[column][0] == '>';
        const char *text =
            i < t->n_columns ? t->heads[column] + right : t->cells.at[i - t->n_columns];
        if (column == 0) str_add(out, "  ");
        print_cell(text, width[column], right, column + 1 == t->n_columns, out);
    }
}

void help_line(Str *out, int width, const char *left, const char *text)
{
    str_print(out, "  %-*s", width, left);
    if (strlen(left) > (size_t)width) str_print(out, "\n  %-*s", width, "");
    str_print(out, " %s\n", text);
}

void cli_add_word(Str *out, const char *word)
{
    if (word[0] != 0 && word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789_-+=.,/:@%")] == 0) {
        str_add(out, word);
        return;
    }
    str_add(out, "'");
    for (; *word != 0; word++) str_print(out, *word == '\'' ? "'\\''" : "%c", *word);
    str_add(out, "'");
}
