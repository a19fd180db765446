/* The folder into which a run saves. Only one run at a time writes into it. It contains the
 * checkpoints of a single training, in the order of their steps. */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fcntl.h>

#include "exec/checkpoint/private.h"

static const Loc none = {NULL, 0};

/* ---- the lock ---- */

static const char *holder_of(int fd, Arena *arena)
{
    char text[256] = {0};
    const ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? strcspn(text, "\n") : 0] = 0;
    return text[0] != 0 ? arena_print(arena, "%s", text) : "another process";
}

bool folder_report_busy(const char *save, const char *holder, Diag *d)
{
    diag_error(d, FAULT_input, "checkpoint-busy", none, "%s saves into %s", holder, save);
    diag_hint(d, "wait until the other run ends, or save into another folder");
    return false;
}

/* Checks that no other run is saving into the folder. Only the lock shows this, because files may
 * change at any time. */
static bool is_free(const char *save, Arena *arena, Diag *d)
{
    const char *path = arena_print(arena, "%s/%s", save, CHECKPOINT_LOCK), *holder = NULL;
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return true;
    if (flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK) holder = holder_of(fd, arena);
    close(fd);
    return holder == NULL || folder_report_busy(save, holder, d);
}

/* Locks the lock file of a folder. The file stays when the lock is released: removing it could
 * remove the lock file of the next run. */
int folder_lock(const char *save, Arena *arena, int *error, const char **holder)
{
    char host[128] = {0};
    const char *path = arena_print(arena, "%s/%s", save, CHECKPOINT_LOCK);
    *holder = NULL;
    *error = 0;
    const int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) {
        *error = errno;
        return -1;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        *holder = holder_of(fd, arena);
        close(fd);
        return -1;
    }
    /* on a file system without locks, nothing prevents two runs from saving into one folder */
    gethostname(host, sizeof host - 1);
    const char *mine = arena_print(arena, "process %ld on %s\n", (long)getpid(), host);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, mine, strlen(mine), 0) < 0) *error = errno;
    if (*error == 0) return fd;
    close(fd);
    return -1;
}

/* ---- the checkpoints in the folder ---- */

static bool parse_entry(const char *name, FolderEntry *entry)
{
    const size_t n = strlen(name), saving = strlen(CHECKPOINT_SAVING), old = strlen(CHECKPOINT_OLD);
    char step[64];
    entry->saving = n > saving && strcmp(name + n - saving, CHECKPOINT_SAVING) == 0;
    entry->old = n > old && strcmp(name + n - old, CHECKPOINT_OLD) == 0;
    const size_t k = n - (entry->saving ? saving : entry->old ? old : 0);
    if (k >= sizeof step) return false;
    memcpy(step, name, k);
    step[k] = 0;
    return checkpoint_is_step(step, &entry->step);
}

FolderEntries folder_entries(const char *save, Arena *arena)
{
    FolderEntries all = {0};
    FolderEntry entry = {0};
    DIR *folder = opendir(save);
    for (struct dirent *at = folder ? readdir(folder) : NULL; at != NULL; at = readdir(folder)) {
        if (!parse_entry(at->d_name, &entry)) continue;
        entry.path = arena_print(arena, "%s/%s", save, at->d_name);
        entry.whole = !entry.saving && checkpoint_is_whole(entry.path, arena);
        list_push(arena, &all, entry);
    }
    if (folder != NULL) closedir(folder);
    return all;
}

/* Returns true if the checkpoint `loaded` lies in the folder `save`. */
static bool lies_in(const char *loaded, const char *save, Arena *arena)
{
    struct stat of_loaded, of_save;
    const char *parent = checkpoint_parent(loaded, arena);
    return stat(parent, &of_loaded) == 0 && stat(save, &of_save) == 0 &&
           of_loaded.st_dev == of_save.st_dev && of_loaded.st_ino == of_save.st_ino;
}

