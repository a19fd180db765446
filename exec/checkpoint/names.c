/* Names of checkpoints: how a path that the user gives becomes the folder of one checkpoint. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/checkpoint/private.h"

static const Loc none = {NULL, 0};

const char *checkpoint_step_name(uint64_t step, Arena *arena)
{
    return arena_print(arena, "step-%08" PRIu64, step);
}

const char *checkpoint_rank_name(Rank rank, Arena *arena)
{
    return arena_print(arena, "rank-%05" PRIu32 ".safetensors", rank);
}

bool checkpoint_is_step(const char *name, uint64_t *step)
{
    char *end = NULL;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9') return false;
    *step = strtoull(name + 5, &end, 10);
    return *end == 0;
}

static bool is_checkpoint(const char *folder, Arena *arena)
{
    return access(arena_print(arena, "%s/%s", folder, CHECKPOINT_LISTING), F_OK) == 0;
}

/* Returns the checkpoint of that name in `folder`; NULL: there is none. While a newer save of the
 * same step replaces it, the finished one has another name for a moment. */
static const char *in_folder(const char *folder, const char *name, Arena *arena)
{
    const char *path = arena_print(arena, "%s/%s", folder, name);
    if (is_checkpoint(path, arena)) return path;
    path = arena_print(arena, "%s%s", path, CHECKPOINT_OLD);
    return is_checkpoint(path, arena) ? path : NULL;
}

static bool ends_in(const char *text, const char *end)
{
    const size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

/* Returns the name that the text file `latest` holds; NULL: there is none. */
static const char *latest_name(const char *folder, Arena *arena)
{
    char text[64] = {0};
    uint64_t step;
    FILE *f = fopen(arena_print(arena, "%s/%s", folder, CHECKPOINT_LATEST), "r");
    if (f == NULL) return NULL;
    const bool read = fgets(text, sizeof text, f) != NULL;
    fclose(f);
    text[strcspn(text, "\n")] = 0;
    return read && checkpoint_is_step(text, &step) ? arena_print(arena, "%s", text) : NULL;
}

const char *checkpoint_newest(const char *save, Arena *arena)
{
    const char *name = latest_name(save, arena);
    return name != NULL ? in_folder(save, name, arena) : NULL;
}

/* True if the folder holds a save that did not end; *name is its name. */
static bool holds_unfinished(const char *folder, const char **name, Arena *arena)
{
    DIR *all = opendir(folder);
    *name = NULL;
    for (struct dirent *at = all ? readdir(all) : NULL; at != NULL && *name == NULL;
         at = readdir(all))
        if (ends_in(at->d_name, CHECKPOINT_SAVING) && strncmp(at->d_name, "step-", 5) == 0)
            *name = arena_print(arena, "%s", at->d_name);
    if (all != NULL) closedir(all);
    return *name != NULL;
}

static const char *unfinished(const char *path, Arena *arena, Diag *d)
{
    diag_error(d, FAULT_input, "checkpoint-unfinished", none,
               "%s: this save did not end: it has no %s", path, CHECKPOINT_LISTING);
    const char *slash = strrchr(path, '/');
    const char *folder =
        slash != NULL ? arena_print(arena, "%.*s", (int)(slash - path), path) : ".";
    const char *newest = checkpoint_newest(folder, arena);
    if (newest != NULL)
        diag_hint(d, "the newest finished one is %s", newest);
    else
        diag_hint(d, "there is no finished one beside it");
    return NULL;
}

const char *checkpoint_trim(const char *path, Arena *arena)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    return arena_print(arena, "%.*s", (int)n, path);
}

const char *checkpoint_resolve(const char *path, Arena *arena, Diag *d)
{
    path = checkpoint_trim(path, arena);
    if (access(path, F_OK) != 0) {
        diag_error(d, FAULT_input, "checkpoint-missing", none, "%s: %s", path, strerror(errno));
        return NULL;
    }
    if (ends_in(path, CHECKPOINT_SAVING)) return unfinished(path, arena, d);
    if (is_checkpoint(path, arena)) return path;
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    uint64_t step;
    if (checkpoint_is_step(name, &step)) return unfinished(path, arena, d);
    const char *latest = latest_name(path, arena);
    if (latest != NULL) {
        const char *found = in_folder(path, latest, arena);
        if (found != NULL) return found;
        diag_error(d, FAULT_input, "checkpoint-missing", none, "%s/%s names %s, which is not there",
                   path, CHECKPOINT_LATEST, latest);
        diag_hint(d, "name another checkpoint of the folder");
        return NULL;
    }
    if (holds_unfinished(path, &name, arena))
        return unfinished(arena_print(arena, "%s/%s", path, name), arena, d);
    diag_error(d, FAULT_input, "checkpoint-missing", none,
               "%s: there is neither %s nor %s, so it is no checkpoint and no folder of them", path,
               CHECKPOINT_LISTING, CHECKPOINT_LATEST);
    return NULL;
}
