/* The supervisor: a process between mpirun and a rank. It notices the end of its rank before mpirun
 * does, and so before mpirun ends the other ranks. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "exec/launch/launch.h"
#include "exec/launch/status.h"

#define SUPERVISED_VARIABLE "TANDEM_SUPERVISED"

enum { LOOK_NS = 500000000 };

static bool is_there(int32_t pid)
{
    return kill(pid, 0) == 0 || errno != ESRCH;
}

/* Ends the rank after the command was killed, because no process is left that would read the
 * results. */
static _Noreturn void end_without_launcher(pid_t child)
{
    kill(child, SIGKILL);
    unlink(getenv(STATUS_VARIABLE)); /* the command would have removed the file */
    _exit(EXIT_RUN_FAILED);
}

/* Waits for the end of the rank and records how it ended. `news` contains SIGCHLD, which is
 * blocked, so that the end of the rank wakes this process at once. */
static _Noreturn void supervise(Status *status, StatusSlot *slot, pid_t child, const sigset_t *news)
{
    int how = 0;
    for (;;) {
        pid_t ended = waitpid(child, &how, WNOHANG);
        if (ended == child) break;
        if (ended < 0 && errno != EINTR) _exit(EXIT_RUN_FAILED);
        if (!is_there(status->launcher)) end_without_launcher(child);
        sigtimedwait(news, NULL, &(struct timespec){0, LOOK_NS});
    }
    bool died = WIFSIGNALED(how) || atomic_load(&slot->state) > STATUS_begun;
    if (died) {
        atomic_store(&slot->wait_status, how);
        atomic_store(&slot->death, atomic_fetch_add(&status->n_dead, 1) + 1);
    } else {
        atomic_store(&slot->state, STATUS_absent);
    }
    int code = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    _exit(died && code == 0 ? EXIT_RUN_FAILED : code);
}

bool launch_is_supervised(void)
{
    return getenv(SUPERVISED_VARIABLE) != NULL;
}

void launch_supervise(void)
{
    uint32_t n_ranks = 0, rank = 0;
    if (getenv(SUPERVISED_VARIABLE) || !launch_inside(&n_ranks, &rank, NULL)) return;
    Status *status = status_join(n_ranks);
    if (status == NULL || rank >= n_ranks) return;
    fflush(NULL);
    sigset_t news, before;
    sigemptyset(&news);
    sigaddset(&news, SIGCHLD);
    sigprocmask(SIG_BLOCK, &news, &before);
    pid_t supervisor = getpid(), child = fork();
    if (child > 0) supervise(status, &status->slots[rank], child, &news);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (child < 0) return; /* the rank runs without a supervisor */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != supervisor) _exit(EXIT_RUN_FAILED);
    setenv(SUPERVISED_VARIABLE, "1", 1);
    atomic_store(&status->slots[rank].pid, (int32_t)getpid());
    atomic_store(&status->slots[rank].state, STATUS_begun);
    status_unmap(status);
}
