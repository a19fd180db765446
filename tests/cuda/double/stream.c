/* Streams and events. No work runs at the time of its call. It runs while the host waits or polls,
 * in a random order that streams and events allow. */
#define _DEFAULT_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/cuda/double/private.h"

enum { STUCK_S = 120 };

/* The most tasks that a stream holds, as a device's queue does. A caller that adds more must
 * wait. */
enum { QUEUE = 1024 };

static cudaStream_t streams; /* a list of all existing streams */
/* number of turns in which no task could run, since a task last ran */
static uint32_t n_rests;
static struct CUstream_st standard; /* the default stream, for calls without a stream */

void double_streams_reset(void)
{
    streams = NULL; /* streams that were not released are leaked; they have been reported */
    memset(&standard, 0, sizeof standard);
}

static cudaStream_t default_stream(void)
{
    for (cudaStream_t s = streams; s; s = s->next)
        if (s == &standard) return s;
    standard.next = streams;
    return streams = &standard;
}

void double_leave_capture(cudaGraph_t graph)
{
    for (cudaStream_t s = streams; s; s = s->next)
        if (s->graph == graph) s->graph = NULL;
}

void *double_task(size_t bytes, Progress (*run)(Task *task, void *state))
{
    Task *task = calloc(1, bytes);
    if (task == NULL) double_misuse("out of memory");
    task->run = run;
    return task;
}

void double_free_task(Task *task)
{
    if (task->release) task->release(task);
    free(task);
}

static bool has_room(void *self)
{
    return ((cudaStream_t)self)->n_held < (world()->queue ? world()->queue : QUEUE);
}

void double_enqueue(cudaStream_t stream, Task *task)
{
    if (stream == NULL) double_misuse("the default stream is not for this");
    if (stream->graph) {
        double_capture(stream, task);
        return;
    }
    if (stream->n_held >= (world()->queue ? world()->queue : QUEUE))
        double_run_until(has_room, stream);
    stream->n_held++;
    if (stream->tail)
        stream->tail->next = task;
    else
        stream->head = task;
    stream->tail = task;
}

static void forget(cudaStream_t stream)
{
    for (cudaStream_t *at = &streams; *at; at = &(*at)->next)
        if (*at == stream) {
            *at = stream->next;
            break;
        }
    free(stream->state);
    free(stream);
}

/* Runs the task at the head of the stream once. */
static Progress run_head(cudaStream_t s)
{
    Task *task = s->head;
    if (task == NULL) return PROGRESS_none;
    if (s->state == NULL && task->state_bytes > 0) {
        s->state = calloc(1, task->state_bytes);
        if (s->state == NULL) double_misuse("out of memory");
    }
    Progress p = task->run(task, s->state);
    if (p != PROGRESS_none) n_rests = 0;
    if (p != PROGRESS_done) return p;
    world()->now_ms += 0.001;
    s->n_held--;
    s->head = task->next;
    if (s->head == NULL) s->tail = NULL;
    free(s->state);
    s->state = NULL;
    double_free_task(task);
    if (s->is_gone && s->head == NULL) forget(s);
    return p;
}

/* If the seed is odd, the default stream runs last. */
static bool may_draw(cudaStream_t s)
{
    return s->head != NULL && (s != &standard || world()->seed % 2 == 0);
}

/* Runs a task of the stream that the script puts first. Sets *holds if the task is a communication
 * that waits for other ranks; no other stream may run until they arrive. */
static Progress run_first(bool *holds)
{
    cudaStream_t s = streams;
    *holds = false;
    if (world()->first == 0) return PROGRESS_none;
    while (s && s->number != world()->first) s = s->next;
    if (s == NULL) return PROGRESS_none;
    Progress p = run_head(s);
    *holds = p == PROGRESS_none && s->state != NULL;
    return p;
}

/* Runs one random task. Returns false if all streams wait. */
static bool run_one(void)
{
    uint32_t n = 0;
    bool holds;
    if (world()->lost) return false;
    if (run_first(&holds) != PROGRESS_none) return true;
    if (holds) return false;
    for (cudaStream_t s = streams; s; s = s->next) n += may_draw(s);
    uint64_t skip = double_draw(n);
    for (uint32_t tries = 0; tries < n;) {
        bool any = false;
        for (cudaStream_t s = streams; s && tries < n; s = s->next) {
            if (!may_draw(s)) continue;
            any = true;
            if (skip > 0) {
                skip--;
                continue;
            }
            tries++;
            if (run_head(s) != PROGRESS_none) return true;
        }
        if (!any) break;
    }
    return standard.head != NULL && run_head(&standard) != PROGRESS_none;
}

static double clock_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Sleeps while streams wait for other processes, longer each time. */
static void rest(void)
{
    n_rests++;
    usleep(n_rests < 50 ? 20 : n_rests < 200 ? 100 : 500);
}

void double_run_until(bool (*done)(void *self), void *self)
{
    double moved_s = clock_now_s();
    while (!world()->lost && !done(self)) {
        if (run_one()) {
            moved_s = clock_now_s();
            continue;
        }
        /* streams may be waiting for other processes */
        if (clock_now_s() - moved_s > STUCK_S) double_misuse("the streams wait for each other");
        rest();
    }
}

