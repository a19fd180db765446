/* Writes a checkpoint. Every process writes the files of its ranks into a folder with a temporary
 * name. Then the first process writes the manifest, gives the folder its final name, and changes
 * `latest`. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/checkpoint/private.h"
#include "planner/base/clock.h"

static const Loc none = {NULL, 0};

typedef struct Save {
    const CheckpointOptions *options;
    const CheckpointRun *run;
    const Plan *plan;
    Backend *backend;
    uint64_t step;
    Arena *arena, *scratch; /* scratch lives as long as the save does */
    const char *name, *folder, *final;
    Rank first;
    uint32_t n_ranks, process, n_processes;
    const State *state;
} Save;

/* Describes the file that a rank has written. */
typedef struct RankFile {
    uint64_t bytes;
    Hash128 hash;
} RankFile;

/* Adds a hint with the newest checkpoint that is left after a failed save, if there is one. Returns
 * false. */
static bool hint_newest(const Save *s, Diag *d)
{
    const char *newest = checkpoint_newest(s->options->save, s->scratch);
    if (newest != NULL) diag_hint(d, "the newest checkpoint is %s", newest);
    return false;
}

static bool cannot_write(const Save *s, Diag *d, const char *path, int error)
{
    struct stat is;
    const char *why = strerror(error), *other = NULL;
    if (error == ENOTEMPTY) other = folder_foreign(path, s->scratch);
    if (other != NULL)
        why =
            arena_print(s->scratch, "it contains %s, which does not belong to a checkpoint", other);
    else if (lstat(path, &is) == 0 && S_ISLNK(is.st_mode))
        why = arena_print(s->scratch, "it is a symbolic link (%s)", strerror(error));
    diag_error(d, FAULT_internal, "checkpoint-write", none, "cannot write %s: %s", path, why);
    return hint_newest(s, d);
}

static void begin(Save *s, const CheckpointOptions *options, const Plan *plan, Backend *backend)
{
    *s = (Save){.options = options, .plan = plan, .backend = backend};
    s->scratch = arena_new();
    backend->ranks(backend, &s->first, &s->n_ranks);
    s->n_processes = backend->processes(backend, &s->process);
}

/* Ends a phase: every process learns whether the phase has succeeded on all of them. */
static bool agree(Save *s, Diag *own, Diag *d)
{
    const bool fine = checkpoint_agree(s->backend, own, s->scratch, d);
    *own = diag_in(s->scratch);
    return fine;
}

/* Draws a random name for a new training. */
static const char *new_training(Arena *arena)
{
    struct {
        Ps time;
        int64_t process;
        char host[128], noise[16];
    } seed;
    memset(&seed, 0, sizeof seed);
    seed.time = clock_ps();
    seed.process = (int64_t)getpid();
    gethostname(seed.host, sizeof seed.host - 1);
    /* if this file cannot be read, the name depends on the time, the process id and the host name
     * only */
    FILE *f = fopen("/dev/urandom", "rb");
    if (f != NULL && fread(seed.noise, 1, sizeof seed.noise, f) == 0) seed.noise[0] = 1;
    if (f != NULL) fclose(f);
    return hash_hex(arena, hash_bytes(&seed, sizeof seed));
}

/* Prepares the folder; only the first process calls this function. */
static bool begin_folder(Save *s, const CheckpointInfo *from, CheckpointRun *run, Diag *d)
{
    const char *save = s->options->save, *holder = NULL, *which = save;
    int error = folder_make(save);
    if (error == 0 && access(save, W_OK | X_OK) != 0) error = errno;
    if (error != 0) return cannot_write(s, d, save, error);
    run->lock = folder_lock(save, s->scratch, &error, &holder);
    if (holder != NULL) return folder_report_busy(save, holder, d);
    if (run->lock < 0)
        return cannot_write(s, d, arena_print(s->scratch, "%s/" CHECKPOINT_LOCK, save), error);
    if (!folder_suits(save, from, s->scratch, d)) return false;
    error = folder_sweep(save, s->scratch, &which);
    return error == 0 || cannot_write(s, d, which, error);
}

