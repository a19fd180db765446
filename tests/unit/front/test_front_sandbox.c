/* A script cannot read files outside its folder and the library, run longer than its budget, leave
 * processes or descriptors behind, or crash the parent with its records. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "planner/base/clock.h"
#include "planner/base/rng.h"
#include "planner/front/parent.h"
#include "tests/support/command.h"

static const char *errors_of(Arena *arena, const char *path, double cpu_s)
{
    Diag d = diag_in(arena);
    Config config;
    Graph graph;
    memset(&graph, 0, sizeof graph);
    FrontOptions options = {.cpu_seconds = cpu_s};
    bool fine = front_load(path, &options, arena, &config, &graph, &d);
    assert_int_equal(fine, d.n_errors == 0);
    Str text = str_in(arena);
    diag_print(&d, &text);
    return str_text(&text);
}

static void assert_says(Arena *arena, const char *path, const char *expected)
{
    const char *text = errors_of(arena, path, 0.5);
    if (strstr(text, expected) == NULL) print_error("expected %s in\n%s", expected, text);
    assert_non_null(strstr(text, expected));
}

static const char *in_folder(Arena *arena, const char *folder, const char *name)
{
    return arena_print(arena, "%s/%s", folder, name);
}

/* Only the library's dialects have the core functions. A script of the user's folder with a
 * dialect's name does not replace them. */
static void dialects_come_only_from_the_library(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    assert_int_equal(mkdir(in_folder(arena, folder, "dialects"), 0700), 0);
    command_write_file(in_folder(arena, folder, "dialects/own.lua"), "return 1\n");
    command_write_file(in_folder(arena, folder, "dialects/kempnerforge.lua"), "error 'mine'\n");
    command_write_file(in_folder(arena, folder, "a.lua"), "require 'dialects.own'\n");
    assert_says(arena, in_folder(arena, folder, "a.lua"), "there is no script dialects/own.lua");
    command_write_file(
        in_folder(arena, folder, "b.lua"),
        "return require 'dialects.kempnerforge' { world = 2, distributed = { tp = 0 } }\n");
    assert_says(arena, in_folder(arena, folder, "b.lua"),
                "b.lua:1: error[out-of-range]: tp must be >= 1");
    arena_free(arena);
}

