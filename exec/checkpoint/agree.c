/* Lets all processes agree whether a phase of saving or loading has succeeded. If one process finds
 * an error, all of them must end. Process 0 must know the text of the error, because only process 0
 * prints. */
#include <string.h>

#include "exec/checkpoint/private.h"

typedef struct PhaseVerdict {
    uint32_t failed;
    int32_t fault;
    char rule[40], text[1200], hint[400];
} PhaseVerdict;

static void copy_text(char *to, size_t room, const char *text)
{
    if (text != NULL) strncpy(to, text, room - 1);
}

void checkpoint_wait_for(Backend *backend, uint64_t bytes)
{
    if (backend->patience != NULL) backend->patience(backend, (double)bytes / 10e6);
}

bool checkpoint_agree(Backend *backend, const Diag *own, Arena *arena, Diag *d)
{
    uint32_t process;
    const uint32_t n = backend->processes(backend, &process);
    PhaseVerdict mine;
    memset(&mine, 0, sizeof mine);
    for (uint32_t i = 0; i < own->items.n && !mine.failed; i++) {
        const Diagnostic *at = &own->items.at[i];
        if (at->severity != SEVERITY_error) continue;
        mine.failed = 1;
        mine.fault = (int32_t)at->fault;
        copy_text(mine.rule, sizeof mine.rule, at->rule);
        copy_text(mine.text, sizeof mine.text, at->text);
        copy_text(mine.hint, sizeof mine.hint, at->hint);
    }
    PhaseVerdict *all = arena_array(arena, n, sizeof *all);
    if (!backend->exchange(backend, &mine, sizeof mine, all, d)) return false;
    for (uint32_t i = 0; i < n; i++) {
        if (!all[i].failed) continue;
        const char *rule = arena_print(d->arena, "%s", all[i].rule);
        diag_error(d, (Fault)all[i].fault, rule, (Loc){NULL, 0}, "%s", all[i].text);
        if (all[i].hint[0]) diag_hint(d, "%s", all[i].hint);
        return false;
    }
    /* process 0 prints; the other processes have found the same warnings, or none */
    if (process != 0) return true;
    for (uint32_t i = 0; i < own->items.n; i++) /* copy them, because their texts may be freed
                                                   earlier */
        diag_warning(d, own->items.at[i].rule, own->items.at[i].loc, "%s", own->items.at[i].text);
    return true;
}
