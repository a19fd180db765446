/* Starts the ranks under mpirun and watches them. Watching is needed for two reasons: mpirun does
 * not tell which rank died, and it waits forever for a rank that a signal has stopped. */
#include "exec/launch/launch.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "exec/launch/status.h"
#include "exec/module/modules.h"
#include "planner/base/clock.h"

extern char **environ;

enum { EXIT_OWN_MAX = 7, EXIT_NO_MPIRUN = 127, LOOK_NS = 20000000 };

/* Seconds that mpirun gets to end the ranks of a failed run. After that, this process sends SIGTERM
 * to mpirun and, kill_s seconds later, SIGKILL to mpirun and the ranks. */
static const double patience_s = 4, kill_s = 2;
/* Seconds after the first death during which other ranks that die are added to the report. */
static const double died_s = 0.3;
/* Ranks end a run by themselves after the timeout. This process waits this many seconds longer. */
static const double slack_s = 3;
/* MPI_Finalize waits for all ranks. If a rank has been gone for this many seconds while others
 * remain, it cannot have reached MPI_Finalize. */
static const double leave_s = 10;
/* Longest time in seconds between the start of the first rank and that of the last rank. */
static const double start_s = 60;

static const Loc nowhere = {NULL, 0};

bool launch_inside(uint32_t *n_ranks, uint32_t *rank, const char **flavour)
{
    static const struct {
        const char *size, *rank, *flavour;
    } known[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "openmpi"},
                 {"PMI_SIZE", "PMI_RANK", "mpich"},
                 {"WORLD_SIZE", "RANK", LAUNCH_TCP},
                 {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", NULL}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const char *size = getenv(known[i].size), *mine = getenv(known[i].rank);
        if (size == NULL || mine == NULL) continue;
        /* RANK and WORLD_SIZE may have been set for another reason */
        if (known[i].flavour && strcmp(known[i].flavour, LAUNCH_TCP) == 0 && !getenv("MASTER_ADDR"))
            continue;
        /* a shell in an sbatch script also has Slurm's variables, but is no rank */
        if (known[i].flavour == NULL && strtoul(size, NULL, 10) < 2) continue;
        if (n_ranks) *n_ranks = (uint32_t)strtoul(size, NULL, 10);
        if (rank) *rank = (uint32_t)strtoul(mine, NULL, 10);
        const char *asked = getenv("TANDEM_MPI");
        const char *by_slurm = asked && *asked       ? asked
                               : getenv("PMIX_RANK") ? "openmpi"
                               : getenv("PMI_RANK")  ? "mpich"
                                                     : LAUNCH_TCP;
        if (flavour) *flavour = known[i].flavour ? known[i].flavour : by_slurm;
        return true;
    }
    return false;
}

/* ---- the command line ---- */

static const char *find_program(const char *name, Arena *arena)
{
    const char *path = getenv("PATH");
    for (const char *at = path; at && *at;) {
        size_t n = strcspn(at, ":");
        const char *full = arena_print(arena, "%.*s/%s", (int)n, at, name);
        if (n > 0 && access(full, X_OK) == 0) return full;
        at += n + (at[n] == ':');
    }
    return NULL;
}

typedef struct Launcher {
    const char *flavour, *mpirun;
} Launcher;

static bool find_launcher(const LaunchOptions *o, Arena *arena, Launcher *l, Diag *d)
{
    static const char *const order[] = {"openmpi", "mpich"};
    const char *asked = o->flavour ? o->flavour : getenv("TANDEM_MPI");
    if (asked && *asked == 0) asked = NULL;
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        if (asked && strcmp(asked, order[i]) != 0) continue;
        if (module_path(order[i], o->module_dir, arena) == NULL) continue;
        l->flavour = order[i];
        l->mpirun = find_program(arena_print(arena, "mpirun.%s", order[i]), arena);
        if (l->mpirun == NULL && asked) l->mpirun = find_program("mpirun", arena);
        if (l->mpirun) return true;
    }
    diag_error(d, FAULT_run, "mpirun-missing", nowhere,
               "no mpirun was found for which Tandem has a module%s%s",
               asked ? "; the chosen MPI is " : "", asked ? asked : "");
    diag_hint(d, "install openmpi-bin or mpich and build Tandem again, or use --backend loopback");
    return false;
}