static void scripts_come_from_the_folder_or_the_library(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    const char *inner = in_folder(arena, folder, "plans");
    assert_int_equal(mkdir(inner, 0700), 0);
    assert_int_equal(mkdir(in_folder(arena, inner, "own"), 0700), 0);
    command_write_file(in_folder(arena, folder, "secret.lua"), "return 42\n");
    command_write_file(in_folder(arena, inner, "own/part.lua"),
                       "return { seq = 8, oops = missing_name }\n");
    assert_int_equal(symlink("../secret.lua", in_folder(arena, inner, "link.lua")), 0);
    assert_int_equal(symlink("..", in_folder(arena, inner, "up")), 0);
    assert_int_equal(mkfifo(in_folder(arena, inner, "pipe.lua"), 0600), 0);
    const char *script = in_folder(arena, inner, "a.lua");
    static const struct {
        const char *code, *expected;
    } cases[] = {
        {"require 'own.part'", "plans/own/part.lua:1: error[unknown-name]"},
        {"require 'link'", "a.lua:1: error[script-open]: require: link.lua is a link"},
        {"require 'up.secret'", "a.lua:1: error[script-open]: require: up/secret.lua is a link"},
        {"require 'pipe'", "a.lua:1: error[script-open]: "},
        {"require 'own'", "a.lua:1: error[script-open]: require: there is no script own.lua"},
        {"require '.own.part'", "a.lua:1: error[script-open]"},
        {"require 'own/part'", "a.lua:1: error[script-open]"},
        {"require ''", "a.lua:1: error[script-open]"},
        {"require(('x'):rep(300))", "a.lua:1: error[script-open]"},
        {"require(nil)", "a.lua:1: error[lua-error]"},
        {"local nn = require 'tandem.nn'\nnn.linear = nil", "a.lua:2: error[frozen]"},
        {"return plan { model = {}, batch = { seq = 1 } }", "a.lua:1: error[missing-key]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        command_write_file(script, cases[i].code);
        assert_says(arena, script, cases[i].expected);
    }
    arena_free(arena);
}

static void only_readable_files_are_scripts(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    const char *pipe_path = in_folder(arena, folder, "pipe.lua");
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    assert_says(arena, pipe_path, "error[script-open]");
    assert_says(arena, folder, "error[script-open]");
    assert_says(arena, "/dev/zero", "error[script-open]: /dev/zero is not a file");
    assert_says(arena, "missing/none.lua", "missing/none.lua: error[script-open]: cannot open");
    Str large = str_in(arena);
    while (large.n <= 1 << 20) str_add(&large, "-- a long comment that says nothing at all\n");
    const char *path = in_folder(arena, folder, "large.lua");
    command_write_file(path, str_text(&large));
    assert_says(arena, path, "is longer than 1 MiB");
    arena_free(arena);
}

static void more_than_64_files_are_refused(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    Str all = str_in(arena);
    for (int i = 0; i < 70; i++) {
        command_write_file(arena_print(arena, "%s/f%d.lua", folder, i), "return 1\n");
        str_print(&all, "require 'f%d'\n", i);
    }
    const char *path = in_folder(arena, folder, "all.lua");
    command_write_file(path, str_text(&all));
    assert_says(arena, path, "all.lua:64: error[too-many-files]");
    arena_free(arena);
}

static uint32_t count_descriptors(void)
{
    uint32_t n = 0;
    DIR *dir = opendir("/proc/self/fd");
    if (dir == NULL) return 0;
    while (readdir(dir) != NULL) n++;
    closedir(dir);
    return n;
}

static void no_process_or_descriptor_is_left_behind(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char *const scripts[] = {
        "while true do end", "error('no')", "return plan { batch = { seq = 'x' } }",
        "return plan { model = require 'models.llama' 'tiny', batch = { seq = 8 } }"};
    uint32_t before = count_descriptors();
    for (int i = 0; i < 24; i++) {
        command_write_file("left.lua", scripts[i % 4]);
        errors_of(arena, "left.lua", 0.05);
    }
    assert_int_equal(count_descriptors(), before);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    arena_free(arena);
}

/* Returns the first child of a process; 0: none yet. */
static pid_t child_of(Arena *arena, pid_t parent)
{
    const char *path = arena_print(arena, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    FILE *f = fopen(path, "r");
    int child = 0;
    if (f == NULL) skip(); /* this kernel has no list of children */
    if (fscanf(f, "%d", &child) != 1) child = 0;
    fclose(f);
    return child;
}

/* Forks a process that evaluates an endless script, as a plan or as a sweep. Returns the id of this
 * process, and stores that of the script's own process. The forked process exits with 0 if the
 * script gave an error. */
static pid_t start_endless(Arena *arena, bool sweeps, pid_t *child)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    const char *script = in_folder(arena, command_new_folder(arena), "a.lua");
    command_write_file(script, "while true do end\n");
    const pid_t parent = fork();
    assert_true(parent >= 0);
    if (parent == 0 && sweeps) {
        Diag d = diag_in(arena);
        bool is_plan;
        _exit(front_sweep_open(script, arena, &is_plan, &d) != NULL || d.n_errors == 0);
    }
    if (parent == 0) _exit(errors_of(arena, script, 60)[0] == 0);
    *child = 0;
    for (int i = 0; i < 1000 && *child == 0; i++, nanosleep(&pause, NULL))
        *child = child_of(arena, parent);
    assert_true(*child > 0);
    /* gives the child time to set its limits */
    for (int i = 0; i < 20; i++) nanosleep(&pause, NULL);
    return parent;
}

/* A process is killed while its script runs without end. The script's process must end at once,
 * long before the script's time is over. */
static void a_script_ends_with_its_parent(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const struct timespec pause = {.tv_nsec = 10000000};
    pid_t child, ended = 0;
    int status = 0;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
    const pid_t parent = start_endless(arena, false, &child);
    assert_int_equal(kill(parent, SIGKILL), 0);
    assert_int_equal(waitpid(parent, NULL, 0), parent);
    for (int i = 0; i < 1000 && ended == 0; i++, nanosleep(&pause, NULL))
        ended = waitpid(child, &status, WNOHANG);
    if (ended == 0) kill(child, SIGKILL);
    assert_int_equal(ended, child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0), 0);
    arena_free(arena);
}

