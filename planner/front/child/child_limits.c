/* The limits of a script. The limit on time has two stages. At the first, the interpreter is told
 * to raise an error. Code that never returns to the interpreter (patterns, C loops, finalizers)
 * ignores this. At the second stage, a signal handler therefore reports the line and ends the
 * process. Memory is limited by the allocator and by the size of the address space. */
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "planner/front/child/child.h"

enum { STAGES_MOST = 12, TIGHT_MOST = 4 };

/* True if the script has used up its memory and Lua cannot free any. Near the limit, Lua collects
 * garbage at every allocation. If each collection frees almost nothing, this would go on until the
 * time is up. The function detects this early, so that the error names memory and not time. */
static bool is_spent(Child *c)
{
    bool asked_again = c->collected;
    c->collected = false;
    if (!asked_again) return false;
    bool tight = c->memory > (size_t)CHILD_MOST_LUA_BYTES - CHILD_MOST_LUA_BYTES / 16;
    c->n_tight = tight ? c->n_tight + 1 : 0;
    return c->n_tight > TIGHT_MOST;
}

/* Lua's allocator. An allocation beyond the limit raises an error that the script cannot hide.
 * Scripts have no finalizers, because a finalizer runs without hooks, and Lua only warns about its
 * memory errors. */
void *child_allocate(void *self, void *at, size_t old, size_t size)
{
    Child *c = self;
    /* without a block, Lua passes the type of the new object in `old`, not a size */
    if (at == NULL) old = 0;
    if (size == 0) {
        c->memory -= old;
        return child_resize(&c->pool, at, old, 0);
    }
    if (size > old) {
        bool over = size - old > (size_t)CHILD_MOST_LUA_BYTES - c->memory;
        if (is_spent(c) || over) {
            ScriptLoc loc = c->L != NULL ? child_loc(c, true) : (ScriptLoc){0, 0};
            /* source 0 means that Lua is unwinding the stack, so the location found earlier
             * is kept */
            if (loc.source != 0) c->memory_loc = loc;
            c->collected = true;
            return NULL;
        }
    }
    void *moved = child_resize(&c->pool, at, old, size);
    if (moved != NULL) c->memory = c->memory - old + size;
    c->system_refused = moved == NULL;
    return moved;
}

static void stop_hook(lua_State *L, lua_Debug *ar)
{
    (void)ar;
    Child *c = child_of(L);
    if (c->fired == 0 && !c->flooded) c->stop_loc = child_loc(c, true);
    c->fired = c->fired < 1000 ? c->fired + 1 : c->fired;
    luaL_where(L, 0);
    lua_pushliteral(L, "the script was stopped because it makes no progress");
    lua_concat(L, 2);
    lua_error(L);
}

/* Makes the script fail at each of its next steps, so that it ends even if it catches errors. */
static void stop_soon(Child *c)
{
    lua_sethook(c->L, stop_hook, LUA_MASKCALL | LUA_MASKRET | LUA_MASKLINE | LUA_MASKCOUNT, 1);
}

void child_stop(Child *c)
{
    c->stop_loc = child_loc(c, true);
    stop_soon(c);
    luaL_error(c->L, "the script was stopped");
    abort(); /* luaL_error does not return */
}

/* Signal handler: reports the line that runs now by reading the interpreter's stack. While C code
 * runs, the stack does not change. If the signal interrupts a change of the stack, the process at
 * worst ends without reporting its line. */
static void last_words(Child *c)
{
    struct {
        ScriptLoc loc;
        char function[56];
    } words;
    memset(&words, 0, sizeof words);
    lua_Debug ar;
    if (lua_getstack(c->L, 0, &ar) && lua_getinfo(c->L, "Sn", &ar) && ar.what[0] == 'C' &&
        ar.name != NULL && strcmp(ar.name, "?") != 0)
        snprintf(words.function, sizeof words.function, "%s", ar.name);
    words.loc = child_loc(c, true);
    ssize_t written = write(c->words, &words, sizeof words);
    _exit(written == (ssize_t)sizeof words ? 0 : 1);
}

static void on_timer(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    Child *c = info->si_value.sival_ptr;
    c->expired++;
    if (c->expired == 1) {
        stop_soon(c);
        return;
    }
    if (c->fired == c->fired_before || c->expired >= STAGES_MOST) last_words(c);
    c->fired_before = c->fired;
}

static void lower_limit(int which, rlim_t soft, rlim_t hard)
{
    struct rlimit limit;
    if (getrlimit(which, &limit) != 0) return;
    if (limit.rlim_max != RLIM_INFINITY && hard > limit.rlim_max) hard = limit.rlim_max;
    if (soft > hard) soft = hard;
    limit = (struct rlimit){soft, hard};
    setrlimit(which, &limit);
}

/* Returns the size of this process's address space in bytes, or 0 if it is unknown. Allocates no
 * memory, because memory may be used up. */
static uint64_t address_space_bytes(void)
{
    char text[64];
    const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = 0;
    const long page = sysconf(_SC_PAGESIZE);
    return page > 0 ? strtoull(text, NULL, 10) * (uint64_t)page : 0;
}

static const uint64_t most_growth = UINT64_C(2) << 30;
/* size of the address space just after the fork [bytes]; 0: no limit on memory */
static uint64_t bytes_at_start;

_Noreturn void child_out_of_memory(void *self)
{
    (void)self;
    if (bytes_at_start > 0 && address_space_bytes() > bytes_at_start + most_growth / 2) abort();
    _exit(CHILD_NO_MEMORY);
}

/* Sets all limits. A script that is held open gets no RLIMIT_CPU, because its processor time grows
 * with each request. Only the timer limits it, and the timer starts anew for each request. */
void child_limit(Child *c)
{
    rlim_t seconds = (rlim_t)c->cpu_s + 4;
    if (!c->held) lower_limit(RLIMIT_CPU, seconds, seconds + 1);
    lower_limit(RLIMIT_CORE, 0, 0);
    lower_limit(RLIMIT_NOFILE, 32, 32);
/* the shadow memory of AddressSanitizer alone is larger than any limit */
#if !defined(__SANITIZE_ADDRESS__)
    bytes_at_start = address_space_bytes();
    const rlim_t most = bytes_at_start + most_growth;
    if (bytes_at_start > 0) lower_limit(RLIMIT_AS, most, most);
#endif
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_timer;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigemptyset(&action.sa_mask);
    struct sigevent event;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGALRM;
    event.sigev_value.sival_ptr = c;
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    sigprocmask(SIG_UNBLOCK, &alarm_only, NULL);
    if (sigaction(SIGALRM, &action, NULL) != 0 ||
        timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &c->timer) != 0)
        _exit(1); /* a limit could not be set, and no script may run without limits */
    child_limit_again(c);
}

void child_limit_again(Child *c)
{
    const long whole = (long)c->cpu_s;
    const struct itimerspec when = {.it_interval = {0, 200000000},
                                    .it_value = {whole, (long)((c->cpu_s - (double)whole) * 1e9)}};
    if (timer_settime(c->timer, 0, &when, NULL) != 0) _exit(1);
}
