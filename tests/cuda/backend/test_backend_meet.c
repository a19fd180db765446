/* Ranks that were started without MPI connect to each other over TCP. All of them must connect in
 * time, and no foreign process may join. */
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/cuda/meet/meet.h"
#include "exec/launch/launch.h"
#include "planner/base/clock.h"
#include "tests/cuda/backend/ranks.h"

enum { RANKS = 5, PATIENCE_S = 120 };

typedef struct Told {
    char why[RANKS][MEET_WHY];
    bool fine[RANKS];
} Told;

static int port_at = 0;

static void next_port(void)
{
    static int held = -1;
    if (held >= 0) close(held);
    held = ranks_hold_port(&port_at);
    assert_true(port_at > 0);
}

/* Rank 0 listens at every address. So ranks_hold_port must hold the port at every address. */
static void a_held_port_is_held_at_every_address(void **state)
{
    (void)state;
    next_port();
    const uint32_t addresses[] = {0x7f000001, 0x7f000002, INADDR_ANY};
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        struct sockaddr_in at = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)port_at),
                                 .sin_addr.s_addr = htonl(addresses[i])};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), -1);
        assert_int_equal(errno, EADDRINUSE);
        close(fd);
    }
}

static void set(const char *name, unsigned value)
{
    char text[32];
    snprintf(text, sizeof text, "%u", value);
    setenv(name, text, 1);
}

static void be_rank(unsigned rank, unsigned n)
{
    set("RANK", rank);
    set("LOCAL_RANK", rank);
    set("WORLD_SIZE", n);
    set("MASTER_PORT", (unsigned)port_at);
    setenv("MASTER_ADDR", "localhost", 1);
}

typedef bool Work(Meet *m, unsigned rank);

/* Runs `n` ranks. Each connects, works and leaves; ranks in `absent` never connect. */
static Told run(unsigned n, unsigned absent, double timeout_s, Work *work)
{
    Told *told =
        mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(told != MAP_FAILED);
    next_port();
    fflush(NULL);
    for (unsigned r = 0; r < n; r++) {
        if (absent >> r & 1) continue;
        pid_t child = fork();
        if (child != 0) continue;
        Arena *arena = arena_new();
        be_rank(r, n);
        Meet *m = meet_open(arena, NULL, timeout_s, told->why[r], MEET_WHY);
        bool fine = m != NULL && m->rank == r && m->n_ranks == n && m->local_rank == r;
        if (fine) {
            fine = work(m, r);
            memcpy(told->why[r], m->why, MEET_WHY);
            m->close(m);
        }
        told->fine[r] = fine;
        arena_free(arena);
        _exit(0);
    }
    while (wait(NULL) > 0) {
    }
    Told copy = *told;
    munmap(told, sizeof *told);
    return copy;
}

static bool exchanges(Meet *m, unsigned rank)
{
    static uint32_t mine[50000], all[RANKS * 50000];
    bool fine = !m->gone(m);
    for (unsigned round = 0; round < 20 && fine; round++) {
        unsigned n = round == 10 ? 50000 : round;
        for (unsigned i = 0; i < n; i++) mine[i] = 1000003 * rank + 17 * round + i;
        fine = m->exchange(m, mine, n * sizeof *mine, all, PATIENCE_S);
        for (unsigned r = 0; r < m->n_ranks && fine; r++)
            for (unsigned i = 0; i < n; i++)
                fine = fine && all[r * n + i] == 1000003 * r + 17 * round + i;
    }
    return fine;
}

static void exchanges_deliver_all_data(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= RANKS; n++) {
        Told t = run(n, 0, PATIENCE_S, exchanges);
        for (unsigned r = 0; r < n; r++)
            if (!t.fine[r]) fail_msg("rank %u of %u: %s", r, n, t.why[r]);
    }
}

static void absent_ranks_are_named(void **state)
{
    (void)state;
    Told t = run(4, 1 << 2, 6, exchanges);
    assert_string_equal(t.why[0], "only 3 of 4 ranks connected; rank 2 is missing");
    t = run(3, 1 << 0, 2, exchanges);
    assert_non_null(strstr(t.why[1], "rank 0 does not answer at localhost port "));
}