/* If the script's process is killed, the script has no result, and the parent reports an error. */
static void a_killed_script_is_an_error(void **state)
{
    (void)state;
    for (int sweeps = 0; sweeps < 2; sweeps++) {
        Arena *arena = arena_new();
        pid_t child;
        int status = 0;
        const pid_t parent = start_endless(arena, sweeps, &child);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(parent, &status, 0), parent);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        arena_free(arena);
    }
}

/* The budget limits only processor time. A script must also stay below a limit of memory. */
static void memory_stays_within_its_cap(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    command_write_file("hungry.lua", "local t = {}\n"
                                     "while true do t[#t + 1] = ('x'):rep(1000000) .. #t end\n");
    assert_non_null(
        strstr(errors_of(arena, "hungry.lua", 10), "hungry.lua:2: error[memory-limit]"));
#if !defined(__SANITIZE_ADDRESS__)
    struct rusage children;
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &children), 0);
    assert_true(children.ru_maxrss < 400 << 10); /* in KiB */
#endif
    arena_free(arena);
}

/* If almost all memory is in use, garbage collection takes all the time. The error must then name
 * memory as the cause. */
static void a_lack_of_memory_is_not_reported_as_a_lack_of_time(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    command_write_file("many.lua", "local nn, all = require 'tandem.nn', {}\n"
                                   "return plan { batch = { seq = 4 }, model = { build = "
                                   "function()\n"
                                   "  while true do all[#all + 1] = nn.rmsnorm(8) end\n"
                                   "end } }\n");
    const char *text = errors_of(arena, "many.lua", 30);
    if (strstr(text, "many.lua:3: error[memory-limit]") == NULL) fail_msg("%s", text);
    remove("many.lua");
    arena_free(arena);
}

/* The message states how many blocks fit, and exactly so many fit. Under the sanitizers, a slow
 * machine needs more than the usual 5 s of processor time for these blocks. */
static void a_model_of_too_many_blocks_says_how_many_fit(void **state)
{
    (void)state;
    static const char plan[] = "return plan { model = require 'models.llama' { size = 'tiny', "
                               "layers = %d }, batch = { seq = 8 } }";
    Arena *arena = arena_new();
    const char *path = in_folder(arena, command_new_folder(arena), "deep.lua");
    command_write_file(path, arena_print(arena, plan, 100000));
    const char *text = errors_of(arena, path, 60), *many = strstr(text, "hint: ");
    if (!strstr(text, "error[out-of-range]: nn.list(100000, make): the model has more than 250000"))
        fail_msg("%s", text);
    int n = 0;
    assert_int_equal(sscanf(many, "hint: %d are too many already", &n), 1);
    assert_true(n > 1000 && n < 20000);
    command_write_file(path, arena_print(arena, plan, n - 1));
    text = errors_of(arena, path, 60), many = strstr(text, "hint: ");
    if (many == NULL || sscanf(many, "hint: use at most %d of its blocks", &n) != 1)
        fail_msg("%s", text);
    command_write_file(path, arena_print(arena, plan, n));
    assert_string_equal(errors_of(arena, path, 60), "");
    arena_free(arena);
}

typedef struct Dice {
    uint64_t seed, n;
} Dice;

static uint32_t roll(Dice *dice, uint32_t n)
{
    return (uint32_t)rng_below(dice->seed, 1, dice->n++, n);
}

