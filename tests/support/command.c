/* Runs a child in its own process group and reads both of its outputs as they come. When the
 * child's time is up, the whole group is killed, so that a test can neither hang nor leave ranks
 * behind. */
#undef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 /* for nftw and realpath */
#include "tests/support/command.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "planner/base/str.h"
#include "tests/support/slowest.h"

extern char **environ;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(bool is_fine, const char *what)
{
    if (is_fine) return;
    fprintf(stderr, "command.c: %s: %s\n", what, strerror(errno));
    abort();
}

static int spawn(const char *const *argv, const int out[2], const int err[2], pid_t *child)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
    for (int i = 0; i < 2; i++) {
        posix_spawn_file_actions_addclose(&actions, out[i]);
        posix_spawn_file_actions_addclose(&actions, err[i]);
    }
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes, 0);
    /* posix_spawn's prototype predates const; it does not write to argv. */
    union {
        const char *const *read_only;
        char *const *plain;
    } arguments = {.read_only = argv};
    int code = posix_spawnp(child, argv[0], &actions, &attributes, arguments.plain, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return code;
}

/* Moves the available bytes from `fd` to `text`; closes `fd` at the end of file. */
static void drain(int *fd, Str *text)
{
    char bytes[65536];
    ssize_t n = read(*fd, bytes, sizeof bytes);
    if (n > 0) str_add_bytes(text, bytes, (size_t)n);
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) {
        close(*fd);
        *fd = -1;
    }
}

/* Pauses between looks at the child: the second one is used after its pipes are closed, because it
 * then ends at once. */
enum { LOOK_MS = 10, LAST_LOOK_MS = 1 };

/* Reads until the child has ended and its pipes are empty, or until the time is up. It does not
 * wait for a grandchild that keeps a pipe open: when the child ends, all of its own output is
 * already in the pipe. */
static bool collect(pid_t child, int fds[2], Str text[2], double end_s, int *status)
{
    bool is_gone = false;
    while (fds[0] >= 0 || fds[1] >= 0 || !is_gone) {
        struct pollfd waiting[2] = {{.fd = fds[0], .events = POLLIN},
                                    {.fd = fds[1], .events = POLLIN}};
        bool was_gone = is_gone;
        if (!is_gone) is_gone = waitpid(child, status, WNOHANG) == child;
        const bool closed = fds[0] < 0 && fds[1] < 0;
        int n = poll(waiting, 2, is_gone ? 0 : closed ? LAST_LOOK_MS : LOOK_MS);
        for (int i = 0; i < 2; i++)
            if (fds[i] >= 0 && waiting[i].revents != 0) drain(&fds[i], &text[i]);
        if (was_gone && n <= 0) return true;
        if (!is_gone && now_s() > end_s) return false;
    }
    return true;
}

CommandResult command_run_program(Arena *arena, double timeout_s, const char *const *argv)
{
    CommandResult result = {.exit_code = -1};
    Str text[2] = {str_in(arena), str_in(arena)};
    int out[2], err[2], status = 0;
    pid_t child;
    double start_s = now_s(), before_s = slowest_children_s();
    must(pipe(out) == 0 && pipe(err) == 0, "pipe");
    int code = spawn(argv, out, err, &child);
    close(out[1]);
    close(err[1]);
    int fds[2] = {out[0], err[0]};
    if (code != 0) {
        str_print(&text[1], "cannot start %s: %s", argv[0], strerror(code));
    } else {
        result.timed_out = !collect(child, fds, text, start_s + timeout_s, &status);
        /* No process of the group outlives the call, even if the child ended in time. */
        kill(-child, SIGKILL);
        if (result.timed_out) must(waitpid(child, &status, 0) == child, "waitpid");
        if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
        if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
    }
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0) close(fds[i]);
    result.out = str_text(&text[0]), result.n_out = text[0].n;
    result.err = str_text(&text[1]), result.n_err = text[1].n;
    result.seconds = now_s() - start_s;
    result.cpu_s = slowest_children_s() - before_s;
    return result;
}

CommandResult command_run(Arena *arena, double timeout_s, const char *const *arguments)
{
    size_t n = 0;
    while (arguments[n] != NULL) n++;
    const char **argv = arena_array(arena, n + 2, sizeof *argv);
    argv[0] = TANDEM_COMMAND;
    if (n != 0) memcpy(argv + 1, arguments, n * sizeof *argv);
    return command_run_program(arena, timeout_s, argv);
}

enum { MOST_FOLDERS = 512, MOST_PATH = 4096 };
/* The paths are absolute, because a test may change its working directory. */
static char *folders[MOST_FOLDERS];
static size_t n_folders;
static pid_t owner;

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *place)
{
    (void)about;
    (void)kind;
    (void)place;
    return remove(path);
}

/* A forked child must not remove its parent's folders. */
static void remove_folders(void)
{
    for (size_t i = 0; i < n_folders; i++) {
        if (getpid() == owner) nftw(folders[i], remove_one, 16, FTW_DEPTH | FTW_PHYS);
        free(folders[i]);
    }
}

const char *command_new_folder(Arena *arena)
{
    char *path = arena_dup(arena, "tmp-XXXXXX");
    must(mkdtemp(path) != NULL, "mkdtemp");
    must(n_folders < MOST_FOLDERS, "more folders");
    if (n_folders == 0) {
        owner = getpid();
        must(atexit(remove_folders) == 0, "atexit");
    }
    folders[n_folders] = realpath(path, NULL);
    must(folders[n_folders++] != NULL, "realpath");
    return path;
}

void command_write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    must(file != NULL, path);
    must(fputs(text, file) >= 0 && fclose(file) == 0, path);
}

const char *command_table(Arena *arena, const char *text)
{
    const char *path = arena_print(arena, "%s/table.csv", command_new_folder(arena));
    command_write_file(path, text);
    return path;
}

const char *command_read_file(Arena *arena, const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) return NULL;
    Str text = str_in(arena);
    char part[4096];
    for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;) str_add_bytes(&text, part, n);
    bool is_fine = ferror(file) == 0;
    fclose(file);
    if (bytes != NULL) *bytes = text.n;
    return is_fine ? str_text(&text) : NULL;
}
