/* Part of the build that counts the lines that a test reaches. A killed process would write no
 * counts. So _exit() writes them, and a process is killed only after it had time to end by
 * itself. */
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void __gcov_dump(void);
_Noreturn void __real__exit(int code);
_Noreturn void __wrap__exit(int code);
int __real_kill(pid_t pid, int sig);
int __wrap_kill(pid_t pid, int sig);

void __wrap__exit(int code)
{
    __gcov_dump();
    __real__exit(code);
}

enum { PATIENCE_MS = 2000 };

int __wrap_kill(pid_t pid, int sig)
{
    const struct timespec ms = {0, 1000000};
    for (int i = 0; sig == SIGKILL && pid > 1 && i < PATIENCE_MS; i++) {
        siginfo_t ended = {.si_pid = 0};
        if (waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT) != 0) break;
        if (ended.si_pid != 0) break;
        nanosleep(&ms, NULL);
    }
    return __real_kill(pid, sig);
}
