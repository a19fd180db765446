/* Reads one value of a plan: finds its key, and has the value checked and stored. */
#include <string.h>

#include "planner/front/draft/draft.h"

static bool read_value(Draft *draft, RecordKind kind, Reader *r, Value *v)
{
    *v = (Value){.kind = kind, .text = ""};
    if (kind == RECORD_bool) v->integer = get_u32(r) != 0;
    if (kind == RECORD_int) v->integer = get_i64(r);
    if (kind == RECORD_number) v->number = get_f64(r);
    if (kind == RECORD_text || kind == RECORD_other) v->text = get_text(r, draft->arena);
    return reader_finished(r);
}

static bool decides_mesh(const char *path)
{
    return strncmp(path, "mesh", 4) == 0 || strncmp(path, "batch", 5) == 0 ||
           strncmp(path, "cluster", 7) == 0;
}

static void plan_field(Draft *draft, const char *path, Loc loc, Value *v)
{
    uint32_t before = draft->d->n_errors;
    const Field *f = field_of_plan(path);
    if (draft_is_attention(path)) {
        draft_attention_field(draft, path, loc, v);
    } else if (v->kind == RECORD_table && strcmp(path, "runtime.attention") == 0) {
        draft->is_choice = true; /* its entries (ArchKernel) arrive in the next records */
    } else if (f != NULL) {
        if (draft_store(draft, path, f, loc, v, (char *)draft + f->offset))
            draft_runtime_op(draft, path, loc, v);
    } else {
        const char *dot = strrchr(path, '.');
        const char *parent = arena_copy(draft->arena, path, dot != NULL ? (size_t)(dot - path) : 0);
        const Field *within = field_of_plan(parent);
        /* if the table itself is unknown, that was reported, and its keys are not */
        if (within != NULL && within->kind == FIELD_table)
            draft_unknown_key(draft, path, parent, false, loc);
    }
    if (draft->d->n_errors > before && decides_mesh(path)) draft->unsure = true;
}

bool draft_field(Draft *draft, RecordKind kind, Reader *r)
{
    const char *path = get_text(r, draft->arena);
    Loc loc = draft_read_loc(draft, r);
    Value v;
    if (r->bad || strlen(path) > 240 || !read_value(draft, kind, r, &v)) return false;
    Seen seen = {path, loc, kind == RECORD_table};
    list_push(draft->arena, &draft->seen, seen);
    if (strncmp(path, "parallel.", 9) == 0)
        draft_pass_field(draft, path, loc, &v);
    else
        plan_field(draft, path, loc, &v);
    return true;
}
