/* The double's script, and the counters of calls. */
#define _DEFAULT_SOURCE
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "planner/base/rng.h"
#include "tests/cuda/double/private.h"

typedef struct Call {
    const char *name;
    uint32_t n;
} Call;

typedef struct Order {
    const char *call, *what;
    uint32_t nth;
} Order;

static World the;
static LIST(Call) calls;
static LIST(Order) orders;

static const char *const object_names[OBJECT_KINDS] = {"device block", "host block",  "stream",
                                                       "event",        "graph",       "graph exec",
                                                       "communicator", "registration"};

World *world(void)
{
    if (the.arena == NULL) double_begin(NULL);
    return &the;
}

void double_misuse(const char *what)
{
    fprintf(stderr, "double: %s\n", what);
    abort();
}

static bool is_for_this_rank(const char *rank)
{
    static const char *const known[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (getenv(known[i]) != NULL) return strcmp(getenv(known[i]), rank) == 0;
    return strcmp(rank, "0") == 0;
}

static const char *value_of(const char *word, const char *name)
{
    size_t n = strlen(name);
    return strncmp(word, name, n) == 0 && word[n] == '=' ? word + n + 1 : NULL;
}

static void read_word(const char *word, bool *applies)
{
    const char *v, *at = strchr(word, '@');
    if ((v = value_of(word, "rank")) != NULL) {
        *applies = is_for_this_rank(v);
    } else if (!*applies) {
        return;
    } else if ((v = value_of(word, "seed")) != NULL) {
        the.seed = strtoull(v, NULL, 10);
    } else if ((v = value_of(word, "devices")) != NULL) {
        the.n_devices = (int)strtol(v, NULL, 10);
    } else if ((v = value_of(word, "queue")) != NULL) {
        the.queue = (uint32_t)strtoul(v, NULL, 10);
    } else if ((v = value_of(word, "first")) != NULL) {
        the.first = (uint32_t)strtoul(v, NULL, 10);
    } else if ((v = value_of(word, "branches")) != NULL) {
        the.serial = true;
        the.serial_drawn = strcmp(v, "drawn") == 0;
    } else if ((v = value_of(word, "ctas")) != NULL) {
        the.must_ask = sscanf(v, "%d-%d:%d", &the.min_ctas, &the.max_ctas, &the.policy) == 3;
    } else if (value_of(word, "windows") != NULL) {
        the.no_windows = true;
    } else if ((v = value_of(word, "memory")) != NULL) {
        the.memory = strtoull(v, NULL, 10);
    } else if (value_of(word, "uuid") != NULL) {
        the.same_uuid = true;
    } else if ((v = value_of(word, "capability")) != NULL) {
        the.capability = (int)strtol(v, NULL, 10);
    } else if ((v = value_of(word, "driver")) != NULL) {
        the.driver = (int)strtol(v, NULL, 10);
    } else if ((v = value_of(word, "wrong")) != NULL) {
        the.wrong = arena_dup(the.arena, v);
    } else if (at != NULL && strchr(at, '=') != NULL) {
        Order o = {arena_copy(the.arena, word, (size_t)(at - word)), strchr(at, '=') + 1,
                   (uint32_t)strtoul(at + 1, NULL, 10)};
        list_push(the.arena, &orders, o);
    } else {
        double_misuse(word);
    }
}

void double_begin(const char *script)
{
    if (the.arena != NULL) {
        double_streams_reset();
        double_memory_reset();
        arena_free(the.arena);
    }
    memset(&the, 0, sizeof the);
    memset(&calls, 0, sizeof calls);
    memset(&orders, 0, sizeof orders);
    the.arena = arena_new();
    the.n_devices = 4;
    the.capability = 90;
    the.driver = CUDART_VERSION;
    the.memory = UINT64_C(1) << 28;
    if (script == NULL) script = getenv("TANDEM_DOUBLE");
    bool applies = true;
    for (const char *at = script ? script : ""; *at;) {
        size_t n = strcspn(at, " ");
        if (n > 0) read_word(arena_copy(the.arena, at, n), &applies);
        at += n + (at[n] == ' ');
    }
}

void double_follow(void)
{
    the.user = getpid();
}

const char *double_wrong_op(void)
{
    return world()->wrong;
}

/* Finds the counter of a call, or NULL. Most callers pass the same string literal each time. */
static Call *find_call(const char *call)
{
    for (uint32_t i = 0; i < calls.n; i++)
        if (calls.at[i].name == call) return &calls.at[i];
    for (uint32_t i = 0; i < calls.n; i++)
        if (strcmp(calls.at[i].name, call) == 0) return &calls.at[i];
    return NULL;
}

static uint32_t count(const char *call)
{
    Call *found = find_call(call);
    if (found != NULL) return ++found->n;
    Call c = {call, 1};
    list_push(the.arena, &calls, c);
    return 1;
}

uint32_t double_calls(const char *call)
{
    const Call *found = find_call(call);
    return found != NULL ? found->n : 0;
}

/* Reads environment variables, as the driver does at its first call. */
static void read_environment(void)
{
    const char *queues = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    const char *loading = getenv("CUDA_MODULE_LOADING");
    the.n_queues = queues ? strtol(queues, NULL, 10) : 8;
    const char *connect = getenv("NCCL_RUNTIME_CONNECT");
    the.connects_late = connect == NULL || strcmp(connect, "0") != 0;
    the.loads_lazily = loading == NULL || strcmp(loading, "EAGER") != 0;
}

Scripted double_script(const char *call)
{
    Scripted none = {SCRIPT_none, 0};
    if (world()->n_queues == 0) read_environment();
    if (the.user == 0) the.user = getpid();
    if (the.user != getpid())
        double_misuse("CUDA or NCCL in the child of a process that has used it");
    uint32_t n = count(call);
    for (uint32_t i = 0; i < orders.n; i++) {
        const Order *o = &orders.at[i];
        if (o->nth != n || strcmp(o->call, call) != 0) continue;
        const char *code = strchr(o->what, ':');
        int number = code ? (int)strtol(code + 1, NULL, 10) : 0;
        if (strncmp(o->what, "fail", 4) == 0) return (Scripted){SCRIPT_fail, number};
        if (strncmp(o->what, "fault", 5) == 0) return (Scripted){SCRIPT_fault, number};
        if (strncmp(o->what, "async", 5) == 0) return (Scripted){SCRIPT_async, number};
        if (strncmp(o->what, "slow", 4) == 0) usleep(1000 * (unsigned)number);
        if (strcmp(o->what, "stays") == 0) return (Scripted){SCRIPT_stays, 0};
        if (strcmp(o->what, "hang") == 0) return (Scripted){SCRIPT_hang, 0};
        if (strcmp(o->what, "kill") == 0) raise(SIGKILL);
        if (strcmp(o->what, "stop") == 0) raise(SIGSTOP);
    }
    return none;
}

uint64_t double_draw(uint64_t below)
{
    World *w = world();
    return below < 2 ? 0 : rng_u64(w->seed, 77, w->n_draws++) % below;
}

void *double_new(ObjectKind kind, size_t bytes)
{
    void *at = calloc(1, bytes);
    if (at == NULL) double_misuse("out of memory");
    world()->live[kind]++;
    return at;
}

void double_delete(ObjectKind kind, void *at)
{
    world()->live[kind]--;
    free(at);
}

void double_bury(ObjectKind kind, Buried *at)
{
    static Buried *all;
    world()->live[kind]--;
    at->next = all;
    all = at;
}

bool double_is_clean(Str *out)
{
    bool clean = true;
    for (int k = 0; k < OBJECT_KINDS; k++) {
        if (the.live[k] == 0) continue;
        clean = false;
        str_print(out, "%lld %s(s) not released\n", (long long)the.live[k], object_names[k]);
    }
    return clean;
}
