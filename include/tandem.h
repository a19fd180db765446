/* libtandem: plan and predict sharded training, from C.
 *
 *     TandemPlan *plan = tandem_load("scripts/plans/llama3_8b.lua", NULL, 0);
 *     double step_s;
 *     if (tandem_check(plan) && tandem_simulate(plan, NULL) &&
 *         tandem_number(plan, "step_s", &step_s))
 *         printf("%.3f s a step\n", step_s);
 *     else
 *         fputs(tandem_diagnostics(plan), stderr);
 *     tandem_free(plan);
 *
 * A handle belongs to one thread at a time; different handles are independent. The library never
 * prints and never exits: every error is in the handle's diagnostics. Scripts are evaluated in a
 * forked child. A process that must not fork can load only the text of plans, no scripts. A
 * returned string belongs to the handle. It lives until tandem_free, or until the next call of the
 * function that returned it. */
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

/* Loads a plan. A script (.lua) is evaluated. The "key=value" settings then change its plan{}
 * table, and the plan is compiled into one program for each role (a group of ranks that do the same
 * work). The text of a plan (.plan) takes no settings. Returns a handle even after an error.
 * Returns NULL only if there is no memory for a handle. */
TandemPlan *tandem_load(const char *path, const char *const *settings, size_t n_settings);
void tandem_free(TandemPlan *plan); /* `plan` may be NULL */

/* Returns the exit code with which the command `tandem` would end. 0: nothing failed. 1: internal
 * error. 2: the call is invalid, such as a setting without "=" or a simulation without a cluster.
 * 3: the script is invalid. 4: the plan does not fit. 7: the store failed. */
int tandem_status(const TandemPlan *plan);
/* Return all diagnostics so far: as text of one or two lines for each, or as a JSON array of
 * objects. */
const char *tandem_diagnostics(TandemPlan *plan);
const char *tandem_diagnostics_json(TandemPlan *plan);

/* Proves the plan (layouts, scale, races, deadlock, coverage), and checks that it fits its device.
 * Returns true if both succeed. */
bool tandem_check(TandemPlan *plan);

typedef struct TandemSimOptions {
    bool unfolded;     /* true: simulates every rank, even if several ranks do the same work */
    uint64_t seed;     /* seed of all random draws */
    const char *store; /* path of a tandem.db with measured costs of this machine; NULL: none */
    /* the machine whose costs are used, by the name that `tandem calibrate` prints; NULL: none */
    const char *machine;
} TandemSimOptions;
/* Predicts the time and memory of one step on the plan's cluster, once the first, slower steps are
 * over. `options` may be NULL. A plan that does not fit is still simulated. A plan without a
 * cluster (loaded from text), or with a failed proof, is not. */
bool tandem_simulate(TandemPlan *plan, const TandemSimOptions *options);

/* Finds a number of the plan or, after tandem_simulate, of the prediction. Returns false if no
 * number has this name, or if it needs tandem_simulate first. tandem_number_name(i) returns the
 * names for i = 0, 1, ..., and then NULL. */
bool tandem_number(const TandemPlan *plan, const char *name, double *value);
const char *tandem_number_name(size_t i);

/* Returns the hash of the plan's exact text, as 32 hex digits. Returns NULL if the plan did not
 * compile. */
const char *tandem_plan_id(TandemPlan *plan);
/* tandem_plan_text returns the exact text, which tandem_load can read. tandem_plan_show returns the
 * form for people. Both return NULL if the plan did not compile. */
const char *tandem_plan_text(TandemPlan *plan);
const char *tandem_plan_show(TandemPlan *plan);
/* Returns one JSON object with all numbers of tandem_number that exist, and the formula of
 * the MFU. */
const char *tandem_report_json(TandemPlan *plan);

#ifdef __cplusplus
}
#endif

#endif
