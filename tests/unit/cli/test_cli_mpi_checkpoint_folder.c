/* Folders of checkpoints that change while a run loads from them, or that other runs use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "tests/support/document.h"

static const char tiny[] = TANDEM_SOURCE_DIR "/scripts/plans/tiny_text.lua";

static Arena *arena;
static const char *db, *folder;

static int setup(void **state)
{
    (void)state;
    arena = arena_new();
    char here[4096];
    assert_non_null(getcwd(here, sizeof here)); /* the scripts change their folder */
    folder = arena_print(arena, "%s/%s", here, command_new_folder(arena));
    db = arena_print(arena, "%s/%s/t.db", here, command_new_folder(arena));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

#define RUN(...) COMMAND(arena, 300, "run", tiny, "--db", db, "--backend", "loopback", __VA_ARGS__)

static void expect(const CommandResult *r, int code, const char *out, const char *err)
{
    if (r->exit_code != code || strstr(r->out, out) == NULL || strstr(r->err, err) == NULL)
        fail_msg("code %d instead of %d; ...%s... and ...%s... expected\n%s\n%s", r->exit_code,
                 code, out, err, r->out, r->err);
}

/* Runs a script of the shell. $0: the command, $1: the plan, $2: the folder, $3: the store. */
static CommandResult shell(const char *script)
{
    return command_run_program(
        arena, 300, (const char *[]){"sh", "-c", script, TANDEM_COMMAND, tiny, folder, db, NULL});
}

/* ---- one checkpoint for a whole run */

/* A newer checkpoint appears after the command has looked for one, and before any rank does. */
static void a_newer_one_appears_before_the_ranks_start(void **state)
{
    (void)state;
    CommandResult r = RUN("--steps", "4", "--save", folder, "--save-every", "2");
    expect(&r, 0, "2 saves", "");
    r = shell("real=$(command -v mpirun.openmpi || command -v mpirun.mpich) || exit 77\n"
              "mkdir \"$2/bin\"; as=\"$2/bin/${real##*/}\"; cd \"$2\"\n"
              "mv step-00000004 gone; echo step-00000002 >latest\n"
              "printf '#!/bin/sh\\nmv gone step-00000004; echo step-00000004 >latest\\n"
              "exec %s \"$@\"\\n' $real >\"$as\"; chmod +x \"$as\"\n"
              "PATH=\"$2/bin:$PATH\" \"$0\" run \"$1\" --db \"$3\" --steps 6 --every 1 --load "
              "\"$2\"; code=$?; [ -d step-00000004 ] || exit 78; exit $code\n");
    if (r.exit_code == 77) skip();
    expect(&r, 0, arena_print(arena, "loaded      %s/step-00000002: after 2 steps", folder), "");
    expect(&r, 0, "\ndone        4 steps in", "");
}

/* Four ranks in four folders. All but the first see another `latest`, or other files. */
static const char apart[] =
    "for r in 0 1 2 3; do mkdir \"$2/r$r\"; cp -r \"$2/$([ $r = 0 ] && echo own || echo other)\" "
    "\"$2/r$r/ck\"; done\n"
    "flags=; mpirun --version | grep -q 'Open MPI' && flags='--allow-run-as-root --oversubscribe'\n"
    "cd \"$2\" && mpirun $flags -n 4 sh -c 'cd \"$4/r${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\" && exec "
    "\"$0\" run \"$1\" --db \"$2\" --steps 7 --every 1 --timeout 20 --load ck' \"$0\" \"$1\" "
    "\"$3\" x \"$2\"\n";

static void ranks_that_see_another_latest(void **state)
{
    (void)state;
    const char *own = arena_print(arena, "%s/own", folder);
    CommandResult r = RUN("--steps", "4", "--save", own, "--save-every", "2");
    expect(&r, 0, "2 saves", "");
    r = shell("cp -r \"$2/own\" \"$2/other\" && rm -r \"$2/own/step-00000004\" && "
              "echo step-00000002 >\"$2/own/latest\"");
    expect(&r, 0, "", "");
    r = shell(apart);
    expect(&r, 0, "loaded      ck/step-00000002: after 2 steps", "");
    expect(&r, 0, "\ndone        5 steps in", "");
    const char *line = strstr(r.out, "step    2  loss");
    assert_non_null(line);
    const CommandResult alone =
        RUN("--steps", "7", "--every", "1", "--load", arena_print(arena, "%s/own", folder));
    if (strstr(alone.out, arena_print(arena, "%.30s", line)) == NULL)
        fail_msg("another loss:\n%s\n%s", r.out, alone.out);
}

static void ranks_that_see_other_files(void **state)
{
    (void)state;
    CommandResult r = RUN("--steps", "2", "--save", arena_print(arena, "%s/own", folder));
    expect(&r, 0, "1 save", "");
    r = RUN("--steps", "2", "--save", arena_print(arena, "%s/other", folder), "--set",
            "optimizer.lr=0.01");
    expect(&r, 0, "1 save", "");
    r = shell(apart);
    if (r.exit_code == 0) fail_msg("it ended well:\n%s", r.out);
    expect(&r, 3, "", "error[checkpoint-file]: ck/step-00000002/manifest.json is not the one that");
    assert_null(strstr(r.out, "\nstep "));
}

/* ---- two commands at once */

/* A run saves after each step. Others load from its folder meanwhile, and one wants to save there.
 * The lock ends with its process. */
static void a_run_beside_a_saver(void **state)
{
    (void)state;
    static const char script[] =
        "run() { \"$tandem\" run \"$plan\" --db \"$db\" --backend loopback \"$@\"; }\n"
        "tandem=$0 plan=$1 k=$2/k db=$3; cd \"$2\"\n"
        "\"$tandem\" run \"$plan\" --db \"$2/own.db\" --backend loopback --steps 5000 --save "
        "\"$k\" "
        "--save-every 1 >saver.txt 2>&1 & saver=$!\n"
        "for i in $(seq 300); do [ -e \"$k/latest\" ] && break; sleep 0.1; done\n"
        "step() { sed 's/step-0*//' \"$k/latest\"; }\n"
        "for i in 1 2 3; do\n"
        "  run --steps $(($(step) + 50)) --load \"$k\" >load.txt 2>&1 || { cat load.txt; exit 91; "
        "}\n"
        "done\n"
        "run --steps 5000 --load \"$k\" --save \"$k\" >busy.txt 2>&1; code=$?\n"
        "kill -9 $saver || exit 92\n"
        "grep -q \"checkpoint-busy.: process $saver on .* saves into $k\" busy.txt || { cat "
        "busy.txt; "
        "exit 93; }\n"
        "[ $code = 3 ] || exit 94\n"
        "wait $saver\n"
        "run --steps $(($(step) + 2)) --load \"$k\" --save \"$k\" >after.txt 2>&1 || { cat "
        "after.txt; "
        "exit 95; }\n"
        "[ -z \"$(ls -d \"$k\"/*.saving \"$k\"/*.replaced 2>/dev/null)\" ] || exit 96\n"
        "rm -r \"$k\"\n";
    const CommandResult r = shell(script);
    if (r.exit_code != 0) fail_msg("code %d\n%s\n%s", r.exit_code, r.out, r.err);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_newer_one_appears_before_the_ranks_start),
        TEST(ranks_that_see_another_latest),
        TEST(ranks_that_see_other_files),
        TEST(a_run_beside_a_saver),
    };
    return cmocka_run_group_tests_name("cli_checkpoint_folder", tests, NULL, NULL);
}
