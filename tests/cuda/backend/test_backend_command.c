/* The whole command on the CUDA backend, with the double of CUDA in place of the real module. Runs
 * of one rank, of four ranks under mpirun, and with torchrun's variables; calibration, doctor, and
 * failures. Each way to start ranks passes the settings differently, so each one is tested. */
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cuda/backend/ranks.h"
#include "tests/support/command.h"

static Arena *arena;

#define PLAN TANDEM_SOURCE_DIR "/scripts/plans/tiny_text.lua"
/* Time limit for a command that hangs, which no command should. */
enum { MOST_S = 300 };

#define ONE "--set", "mesh.dp_shard=1", "--set", "mesh.tp=1", "--quiet"

static int setup(void **state)
{
    (void)state;
    arena = arena_new();
    setenv("TANDEM_MODULE_DIR", TANDEM_DOUBLE_DIR, 1);
    assert_int_equal(chdir(command_new_folder(arena)), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unsetenv("TANDEM_DOUBLE");
    arena_free(arena);
    return 0;
}

static void check(CommandResult r, int code, const char *out, const char *err)
{
    if (r.exit_code != code || (out && !strstr(r.out, out)) || (err && !strstr(r.err, err)))
        fail_msg("code %d (wanted %d)\n%s\n%s", r.exit_code, code, r.out, r.err);
}

static void one_rank_trains_and_is_compared(void **state)
{
    (void)state;
    check(COMMAND(arena, MOST_S, "run", PLAN, "--backend", "cuda", "--steps", "6", ONE), 0,
          "done        6 steps", NULL);
    check(COMMAND(arena, MOST_S, "runs"), 0, "cuda", NULL);
    check(COMMAND(arena, MOST_S, "compare"), 0, "cuda", NULL);
    static const char *const modes[] = {"whole", "cut", "none"};
    const char *last[3];
    for (int k = 0; k < 3; k++) {
        CommandResult r = COMMAND(arena, MOST_S, "run", PLAN, "--backend", "cuda", "--steps", "6",
                                  "--graph", modes[k], "--json", ONE);
        check(r, 0, "\"last_loss\":", NULL);
        last[k] = strstr(r.out, "\"last_loss\":");
        last[k] = arena_copy(arena, last[k], strcspn(last[k], ",\n"));
        assert_string_equal(last[k], last[0]);
    }
}

/* The device counts choices of experts, and loopback counts them on the host. Both must agree. */
static void choices_of_experts_are_written(void **state)
{
    (void)state;
    static const char *const backends[] = {"loopback", "cuda"};
    const char *counts[2];
    command_write_file("experts.lua",
                       "return plan { model = require 'models.mixtral' { size = 'tiny', "
                       "capacity_factor = 1.0 },\n  batch = { global = 2, micro = 1, seq = 64 }, "
                       "mesh = {}, parallel = {} }\n");
    for (int k = 0; k < 2; k++) {
        CommandResult r = COMMAND(arena, MOST_S, "run", "experts.lua", "--backend", backends[k],
                                  "--steps", "3", "--quiet", "--loads", "counts.txt");
        check(r, 0, "dropped", NULL);
        counts[k] = command_read_file(arena, "counts.txt", NULL);
        assert_non_null(counts[k]);
        unlink("counts.txt");
    }
    assert_string_equal(counts[0], counts[1]);
}

/* Each rank writes its own file, in which every line names the rank. `last`: the rank that did not
 * reach the end; 4: all ranks did. */
static void check_record(uint32_t last)
{
    for (uint32_t r = 0; r < 4; r++) {
        const char *path = arena_print(arena, "where/rank-%u.txt", r);
        const char *who = arena_print(arena, "rank %u on ", r);
        const char *text = command_read_file(arena, path, NULL);
        if (text == NULL) fail_msg("there is no %s", path);
        for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
            if (strncmp(line, who, strlen(who)) != 0) fail_msg("%s: %s", path, text);
        bool is_over = strstr(text, " is over\n") != NULL;
        if (!strstr(text, ": of 4 ranks, pid ") || (last == 4 && !is_over) ||
            (last == r && (is_over || !strstr(text, " step 0 is "))))
            fail_msg("%s: %s", path, text);
        unlink(path);
    }
}

static void four_ranks_train_under_mpirun(void **state)
{
    (void)state;
    check(COMMAND(arena, MOST_S, "run", PLAN, "--backend", "cuda", "--steps", "6", "--set",
                  "nccl.max_ctas=4", "--set", "nccl.register=buffer", "--record", "where"),
          0, "done        6 steps", NULL);
    check_record(4);
    setenv("TANDEM_DOUBLE", "rank=2 ncclReduceScatter@9=kill", 1);
    check(COMMAND(arena, MOST_S, "run", PLAN, "--backend", "cuda", "--steps", "6", "--timeout",
                  "200", "--record", "where"),
          6, NULL, "error[rank-died]: rank 2 (pid ");
    check_record(2);
    setenv("TANDEM_DOUBLE", "rank=1 ncclAllGather@9=hang", 1);
    CommandResult r = COMMAND(arena, MOST_S, "run", PLAN, "--backend", "cuda", "--steps", "6",
                              "--timeout", "8", "--graph", "none");
    check(r, 6, NULL, "error[timeout]: step ");
    check(r, 6, NULL, "is at step ");
    setenv("TANDEM_DOUBLE", "uuid=same", 1);
    check(COMMAND(arena, MOST_S, "run", PLAN, "--backend", "cuda", "--steps", "6"), 6, NULL,
          "error[device-shared]");
}

/* Returns the last loss that a run of five steps prints. */
static const char *last_loss(const char *plan, const char *backend, const char *via,
                             const char *graph)
{
    CommandResult r = backend[0] == 'c' ? COMMAND(arena, MOST_S, "run", plan, "--backend", backend,
                                                  "--via", via, "--graph", graph, "--steps", "5",
                                                  "--json", "--quiet", "--timeout", "200")
                                        : COMMAND(arena, MOST_S, "run", plan, "--backend", backend,
                                                  "--steps", "5", "--json", "--quiet");
    check(r, 0, "\"last_loss\":", NULL);
    const char *at = strstr(r.out, "\"last_loss\":");
    return arena_copy(arena, at, strcspn(at, ",\n"));
}

/* Returns tiny_text as a pipeline with offload. It has sends, receives, and communications in the
 * pinned arena. */
static const char *pipeline(void)
{
    static const char text[] =
        "return plan { model = require \"models.llama\" { size = \"tiny\", layers = 2 },\n"
        "  cluster = require \"clusters.local_cpu\" {},\n"
        "  batch = { global = 16, micro = 4, seq = 64 }, mesh = { pp = 2, dp_shard = 2 },\n"
        "  parallel = { pp { schedule = \"1f1b\" }, fsdp2 { offload = true } },\n"
        "  precision = { param = \"fp32\", compute = \"fp32\", reduce = \"fp32\" },\n"
        "  optimizer = adamw { lr = 3e-3, warmup_steps = 10, total_steps = 200 },\n"
        "  steps = 200 }\n";
    FILE *f = fopen("pipeline.lua", "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0 && fclose(f) == 0);
    return "pipeline.lua";
}

/* MPI adds in rank order, and so does the double's NCCL. So every way to run must give equal
 * bits. */
static void ranks_through_the_host_give_the_same_bits(void **state)
{
    (void)state;
    const char *const plans[] = {PLAN, pipeline()};
    static const char *const modes[] = {"none", "whole", "cut"};
    for (int k = 0; k < 2; k++) {
        const char *cpu = last_loss(plans[k], "mpi", NULL, NULL);
        assert_string_equal(last_loss(plans[k], "cuda", "nccl", "cut"), cpu);
        for (int m = k == 0 ? 0 : 2; m < 3; m++)
            assert_string_equal(last_loss(plans[k], "cuda", "host", modes[m]), cpu);
    }
    /* It uses neither NCCL nor, by default, graphs. */
    setenv("TANDEM_DOUBLE",
           "uuid=same ncclCommInitRankConfig@1=fail:3 ncclMemAlloc@1=fail:1 "
           "cudaGraphLaunch@1=fail:1",
           1);
    check(COMMAND(arena, MOST_S, "run", PLAN, "--backend", "cuda", "--via", "host",
                  "--share-device", "--steps", "5"),
          0, "done        5 steps", "warning[gpu-shared]: 4 ranks may share a GPU");
    setenv("TANDEM_DOUBLE", "rank=1 cuStreamWaitValue32@9=kill", 1);
    check(COMMAND(arena, MOST_S, "run", PLAN, "--backend", "cuda", "--via", "host", "--steps", "5"),
          6, NULL, "error[rank-died]: rank 1 (pid ");
    setenv("TANDEM_DOUBLE", "rank=2 cuStreamWaitValue32@9=stop", 1);
    CommandResult r = COMMAND(arena, MOST_S, "run", PLAN, "--backend", "cuda", "--via", "host",
                              "--steps", "5", "--timeout", "8");
    check(r, 6, NULL, "error[timeout]: step 0: rank ");
    check(r, 6, NULL, "its process is stopped) is at step 0, instruction ");
    setenv("TANDEM_DOUBLE", "cuStreamWaitValue32@2=fail:1", 1);
    check(COMMAND(arena, MOST_S, "run", PLAN, "--backend", "cuda", "--via", "host", "--steps", "5"),
          6, NULL, "cuStreamWaitValue32: error 1");
    unsetenv("TANDEM_DOUBLE");
}

/* Whether the run has one rank or several, the process must end, although no call may wait for the
 * hanging kernel. */
static void a_kernel_that_hangs_in_timing_ends_the_process(void **state)
{
    (void)state;
    setenv("TANDEM_DOUBLE", "attention_chooser@1=fail:1", 1);
    for (int ranks = 1; ranks <= 2; ranks++)
        check(COMMAND(arena, MOST_S, "run", PLAN, "--backend", "cuda", "--set", "mesh.tp=1",
                      "--set", ranks == 1 ? "mesh.dp_shard=1" : "mesh.dp_shard=2", "--steps", "2"),
              6, NULL, "attention by no way did not end");
    unsetenv("TANDEM_DOUBLE");
}

/* Without LOCAL_RANK every rank would silently use device 0. */
static void ranks_without_a_local_number_are_refused(void **state)
{
    (void)state;
    int port, port_socket = ranks_hold_port(&port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", arena_print(arena, "%d", port), 1);
    setenv("WORLD_SIZE", "2", 1);
    fflush(NULL);
    pid_t child = fork();
    setenv("RANK", child == 0 ? "1" : "0", 1);
    CommandResult r = COMMAND(arena, MOST_S, "run", PLAN, "--backend", "cuda", "--steps", "5",
                              "--set", "mesh.dp_shard=2", "--set", "mesh.tp=1");
    if (child == 0) _exit(r.exit_code == 6 ? 0 : 1);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    close(port_socket);
    check(r, 6, NULL, "Set LOCAL_RANK like torchrun");
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    static const char *const set[] = {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"};
    for (size_t i = 0; i < sizeof set / sizeof set[0]; i++) unsetenv(set[i]);
}

static void ranks_of_torchrun_train(void **state)
{
    (void)state;
    int port, port_socket = ranks_hold_port(&port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", arena_print(arena, "%d", port), 1);
    setenv("WORLD_SIZE", "2", 1);
    fflush(NULL);
    pid_t child = fork();
    setenv("RANK", child == 0 ? "1" : "0", 1);
    setenv("LOCAL_RANK", child == 0 ? "1" : "0", 1);
    CommandResult r = COMMAND(arena, MOST_S, "run", PLAN, "--backend", "cuda", "--steps", "5",
                              "--set", "mesh.dp_shard=2", "--set", "mesh.tp=1");
    if (child == 0) _exit(r.exit_code == 0 && r.n_out == 0 ? 0 : 1);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    close(port_socket);
    check(r, 0, "done        5 steps", NULL);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    /* Only the CUDA backend connects ranks through these variables; the CPU's refuses them. */
    check(COMMAND(arena, MOST_S, "run", PLAN, "--steps", "5", "--set", "mesh.dp_shard=2", "--set",
                  "mesh.tp=1"),
          6, NULL, "error[module-missing]: MASTER_ADDR is set, so");
    static const char *const set[] = {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK",
                                      "LOCAL_RANK"};
    for (size_t i = 0; i < sizeof set / sizeof set[0]; i++) unsetenv(set[i]);
}

static void calibration_fills_the_tables(void **state)
{
    (void)state;
    CommandResult r = COMMAND(arena, MOST_S, "calibrate", PLAN, "--backend", "cuda", ONE);
    check(r, 0, "machine     cuda:Double", NULL);
    check(r, 0, "0 kernels, 0 collectives", NULL);
    r = COMMAND(arena, MOST_S, "calibrate", PLAN, "--backend", "cuda");
    check(r, 0, "all_gather dp_shard", NULL);
    check(r, 0, "0 kernels, 0 collectives", NULL);
    /* Calibrating the CUDA backend leaves the tables of the CPU backend unchanged. */
    check(COMMAND(arena, MOST_S, "calibrate", PLAN, "--dry-run", ONE), 0,
          "to measure    59 kernels", NULL);
    /* A prediction for the CUDA backend uses these tables. */
    r = COMMAND(arena, MOST_S, "run", PLAN, "--backend", "cuda", "--steps", "3", ONE);
    check(r, 0, "done        3 steps", NULL);
    assert_null(strstr(r.err, "not-calibrated"));
}

/* The plan is for the processors of this machine, but runs on a GPU. If the library knows this GPU,
 * the prediction is for it. */
static void a_run_is_predicted_on_its_own_gpu(void **state)
{
    (void)state;
    static const char of_step[] = "\"predicted_step_ps\": ";
    double predicted_s[2];
    for (int known = 0; known < 2; known++) {
        if (known) setenv("TANDEM_DOUBLE_NAME", "NVIDIA H200", 1);
        CommandResult r = COMMAND(arena, MOST_S, "run", PLAN, "--backend", "cuda", "--steps", "3",
                                  "--json", "--db", known ? "a.db" : "b.db", "--set",
                                  "mesh.dp_shard=1", "--set", "mesh.tp=1");
        check(r, 0, of_step, NULL);
        check(r, 0,
              known ? "their costs come from the GPU's model"
                    : "the library has no GPU called 'Double'",
              NULL);
        predicted_s[known] = 1e-12 * strtod(strstr(r.out, of_step) + sizeof of_step - 1, NULL);
    }
    unsetenv("TANDEM_DOUBLE_NAME");
    if (!(predicted_s[1] > 1e-4 && predicted_s[1] < 0.2 * predicted_s[0]))
        fail_msg("%g s as an H200, %g s as a core", predicted_s[1], predicted_s[0]);
}

/* Other libraries and other options, such as TF32, have other costs. So each has its own tables. */
static void each_way_to_run_has_its_own_tables(void **state)
{
    (void)state;
    CommandResult r = COMMAND(arena, MOST_S, "calibrate", PLAN, "--backend", "cuda", ONE);
    check(r, 0, "0 kernels, 0 collectives", NULL);
    r = COMMAND(arena, MOST_S, "calibrate", PLAN, "--backend", "cuda", "--tf32", "--dry-run", ONE);
    check(r, 0, "machine     cuda:Double tf32\n", NULL);
    check(r, 0, "to measure    59 kernels", NULL);
    r = COMMAND(arena, MOST_S, "run", PLAN, "--backend", "cuda", "--tf32", "--steps", "3", "--set",
                "mesh.dp_shard=1", "--set", "mesh.tp=1");
    check(r, 0, "done        3 steps", "59 of 59 kernels are not measured");
    /* With several ranks, the processes that measure collectives must use the same options. */
    r = COMMAND(arena, MOST_S, "calibrate", PLAN, "--backend", "cuda", "--tf32");
    check(r, 0, "machine     cuda:Double tf32\n", NULL);
    check(r, 0, "0 kernels, 0 collectives", NULL);
    r = COMMAND(arena, MOST_S, "run", PLAN, "--backend", "cuda", "--tf32", "--steps", "3");
    check(r, 0, "done        3 steps", NULL);
    assert_null(strstr(r.err, "are not measured"));
    check(COMMAND(arena, MOST_S, "calibrate", PLAN, "--backend", "cuda", "--tf32", "--cudnn",
                  "--dry-run", ONE),
          0, "machine     cuda:Double tf32 cudnn\n", NULL);
    check(COMMAND(arena, MOST_S, "calibrate", PLAN, "--backend", "cuda", "--cudnn", ONE), 6, NULL,
          "--cudnn: the double has no cuDNN");
    check(COMMAND(arena, MOST_S, "calibrate", PLAN, "--tf32", ONE), 2, NULL,
          "goes with --backend cuda");
}

static void failures_are_reported(void **state)
{
    (void)state;
    check(COMMAND(arena, MOST_S, "doctor"), 0, "gpu 3      Double, 256 MiB, capability 9.0, 4 SMs",
          NULL);
    setenv("TANDEM_DOUBLE", "devices=0", 1);
    check(COMMAND(arena, MOST_S, "doctor"), 0, "no CUDA-capable device is detected", NULL);
    check(COMMAND(arena, MOST_S, "run", PLAN, "--backend", "cuda", "--steps", "5", ONE), 6, NULL,
          "error[cuda-no-device]");
    unsetenv("TANDEM_DOUBLE");
    check(COMMAND(arena, MOST_S, "run", PLAN, "--backend", "mpi", "--graph", "none"), 2, NULL,
          "goes with --backend cuda");
    check(COMMAND(arena, MOST_S, "run", PLAN, "--backend", "mpi", "--record", "where"), 2, NULL,
          "--record goes with");
    check(COMMAND(arena, MOST_S, "run", PLAN, "--backend", "cuda", "--record", "/proc/where", ONE),
          6, NULL, "error[rank-record]: cannot make the folder /proc/where");
    check(COMMAND(arena, MOST_S, "run", PLAN, "--backend", "cuda", "--graph", "cutt"), 2, NULL,
          "did you mean cut?");
    check(COMMAND(arena, MOST_S, "run", PLAN, "--backend", "cuda", "--device", "7", ONE), 6, NULL,
          "there is no device 7; CUDA shows 4 devices here, counted from 0");
    check(COMMAND(arena, MOST_S, "run", PLAN, "--backend", "cuda", "--dry-run"), 0,
          "would run   4 ranks on cuda", NULL);
    check(COMMAND(arena, MOST_S, "run", PLAN, "--backend", "cuda", "--via", "hots"), 2, NULL,
          "did you mean host?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_rank_trains_and_is_compared, setup, teardown),
        cmocka_unit_test_setup_teardown(choices_of_experts_are_written, setup, teardown),
        cmocka_unit_test_setup_teardown(four_ranks_train_under_mpirun, setup, teardown),
        cmocka_unit_test_setup_teardown(ranks_through_the_host_give_the_same_bits, setup, teardown),
        cmocka_unit_test_setup_teardown(a_kernel_that_hangs_in_timing_ends_the_process, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(ranks_without_a_local_number_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(ranks_of_torchrun_train, setup, teardown),
        cmocka_unit_test_setup_teardown(calibration_fills_the_tables, setup, teardown),
        cmocka_unit_test_setup_teardown(a_run_is_predicted_on_its_own_gpu, setup, teardown),
        cmocka_unit_test_setup_teardown(each_way_to_run_has_its_own_tables, setup, teardown),
        cmocka_unit_test_setup_teardown(failures_are_reported, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
