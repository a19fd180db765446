/* The manifest of a checkpoint, in JSON. It lists the checkpoint's tensors, its files, and for each
 * file the slices in it; a slice is a box of a tensor. Its last entry is the hash of all text
 * before it. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "exec/checkpoint/private.h"

static const Loc none = {NULL, 0};
#define CHECKSUM ",\n \"checksum\": \""

/* ---- writing ---- */

static void add_list(Str *s, const char *name, const int64_t *at, uint32_t n)
{
    str_print(s, "\"%s\":[", name);
    for (uint32_t d = 0; d < n; d++) str_print(s, "%s%" PRId64, d > 0 ? "," : "", at[d]);
    str_add(s, "]");
}

static void add_text(Str *s, const char *name, const char *text)
{
    str_print(s, ",\n \"%s\": ", name);
    str_add_json(s, text != NULL ? text : "");
}

static void add_tensors(Str *s, const Manifest *m)
{
    str_add(s, ",\n \"tensors\": [");
    for (uint32_t i = 0; i < m->tensors.n; i++) {
        const StoredTensor *t = &m->tensors.at[i];
        str_print(s, "%s\n  {\"name\":", i > 0 ? "," : "");
        str_add_json(s, t->name);
        str_print(s, ",\"kind\":\"%s\",\"dtype\":\"%s\",", state_kind_name(t->kind),
                  safetensors_dtype(t->dtype));
        add_list(s, "shape", t->dim, t->n_dims);
        str_add(s, "}");
    }
    str_add(s, "]");
}

static void add_files(Str *s, const Manifest *m)
{
    str_add(s, ",\n \"files\": [");
    for (uint32_t f = 0, i = 0; f < m->files.n; f++) {
        const StoredFile *file = &m->files.at[f];
        str_print(s,
                  "%s\n  {\"file\":\"%s\",\"rank\":%" PRIu32 ",\"bytes\":%" PRIu64
                  ",\"xxh3\":\"%s\",\"slices\":[",
                  f > 0 ? "," : "", file->name, file->rank, file->bytes, file->hash);
        for (const uint32_t from = i; i < m->slices.n && m->slices.at[i].file == f; i++) {
            const StoredSlice *at = &m->slices.at[i];
            const uint32_t n = m->tensors.at[at->tensor].n_dims;
            str_print(s, "%s\n   {\"tensor\":%" PRIu32 ",", i > from ? "," : "", at->tensor);
            add_list(s, "offset", at->offset, n);
            str_add(s, ",");
            add_list(s, "size", at->size, n);
            str_print(s, ",\"at\":%" PRIu64 "}", at->at);
        }
        str_add(s, "]}");
    }
    str_add(s, "]");
}

/* Writes slices in the order of their files. */
const char *manifest_text(const Manifest *m, Arena *arena)
{
    Str s = str_in(arena);
    str_print(&s, "{\"format\": \"%s\",\n \"format_version\": %d,\n \"step\": %" PRIu64,
              CHECKPOINT_FORMAT, CHECKPOINT_VERSION, m->step);
    add_text(&s, "training", m->training);
    /* the seed is a string, because numbers in JSON cannot hold all 64 bits */
    str_print(&s, ",\n \"seed\": \"%" PRIu64 "\"", m->seed);
    add_text(&s, "tandem", m->version);
    add_text(&s, "optimizer", m->optimizer);
    add_text(&s, "settings", m->settings);
    add_text(&s, "data", m->data);
    str_print(&s,
              ",\n \"global_batch\": %" PRId64 ",\n \"micro_batches\": %" PRId64
              ",\n \"sequence\": %" PRId64 ",\n \"ranks\": %" PRIu32,
              m->global_batch, m->n_microbatches, m->seq, m->n_ranks);
    add_tensors(&s, m);
    add_files(&s, m);
    const Hash128 hash = hash_bytes(str_text(&s), s.n);
    str_print(&s, "%s%s\"}\n", CHECKSUM, hash_hex(arena, hash));
    return str_text(&s);
}

/* ---- reading ---- */

typedef struct ManifestRead {
    Arena *arena;
    Manifest *m;
    const char *wrong; /* names the first entry that is wrong; NULL: none */
} ManifestRead;

static void wrong(ManifestRead *r, const char *part)
{
    if (r->wrong == NULL) r->wrong = part;
}

