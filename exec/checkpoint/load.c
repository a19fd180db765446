/* Loads a checkpoint under any plan of its model. Each file is hashed by one process. Then every
 * rank reads its own slices, whichever ranks wrote them. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "exec/checkpoint/private.h"
#include "kernels/number.h"
#include "planner/base/plural.h"

static const Loc none = {NULL, 0};

enum {
    MOST_OPEN = 16
}; /* open files at a time; a checkpoint may have more files than a process
      may open */

typedef struct Load {
    const Plan *plan;
    Backend *backend;
    const char *folder;
    Manifest manifest;
    uint32_t *number; /* for each tensor and kind of state, 1 + its index in the manifest */
    struct OpenFile {
        FileReader reader;
        uint32_t file;  /* 1 + index of the file; 0: this entry is unused */
        uint64_t begin; /* offset of the first byte after the header */
    } open[MOST_OPEN];
    uint32_t next; /* how many files have been opened; modulo MOST_OPEN, the entry that the next
                      file will use */
    Arena *arena;
    Diag *d;
} Load;

/* One slice of a rank, and the stored slice from which its elements are read. */
typedef struct SliceReader {
    Load *load;
    const StoredSlice *from;
    DType stored, held;
    char *memory; /* memory of the rank's buffer */
} SliceReader;

bool checkpoint_find(const char *path, const Plan *plan, Arena *arena, CheckpointInfo *info,
                     Diag *d)
{
    Manifest m;
    info->path = checkpoint_resolve(path, arena, d);
    if (info->path == NULL || !manifest_read(info->path, arena, &m, d)) return false;
    info->step = m.step;
    info->training = m.training;
    return manifest_fits(&m, info->path, plan, arena, d);
}

bool checkpoint_has_steps(const CheckpointInfo *from, uint32_t steps, bool saves, Diag *d)
{
    if (from->step < steps || (from->step == steps && saves)) return true;
    diag_error(d, FAULT_usage, "checkpoint-steps", none,
               "%s was saved after %" PRIu64 " step%s, but the training has only %" PRIu32,
               from->path, from->step, str_s(from->step), steps);
    diag_hint(d,
              "use --steps %" PRIu64
              " or more, counted from the first step; or --save with --steps %" PRIu64
              " to write the state again",
              from->step + 1, from->step);
    return false;
}

/* ---- all processes use the same checkpoint ---- */

/* The checkpoint that process 0 has chosen. */
typedef struct Chosen {
    char name[64]; /* the rest of the checkpoint's path after the path in the option; empty: the
                      option names the checkpoint itself */
    Hash128 manifest;
} Chosen;

/* Runs on process 0, which chooses the checkpoint for all processes, because `latest` may change at
 * any time. */
static void choose(Load *l, const char *path, Chosen *mine)
{
    *mine = (Chosen){.name = ""};
    l->folder = checkpoint_resolve(path, l->arena, l->d);
    if (l->folder == NULL || !manifest_read(l->folder, l->arena, &l->manifest, l->d)) return;
    mine->manifest = l->manifest.hash;
    strncpy(mine->name, l->folder + strlen(checkpoint_trim(path, l->arena)), sizeof mine->name - 1);
}

/* Runs on the other processes: reads the manifest and checks that process 0 has read the same
 * one. */
static void follow(Load *l, const char *path, const Chosen *chosen)
{
    l->folder = arena_print(l->arena, "%s%s", checkpoint_trim(path, l->arena), chosen->name);
    if (!manifest_read(l->folder, l->arena, &l->manifest, l->d)) return;
    if (memcmp(&l->manifest.hash, &chosen->manifest, sizeof chosen->manifest) == 0) return;
    diag_error(l->d, FAULT_input, "checkpoint-file", none,
               "this process reads another %s/%s than process 0", l->folder, CHECKPOINT_LISTING);
    diag_hint(l->d, "use a folder that all machines see, and into which no other run writes");
}

/* Lets all processes choose the same checkpoint. Errors go to l->d. If process 0 finds no
 * checkpoint, all processes report its errors in `d` and return false. */
