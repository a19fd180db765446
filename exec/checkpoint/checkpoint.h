/* Checkpoints: the state of a run between two steps, in a folder. Every rank writes its own slices
 * to a safetensors file; a manifest lists all tensors, files and slices. Slices are boxes of whole
 * tensors, so that any plan of the model can load them, whatever its mesh.
 *
 *     DIR/step-00000010/manifest.json
 *                       rank-00000.safetensors ...
 *     DIR/latest        the name of the newest checkpoint
 *
 * A checkpoint is written under another name, flushed to the disk, and renamed. A save that breaks
 * off therefore leaves the checkpoints before it, and `latest`, as they were. */
#ifndef TANDEM_EXEC_CHECKPOINT_CHECKPOINT_H
#define TANDEM_EXEC_CHECKPOINT_CHECKPOINT_H

#include "exec/backend.h"

typedef struct CheckpointOptions {
    const char *save; /* the folder of checkpoints; NULL: nothing is saved */
    uint32_t every;   /* save after every so many steps, and after the last one; 0: only then */
    uint32_t keep;    /* remove all checkpoints of the folder but this many newest ones; 0: none */
    const char *load; /* a checkpoint, or a folder of checkpoints; NULL: begin with new weights */
    const char *data; /* a text that names the data of the run; NULL: none */
    const char *version; /* of this command; NULL: none */
} CheckpointOptions;

/* The place of a checkpoint, and the step at which it was saved. */
typedef struct CheckpointInfo {
    const char *path; /* the checkpoint's own folder */
    uint64_t step;    /* number of steps that were done */
} CheckpointInfo;

/* Finds the checkpoint at `path`, and checks that `plan` can load it. Reads its manifest, but none
 * of its files. Reports checkpoint-missing, -unfinished, -newer, -damaged, -model, -optimizer,
 * -seed. */
bool checkpoint_find(const char *path, const Plan *plan, Arena *arena, CheckpointInfo *info,
                     Diag *d);
/* Loads options->load into the memory of every local rank, which was initialised before. All
 * processes call it; they agree on the result. Checks every file's hash, then reads the parts that
 * local ranks hold. Also reports checkpoint-file; warns of checkpoint-data, -dtype. */
bool checkpoint_load(const CheckpointOptions *options, const Plan *plan, Backend *backend,
                     Arena *arena, CheckpointInfo *info, Diag *d);
/* Creates the folder options->save if there is none. All processes call it. Reports
 * checkpoint-write. */
bool checkpoint_begin(const CheckpointOptions *options, const Plan *plan, Backend *backend,
                      Arena *arena, Diag *d);
/* Writes a checkpoint after `step` steps. All processes call it; they agree on the result. Reports
 * checkpoint-write with the rank and its file. */
bool checkpoint_save(const CheckpointOptions *options, const Plan *plan, Backend *backend,
                     uint64_t step, Arena *arena, CheckpointInfo *info, Diag *d);

/* The newest checkpoint in the folder `save`; NULL: there is none. */
const char *checkpoint_newest(const char *save, Arena *arena);

#endif
