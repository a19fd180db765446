/* Files and folders of checkpoints. Every write is checked, and flushed to the disk before a rename
 * makes the file visible under its final name. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/checkpoint/private.h"

enum { BLOCK = 1 << 20 };

void writer_open(FileWriter *w, const char *path, Arena *arena)
{
    *w = (FileWriter){.hasher = hasher_new(arena), .room = arena_alloc(arena, BLOCK)};
    w->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (w->fd < 0) w->error = errno;
}

static void empty(FileWriter *w)
{
    hasher_add(w->hasher, w->room, w->n);
    for (size_t done = 0; done < w->n && w->error == 0;) {
        const ssize_t n = write(w->fd, w->room + done, w->n - done);
        if (n > 0) done += (size_t)n;
        if (n == 0) w->error = ENOSPC;
        if (n < 0 && errno != EINTR) w->error = errno;
    }
    w->n = 0;
}

void writer_add(FileWriter *w, const void *bytes, size_t n)
{
    w->bytes += n;
    for (const char *at = bytes; n > 0 && w->error == 0;) {
        const size_t k = n < BLOCK - w->n ? n : BLOCK - w->n;
        memcpy(w->room + w->n, at, k);
        w->n += k, at += k, n -= k;
        if (w->n == BLOCK) empty(w);
    }
}

bool writer_close(FileWriter *w)
{
    if (w->error == 0) empty(w);
    if (w->error == 0 && fsync(w->fd) != 0) w->error = errno;
    if (w->fd >= 0 && close(w->fd) != 0 && w->error == 0) w->error = errno;
    return w->error == 0;
}

int folder_flush(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno;
    int error = fsync(fd) == 0 ? 0 : errno;
    if (error == EINVAL || error == ENOTSUP) error = 0; /* this file system cannot flush folders */
    close(fd);
    return error;
}

int folder_make(const char *path)
{
    char part[4096];
    const size_t n = strlen(path);
    struct stat is;
    if (n == 0 || n >= sizeof part) return n == 0 ? ENOENT : ENAMETOOLONG;
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != 0) continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, 0777) != 0 && errno != EEXIST) return errno;
    }
    if (stat(path, &is) != 0) return errno;
    return S_ISDIR(is.st_mode) ? 0 : ENOTDIR;
}

bool folder_wrote(const char *name)
{
    static const char end[] = ".safetensors";
    const size_t n = strlen(name);
    if (strcmp(name, CHECKPOINT_LISTING) == 0) return true;
    if (strcmp(name, CHECKPOINT_LISTING CHECKPOINT_SAVING) == 0) return true;
    const size_t digits = strncmp(name, "rank-", 5) == 0 ? strspn(name + 5, "0123456789") : 0;
    return digits > 0 && n == 5 + digits + sizeof end - 1 && strcmp(name + 5 + digits, end) == 0;
}

/* Opens a folder, but does not follow a symbolic link. */
static DIR *open_own(const char *path, int *error)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    *error = folder == NULL ? errno : 0;
    if (folder == NULL && fd >= 0) close(fd);
    return folder;
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

const char *folder_foreign(const char *path, Arena *arena)
{
    int error = 0;
    const char *found = NULL;
    DIR *folder = open_own(path, &error);
    for (struct dirent *at = folder ? readdir(folder) : NULL; at != NULL && found == NULL;
         at = readdir(folder))
        if (!is_dots(at->d_name) && !folder_wrote(at->d_name))
            found = arena_print(arena, "%s", at->d_name);
    if (folder != NULL) closedir(folder);
    return found;
}

/* Checks that an open folder contains only names that checkpoints use. Returns 0 or ENOTEMPTY. The
 * folder can be read from its beginning afterwards. */
static int check_names(DIR *folder)
{
    for (struct dirent *at = readdir(folder); at != NULL; at = readdir(folder))
        if (!is_dots(at->d_name) && !folder_wrote(at->d_name)) return ENOTEMPTY;
    rewinddir(folder);
    return 0;
}