static bool find_together(Load *l, const char *path, Diag *d)
{
    uint32_t process;
    const uint32_t n = l->backend->processes(l->backend, &process);
    Chosen mine = {.name = ""}, *all = arena_array(l->arena, n, sizeof *all);
    if (process == 0) choose(l, path, &mine);
    if (!checkpoint_agree(l->backend, l->d, l->arena, d)) return false;
    if (!l->backend->exchange(l->backend, &mine, sizeof mine, all, d)) return false;
    if (process != 0) follow(l, path, &all[0]);
    if (l->d->n_errors == 0) manifest_fits(&l->manifest, l->folder, l->plan, l->arena, l->d);
    return true;
}

/* ---- files ---- */

static bool check_hash(Load *l, const StoredFile *file)
{
    const char *path = arena_print(l->arena, "%s/%s", l->folder, file->name);
    uint64_t bytes = 0;
    Hash128 hash;
    errno = 0;
    if (!file_hash(path, l->arena, &bytes, &hash)) {
        diag_error(l->d, FAULT_input, "checkpoint-file", none,
                   "%s, which rank %" PRIu32 " wrote: %s", path, file->rank, strerror(errno));
        diag_hint(l->d, "copy the files of all ranks into this folder");
        return false;
    }
    if (bytes != file->bytes)
        diag_error(l->d, FAULT_input, "checkpoint-damaged", none,
                   "%s has %" PRIu64 " bytes, but the manifest states %" PRIu64, path, bytes,
                   file->bytes);
    else if (strcmp(hash_hex(l->arena, hash), file->hash) != 0)
        diag_error(l->d, FAULT_input, "checkpoint-damaged", none,
                   "%s has the hash %s, but the manifest states %s", path, hash_hex(l->arena, hash),
                   file->hash);
    else
        return true;
    return checkpoint_hint_older(l->folder, l->arena, l->d);
}

static void check_files(Load *l)
{
    uint32_t process;
    const uint32_t n = l->backend->processes(l->backend, &process);
    Arena *long_lived = l->arena;
    l->arena = arena_new();
    for (uint32_t f = process; f < l->manifest.files.n && l->d->n_errors == 0; f += n) {
        check_hash(l, &l->manifest.files.at[f]);
        arena_reset(l->arena);
    }
    arena_free(l->arena);
    l->arena = long_lived;
}

/* Returns the file, opened. If all entries are in use, the file that was opened first is closed.
 * Returns NULL after a diagnostic. */
static struct OpenFile *open_file(Load *l, uint32_t file)
{
    for (uint32_t i = 0; i < MOST_OPEN; i++)
        if (l->open[i].file == 1 + file) return &l->open[i];
    struct OpenFile *o = &l->open[l->next++ % MOST_OPEN];
    const char *path = arena_print(l->arena, "%s/%s", l->folder, l->manifest.files.at[file].name);
    unsigned char head[8];
    uint64_t n = 0;
    if (o->file != 0) reader_close(&o->reader);
    o->file = 0;
    if (!reader_open(&o->reader, path, l->arena)) {
        diag_error(l->d, FAULT_input, "checkpoint-file", none, "%s: %s", path, strerror(errno));
        return NULL;
    }
    o->file = 1 + file;
    if (reader_get(&o->reader, 0, head, sizeof head))
        for (int i = 0; i < 8; i++) n |= (uint64_t)head[i] << 8 * i;
    o->begin = 8 + n;
    if (n > 0 && n <= o->reader.size - 8) return o;
    diag_error(l->d, FAULT_input, "checkpoint-damaged", none,
               "%s: its header of %" PRIu64 " bytes is longer than the file", path, n);
    return NULL;
}

/* ---- slices ---- */

static bool read_run(void *self, const BoxRun *run)
{
    const SliceReader *s = self;
    Load *l = s->load;
    struct OpenFile *file = open_file(l, s->from->file);
    const size_t wide = dtype_bytes(s->stored), held = dtype_bytes(s->held);
    char room[4096];
    if (file == NULL) return false;
    const uint64_t at = file->begin + s->from->at + run->file * wide;
    char *to = s->memory + run->buffer * held;
    bool fine = true;
    if (s->stored == s->held) fine = reader_get(&file->reader, at, to, (size_t)run->n * wide);
    const uint64_t each = sizeof room / wide;
    for (uint64_t i = 0, n; s->stored != s->held && fine && i < run->n; i += n) {
        n = run->n - i < each ? run->n - i : each;
        fine = reader_get(&file->reader, at + i * wide, room, (size_t)n * wide);
        for (uint64_t k = 0; fine && k < n; k++)
            number_write(s->held, to, i + k, number_read(s->stored, room, k));
    }
    return fine || diag_error(l->d, FAULT_input, "checkpoint-damaged", none,
                              "%s/%s: bytes %" PRIu64 " to %" PRIu64 " cannot be read", l->folder,
                              l->manifest.files.at[s->from->file].name, at, at + run->n * wide);
}

