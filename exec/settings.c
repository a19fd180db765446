/* Collects the settings of a training that its checkpoints record. They are the schedule of the
 * learning rate, and the attributes of the instructions that clip gradients and update weights. */
#include <inttypes.h>

#include "exec/settings.h"

/* Smallest and largest value of an attribute over all instructions. */
typedef struct SettingRange {
    bool is_there;
    double least, greatest;
} SettingRange;

static bool is_setting(OpKind op, uint32_t attr)
{
    AttrBounds bounds;
    if (op == OP_clip_coef) return attr == ATTR_clip;
    return op_is_optimizer(op) && attr != ATTR_site && attr != ATTR_stochastic &&
           op_attr_bounds(op, attr, &bounds);
}

const char *exec_settings(const ExecOptions *o, const Plan *plan, Arena *arena)
{
    SettingRange ranges[ATTRS] = {{false, 0, 0}};
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        const Program *p = &plan->programs.at[i];
        for (Pc pc = 1; pc < p->code.n; pc++)
            for (uint32_t a = 0; a < ATTRS; a++) {
                if (!is_setting(p->code.at[pc].op, a)) continue;
                const AttrsId id = p->code.at[pc].attrs;
                const double value = attr_get(graph_attrs_at(&plan->graph, id), a);
                SettingRange *r = &ranges[a];
                if (!r->is_there || value < r->least) r->least = value;
                if (!r->is_there || value > r->greatest) r->greatest = value;
                r->is_there = true;
            }
    }
    Str s = str_in(arena);
    str_print(&s, "lr %.9g, warmup_steps %" PRId64 ", total_steps %" PRId64 ", min_lr_ratio %.9g",
              o->lr, o->warmup_steps, o->total_steps, o->min_lr_ratio);
    for (uint32_t a = 0; a < ATTRS; a++) {
        const SettingRange *r = &ranges[a];
        if (!r->is_there) continue;
        str_print(&s, ", %s %.9g", attr_name(a), r->least);
        if (r->greatest > r->least) str_print(&s, " to %.9g", r->greatest);
    }
    return str_text(&s);
}