bool double_run_some(void)
{
    for (uint64_t n = double_draw(8); n > 0; n--)
        if (!run_one()) return false;
    return true;
}

/* ---- kernels, copies, calls of the host ---- */

typedef struct Call {
    Task task;
    DoubleFunction run;
    void *args; /* a copy */
} Call;

static Progress run_call(Task *task, void *state)
{
    Call *call = (Call *)task;
    (void)state;
    call->run(call->args);
    return PROGRESS_done;
}

static void release_call(Task *task)
{
    free(((Call *)task)->args);
}

void double_launch(cudaStream_t stream, DoubleFunction run, const void *args, size_t bytes)
{
    Call *call = double_task(sizeof *call, run_call);
    call->task.release = release_call;
    call->run = run;
    call->args = malloc(bytes);
    if (call->args == NULL) double_misuse("out of memory");
    memcpy(call->args, args, bytes);
    double_enqueue(stream, &call->task);
}

typedef struct Copy {
    void *to;
    const void *from;
    size_t bytes;
} Copy;

static void run_copy(void *args)
{
    const Copy *c = args;
    memcpy(double_translate(c->to), double_translate(c->from), c->bytes);
}

/* The manual of CUDA does not define a copy between overlapping bytes. */
static void check_copy(const void *to, const void *from, size_t bytes)
{
    const char *a = to, *b = from;
    if (a < b + bytes && b < a + bytes) double_misuse("a copy between bytes that overlap");
}

typedef struct CopyTask {
    Task task;
    Copy copy;
} CopyTask;

/* CUDA reports when a copy is done, but a copy may write a byte several times: the C library's own
 * memmove writes four bytes twice. */
static Progress run_copy_task(Task *task, void *state)
{
    bool *has_begun = state;
    run_copy(&((CopyTask *)task)->copy);
    if (*has_begun || double_draw(4) > 0) return PROGRESS_done;
    *has_begun = true;
    return PROGRESS_some;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    CUDA_CALL(cudaMemcpyAsync);
    bool to_device = kind == cudaMemcpyHostToDevice, to_host = kind == cudaMemcpyDeviceToHost;
    if ((to_device && !double_is_device(to)) || (to_host && !double_is_device(from)))
        return world()->last = cudaErrorInvalidValue;
    check_copy(to, from, bytes);
    CopyTask *c = double_task(sizeof *c, run_copy_task);
    c->task.state_bytes = sizeof(bool);
    c->copy = (Copy){to, from, bytes};
    double_enqueue(stream, &c->task);
    return cudaSuccess;
}

typedef struct Fill {
    void *to;
    int value;
    size_t bytes;
} Fill;

static void run_fill(void *args)
{
    const Fill *f = args;
    double_fill(f->to, f->value, f->bytes);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    CUDA_CALL(cudaMemsetAsync);
    if (!double_is_device(to)) return world()->last = cudaErrorInvalidValue;
    Fill f = {to, value, bytes};
    double_launch(stream, run_fill, &f, sizeof f);
    return cudaSuccess;
}

typedef struct HostCall {
    cudaHostFn_t run;
    void *self;
} HostCall;

static void run_host(void *args)
{
    const HostCall *h = args;
    h->run(h->self);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t run, void *self)
{
    CUDA_CALL(cudaLaunchHostFunc);
    HostCall h = {run, self};
    double_launch(stream, run_host, &h, sizeof h);
    return cudaSuccess;
}

static bool all_empty(void *self)
{
    (void)self;
    for (cudaStream_t s = streams; s; s = s->next)
        if (s->head) return false;
    return true;
}

static bool stream_is_empty(void *self)
{
    return ((cudaStream_t)self)->head == NULL;
}

typedef struct Staged {
    char *to, *copy;
    size_t bytes;
} Staged;

static void run_staged(void *args)
{
    const Staged *s = args;
    memcpy(double_translate(s->to), s->copy, s->bytes);
    free(s->copy);
}

/* Synchronous calls use the default stream. Nonblocking streams and the default stream do not wait
 * for each other. So work of nonblocking streams runs before or after such a call, at random. A
 * copy from pageable memory returns when that memory has been read, maybe before the data
 * arrive. */
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    CUDA_CALL(cudaMemcpy);
    if (double_is_capturing()) return double_spoil_capture();
    (void)kind;
    check_copy(to, from, bytes);
    double_run_some();
    double_run_until(stream_is_empty, default_stream());
    if (double_is_device(to) && !double_is_device(from) && !double_is_pinned(from)) {
        Staged s = {to, malloc(bytes + 1), bytes};
        if (s.copy == NULL) double_misuse("out of memory");
        memcpy(s.copy, from, bytes);
        double_launch(default_stream(), run_staged, &s, sizeof s);
        return cudaSuccess;
    }
    Copy c = {to, from, bytes};
    run_copy(&c);
    return cudaSuccess;
}