/* Reads a slice from all stored slices that contain a part of it. */
static bool read_slice(Load *l, const StateSlice *slice, char *memory)
{
    const uint32_t number = l->number[slice->tensor * STATE_KIND_COUNT + (uint32_t)slice->kind];
    const StoredTensor *t = &l->manifest.tensors.at[number - 1];
    bool fine = true;
    for (uint32_t i = t->first; i < t->first + t->n && fine; i++) {
        const StoredSlice *from = &l->manifest.slices.at[i];
        SliceReader reader = {l, from, t->dtype, slice->dtype, memory};
        fine = box_runs(slice, from->offset, from->size, read_run, &reader);
    }
    return fine;
}

/* Reads slices i to k - 1, which lie in one buffer. The bytes between them are padding and stay
 * unchanged. */
static bool read_buffer(Load *l, Rank rank, const StateSlices *slices, uint32_t i, uint32_t k)
{
    const BufferId b = slices->at[i].buffer;
    const bool here = l->backend->memory != NULL;
    Arena *copies = here ? NULL : arena_new();
    char *memory = here ? l->backend->memory(l->backend, rank, b)
                        : arena_alloc(copies, plan_program(l->plan, rank)->buffers.at[b].bytes);
    bool fine = here || backend_read(l->backend, l->plan, rank, b, memory, l->d);
    for (; i < k && fine; i++) fine = read_slice(l, &slices->at[i], memory);
    if (!here && fine) fine = backend_write(l->backend, l->plan, rank, b, memory, l->d);
    if (copies != NULL) arena_free(copies);
    return fine;
}

static bool read_rank(Load *l, const State *state, Rank rank)
{
    Arena *scratch = arena_new();
    StateSlices slices = {0};
    bool fine = true;
    state_of_rank(state, rank, scratch, &slices);
    state_copies_of_rank(state, rank, scratch, &slices);
    for (uint32_t i = 0, k; i < slices.n && fine; i = k) {
        for (k = i + 1; k < slices.n && slices.at[k].buffer == slices.at[i].buffer;) k++;
        fine = read_buffer(l, rank, &slices, i, k);
    }
    arena_free(scratch);
    return fine;
}

static void read_ranks(Load *l)
{
    const State *state = state_of(l->plan, l->arena);
    Rank first;
    uint32_t n_ranks;
    bool fine = true;
    l->backend->ranks(l->backend, &first, &n_ranks);
    for (Rank r = first; r < first + n_ranks && fine; r++) fine = read_rank(l, state, r);
    for (uint32_t i = 0; i < MOST_OPEN; i++)
        if (l->open[i].file != 0) reader_close(&l->open[i].reader);
}

/* Estimates the largest number of bytes that a process reads. A process reads the files that it
 * hashes, and the slices of its ranks. */
static uint64_t most_read(const Load *l)
{
    uint32_t process;
    const uint32_t n = l->backend->processes(l->backend, &process);
    uint64_t most = 0, largest = 0;
    for (uint32_t f = 0; f < l->manifest.files.n; f++) {
        const uint64_t bytes = l->manifest.files.at[f].bytes;
        most += bytes;
        if (bytes > largest) largest = bytes;
    }
    return most / n + largest + state_total(state_of(l->plan, l->arena)).most_held;
}

/* ---- differences between checkpoint and run that are allowed but change results ---- */

