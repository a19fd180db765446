/* Stands between the parent of a script and the script's process. Records the bytes that the real
 * process sends, puts another process in its place, and lets system calls of the parent fail. This
 * works because the file defines functions of the C library and is linked before it. */
#ifndef TANDEM_TESTS_UNIT_FRONT_PROCESS_IMPOSTOR_H
#define TANDEM_TESTS_UNIT_FRONT_PROCESS_IMPOSTOR_H

#include "planner/base/str.h"

/* What the impostor does after its last byte: it exits with a code, is ended by a signal, waits
 * until the parent closes the pipe, or stays for ever. */
typedef enum ImpostorEnd {
    IMPOSTOR_exits,
    IMPOSTOR_dies,
    IMPOSTOR_waits,
    IMPOSTOR_stays
} ImpostorEnd;
typedef struct Impostor {
    const char *bytes;
    size_t n;
    ImpostorEnd end;
    int code; /* the exit code, or the signal */
} Impostor;

/* From now on, each byte that this process receives is added to `stream`. NULL ends the
 * recording. */
void impostor_record(Str *stream);
/* From now on, each new process is this impostor. NULL: new processes are real. */
void impostor_use(const Impostor *impostor);
/* The next call of this function fails with `error`. Returns false if the failure that was ordered
 * before has not happened yet. */
bool impostor_fail(const char *function, int error);
/* If true, every wait for bytes ends by its time limit. */
void impostor_be_late(bool late);

#endif
