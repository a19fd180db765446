/* Values of a framework's profile (Runtime) that are derived from others: the costs of ops for
 * dropless experts, and scatters_gradients. */
#include <assert.h>
#include <string.h>

#include "planner/front/draft/draft.h"

static const char ops[] = "runtime.ops.";

/* uneven: an op for dropless experts, which may have different numbers of rows. even: the same op
 * for experts with equal numbers of rows. A profile describes a framework's module, which is the
 * same in both cases, so it gives only the costs of `even`. */
static const struct {
    const char *uneven, *even;
} forms[] = {
    {"dispatch_uneven", "dispatch"},
    {"dispatch_uneven_grad", "dispatch_grad"},
    {"combine_uneven", "combine"},
    {"combine_uneven_grad", "combine_grad"},
    {"combine_uneven_weights", "combine_weights"},
    {"linear_uneven", "linear_experts"},
    {"bias_uneven", "expert_bias"},
    {"bias_uneven_grad", "expert_bias_grad"},
};

/* Reports reads_none = true (RuntimeOp) for an op that does not compute a gradient: such an op
 * cannot run without its inputs. */
static void check_reader(Draft *draft, const char *path, const char *op, size_t n, Loc loc)
{
    const char *name = arena_copy(draft->arena, op, n);
    if (op_is_gradient(op_find(name))) return;
    diag_error(draft->d, FAULT_input, "reads-none", loc,
               "%s = true has no meaning, because %s computes no gradient", path, name);
    diag_hint(draft->d, "name an op that computes a gradient, such as combine_weights");
}

void draft_runtime_op(Draft *draft, const char *path, Loc loc, Value *v)
{
    if (strncmp(path, ops, sizeof ops - 1) != 0) return;
    const char *op = path + sizeof ops - 1, *key = strchr(op, '.');
    if (key == NULL) return;
    const size_t n = (size_t)(key - op);
    if (strcmp(key, ".reads_none") == 0 && v->integer != 0) check_reader(draft, path, op, n, loc);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (strlen(forms[i].even) != n || memcmp(forms[i].even, op, n) != 0) continue;
        const char *other = arena_print(draft->arena, "%s%s%s", ops, forms[i].uneven, key);
        const Field *f = field_of_plan(other);
        assert(f != NULL);
        /* a value that the profile gives for the uneven op has priority, in any order of arrival */
        if (!draft_has(draft, other))
            draft_store(draft, other, f, loc, v, (char *)draft + f->offset);
    }
}

void draft_find_scattered(Config *c)
{
    const PassConfig *fsdp2 = config_pass(c, PASS_fsdp2), *zero = config_pass(c, PASS_zero);
    c->runtime.scatters_gradients =
        (fsdp2 != NULL && !fsdp2->fsdp2.keep_gathered && !fsdp2->fsdp2.defer_grad_sync) ||
        (zero != NULL && (zero->zero.strategy == ZERO_optim_grads ||
                          zero->zero.strategy == ZERO_optim_grads_params));
}
