/* Tells the library fail_at which call must fail. The test and all processes of the command map the
 * file with this state, so their calls are counted together. */
#ifndef TANDEM_TESTS_FAILURES_FAIL_AT_H
#define TANDEM_TESTS_FAILURES_FAIL_AT_H

#include <stdatomic.h>
#include <stdint.h>

enum { MOST_PLACES = 8192 };

/* A place in the code that allocates memory: the functions that are active at the call. */
typedef struct FailPlace {
    atomic_uint_fast64_t path;  /* a hash of the return addresses; 0: none */
    atomic_uint_fast64_t first; /* number of the first call from this place */
} FailPlace;

typedef enum FailKind { FAIL_nothing, FAIL_memory, FAIL_file } FailKind;

typedef struct FailState {
    uint32_t kind;    /* a FailKind: the kind of calls that are counted */
    uint32_t forever; /* 1: all calls from number `at` on fail; 0: only that call fails */
    uint64_t at;      /* number of the call that fails, from 1; 0: none fails */
    atomic_uint_fast64_t counted, failed;
    atomic_int_fast64_t live; /* blocks of memory that were allocated and not freed */
    uint32_t notes;           /* 1: `place` is filled in */
    FailPlace place[MOST_PLACES];
} FailState;

/* The command's environment variable with the path of this file. */
#define FAIL_STATE "TANDEM_FAIL_STATE"
/* The environment variable with a part of a library's name. dlopen fails for a library whose name
 * contains it. */
#define FAIL_LIBRARY "TANDEM_FAIL_LIBRARY"

/* Sets the state in which calls are counted, if this library is linked into the test itself. NULL:
 * calls are not counted. */
void fail_at_use(FailState *state);

#endif
