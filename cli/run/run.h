/* The parts of `tandem run`. */
#ifndef TANDEM_CLI_RUN_RUN_H
#define TANDEM_CLI_RUN_RUN_H

#include "cli/predict.h"
#include "cli/report/progress.h"
#include "exec/exec.h"
#include "exec/launch/launch.h"

/* ---- backend.c ---- */
const char *run_backend(const Cli *cli); /* "mpi" unless --backend says otherwise */
bool run_on(const Cli *cli, const char *backend);
bool run_check_backend(Cli *cli); /* its name, and that its options go with it */
void run_cuda_options(Cli *cli, CudaOptions *cuda);
/* choices.c: of algorithms for products, in the store. */
const struct CudaChoices *run_choices(Cli *cli);
/* Lowers for the backend's kernels; false where its module is missing. */
bool run_plan_options(Cli *cli, PlanOptions *options);
/* The name of this machine and backend; and the one by which their measured costs are stored, which
 * tells by what switches kernels are others. */
const char *run_machine(Cli *cli);
const char *run_costs(Cli *cli);

/* run --verify, in this process, on loopback. */
void run_verify(Cli *cli);

/* ---- steps.c: what the first process prints while a run goes on, and keeps of it */
typedef struct Steps {
    Cli *cli;
    Progress progress;
    Ps predicted_ps;  /* 0: no prediction */
    uint64_t bytes;   /* of the arena */
    uint64_t written; /* what of it is written in any case ends there */
    double first_loss, last[10];
    double seconds;
    LIST(Ps) times;
    uint32_t traced; /* the step that is traced, which makes it slower */
} Steps;
void steps_add(void *self, const StepRow *row, uint64_t tokens);
/* Median time of the steps after the first two, without the traced one where others are left. */
Ps steps_median(Steps *steps);
double steps_last_loss(const Steps *steps); /* mean of the last ten */

bool run_check_ranks(Cli *cli, const Plan *plan); /* -n, if given, is the mesh's number */
/* The data that a plan trains on. */
const DataSource *run_data(Cli *cli, const PlanFile *file);
/* Is this process one of a run that mpirun or srun started? And the one that prints? */
bool run_is_inside(void);
bool run_is_first(void); /* also where nothing was started */
/* Starts this command (argv ending in NULL; argv[0] is replaced) once a rank under mpirun and
 * waits; false when the run failed, with cli->exit_code set. Where end->signal is set, the caller
 * has to say that. */
bool run_launch(Cli *cli, uint32_t n_ranks, const char *const *argv, LaunchEnd *end);
const char *run_signal_name(int number); /* of those that end a launch */
/* Ranks other than the first keep silent. */
void run_silence(Cli *cli);
/* From the rows of a measured step: compute and exposed time of the slowest rank, and its
 * collectives by kind. Exposed: no kernel of that rank ran meanwhile. */
void measured_times(Arena *arena, const Plan *plan, const Trace *trace, RunRecord *record);
/* ---- cores.c: who had the cores while the run was measured, as a line, a document, in the store
 */
void cores_text(const CoreUse *use, uint32_t n_ranks, Str *out);
json_t *cores_json(const CoreUse *use);
bool cores_store(Store *store, int64_t run, const CoreUse *use, Diag *d);
bool cores_read(Store *store, int64_t run, CoreUse *use, Diag *d);
/* Measures what the store lacks for this plan and this machine: kernels here, collectives in a
 * run of their own that calls run_measure_inside. */
bool run_calibrate(Cli *cli, const PlanFile *file);
void run_measure_inside(Cli *cli, const PlanFile *file);
/* Where this plan runs: its own cluster if that is this machine, else the library's local one. */
bool run_cluster(Cli *cli, const PlanFile *file, Cluster *cluster);

#endif
