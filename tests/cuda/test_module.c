/* The real CUDA module, as built, with all GPUs hidden. It loads completely (every symbol is bound
 * at once), lacks no kernel, and refuses to run with CUDA's error. */
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/command.h"

static Arena *arena;

#define PLAN TANDEM_SOURCE_DIR "/scripts/plans/tiny_text.lua"

static int setup(void **state)
{
    (void)state;
    arena = arena_new();
    setenv("TANDEM_MODULE_DIR", TANDEM_REAL_MODULE_DIR, 1);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    setenv("LD_BIND_NOW", "1", 1); /* acts as RTLD_NOW, whatever the command passes to dlopen */
    assert_int_equal(chdir(command_new_folder(arena)), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

static void check(CommandResult r, int code, const char *out, const char *err)
{
    if (r.exit_code != code || (out && !strstr(r.out, out)) || (err && !strstr(r.err, err)) ||
        strstr(r.out, "undefined symbol") || strstr(r.err, "undefined symbol"))
        fail_msg("code %d (wanted %d)\n%s\n%s", r.exit_code, code, r.out, r.err);
}

static void the_module_loads_and_refuses_without_a_gpu(void **state)
{
    (void)state;
    CommandResult r = COMMAND(arena, 60, "doctor");
    check(r, 0, " cuda       runtime ", NULL);
    check(r, 0, "missing  gpu ", NULL);
    r = COMMAND(arena, 60, "run", PLAN, "--backend", "cuda", "--steps", "2", "--set",
                "mesh.dp_shard=1", "--set", "mesh.tp=1", "--quiet");
    check(r, 6, NULL, "error[cuda-");
    assert_null(strstr(r.err, "module-missing"));
    r = COMMAND(arena, 60, "calibrate", PLAN, "--backend", "cuda", "--set", "mesh.dp_shard=1",
                "--set", "mesh.tp=1");
    check(r, 6, NULL, "error[cuda-");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_module_loads_and_refuses_without_a_gpu, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
