/* Tests the search for a GPU at the start of the programs in tests/gpu, on a double of CUDA. Like
 * the real one, the double refuses a child of a process that has already used CUDA. */
#define _DEFAULT_SOURCE
#include "tests/gpu/no_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REFUSED = 6 };

static pid_t used_by; /* the process that uses CUDA; 0: none */
static int n_devices;

cudaError_t cudaGetDeviceCount(int *n)
{
    if (used_by != 0 && used_by != getpid()) return cudaErrorInitializationError;
    *n = n_devices;
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorInitializationError ? "initialization error" : "another error";
}

/* Returns the exit code of a process that runs `body`. Its standard output goes to `out`. */
static int code_of(void (*body)(void), FILE *out)
{
    int status = 0;
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(fileno(out), STDOUT_FILENO);
        body();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void look_twice(void)
{
    no_gpu_ends();
    used_by = getpid();
    no_gpu_ends();
}

/* Runs this program again with an argument, so that its standard output is unused at first. */
static void print_line(void)
{
    char *arguments[] = {(char *)"test_no_gpu", (char *)"a line", NULL};
    execv("/proc/self/exe", arguments);
}

/* Two parts of a program may both search for a GPU. The program uses CUDA between the searches. */
static void test_second_search_after_cuda(void **state)
{
    (void)state;
    FILE *out = tmpfile();
    assert_non_null(out);
    n_devices = 1;
    assert_int_equal(code_of(look_twice, out), 0);
    n_devices = 0;
    assert_int_equal(code_of(look_twice, out), REFUSED);
    fclose(out);
}

static void test_lines_outlive_the_program(void **state)
{
    char line[16] = "";
    (void)state;
    FILE *out = tmpfile();
    assert_non_null(out);
    assert_int_equal(code_of(print_line, out), 0);
    rewind(out);
    assert_non_null(fgets(line, sizeof line, out));
    assert_string_equal(line, "a line\n");
    fclose(out);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        n_devices = 1;
        no_gpu_ends();
        printf("%s\n", argv[1]);
        _exit(0); /* without writing what is still buffered, as if killed */
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_second_search_after_cuda),
        cmocka_unit_test(test_lines_outlive_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
