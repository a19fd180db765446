/* Starts ranks, waits for them, and keeps their output. */
#define _DEFAULT_SOURCE
#include "tests/cuda/backend/ranks.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "exec/cuda/module.h"
#include "planner/base/clock.h"
#include "tests/cuda/double/double.h"

/* The processes of a run that has not ended yet. */
typedef struct Live {
    RanksRun *run; /* NULL: none */
    pid_t child[RANKS_MOST];
    bool done[RANKS_MOST];
    uint32_t n, left;
    int err, port_socket;
    double start;
} Live;

enum { ERRORS_MOST = 16384 };

typedef struct Keep {
    const RanksRun *run;
    RankReport *report;
    Arena *arena;
} Keep;

static bool keep_bits(void *self, Backend *backend, Diag *d)
{
    const Keep *k = self;
    Rank first;
    uint32_t n;
    Str all = str_in(k->arena);
    backend->ranks(backend, &first, &n);
    for (Rank r = first; r < first + n; r++) {
        const Program *p = plan_program(k->run->plan, r);
        for (BufferId b = 1; b < p->buffers.n; b++) {
            const Buffer *x = &p->buffers.at[b];
            bool kept = x->parent == 0 && x->persistent &&
                        (x->category == CATEGORY_parameter || x->category == CATEGORY_optimizer);
            if (!kept) continue;
            void *at = arena_alloc(k->arena, x->bytes);
            if (!backend_read(backend, k->run->plan, r, b, at, d)) return false;
            str_add_bytes(&all, at, x->bytes);
        }
    }
    k->report->bits = hash_bytes(str_text(&all), all.n);
    return true;
}

/* Counts the rows of the trace that begin before the previous row of their stream has ended. A
 * stream does one thing after another, so there must be none. */
static uint32_t count_overlaps(const Plan *plan, const Trace *trace)
{
    Ps ended[RANKS_MOST][STREAM_COUNT] = {{0}};
    uint32_t n = 0;
    for (uint32_t i = 0; i < trace->rows.n; i++) {
        const TraceRow *row = &trace->rows.at[i];
        Stream s = program_instr(plan_program(plan, row->rank), row->pc)->stream;
        n += row->start_ps < ended[row->rank][s];
        ended[row->rank][s] = row->end_ps;
    }
    return n;
}

static void run_here(RanksRun *run, Backend *made, RankReport *report, Arena *arena)
{
    Diag d = diag_in(arena);
    ExecResult result;
    Keep keep = {run, report, arena};
    uint32_t steps = run->steps ? run->steps : RANKS_STEPS;
    ExecOptions options = {.backend = "loopback",
                           .made = made,
                           .steps = steps,
                           .lr = run->lr > 0 ? run->lr : 1e-2,
                           .warmup_steps = 2,
                           .data = run->data,
                           .trace_step = run->trace ? 2 : 1000,
                           .version = "test",
                           .checkpoint = run->checkpoint,
                           .backend_options = run->options,
                           .at_end = keep_bits,
                           .self = &keep};
    options.backend_options.own = &run->cuda;
    if (options.backend_options.timeout_s <= 0) options.backend_options.timeout_s = 60;
    report->fine = exec_run(run->plan, &options, arena, &result, &d);
    for (uint32_t i = 0; i < result.trace.steps.n && i < RANKS_STEPS; i++) {
        report->loss[i] = result.trace.steps.at[i].loss;
        report->norm[i] = result.trace.steps.at[i].grad_norm;
        report->n_steps = i + 1;
    }
    report->highest = result.highest_touched;
    report->host_highest = result.host_touched;
    report->outside = result.outside_bytes;
    const LoadCounts *counts = result.experts.counts;
    for (uint32_t i = 0; counts != NULL && i < counts->n_layers; i++) {
        assert(counts->n_experts <= RANKS_EXPERTS);
        for (uint32_t e = 0; e < counts->n_experts; e++)
            report->chosen[e] += counts->chosen[i * counts->n_experts + e];
        report->dropped += counts->dropped[i];
    }
    report->n_rows = result.trace.rows.n;
    report->n_overlaps = count_overlaps(run->plan, &result.trace);
    Str s = str_in(arena);
    diag_print(&d, &s);
    if (made && !double_is_clean(&s)) report->fine = false;
    snprintf(report->said, sizeof report->said, "%s", str_text(&s));
}

static void run_double(RanksRun *run, RankReport *report, Arena *arena)
{
    double_begin(run->script ? run->script : "");
    run_here(run, tandem_cuda_module.backend(arena, NULL), report, arena);
    report->launches = double_calls("cudaGraphLaunch");
    report->captures = double_calls("cudaStreamBeginCapture");
    report->n_unread = double_calls("unread");
}

