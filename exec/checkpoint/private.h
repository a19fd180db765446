/* Declarations that only the files of checkpoints use. */
#ifndef TANDEM_EXEC_CHECKPOINT_PRIVATE_H
#define TANDEM_EXEC_CHECKPOINT_PRIVATE_H

#include <stdio.h>

#include "exec/checkpoint/checkpoint.h"
#include "planner/ir/state/state.h"

#define CHECKPOINT_FORMAT "tandem-checkpoint"
#define CHECKPOINT_SAVING ".saving" /* suffix of the name of a save that is not completed */
#define CHECKPOINT_OLD                                                                             \
    ".replaced" /* suffix of the name of a checkpoint that a new one is about                      \
                   to replace */
#define CHECKPOINT_LATEST  "latest"
#define CHECKPOINT_LISTING "manifest.json"
#define CHECKPOINT_LOCK    "lock"
enum { CHECKPOINT_VERSION = 1 };

/* ---- manifest.c ---- */
/* A box of a tensor that is stored in a file of the checkpoint. */
typedef struct StoredSlice {
    uint32_t tensor, file; /* indices in the manifest's lists of tensors and of files */
    int64_t offset[MAX_DIMS], size[MAX_DIMS];
    uint64_t at; /* offset of its first byte, counted from the end of the file's header */
} StoredSlice;

typedef struct StoredTensor {
    const char *name;
    StateKind kind;
    DType dtype;
    uint8_t n_dims;
    int64_t dim[MAX_DIMS];
    uint32_t first, n; /* its slices are slices first to first + n - 1 of the manifest */
} StoredTensor;

typedef struct StoredFile {
    const char *name;
    Rank rank;
    uint64_t bytes;   /* size of the whole file */
    const char *hash; /* XXH3-128 hash of the whole file, as 32 hex digits */
} StoredFile;

typedef struct Manifest {
    uint64_t step, seed;
    const char *training; /* name of the training, equal in all its checkpoints */
    const char *version, *optimizer, *data, *settings;
    int64_t global_batch, n_microbatches, seq;
    uint32_t n_ranks;
    Hash128 hash; /* hash of the manifest's text, once it was read */
    LIST(StoredTensor) tensors;
    LIST(StoredFile) files;
    LIST(StoredSlice) slices; /* sorted by tensor */
} Manifest;

/* Returns the text of the manifest, with its own checksum in the last line. */
const char *manifest_text(const Manifest *m, Arena *arena);
/* Reads the manifest in `folder`. Reports checkpoint-damaged, checkpoint-newer. */
bool manifest_read(const char *folder, Arena *arena, Manifest *m, Diag *d);

/* ---- fits.c ---- */
/* Returns the name of the optimizer: the name of the op that updates the weights. */
const char *checkpoint_optimizer(const Plan *plan);
/* Checks that `plan` can load the checkpoint, and that the slices of the checkpoint contain every
 * element exactly once. */
bool manifest_fits(const Manifest *m, const char *folder, const Plan *plan, Arena *arena, Diag *d);
/* Returns 1 + the index of a tensor in the manifest; 0: the manifest does not have this tensor. */
uint32_t manifest_tensor(const Manifest *m, const char *name, StateKind kind);

/* ---- names.c ---- */
/* Return the last name in `path`, and the folder that contains `path`. `path` must not end in a
 * slash. */
const char *checkpoint_last_name(const char *path);
const char *checkpoint_parent(const char *path, Arena *arena);
/* Returns the name of the training to which the checkpoint in `folder` belongs; "": the manifest
 * has no such entry. */
const char *checkpoint_training(const char *folder, Arena *arena);
const char *checkpoint_trim(const char *path, Arena *arena); /* removes slashes at the end of
                                                                `path` */
/* Return the name of the folder for a step ("step-00000010"), and of the file of a rank
 * ("rank-00003.safetensors"). */
const char *checkpoint_step_name(uint64_t step, Arena *arena);
const char *checkpoint_rank_name(Rank rank, Arena *arena);
bool checkpoint_is_step(const char *name, uint64_t *step);  /* true if `name` is the name of a
                                                               completed save */
bool checkpoint_is_whole(const char *folder, Arena *arena); /* true if the folder contains a
                                                               manifest */

/* ---- find.c ---- */
/* Returns the folder of a single checkpoint: `path` itself, or the newest checkpoint in it. Returns
 * NULL after an error. Reports checkpoint-missing, checkpoint-unfinished. */
const char *checkpoint_resolve(const char *path, Arena *arena, Diag *d);
/* Adds a hint with the newest checkpoint before the damaged one at `path`. Returns false. */
bool checkpoint_hint_older(const char *path, Arena *arena, Diag *d);

/* ---- folder.c ---- */
/* A folder with the name of a checkpoint, inside the folder into which runs save. */
typedef struct FolderEntry {
    const char *path;
    uint64_t step;
    /* saving: the name ends in CHECKPOINT_SAVING; old: it ends in CHECKPOINT_OLD */
    bool saving, old;
    bool whole; /* the folder contains a complete checkpoint */
} FolderEntry;
typedef LIST(FolderEntry) FolderEntries;
/* Lists all such folders in `save`, in no particular order. */
FolderEntries folder_entries(const char *save, Arena *arena);
/* Locks the folder for this process. Returns the file descriptor of the lock. Returns -1 on
 * failure: either sets *error, or sets *holder to the process that has the lock. */
