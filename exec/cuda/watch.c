/* Watches a running step: whether it has ended, whether it makes progress, whether another rank has
 * ended, and whether a communicator is broken. Each stream copies the number of its next
 * instruction to pinned memory. The watching code copies this number to the status record, which
 * all ranks of the machine can read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "exec/cuda/private.h"
#include "exec/launch/launch.h"
#include "planner/base/clock.h"

enum { POLLS_BEFORE_SLEEP = 2000, SLEEP_NS = 20000, POLLS_BETWEEN_LOOKS = 16 };
enum { BETWEEN_BEATS_NS = 50000000 };

/* seconds by which the watching thread reports later than the issuing thread would */
#define LATER_S 1.0

/* Creates a status record for ranks that our own launcher did not start. The ranks must all be on
 * one machine. */
static bool make_record(Cuda *c)
{
    char path[sizeof c->report.status_path] = "", *all = NULL;
    bool one_machine = true;
    for (Rank r = 1; r < c->n_ranks; r++)
        one_machine = one_machine && c->comms.all[r].host == c->comms.all[0].host;
    if (!one_machine || c->n_ranks == 1) return true;
    Diag quiet = diag_in(c->arena); /* errors are dropped, because a run can do without the
                                       record */
    if (c->rank == 0) c->report.status = status_create(c->n_ranks, path, sizeof path, &quiet);
    all = arena_array(c->arena, c->n_ranks, sizeof path);
    bool fine = c->meet->exchange(c->meet, path, sizeof path, all, c->watch.patience_s);
    if (fine && c->rank > 0 && all[0] != 0) {
        setenv(STATUS_VARIABLE, all, 1);
        c->report.status = status_join(c->n_ranks);
        unsetenv(STATUS_VARIABLE);
    }
    /* the file is no longer needed once all ranks have mapped it */
    fine = fine && c->meet->exchange(c->meet, path, 1, all, c->watch.patience_s);
    if (c->rank == 0 && path[0] != 0) unlink(path);
    c->report.owns_status = true;
    return fine || cuda_fail(c, "rank-open", "rank %u: %s", c->rank, c->meet->why);
}

bool watch_open(Cuda *c)
{
    uint32_t n = 0, mine = 0;
    if (c->n_ranks > 1 && launch_inside(&n, &mine, NULL)) c->report.status = status_join(n);
    if (c->transport == NULL && c->report.status == NULL && !make_record(c)) return false;
    c->report.slot = c->report.status ? &c->report.status->slots[c->rank] : &c->report.alone;
    atomic_store(&c->report.slot->pid, (int32_t)getpid());
    atomic_store(&c->report.slot->state, STATUS_open);
    return record_open(c);
}

static void end_watcher(Cuda *c)
{
    if (!c->watch.watches) return;
    pthread_mutex_lock(&c->watch.watch_lock);
    pthread_cond_signal(&c->watch.watch_over);
    pthread_mutex_unlock(&c->watch.watch_lock);
    pthread_join(c->watch.watcher, NULL);
    pthread_cond_destroy(&c->watch.watch_over);
    pthread_mutex_destroy(&c->watch.watch_lock);
    c->watch.watches = false;
}

void watch_close(Cuda *c)
{
    atomic_store(&c->watch.ends, true);
    end_watcher(c);
    if (c->report.slot) atomic_store(&c->report.slot->state, STATUS_absent);
    if (!c->failed) record_write(c, NULL, NULL);
    record_close(c);
    c->report.slot = NULL;
    status_unmap(c->report.status);
    c->report.status = NULL;
}

static void record_ending(void *self, const char *rule, const char *text)
{
    record_write(self, rule, text);
}

static Ending ending_of(Cuda *c)
{
    return (Ending){.plan = c->plan,
                    .arena = c->arena,
                    .rank = c->rank,
                    .n_ranks = c->n_ranks,
                    .step = (uint32_t)c->control.step,
                    .status = c->report.status,
                    .prints = c->report.owns_status,
                    .abort = c->meet->abort,
                    .self = c->meet,
                    .record = record_ending,
                    .record_self = c};
}

/* Ends all ranks after the report. comm_abort first stops the communicating thread, so that this
 * thread may use MPI, and aborts the communicators. Nothing is freed, because freeing waits for
 * streams, which may never end. Streams end with the process. */
