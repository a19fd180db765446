#define _GNU_SOURCE /* RTLD_NEXT */
#include "tests/unit/front/process/impostor.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <string.h>

static Str *recorded;
static const Impostor *used;
static const char *failing; /* the function whose next call fails; NULL: none */
static int failing_error;
static bool is_late;
static time_t later_s; /* seconds by which the clock is ahead */
static int pair[2];    /* the last pair of sockets */

void impostor_record(Str *stream)
{
    recorded = stream;
}

void impostor_use(const Impostor *impostor)
{
    used = impostor;
}

bool impostor_fail(const char *function, int error)
{
    const bool happened = failing == NULL;
    failing = function;
    failing_error = error;
    return happened;
}

void impostor_be_late(bool late)
{
    is_late = late;
    later_s = 0;
}

static bool fails(const char *function)
{
    if (failing == NULL || strcmp(failing, function) != 0) return false;
    failing = NULL;
    errno = failing_error;
    return true;
}

static _Noreturn void be(const Impostor *impostor)
{
    const char *at = impostor->bytes;
    size_t left = impostor->n;
    close(pair[0]);
    while (left > 0) {
        const ssize_t n = send(pair[1], at, left, MSG_NOSIGNAL);
        if (n <= 0) break;
        at += n, left -= (size_t)n;
    }
    char ignored[256];
    while (impostor->end == IMPOSTOR_stays) pause();
    while (impostor->end == IMPOSTOR_waits && recv(pair[1], ignored, sizeof ignored, 0) > 0) {
    }
    if (impostor->end == IMPOSTOR_dies) kill(getpid(), impostor->code);
    _exit(impostor->end == IMPOSTOR_exits ? impostor->code : 0);
}

/* ---- the functions of the C library */

#define NEXT(name, result, ...)                                                                    \
    static result (*next)(__VA_ARGS__);                                                            \
    if (next == NULL) *(void **)&next = dlsym(RTLD_NEXT, name)

pid_t fork(void)
{
    NEXT("fork", pid_t, void);
    if (fails("fork")) return -1;
    const pid_t pid = next();
    if (pid == 0) failing = NULL; /* only calls of the parent may fail */
    if (pid == 0 && used != NULL) be(used);
    return pid;
}

int socketpair(int family, int type, int protocol, int fd[2])
{
    NEXT("socketpair", int, int, int, int, int[2]);
    if (fails("socketpair")) return -1;
    const int result = next(family, type, protocol, fd);
    if (result == 0) pair[0] = fd[0], pair[1] = fd[1];
    return result;
}

int pipe(int fd[2])
{
    NEXT("pipe", int, int[2]);
    return fails("pipe") ? -1 : next(fd);
}

ssize_t send(int fd, const void *of, size_t n, int flags)
{
    NEXT("send", ssize_t, int, const void *, size_t, int);
    return fails("send") ? -1 : next(fd, of, n, flags);
}

ssize_t recv(int fd, void *to, size_t n, int flags)
{
    NEXT("recv", ssize_t, int, void *, size_t, int);
    if (fails("recv")) return -1;
    const ssize_t got = next(fd, to, n, flags);
    if (got > 0 && recorded != NULL) str_add_bytes(recorded, to, (size_t)got);
    return got;
}

int poll(struct pollfd *of, nfds_t n, int limit_ms)
{
    NEXT("poll", int, struct pollfd *, nfds_t, int);
    if (fails("poll")) return -1;
    if (!is_late) return next(of, n, limit_ms);
    later_s += 1 + limit_ms / 1000;
    return 0;
}

pid_t waitpid(pid_t pid, int *status, int how)
{
    NEXT("waitpid", pid_t, pid_t, int *, int);
    return fails("waitpid") ? -1 : next(pid, status, how);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    const int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0) now->tv_sec += later_s;
    return result;
}
