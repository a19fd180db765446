/* Replaces functions of the C library. It counts the calls that allocate memory, or the calls for
 * files and processes, and lets one of them fail. It is loaded with LD_PRELOAD, or linked into a
 * test. Writes to standard error never fail. */
#define _GNU_SOURCE
#include "tests/failures/fail_at.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static FailState *state;

void fail_at_use(FailState *use)
{
    state = use;
}

/* True while OpenBLAS is being loaded. Its Fortran library then allocates memory; without memory,
 * it ends or crashes the process. Tandem cannot prevent that, so no call fails meanwhile. */
static _Thread_local bool loads_openblas;

/* the functions on the stack that identify a place; of these, the ones in this file */
enum { DEPTH = 14, OWN = 3 };

/* Records the place in the code of call number `n`. */
static void note(FailState *s, uint64_t n)
{
    static _Thread_local bool inside; /* backtrace may allocate memory itself */
    void *at[DEPTH + OWN];
    if (inside) return;
    inside = true;
    const int n_at = backtrace(at, DEPTH + OWN);
    inside = false;
    uint64_t path = 1469598103934665603U;
    for (int i = OWN; i < n_at; i++) path = (path ^ (uint64_t)(uintptr_t)at[i]) * 1099511628211U;
    path |= 1;
    for (uint64_t i = path >> 32;; i++) {
        FailPlace *place = &s->place[i % MOST_PLACES];
        uint64_t now = 0;
        if (atomic_compare_exchange_strong(&place->path, &now, path))
            atomic_store(&place->first, n);
        if (now == 0 || now == path) return;
    }
}

/* Returns true if this call must fail. */
static bool fails(FailKind kind, int error)
{
    FailState *s = state;
    if (s == NULL || s->kind != (uint32_t)kind || loads_openblas) return false;
    const uint64_t n = atomic_fetch_add(&s->counted, 1) + 1;
    if (s->notes != 0 && kind == FAIL_memory) note(s, n);
    if (s->at == 0 || n < s->at || (n > s->at && !s->forever)) return false;
    atomic_fetch_add(&s->failed, 1);
    errno = error;
    return true;
}

static bool fails_on(int fd, int error)
{
    return fd != STDERR_FILENO && fails(FAIL_file, error);
}

__attribute__((constructor)) static void begin(void)
{
    void *none[1];
    (void)backtrace(none, 1); /* loads its library before calls are counted */
    const char *path = getenv(FAIL_STATE);
    const int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *at = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at != MAP_FAILED) state = at;
}

/* ---- libraries */

void *dlopen(const char *name, int mode)
{
    void *found = dlsym(RTLD_NEXT, "dlopen");
    void *(*next)(const char *, int);
    memcpy(&next, &found, sizeof next);
    const char *without = getenv(FAIL_LIBRARY);
    const bool hides = name != NULL && without != NULL && strstr(name, without) != NULL;
    loads_openblas = name != NULL && strstr(name, "openblas") != NULL && !hides;
    void *library = next(hides ? "/missing/library.so" : name, mode);
    loads_openblas = false;
    return library;
}

/* ---- memory: the functions call glibc's versions by their internal names */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *at, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);
void __libc_free(void *at);

static void *taken(void *at)
{
    if (at != NULL && state != NULL) atomic_fetch_add(&state->live, 1);
    return at;
}

void *malloc(size_t bytes)
{
    return fails(FAIL_memory, ENOMEM) ? NULL : taken(__libc_malloc(bytes));
}

void *calloc(size_t n, size_t bytes)
{
    return fails(FAIL_memory, ENOMEM) ? NULL : taken(__libc_calloc(n, bytes));
}

void free(void *at)
{
    if (at != NULL && state != NULL) atomic_fetch_sub(&state->live, 1);
    __libc_free(at);
}

void *realloc(void *at, size_t bytes)
{
    if (at != NULL && bytes == 0) {
        free(at);
        return NULL;
    }
    if (fails(FAIL_memory, ENOMEM)) return NULL;
    void *moved = __libc_realloc(at, bytes);
    return at == NULL ? taken(moved) : moved;
}

void *memalign(size_t align, size_t bytes);
void *memalign(size_t align, size_t bytes)
{
    return fails(FAIL_memory, ENOMEM) ? NULL : taken(__libc_memalign(align, bytes));
}

void *aligned_alloc(size_t align, size_t bytes)
{
    return memalign(align, bytes);
}

int posix_memalign(void **to, size_t align, size_t bytes)
{
    void *at = memalign(align, bytes);
    if (at == NULL) return ENOMEM;
    *to = at;
    return 0;
}

