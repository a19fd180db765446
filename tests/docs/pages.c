/* The list of pages, and the pages that are made from the command's own tables. */
#include "tests/docs/pages.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

const Page pages[] = {
    {"docs/reference/command.md", page_command}, {"docs/reference/plan.md", page_plan},
    {"docs/reference/lua.md", page_lua},         {"docs/reference/sweep.md", page_sweep},
    {"docs/reference/rules.md", page_rules},     {"docs/reference/store.md", page_store},
    {"docs/reference/json.md", page_json},       {"docs/reference/plan-text.md", page_plan_text},
    {"docs/tandem.svg", page_picture},
};
const uint32_t n_pages = sizeof pages / sizeof pages[0];

const DocumentRow document_rows[] = {
#define KEYS(verbs, keys, text) {verbs, keys, text},
#include "cli/documents.def"
#undef KEYS
};
const uint32_t n_document_rows = sizeof document_rows / sizeof document_rows[0];

enum { WIDTH = 100 };

Str page_begin(Arena *arena, const char *title, const char *source)
{
    Str out = str_in(arena);
    str_print(&out, "<!-- Written by `make docs` from %s. -->\n# %s\n\n", source, title);
    return out;
}

void page_text(Str *out, const char *text)
{
    size_t column = 0;
    while (*text != 0) {
        size_t n = strcspn(text, " \n");
        if (column > 0 && column + 1 + n > WIDTH) {
            str_add(out, "\n");
            column = 0;
        }
        str_print(out, "%s%.*s", column > 0 ? " " : "", (int)n, text);
        column += n + (column > 0);
        text += n;
        text += strspn(text, " \n");
    }
    str_add(out, "\n");
}

const char *page_cell(Arena *arena, const char *text)
{
    Str out = str_in(arena);
    for (; *text != 0; text++) str_print(&out, *text == '|' ? "\\|" : "%c", *text);
    return str_text(&out);
}

const char *page_names(Arena *arena, const char *names)
{
    Str out = str_in(arena);
    for (const char *at = names; *at != 0;) {
        size_t n = strcspn(at, " ");
        str_print(&out, "%s`%.*s`", at == names ? "" : " ", (int)n, at);
        at += n + strspn(at + n, " ");
    }
    return str_text(&out);
}

bool page_has_word(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = words; *at != 0;) {
        size_t n = strcspn(at, " ");
        if (n == length && strncmp(at, word, n) == 0) return true;
        at += n + strspn(at + n, " ");
    }
    return false;
}

static void add_option(Str *out, const Option *option)
{
    str_add(out, "| ");
    if (option->letter != 0) str_print(out, "`-%c`, ", option->letter);
    str_print(out, "`--%s", option->name);
    if (option->kind == OPTION_maybe)
        str_print(out, "[=%s]", page_cell(out->arena, option->value));
    else if (option->value != NULL)
        str_print(out, " %s", page_cell(out->arena, option->value));
    str_print(out, "` | %s |\n", page_cell(out->arena, option->help));
}

/* Writes the options of a verb. groups = 0: the options that every verb has. */
static void add_options(Str *out, uint32_t groups)
{
    bool any = false;
    for (uint32_t i = 0; i < options_count; i++) {
        const Option *option = &options_list[i];
        if (groups == 0 ? option->groups != 0 : (option->groups & groups) == 0) continue;
        if (!any) str_add(out, "| option | meaning |\n|---|---|\n");
        any = true;
        add_option(out, option);
    }
    if (any) str_add(out, "\n");
}