static void end_ranks(void *self, int code)
{
    Cuda *c = self;
    comm_abort(c);
    c->meet->abort(c->meet, code);
}

static Ending ending_by_issuer(Cuda *c)
{
    Ending e = ending_of(c);
    atomic_store(&c->watch.ends, true); /* so that only one thread reports */
    e.abort = end_ranks;
    e.self = c;
    return e;
}

bool watch_fail(Cuda *c)
{
    if (c->n_ranks == 1 || c->d == NULL || c->d->items.n == 0) return false;
    const Diagnostic *last = &c->d->items.at[c->d->items.n - 1];
    Ending e = ending_by_issuer(c);
    ending_tell(&e, last->rule, last->text);
}

void watch_leave(Cuda *c)
{
    Ending e = ending_of(c);
    if (c->watch.stuck && c->why != NULL) ending_tell(&e, c->why_rule, c->why);
}

Pc watch_actual(const Cuda *c, Pc pc)
{
    uint32_t running = c->watch.unfinished[STREAM_none];
    if (pc == 0 || c->launches.graph == NULL || running >= c->launches.order.n_segments) return pc;
    const Segment *s = &c->launches.order.segment[running],
                  *owner = &c->launches.order.segment[s->same];
    uint32_t at = c->launches.order.at[pc];
    bool inside = at >= owner->first && at - owner->first < owner->n;
    return inside ? c->launches.order.pc[s->first + (at - owner->first)] : pc;
}

/* Copies the positions of the streams to the status record. Returns true if a stream has moved. */
static bool publish(Cuda *c)
{
    bool moved = false;
    for (int s = STREAM_none + 1; s < STREAM_COUNT; s++) {
        Pc unfinished = watch_actual(c, ((volatile uint32_t *)c->watch.unfinished)[s]);
        if (unfinished == c->watch.seen[s]) continue;
        c->watch.seen[s] = unfinished;
        atomic_store(&c->report.slot->unfinished[s], unfinished);
        moved = true;
    }
    if (moved) atomic_fetch_add(&c->report.slot->count, 1);
    return moved;
}

/* Adds the last known position of each stream to a message. */
static void add_places(const Cuda *c, Str *out)
{
    for (int k = STREAM_none + 1; k < STREAM_COUNT; k++)
        if (c->streams.uses[k] && c->watch.seen[k] != 0)
            str_print(out, "\n  %s: at or after %s", stream_name((Stream)k),
                      instr_text(c->plan, c->state.info->p, c->watch.seen[k], c->arena));
}

/* Returns the first communication, in program order, that has begun but not ended. */
static Pc waited_for(const Cuda *c)
{
    Pc first = 0;
    for (int s = STREAM_none + 1; s < STREAM_COUNT; s++) {
        Pc unfinished = c->watch.seen[s];
        bool under_way = unfinished != 0 &&
                         watch_actual(c, ((volatile uint32_t *)c->watch.begun)[s]) == unfinished;
        if (under_way && (first == 0 || unfinished < first)) first = unfinished;
    }
    return first;
}

/* Ends the run after a timeout if there is a single rank. Such a rank only waits for its own
 * device. The device is at most MARK_EVERY instructions ahead of the last published position. */
static _Noreturn void time_out_alone(Cuda *c, Ending *e, double waited_s)
{
    Str s = str_in(c->arena);
    str_print(&s, "step %lld: the device has not gone on for %.1f s", (long long)c->control.step,
              waited_s);
    add_places(c, &s);
    ending_tell(e, "timeout", str_text(&s));
}

static _Noreturn void time_out(Cuda *c, Ending *e, double waited_s)
{
    if (c->n_ranks == 1) time_out_alone(c, e, waited_s);
    Pc pc = waited_for(c);
    ending_timeout(e, pc ? c->state.at[pc].comm : NULL, pc, waited_s);
}

/* Looks at everything that this file watches. Returns false if the step cannot succeed any more. */
static bool look_around(Cuda *c)
{
    double now = clock_s();
    atomic_fetch_add(&c->watch.beat, 1);
    if (publish(c)) c->watch.last_progress_s = now;
    record_look(c);
    if (!comm_errors(c)) return false;
    if (!c->watch.closing && c->meet->gone(c->meet))
        return cuda_fail(c, "rank-died", "%s", c->meet->why);
    double waited = now - c->watch.last_progress_s;
    if (waited <= (c->watch.watched ? c->options.timeout_s : c->watch.patience_s)) return true;
    if (c->watch.watched || c->n_ranks == 1) {
        Ending e = ending_by_issuer(c);
        time_out(c, &e, waited);
    }
    return cuda_fail(c, "timeout", "rank %u waited %.1f s for the other ranks to open %s", c->rank,
                     waited, c->watch.opens);
}

