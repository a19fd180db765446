/* Stands between the parent of a script and its process. Records the stream of the real process,
 * puts another process in its place, and lets system calls of the parent fail. Link order makes it
 * so: this file defines functions of the C library. */
#ifndef TANDEM_TESTS_UNIT_FRONT_PROCESS_IMPOSTOR_H
#define TANDEM_TESTS_UNIT_FRONT_PROCESS_IMPOSTOR_H

#include "planner/base/str.h"

/* What the impostor does after its last byte: it exits with a code, ends by a signal, waits until
 * the parent closes the pipe, or stays for ever. */
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
    int code; /* its exit code, or its signal */
} Impostor;

/* From now on, each byte that this process receives is added to `stream`; NULL: none is. */
void impostor_record(Str *stream);
/* From now on, each new process is this impostor; NULL: none is. */
void impostor_use(const Impostor *impostor);
/* The next call of this function fails with `error`. Returns false if the last failure that was
 * ordered did not happen. */
bool impostor_fail(const char *function, int error);
/* If true, no byte arrives within any limit of time. */
void impostor_be_late(bool late);

#endif
