/* Every call that allocates memory, and every call for a file or a process, fails in turn: once,
 * and then also for good (with all calls after it). The command must neither crash nor hang. It
 * ends with an error and its exit code, or as if nothing had failed. The store stays sound and
 * keeps its contents.
 *
 * All calls are counted first. Most calls that allocate memory come from few places in the code; a
 * place is given by the functions that are active at the call. If there are too many calls for
 * files, the test takes the first ones and draws others by seed. For memory, it draws places.
 *
 *     TANDEM_FAILURES=places     every call for files, and the first call of every place
 *     TANDEM_FAILURES=all        every call
 *     TANDEM_FAILURES_PART=0/8   every eighth of these, 1/8 the next ones, and so on, so that parts
 *                                can run at the same time
 *
 * The program's argument names the tests to run, such as 'sim*'. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "planner/base/list.h"
#include "planner/base/rng.h"
#include "tests/failures/fail_at.h"
#include "tests/failures/sound.h"
#include "tests/support/command.h"
#include "tests/support/slowest.h"

static const char tiny[] = TANDEM_SOURCE_DIR "/scripts/plans/tiny_text.lua";

enum { MOST_ARGUMENTS = 12, SEED = 1, MOST_FAULTS = 20 };
/* How long a command may take by the clock [s]. The limit is generous, because the machine may be
 * busy. The limit of processor time is lower. */
static const double most_s = 60;

typedef struct Bench {
    Arena *arena;
    /* db: the store in use; sound: a store that is copied to it before each case */
    const char *folder, *db, *sound;
    FailState *state;
    uint32_t n_rows; /* rows of the sound store */
    uint32_t n_faults;
    Slowest slowest;
} Bench;

/* Returns a new folder, in a file system in memory if there is one, because thousands of stores are
 * written. */
static const char *quick_folder(Arena *arena)
{
    char *path = arena_dup(arena, "/dev/shm/tandem-failures-XXXXXX");
    return mkdtemp(path) != NULL ? path : command_new_folder(arena);
}

static void copy_store(const char *from, const char *to, Arena *arena)
{
    static const char *const ending[] = {"", "-wal", "-shm", "-journal"};
    for (size_t i = 0; i < 4; i++) unlink(arena_print(arena, "%s%s", to, ending[i]));
    if (from == NULL) return;
    size_t n;
    const char *bytes = command_read_file(arena, from, &n);
    assert_non_null(bytes);
    FILE *file = fopen(to, "wb");
    assert_true(file != NULL && fwrite(bytes, 1, n, file) == n && fclose(file) == 0);
}