static char **command_line(const Launcher *l, const char *const *argv, uint32_t n, Arena *arena)
{
    char self[4096];
    LIST(char *) list = {0};
    static const char *const openmpi[] = {"--allow-run-as-root",
                                          "--oversubscribe",
                                          "--quiet",
                                          "--bind-to",
                                          "none",
                                          "--mca",
                                          "btl_vader_single_copy_mechanism",
                                          "none",
                                          NULL};
    list_push(arena, &list, arena_dup(arena, l->mpirun));
    for (uint32_t i = 0; strcmp(l->flavour, "openmpi") == 0 && openmpi[i]; i++)
        list_push(arena, &list, arena_dup(arena, openmpi[i]));
    list_push(arena, &list, arena_dup(arena, "-n"));
    list_push(arena, &list, arena_print(arena, "%u", n));
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length > 0) self[length] = 0;
    list_push(arena, &list, arena_dup(arena, length > 0 ? self : argv[0]));
    for (uint32_t i = 1; argv[0] && argv[i]; i++)
        list_push(arena, &list, arena_dup(arena, argv[i]));
    list_push(arena, &list, NULL);
    return list.at;
}

/* Returns the environment of the ranks. A variable of the run replaces an existing one with the
 * same name. */
static char **environment(const char *status_path, const Launcher *l, const LaunchOptions *o,
                          Arena *arena)
{
    LIST(char *) list = {0};
    list_push(arena, &list, arena_print(arena, "%s=%s", STATUS_VARIABLE, status_path));
    list_push(arena, &list, arena_print(arena, "OPENBLAS_NUM_THREADS=1"));
    list_push(arena, &list, arena_print(arena, "TANDEM_MPI=%s", l->flavour));
    if (o->module_dir)
        list_push(arena, &list, arena_print(arena, "TANDEM_MODULE_DIR=%s", o->module_dir));
    uint32_t n_ours = list.n;
    for (char **e = environ; *e; e++) {
        bool replaced = false;
        for (uint32_t i = 0; i < n_ours; i++)
            replaced = replaced || strncmp(*e, list.at[i], strcspn(list.at[i], "=") + 1) == 0;
        if (!replaced) list_push(arena, &list, *e);
    }
    list_push(arena, &list, NULL);
    return list.at;
}

/* ---- watching ---- */

typedef struct Watch {
    pid_t mpirun;
    Status *status;
    uint32_t n_ranks;
    int exit_status; /* exit status of mpirun, once it has ended */
    int signal;      /* signal that this process has received and passed on; 0: none */
    bool is_dead_known;
    Str dead; /* such as "rank 2 (pid 123, step 7) died" */
    /* lost_s: last time at which no rank had disappeared with an open backend. left_s: last time at
     * which no rank, or every rank, had ended. came_s: last time at which no rank, or every rank,
     * had started */
    double lost_s, left_s, came_s;
    uint64_t count;    /* sum of StatusSlot.count over all ranks */
    double progress_s; /* time at which `count` last changed */
    /* time at which the run was found to have failed; 0: it has not failed */
    double verdict_s;
    int escalation;
    bool hung; /* no rank has made progress, and no rank has reported this */
    /* last time at which no rank was stopped; time of the last check. A long time between two
     * checks means that this process was stopped, too. */
    double running_s, look_s;
    uint32_t stopped;      /* 1 + a rank that a signal has stopped; 0: none */
    uint32_t stopped_step; /* its step, noted early because mpirun lets the rank continue before it
                              ends the rank */
} Watch;

static bool is_gone(int32_t pid)
{
    char c = status_process(pid);
    return c == 0 || c == 'Z' || c == 'X';
}

static void name_rank(Watch *w, uint32_t r, const char *what)
{
    const StatusSlot *slot = &w->status->slots[r];
    str_print(&w->dead, "%srank %u (pid %d, step %u) %s", w->is_dead_known ? ", " : "", r,
              (int)atomic_load(&slot->pid), atomic_load(&slot->step), what);
    w->is_dead_known = true;
}

/* Reports how the first rank died, as its supervisor has recorded it. Returns false if no death is
 * recorded. */
static bool name_first_dead(Watch *w)
{
    for (uint32_t r = 0; r < w->n_ranks; r++) {
        const StatusSlot *slot = &w->status->slots[r];
        if (atomic_load(&slot->death) != 1) continue;
        int status = atomic_load(&slot->wait_status);
        char what[128];
        if (WIFSIGNALED(status))
            snprintf(what, sizeof what, "died of signal %d (%s)", WTERMSIG(status),
                     strsignal(WTERMSIG(status)));
        else
            snprintf(what, sizeof what, "left with code %d in the middle of the run",
                     WEXITSTATUS(status));
        name_rank(w, r, what);
        return true;
    }
    return false;
}

/* Finds a rank whose process has disappeared in the middle of a run. This is needed if there are no
 * supervisors, or if the supervisor was killed together with its rank. A rank also counts as dead
 * if it does not start within start_s seconds after another one. */