/* Returns a whole number that is not negative. Anything else counts as wrong. */
static int64_t count_of(ManifestRead *r, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_integer(value) && json_integer_value(value) >= 0)
        return (int64_t)json_integer_value(value);
    wrong(r, key);
    return 0;
}

static const char *text_of(ManifestRead *r, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_string(value)) return arena_print(r->arena, "%s", json_string_value(value));
    wrong(r, key);
    return "";
}

static uint32_t list_of(ManifestRead *r, const json_t *object, const char *key,
                        int64_t to[MAX_DIMS])
{
    const json_t *list = json_object_get(object, key);
    const size_t n = json_array_size(list);
    if (!json_is_array(list) || n > MAX_DIMS) {
        wrong(r, key);
        return 0;
    }
    for (size_t d = 0; d < n; d++) {
        const json_t *value = json_array_get(list, d);
        if (!json_is_integer(value) || json_integer_value(value) < 0) wrong(r, key);
        to[d] = (int64_t)json_integer_value(value);
    }
    return (uint32_t)n;
}

static void read_tensor(ManifestRead *r, const json_t *row)
{
    StoredTensor t = {.name = text_of(r, row, "name"), .kind = STATE_KIND_COUNT};
    const char *kind = text_of(r, row, "kind");
    for (int k = 0; k < STATE_KIND_COUNT; k++)
        if (strcmp(kind, state_kind_name((StateKind)k)) == 0) t.kind = (StateKind)k;
    t.dtype = safetensors_dtype_named(text_of(r, row, "dtype"));
    t.n_dims = (uint8_t)list_of(r, row, "shape", t.dim);
    if (t.kind == STATE_KIND_COUNT) wrong(r, "kind");
    if (t.dtype == DT_none) wrong(r, "dtype");
    list_push(r->arena, &r->m->tensors, t);
}

static void read_slice(ManifestRead *r, uint32_t file, const json_t *row)
{
    Manifest *m = r->m;
    StoredSlice s = {.file = file, .at = (uint64_t)count_of(r, row, "at")};
    const int64_t tensor = count_of(r, row, "tensor");
    const uint32_t n = list_of(r, row, "offset", s.offset), k = list_of(r, row, "size", s.size);
    if (tensor >= (int64_t)m->tensors.n) {
        wrong(r, "tensor");
        return;
    }
    s.tensor = (uint32_t)tensor;
    StoredTensor *t = &m->tensors.at[tensor];
    if (n != t->n_dims || k != t->n_dims) wrong(r, "size");
    for (uint32_t d = 0; d < t->n_dims; d++)
        if (s.size[d] == 0 || s.size[d] > t->dim[d] || s.offset[d] > t->dim[d] - s.size[d])
            wrong(r, "offset");
    t->n++;
    list_push(r->arena, &m->slices, s);
}

static void read_file_row(ManifestRead *r, const json_t *row)
{
    StoredFile f = {.name = text_of(r, row, "file"),
                    .rank = (Rank)count_of(r, row, "rank"),
                    .bytes = (uint64_t)count_of(r, row, "bytes"),
                    .hash = text_of(r, row, "xxh3")};
    const json_t *slices = json_object_get(row, "slices"), *slice;
    size_t i;
    if (f.name[0] == 0 || f.name[0] == '.' || strchr(f.name, '/') != NULL) wrong(r, "file");
    if (!json_is_array(slices)) wrong(r, "slices");
    list_push(r->arena, &r->m->files, f);
    json_array_foreach(slices, i, slice) read_slice(r, r->m->files.n - 1, slice);
}