/* Returns mostly small numbers, so that many records are valid, and sometimes any number. */
static uint32_t roll_number(Dice *dice, uint32_t most)
{
    return roll(dice, 40) == 0 ? (uint32_t)rng_u64(dice->seed, 2, dice->n++) : roll(dice, most);
}

static void put_roll_text(StreamWriter *w, Dice *dice)
{
    static const char *const texts[] = {"",
                                        "batch.seq",
                                        "mesh.tp",
                                        "parallel.1",
                                        "parallel.1.kind",
                                        "tp",
                                        "a.b.c.d",
                                        "parallel.x",
                                        "fsdp2",
                                        "cluster.device",
                                        "optimizer.lr",
                                        "adamw",
                                        "-1",
                                        "precision.compute",
                                        "bf16",
                                        "parallel.2.sequence",
                                        "mesh",
                                        "optimizer.kind"};
    const char *text = texts[roll(dice, sizeof texts / sizeof *texts)];
    put_text(w, text, strlen(text));
}

static void put_roll_place(StreamWriter *w, Dice *dice)
{
    put_u32(w, roll_number(dice, 2));
    put_u32(w, roll_number(dice, 9));
}

/* Writes a well-formed record with arbitrary numbers. */
static void put_roll_record(StreamWriter *w, Dice *dice, RecordKind kind)
{
    record_begin(w, kind);
    if (kind == RECORD_module) {
        put_roll_text(w, dice);
        put_roll_text(w, dice);
        for (int i = 0; i < 4; i++) put_u32(w, roll_number(dice, 3));
        put_roll_place(w, dice);
    } else if (kind == RECORD_param) {
        put_u32(w, roll_number(dice, 6));
        put_roll_text(w, dice);
        put_u32(w, roll_number(dice, 3));
        put_roll_place(w, dice);
        for (int i = 0; i < 4; i++) put_u32(w, roll_number(dice, 3));
        put_f64(w, (double)roll_number(dice, 3));
        put_f64(w, (double)roll_number(dice, 3));
        put_u32(w, roll_number(dice, 2));
        uint32_t n_dims = roll_number(dice, 4);
        put_u32(w, n_dims);
        for (uint32_t i = 0; i < n_dims && i < 8; i++) put_i64(w, roll_number(dice, 5));
    } else if (kind == RECORD_op) {
        put_u32(w, roll_number(dice, OP_COUNT));
        put_u32(w, roll_number(dice, 8));
        put_u32(w, roll_number(dice, 3));
        put_roll_place(w, dice);
        uint32_t n_in = roll_number(dice, 5);
        put_u32(w, n_in);
        for (uint32_t i = 0; i < n_in && i < 12; i++) put_u32(w, roll_number(dice, 8));
        put_u32(w, roll_number(dice, 2) == 99);
    } else if (kind == RECORD_loss) {
        put_u32(w, roll_number(dice, 9));
    } else {
        put_roll_text(w, dice);
        if (kind >= RECORD_table && kind <= RECORD_other) put_roll_place(w, dice);
        if (kind == RECORD_bool) put_u32(w, roll_number(dice, 2));
        if (kind == RECORD_int) put_i64(w, (int64_t)roll_number(dice, 9) - 2);
        if (kind == RECORD_number) put_f64(w, (double)roll_number(dice, 9) / 2);
        if (kind == RECORD_text || kind == RECORD_other) put_roll_text(w, dice);
    }
    record_end(w);
    if (roll(dice, 8) == 0 && w->bytes.n > 8) /* now and then the length is wrong by one byte */
        w->bytes.at[8 + roll(dice, (uint32_t)(w->bytes.n - 8))] = (char)roll(dice, 256);
    if (roll(dice, 16) == 0) w->bytes.n -= roll(dice, (uint32_t)w->bytes.n);
}

