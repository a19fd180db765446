/* Before the first step, the processes of a run compare their versions and plans. If any process
 * differs, every process must refuse the run. A process that did not refuse would wait for the
 * others for ever. The test simulates the other processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "exec/exec.h"
#include "tests/support/plans/tiny.h"

enum { PROCESSES = 4 };

/* What the processes send: each sends the bytes of this process, but one byte of process `other`
 * differs. */
static struct {
    uint32_t mine, other;
    size_t byte;
} world;

static bool exchange(Backend *self, const void *mine, size_t bytes, void *all, Diag *d)
{
    (void)self, (void)d;
    for (uint32_t i = 0; i < PROCESSES; i++) memcpy((char *)all + i * bytes, mine, bytes);
    assert_true(world.byte < bytes);
    ((char *)all)[world.other * bytes + world.byte] ^= 1;
    return true;
}

static uint32_t processes(const Backend *self, uint32_t *mine)
{
    (void)self;
    *mine = world.mine;
    return PROCESSES;
}

/* Returns the text of the only error that process `mine` reports. */
static const char *errors(const Plan *plan, Arena *arena)
{
    Diag d = diag_in(arena);
    Backend *backend = backend_loopback(arena);
    backend->exchange = exchange, backend->processes = processes;
    const ExecOptions options = {.made = backend,
                                 .version = "1.2.3",
                                 .steps = 1,
                                 .lr = 1e-3,
                                 .data = data_synthetic(1, 16, 0, arena)};
    ExecResult result;
    assert_false(exec_run(plan, &options, arena, &result, &d));
    assert_int_equal(d.n_errors, 1);
    Str text = str_in(arena);
    diag_print(&d, &text);
    return str_text(&text);
}

static void every_process_sees_another_version_and_another_plan(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const Tiny tiny = tiny_default();
    Diag d = diag_in(arena);
    const Plan *plan = tiny_plan(&tiny, false, arena, &d);
    assert_non_null(plan);
    /* The bytes of the version come first, and those of the plan's id are the last 16. */
    static const struct {
        size_t byte;
        const char *rule;
    } cases[] = {{2, "version-mismatch"}, {32, "plan-mismatch"}, {47, "plan-mismatch"}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (world.mine = 0; world.mine < PROCESSES; world.mine++)
            for (world.other = 0; world.other < PROCESSES; world.other++) {
                if (world.other == world.mine) continue;
                world.byte = cases[c].byte;
                const char *said = errors(plan, arena);
                const char *of = arena_print(arena, "process %u has ", world.other);
                const char *own = arena_print(arena, "but process %u has ", world.mine);
                if (!strstr(said, cases[c].rule) || !strstr(said, of) || !strstr(said, own))
                    fail_msg("process %u of %u, byte %zu: %s", world.mine, world.other, world.byte,
                             said);
            }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_process_sees_another_version_and_another_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
