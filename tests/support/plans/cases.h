/* Seed cases: configurations of other systems, and their expected results in Tandem.
 * tests/data/seed_cases.csv has the rows (the behaviour of the systems). tests/seed_cases/ID.lua
 * and ID.NAME.lua are the scripts of a row. A script begins with comments that state the expected
 * result:
 *
 *   -- expect: error[RULE] TEXT | TEXT  (a diagnostic of that rule, with all of the texts in it)
 *   -- expect: warning[RULE] TEXT       (warning and note likewise)
 *   -- expect: no warning[RULE]
 *   -- expect: ok FACT | FACT           (it is planned and proven, and these facts hold)
 *   -- set: mesh.tp=4                   (as --set)
 *   -- instead: REASON                  (why the row is not refused, although its system refuses
 * it)
 *
 * Every error must be expected, and every expectation must be met. cases_fact.c reads the facts. */
#ifndef TANDEM_TESTS_CASES_H
#define TANDEM_TESTS_CASES_H

#include "planner/front/front.h"
#include "planner/passes/passes.h"

typedef struct CaseRow {
    const char *id, *system, *config, *expected;
} CaseRow;
typedef struct CaseRows {
    LIST(CaseRow) at;
} CaseRows;
/* Reads the rows of a CSV file. Fields may be quoted, with "" for a quote. Aborts if the file does
 * not exist. */
CaseRows cases_read(const char *path, Arena *arena);

typedef struct Expectation {
    enum { EXPECT_error, EXPECT_warning, EXPECT_note, EXPECT_absent, EXPECT_ok } kind;
    const char *rule;
    LIST(const char *) parts; /* texts of a diagnostic, or facts */
} Expectation;
typedef struct CaseScript {
    const char *path, *instead;
    LIST(Expectation) expect;
    LIST(const char *) set;
} CaseScript;
/* Reads the expectations that a script states. Returns false, with a line on stderr, if they are
 * not valid. */
bool cases_script(const char *path, Arena *arena, CaseScript *script);
/* Returns 0 if every expectation is met. Otherwise prints the differences and returns another
 * number. */
int cases_run(const CaseScript *script);

/* ---- cases_fact.c */
typedef struct CaseResult {
    const CaseScript *script;
    const Config *config;
    const Plan *plan;
    Arena *arena;
} CaseResult;
/* Returns true if the fact holds. If not, writes the actual state to `seen`. */
bool cases_fact(const CaseResult *result, const char *fact, Str *seen);

/* ---- cases_run.c */
bool cases_equal(const CaseResult *result, const char *rest, Str *seen);
bool cases_norm(const CaseResult *result, const char *rest, Str *seen);
bool cases_start(const CaseResult *result, const char *rest, Str *seen);
bool cases_replicas(const CaseResult *result, const char *rest, Str *seen);
bool cases_draws(const CaseResult *result, const char *rest, Str *seen);

#endif
