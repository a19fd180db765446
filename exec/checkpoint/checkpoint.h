/* Checkpoints: the state of a run between two steps, in a folder. Every rank writes its own slices
 * to a safetensors file. A manifest lists all tensors, files and slices. Slices are boxes of whole
 * tensors, so any plan of the same model can load them, whatever its mesh is.
 *
 *   DIR/step-00000010/manifest.json
 *                     rank-00000.safetensors ...
 *   DIR/latest        contains the name of the newest checkpoint
 *   DIR/lock          names the process that saves into DIR, and is locked by this process
 *
 * A checkpoint is written under a temporary name, flushed to the disk, and renamed. If saving
 * breaks off, all earlier checkpoints and `latest` therefore stay as they were. */
#ifndef TANDEM_EXEC_CHECKPOINT_CHECKPOINT_H
#define TANDEM_EXEC_CHECKPOINT_CHECKPOINT_H

#include "exec/backend.h"

typedef struct CheckpointOptions {
    const char *save; /* folder into which the run saves checkpoints; NULL: it saves none */
    /* save after every `every` steps, and after the last step; 0: only after the last step */
    uint32_t every;
    /* number of checkpoints of this training to keep, the newest ones; 0: keep all */
    uint32_t keep;
    const char *load; /* a checkpoint, or a folder of checkpoints; NULL: begin with new weights */
    const char *data; /* text that identifies the run's data; NULL: none */
    const char *settings; /* list of the training's numbers, such as "lr 0.1, clip 1"; NULL: none */
    const char *version;  /* version of this command; NULL: none */
} CheckpointOptions;

/* The path of a checkpoint, and the step at which it was saved. */
typedef struct CheckpointInfo {
    const char *path; /* folder of this one checkpoint */
    uint64_t step;    /* number of steps that had been done */
    const char *training;
} CheckpointInfo;

/* State of a run that saves checkpoints. */
typedef struct CheckpointRun {
    const CheckpointOptions *options;
    /* name of the training: new if the run loads nothing, otherwise taken from the loaded
     * checkpoint */
    const char *training;
    int lock; /* file descriptor of the lock file, on the first process; -1: none */
} CheckpointRun;

/* Finds the checkpoint at `path` and checks that `plan` can load it. Reads only the manifest.
 * Reports checkpoint-missing, -unfinished, -newer, -damaged, -model, -optimizer, -seed. */
bool checkpoint_find(const char *path, const Plan *plan, Arena *arena, CheckpointInfo *info,
                     Diag *d);
/* Loads options->load into the memory of every local rank, which must have been initialised. All
 * processes must call this function, and all return the same result. Checks the hash of every file,
 * then reads what the local ranks need. Also reports checkpoint-file; warns with checkpoint-data,
 * -dtype, -settings. */
bool checkpoint_load(const CheckpointOptions *options, const Plan *plan, Backend *backend,
                     Arena *arena, CheckpointInfo *info, Diag *d);
/* Checks that a training of `steps` steps has at least one step left after `from`. A run that saves
 * may also have no step left. It then only saves the state again, in files that fit its own plan.
 * Reports checkpoint-steps. */
bool checkpoint_has_steps(const CheckpointInfo *from, uint32_t steps, bool saves, Diag *d);
/* Checks that a run may save into the folder after it has loaded `from` (path NULL: nothing). There
 * are three conditions. The only checkpoint that the run may replace is `from`. All checkpoints in
 * the folder must belong to earlier steps than those of the run. No other process may be saving
 * there. Reports checkpoint-used, -busy. */
bool checkpoint_can_save(const char *save, const CheckpointInfo *from, Arena *arena, Diag *d);
/* Prepares the folder options->save: creates it, locks it, makes the checks of
 * checkpoint_can_save(), and removes leftovers of earlier saves. All processes must call this
 * function, and later checkpoint_end(). Reports checkpoint-write, -busy, -used. */
bool checkpoint_begin(const CheckpointOptions *options, const Plan *plan, Backend *backend,
                      const CheckpointInfo *from, Arena *arena, CheckpointRun *run, Diag *d);
/* Writes a checkpoint after `step` steps. All processes must call this function, and all return the
 * same result. Reports checkpoint-write with the rank and its file; warns with checkpoint-left. */
bool checkpoint_save(const CheckpointRun *run, const Plan *plan, Backend *backend, uint64_t step,
                     Arena *arena, CheckpointInfo *info, Diag *d);
void checkpoint_end(CheckpointRun *run); /* releases the lock */

/* Returns a text that identifies the data in a file by their size and hash; NULL: the file cannot
 * be read. If `path` is NULL, the text says that the data are random. */
const char *checkpoint_data(const char *path, Arena *arena);
/* Returns the path of the newest checkpoint in the folder `save`; NULL: there is none. */
const char *checkpoint_newest(const char *save, Arena *arena);

#endif
