/* Checks that a checkpoint and a plan belong together, before any file is read. */
#include <inttypes.h>
#include <string.h>

#include "exec/checkpoint/private.h"

static const Loc none = {NULL, 0};

const char *checkpoint_optimizer(const Plan *plan)
{
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        const Program *p = &plan->programs.at[i];
        for (Pc pc = p->code.n; pc-- > 1;) {
            const OpKind op = p->code.at[pc].op;
            if (op_is_optimizer(op)) return op_info(op)->name;
        }
    }
    return "none"; /* no parameter is trained */
}

uint32_t manifest_tensor(const Manifest *m, const char *name, StateKind kind)
{
    for (uint32_t i = 0; i < m->tensors.n; i++)
        if (m->tensors.at[i].kind == kind && strcmp(m->tensors.at[i].name, name) == 0) return 1 + i;
    return 0;
}

static const char *full_name(const char *name, StateKind kind, Arena *arena)
{
    static const char *const of[] = {[STATE_param] = "",
                                     [STATE_m] = "the first moment of ",
                                     [STATE_v] = "the second moment of ",
                                     [STATE_buffer] = "the state "};
    return arena_print(arena, "%s%s", of[kind], name);
}

static const char *dims_text(const int64_t *dim, uint32_t n, Arena *arena)
{
    Str s = str_in(arena);
    str_add(&s, "[");
    for (uint32_t d = 0; d < n; d++) str_print(&s, "%s%" PRId64, d > 0 ? ", " : "", dim[d]);
    str_add(&s, "]");
    return str_text(&s);
}

static bool same_optimizer(const Manifest *m, const char *folder, const Plan *plan, Diag *d)
{
    const char *own = checkpoint_optimizer(plan);
    if (strcmp(m->optimizer, own) == 0) return true;
    diag_error(d, FAULT_input, "checkpoint-optimizer", none,
               "%s was trained with the optimizer %s, but the plan uses %s", folder, m->optimizer,
               own);
    diag_hint(d, "use the optimizer of the checkpoint");
    return false;
}

static bool same_seed(const Manifest *m, const char *folder, const Plan *plan, Diag *d)
{
    if (m->seed == plan->step.seed) return true;
    diag_error(d, FAULT_input, "checkpoint-seed", none,
               "%s was trained with seed %" PRIu64 ", but the plan has seed %" PRIu64
               ", so it would read other samples",
               folder, m->seed, plan->step.seed);
    diag_hint(d, "add --seed %" PRIu64, m->seed);
    return false;
}

/* Reports the first tensor that is missing in the checkpoint or in the plan, or whose shapes
 * differ. */
static bool same_tensors(const Manifest *m, const char *folder, const StateTensors *own,
                         Arena *arena, Diag *d)
{
    bool *known = arena_array(arena, (size_t)m->tensors.n + 1, sizeof *known);
    uint32_t before = d->n_errors;
    for (uint32_t i = 0; i < own->n && d->n_errors == before; i++) {
        const StateTensor *t = &own->at[i];
        const uint32_t k = manifest_tensor(m, t->name, t->kind);
        const char *name = full_name(t->name, t->kind, arena);
        if (k == 0) {
            diag_error(d, FAULT_input, "checkpoint-model", none,
                       "%s does not contain %s, which is part of the plan's model", folder, name);
            continue;
        }
        const StoredTensor *stored = &m->tensors.at[k - 1];
        known[k - 1] = true;
        bool same = stored->n_dims == t->n_dims;
        for (int n = 0; n < t->n_dims && same; n++) same = stored->dim[n] == t->dim[n];
        if (!same)
            diag_error(d, FAULT_input, "checkpoint-model", none,
                       "%s: %s has shape %s in the checkpoint, but %s in the plan's model", folder,
                       name, dims_text(stored->dim, stored->n_dims, arena),
                       dims_text(t->dim, t->n_dims, arena));
    }
    for (uint32_t i = 0; i < m->tensors.n && d->n_errors == before; i++)
        if (!known[i])
            diag_error(d, FAULT_input, "checkpoint-model", none,
                       "%s contains %s, which is not part of the plan's model", folder,
                       full_name(m->tensors.at[i].name, m->tensors.at[i].kind, arena));
    if (d->n_errors == before) return true;
    diag_hint(d, "load it with a plan of the same model; the mesh and `parallel` may differ");
    return false;
}

/* Checks that all slices lie within their files, and that they contain every element exactly
 * once. */
static bool holds_all(const Manifest *m, const char *folder, Arena *arena, Diag *d)
{
    StateSlices slices = {0};
    for (uint32_t i = 0; i < m->slices.n; i++) {
        const StoredSlice *at = &m->slices.at[i];
        const StoredTensor *t = &m->tensors.at[at->tensor];
        StateSlice s = {.name = t->name,
                        .tensor = at->tensor,
                        .kind = t->kind,
                        .dtype = t->dtype,
                        .rank = m->files.at[at->file].rank,
                        .writes = true,
                        .n_dims = t->n_dims,
                        .at = at->at,
                        .bytes = dtype_bytes(t->dtype)};
        memcpy(s.dim, t->dim, sizeof s.dim);
        memcpy(s.offset, at->offset, sizeof s.offset);
        memcpy(s.size, at->size, sizeof s.size);
        for (int k = 0; k < s.n_dims; k++) s.bytes *= (uint64_t)s.size[k];
        const uint64_t room = m->files.at[at->file].bytes;
        if (s.bytes > room || s.at > room - s.bytes) {
            diag_error(d, FAULT_input, "checkpoint-damaged", none,
                       "%s: a slice of %s ends beyond the end of its file %s (%" PRIu64 " bytes)",
                       folder, t->name, m->files.at[at->file].name, room);
            return false;
        }
        list_push(arena, &slices, s);
    }
    Diag own = diag_in(arena);
    if (state_check_slices(NULL, &slices, &own)) return true;
    return diag_error(d, FAULT_input, "checkpoint-damaged", none, "%s: %s", folder,
                      own.items.at[0].text);
}

bool manifest_fits(const Manifest *m, const char *folder, const Plan *plan, Arena *arena, Diag *d)
{
    StateTensors own = {0};
    state_tensors(state_of(plan, arena), arena, &own);
    for (uint32_t i = 0; i < m->tensors.n; i++)
        if (m->tensors.at[i].n == 0)
            return diag_error(d, FAULT_input, "checkpoint-damaged", none, "%s: %s is in no file",
                              folder, m->tensors.at[i].name);
    return same_optimizer(m, folder, plan, d) && same_tensors(m, folder, &own, arena, d) &&
           same_seed(m, folder, plan, d) && holds_all(m, folder, arena, d);
}