static Bench bench_in(Arena *arena)
{
    Bench b = {.arena = arena, .folder = quick_folder(arena)};
    b.db = arena_print(arena, "%s/t.db", b.folder);
    b.sound = arena_print(arena, "%s/sound.db", b.folder);
    const char *state = arena_print(arena, "%s/state", b.folder);
    const int fd = open(state, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && ftruncate(fd, sizeof *b.state) == 0);
    b.state = mmap(NULL, sizeof *b.state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(b.state != MAP_FAILED);
    close(fd);
    CommandResult r = COMMAND(arena, 60, "sim", tiny, "--seed", "77", "--db", b.sound);
    assert_int_equal(r.exit_code, 0);
    b.n_rows = sound_rows(arena, b.sound, "run");
    assert_int_equal(b.n_rows, 1);
    setenv(FAIL_STATE, state, 1);
    setenv("TANDEM_SCRIPTS", TANDEM_SOURCE_DIR "/scripts", 1);
    return b;
}

static void bench_end(Bench *b)
{
    unsetenv(FAIL_STATE);
    munmap(b->state, sizeof *b->state);
    copy_store(NULL, b->db, b->arena);
    copy_store(NULL, b->sound, b->arena);
    unlink(arena_print(b->arena, "%s/state", b->folder));
    rmdir(b->folder);
}

static CommandResult run(const Bench *b, Arena *arena, const char *const *arguments, FailKind kind,
                         uint64_t at, bool forever)
{
    memset(b->state, 0, sizeof *b->state);
    b->state->kind = (uint32_t)kind;
    b->state->forever = forever;
    b->state->at = at;
    b->state->notes = at == 0 && kind == FAIL_memory;
    setenv("LD_PRELOAD", TANDEM_FAIL_AT, 1);
    CommandResult r = command_run(arena, most_s, arguments);
    unsetenv("LD_PRELOAD");
    return r;
}

/* Returns NULL, or a text about the fault. */
static const char *fault_of(const CommandResult *r, const CommandResult *whole)
{
    if (r->timed_out) return "it hangs";
    if (r->signal != 0 || r->exit_code < 0) return "it crashed";
    if (r->exit_code == 0)
        return r->n_out == whole->n_out && memcmp(r->out, whole->out, r->n_out) == 0
                   ? NULL
                   : "it ended well, with another output";
    if (r->exit_code != 1 && r->exit_code != 7) return "the exit code blames something else";
    return strstr(r->err, "error[") != NULL ? NULL : "no line says what failed";
}

typedef struct Case {
    const char *name;
    const char *arguments[MOST_ARGUMENTS];
    bool stores, is_new; /* the command gets a store; that store does not exist yet */
    /* for each FailKind: how many of the first calls fail, and how many others are drawn */
    uint32_t first[3], drawn[3];
} Case;

static void one_failure(Bench *b, const Case *c, const char *const *arguments, FailKind kind,
                        uint64_t at, bool forever, const CommandResult *whole)
{
    Arena *arena = arena_new();
    if (c->stores) copy_store(c->is_new ? NULL : b->sound, b->db, arena);
    const CommandResult r = run(b, arena, arguments, kind, at, forever);
    const char *fault = fault_of(&r, whole);
    if (!slowest_note(&b->slowest, c->name, r.cpu_s)) fault = "it takes too much processor time";
    if (fault == NULL && c->stores && access(b->db, F_OK) == 0) {
        fault = sound_fault(arena, b->db);
        const uint32_t before = c->is_new ? 0 : b->n_rows;
        if (fault == NULL && sound_rows(arena, b->db, "run") < before) fault = "a run is lost";
    }
    if (fault != NULL && b->n_faults++ < MOST_FAULTS)
        print_error("%s: %s number %d fails %s: %s\nexit code %d, signal %d, %.1f s\n%s\n%s\n",
                    c->name, kind == FAIL_memory ? "allocation" : "file or process", (int)at,
                    forever ? "for good" : "once", fault, r.exit_code, r.signal, r.cpu_s, r.out,
                    r.err);
    arena_free(arena);
}

/* The share of the calls that this process tries: call k if k modulo `of` is `number`. */
typedef struct Part {
    unsigned number, of;
} Part;

static Part part_wished(void)
{
    const char *wish = getenv("TANDEM_FAILURES_PART");
    Part part = {0, 1};
    if (wish != NULL && (sscanf(wish, "%u/%u", &part.number, &part.of) != 2 || part.of == 0))
        fail_msg("TANDEM_FAILURES_PART=%s is not a part such as 0/8", wish);
    return part;
}

typedef LIST(uint64_t) Calls;

static int by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Returns the first call from each recorded place, in ascending order. */
static Calls first_of_places(Bench *b)
{
    Calls calls = {NULL, 0, 0};
    for (uint32_t i = 0; i < MOST_PLACES; i++) {
        const uint64_t first = atomic_load(&b->state->place[i].first);
        if (first != 0) list_push(b->arena, &calls, first);
    }
    assert_true(calls.n < MOST_PLACES / 2); /* otherwise the table might have been too small */
    if (calls.n > 0) qsort(calls.at, calls.n, sizeof *calls.at, by_number);
    return calls;
}

/* Returns all numbers from 1 to n. */
static Calls numbers_to(Bench *b, uint64_t n)
{
    Calls calls = {NULL, 0, 0};
    for (uint64_t k = 1; k <= n; k++) list_push(b->arena, &calls, k);
    return calls;
}

static void fails_everywhere(Bench *b, const Case *c, FailKind kind)
{
    const char *arguments[MOST_ARGUMENTS + 1] = {NULL};
    for (size_t i = 0; i < MOST_ARGUMENTS && c->arguments[i] != NULL; i++)
        arguments[i] = strcmp(c->arguments[i], "DB") == 0 ? b->db : c->arguments[i];
    if (c->stores) copy_store(c->is_new ? NULL : b->sound, b->db, b->arena);
    const CommandResult whole = run(b, b->arena, arguments, kind, 0, false);
    const uint64_t n = atomic_load(&b->state->counted);
    assert_int_equal(whole.exit_code, 0);
    assert_true(n > 20);
    const Calls places = first_of_places(b);
    const char *wish = getenv("TANDEM_FAILURES");
    const bool all = wish != NULL && strcmp(wish, "all") == 0;
    const Calls calls = all || kind == FAIL_file ? numbers_to(b, n) : places;
    const uint64_t room = calls.n;
    uint64_t first = wish != NULL ? room : c->first[kind], drawn = c->drawn[kind];
    if (first + drawn >= room) first = room, drawn = 0;
    const Part part = part_wished();
    uint64_t n_tried = 0;
    for (uint64_t i = 0; i < 2 * (first + drawn); i++) {
        const uint64_t k = i / 2;
        if (k % part.of != part.number) continue;
        n_tried += i % 2;
        const uint64_t at = k < first ? k : first + rng_below(SEED, kind, k, room - first);
        one_failure(b, c, arguments, kind, calls.at[at], i % 2 != 0, &whole);
    }
    if (kind == FAIL_memory)
        print_message("%s: %d calls for memory from %d places; %d failed, once and for good\n",
                      c->name, (int)n, (int)places.n, (int)n_tried);
    else
        print_message("%s: %d calls for files and processes; %d failed, once and for good\n",
                      c->name, (int)n, (int)n_tried);
}

static void all_of(const Case *c)
{
    Arena *arena = arena_new();
    Bench b = bench_in(arena);
    fails_everywhere(&b, c, FAIL_file);
    fails_everywhere(&b, c, FAIL_memory);
    slowest_print(&b.slowest, "failures");
    assert_int_equal(b.n_faults, 0);
    bench_end(&b);
    arena_free(arena);
}

static void check(void **state)
{
    (void)state;
    all_of(&(Case){"check", {"check", tiny}, .first = {0, 100, 200}, .drawn = {0, 40, 0}});
}

static void sim_survives_failures_with_a_new_store(void **state)
{
    (void)state;
    all_of(&(Case){"sim, new store",
                   {"sim", tiny, "--db", "DB"},
                   .stores = true,
                   .is_new = true,
                   .drawn = {0, 25, 60}});
}

static void sim_survives_failures_with_a_store(void **state)
{
    (void)state;
    all_of(&(Case){"sim", {"sim", tiny, "--db", "DB"}, .stores = true, .drawn = {0, 35, 80}});
}

static void a_sweep_survives_failures_with_a_store(void **state)
{
    (void)state;
    all_of(&(Case){"sweep",
                   {"sweep", tiny, "--try", "seed=1,2", "--jobs", "1", "--db", "DB"},
                   .stores = true,
                   .first = {0, 0, 80}, /* calls for the script's process and its answers */
                   .drawn = {0, 25, 20}});
}

/* Predictions need no OpenBLAS. A run reports that OpenBLAS is missing. */
static void only_runs_need_openblas(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Bench b = bench_in(arena);
    setenv(FAIL_LIBRARY, "openblas", 1);
    const char *const sim[] = {"sim", tiny, "--db", "none", NULL};
    const char *const trains[] = {"run", tiny,   "--backend", "loopback", "--steps",
                                  "1",   "--db", b.db,        NULL};
    const CommandResult predicted = run(&b, arena, sim, FAIL_memory, 0, false);
    const CommandResult trained = run(&b, arena, trains, FAIL_memory, 0, false);
    unsetenv(FAIL_LIBRARY);
    assert_int_equal(predicted.exit_code, 0);
    assert_int_equal(trained.exit_code, 6);
    assert_non_null(strstr(trained.err, "error[openblas]: OpenBLAS cannot be loaded: /missing/"));
    assert_non_null(strstr(trained.err, "hint: install libopenblas0-serial"));
    bench_end(&b);
    arena_free(arena);
}

static void the_store_alone_survives_failures(void **state)
{
    (void)state;
    all_of(&(Case){"runs",
                   {"runs", "--db", "DB"},
                   .stores = true,
                   .first = {0, 10, 60},
                   .drawn = {0, 20, 20}});
    all_of(
        &(Case){"db prune", {"db", "prune", "--db", "DB"}, .stores = true, .drawn = {0, 20, 40}});
}

int main(int n, char **arguments)
{
    if (n > 1) cmocka_set_test_filter(arguments[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check),
        cmocka_unit_test(sim_survives_failures_with_a_new_store),
        cmocka_unit_test(sim_survives_failures_with_a_store),
        cmocka_unit_test(a_sweep_survives_failures_with_a_store),
        cmocka_unit_test(the_store_alone_survives_failures),
        cmocka_unit_test(only_runs_need_openblas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
