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
 * A handle belongs to one thread at a time; different handles are independent. Nothing is printed,
 * nothing exits: whatever goes wrong is in the handle's diagnostics. Scripts are evaluated in a
 * forked child, so a process that must not fork cannot load scripts, only the text of plans.
 * Strings belong to the handle and live until tandem_free, or until the next call that returns the
 * same one. */
#ifndef TANDEM_H
#define TANDEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TandemPlan TandemPlan;

/* The version of the library, as in "0.1.0". */
const char *tandem_version(void);

/* Loads a script (.lua), applies "key=value" settings to what it gives to plan{}, and compiles it
 * into one program a role; or reads the text of a plan (.plan), which takes no settings. Returns a
 * handle in any case, NULL only when there is no memory for one. */
TandemPlan *tandem_load(const char *path, const char *const *settings, size_t n_settings);
void tandem_free(TandemPlan *plan); /* NULL is fine */

/* The exit code that the command would end with: 0 while nothing failed, 1 internal error, 3 the
 * script is invalid, 4 the plan does not fit, 7 the store failed. */
int tandem_status(const TandemPlan *plan);
/* All diagnostics so far: as text, a line or two each, or as a JSON array of objects. */
const char *tandem_diagnostics(TandemPlan *plan);
const char *tandem_diagnostics_json(TandemPlan *plan);

/* Proves the plan (layouts, scale, races, deadlock, coverage) and asks whether it fits its device.
 * True: proven, and it fits. */
bool tandem_check(TandemPlan *plan);

typedef struct TandemSimOptions {
    bool unfolded;       /* simulate every rank, also those that do the same */
    uint64_t seed;       /* of what is drawn */
    const char *store;   /* a tandem.db with measured costs of this machine; NULL: none */
    const char *machine; /* whose costs, as `tandem calibrate` prints it; NULL: none */
} TandemSimOptions;
/* Predicts one steady step on the plan's cluster. `options` may be NULL. A plan that does not fit
 * is simulated all the same; one without a cluster (a text) or with a failed proof is not. */
bool tandem_simulate(TandemPlan *plan, const TandemSimOptions *options);

/* A number about the plan or, after tandem_simulate, about the prediction; false if there is none
 * of that name (yet). tandem_number_name(i) lists the names for i = 0, 1, ... until NULL. */
bool tandem_number(const TandemPlan *plan, const char *name, double *value);
const char *tandem_number_name(size_t i);

/* 32 hex digits: the hash of the plan's exact text. NULL if it did not compile. */
const char *tandem_plan_id(TandemPlan *plan);
/* The exact text, which tandem_load reads back; and the friendly one. NULL likewise. */
const char *tandem_plan_text(TandemPlan *plan);
const char *tandem_plan_show(TandemPlan *plan);
/* Every number of tandem_number that there is, with the MFU's formula, as one JSON object. */
const char *tandem_report_json(TandemPlan *plan);

#ifdef __cplusplus
}
#endif

#endif