bool checkpoint_begin(const CheckpointOptions *options, const Plan *plan, Backend *backend,
                      const CheckpointInfo *from, Arena *arena, CheckpointRun *run, Diag *d)
{
    Save s;
    begin(&s, options, plan, backend);
    *run = (CheckpointRun){.options = options, .training = from->training, .lock = -1};
    if (from->path == NULL) run->training = new_training(arena);
    Diag own = diag_in(s.scratch);
    if (s.process == 0) begin_folder(&s, from, run, &own);
    const bool fine = agree(&s, &own, d);
    arena_free(s.scratch);
    return fine;
}

void checkpoint_end(CheckpointRun *run)
{
    if (run->options != NULL && run->lock >= 0) close(run->lock);
    run->lock = -1;
}

/* ---- the file of one rank ---- */

typedef struct SliceWriter {
    FileWriter *file;
    const char *memory;
    size_t width; /* bytes of an element */
} SliceWriter;

static bool write_run(void *self, const BoxRun *run)
{
    const SliceWriter *w = self;
    writer_add(w->file, w->memory + run->buffer * w->width, (size_t)(run->n * w->width));
    return w->file->error == 0;
}

/* Returns the memory of a buffer, or a copy of it if the host cannot read the memory. Returns NULL
 * if the device could not be read. */
static const char *memory_of(Save *s, Rank rank, BufferId b, Arena *arena, Diag *d)
{
    if (s->backend->memory != NULL) return s->backend->memory(s->backend, rank, b);
    char *copy = arena_alloc(arena, plan_program(s->plan, rank)->buffers.at[b].bytes);
    return backend_read(s->backend, s->plan, rank, b, copy, d) ? copy : NULL;
}

