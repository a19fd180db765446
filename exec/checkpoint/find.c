/* Finds the folder of a single checkpoint from a path that the user has given. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/checkpoint/private.h"

static const Loc none = {NULL, 0};

/* Returns the path of the checkpoint with this name in `folder`; NULL: there is none. While a new
 * save of the same step replaces an old checkpoint, the old one has another name for a moment. This
 * function finds it, too. */
static const char *in_folder(const char *folder, const char *name, Arena *arena)
{
    const char *path = arena_print(arena, "%s/%s", folder, name);
    if (checkpoint_is_whole(path, arena)) return path;
    path = arena_print(arena, "%s%s", path, CHECKPOINT_OLD);
    return checkpoint_is_whole(path, arena) ? path : NULL;
}

static bool ends_in(const char *text, const char *end)
{
    const size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

/* Returns the name in the text file `latest`; NULL: none. If the file does not contain the name of
 * a checkpoint, sets *wrong to a description. If there is no such file, *wrong stays NULL. */
static const char *latest_name(const char *folder, Arena *arena, const char **wrong)
{
    char text[64] = {0};
    uint64_t step;
    *wrong = NULL;
    FILE *f = fopen(arena_print(arena, "%s/%s", folder, CHECKPOINT_LATEST), "r");
    if (f == NULL) {
        if (errno != ENOENT) *wrong = strerror(errno);
        return NULL;
    }
    const bool read = fgets(text, sizeof text, f) != NULL;
    fclose(f);
    text[strcspn(text, "\r\n")] = 0;
    if (read && checkpoint_is_step(text, &step)) return arena_print(arena, "%s", text);
    *wrong = "it is empty";
    for (char *at = text; *at != 0; at++)
        if (*at < ' ' || *at > '~') *at = '?';
    if (text[0] != 0)
        *wrong =
            arena_print(arena, "it contains '%s', which is not the name of a checkpoint", text);
    return NULL;
}

/* Returns the newest complete checkpoint in the folder; NULL: there is none. If `training` is not
 * NULL, only checkpoints of this training count. Sets *mixed if the folder has checkpoints of
 * several trainings. */
static const FolderEntry *newest_in(const char *folder, const char *training, bool *mixed,
                                    Arena *arena)
{
    const FolderEntries all = folder_entries(folder, arena);
    const FolderEntry *newest = NULL;
    const char *of_newest = NULL;
    for (uint32_t i = 0; i < all.n; i++) {
        const FolderEntry *at = &all.at[i];
        if (!at->whole) continue;
        const char *of = checkpoint_training(at->path, arena);
        if (training != NULL && strcmp(of, training) != 0) continue;
        if (of_newest != NULL && strcmp(of, of_newest) != 0) *mixed = true;
        if (newest == NULL || at->step > newest->step || (at->step == newest->step && newest->old))
            newest = at, of_newest = of;
    }
    return newest;
}

/* `found` is the checkpoint that `latest` names. Returns the newest checkpoint of the same
 * training. A run may have been killed after it saved a checkpoint and before it changed
 * `latest`. */
static const char *at_least(const char *found, const char *folder, Arena *arena)
{
    bool mixed = false;
    uint64_t step = 0;
    const char *training = checkpoint_training(found, arena);
    const FolderEntry *newest =
        training[0] != 0 ? newest_in(folder, training, &mixed, arena) : NULL;
    if (newest == NULL || !checkpoint_is_step(checkpoint_last_name(found), &step)) return found;
    return newest->step > step ? newest->path : found;
}

const char *checkpoint_newest(const char *save, Arena *arena)
{
    const char *wrong = NULL, *name = latest_name(save, arena, &wrong);
    const char *found = name != NULL ? in_folder(save, name, arena) : NULL;
    bool mixed = false;
    if (found != NULL) return at_least(found, save, arena);
    const FolderEntry *newest = newest_in(save, NULL, &mixed, arena);
    return newest != NULL ? newest->path : NULL;
}

/* Returns the path of a save in the folder that was not completed; NULL: there is none. */
static const char *unfinished_in(const char *folder, Arena *arena)
{
    const FolderEntries all = folder_entries(folder, arena);
    for (uint32_t i = 0; i < all.n; i++)
        if (all.at[i].saving) return all.at[i].path;
    return NULL;
}

static const char *unfinished(const char *path, Arena *arena, Diag *d)
{
    diag_error(d, FAULT_input, "checkpoint-unfinished", none,
               "%s is the folder of a save that did not end%s", path,
               checkpoint_is_whole(path, arena) ? "" : ": it has no " CHECKPOINT_LISTING);
    const char *newest = checkpoint_newest(checkpoint_parent(path, arena), arena);
    if (newest != NULL)
        diag_hint(d, "the newest finished checkpoint is %s", newest);
    else
        diag_hint(d, "there is no finished checkpoint beside it");
    return NULL;
}

/* Returns the newest checkpoint of a folder. Returns NULL if there is none, or after an error. */
static const char *found_in(const char *folder, Arena *arena, Diag *d)
{
    const char *wrong = NULL, *latest = latest_name(folder, arena, &wrong);
    const char *found = latest != NULL ? in_folder(folder, latest, arena) : NULL;
    bool mixed = false;
    if (found != NULL) return at_least(found, folder, arena);
    const FolderEntry *newest = newest_in(folder, NULL, &mixed, arena);
    if (latest == NULL && wrong == NULL && !mixed) return newest != NULL ? newest->path : NULL;
    if (latest != NULL)
        wrong = arena_print(arena, "it names %s, which does not exist", latest);
    else if (wrong == NULL)
        wrong = "it does not exist, and the folder has checkpoints of several trainings";
    diag_error(d, FAULT_input, "checkpoint-missing", none, "%s/%s: %s", folder, CHECKPOINT_LATEST,
               wrong);
    if (newest != NULL)
        diag_hint(d, "the newest whole checkpoint is %s: name it with --load", newest->path);
    else
        diag_hint(d, "there is no whole checkpoint beside it");
    return NULL;
}

bool checkpoint_hint_older(const char *path, Arena *arena, Diag *d)
{
    const char *training = checkpoint_training(path, arena);
    const FolderEntries all = folder_entries(checkpoint_parent(path, arena), arena);
    const FolderEntry *newest = NULL;
    uint64_t step = 0;
    if (!checkpoint_is_step(checkpoint_last_name(path), &step)) step = 0;
    for (uint32_t i = 0; i < all.n; i++) {
        const FolderEntry *at = &all.at[i];
        const bool own =
            training[0] == 0 || strcmp(checkpoint_training(at->path, arena), training) == 0;
        if (at->whole && own && at->step < step && (newest == NULL || at->step > newest->step))
            newest = at;
    }
    if (newest != NULL)
        diag_hint(d, "the newest older checkpoint is %s", newest->path);
    else
        diag_hint(d, "there is no older checkpoint beside it");
    return false;
}

const char *checkpoint_resolve(const char *path, Arena *arena, Diag *d)
{
    const uint32_t errors = d->n_errors;
    struct stat is;
    path = checkpoint_trim(path, arena);
    if (access(path, F_OK) != 0) {
        diag_error(d, FAULT_input, "checkpoint-missing", none, "%s: %s", path, strerror(errno));
        const char *newest = checkpoint_newest(checkpoint_parent(path, arena), arena);
        if (newest != NULL)
            diag_hint(d, "the newest checkpoint is %s; another run may have removed this one",
                      newest);
        return NULL;
    }
    if (stat(path, &is) == 0 && !S_ISDIR(is.st_mode)) {
        diag_error(d, FAULT_input, "checkpoint-missing", none, "%s is a file, not a folder", path);
        diag_hint(d, "name the folder that contains it");
        return NULL;
    }
    if (ends_in(path, CHECKPOINT_SAVING)) return unfinished(path, arena, d);
    if (checkpoint_is_whole(path, arena)) return path;
    uint64_t step;
    if (checkpoint_is_step(checkpoint_last_name(path), &step)) return unfinished(path, arena, d);
    const char *found = found_in(path, arena, d);
    if (found != NULL || d->n_errors > errors) return found;
    const char *broken = unfinished_in(path, arena);
    if (broken != NULL) return unfinished(broken, arena, d);
    diag_error(d, FAULT_input, "checkpoint-missing", none, "%s contains neither %s nor checkpoints",
               path, CHECKPOINT_LISTING);
    return NULL;
}
