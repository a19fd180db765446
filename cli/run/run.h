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
bool run_check_backend(Cli *cli); /* checks the backend's name, and that the given options apply to
                                   * it */
/* Fills in the backend's own options, and the choices of algorithms that the store keeps between
 * runs. */
void run_backend_options(Cli *cli, BackendOptions *options);
/* Appends the given backend options that have one of these uses, as the user wrote them. */
void run_repeat_options(Cli *cli, uint32_t uses, TextList *argv);
/* choices.c: the algorithms that were timed for products, in the store. */
const KernelChoices *run_choices(Cli *cli);
/* Sets the options for lowering to the backend's kernels; false if its module is missing. */
bool run_plan_options(Cli *cli, PlanOptions *options);
/* The name of this machine and backend, for people, and the name under which their measured costs
 * are stored. The latter also names the switches that change kernels. */
const char *run_machine(Cli *cli);
/* Returns the name that the driver gives to the GPU of --device; "none" without a module or a
 * GPU. */
const char *run_gpu(Cli *cli);
bool run_shares_gpu(Cli *cli); /* ranks may share a GPU: --share-device */
const char *run_costs(Cli *cli);

/* run --verify, in this process, on loopback. */
void run_verify(Cli *cli);

/* ---- steps.c: the lines that the first process prints during a run, and the values that it
 * collects */
typedef struct Steps {
    Cli *cli;
    Progress progress;
    const char *counts; /* unit of the rate: "tok" or "points" */
    Ps predicted_ps;    /* 0: no prediction */
    uint64_t bytes;     /* bytes of the arena */
    uint64_t written;   /* end of the part that every step writes */
    double first_loss, last[10];
    double seconds;
    LIST(Ps) times;
    uint32_t traced; /* the step that is traced, which makes it slower */
} Steps;
void steps_add(void *self, const StepRow *row, uint64_t tokens);
/* Returns the median time of the steps after the first two. The traced step is left out if others
 * remain. */
Ps steps_median(Steps *steps);
double steps_last_loss(const Steps *steps); /* mean loss of the last ten steps */

/* if -n is given, it must equal the mesh's number of ranks */
bool run_check_ranks(Cli *cli, const Plan *plan);
/* Returns the data that a plan trains on. */
const DataSource *run_data(Cli *cli, const PlanFile *file);
/* True if this process belongs to a run that mpirun or srun started. The second function: true if
 * it is the process that prints. */
bool run_is_inside(void);
bool run_is_first(void); /* also true if nothing was started */
/* Starts this command (argv ending in NULL; argv[0] is replaced) once for each rank under mpirun,
 * and waits. Returns false if the run failed, with cli->exit_code set. If end->signal is set, the
 * caller must report it. */
bool run_launch(Cli *cli, uint32_t n_ranks, const char *const *argv, LaunchEnd *end);
const char *run_signal_name(int number); /* name of a signal that can end a launch */
/* Silences ranks other than the first. */
void run_silence(Cli *cli);
/* Computes the times of the slowest rank of a measured step from the rows of its trace: compute,
 * exposed time, and collectives by kind. Time is exposed if no kernel of that rank runs meanwhile.
 */
void measured_times(Arena *arena, const Plan *plan, const Trace *trace, RunRecord *record);
/* ---- cores.c: prints, stores and reads the share of cores that other programs used during a
 * measurement */
void cores_text(const CoreUse *use, uint32_t n_ranks, Str *out);
json_t *cores_json(const CoreUse *use);
bool cores_store(Store *store, int64_t run, const CoreUse *use, Diag *d);
bool cores_read(Store *store, int64_t run, CoreUse *use, Diag *d);
/* Measures the costs that the store lacks for this plan and this machine: kernels in this process,
 * collectives in a run of their own that calls run_measure_inside. */
bool run_calibrate(Cli *cli, const PlanFile *file);
void run_measure_inside(Cli *cli, const PlanFile *file);
/* Returns the cluster on which this run is predicted. For CPUs it is this machine. For GPUs it is
 * the plan's own cluster. If the plan's cluster is the local one, it names no GPU. The run is then
 * predicted on one node of the GPUs that --device names. */
bool run_cluster(Cli *cli, const PlanFile *file, Cluster *cluster);

#endif
