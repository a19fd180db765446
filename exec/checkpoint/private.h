/* The parts of a checkpoint: names, files, the manifest, and boxes of tensors. */
#ifndef TANDEM_EXEC_CHECKPOINT_PRIVATE_H
#define TANDEM_EXEC_CHECKPOINT_PRIVATE_H

#include <stdio.h>

#include "exec/checkpoint/checkpoint.h"
#include "planner/ir/state/state.h"

#define CHECKPOINT_FORMAT  "tandem-checkpoint"
#define CHECKPOINT_SAVING  ".saving"   /* ends the name of a save that is not finished */
#define CHECKPOINT_OLD     ".replaced" /* ends the name of a checkpoint that a newer one replaces */
#define CHECKPOINT_LATEST  "latest"
#define CHECKPOINT_LISTING "manifest.json"
#define CHECKPOINT_LOCK    "lock"
enum { CHECKPOINT_VERSION = 1 };

/* ---- manifest.c ---- */
/* A box of a tensor in a file. */
typedef struct StoredSlice {
    uint32_t tensor, file; /* numbers in the manifest's lists */
    int64_t offset[MAX_DIMS], size[MAX_DIMS];
    uint64_t at; /* its first byte, counted from the end of the file's header */
} StoredSlice;

typedef struct StoredTensor {
    const char *name;
    StateKind kind;
    DType dtype;
    uint8_t n_dims;
    int64_t dim[MAX_DIMS];
    uint32_t first, n; /* its slices */
} StoredTensor;

typedef struct StoredFile {
    const char *name;
    Rank rank;
    uint64_t bytes;   /* size of the whole file */
    const char *hash; /* XXH3-128 of the whole file, as 32 hex digits */
} StoredFile;

typedef struct Manifest {
    uint64_t step, seed;
    const char *training; /* the same in all checkpoints of a training */
    const char *version, *optimizer, *data, *settings;
    int64_t global_batch, n_microbatches, seq;
    uint32_t n_ranks;
    Hash128 hash; /* hash of the text that was read */
    LIST(StoredTensor) tensors;
    LIST(StoredFile) files;
    LIST(StoredSlice) slices; /* sorted by tensor */
} Manifest;

/* Returns the manifest's text, with its own checksum in its last line. */
const char *manifest_text(const Manifest *m, Arena *arena);
/* Reads a manifest. Reports checkpoint-damaged, checkpoint-newer. */
bool manifest_read(const char *folder, Arena *arena, Manifest *m, Diag *d);

/* Returns the training of the checkpoint in this folder; "": its manifest names none. */
const char *manifest_training(const char *folder, Arena *arena);

/* ---- fits.c ---- */
/* Returns the name of the op that updates the weights: the name of the optimizer. */
const char *checkpoint_optimizer(const Plan *plan);
/* Checks that `plan` can load the checkpoint, and that its slices hold every element once. */
bool manifest_fits(const Manifest *m, const char *folder, const Plan *plan, Arena *arena, Diag *d);
/* Returns 1 + the number of the tensor in the manifest; 0: it has none. */
uint32_t manifest_tensor(const Manifest *m, const char *name, StateKind kind);

/* ---- names.c ---- */
const char *checkpoint_trim(const char *path, Arena *arena); /* removes slashes at its end */
/* Returns the folder in which `path` lies. `path` has no slash at its end. */
const char *checkpoint_parent(const char *path, Arena *arena);
/* Finds the checkpoint at `path`: a checkpoint, or a folder whose newest one is taken. Reports
 * checkpoint-missing, checkpoint-unfinished. */
const char *checkpoint_resolve(const char *path, Arena *arena, Diag *d);
const char *checkpoint_step_name(uint64_t step, Arena *arena);
const char *checkpoint_rank_name(Rank rank, Arena *arena);
bool checkpoint_is_step(const char *name, uint64_t *step);  /* true for a finished save's name */
bool checkpoint_is_whole(const char *folder, Arena *arena); /* it has a manifest */

/* Adds a hint that names the newest checkpoint older than a damaged one. Returns false. */
bool checkpoint_hint_older(const char *path, Arena *arena, Diag *d);

/* ---- folder.c ---- */
/* A folder in a folder of checkpoints that has the name of a checkpoint. */
typedef struct FolderEntry {
    const char *path;
    uint64_t step;
    bool saving, old; /* the name ends in CHECKPOINT_SAVING, or in CHECKPOINT_OLD */
    bool whole;       /* it is a checkpoint */
} FolderEntry;
typedef LIST(FolderEntry) FolderEntries;
FolderEntries folder_entries(const char *save, Arena *arena);
/* Locks the folder for this process. Returns a file to close; -1: it failed with *error, or
 * *holder, another process, has the lock. */