static void look_for_dead(Watch *w, bool is_over)
{
    if (w->is_dead_known || name_first_dead(w)) return;
    uint32_t n_gone = 0, n_came = 0, n_lost = 0;
    for (uint32_t r = 0; r < w->n_ranks; r++) {
        const StatusSlot *slot = &w->status->slots[r];
        int32_t pid = atomic_load(&slot->pid);
        if (pid == 0) continue;
        n_came++;
        if (!is_gone(pid)) continue;
        n_gone++;
        n_lost += atomic_load(&slot->state) != STATUS_absent;
    }
    double now = clock_s();
    if (n_lost == 0) w->lost_s = now;
    if (n_gone == 0 || n_gone == w->n_ranks) w->left_s = now;
    if (n_came == 0 || n_came == w->n_ranks) w->came_s = now;
    for (uint32_t r = 0; r < w->n_ranks; r++) {
        const StatusSlot *slot = &w->status->slots[r];
        int32_t pid = atomic_load(&slot->pid);
        bool gone = pid != 0 && is_gone(pid), open = atomic_load(&slot->state) != STATUS_absent;
        if (pid == 0 && now - w->came_s > start_s) name_rank(w, r, "never began");
        if (gone && (open ? is_over || now - w->lost_s > died_s : now - w->left_s > leave_s))
            name_rank(w, r, "died");
    }
}

static bool are_stepping(const Watch *w)
{
    for (uint32_t r = 0; r < w->n_ranks; r++)
        if (atomic_load(&w->status->slots[r].state) == STATUS_stepping) return true;
    return false;
}

static void look_at_progress(Watch *w, double timeout_s)
{
    uint64_t count = 0;
    for (uint32_t r = 0; r < w->n_ranks; r++) count += atomic_load(&w->status->slots[r].count);
    if (count != w->count || !are_stepping(w)) w->progress_s = clock_s();
    w->count = count;
    if (clock_s() - w->progress_s > timeout_s + slack_s) w->hung = true;
}

/* Finds ranks that a signal has stopped, because they cannot report this themselves. */
static void look_for_stopped(Watch *w, double timeout_s)
{
    double now = clock_s();
    if (now - w->look_s > 1) w->running_s = now;
    w->look_s = now;
    uint32_t stopped = 0;
    for (uint32_t r = 0; r < w->n_ranks && stopped == 0; r++) {
        int32_t pid = atomic_load(&w->status->slots[r].pid);
        if (pid != 0 && status_process(pid) == 'T') stopped = r + 1;
    }
    if (stopped == 0) w->running_s = now;
    if (now - w->running_s <= timeout_s + slack_s) return;
    w->stopped = stopped;
    if (stopped != 0) w->stopped_step = atomic_load(&w->status->slots[stopped - 1].step);
    w->hung = true;
}

static void kill_all(const Watch *w, int number)
{
    for (uint32_t r = 0; number == SIGKILL && r < w->n_ranks; r++) {
        int32_t pid = atomic_load(&w->status->slots[r].pid);
        if (pid > 0 && atomic_load(&w->status->slots[r].state) != STATUS_absent) kill(pid, SIGKILL);
    }
    kill(w->mpirun, number);
}

/* Ends the ranks step by step if mpirun does not end them after a failure. */
static void escalate(Watch *w)
{
    bool failed = atomic_load(&w->status->verdict) == 2 || w->hung || w->is_dead_known;
    if (!failed && w->signal == 0) return;
    if (w->verdict_s == 0) w->verdict_s = clock_s();
    double since = clock_s() - w->verdict_s;
    double patience = w->hung ? 0 : patience_s;
    if (w->escalation == 0 && since > patience) {
        kill_all(w, SIGTERM);
        w->escalation = 1;
    } else if (w->escalation == 1 && since > patience + kill_s) {
        kill_all(w, SIGKILL);
        w->escalation = 2;
    }
}

static void watch(Watch *w, const sigset_t *signals, double timeout_s)
{
    w->progress_s = w->lost_s = w->left_s = w->came_s = w->running_s = w->look_s = clock_s();
    for (;;) {
        pid_t ended = waitpid(w->mpirun, &w->exit_status, WNOHANG);
        bool is_over = ended == w->mpirun || (ended < 0 && errno != EINTR);
        look_for_dead(w, is_over);
        if (is_over) return;
        look_at_progress(w, timeout_s);
        if (!w->hung) look_for_stopped(w, timeout_s);
        escalate(w);
        struct timespec t = {0, LOOK_NS};
        int number = sigtimedwait(signals, NULL, &t);
        if (number > 0 && w->signal == 0) {
            w->signal = number;
            kill(w->mpirun, number == SIGHUP ? SIGTERM : number);
        }
    }
}

