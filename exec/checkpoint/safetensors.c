/* The safetensors format (huggingface.co/docs/safetensors). A file begins with 8 bytes that contain
 * the length of a JSON header, little-endian. The header follows, padded with spaces to a multiple
 * of 8. Then come the tensors, one after the other without gaps. If only a part of a tensor is
 * stored, its name contains the intervals of that part. */
#include <inttypes.h>
#include <string.h>

#include "exec/checkpoint/private.h"

static const struct {
    DType dtype;
    const char *name;
} dtypes[] = {{DT_f64, "F64"}, {DT_f32, "F32"},      {DT_bf16, "BF16"},
              {DT_f16, "F16"}, {DT_e4m3, "F8_E4M3"}, {DT_e5m2, "F8_E5M2"},
              {DT_i64, "I64"}, {DT_i32, "I32"},      {DT_u8, "U8"}};

const char *safetensors_dtype(DType t)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (dtypes[i].dtype == t) return dtypes[i].name;
    return NULL;
}

DType safetensors_dtype_named(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(dtypes[i].name, name) == 0) return dtypes[i].dtype;
    return DT_none;
}

/* Returns the name of a slice, such as "layers.0.wq.weight", "layers.0.wq.weight@m" or
 * "layers.0.wq.weight[0:6,0:4]@m". A whole tensor has no intervals in its name. Only moments have a
 * kind (@m) in their names; the other kinds of state have different names already. */
static const char *slice_name(const StateSlice *s, Arena *arena)
{
    Str name = str_in(arena);
    bool whole = true;
    str_add(&name, s->name);
    for (int d = 0; d < s->n_dims; d++) whole = whole && s->size[d] == s->dim[d];
    for (int d = 0; d < s->n_dims && !whole; d++)
        str_print(&name, "%s%" PRId64 ":%" PRId64, d > 0 ? "," : "[", s->offset[d],
                  s->offset[d] + s->size[d]);
    if (!whole) str_add(&name, "]");
    if (s->kind == STATE_m || s->kind == STATE_v) str_print(&name, "@%s", state_kind_name(s->kind));
    return str_text(&name);
}

const char *safetensors_header(const StateSlice *slices, uint32_t n, uint64_t step, Arena *arena,
                               size_t *bytes)
{
    Str s = str_in(arena);
    str_add_bytes(&s, "\0\0\0\0\0\0\0", 8); /* room for the length, which is set below */
    str_print(&s, "{\"__metadata__\":{\"format\":\"tandem\",\"step\":\"%" PRIu64 "\"}", step);
    for (uint32_t i = 0; i < n; i++) {
        const StateSlice *at = &slices[i];
        str_add(&s, ",");
        str_add_json(&s, slice_name(at, arena));
        str_print(&s, ":{\"dtype\":\"%s\",\"shape\":[", safetensors_dtype(at->dtype));
        for (int d = 0; d < at->n_dims; d++)
            str_print(&s, "%s%" PRId64, d > 0 ? "," : "", at->size[d]);
        str_print(&s, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at->at, at->at + at->bytes);
    }
    str_add(&s, "}");
    while (s.n % 8 != 0) str_add(&s, " ");
    char *text = arena_alloc(arena, s.n);
    memcpy(text, str_text(&s), s.n);
    for (int i = 0; i < 8; i++) text[i] = (char)((uint64_t)(s.n - 8) >> 8 * i & 0xff);
    *bytes = s.n;
    return text;
}