static void garbage_records_are_refused(void **state)
{
    (void)state;
    Dice dice = {20240607, 0};
    print_message("seed %llu\n", (unsigned long long)dice.seed);
    Arena *arena = arena_new();
    uint32_t accepted = 0, sent = 0;
    for (uint32_t round = 0; round < 5000; round++) {
        arena_reset(arena);
        Diag d = diag_in(arena);
        Draft draft = draft_new(arena, &d);
        draft.config.file = "garbage.lua";
        for (int a = 0; a < AXIS_NAMES; a++) draft.config.axis_size[a] = 1;
        draft.config.micro_batch = draft.config.seq = draft.config.global_batch = 4;
        Graph graph;
        memset(&graph, 0, sizeof graph);
        graph_init(&graph, arena);
        Rebuild b = {.graph = &graph, .draft = &draft, .arena = arena};
        for (uint32_t k = 0; k < 24; k++, sent++) {
            RecordKind kind = (RecordKind)(1 + roll(&dice, RECORD_KIND_COUNT - 1));
            StreamWriter w = {.bytes = str_in(arena)};
            put_roll_record(&w, &dice, kind);
            size_t n = w.bytes.n > 8 ? w.bytes.n - 8 : 0;
            Reader r = {(const unsigned char *)w.bytes.at + (n > 0 ? 8 : 0), n, false};
            if (kind >= RECORD_table && kind <= RECORD_other)
                accepted += draft_field(&draft, kind, &r);
            else if (kind >= RECORD_module && kind <= RECORD_op)
                accepted += rebuild_record(&b, kind, &r);
            else if (kind == RECORD_loss || kind == RECORD_name)
                accepted += rebuild_record(&b, kind, &r);
            else if (kind == RECORD_file)
                accepted += draft_file(&draft, &r);
        }
        draft_finish(&draft);
        if (graph.loss != 0) rebuild_finish(&b, &d);
    }
    print_message("%u of %u understood\n", accepted, sent);
    assert_true(accepted > sent / 10 && accepted < sent);
    arena_free(arena);
}

/* The other end of the channel may send any bytes, and may close the channel at any time. */
static void a_broken_stream_ends_with_an_error(void **state)
{
    (void)state;
    const uint64_t seed = 5;
    for (uint64_t round = 0; round < 300; round++) {
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        Arena *arena = arena_new();
        StreamWriter w = {.bytes = str_in(arena)};
        for (int i = 0; i < 3; i++) {
            record_begin(&w, RECORD_text);
            put_text(&w, "batch.seq", 9);
            put_u32(&w, 0);
            put_u32(&w, 1);
            put_text(&w, "text", 4);
            record_end(&w);
        }
        size_t all = w.bytes.n;
        if (round > 0) {
            w.bytes.at[rng_below(seed, 1, round, all)] ^= (char)(1 << rng_below(seed, 2, round, 8));
            w.bytes.n = (size_t)rng_below(seed, 3, round, all + 1);
        }
        assert_true(w.bytes.n == 0 || writer_send(&w, pair[1]));
        close(pair[1]);
        Channel c = {.fd = pair[0]};
        RecordKind kind;
        Reader r;
        uint32_t n = 0;
        while (n < 10 && channel_next(&c, clock_s() + 5, &kind, &r) == STREAM_record) n++;
        assert_true(round == 0 ? n == 3 : n <= 3);
        channel_free(&c);
        close(pair[0]);
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scripts_come_from_the_folder_or_the_library),
        cmocka_unit_test(dialects_come_only_from_the_library),
        cmocka_unit_test(only_readable_files_are_scripts),
        cmocka_unit_test(more_than_64_files_are_refused),
        cmocka_unit_test(no_process_or_descriptor_is_left_behind),
        cmocka_unit_test(a_script_ends_with_its_parent),
        cmocka_unit_test(a_killed_script_is_an_error),
        cmocka_unit_test(memory_stays_within_its_cap),
        cmocka_unit_test(a_lack_of_memory_is_not_reported_as_a_lack_of_time),
        cmocka_unit_test(a_model_of_too_many_blocks_says_how_many_fit),
        cmocka_unit_test(garbage_records_are_refused),
        cmocka_unit_test(a_broken_stream_ends_with_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