/* Binds a socket to a free port, but does not listen. With SO_REUSEADDR on both sockets, rank 0 can
 * bind the same port later. The option is set only after the port is chosen, so that no other
 * process gets this port. The socket holds the port at every address, as rank 0 will. Otherwise
 * another program could hold the port at one of the addresses. */
int ranks_hold_port(int *port)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    struct sockaddr_in at4 = {.sin_family = AF_INET};
    int one = 1, off = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool six = fd >= 0;
    if (!six) fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    void *address = six ? (void *)&at : (void *)&at4;
    socklen_t size = six ? sizeof at : sizeof at4;
    if (six) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    bool fine = fd >= 0 && bind(fd, address, size) == 0 && getsockname(fd, address, &size) == 0 &&
                setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0;
    if (!fine) perror("no port for ranks");
    *port = !fine ? 0 : ntohs(six ? at.sin6_port : at4.sin_port);
    return fd;
}

static pid_t start_rank(RanksRun *run, Rank r, uint32_t n, int port, int err)
{
    fflush(NULL);
    pid_t child = fork();
    if (child != 0) return child;
    char text[32];
    dup2(err, 2);
    snprintf(text, sizeof text, "%u", r);
    setenv("RANK", text, 1);
    setenv("LOCAL_RANK", text, 1);
    snprintf(text, sizeof text, "%u", n);
    setenv("WORLD_SIZE", text, 1);
    snprintf(text, sizeof text, "%d", port);
    setenv("MASTER_PORT", text, 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    Arena *arena = arena_new();
    run_double(run, &run->rank[r], arena);
    arena_free(arena);
    _exit(run->rank[r].fine ? 0 : 6);
}

static void start(Live *live, RanksRun *run, Arena *arena)
{
    int port;
    uint32_t n = run->plan->mesh.n_ranks;
    char path[] = "/tmp/tandem-ranks-XXXXXX";
    run->errors = arena_alloc(arena, ERRORS_MOST);
    run->rank = mmap(NULL, RANKS_MOST * sizeof *run->rank, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *live = (Live){.run = run,
                   .n = n,
                   .left = n,
                   .err = mkstemp(path),
                   .port_socket = ranks_hold_port(&port),
                   .start = clock_s()};
    unlink(path);
    for (Rank r = 0; r < n; r++) live->child[r] = start_rank(run, r, n, port, live->err);
}

/* Records which ranks have ended. Kills the others when their time is up. */
static void reap(Live *live)
{
    RanksRun *run = live->run;
    for (uint32_t r = 0; r < live->n; r++) {
        int status = 0;
        if (live->done[r] || waitpid(live->child[r], &status, WNOHANG) != live->child[r]) continue;
        run->rank[r].signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        run->rank[r].exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        live->done[r] = true;
        live->left--;
    }
    /* A rank that was stopped on purpose never ends, so this test kills it. */
    bool stops = run->script && strstr(run->script, "=stop");
    bool late = clock_s() > live->start + (run->patience_s > 0 ? run->patience_s : 400);
    late = late || (stops && live->left == 1 && live->n > 1);
    for (uint32_t r = 0; late && r < live->n; r++)
        if (!live->done[r]) kill(live->child[r], SIGKILL);
}

static void finish(Live *live)
{
    RanksRun *run = live->run;
    ssize_t length = pread(live->err, run->errors, ERRORS_MOST - 1, 0);
    run->errors[length > 0 ? length : 0] = 0;
    close(live->err);
    close(live->port_socket);
    run->took_s = clock_s() - live->start;
    live->run = NULL;
}

void ranks_run_all(RanksRun *runs, uint32_t n, Arena *arena)
{
    Live live[RANKS_AT_ONCE] = {0};
    for (uint32_t next = 0, left = n; left > 0; usleep(500)) {
        for (uint32_t i = 0; i < RANKS_AT_ONCE; i++) {
            if (live[i].run == NULL && next < n) start(&live[i], &runs[next++], arena);
            if (live[i].run == NULL) continue;
            reap(&live[i]);
            if (live[i].left > 0) continue;
            finish(&live[i]);
            left--;
        }
    }
}

void ranks_run(RanksRun *run, Arena *arena)
{
#ifdef TANDEM_GPU /* CUDA does not survive a fork, so this process never starts it */
    run->cuda.share_device = run->plan->mesh.n_ranks > 1;
#else
    if (run->plan->mesh.n_ranks == 1) {
        run->errors = "";
        run->rank = arena_alloc(arena, RANKS_MOST * sizeof *run->rank);
        run_double(run, &run->rank[0], arena);
        return;
    }
#endif
    ranks_run_all(run, 1, arena);
}

void ranks_loopback(RanksRun *run, Arena *arena)
{
    run->rank = arena_alloc(arena, RANKS_MOST * sizeof *run->rank);
    run_here(run, NULL, &run->rank[0], arena);
}
