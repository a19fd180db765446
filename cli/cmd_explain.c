/* tandem explain: prints the meaning of a rule, its reason, and how to satisfy it. The texts are
 * rows of rules.def. */
#include <string.h>

#include "cli/cli.h"

static const Rule rule_table[] = {
#define RULE(id, text, reason, bug, fix) {id, text, reason, fix, bug},
#include "cli/rules/rules.def"
};
const Rule *const rules = rule_table;
const uint32_t n_rules = sizeof rule_table / sizeof rule_table[0];

const Rule *rule_find(const char *id)
{
    for (uint32_t i = 0; i < n_rules; i++)
        if (strcmp(rules[i].id, id) == 0) return &rules[i];
    return NULL;
}

enum { WIDTH = 96 };

/* Appends the label, padded to 8 columns, and then the text. Wraps the text. */
static void add_paragraph(Str *out, const char *label, const char *text)
{
    str_print(out, "%-8s", label);
    size_t column = 8;
    while (*text != 0) {
        size_t n = strcspn(text, " ");
        if (column + 1 + n > WIDTH) {
            str_print(out, "\n%-8s", "");
            column = 8;
        }
        str_print(out, " %.*s", (int)n, text);
        column += 1 + n;
        text += n;
        text += strspn(text, " ");
    }
    str_add(out, "\n");
}

static void explain_json(json_t *object, const Rule *rule)
{
    json_text(object, "rule", rule->id);
    json_text(object, "text", rule->text);
    json_text(object, "reason", rule->reason);
    json_text(object, "silent_bug", rule->bug[0] != 0 ? rule->bug : NULL);
    json_text(object, "fix", rule->fix);
}

static void explain_all(Cli *cli)
{
    json_t *list = cli->json != NULL ? json_array() : NULL;
    for (uint32_t i = 0; i < n_rules; i++) {
        if (list != NULL) {
            json_t *one = json_object();
            explain_json(one, &rules[i]);
            json_array_append_new(list, one);
        }
        str_print(&cli->out, "%-26s %s\n", rules[i].id, rules[i].text);
    }
    if (list != NULL) json_put(cli->json, "rules", list);
}

void cmd_explain(Cli *cli)
{
    if (cli->n_args == 0) {
        explain_all(cli);
        return;
    }
    const Rule *rule = rule_find(cli->args[0]);
    if (rule == NULL) {
        const char **names = arena_array(cli->arena, n_rules, sizeof *names);
        for (uint32_t i = 0; i < n_rules; i++) names[i] = rules[i].id;
        const char *near = str_nearest(cli->args[0], names, n_rules);
        cli_error(cli, FAULT_usage, "unknown-rule", "there is no rule '%s'", cli->args[0]);
        if (near != NULL)
            diag_hint(&cli->diag, "did you mean '%s'?", near);
        else
            diag_hint(&cli->diag, "`tandem explain` lists all rules");
        return;
    }
    if (cli->json != NULL) explain_json(cli->json, rule);
    Str *out = &cli->out;
    str_print(out, "%s\n", paint(cli, PAINT_strong, rule->id));
    add_paragraph(out, "what", rule->text);
    if (rule->reason[0] != 0) add_paragraph(out, "why", rule->reason);
    if (rule->bug[0] != 0) add_paragraph(out, "silently", rule->bug);
    add_paragraph(out, "fix", rule->fix);
}
