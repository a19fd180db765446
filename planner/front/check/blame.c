/* Points an error at the --set that caused it. An error about several values, such as the product
 * of the mesh sizes, is first reported at the script's line of one of them. If --set gave one of
 * the values, the script itself was correct, so the error moves to that --set. */
#include "planner/front/check/blame.h"

#include <ctype.h>
#include <string.h>

#include "planner/front/keys/fields.h"

/* rule: id of a rule. values: the values that it compares; a table such as `mesh` means those of
 * its values that the message names. mended: the value that the rule's hint tells the user to
 * change; a setting of this value is looked for first. NULL: no such value. */
static const struct {
    const char *rule, *values, *mended;
} table[] = {
    {"mesh-product", "mesh cluster.nodes cluster.devices_per_node", NULL},
    {"divides-batch", "batch.global batch.micro mesh.dp_shard mesh.dp_replicate mesh.ep", NULL},
    {"divides-seq", "batch.seq mesh parallel.tp", NULL},
    {"divides-heads", "model mesh parallel.tp parallel.cp", NULL},
    {"divides-features", "model mesh", NULL},
    {"divides-experts", "model mesh", NULL},
    {"divides-activation", "model mesh batch", NULL},
    {"domain-divides", "mesh model batch", NULL},
    {"domain-halo", "mesh model batch", NULL},
    {"domain-windows", "mesh model batch", NULL},
    {"dtype-unsupported", "precision gpu cluster.device parallel.float8", NULL},
    {"ep-fold", "mesh", "mesh.ep"},
    {"cp-groups", "model mesh parallel.cp parallel.tp", NULL},
    {"cp-tp", "model mesh parallel.cp parallel.tp", NULL},
    {"cp-experts", "model mesh parallel.cp", NULL},
    {"cp-dropless", "model mesh parallel.cp", NULL},
    {"cp-ring", "model mesh parallel.cp", NULL},
    {"cp-scan", "model mesh parallel.cp", NULL},
    {"cp-span", "model mesh parallel.cp batch", NULL},
    {"pp-chunks", "mesh.pp parallel.pp", NULL},
    {"pp-interleaved", "mesh.pp parallel.pp", NULL},
    {"pp-layers", "mesh.pp parallel.pp model", NULL},
    {"pp-layers-per-stage", "mesh.pp parallel.pp model", NULL},
    {"pp-microbatches", "mesh.pp parallel.pp batch", NULL},
    {"pp-split", "mesh.pp parallel.pp model", NULL},
    {"reshard-divides", "parallel.fsdp2 mesh.dp_shard", NULL},
    {"fsdp2-conflict", "parallel.fsdp2 mesh", NULL},
    {"zero-option", "parallel.zero mesh precision", NULL},
};
enum { N_RULES = sizeof table / sizeof *table };

const char *front_blame_values(uint32_t i, const char **rule)
{
    if (i >= N_RULES) return NULL;
    *rule = table[i].rule;
    return table[i].values;
}

static bool is_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* True if the text contains word [n bytes] as a whole word. */
static bool names(const char *text, const char *word, size_t n)
{
    for (const char *at = text; *at != 0; at++)
        if (strncmp(at, word, n) == 0 && !is_letter(at[n]) && (at == text || !is_letter(at[-1])))
            return true;
    return false;
}

/* True if the setting `set`, such as "mesh.tp=4", gave the value at path value [n bytes], or
 * replaced a table that contains it. If `value` is itself a table, such as "mesh", a setting inside
 * it counts only if `message` contains its last key ("tp") or its word. */
static bool gave(const char *set, const char *value, size_t n, const char *message)
{
    const char *equals = strchr(set, '='), *key = set;
    const size_t length = (size_t)(equals - set);
    if (field_is_in(value, n, set, length)) return true;
    if (!field_is_in(set, length, value, n)) return false;
    for (const char *c = set; c < equals; c++)
        if (*c == '.') key = c + 1;
    const char *word = equals + 1;
    return names(message, key, (size_t)(equals - key)) ||
           (isalpha((unsigned char)*word) && names(message, word, strlen(word)));
}

/* True if the setting `set` gave one of the `values`, which are separated by spaces. */
static bool gave_any(const char *set, const char *values, const char *message)
{
    for (;; values++) {
        const size_t n = strcspn(values, " ");
        if (gave(set, values, n, message)) return true;
        values += n;
        if (*values == 0) return false;
    }
}

static bool is_open(const char *set)
{
    const size_t n = strlen(set);
    return n > 3 && strcmp(set + n - 3, "=-1") == 0;
}

/* Returns the setting in set [n] that gave one of `values`, the last one first, or NULL. A setting
 * to -1 (a size computed from the others) comes last, because another size is more likely wrong. If
 * the error is at a line of the user's own model script, settings of the model are left out: that
 * line says more. */
static const char *find(const char *const *set, uint32_t n, const char *values,
                        const Diagnostic *item)
{
    const bool own = item->loc.line > 0 && item->library.file == NULL;
    for (int open = 0; open < 2; open++)
        for (uint32_t i = n; i-- > 0;)
            if (is_open(set[i]) == (open == 1) && !(own && strncmp(set[i], "model", 5) == 0) &&
                gave_any(set[i], values, item->text))
                return set[i];
    return NULL;
}

void front_blame_settings(const char *const *set, uint32_t n, uint32_t first, Diag *d)
{
    for (uint32_t i = first; i < d->items.n; i++) {
        Diagnostic *item = &d->items.at[i];
        if (item->severity != SEVERITY_error) continue;
        for (uint32_t r = 0; r < N_RULES; r++) {
            if (strcmp(table[r].rule, item->rule) != 0) continue;
            const char *mended = table[r].mended, *blamed = NULL;
            if (mended != NULL) blamed = find(set, n, mended, item);
            if (blamed == NULL) blamed = find(set, n, table[r].values, item);
            if (blamed != NULL) item->loc = (Loc){arena_print(d->arena, "--set %s", blamed), 0};
        }
    }
}
