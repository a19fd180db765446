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
#include "tests/support/checkpoint_case.h"
#include "tests/support/document.h"

/* Runs a script of the shell with $0 = the command, $1 = the plan, $2 = the folder, and $3 = the
 * store. */
static CommandResult shell(const CheckpointCase *c, const char *script)
{
    return command_run_program(
        c->arena, 300,
        (const char *[]){"sh", "-c", script, TANDEM_COMMAND, c->plan, c->folder, c->db, NULL});
}

/* ---- all ranks of a run load one checkpoint */

/* A newer checkpoint appears after the command has looked for the latest one, and before any rank
 * starts. The ranks must load the one that the command found. */
static void ranks_load_the_checkpoint_that_the_command_found(void **state)
{
    const CheckpointCase *c = *state;
    CommandResult r = CHECKPOINT_RUN(c, "--steps", "4", "--save", c->folder, "--save-every", "2");
    checkpoint_case_expect(&r, 0, "2 saves", "");
    r = shell(c, "real=$(command -v mpirun.openmpi || command -v mpirun.mpich) || exit 77\n"
                 "mkdir \"$2/bin\"; as=\"$2/bin/${real##*/}\"; cd \"$2\"\n"
                 "mv step-00000004 gone; echo step-00000002 >latest\n"
                 "printf '#!/bin/sh\\nmv gone step-00000004; echo step-00000004 >latest\\n"
                 "exec %s \"$@\"\\n' $real >\"$as\"; chmod +x \"$as\"\n"
                 "PATH=\"$2/bin:$PATH\" \"$0\" run \"$1\" --db \"$3\" --steps 6 --every 1 --load "
                 "\"$2\"; code=$?; [ -d step-00000004 ] || exit 78; exit $code\n");
    if (r.exit_code == 77) skip();
    checkpoint_case_expect(
        &r, 0, arena_print(c->arena, "loaded      %s/step-00000002: after 2 steps", c->folder), "");
    checkpoint_case_expect(&r, 0, "\ndone        4 steps in", "");
}

/* Starts four ranks in four folders. All but the first see another `latest`, or other files. */
static const char apart[] =
    "for r in 0 1 2 3; do mkdir \"$2/r$r\"; cp -r \"$2/$([ $r = 0 ] && echo own || echo other)\" "
    "\"$2/r$r/ck\"; done\n"
    "flags=; mpirun --version | grep -q 'Open MPI' && flags='--allow-run-as-root --oversubscribe'\n"
    "cd \"$2\" && mpirun $flags -n 4 sh -c 'cd \"$4/r${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\" && exec "
    "\"$0\" run \"$1\" --db \"$2\" --steps 7 --every 1 --timeout 20 --load ck' \"$0\" \"$1\" "
    "\"$3\" x \"$2\"\n";

static void ranks_load_the_checkpoint_that_the_first_rank_found(void **state)
{
    const CheckpointCase *c = *state;
    const char *own = arena_print(c->arena, "%s/own", c->folder);
    CommandResult r = CHECKPOINT_RUN(c, "--steps", "4", "--save", own, "--save-every", "2");
    checkpoint_case_expect(&r, 0, "2 saves", "");
    r = shell(c, "cp -r \"$2/own\" \"$2/other\" && rm -r \"$2/own/step-00000004\" && "
                 "echo step-00000002 >\"$2/own/latest\"");
    checkpoint_case_expect(&r, 0, "", "");
    r = shell(c, apart);
    checkpoint_case_expect(&r, 0, "loaded      ck/step-00000002: after 2 steps", "");
    checkpoint_case_expect(&r, 0, "\ndone        5 steps in", "");
    const char *line = strstr(r.out, "step    2  loss");
    assert_non_null(line);
    const CommandResult alone = CHECKPOINT_RUN(c, "--steps", "7", "--every", "1", "--load",
                                               arena_print(c->arena, "%s/own", c->folder));
    if (strstr(alone.out, arena_print(c->arena, "%.30s", line)) == NULL)
        fail_msg("the losses differ:\n%s\n%s", r.out, alone.out);
}

static void ranks_that_see_other_files_refuse_to_load(void **state)
{
    const CheckpointCase *c = *state;
    CommandResult r =
        CHECKPOINT_RUN(c, "--steps", "2", "--save", arena_print(c->arena, "%s/own", c->folder));
    checkpoint_case_expect(&r, 0, "1 save", "");
    r = CHECKPOINT_RUN(c, "--steps", "2", "--save", arena_print(c->arena, "%s/other", c->folder),
                       "--set", "optimizer.lr=0.01");
    checkpoint_case_expect(&r, 0, "1 save", "");
    r = shell(c, apart);
    if (r.exit_code == 0) fail_msg("the run accepts different folders:\n%s", r.out);
    checkpoint_case_expect(
        &r, 3, "",
        "error[checkpoint-file]: this process reads another ck/step-00000002/manifest.json");
    assert_null(strstr(r.out, "\nstep "));
}

/* ---- two commands use one folder at once */

/* A run saves after each step. Other runs load from its folder meanwhile, and one tries to save
 * there but is refused. The saver's lock ends with its process. */
static void others_load_but_do_not_save_beside_a_saving_run(void **state)
{
    const CheckpointCase *c = *state;
    static const char script[] =
        "run() { \"$tandem\" run \"$plan\" --db \"$db\" --backend loopback \"$@\"; }\n"
        "tandem=$0 plan=$1 k=$2/k db=$3; cd \"$2\"\n"
        "\"$tandem\" run \"$plan\" --db \"$2/own.db\" --backend loopback --steps 5000 --save "
        "\"$k\" "
        "--save-every 1 >saver.txt 2>&1 & saver=$!\n"
        "for i in $(seq 300); do [ -e \"$k/latest\" ] && break; sleep 0.1; done\n"
        "step() { sed 's/step-0*//' \"$k/latest\"; }\n"
        "for i in 1 2 3; do\n"
        "  run --steps $(($(step) + 5)) --load \"$k\" >load.txt 2>&1 || { cat load.txt; exit 91; "
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
    const CommandResult r = shell(c, script);
    if (r.exit_code != 0) fail_msg("code %d\n%s\n%s", r.exit_code, r.out, r.err);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, checkpoint_case_setup, checkpoint_case_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(ranks_load_the_checkpoint_that_the_command_found),
        TEST(ranks_load_the_checkpoint_that_the_first_rank_found),
        TEST(ranks_that_see_other_files_refuse_to_load),
        TEST(others_load_but_do_not_save_beside_a_saving_run),
    };
    return cmocka_run_group_tests_name("cli_checkpoint_folder", tests, NULL, NULL);
}