/* ---- the thread that watches the issuing thread ---- */

/* Waits for BETWEEN_BEATS_NS nanoseconds, or until watch_close wakes this thread. */
static void rest_or_end(Cuda *c)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += BETWEEN_BEATS_NS;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_mutex_lock(&c->watch.watch_lock);
    if (!atomic_load(&c->watch.ends))
        pthread_cond_timedwait(&c->watch.watch_over, &c->watch.watch_lock, &until);
    pthread_mutex_unlock(&c->watch.watch_lock);
}

/* The watching thread. If the queue of a stream is full, the issuing thread blocks inside CUDA; if
 * that stream then hangs, the issuing thread cannot watch the step. So this thread watches the
 * issuing thread. It calls neither CUDA nor NCCL. It can only end the process, which also ends the
 * work on the device. */
static void *watch(void *self)
{
    Cuda *c = self;
    uint64_t beat = 0;
    double since = clock_s();
    while (!atomic_load(&c->watch.ends)) {
        rest_or_end(c);
        double now = clock_s();
        uint64_t seen = atomic_load(&c->watch.beat);
        if (seen != beat || !atomic_load(&c->watch.watched)) {
            beat = seen;
            since = now;
        }
        if (now - since <= c->options.timeout_s + LATER_S) continue;
        publish(c);
        Ending e = ending_of(c);
        time_out(c, &e, now - since);
    }
    return NULL;
}

bool watch_begin(Cuda *c)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&c->watch.watch_over, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&c->watch.watch_lock, NULL);
    c->watch.watches = pthread_create(&c->watch.watcher, NULL, watch, c) == 0;
    return c->watch.watches ||
           cuda_fail(c, "rank-open", "rank %u: no thread to watch the step", c->rank);
}

void watch_arm(Cuda *c, bool on)
{
    atomic_fetch_add(&c->watch.beat, 1);
    atomic_store(&c->watch.watched, on);
    atomic_store(&c->report.slot->state, on ? STATUS_stepping : STATUS_preparing);
}

bool watch_exchange(Cuda *c, const void *mine, size_t bytes, void *all)
{
    double start = clock_s(), most = c->watch.patience_s + c->watch.more_s;
    if (c->meet->exchange(c->meet, mine, bytes, all, most)) return true;
    double waited = clock_s() - start;
    if (waited < most) return cuda_fail(c, "rank-died", "rank %u: %s", c->rank, c->meet->why);
    Ending e = ending_by_issuer(c);
    ending_timeout(&e, NULL, 0, waited);
}

bool watch_together(Cuda *c)
{
    unsigned char mine = 1;
    return watch_exchange(c, &mine, 1, c->watch.here);
}

bool watch_opening(Cuda *c, const char *what)
{
    c->watch.opens = what;
    return watch_step(c);
}

/* Reports that the device was lost, with the last positions that its streams have published.
 * Returns false. */
static bool device_lost(Cuda *c, cudaError_t error)
{
    Str s = str_in(c->arena);
    cudaGetLastError();
    publish(c);
    str_print(&s, "step %lld: rank %u: cudaEventQuery: %s (%s)", (long long)c->control.step,
              c->rank, cudaGetErrorString(error), cudaGetErrorName(error));
    add_places(c, &s);
    return cuda_fail(c, "cuda", "%s", str_text(&s));
}

bool watch_step(Cuda *c)
{
    c->watch.last_progress_s = clock_s();
    for (uint32_t polls = 0;; polls++) {
        cudaError_t state = cudaEventQuery(c->streams.finished);
        if (state == cudaSuccess) return true;
        if (state != cudaErrorNotReady) return device_lost(c, state);
        if (polls % POLLS_BETWEEN_LOOKS == 0 && !look_around(c)) return false;
        struct timespec pause = {0, SLEEP_NS};
        if (polls > POLLS_BEFORE_SLEEP) nanosleep(&pause, NULL);
    }
}
