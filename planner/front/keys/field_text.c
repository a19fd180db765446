/* Writes a plan's hardware and runtime profile as text. It loops over the table of fields that also
 * reads these values, so it cannot miss a new field. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "planner/front/keys/fields.h"
#include "planner/front/parent.h"

/* Fields that cannot change a prediction, and why. */
static const struct {
    const char *path, *why;
} idle[] = {
    {"cluster.name", "the key of a prediction has the cluster's name beside this text"},
    {"cluster.device.usd_per_hour", "a price is multiplied with a prediction when it is shown"},
    {"cluster.device.watts", "energy is computed from a prediction when it is shown"},
};

const char *field_why_idle(const char *path)
{
    for (size_t i = 0; i < sizeof idle / sizeof idle[0]; i++)
        if (strcmp(idle[i].path, path) == 0) return idle[i].why;
    return NULL;
}

size_t field_bytes(FieldKind kind)
{
    switch (kind) {
    case FIELD_table:
    case FIELD_modules:
    case FIELD_ops:
    case FIELD_styles:
    case FIELD_split: return 0;
    case FIELD_i64:
    case FIELD_u64:
    case FIELD_axis: return sizeof(int64_t);
    case FIELD_u32: return sizeof(uint32_t);
    case FIELD_f64:
    case FIELD_rate: return sizeof(double);
    case FIELD_bool:
    case FIELD_offload: return sizeof(bool);
    case FIELD_text: return sizeof(const char *);
    case FIELD_dtype: return sizeof(DType);
    case FIELD_word: return sizeof(uint32_t); /* an enum has the size of a uint32_t */
    case FIELD_reshard: return sizeof(Fsdp2Options);
    case FIELD_choice: return sizeof(Choice);
    }
    assert(0 && "a kind");
    return 0;
}

bool field_is_in(const char *key, size_t n, const char *table, size_t table_n)
{
    return n >= table_n && memcmp(key, table, table_n) == 0 &&
           (n == table_n || key[table_n] == '.');
}

/* Appends the value of field `f`, stored at `at`, to `value`. Appends nothing and returns false for
 * zero: so the text of a plan does not change when Tandem gets a new field. */
static bool add_value(const Field *f, const void *at, Str *value)
{
    int64_t whole = 0;
    uint32_t narrow = 0;
    double number = 0;
    bool flag = false;
    const char *text = NULL;
    switch (f->kind) {
    case FIELD_i64:
    case FIELD_u64:
    case FIELD_axis: memcpy(&whole, at, sizeof whole); break;
    case FIELD_u32:
    case FIELD_word:
    case FIELD_dtype:
    case FIELD_choice:
        assert(field_bytes(f->kind) == sizeof narrow);
        memcpy(&narrow, at, sizeof narrow);
        whole = narrow;
        break;
    case FIELD_f64:
    case FIELD_rate: memcpy(&number, at, sizeof number); break;
    case FIELD_bool:
    case FIELD_offload:
        memcpy(&flag, at, sizeof flag);
        whole = flag;
        break;
    case FIELD_text: memcpy(&text, at, sizeof text); break;
    case FIELD_table:
    case FIELD_modules:
    case FIELD_ops:
    case FIELD_styles:
    case FIELD_split:
    case FIELD_reshard: assert(0 && "no field of hardware"); break;
    }
    if (number != 0) str_add_double(value, number);
    if (whole != 0) str_print(value, "%" PRId64, whole);
    if (text != NULL) str_add_json(value, text);
    return number != 0 || whole != 0 || text != NULL;
}

/* Appends the fields below `table`, such as "cluster", one "path value" in each line. of: the
 * struct with their values. from: the offset of that struct in a Draft, to which the offsets of the
 * rows refer. */
static void add_table(const char *table, const void *of, size_t from, Str *out)
{
    const size_t n = strlen(table);
    const Field *f;
    for (uint32_t i = 0; (f = field_at(false, i)) != NULL; i++) {
        if (f->path[0] != table[0] || f->kind == FIELD_table) continue;
        Str value = str_in(out->arena);
        if (!field_is_in(f->path, strlen(f->path), table, n)) continue;
        if (!add_value(f, (const char *)of + (f->offset - from), &value)) continue;
        if (field_why_idle(f->path)) continue;
        str_add(out, f->path);
        str_add_bytes(out, " ", 1);
        str_add_bytes(out, value.at, value.n);
        str_add_bytes(out, "\n", 1);
    }
}

void field_text(const Cluster *cluster, const Runtime *runtime, Str *out)
{
    add_table("cluster", cluster, offsetof(Draft, config.cluster), out);
    add_table("runtime", runtime, offsetof(Draft, config.runtime), out);
    /* the plan's passes set these members, so the table has no rows for them */
    if (runtime->is_compiled) str_print(out, "compile %d\n", (int)runtime->compiled);
    if (runtime->holds_gradients && runtime->scatters_gradients) str_print(out, "scatters\n");
}