int folder_check(const char *path)
{
    int error = 0;
    DIR *folder = open_own(path, &error);
    if (folder == NULL) return error == ENOENT ? 0 : error;
    error = check_names(folder);
    closedir(folder);
    return error;
}

int folder_remove(const char *path)
{
    int error = 0;
    DIR *folder = open_own(path, &error);
    if (folder == NULL) return error == ENOENT ? 0 : error;
    error = check_names(folder);
    /* remove the manifest first: a folder without one does not count as a checkpoint, even if the
     * removal is interrupted */
    if (error == 0 && unlinkat(dirfd(folder), CHECKPOINT_LISTING, 0) != 0 && errno != ENOENT)
        error = errno;
    for (struct dirent *at = error == 0 ? readdir(folder) : NULL; at != NULL; at = readdir(folder))
        if (!is_dots(at->d_name) && unlinkat(dirfd(folder), at->d_name, 0) != 0 && errno != ENOENT)
            error = errno;
    closedir(folder);
    if (error == 0 && rmdir(path) != 0 && errno != ENOENT) error = errno;
    return error;
}

int text_replace(const char *path, const char *text, Arena *arena)
{
    const char *temporary = arena_print(arena, "%s%s", path, CHECKPOINT_SAVING);
    FileWriter w;
    if (unlink(temporary) != 0 && errno != ENOENT) return errno;
    writer_open(&w, temporary, arena);
    writer_add(&w, text, strlen(text));
    if (!writer_close(&w)) return w.error;
    return rename(temporary, path) == 0 ? 0 : errno;
}

/* ---- reading ---- */

bool reader_open(FileReader *r, const char *path, Arena *arena)
{
    struct stat is;
    *r = (FileReader){.fd = open(path, O_RDONLY | O_CLOEXEC), .room = r->room};
    if (r->fd < 0) return false;
    if (fstat(r->fd, &is) != 0 || !S_ISREG(is.st_mode)) {
        const int error = S_ISDIR(is.st_mode) ? EISDIR : EINVAL;
        close(r->fd);
        errno = error;
        return false;
    }
    r->size = (uint64_t)is.st_size;
    if (r->room == NULL) r->room = arena_alloc(arena, BLOCK);
    return true;
}

static bool read_all(int fd, uint64_t at, char *to, size_t n)
{
    while (n > 0) {
        const ssize_t got = pread(fd, to, n, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += (uint64_t)got, to += got, n -= (size_t)got;
    }
    return true;
}

bool reader_get(FileReader *r, uint64_t at, void *to, size_t n)
{
    if (at > r->size || n > r->size - at) return false;
    if (n >= BLOCK / 4) return read_all(r->fd, at, to, n);
    if (at < r->from || at + n > r->from + r->n) {
        const uint64_t rest = r->size - at;
        r->from = at;
        r->n = rest < BLOCK ? rest : BLOCK;
        if (!read_all(r->fd, at, r->room, r->n)) {
            r->n = 0;
            return false;
        }
    }
    memcpy(to, r->room + (at - r->from), n);
    return true;
}

void reader_close(FileReader *r)
{
    close(r->fd);
}

bool file_hash(const char *path, Arena *arena, uint64_t *bytes, Hash128 *hash)
{
    FileReader r = {.fd = -1};
    if (!reader_open(&r, path, arena)) return false;
    Hasher *h = hasher_new(arena);
    *bytes = r.size;
    for (uint64_t at = 0, n; at < r.size; at += n) {
        n = r.size - at < BLOCK ? r.size - at : BLOCK;
        if (!read_all(r.fd, at, r.room, n)) {
            const int error = errno != 0 ? errno : EIO;
            reader_close(&r);
            errno = error;
            return false;
        }
        hasher_add(h, r.room, n);
    }
    reader_close(&r);
    *hash = hasher_end(h);
    return true;
}

const char *checkpoint_data(const char *path, Arena *arena)
{
    uint64_t bytes = 0;
    Hash128 hash;
    if (path == NULL) return "data drawn at random";
    if (!file_hash(path, arena, &bytes, &hash)) return NULL;
    return arena_print(arena, "%" PRIu64 " bytes with XXH3 hash %s", bytes, hash_hex(arena, hash));
}