/* The host does not wait until the memory is set. */
cudaError_t cudaMemset(void *at, int value, size_t bytes)
{
    CUDA_CALL(cudaMemset);
    if (double_is_capturing()) return double_spoil_capture();
    Fill f = {at, value, bytes};
    double_launch(default_stream(), run_fill, &f, sizeof f);
    return cudaSuccess;
}

bool double_default_is_busy(void)
{
    return standard.head != NULL;
}

void double_finish_all(void)
{
    double_run_until(all_empty, NULL);
}

/* ---- streams ---- */

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    CUDA_CALL(cudaDeviceGetStreamPriorityRange);
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    CUDA_CALL(cudaStreamCreateWithPriority);
    if (world()->live[OBJECT_stream] >= world()->n_queues)
        double_misuse("more streams than queues of the device: they wait for each other");
    if (flags != cudaStreamNonBlocking) return world()->last = cudaErrorInvalidValue;
    *stream = double_new(OBJECT_stream, sizeof **stream);
    (*stream)->priority = priority;
    (*stream)->number = ++world()->n_streams;
    (*stream)->next = streams;
    streams = *stream;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    CUDA_CALL(cudaStreamDestroy);
    world()->live[OBJECT_stream]--;
    stream->is_gone = true;
    if (stream->head == NULL) forget(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    CUDA_CALL(cudaStreamSynchronize);
    if (double_is_capturing()) return double_spoil_capture();
    if (stream == NULL || stream == cudaStreamLegacy) stream = default_stream();
    double_run_until(stream_is_empty, stream);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    CUDA_CALL(cudaDeviceSynchronize);
    if (double_is_capturing()) return double_spoil_capture();
    double_run_until(all_empty, NULL);
    return cudaSuccess;
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    CUDA_CALL(cudaEventCreateWithFlags);
    *event = double_new(OBJECT_event, sizeof **event);
    (*event)->has_timing = (flags & cudaEventDisableTiming) == 0;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    CUDA_CALL(cudaEventCreate);
    *event = double_new(OBJECT_event, sizeof **event);
    (*event)->has_timing = true;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    CUDA_CALL(cudaEventDestroy);
    double_bury(OBJECT_event, &event->buried);
    return cudaSuccess;
}

typedef struct OfEvent {
    Task task;
    cudaEvent_t event;
    uint64_t generation; /* 0: the event's generation at the time when the task runs (in a graph) */
} OfEvent;

static Progress run_record(Task *task, void *state)
{
    OfEvent *r = (OfEvent *)task;
    (void)state;
    r->event->done = r->generation ? r->generation : ++r->event->recorded;
    r->event->ms = world()->now_ms;
    return PROGRESS_done;
}

static Progress run_wait(Task *task, void *state)
{
    const OfEvent *w = (OfEvent *)task;
    (void)state;
    return w->event->done >= w->generation ? PROGRESS_done : PROGRESS_none;
}

static cudaError_t record(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    bool external = flags == cudaEventRecordExternal;
    if (external && stream->graph == NULL) return world()->last = cudaErrorIllegalState;
    if (stream->graph && !external) { /* becomes a node without work */
        double_capture(stream, NULL);
        event->graph = stream->graph;
        event->node = stream->last;
        return cudaSuccess;
    }
    OfEvent *r = double_task(sizeof *r, run_record);
    r->event = event;
    if (!external) {
        event->graph = NULL;
        r->generation = ++event->recorded;
    }
    double_enqueue(stream, &r->task);
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    CUDA_CALL(cudaEventRecordWithFlags);
    return record(event, stream, flags);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    CUDA_CALL(cudaEventRecord);
    return record(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    CUDA_CALL(cudaStreamWaitEvent);
    (void)flags;
    if (event->graph) {
        if (stream->graph == NULL) { /* the stream becomes part of the capture */
            stream->graph = event->graph;
            stream->last = 0;
            stream->n_waits = 0;
        }
        if (stream->graph != event->graph || event->graph->origin == NULL)
            return world()->last = cudaErrorStreamCaptureIsolation;
        if (stream->n_waits == 16) double_misuse("one node waits for too many");
        stream->waits[stream->n_waits++] = event->node;
        return cudaSuccess;
    }
    if (stream->graph) return double_spoil_capture();
    OfEvent *w = double_task(sizeof *w, run_wait);
    w->event = event;
    w->generation = event->recorded;
    double_enqueue(stream, &w->task);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    CUDA_CALL(cudaEventQuery);
    if (double_is_capturing()) return double_spoil_capture();
    bool moves = double_run_some(), done = event->done >= event->recorded;
    if (!moves && !done) rest();
    return done ? cudaSuccess : cudaErrorNotReady;
}

static bool event_is_done(void *self)
{
    const struct CUevent_st *event = self;
    return event->done >= event->recorded;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    CUDA_CALL(cudaEventSynchronize);
    if (double_is_capturing()) return double_spoil_capture();
    double_run_until(event_is_done, event);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    CUDA_CALL(cudaEventElapsedTime);
    if (!from->has_timing || !to->has_timing || from->done == 0 || to->done == 0)
        return world()->last = cudaErrorInvalidResourceHandle;
    *ms = (float)(to->ms - from->ms);
    return cudaSuccess;
}