const char *page_command(Arena *arena)
{
    Str out = page_begin(arena, "The command", "cli/verbs.c, cli/options.c and cli/help.c");
    page_text(&out,
              "`tandem VERB [arguments] [options]`. `tandem VERB --help` prints the same. Each "
              "verb also takes the [options of every verb](#options-of-every-verb).");
    str_add(&out, "\n| verb | task |\n|---|---|\n");
    for (uint32_t i = 0; i < n_verbs; i++) {
        const Verb *v = &verbs[i];
        str_print(&out, "| [`%s%s%s`](#%s) | %s |\n", v->name, v->arguments[0] ? " " : "",
                  page_cell(arena, v->arguments), v->name, v->summary);
    }
    str_add(&out, "\n");
    for (uint32_t i = 0; i < n_verbs; i++) {
        const Verb *v = &verbs[i];
        str_print(&out, "## %s\n\n```\n%s\n```\n\n", v->name, v->example);
        str_print(&out, "%s.\n", v->summary);
        if (v->about[0] != 0) page_text(&out, v->about);
        str_add(&out, "\n");
        const uint32_t own = v->options & ~(uint32_t)NEEDS_STORE;
        if (own != 0) add_options(&out, own);
    }
    str_add(&out, "## Options of every verb\n\n");
    add_options(&out, 0);
    for (uint32_t i = 0; help_topics[i] != NULL; i++) {
        str_print(&out, "## %s\n\n```\n", help_topics[i]);
        help_topic(help_topics[i], &out);
        str_add(&out, "```\n\n");
    }
    return str_text(&out);
}

static int by_id(const void *a, const void *b)
{
    return strcmp((*(const Rule *const *)a)->id, (*(const Rule *const *)b)->id);
}

const char *page_rules(Arena *arena)
{
    Str out = page_begin(arena, "Rules", "cli/rules/rules.def");
    page_text(&out, "Every diagnostic names its rule: `error[divides-heads]`. "
                    "`tandem explain divides-heads` prints the same text.");
    const Rule **sorted = arena_array(arena, n_rules, sizeof *sorted);
    for (uint32_t i = 0; i < n_rules; i++) sorted[i] = &rules[i];
    qsort(sorted, n_rules, sizeof *sorted, by_id);
    for (uint32_t i = 0; i < n_rules; i++) {
        const Rule *r = sorted[i];
        str_print(&out, "\n## %s\n\n", r->id);
        page_text(&out, r->text);
        if (r->reason[0] != 0)
            str_add(&out, "\n"), page_text(&out, arena_print(arena, "**Why:** %s", r->reason));
        if (r->bug[0] != 0)
            str_add(&out, "\n"),
                page_text(&out, arena_print(arena, "**Without the rule:** %s", r->bug));
        str_add(&out, "\n");
        page_text(&out, arena_print(arena, "**Fix:** %s", r->fix));
    }
    return str_text(&out);
}

const char *page_json(Arena *arena)
{
    Str out = page_begin(arena, "JSON documents", "cli/documents.def");
    page_text(&out,
              "With `--json` a verb prints one document to standard output. Its `schema` is "
              "`tandem.VERB/1`. A change of the keys raises the number. Keys of times end in `_ps` "
              "(picoseconds), keys of sizes in `_bytes`. A key with `{}` holds an object whose own "
              "keys are data, such as the names of axes.");
    str_add(&out,
            "\n| keys of every document | |\n|---|---|\n"
            "| `schema` `version` | the kind of document, and the version of the command |\n"
            "| `ok` `exit_code` | whether the command succeeded |\n"
            "| `diagnostics` | a list of `severity`, `rule`, `file`, `line`, `text` and `hint`. "
            "`library`: \"file:line\" in a script of Tandem's library; only if an error of the "
            "user's script was found there |\n\n");
    page_text(&out, "A verb that does not exist prints `tandem.error/1`, which has only these "
                    "keys.");
    for (uint32_t v = 0; v < n_verbs; v++) {
        bool any = false;
        for (uint32_t i = 0; i < n_document_rows; i++) {
            const DocumentRow *row = &document_rows[i];
            if (!page_has_word(row->verbs, verbs[v].name)) continue;
            if (!any)
                str_print(&out, "\n## tandem.%s/1\n\n| keys | meaning |\n|---|---|\n",
                          verbs[v].name);
            any = true;
            str_print(&out, "| %s | %s |\n", page_names(arena, row->keys),
                      page_cell(arena, row->text));
        }
    }
    return str_text(&out);
}
