/* Reads safetensors files for tests. A file is 8 bytes that hold the length of the header, a JSON
 * header, and raw data. */
#include "tests/support/text/golden.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static char *read_file(const char *path, Arena *arena, size_t *size)
{
    FILE *in = fopen(path, "rb");
    if (in == NULL) return NULL;
    char *bytes = NULL;
    if (fseek(in, 0, SEEK_END) == 0) {
        long length = ftell(in);
        if (length > 0 && fseek(in, 0, SEEK_SET) == 0) {
            *size = (size_t)length;
            bytes = arena_alloc(arena, *size);
            if (fread(bytes, 1, *size, in) != *size) bytes = NULL;
        }
    }
    fclose(in);
    return bytes;
}

static bool add_tensor(const char *name, json_t *entry, const char *data, size_t n_data,
                       Arena *arena, Golden *golden)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    json_t *shape = json_object_get(entry, "shape"),
           *range = json_object_get(entry, "data_offsets");
    if (dtype == NULL || json_array_size(shape) > MAX_DIMS || json_array_size(range) != 2)
        return false;
    GoldenTensor t = {.name = arena_dup(arena, name), .elements = 1};
    t.dtype = strcmp(dtype, "F64") == 0 ? DT_f64 : strcmp(dtype, "I32") == 0 ? DT_i32 : DT_none;
    if (t.dtype == DT_none) return false;
    for (size_t d = 0; d < json_array_size(shape); d++) {
        t.dim[t.n_dims] = json_integer_value(json_array_get(shape, d));
        t.elements *= t.dim[t.n_dims++];
    }
    size_t from = (size_t)json_integer_value(json_array_get(range, 0));
    size_t to = (size_t)json_integer_value(json_array_get(range, 1));
    if (to > n_data || from > to || to - from != (size_t)t.elements * dtype_bytes(t.dtype))
        return false;
    void *copy = arena_alloc(arena, to - from);
    memcpy(copy, data + from, to - from);
    t.at = copy;
    list_push(arena, &golden->tensors, t);
    return true;
}

bool golden_read(const char *name, Arena *arena, Golden *golden)
{
    const char *path = arena_print(arena, "%s/tests/data/golden/%s", TANDEM_SOURCE_DIR, name);
    size_t size = 0;
    char *bytes = read_file(path, arena, &size);
    uint64_t n_header = 0;
    *golden = (Golden){0};
    if (bytes != NULL && size >= 8) memcpy(&n_header, bytes, 8);
    bool good = n_header > 0 && n_header <= size - 8;
    json_t *header = good ? json_loadb(bytes + 8, (size_t)n_header, 0, NULL) : NULL;
    good = header != NULL;
    const char *key;
    json_t *entry;
    json_object_foreach(header, key, entry)
    {
        good = good && add_tensor(key, entry, bytes + 8 + n_header, size - 8 - (size_t)n_header,
                                  arena, golden);
    }
    json_decref(header);
    if (!good) fprintf(stderr, "cannot read %s\n", path);
    return good;
}

const GoldenTensor *golden_find(const Golden *golden, const char *group, const char *name)
{
    size_t n = strlen(group);
    for (uint32_t i = 0; i < golden->tensors.n; i++) {
        const GoldenTensor *t = &golden->tensors.at[i];
        if (strncmp(t->name, group, n) == 0 && strcmp(t->name + n, name) == 0) return t;
    }
    return NULL;
}
