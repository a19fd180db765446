/* Checkpoints: the state of a run between two steps, in a folder. Every rank writes its own slices
 * to a safetensors file; a manifest lists all tensors, files and slices. Slices are boxes of whole
 * tensors, so that any plan of the model can load them, whatever its mesh.
 *
 *     DIR/step-00000010/manifest.json
 *                       rank-00000.safetensors ...
 *     DIR/latest        the name of the newest checkpoint
 *     DIR/lock          names the process that saves into DIR, and is locked by it
 *
 * A checkpoint is written under another name, flushed to the disk, and renamed. A save that breaks
 * off therefore leaves the checkpoints before it, and `latest`, as they were. */
#ifndef TANDEM_EXEC_CHECKPOINT_CHECKPOINT_H
#define TANDEM_EXEC_CHECKPOINT_CHECKPOINT_H

#include "exec/backend.h"

typedef struct CheckpointOptions {
    const char *save; /* the folder of checkpoints; NULL: nothing is saved */
    /* save after every so many steps, and after the last one; 0: only after the last one */
    uint32_t every;
    /* keep only this many checkpoints of the training, the newest ones; 0: keep all */
    uint32_t keep;
    const char *load; /* a checkpoint, or a folder of checkpoints; NULL: begin with new weights */
    const char *data; /* a text that names the data of the run; NULL: none */
    const char *settings; /* a list of the numbers of the training, as in "lr 0.1, clip 1"; NULL:
                             none */
    const char *version;  /* of this command; NULL: none */
} CheckpointOptions;

/* A checkpoint's path, and the step at which it was saved. */
typedef struct CheckpointInfo {
    const char *path; /* the checkpoint's own folder */
    uint64_t step;    /* number of steps that were done */
    const char *training;
} CheckpointInfo;

/* A run that saves checkpoints. */
typedef struct CheckpointRun {
    const CheckpointOptions *options;
    /* a new name for a run that loads nothing; otherwise the name in the loaded checkpoint */
    const char *training;
    int lock; /* the locked file in the folder, on the first process; -1: none */
} CheckpointRun;

/* Finds the checkpoint at `path`, and checks that `plan` can load it. Reads its manifest, but none
 * of its files. Reports checkpoint-missing, -unfinished, -newer, -damaged, -model, -optimizer,
 * -seed. */
bool checkpoint_find(const char *path, const Plan *plan, Arena *arena, CheckpointInfo *info,
                     Diag *d);
/* Loads options->load into the memory of every local rank, which was initialised before. All
 * processes call it; they agree on the result. Checks every file's hash, then reads the parts that
 * local ranks hold. Also reports checkpoint-file; warns of checkpoint-data, -dtype, -settings. */
bool checkpoint_load(const CheckpointOptions *options, const Plan *plan, Backend *backend,
                     Arena *arena, CheckpointInfo *info, Diag *d);
/* Checks that a training of `steps` steps does a step after `from`. A run that saves may also do no
 * step; it then only writes the state again, divided as its plan divides it. Reports
 * checkpoint-steps. */
bool checkpoint_has_steps(const CheckpointInfo *from, uint32_t steps, bool saves, Diag *d);
/* Checks that a run which loaded `from` (path NULL: nothing) may save into the folder: it replaces
 * nothing but `from`, all checkpoints there precede its own, and no other process saves there now.
 * Reports checkpoint-used, -busy. */
bool checkpoint_can_save(const char *save, const CheckpointInfo *from, Arena *arena, Diag *d);
/* Prepares the folder options->save: creates it, locks it, checks it as checkpoint_can_save() does,
 * and removes leftovers. All processes call it, and checkpoint_end() later. Reports
 * checkpoint-write, -busy, -used. */
bool checkpoint_begin(const CheckpointOptions *options, const Plan *plan, Backend *backend,
                      const CheckpointInfo *from, Arena *arena, CheckpointRun *run, Diag *d);
/* Writes a checkpoint after `step` steps. All processes call it; they agree on the result. Reports
 * checkpoint-write with the rank and its file; warns of checkpoint-left. */
bool checkpoint_save(const CheckpointRun *run, const Plan *plan, Backend *backend, uint64_t step,
                     Arena *arena, CheckpointInfo *info, Diag *d);
void checkpoint_end(CheckpointRun *run); /* gives up the lock */

/* Returns a text that names the data in a file by its size and its hash; NULL: it cannot be read.
 * path NULL: data drawn at random. */
const char *checkpoint_data(const char *path, Arena *arena);
/* The newest checkpoint in the folder `save`; NULL: there is none. */
const char *checkpoint_newest(const char *save, Arena *arena);

#endif
