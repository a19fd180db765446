/* Reports a failed library call: the call, its line in the source, and the library's message. If
 * several calls of an operation fail, only the first one is reported, because the others follow
 * from it. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "exec/cuda/private.h"
#include "planner/base/clock.h"

static const Loc nowhere = {NULL, 0};

bool cuda_fail(Cuda *c, const char *rule, const char *format, ...)
{
    char text[2048];
    va_list args;
    if (c->failed || c->d == NULL) return false;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    c->failed = true;
    record_write(c, rule, text);
    c->why_rule = rule;
    c->why = arena_dup(c->arena, text);
    return diag_error(c->d, FAULT_run, rule, nowhere, "%s", text);
}

/* Returns the path of a source file within the repository, wherever it was compiled. */
static const char *place(const char *file)
{
    const char *own = strstr(file, "exec/cuda/");
    return own ? own : file;
}

static const char *rule_of(cudaError_t error)
{
    if (error == cudaErrorMemoryAllocation) return "cuda-memory";
    if (error == cudaErrorNoDevice || error == cudaErrorStubLibrary) return "cuda-no-device";
    return error == cudaErrorInsufficientDriver ? "cuda-driver" : "cuda";
}

bool cuda_checked(Cuda *c, cudaError_t error, const char *call, const char *file, int line)
{
    if (error == cudaSuccess) return true;
    cudaGetLastError(); /* clears the error; otherwise a later call would report it again */
    return cuda_fail(c, rule_of(error), "rank %u, %s:%d: %s: %s (%s)", c->rank, place(file), line,
                     call, cudaGetErrorString(error), cudaGetErrorName(error));
}

static double limit_s(const Cuda *c)
{
    return c->watch.watched ? c->options.timeout_s : c->watch.patience_s;
}

/* Waits until a nonblocking communicator has finished its last call. Sets *is_late if this takes
 * too long. */
static ncclResult_t settle(Cuda *c, ncclComm_t comm, bool *is_late)
{
    double until = clock_s() + limit_s(c);
    const struct timespec pause = {0, 20000};
    ncclResult_t state = ncclInProgress;
    for (uint32_t polls = 0; state == ncclInProgress; polls++) {
        ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
        if (asked != ncclSuccess) return asked;
        if (state != ncclInProgress) break;
        *is_late = clock_s() > until;
        if (*is_late || (!c->watch.closing && c->meet->gone(c->meet))) return ncclInProgress;
        if (polls > 100) nanosleep(&pause, NULL);
    }
    return state;
}

bool nccl_checked(Cuda *c, const ncclComm_t *of, ncclResult_t result, const char *call,
                  const char *file, int line)
{
    bool is_late = false;
    ncclComm_t comm = of ? *of : NULL;
    /* A split, and the registration of a window, may return ncclSuccess at once although they
     * continue in NCCL's own thread (NCCL 2.28.9, init.cc and dev_runtime.cc). So ncclSuccess must
     * be checked like ncclInProgress. */
    bool may_go_on = result == ncclInProgress || result == ncclSuccess;
    if (may_go_on && comm != NULL) result = settle(c, comm, &is_late);
    if (result == ncclSuccess) return true;
    c->watch.dead = true; /* neither this communicator nor any that was split from it can be used
                             after an error */
    if (is_late)
        return cuda_fail(c, "timeout", "rank %u, %s:%d: %s did not end within %g s", c->rank,
                         place(file), line, call, limit_s(c));
    if (result == ncclInProgress)
        return cuda_fail(c, "rank-died", "rank %u, %s:%d: in %s: %s", c->rank, place(file), line,
                         call, c->meet->why);
    const char *more = ncclGetLastError(comm);
    return cuda_fail(c, "nccl", "rank %u, %s:%d: %s: %s%s%s", c->rank, place(file), line, call,
                     ncclGetErrorString(result), more && *more ? "; " : "", more ? more : "");
}
