/* Runs a command as a user would, and keeps its output. Only for tests. */
#ifndef TANDEM_TESTS_SUPPORT_COMMAND_H
#define TANDEM_TESTS_SUPPORT_COMMAND_H

#include <stdbool.h>

#include "planner/base/arena.h"

typedef struct CommandResult {
    int exit_code; /* -1: a signal ended the command, or the command could not be started */
    int signal;    /* the signal that ended the command; 0: it exited */
    /* true: its time was up, so the command and its process group were killed */
    bool timed_out;
    const char *out, *err; /* the whole output, ending in 0 */
    size_t n_out, n_err;
    double seconds; /* seconds of the wall clock */
    double cpu_s;   /* processor time of the command and of the children for which it waited */
} CommandResult;

/* Runs the `tandem` of this build. A NULL ends the arguments. Standard input is empty. The command
 * runs in the test's environment and working directory. */
CommandResult command_run(Arena *arena, double timeout_s, const char *const *arguments);
/* Runs any program. It is searched in PATH if argv[0] has no slash. */
CommandResult command_run_program(Arena *arena, double timeout_s, const char *const *argv);

/* For example: COMMAND(arena, 10, "check", "plan.lua") */
#define COMMAND(arena, timeout_s, ...)                                                             \
    command_run((arena), (timeout_s), (const char *const[]){__VA_ARGS__, NULL})

/* Returns a new folder under the test's working directory; the name ends without a slash. */
const char *command_new_folder(Arena *arena);
/* command_write_file writes a text file, and ends the test on failure. command_read_file returns a
 * whole file, or NULL on failure. */
void command_write_file(const char *path, const char *text);
const char *command_read_file(Arena *arena, const char *path, size_t *bytes);
/* Writes a CSV file with this text in a new folder, and returns its path. */
const char *command_table(Arena *arena, const char *text);

#endif
