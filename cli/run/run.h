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
bool run_check_backend(Cli *cli); /* checks that the backend exists, and that the given options
                                     apply to it; returns false after diagnostics */
/* Fills in the backend's own options, and the algorithms that earlier runs chose and the store
 * keeps. */
void run_backend_options(Cli *cli, BackendOptions *options);
/* Appends to `argv` the backend options that the user gave and that have one of these uses, as the
 * user wrote them. */
void run_repeat_options(Cli *cli, uint32_t uses, TextList *argv);
/* choices.c: returns the algorithms of products that earlier runs timed, from the store. */
const KernelChoices *run_choices(Cli *cli);
/* Sets the options for lowering to the backend's kernels. Returns false after a diagnostic if the
 * backend's module is missing. */
bool run_plan_options(Cli *cli, PlanOptions *options);
/* run_machine returns the name of this machine and backend, for people. run_costs returns the name
 * under which their measured costs are stored; it also contains the options that change kernels. */
const char *run_machine(Cli *cli);
/* Returns the name that the driver gives to the GPU of --device; "none" without a module or a
 * GPU. */
const char *run_gpu(Cli *cli);
bool run_shares_gpu(Cli *cli); /* true with --share-device */
const char *run_costs(Cli *cli);

/* Does `run --verify`, in this process, on loopback. */
void run_verify(Cli *cli);

/* ---- checkpoint.c */
/* Returns false, after a diagnostic, if the options about checkpoints contradict each other. */
bool run_check_checkpoint(Cli *cli);
/* Runs before any rank starts. Checks that the plan can load the checkpoint of --load, that steps
 * are left, and that --save may write into its folder. Replaces the path of --load by the path of
 * the checkpoint in it, so that all ranks load the same checkpoint. */
bool run_checkpoint_ready(Cli *cli, const PlanFile *file, uint32_t steps);
/* Returns the executor's options. data: the path of the file with the run's data; NULL: the data
 * are drawn at random. */
CheckpointOptions run_checkpoint_options(const Cli *cli, const char *data);
bool run_is_of_checkpoint(const Diagnostic *item); /* true if its rule is about checkpoints */
/* Prints the warnings about checkpoints now, before the training goes on. */
void run_checkpoint_warnings(Cli *cli);
void run_checkpoint_summary(Cli *cli, const ExecResult *result);
/* Returns words for a run that broke off: its newest checkpoint, or that the weights are lost. */
const char *run_checkpoint_kept(const Cli *cli);

/* ---- steps.c: the lines that the first process prints during a run, and the values that it
 * collects for them */
typedef struct Steps {
    Cli *cli;
    Progress progress;
    const char *counts; /* unit of the rate: "tok" or "points" */
    Ps predicted_ps;    /* 0: no prediction */
    uint64_t bytes;     /* bytes of the arena */
    uint64_t written;   /* end of the part of the arena that every step writes */
    uint32_t n_steps;   /* of the training, from its first step */
    uint32_t first;     /* the number of the run's first step; above 0 after --load */
    double first_loss, last[10];
    double seconds;
    LIST(Ps) times;
    uint32_t traced; /* the step that is traced, which makes it slower */
} Steps;
void steps_add(void *self, const StepRow *row, uint64_t tokens);
/* Returns the median time of the steps after the first two. Leaves out the traced step if others
 * remain. */
Ps steps_median(Steps *steps);
double steps_last_loss(const Steps *steps); /* mean loss of the last ten steps */

/* if -n is given, it must equal the mesh's number of ranks */
bool run_check_ranks(Cli *cli, const Plan *plan);
/* Returns the data that a plan trains on. */
const DataSource *run_data(Cli *cli, const PlanFile *file);
/* run_is_inside: true if this process belongs to a run that mpirun or srun started. run_is_first:
 * true if it is the process that prints. */
bool run_is_inside(void);
bool run_is_first(void); /* also true outside such a run */
/* Starts this command once for each rank under mpirun, and waits. argv ends in NULL; argv[0] is
 * replaced by the command's path. Returns false if the run failed, with cli->exit_code set. If
 * end->signal is set, the caller must report it. */
bool run_launch(Cli *cli, uint32_t n_ranks, const char *const *argv, LaunchEnd *end);
const char *run_signal_name(int number); /* name of a signal that can end a launch */
/* Silences ranks other than the first. */
void run_silence(Cli *cli);
/* Computes the times of the slowest rank of a measured step from the rows of its trace: compute,
 * exposed time, and collectives by kind. Time is exposed if no kernel of that rank runs meanwhile.
 */
void measured_times(Arena *arena, const Plan *plan, const Trace *trace, RunRecord *record);
/* ---- cores.c: prints, stores and reads the number of cores that other programs used during a
 * measurement */
void cores_text(const CoreUse *use, uint32_t n_ranks, Str *out);
json_t *cores_json(const CoreUse *use);
bool cores_store(Store *store, int64_t run, const CoreUse *use, Diag *d);
bool cores_read(Store *store, int64_t run, CoreUse *use, Diag *d);
/* fits_here.c: true if this machine has the memory of all ranks, or if the plan runs on GPUs.
 * Otherwise reports "does-not-fit". */
bool run_fits_here(Cli *cli, const Plan *plan);
/* Measures the costs that the store lacks for this plan and this machine. Kernels run in this
 * process. For collectives it starts a run, whose ranks call run_measure_inside. */
bool run_calibrate(Cli *cli, const PlanFile *file);
void run_measure_inside(Cli *cli, const PlanFile *file);
/* Sets *cluster to the cluster on which this run is predicted. For CPUs it is this machine. For
 * GPUs it is the plan's cluster or, if that is the local cluster and names no GPU, one node of GPUs
 * of the kind that --device names. */
bool run_cluster(Cli *cli, const PlanFile *file, Cluster *cluster);

#endif
