/* libtandem: plan and predict the sharded training of a model, from C.
 *
 *      TandemPlan *plan = tandem_load("scripts/plans/llama3_8b.lua", NULL, 0);
 *      double step_s;
 *      if (tandem_check(plan) && tandem_simulate(plan, NULL) &&
 *          tandem_number(plan, "step_s", &step_s))
 *          printf("%.3f s a step\n", step_s);
 *      else
 *          fputs(tandem_diagnostics(plan), stderr);
 *      tandem_free(plan);
 *
 * A plan says which part of a model each rank (each GPU) stores and computes, and when ranks
 * communicate. It exists as a Lua script (.lua), or as the exact text of the compiled plan (.plan).
 *
 * One thread at a time may use a handle; different handles are independent. The library never
 * prints and never exits: tandem_diagnostics returns all errors. A script is evaluated in a forked
 * child process. A process that must not fork can still load a .plan file.
 *
 * The library owns every string that it returns. The string is valid until tandem_free, or until
 * the next call of the function that returned it. */
#ifndef TANDEM_H
#define TANDEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TandemPlan TandemPlan;

/* Returns the version of the library, such as "0.1.0". */
const char *tandem_version(void);

/* Loads the plan in the file `path`. A .lua script is evaluated first. Then `settings`,
 * `n_settings` texts such as "mesh.tp=4", change fields of its plan{} table. Then the plan is
 * compiled into programs: ranks that execute the same instructions share one program. A .plan file
 * takes no settings. Returns a handle even after an error. Returns NULL only if there is no memory
 * for a handle. */
TandemPlan *tandem_load(const char *path, const char *const *settings, size_t n_settings);
void tandem_free(TandemPlan *plan); /* `plan` may be NULL */

/* Returns the exit code that the command `tandem` would return for the calls so far:
 *   0  nothing failed
 *   1  internal error
 *   2  a call was invalid, such as a setting without "=", or a simulation without a cluster
 *   3  the script is invalid
 *   4  the plan needs more memory than its device has
 *   7  the store of measured costs could not be read */
int tandem_status(const TandemPlan *plan);
/* Both return all errors, warnings and notes so far. tandem_diagnostics returns text, one or two
 * lines for each. tandem_diagnostics_json returns a JSON array of objects. */
const char *tandem_diagnostics(TandemPlan *plan);
const char *tandem_diagnostics_json(TandemPlan *plan);

/* Proves that the plan is correct: that all ranks together compute what one rank would compute,
 * without races or deadlocks. Then checks that every rank's memory fits its device. Returns true if
 * both succeed. */
bool tandem_check(TandemPlan *plan);

typedef struct TandemSimOptions {
    /* true: simulates every rank; false: ranks that do the same work are simulated once */
    bool unfolded;
    uint64_t seed; /* key of all random draws; the same seed gives the same prediction */
    /* path of a tandem.db in which `tandem calibrate` has stored measured costs; NULL: none */
    const char *store;
    /* Which machine's costs to read from `store`, by the name that `tandem calibrate` prints. NULL:
     * none */
    const char *machine;
} TandemSimOptions;
/* Predicts the time and the memory of one training step on the plan's cluster. The step is a
 * typical one: the slower first steps are over. `options` may be NULL. Proves the plan first if
 * tandem_check has not done so. A plan that needs too much memory is still simulated. Returns false
 * if a proof fails, or if the plan has no cluster because it was loaded from a .plan file. */
bool tandem_simulate(TandemPlan *plan, const TandemSimOptions *options);

/* tandem_number sets *value to a named result, such as "params" (of the plan) or "step_s" (of the
 * prediction). Returns false if there is no such name, or if the result needs tandem_simulate
 * first. tandem_number_name(0), tandem_number_name(1) and so on return all names; after the last
 * one, NULL. */
bool tandem_number(const TandemPlan *plan, const char *name, double *value);
const char *tandem_number_name(size_t i);

/* Returns the plan's id: a hash of the plan's exact text, as 32 hex digits. Returns NULL if the
 * plan did not compile. */
const char *tandem_plan_id(TandemPlan *plan);
/* tandem_plan_text returns the exact text of the compiled plan. Saved as a .plan file, tandem_load
 * can read it. tandem_plan_show returns an abridged listing for people. Both return NULL if the
 * plan did not compile. */
const char *tandem_plan_text(TandemPlan *plan);
const char *tandem_plan_show(TandemPlan *plan);
/* Returns a JSON object with every value that tandem_number can return now, and the formula of the
 * MFU (model FLOPs utilisation). */
const char *tandem_report_json(TandemPlan *plan);

#ifdef __cplusplus
}
#endif

#endif
