/* Part of every mutant. A mutant may compute a wrong process id, and kill() of -1 would end every
 * process of the machine. Such a mutant ends itself instead. */
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

long syscall(long number, ...);

int kill(pid_t pid, int sig)
{
    if (pid == -1 || pid == 1) abort();
    return (int)syscall(SYS_kill, pid, sig);
}
