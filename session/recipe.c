/* A recipe: the options and scripts from which a plan can be built again. Comparing its scripts
 * with the files shows whether an earlier answer is still valid. */
#define _GNU_SOURCE /* for dl_iterate_phdr */
#include <elf.h>
#include <inttypes.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "session/session.h"

enum { MOST_SCRIPT_BYTES = 1 << 20 };

const char *recipe_head(const char *path, const PlanOptions *o, Arena *arena)
{
    Str head = str_in(arena);
    str_print(&head, "version %s\npath %s\n", TANDEM_VERSION, path);
    for (uint32_t i = 0; i < o->n_set; i++) str_print(&head, "set %s\n", o->set[i]);
    if (o->cluster != NULL) str_print(&head, "cluster %s\n", o->cluster);
    if (o->nodes > 0) str_print(&head, "nodes %" PRIu32 "\n", o->nodes);
    if (o->seed != NULL) str_print(&head, "seed %" PRIu64 "\n", *o->seed);
    if (o->workspace != NULL)
        str_print(&head, "kernels %s\n", o->workspace == kernel_cpu_workspace ? "cpu" : "cuda");
    return str_text(&head);
}

void recipe_add(Recipe *recipe, const RecipeScript *script, Arena *arena)
{
    for (uint32_t k = 0; k < recipe->scripts.n; k++)
        if (strcmp(recipe->scripts.at[k].name, script->name) == 0 &&
            recipe->scripts.at[k].shipped == script->shipped)
            return;
    list_push(arena, &recipe->scripts, *script);
}

void recipe_add_list(Recipe *recipe, const char *list, Arena *arena)
{
    RecipeScript script;
    for (size_t n; *list != 0; list += n + (list[n] != 0)) {
        n = strcspn(list, "\n");
        if (store_script_line(list, n, arena, &script)) recipe_add(recipe, &script, arena);
    }
}

Recipe recipe_of(const Config *config, const PlanOptions *o, Arena *arena)
{
    Recipe recipe = {.head = recipe_head(config->file, o, arena)};
    if (o->code != NULL) {
        RecipeScript own = {.name = config->file,
                            .hash = hash_bytes(o->code, strlen(o->code)),
                            .text = o->code,
                            .bytes = strlen(o->code)};
        list_push(arena, &recipe.scripts, own);
    }
    for (uint32_t i = 0; i < config->scripts.n; i++) {
        const ScriptFile *s = &config->scripts.at[i];
        RecipeScript script = {.name = s->name, .shipped = s->shipped, .hash = s->hash};
        /* a script of the cluster may already be in the list as a script of the plan */
        recipe_add(&recipe, &script, arena);
    }
    return recipe;
}

static const char *place_of(const char *name, bool shipped, Arena *arena)
{
    return shipped ? arena_print(arena, "%s/%s", front_scripts_dir(), name) : name;
}

/* Reads the script at `path` into memory and sets *bytes. Returns NULL if it cannot be read. */
static const char *read_script(const char *path, Arena *arena, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) return NULL;
    enum { BLOCK = 1 << 14 };
    Str text = str_in(arena);
    for (size_t n = 1; n > 0 && text.n < MOST_SCRIPT_BYTES;) {
        char block[BLOCK];
        n = fread(block, 1, BLOCK, file);
        str_add_bytes(&text, block, n);
    }
    const bool fine = ferror(file) == 0;
    fclose(file);
    *bytes = text.n < MOST_SCRIPT_BYTES ? text.n : MOST_SCRIPT_BYTES;
    return fine ? str_text(&text) : NULL;
}

void recipe_read_scripts(Recipe *recipe, Store *store, Arena *arena, Diag *d)
{
    for (uint32_t i = 0; i < recipe->scripts.n; i++) {
        RecipeScript *s = &recipe->scripts.at[i];
        if (s->text != NULL || store_has_script(store, s->hash, d)) continue;
        const char *text = read_script(place_of(s->name, s->shipped, arena), arena, &s->bytes);
        if (text == NULL) continue;
        Hash128 now = hash_bytes(text, s->bytes);
        if (memcmp(&now, &s->hash, sizeof now) == 0) s->text = text;
    }
}

/* ---- earlier answers ---- */