int folder_lock(const char *save, Arena *arena, int *error, const char **holder);
/* Checks that the run may save into the folder, which it must have locked; see
 * checkpoint_can_save(). Reports checkpoint-used. */
bool folder_suits(const char *save, const CheckpointInfo *from, Arena *arena, Diag *d);
/* Reports checkpoint-busy. Returns false. */
bool folder_report_busy(const char *save, const char *holder, Diag *d);
/* Removes the leftovers of saves that were not completed. If such a save only lacks its final name,
 * it gets this name instead. On success, folder_sweep and folder_keep return 0. After an error they
 * return errno and set *which to the folder on which they failed. */
int folder_sweep(const char *save, Arena *arena, const char **which);
/* Removes all checkpoints of the training except the `keep` newest ones. Symbolic links, and
 * folders with files that no checkpoint has written, stay and do not count. */
int folder_keep(const char *save, const char *training, uint32_t keep, Arena *arena,
                const char **which);

/* ---- file.c ---- */
/* A file that is written once, through a buffer. All its bytes are hashed, and it is flushed to the
 * disk at its end. */
typedef struct FileWriter {
    int fd, error; /* error: errno of the first call that failed; 0: no call has failed */
    uint64_t bytes;
    Hasher *hasher;
    char *room;
    size_t n;
} FileWriter;
/* Creates the file, which must not exist. After an error, writer_add does nothing. */
void writer_open(FileWriter *w, const char *path, Arena *arena);
void writer_add(FileWriter *w, const void *bytes, size_t n);
/* Flushes and closes the file. If any call has failed, sets w->error and returns false. */
bool writer_close(FileWriter *w);
/* Flushes the names in a folder to the disk. Returns 0 or errno. */
int folder_flush(const char *path);
int folder_make(const char *path); /* creates a folder and the folders above it; returns 0 or
                                      errno */
/* Returns true if a checkpoint uses files with this name. */
bool folder_wrote(const char *name);
/* Returns 0 if the folder does not exist, or if it contains only files that a checkpoint has
 * written. Returns errno otherwise: ENOTEMPTY for other files, ELOOP or ENOTDIR for a symbolic
 * link. */
int folder_check(const char *path);
const char *folder_foreign(const char *path, Arena *arena); /* returns the first file that no
                                                               checkpoint has written; NULL: there
                                                               is none */
/* Removes a folder that folder_check() accepts, beginning with its manifest. Returns 0 or errno. */
int folder_remove(const char *path);
/* Replaces a small text file in one step: readers see the old text or the new one. Returns 0 or
 * errno. */
int text_replace(const char *path, const char *text, Arena *arena);

/* A file that is read at any position, one block at a time. */
typedef struct FileReader {
    int fd;
    uint64_t size, from, n; /* `room` holds the n bytes from byte `from` of the file on */
    char *room;
} FileReader;
/* Opens a file. A zeroed reader allocates memory for its block; a reader that was closed uses its
 * old memory again. Returns false with errno set if the file cannot be opened. */
bool reader_open(FileReader *r, const char *path, Arena *arena);
/* Reads n bytes from byte `at` on. Returns false if the file has fewer bytes. */
bool reader_get(FileReader *r, uint64_t at, void *to, size_t n);
void reader_close(FileReader *r);
bool file_hash(const char *path, Arena *arena, uint64_t *bytes,
               Hash128 *hash); /* returns false with errno set after an error */

/* ---- box.c ---- */
/* A run of `n` elements. It begins at element `file` of the stored box, and at element `buffer` of
 * the rank's buffer. */
typedef struct BoxRun {
    uint64_t file, buffer, n;
} BoxRun;
/* Calls `run` for the elements that the slice of a rank and a stored box have in common, in
 * row-major order. A run goes on for as long as its elements are contiguous in both. If `run`
 * returns false, stops and returns false. */
bool box_runs(const StateSlice *slice, const int64_t *offset, const int64_t *size,
              bool (*run)(void *self, const BoxRun *run), void *self);

/* ---- agree.c ---- */
/* Lets all processes exchange their errors. If one has failed, all of them report the error of the
 * first process that has failed. `own` contains this process's errors since the phase began.
 * Returns true if no process has failed. */
bool checkpoint_agree(Backend *backend, const Diag *own, Arena *arena, Diag *d);
/* Lets exchanges wait longer than usual while one of the processes reads or writes `bytes` bytes of
 * files. The limit allows for 10 MB a second. If `bytes` is 0, restores the usual limit. */
void checkpoint_wait_for(Backend *backend, uint64_t bytes);

/* ---- safetensors.c ---- */
const char *safetensors_dtype(DType t); /* NULL: the format does not have this dtype */
DType safetensors_dtype_named(const char *name);
/* Returns the header of a rank's file: 8 bytes with a length, and JSON padded with spaces. */
const char *safetensors_header(const StateSlice *slices, uint32_t n, uint64_t step, Arena *arena,
                               size_t *bytes);

#endif