/* ---- files and processes: each row names the function, its result, its parameters, how to call
 * the next function of that name, the condition to fail, and the result then */
#define CALL(name, result, parameters, arguments, wrong, bad)                                      \
    result name parameters;                                                                        \
    result name parameters                                                                         \
    {                                                                                              \
        static result(*next) parameters;                                                           \
        if (next == NULL) *(void **)&next = dlsym(RTLD_NEXT, #name);                               \
        return (wrong) ? (bad) : next arguments;                                                   \
    }
#define OPEN(name, parameters, arguments)                                                          \
    int name parameters                                                                            \
    {                                                                                              \
        static int(*next) parameters;                                                              \
        if (next == NULL) *(void **)&next = dlsym(RTLD_NEXT, #name);                               \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;                            \
        va_end(more);                                                                              \
        if (fails(FAIL_file, flags & O_CREAT ? ENOSPC : EMFILE)) return -1;                        \
        return next arguments;                                                                     \
    }
#define STREAM(name)                                                                               \
    CALL(name, FILE *, (const char *path, const char *mode), (path, mode),                         \
         fails(FAIL_file, EMFILE), NULL)
#define SPOOL(name) CALL(name, FILE *, (void), (), fails(FAIL_file, ENOSPC), NULL)
#define READ_AT(name)                                                                              \
    CALL(name, ssize_t, (int fd, void *to, size_t n, off_t at), (fd, to, n, at),                   \
         fails_on(fd, EIO), -1)
#define WRITE_AT(name)                                                                             \
    CALL(name, ssize_t, (int fd, const void *of, size_t n, off_t at), (fd, of, n, at),             \
         fails_on(fd, ENOSPC), -1)
#define SYNC(name)     CALL(name, int, (int fd), (fd), fails_on(fd, EIO), -1)
#define TRUNCATE(name) CALL(name, int, (int fd, off_t n), (fd, n), fails_on(fd, ENOSPC), -1)
#define TWO_PATHS(name, error)                                                                     \
    CALL(name, int, (const char *from, const char *to), (from, to), fails(FAIL_file, error), -1)
#define MAP(name)                                                                                  \
    CALL(name, void *, (void *at, size_t n, int use, int flags, int fd, off_t from),               \
         (at, n, use, flags, fd, from), fails(fd < 0 ? FAIL_memory : FAIL_file, ENOMEM),           \
         MAP_FAILED)

OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))
OPEN(openat64, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))
STREAM(fopen)
STREAM(fopen64)
SPOOL(tmpfile)
SPOOL(tmpfile64)
CALL(opendir, DIR *, (const char *path), (path), fails(FAIL_file, EMFILE), NULL)
CALL(read, ssize_t, (int fd, void *to, size_t n), (fd, to, n), fails_on(fd, EIO), -1)
READ_AT(pread)
READ_AT(pread64)
CALL(write, ssize_t, (int fd, const void *of, size_t n), (fd, of, n), fails_on(fd, ENOSPC), -1)
WRITE_AT(pwrite)
WRITE_AT(pwrite64)
CALL(send, ssize_t, (int fd, const void *of, size_t n, int flags), (fd, of, n, flags),
     fails(FAIL_file, ENOBUFS), -1)
CALL(recv, ssize_t, (int fd, void *to, size_t n, int flags), (fd, to, n, flags),
     fails(FAIL_file, EIO), -1)
CALL(fwrite, size_t, (const void *of, size_t size, size_t n, FILE *f), (of, size, n, f),
     fails_on(fileno(f), ENOSPC), 0)
CALL(fread, size_t, (void *to, size_t size, size_t n, FILE *f), (to, size, n, f),
     fails_on(fileno(f), EIO), 0)
CALL(fclose, int, (FILE * f), (f), fails_on(fileno(f), EIO), (next(f), EOF))
SYNC(fsync)
SYNC(fdatasync)
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)
TWO_PATHS(rename, EIO)
TWO_PATHS(link, EMLINK)
CALL(unlink, int, (const char *path), (path), fails(FAIL_file, EIO), -1)
CALL(mkdir, int, (const char *path, mode_t mode), (path, mode), fails(FAIL_file, ENOSPC), -1)
CALL(fork, pid_t, (void), (), fails(FAIL_file, EAGAIN), -1)
CALL(pipe, int, (int fd[2]), (fd), fails(FAIL_file, EMFILE), -1)
CALL(socketpair, int, (int family, int type, int protocol, int fd[2]), (family, type, protocol, fd),
     fails(FAIL_file, EMFILE), -1)
MAP(mmap)
MAP(mmap64)