static bool among(const Hash128 *list, uint32_t n, Hash128 hash)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i].hi == hash.hi && list[i].lo == hash.lo) return true;
    return false;
}

/* True if a file beside the plan's script would now be loaded instead of the library's script
 * `name`. Files of tandem/ and dialects/ cannot be replaced in this way. */
static bool is_hidden(const char *name, const char *plan, Arena *arena)
{
    if (strncmp(name, "tandem/", 7) == 0 || strncmp(name, "dialects/", 9) == 0) return false;
    const char *slash = strrchr(plan, '/');
    int folder = slash == NULL ? 0 : (int)(slash - plan) + 1;
    return access(arena_print(arena, "%.*s%s", folder, plan, name), F_OK) == 0;
}

/* True if the file of this line of FoundAnswer.list still has the same content or, if it was
 * absent, is still absent. */
static bool line_is_fresh(const char *line, size_t n, const char *plan, Arena *arena)
{
    RecipeScript s;
    if (!store_script_line(line, n, arena, &s)) return false;
    if (s.shipped && is_hidden(s.name, plan, arena)) return false;
    if (recipe_was_absent(&s)) return access(place_of(s.name, s.shipped, arena), F_OK) != 0;
    Arena *scratch = arena_new();
    size_t bytes = 0;
    const char *text = read_script(place_of(s.name, s.shipped, scratch), scratch, &bytes);
    const Hash128 now = text != NULL ? hash_bytes(text, bytes) : (Hash128){0, 0};
    arena_free(scratch);
    return text != NULL && now.hi == s.hash.hi && now.lo == s.hash.lo;
}

bool recipe_is_fresh(KnownScripts *known, const FoundAnswer *found, const char *path, Arena *arena)
{
    if (among(known->fresh.at, known->fresh.n, found->scripts)) return true;
    if (among(known->stale.at, known->stale.n, found->scripts)) return false;
    bool fresh = found->list[0] != 0;
    for (const char *line = found->list; fresh && *line != 0;) {
        size_t n = strcspn(line, "\n");
        fresh = line_is_fresh(line, n, path, arena);
        line += n + (line[n] != 0);
    }
    if (fresh)
        list_push(arena, &known->fresh, found->scripts);
    else
        list_push(arena, &known->stale, found->scripts);
    return fresh;
}

/* ---- the running executable ---- */

typedef struct BuildNote {
    uintptr_t inside; /* an address inside the executable or library to be found */
    Str *out;
} BuildNote;

/* Appends the GNU build id from the linker's notes [bytes]: a hash of the whole executable. */
static void read_notes(const ElfW(Nhdr) * note, size_t bytes, Str *out)
{
    const char *at = (const char *)note, *end = at + bytes;
    while (at + sizeof *note <= end) {
        ElfW(Nhdr) header;
        memcpy(&header, at, sizeof header);
        const char *name = at + sizeof header;
        const char *desc = name + ((header.n_namesz + 3U) & ~3U);
        if (desc + header.n_descsz > end) return;
        if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 && memcmp(name, "GNU", 4) == 0)
            for (uint32_t i = 0; i < header.n_descsz; i++)
                str_print(out, "%02x", (unsigned char)desc[i]);
        at = desc + ((header.n_descsz + 3U) & ~3U);
    }
}

static int visit_object(struct dl_phdr_info *info, size_t size, void *self)
{
    (void)size;
    BuildNote *b = self;
    bool ours = false;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t from = (uintptr_t)(info->dlpi_addr + part->p_vaddr);
        ours = ours || (part->p_type == PT_LOAD && b->inside >= from &&
                        b->inside < from + (uintptr_t)part->p_memsz);
    }
    for (int i = 0; ours && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_NOTE)
            read_notes((const void *)(info->dlpi_addr + part->p_vaddr), (size_t)part->p_memsz,
                       b->out);
    }
    return ours;
}

const char *build_name(Arena *arena)
{
    static const char inside;
    Str out = str_in(arena);
    str_print(&out, "%s %s ", TANDEM_VERSION, SIM_ENGINE_VERSION);
    BuildNote b = {(uintptr_t)&inside, &out};
    dl_iterate_phdr(visit_object, &b);
    return str_text(&out);
}
