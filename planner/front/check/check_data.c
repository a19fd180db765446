/* Checks the sizes of a batch of fields: samples on a grid, as weather models read, instead of
 * tokens. */
#include "planner/front/parent.h"

bool draft_has_fields(const Draft *draft)
{
    return draft_has(draft, "batch.channels") || draft_has(draft, "batch.height") ||
           draft_has(draft, "batch.width");
}

void draft_check_fields(Draft *draft)
{
    static const char *const needed[] = {"batch.channels", "batch.height", "batch.width"};
    Config *c = &draft->config;
    if (!draft_has_fields(draft)) return;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        if (draft_has(draft, needed[i])) continue;
        diag_error(draft->d, FAULT_input, "missing-key", draft_loc(draft, "batch"),
                   "the plan has no %s, but a batch of fields needs channels, height and width",
                   needed[i]);
        diag_hint(
            draft->d,
            "for example batch = { global = 8, micro = 1, channels = 4, height = 32, width = 64 }");
        draft->unsure = true;
    }
    if (draft_has(draft, "batch.seq")) {
        diag_error(draft->d, FAULT_input, "wrong-type", draft_loc(draft, "batch.seq"),
                   "batch has both seq (for tokens) and channels, height or width (for fields)");
        diag_hint(draft->d, "leave out batch.seq if the model reads fields");
    }
    if (!c->targets) c->targets = c->channels;
    c->seq = c->height * c->width;
}