static int by_place(const void *a, const void *b)
{
    const StateSlice *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Returns the slices that the rank writes, in the order in which they stand in its file. */
static StateSlices written_by(const Save *s, Rank rank, Arena *arena)
{
    StateSlices all = {0}, written = {0};
    state_of_rank(s->state, rank, arena, &all);
    for (uint32_t i = 0; i < all.n; i++)
        if (all.at[i].writes) list_push(arena, &written, all.at[i]);
    if (written.n > 0) qsort(written.at, written.n, sizeof *written.at, by_place);
    return written;
}

/* Writes slices. The slices of one buffer are neighbours in the file, unless their element sizes
 * differ. So a buffer on a device is copied only once for all of them. */
static bool write_slices(Save *s, Rank rank, const StateSlices *slices, FileWriter *file, Diag *d)
{
    Arena *copies = arena_new();
    BufferId held = 0;
    const char *memory = NULL;
    bool fine = true;
    for (uint32_t i = 0; i < slices->n && fine; i++) {
        const StateSlice *at = &slices->at[i];
        if (at->buffer != held) {
            arena_reset(copies);
            memory = memory_of(s, rank, at->buffer, copies, d);
            held = at->buffer;
        }
        SliceWriter to = {file, memory, dtype_bytes(at->dtype)};
        fine = memory != NULL && box_runs(at, at->offset, at->size, write_run, &to);
    }
    arena_free(copies);
    return fine;
}

static bool write_rank(Save *s, Rank rank, RankFile *result, Diag *d)
{
    const StateSlices slices = written_by(s, rank, s->scratch);
    const char *path =
        arena_print(s->scratch, "%s/%s", s->folder, checkpoint_rank_name(rank, s->scratch));
    FileWriter file;
    size_t n;
    const StateSlice *last = slices.n > 0 ? &slices.at[slices.n - 1] : NULL;
    if (last == NULL) return true; /* other ranks have the same state and write it */
    const char *header = safetensors_header(slices.at, slices.n, s->step, s->scratch, &n);
    const uint64_t all = n + last->at + last->bytes;
    const uint32_t errors = d->n_errors;
    writer_open(&file, path, s->scratch);
    writer_add(&file, header, n);
    write_slices(s, rank, &slices, &file, d);
    if (writer_close(&file) && d->n_errors == errors) {
        *result = (RankFile){file.bytes, hasher_end(file.hasher)};
        return true;
    }
    if (d->n_errors > errors) return false; /* the device could not be read */
    diag_error(d, FAULT_internal, "checkpoint-write", none,
               "rank %" PRIu32 " cannot write %s: %s; it needs %s", rank, path,
               strerror(file.error), str_bytes(s->scratch, all));
    return hint_newest(s, d);
}

/* ---- the manifest ---- */

static void add_tensors(const Save *s, Manifest *m, uint32_t *number)
{
    StateTensors all = {0};
    state_tensors(s->state, s->scratch, &all);
    for (uint32_t i = 0; i < all.n; i++) {
        const StateTensor *t = &all.at[i];
        StoredTensor stored = {
            .name = t->name, .kind = t->kind, .dtype = t->dtype, .n_dims = t->n_dims};
        memcpy(stored.dim, t->dim, sizeof stored.dim);
        number[t->tensor * STATE_KIND_COUNT + (uint32_t)t->kind] = m->tensors.n;
        list_push(s->scratch, &m->tensors, stored);
    }
}

static void add_file(const Save *s, Manifest *m, Rank rank, const RankFile *written,
                     const uint32_t *number)
{
    const StateSlices slices = written_by(s, rank, s->scratch);
    if (slices.n == 0) return;
    StoredFile file = {.name = checkpoint_rank_name(rank, s->scratch),
                       .rank = rank,
                       .bytes = written->bytes,
                       .hash = hash_hex(s->scratch, written->hash)};
    list_push(s->scratch, &m->files, file);
    for (uint32_t i = 0; i < slices.n; i++) {
        const StateSlice *at = &slices.at[i];
        StoredSlice slice = {.tensor = number[at->tensor * STATE_KIND_COUNT + (uint32_t)at->kind],
                             .file = m->files.n - 1,
                             .at = at->at};
        memcpy(slice.offset, at->offset, sizeof slice.offset);
        memcpy(slice.size, at->size, sizeof slice.size);
        list_push(s->scratch, &m->slices, slice);
    }
}

static const char *manifest_of(const Save *s, const RankFile *written)
{
    const Plan *plan = s->plan;
    Manifest m = {.step = s->step,
                  .training = s->run->training,
                  .seed = plan->step.seed,
                  .version = s->options->version,
                  .optimizer = checkpoint_optimizer(plan),
                  .data = s->options->data,
                  .settings = s->options->settings,
                  .global_batch = plan->step.global_batch,
                  .n_microbatches = plan->step.n_microbatches,
                  .seq = plan->step.seq,
                  .n_ranks = plan->mesh.n_ranks};
    uint32_t *number =
        arena_array(s->scratch, (size_t)plan->graph.tensors.n * STATE_KIND_COUNT, sizeof *number);
    add_tensors(s, &m, number);
    for (Rank r = 0; r < plan->mesh.n_ranks; r++) add_file(s, &m, r, &written[r], number);
    return manifest_text(&m, s->scratch);
}

/* ---- work of the first process ---- */

/* Removes leftovers of earlier saves, and the oldest checkpoints if there are more than --keep
 * allows. If this fails, the run goes on with a warning, because a later save tries again. Only one
 * warning is given. */
static void clean_up(const Save *s, Diag *own, const Diag *d)
{
    const char *which = s->options->save;
    int error = folder_sweep(s->options->save, s->scratch, &which);
    if (error == 0 && s->options->keep > 0)
        error =
            folder_keep(s->options->save, s->run->training, s->options->keep, s->scratch, &which);
    for (uint32_t i = 0; i < d->items.n; i++)
        if (strcmp(d->items.at[i].rule, "checkpoint-left") == 0) return;
    if (error != 0)
        diag_warning(own, "checkpoint-left", none, "cannot remove %s: %s", which, strerror(error));
}

static bool prepare(Save *s, Diag *d)
{
    int error = folder_check(s->final); /* the new checkpoint will replace this folder */
    if (error != 0) return cannot_write(s, d, s->final, error);
    error = folder_remove(s->folder);
    if (error == 0) error = folder_make(s->folder);
    return error == 0 || cannot_write(s, d, s->folder, error);
}

/* Gives the finished folder its final name. If an earlier run has saved the same step, the old
 * checkpoint is first renamed. Readers know this other name as well. */
static int give_name(const Save *s)
{
    const char *old = arena_print(s->scratch, "%s%s", s->final, CHECKPOINT_OLD);
    if (access(s->final, F_OK) == 0) {
        const int error = folder_remove(old);
        if (error != 0) return error;
        if (rename(s->final, old) != 0) return errno;
    }
    if (rename(s->folder, s->final) != 0) return errno;
    return folder_flush(s->options->save);
}

static bool commit(Save *s, const RankFile *written, Diag *d, const Diag *before)
{
    const char *folder = s->options->save;
    const char *listing = arena_print(s->scratch, "%s/%s", s->folder, CHECKPOINT_LISTING);
    const char *latest = arena_print(s->scratch, "%s/%s", folder, CHECKPOINT_LATEST);
    int error = text_replace(listing, manifest_of(s, written), s->scratch);
    if (error == 0) error = folder_flush(s->folder);
    if (error != 0) return cannot_write(s, d, listing, error);
    error = give_name(s);
    if (error != 0) return cannot_write(s, d, s->final, error);
    error = text_replace(latest, arena_print(s->scratch, "%s\n", s->name), s->scratch);
    if (error == 0) error = folder_flush(folder);
    if (error != 0) return cannot_write(s, d, latest, error);
    clean_up(s, d, before);
    return true;
}

static bool save_all(Save *s, Diag *d)
{
    Diag own = diag_in(s->scratch);
    RankFile *mine = arena_array(s->scratch, s->n_ranks, sizeof *mine);
    RankFile *all = arena_array(s->scratch, (size_t)s->n_ranks * s->n_processes, sizeof *all);
    if (s->process == 0) prepare(s, &own);
    if (!agree(s, &own, d)) return false;
    for (Rank r = 0; r < s->n_ranks && own.n_errors == 0; r++)
        write_rank(s, s->first + r, &mine[r], &own);
    if (!agree(s, &own, d)) return false;
    if (!s->backend->exchange(s->backend, mine, s->n_ranks * sizeof *mine, all, d)) return false;
    if (s->process == 0) commit(s, all, &own, d);
    return agree(s, &own, d);
}

bool checkpoint_save(const CheckpointRun *run, const Plan *plan, Backend *backend, uint64_t step,
                     Arena *arena, CheckpointInfo *info, Diag *d)
{
    Save s;
    const CheckpointOptions *options = run->options;
    begin(&s, options, plan, backend);
    s.run = run;
    s.arena = arena;
    s.step = step;
    s.state = state_of(plan, s.scratch);
    s.name = checkpoint_step_name(step, s.scratch);
    s.final = arena_print(s.scratch, "%s/%s", options->save, s.name);
    s.folder = arena_print(s.scratch, "%s%s", s.final, CHECKPOINT_SAVING);
    checkpoint_wait_for(backend, state_total(s.state).most_written);
    const bool fine = save_all(&s, d);
    checkpoint_wait_for(backend, 0);
    if (fine)
        *info = (CheckpointInfo){arena_print(arena, "%s", s.final), step, run->training};
    else if (s.process == 0)
        folder_remove(s.folder); /* frees space, because the disk may be full */
    arena_free(s.scratch);
    return fine;
}