/* Waits until all ranks have ended, but at most leave_s seconds. Ranks can outlive mpirun for a
 * moment. */
static void wait_for_ranks(const Watch *w)
{
    const struct timespec pause = {0, LOOK_NS / 10};
    double until = clock_s() + leave_s;
    for (uint32_t r = 0; r < w->n_ranks && clock_s() < until;) {
        int32_t pid = atomic_load(&w->status->slots[r].pid);
        if (pid == 0 || is_gone(pid))
            r++;
        else
            nanosleep(&pause, NULL);
    }
}

/* ---- the result of the run ---- */

static LaunchEnd end_of(const Watch *w)
{
    LaunchEnd end = {.signal = w->signal, .stepped = true, .step = UINT32_MAX};
    for (uint32_t r = 0; r < w->n_ranks; r++) {
        const StatusSlot *slot = &w->status->slots[r];
        const uint32_t step = atomic_load(&slot->step);
        end.stepped = end.stepped && atomic_load(&slot->count) > 0;
        if (step < end.step) end.step = step;
    }
    return end;
}

static int verdict(Watch *w, Diag *d)
{
    int status = w->exit_status;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (w->signal) return 128 + w->signal;
    if (atomic_load(&w->status->verdict) == 2) {
        diag_error(d, FAULT_run, arena_dup(d->arena, w->status->rule), nowhere, "%s",
                   w->status->text);
        return EXIT_RUN_FAILED;
    }
    if (w->hung && w->stopped != 0) {
        const StatusSlot *slot = &w->status->slots[w->stopped - 1];
        diag_error(d, FAULT_run, "run-stuck", nowhere,
                   "rank %u (pid %d, step %u) was stopped by a signal and did not continue",
                   w->stopped - 1, (int)atomic_load(&slot->pid), w->stopped_step);
        return EXIT_RUN_FAILED;
    }
    if (w->is_dead_known) {
        diag_error(d, FAULT_run, "rank-died", nowhere, "%s; mpirun ended with %d",
                   str_text(&w->dead), code);
        return EXIT_RUN_FAILED;
    }
    if (w->hung) {
        diag_error(d, FAULT_run, "run-stuck", nowhere,
                   "no rank made progress, and none reported a reason");
        return EXIT_RUN_FAILED;
    }
    if (code <= EXIT_OWN_MAX) return code; /* the ranks have reported their errors themselves */
    diag_error(d, FAULT_run, "rank-died", nowhere, "a rank died; mpirun ended with %d", code);
    return EXIT_RUN_FAILED;
}

/* Starts mpirun. If this process ends, mpirun gets SIGTERM and then ends the ranks. */
static bool spawn(char **argv, char **env, const sigset_t *mask, pid_t *child, Diag *d)
{
    pid_t self = getpid();
    fflush(NULL);
    *child = fork();
    if (*child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != self) _exit(EXIT_RUN_FAILED);
        sigprocmask(SIG_SETMASK, mask, NULL);
        execve(argv[0], argv, env);
        _exit(EXIT_NO_MPIRUN);
    }
    return *child > 0 || diag_error(d, FAULT_run, "mpirun-missing", nowhere, "cannot start %s: %s",
                                    argv[0], strerror(errno));
}

int exec_launch(const char *const *argv, const LaunchOptions *options, LaunchEnd *end, Arena *arena,
                Diag *d)
{
    Launcher launcher;
    char path[512];
    *end = (LaunchEnd){0};
    assert(argv[0] != NULL);
    assert(options->n_ranks > 0);
    if (!find_launcher(options, arena, &launcher, d)) return EXIT_RUN_FAILED;
    Watch w = {.n_ranks = options->n_ranks, .dead = str_in(arena)};
    w.status = status_create(options->n_ranks, path, sizeof path, d);
    if (w.status == NULL) return EXIT_RUN_FAILED;
    /* These signals are blocked, and watch() reads them. So they cannot end this process while
     * ranks still run. */
    sigset_t signals, before;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, &before);
    int code = EXIT_RUN_FAILED;
    if (spawn(command_line(&launcher, argv, options->n_ranks, arena),
              environment(path, &launcher, options, arena), &before, &w.mpirun, d)) {
        watch(&w, &signals, options->timeout_s > 0 ? options->timeout_s : 60);
        wait_for_ranks(&w);
        code = verdict(&w, d);
        *end = end_of(&w);
    }
    unlink(path);
    status_unmap(w.status);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return code;
}
