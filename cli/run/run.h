/* Declarations that the files of `tandem run` share. */
#ifndef TANDEM_CLI_RUN_RUN_H
#define TANDEM_CLI_RUN_RUN_H

#include "cli/predict.h"
#include "cli/report/progress.h"
#include "exec/exec.h"
#include "exec/launch/launch.h"

/* ---- backend.c ---- */
/* Returns the backend of --backend, or "mpi" if the option was not given. */
const char *run_backend(const Cli *cli);
bool run_on(const Cli *cli, const char *backend);
/* Checks that the backend exists and that it has all options that the user gave. Returns false
 * after diagnostics. */
bool run_check_backend(Cli *cli);
/* Fills in the options of the backend, and the algorithms of products that earlier runs chose. */
void run_backend_options(Cli *cli, BackendOptions *options);
/* Appends to `argv` the options of the backend that the user gave, as they were written. Only
 * options that have one of these `uses` are appended. */
void run_repeat_options(Cli *cli, uint32_t uses, TextList *argv);
/* choices.c: gives the backend access to the fastest algorithms that earlier runs found, which the
 * store keeps. */
const KernelChoices *run_choices(Cli *cli);
/* Sets the options for lowering to the backend's kernels. Returns false after a diagnostic if the
 * backend's module is missing. */
bool run_plan_options(Cli *cli, PlanOptions *options);
/* run_machine returns the name of this machine and backend for people. run_costs returns the name
 * under which the store has their costs. The second name also contains the options that change
 * kernels. */
const char *run_machine(Cli *cli);
const char *run_costs(Cli *cli);
/* Returns the driver's name for the GPU of --device, or "none" if there is no GPU or no module. */
const char *run_gpu(Cli *cli);
bool run_shares_gpu(Cli *cli); /* true if --share-device was given */

/* Does the work of `run --verify` in this process, on loopback. */
void run_verify(Cli *cli);

/* ---- checkpoint.c */
/* Returns false after a diagnostic if the options about checkpoints contradict each other. */
bool run_check_checkpoint(Cli *cli);
/* Called before any rank starts. Checks that the plan can load the checkpoint of --load, that steps
 * remain, and that --save may write into its folder. Replaces a folder in --load by the newest
 * checkpoint in it, so that all ranks load the same one. */
bool run_checkpoint_ready(Cli *cli, const PlanFile *file, uint32_t steps);
/* Returns the options about checkpoints for the executor. data: path of the file with the run's
 * data; NULL: the data are drawn at random. */
CheckpointOptions run_checkpoint_options(const Cli *cli, const char *data);
/* Returns true if the rule of this diagnostic is about checkpoints. */
bool run_is_of_checkpoint(const Diagnostic *item);
/* Prints warnings about checkpoints at once, while the training continues. */
void run_checkpoint_warnings(Cli *cli);
void run_checkpoint_summary(Cli *cli, const ExecResult *result);
/* Returns words about a run that ended early: its newest checkpoint, or that its weights
 * are lost. */
const char *run_checkpoint_kept(const Cli *cli);

/* ---- steps.c: the lines that the first process prints during a run, and the values that it
 * collects for them */
typedef struct Steps {
    Cli *cli;
    Progress progress;
    const char *counts; /* unit of the throughput: "tok" or "points" */
    Ps predicted_ps;    /* the predicted time of a step; 0: no prediction */
    uint64_t bytes;     /* size of the arena [bytes] */
    uint64_t written;   /* each step writes only the arena's bytes before this offset */
    uint32_t n_steps;   /* number of steps of the whole training, including those before --load */
    uint32_t first;     /* index of this run's first step; above 0 after --load */
    double first_loss, last[10];
    double seconds;
    LIST(Ps) times;
    uint32_t traced; /* index of the traced step, which is slower than the others */
} Steps;
void steps_add(void *self, const StepRow *row, uint64_t tokens);
/* Returns the median time of a step. Leaves out the first two steps, and the traced step if others
 * remain. */
Ps steps_median(Steps *steps);
double steps_last_loss(const Steps *steps); /* returns the mean loss of the last ten steps */

/* Checks that -n, if given, equals the number of ranks of the mesh. Returns false after a
 * diagnostic. */
bool run_check_ranks(Cli *cli, const Plan *plan);
/* Returns the data with which the plan is trained. */
const DataSource *run_data(Cli *cli, const PlanFile *file);
/* Returns true if mpirun or srun started this process as a rank of a run. */
bool run_is_inside(void);
/* Returns true if this process prints: it is the first rank of a run, or not a rank at all. */
bool run_is_first(void);
/* Starts this command as one process for each rank, under mpirun, and waits for their end. argv
 * ends in NULL; argv[0] is replaced by the path of the command. Returns false if the run failed,
 * and sets cli->exit_code. If end->signal is set, the caller must report it. */
bool run_launch(Cli *cli, uint32_t n_ranks, const char *const *argv, LaunchEnd *end);
const char *run_signal_name(int number); /* returns the name of a signal that can end a run */
/* Discards the output of all ranks but the first. */
void run_silence(Cli *cli);
/* Computes the times of the slowest rank from the trace of a measured step: compute, exposed time,
 * and collectives by kind. Time is exposed if the rank communicates while none of its
 * kernels runs. */
void measured_times(Arena *arena, const Plan *plan, const Trace *trace, RunRecord *record);
/* ---- cores.c: prints, stores and reads the number of cores that other programs used during a
 * measurement */
void cores_text(const CoreUse *use, uint32_t n_ranks, Str *out);
json_t *cores_json(const CoreUse *use);
bool cores_store(Store *store, int64_t run, const CoreUse *use, Diag *d);
bool cores_read(Store *store, int64_t run, CoreUse *use, Diag *d);
/* fits_here.c: returns true if this machine has the memory of all ranks, or if the plan runs on
 * GPUs. Otherwise reports "does-not-fit". */
bool run_fits_here(Cli *cli, const Plan *plan);
/* Measures the costs that the store lacks for this plan and this machine. Kernels run in this
 * process. For collectives, run_calibrate starts a run whose ranks call run_measure_inside. */
bool run_calibrate(Cli *cli, const PlanFile *file);
void run_measure_inside(Cli *cli, const PlanFile *file);
/* Sets *cluster to the cluster on which the run is predicted. For a run on CPUs, it is this
 * machine. For a run on GPUs, it is the plan's cluster. If that is the local cluster and names no
 * GPU, it is one node of GPUs of the kind of --device. */
bool run_cluster(Cli *cli, const PlanFile *file, Cluster *cluster);

#endif
