#include "planner/front/planned.h"

#include <string.h>

#include "planner/front/pass_spec.h"

/* Passes may not depend on the cluster or on the costs of the runtime, so these are set to zero.
 * Exceptions: whether the plan names a runtime and, for float8{} without a runtime, the
 * architecture of the device. The names of scripts serve only for locations in diagnostics
 * (plan_place_diagnostics). */
void config_planned(const Config *config, Planned *out)
{
    Config *c = &out->config;
    const char *runtime = config->runtime.name != NULL ? "named" : NULL;
    const bool asks = config_pass(config, PASS_float8) && runtime == NULL;
    const char *arch = asks ? config->cluster.device.arch : NULL;
    *c = *config;
    memset(&c->cluster, 0, sizeof c->cluster);
    memset(&c->runtime, 0, sizeof c->runtime);
    memset(&c->scripts, 0, sizeof c->scripts);
    memset(&c->fills, 0, sizeof c->fills);
    c->source_lines = 0;
    c->cluster.device.arch = arch;
    c->runtime.name = runtime;
}

/* Appends the string *text to the key by its content, and sets the pointer to NULL, so that the key
 * does not depend on the address. */
static void move_text(const char **text, Str *key)
{
    if (*text != NULL) str_add(key, *text);
    str_add_bytes(key, *text != NULL ? "" : "\1", 1);
    *text = NULL;
}

/* Sets the padding bytes of a Loc to zero: the key is compared bytewise. */
static void clear_unused(Loc *loc)
{
    const Loc was = *loc;
    memset(loc, 0, sizeof *loc);
    memcpy(&loc->file, &was.file, sizeof was.file);
    memcpy(&loc->line, &was.line, sizeof was.line);
}

/* Clears the padding of all locations. If a location were forgotten here, equal configurations
 * would get different keys; their plan would be built twice, but correctly. */
static void clear_locations(Config *c)
{
    clear_unused(&c->model_loc);
    clear_unused(&c->mesh_loc);
    clear_unused(&c->batch_loc);
    clear_unused(&c->precision_loc);
    for (uint32_t a = 0; a < AXIS_NAMES; a++) clear_unused(&c->axis_loc[a]);
    for (uint32_t i = 0; i < c->n_passes; i++) clear_unused(&c->passes[i].loc);
}

static void add_pattern(const Pattern *p, Str *key)
{
    /* if this fails, Pattern has a new member, which must also be part of the key */
    _Static_assert(sizeof *p == sizeof p->path + sizeof p->loc + 2 * sizeof(uint32_t), "members");
    const uint64_t words[] = {(uintptr_t)p->path, (uintptr_t)p->loc.file, p->loc.line, p->style,
                              p->may_miss};
    str_add_bytes(key, words, sizeof words);
}

/* Appends the module patterns of a pass's list options to the key by content, and clears the lists.
 */
static void move_lists(PassConfig *pass, Str *key)
{
    for (const PassOption *o = pass_specs[pass->name]->options; o && o->field.path; o++) {
        const FieldKind kind = o->field.kind;
        if (kind != FIELD_modules && kind != FIELD_ops && kind != FIELD_styles) continue;
        Patterns *list = (Patterns *)(void *)((char *)pass + o->field.offset);
        /* uint64_t keeps the words of the key aligned to 8 bytes, as refers_to expects */
        const uint64_t n = list->n;
        str_add_bytes(key, &n, sizeof n);
        for (uint32_t i = 0; i < list->n; i++) add_pattern(&list->at[i], key);
        memset(list, 0, sizeof *list);
    }
}

/* True if one of the 8-byte words is an address inside `arena`. */
static bool refers_to(const Str *words, const Arena *arena)
{
    for (size_t i = 0; i + sizeof(void *) <= words->n; i += sizeof(void *)) {
        const void *address;
        memcpy(&address, words->at + i, sizeof address);
        if (address != NULL && arena_has(arena, address)) return true;
    }
    return false;
}

/* Makes the key from the bytes of the configuration, string addresses included. Equal strings
 * of all requests to one held script (parent.h) have equal addresses (draft_kept). An address in
 * `arena`, the memory of this load alone, would break this: after the load is freed, a different
 * string may get the same address. A configuration with such an address therefore gets no key, and
 * its plan is built again. */
bool planned_key(const Planned *planned, const Arena *arena, Str *key)
{
    Arena *scratch = arena_new();
    Planned *own = arena_alloc(scratch, sizeof *own);
    Str words = str_in(scratch), texts = str_in(scratch);
    bool fine = true;
    memcpy(own, planned, sizeof *own);
    Config *c = &own->config;
    clear_locations(c);
    move_text(&c->cluster.device.arch, &texts);
    move_text(&c->runtime.name, &texts);
    for (uint32_t i = 0; i < c->n_passes; i++) {
        fine = fine && !c->passes[i].pp.is_own;
        move_lists(&c->passes[i], &words);
    }
    str_add_bytes(&words, own, sizeof *own);
    fine = fine && !refers_to(&words, arena);
    str_add_bytes(key, words.at, words.n);
    str_add_bytes(key, texts.at, texts.n);
    arena_free(scratch);
    return fine;
}
