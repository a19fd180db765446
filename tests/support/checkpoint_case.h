/* A folder for checkpoints and a store, for tests of `tandem run --save` and `--load`. */
#ifndef TANDEM_TESTS_SUPPORT_CHECKPOINT_CASE_H
#define TANDEM_TESTS_SUPPORT_CHECKPOINT_CASE_H

#include "tests/support/command.h"

typedef struct CheckpointCase {
    Arena *arena;
    const char *plan;        /* a script that trains a small model on 4 ranks */
    const char *folder, *db; /* absolute paths: an empty folder, and a store that does not exist */
} CheckpointCase;

int checkpoint_case_setup(void **state); /* sets *state to a CheckpointCase */
int checkpoint_case_teardown(void **state);
/* Trains in one process. The arguments after `c` are further options of `tandem run`. */
#define CHECKPOINT_RUN(c, ...)                                                                     \
    COMMAND((c)->arena, 300, "run", (c)->plan, "--db", (c)->db, "--backend", "loopback",           \
            __VA_ARGS__)
/* Ends the test unless the command ended with `code`, standard output contains `out`, and standard
 * error contains `err`. */
void checkpoint_case_expect(const CommandResult *r, int code, const char *out, const char *err);

#endif