static int by_tensor(const void *a, const void *b)
{
    const StoredSlice *x = a, *y = b;
    if (x->tensor != y->tensor) return x->tensor < y->tensor ? -1 : 1;
    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static void sort_slices(Manifest *m)
{
    uint32_t first = 0;
    if (m->slices.n > 0) qsort(m->slices.at, m->slices.n, sizeof *m->slices.at, by_tensor);
    for (uint32_t i = 0; i < m->tensors.n; i++) {
        m->tensors.at[i].first = first;
        first += m->tensors.at[i].n;
    }
}

static void read_all(ManifestRead *r, const json_t *root)
{
    Manifest *m = r->m;
    const json_t *tensors = json_object_get(root, "tensors"), *row;
    const json_t *files = json_object_get(root, "files");
    char *end = NULL;
    size_t i;
    m->step = (uint64_t)count_of(r, root, "step");
    const char *seed = text_of(r, root, "seed");
    m->seed = strtoull(seed, &end, 10);
    if (*seed == 0 || *end != 0) wrong(r, "seed");
    m->training = text_of(r, root, "training");
    m->version = text_of(r, root, "tandem");
    m->optimizer = text_of(r, root, "optimizer");
    m->settings = text_of(r, root, "settings");
    m->data = text_of(r, root, "data");
    m->global_batch = count_of(r, root, "global_batch");
    m->n_microbatches = count_of(r, root, "micro_batches");
    m->seq = count_of(r, root, "sequence");
    m->n_ranks = (uint32_t)count_of(r, root, "ranks");
    if (!json_is_array(tensors)) wrong(r, "tensors");
    if (!json_is_array(files)) wrong(r, "files");
    json_array_foreach(tensors, i, row) read_tensor(r, row);
    json_array_foreach(files, i, row) read_file_row(r, row);
    sort_slices(m);
}

static bool checksum_holds(const char *text, size_t n, Arena *arena)
{
    const char *last = NULL;
    for (const char *at = strstr(text, CHECKSUM); at != NULL; at = strstr(at + 1, CHECKSUM))
        last = at;
    if (last == NULL || strlen(text) != n) return false;
    const char *hash = hash_hex(arena, hash_bytes(text, (size_t)(last - text)));
    return strcmp(last, arena_print(arena, "%s%s\"}\n", CHECKSUM, hash)) == 0;
}

static const char *whole_text(const char *path, Arena *arena, size_t *n)
{
    FileReader r = {.fd = -1};
    if (!reader_open(&r, path, arena)) return NULL;
    char *text = arena_alloc(arena, r.size + 1);
    const bool fine = reader_get(&r, 0, text, r.size);
    *n = r.size;
    text[r.size] = 0;
    reader_close(&r);
    return fine ? text : NULL;
}

static bool newer(const char *path, const json_t *root, Diag *d)
{
    const json_t *version = json_object_get(root, "format_version");
    if (!json_is_integer(version) || json_integer_value(version) <= CHECKPOINT_VERSION)
        return false;
    diag_error(d, FAULT_input, "checkpoint-newer", none,
               "%s has format version %lld, but this command reads only versions up to %d", path,
               (long long)json_integer_value(version), CHECKPOINT_VERSION);
    diag_hint(d, "use the version of tandem that wrote it, or a newer one");
    return true;
}

static bool damaged(const char *folder, const char *what, Arena *arena, Diag *d)
{
    diag_error(d, FAULT_input, "checkpoint-damaged", none, "%s/%s: %s", folder, CHECKPOINT_LISTING,
               what);
    return checkpoint_hint_older(folder, arena, d);
}

bool manifest_read(const char *folder, Arena *arena, Manifest *m, Diag *d)
{
    const char *path = arena_print(arena, "%s/%s", folder, CHECKPOINT_LISTING);
    json_error_t error;
    size_t n = 0;
    errno = 0;
    const char *text = whole_text(path, arena, &n);
    memset(m, 0, sizeof *m);
    if (text == NULL) {
        diag_error(d, FAULT_input, "checkpoint-file", none, "%s: %s", path,
                   errno != 0 ? strerror(errno) : "it is shorter than its stated size");
        return false;
    }
    json_t *root = json_loadb(text, n, 0, &error);
    if (root == NULL)
        return damaged(folder, arena_print(arena, "line %d: %s", error.line, error.text), arena, d);
    ManifestRead r = {.arena = arena, .m = m};
    m->hash = hash_bytes(text, n);
    const json_t *format = json_object_get(root, "format");
    bool fine = false;
    if (!json_is_string(format) || strcmp(json_string_value(format), CHECKPOINT_FORMAT) != 0)
        damaged(folder, "its format is not \"" CHECKPOINT_FORMAT "\"", arena, d);
    else if (newer(path, root, d))
        fine = false;
    else if (!checksum_holds(text, n, arena))
        damaged(folder, "its last line states another hash of its text", arena, d);
    else
        fine = true;
    if (fine) read_all(&r, root);
    json_decref(root);
    if (fine && r.wrong != NULL)
        return damaged(folder, arena_print(arena, "a value of \"%s\" is out of range", r.wrong),
                       arena, d);
    return fine;
}