/* Reports why the run may not save into the folder. Returns false. */
static bool report_used(const char *save, const char *loaded, const FolderEntry *newest, Diag *d)
{
    if (!newest->whole) {
        diag_error(d, FAULT_input, "checkpoint-used", none,
                   "%s has the name of a checkpoint, but is not one", newest->path);
        diag_hint(d, "move it away, or save into another folder");
    } else if (loaded != NULL) {
        diag_error(d, FAULT_input, "checkpoint-used", none,
                   "%s belongs to a later step than %s, which this run loads", newest->path,
                   loaded);
        diag_hint(d, "load %s, or save into another folder", newest->path);
    } else {
        diag_error(d, FAULT_input, "checkpoint-used", none,
                   "%s already contains checkpoints; the newest is %s", save, newest->path);
        diag_hint(d, "continue with --load %s, or save into another folder", save);
    }
    return false;
}

bool folder_suits(const char *save, const CheckpointInfo *from, Arena *arena, Diag *d)
{
    const FolderEntries all = folder_entries(save, arena);
    const bool continues = from->path != NULL && lies_in(from->path, save, arena);
    const FolderEntry *newest = NULL;
    struct stat is;
    const char *latest = arena_print(arena, "%s/%s", save, CHECKPOINT_LATEST);
    if (lstat(latest, &is) == 0 && S_ISDIR(is.st_mode))
        return diag_error(d, FAULT_input, "checkpoint-used", none,
                          "%s is a folder, but a save must write a file with this name", latest);
    for (uint32_t i = 0; i < all.n; i++) {
        const FolderEntry *at = &all.at[i];
        if (at->saving || (at->old && !at->whole) || (continues && at->step <= from->step))
            continue;
        const bool better = newest == NULL || at->whole > newest->whole ||
                            (at->whole == newest->whole && at->step > newest->step);
        if (better) newest = at;
    }
    return newest == NULL || report_used(save, continues ? from->path : NULL, newest, d);
}

bool checkpoint_can_save(const char *save, const CheckpointInfo *from, Arena *arena, Diag *d)
{
    return is_free(save, arena, d) && folder_suits(save, from, arena, d);
}

int folder_sweep(const char *save, Arena *arena, const char **which)
{
    const FolderEntries all = folder_entries(save, arena);
    for (uint32_t i = 0; i < all.n; i++) {
        const FolderEntry *at = &all.at[i];
        int error = 0;
        *which = at->path;
        if (!at->saving && !at->old) continue;
        const char *name = checkpoint_step_name(at->step, arena);
        const char *final = arena_print(arena, "%s/%s", save, name);
        /* a save that did not complete should have replaced this folder */
        if (at->whole && access(final, F_OK) != 0)
            error = rename(at->path, final) == 0 ? 0 : errno;
        else
            error = folder_remove(at->path);
        if (error != 0) return error;
    }
    return 0;
}

int folder_keep(const char *save, const char *training, uint32_t keep, Arena *arena,
                const char **which)
{
    const FolderEntries all = folder_entries(save, arena);
    FolderEntries own = {0};
    for (uint32_t i = 0; i < all.n; i++) {
        const FolderEntry *at = &all.at[i];
        if (at->whole && !at->old && folder_check(at->path) == 0 &&
            strcmp(checkpoint_training(at->path, arena), training) == 0)
            list_push(arena, &own, *at);
    }
    for (; own.n > keep; own.n--) {
        uint32_t oldest = 0;
        for (uint32_t i = 1; i < own.n; i++)
            if (own.at[i].step < own.at[oldest].step) oldest = i;
        *which = own.at[oldest].path;
        /* rename the folder first, so that an interrupted removal leaves no incomplete checkpoint
         * under a valid name */
        const char *away = arena_print(arena, "%s%s", *which, CHECKPOINT_SAVING);
        const int error = rename(*which, away) == 0 ? folder_remove(away) : errno;
        if (error != 0) return error;
        own.at[oldest] = own.at[own.n - 1];
    }
    return 0;
}