int folder_lock(const char *save, Arena *arena, int *error, const char **holder);
/* Checks that the run may save into the folder, whose lock it has; see checkpoint_can_save().
 * Reports checkpoint-used. */
bool folder_suits(const char *save, const CheckpointInfo *from, Arena *arena, Diag *d);
/* Reports checkpoint-busy. Returns false. */
bool folder_report_busy(const char *save, const char *holder, Diag *d);
/* Removes the leftovers of saves that broke off. If a complete save only lacks its final name,
 * renames it instead. folder_sweep and folder_keep return 0, or errno; after an error, *which is
 * the folder on which they failed. */
int folder_sweep(const char *save, Arena *arena, const char **which);
/* Removes all checkpoints of the training but the `keep` newest ones. Symbolic links, and folders
 * with files that no checkpoint wrote, stay and do not count. */
int folder_keep(const char *save, const char *training, uint32_t keep, Arena *arena,
                const char **which);

/* ---- file.c ---- */
/* A file that is written once: buffered, hashed, and flushed to the disk at its end. */
typedef struct FileWriter {
    int fd, error; /* error: errno of the first call that failed; 0: none did */
    uint64_t bytes;
    Hasher *hasher;
    char *room;
    size_t n;
} FileWriter;
void writer_open(FileWriter *w, const char *path, Arena *arena);
void writer_add(FileWriter *w, const void *bytes, size_t n);
/* Flushes and closes the file. Returns false with w->error set if any call failed. */
bool writer_close(FileWriter *w);
/* Flushes a folder's names to the disk; returns 0 or errno. */
int folder_flush(const char *path);
int folder_make(const char *path); /* with the folders above it; returns 0 or errno */
/* True if a checkpoint has files of this name. */
bool folder_wrote(const char *name);
/* Returns 0 if there is no such folder, or if it holds only files that a checkpoint wrote.
 * Otherwise returns errno: ENOTEMPTY for other files, ELOOP or ENOTDIR for a symbolic link. */
int folder_check(const char *path);
const char *folder_foreign(const char *path, Arena *arena); /* the first other file; NULL: none */
/* Removes a folder that folder_check() accepts, its manifest first; returns 0 or errno. */
int folder_remove(const char *path);
/* Replaces a small text file in one step; returns 0 or errno. */
int text_replace(const char *path, const char *text, Arena *arena);

/* A file that is read at any position. It reads one block at a time. */
typedef struct FileReader {
    int fd;
    uint64_t size, from, n; /* the block in `room` begins at byte `from`, and has n bytes */
    char *room;
} FileReader;
/* Opens a file. A reader that was zeroed allocates its block; one that was closed keeps it. Returns
 * false with errno set. */
bool reader_open(FileReader *r, const char *path, Arena *arena);
/* false if the file has no n bytes there */
bool reader_get(FileReader *r, uint64_t at, void *to, size_t n);
void reader_close(FileReader *r);
bool file_hash(const char *path, Arena *arena, uint64_t *bytes, Hash128 *hash); /* errno */

/* ---- box.c ---- */
/* `n` elements: from element `file` of the stored box, and from element `buffer` of the rank's
 * buffer. */
typedef struct BoxRun {
    uint64_t file, buffer, n;
} BoxRun;
/* Calls `run` for the elements that a rank's slice and a stored box have in common, in row-major
 * order, in the longest runs that are contiguous in both. Stops when `run` returns false, and
 * returns false. */
bool box_runs(const StateSlice *slice, const int64_t *offset, const int64_t *size,
              bool (*run)(void *self, const BoxRun *run), void *self);

/* ---- agree.c ---- */
/* Processes exchange their errors: if one failed, all report the error of the first that did.
 * `own` holds this process's errors since the phase began. Returns true if none failed. */
bool checkpoint_agree(Backend *backend, const Diag *own, Arena *arena, Diag *d);
/* Lets the processes wait for each other while one of them moves `bytes` bytes to or from files. A
 * process that moves fewer than 10 MB a second counts as one that hangs. 0: as usual. */
void checkpoint_wait_for(Backend *backend, uint64_t bytes);

/* ---- safetensors.c ---- */
const char *safetensors_dtype(DType t); /* NULL: the format has none */
DType safetensors_dtype_named(const char *name);
/* Returns the header of a rank's file: 8 bytes of length, and JSON padded with spaces. */
const char *safetensors_header(const StateSlice *slices, uint32_t n, uint64_t step, Arena *arena,
                               size_t *bytes);

#endif
