/* The limits on a script's processor time and memory. The time limit has two stages. First, a hook
 * makes the interpreter raise an error at its next instruction. Code that does not return to the
 * interpreter, such as a slow pattern match, does not notice. So after some more signals of the
 * timer, the signal handler itself reports the line and ends the process. Memory is limited in
 * Lua's allocator and by the size of the address space (RLIMIT_AS). */
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

/* True if the script has used up its memory. Near the limit, every refused allocation makes Lua
 * collect garbage and ask again. If several collections in a row free almost nothing, the script
 * would continue like this until its time is up. The error would then name time instead of memory.
 */
static bool is_spent(Child *c)
{
    bool asked_again = c->collected;
    c->collected = false;
    if (!asked_again) return false;
    bool tight = c->memory > (size_t)CHILD_MOST_LUA_BYTES - CHILD_MOST_LUA_BYTES / 16;
    c->n_tight = tight ? c->n_tight + 1 : 0;
    return c->n_tight > TIGHT_MOST;
}

/* If the script would exceed its limit, returns NULL: Lua then collects garbage, asks again, and if
 * that also fails, raises a memory error. Scripts cannot have finalizers (__gc), because Lua would
 * run them with hooks switched off and would only warn about their memory errors. */
void *child_allocate(void *self, void *at, size_t old, size_t size)
{
    Child *c = self;
    /* for a new block, Lua passes the object's type in `old` */
    if (at == NULL) old = 0;
    if (size == 0) {
        c->memory -= old;
        return child_resize(&c->pool, at, old, 0);
    }
    if (size > old) {
        bool over = size - old > (size_t)CHILD_MOST_LUA_BYTES - c->memory;
        if (is_spent(c) || over) {
            ScriptLoc loc = c->L != NULL ? child_loc(c, true) : (ScriptLoc){0, 0};
            /* source 0: Lua is unwinding its stack; keep the location of the first refusal */
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

/* Installs a hook that raises an error at every call, return, line and instruction, so the script
 * ends even if it catches errors. */
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

/* Called in the signal handler: sends the script's line and, if a C function runs, its name to the
 * parent, and ends the process. The interpreter's stack is read although the signal may have
 * interrupted a change of it; in the worst case the process crashes without reporting a line. While
 * a C function runs, the stack does not change. */
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

/* Returns the size of this process's address space in bytes, or 0 if it is unknown. Allocates
 * nothing, because it is called when memory has run out. */
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
/* size of the address space when child_limit was called [bytes]; 0: memory is not limited */
static uint64_t bytes_at_start;

_Noreturn void child_out_of_memory(void *self)
{
    (void)self;
    if (bytes_at_start > 0 && address_space_bytes() > bytes_at_start + most_growth / 2) abort();
    _exit(CHILD_NO_MEMORY);
}

/* Sets all limits. The process of a held script answers many requests (child.h), and its processor
 * time adds up over them. So it gets no RLIMIT_CPU; its timer starts anew for each request
 * instead. */
void child_limit(Child *c)
{
    rlim_t seconds = (rlim_t)c->cpu_s + 4;
    if (!c->held) lower_limit(RLIMIT_CPU, seconds, seconds + 1);
    lower_limit(RLIMIT_CORE, 0, 0);
    lower_limit(RLIMIT_NOFILE, 32, 32);
/* AddressSanitizer reserves more address space than any limit */
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
        _exit(1); /* no script may run without its limits */
    child_limit_again(c);
}

void child_limit_again(Child *c)
{
    const long whole = (long)c->cpu_s;
    const struct itimerspec when = {.it_interval = {0, 200000000},
                                    .it_value = {whole, (long)((c->cpu_s - (double)whole) * 1e9)}};
    if (timer_settime(c->timer, 0, &when, NULL) != 0) _exit(1);
}