/* Rank 1 leaves without a message. The other ranks poll, and then wait for it. */
static bool one_leaves(Meet *m, unsigned rank)
{
    char all[RANKS];
    if (rank == 1) {
        _exit(0);
    }
    double until = clock_s() + PATIENCE_S;
    while (!m->gone(m) && clock_s() < until) usleep(1000);
    if (!strstr(m->why, "rank 1 has closed its connection")) return false;
    return rank == 2 || !m->exchange(m, "x", 1, all, 1);
}

static void a_rank_that_leaves_is_named(void **state)
{
    (void)state;
    Told t = run(3, 0, PATIENCE_S, one_leaves);
    if (!t.fine[0] || !t.fine[2]) fail_msg("%s | %s", t.why[0], t.why[2]);
}

static bool different_sizes(Meet *m, unsigned rank)
{
    char mine[8] = "", all[8 * RANKS];
    return !m->exchange(m, mine, rank == 1 ? 4 : 8, all, PATIENCE_S);
}

static void exchanges_of_other_sizes_are_refused(void **state)
{
    (void)state;
    Told t = run(2, 0, PATIENCE_S, different_sizes);
    if (!t.fine[0] || !strstr(t.why[0], "rank 1 is at another exchange")) fail_msg("%s", t.why[0]);
    if (!t.fine[1] || !strstr(t.why[1], "rank 1 is at another exchange")) fail_msg("%s", t.why[1]);
}

/* Other processes connect, with and without sending data. They are rejected and cause no long
 * delay. */
static void foreign_processes_are_rejected(void **state)
{
    (void)state;
    next_port();
    fflush(NULL);
    pid_t stranger = fork();
    if (stranger == 0) {
        struct sockaddr_in at = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)port_at),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        char noise[64];
        memset(noise, 0x5a, sizeof noise);
        for (int k = 0; k < 40; k++) {
            int fd = socket(AF_INET, SOCK_STREAM, 0);
            if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0 && k % 2 == 0)
                (void)!write(fd, noise, sizeof noise);
            close(fd);
            usleep(20000);
        }
        _exit(0);
    }
    for (unsigned r = 0; r < 2; r++) {
        if (fork() != 0) continue;
        char why[MEET_WHY];
        Arena *arena = arena_new();
        if (r == 1) usleep(300000);
        be_rank(r, 2);
        Meet *m = meet_open(arena, NULL, PATIENCE_S, why, sizeof why);
        bool fine = m != NULL && exchanges(m, r);
        if (m) m->close(m);
        arena_free(arena);
        _exit(fine ? 0 : 1);
    }
    int status = 0;
    for (int k = 0; k < 3; k++) {
        assert_true(wait(&status) > 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static void missing_variables_are_reported(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    char why[MEET_WHY] = "";
    next_port();
    be_rank(1, 2);
    unsetenv("MASTER_PORT");
    assert_null(meet_open(arena, NULL, 1, why, sizeof why));
    assert_non_null(strstr(why, "MASTER_PORT must be set to the port"));
    set("MASTER_PORT", 70000);
    assert_null(meet_open(arena, NULL, 1, why, sizeof why));
    be_rank(5, 2);
    assert_null(meet_open(arena, NULL, 1, why, sizeof why));
    assert_non_null(strstr(why, "do not agree"));
    /* Without an address, the other two variables are ignored. */
    unsetenv("MASTER_ADDR");
    assert_false(launch_inside(NULL, NULL, NULL));
    Meet *m = meet_open(arena, NULL, 1, why, sizeof why);
    assert_true(m != NULL && m->n_ranks == 1);
    /* Slurm: the first node of the step, and a port from the job's number. */
    unsetenv("RANK");
    unsetenv("MASTER_PORT");
    setenv("SLURM_STEP_NUM_TASKS", "2", 1);
    setenv("SLURM_PROCID", "1", 1);
    setenv("SLURM_STEP_NODELIST", "no-such-node[007-009,012],other", 1);
    setenv("SLURM_JOB_ID", "123456", 1);
    assert_null(meet_open(arena, NULL, 0.1, why, sizeof why));
    assert_non_null(strstr(why, "no-such-node007 port 23456"));
    unsetenv("SLURM_PROCID");
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_held_port_is_held_at_every_address),
        cmocka_unit_test(exchanges_deliver_all_data),
        cmocka_unit_test(absent_ranks_are_named),
        cmocka_unit_test(a_rank_that_leaves_is_named),
        cmocka_unit_test(exchanges_of_other_sizes_are_refused),
        cmocka_unit_test(foreign_processes_are_rejected),
        cmocka_unit_test(missing_variables_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