static void warn_data(const Load *l, const CheckpointOptions *options)
{
    const Manifest *m = &l->manifest;
    const StepInfo *step = &l->plan->step;
    if (m->global_batch != step->global_batch || m->n_microbatches != step->n_microbatches ||
        m->seq != step->seq)
        diag_warning(l->d, "checkpoint-data", none,
                     "%s was trained on %" PRId64 " samples of %" PRId64 " in %" PRId64
                     " micro-batches, but a step of the plan has %" PRId64 " of %" PRId64
                     " in %" PRIu32 ", so it reads other samples",
                     l->folder, m->global_batch, m->seq, m->n_microbatches, step->global_batch,
                     step->seq, step->n_microbatches);
    if (options->data != NULL && m->data[0] != 0 && strcmp(options->data, m->data) != 0)
        diag_warning(l->d, "checkpoint-data", none,
                     "%s was trained on %s, but this run trains on %s", l->folder, m->data,
                     options->data);
}

/* Adds to `s` the entries of the list `a` that the list `b` lacks. Returns how many there are. */
static uint32_t add_others(Str *s, const char *a, const char *b, Arena *arena)
{
    uint32_t n = 0;
    const char *list = arena_print(arena, ", %s, ", b);
    for (const char *at = a; *at != 0;) {
        const char *end = strstr(at, ", ");
        const int length = end != NULL ? (int)(end - at) : (int)strlen(at);
        if (strstr(list, arena_print(arena, ", %.*s, ", length, at)) == NULL)
            str_print(s, "%s%.*s", n++ > 0 ? ", " : "", length, at);
        at += length + (end != NULL ? 2 : 0);
    }
    if (n == 0) str_add(s, "none of these");
    return n;
}

static void warn_settings(const Load *l, const char *own)
{
    const char *saved = l->manifest.settings;
    Str was = str_in(l->arena), is = str_in(l->arena);
    if (own == NULL || saved[0] == 0) return;
    const uint32_t n = add_others(&was, saved, own, l->arena);
    if (n + add_others(&is, own, saved, l->arena) == 0) return;
    diag_warning(l->d, "checkpoint-settings", none, "%s was trained with %s, but this run has %s",
                 l->folder, str_text(&was), str_text(&is));
}

/* Finds the index of each of the plan's tensors in the manifest. Warns once if dtypes differ. */
static void map_tensors(Load *l)
{
    StateTensors own = {0};
    bool told = false;
    l->number = arena_array(l->arena, (size_t)l->plan->graph.tensors.n * STATE_KIND_COUNT,
                            sizeof *l->number);
    state_tensors(state_of(l->plan, l->arena), l->arena, &own);
    for (uint32_t i = 0; i < own.n; i++) {
        const StateTensor *t = &own.at[i];
        const uint32_t number = manifest_tensor(&l->manifest, t->name, t->kind);
        const DType stored = l->manifest.tensors.at[number - 1].dtype;
        l->number[t->tensor * STATE_KIND_COUNT + (uint32_t)t->kind] = number;
        if (stored != t->dtype && !told)
            diag_warning(l->d, "checkpoint-dtype", none,
                         "%s stores %s in %s, but the plan uses %s, so numbers are converted",
                         l->folder, t->name, dtype_name(stored), dtype_name(t->dtype));
        told = told || stored != t->dtype;
    }
}

bool checkpoint_load(const CheckpointOptions *options, const Plan *plan, Backend *backend,
                     Arena *arena, CheckpointInfo *info, Diag *d)
{
    Arena *scratch = arena_new();
    Diag own = diag_in(d->arena);
    Load l = {.plan = plan, .backend = backend, .arena = scratch, .d = &own};
    bool fine = find_together(&l, options->load, d);
    if (fine && own.n_errors == 0) {
        map_tensors(&l);
        warn_data(&l, options);
        warn_settings(&l, options->settings);
        checkpoint_wait_for(backend, most_read(&l));
        check_files(&l);
    }
    fine = fine && checkpoint_agree(backend, &own, scratch, d);
    if (fine) {
        own = diag_in(d->arena);
        read_ranks(&l);
        fine = checkpoint_agree(backend, &own, scratch, d);
    }
    checkpoint_wait_for(backend, 0);
    if (fine)
        *info = (CheckpointInfo){arena_print(arena, "%s", l.folder), l.manifest.step,
                                 arena_print(arena, "%s", l.manifest.training)};
    arena_free(scratch);
    return fine;
}
