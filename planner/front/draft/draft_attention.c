/* Reads runtime.attention = { "flash2", Blackwell = "cudnn" }: a framework's usual attention
 * kernel, and others by GPU architecture. The choice is made when the plan's cluster is known,
 * because --cluster may replace the script's. */
#include <string.h>

#include "planner/front/draft/draft.h"

static const char attention[] = "runtime.attention";

/* The architectures of the library's GPUs (scripts/tandem/gpus.lua). */
static const char *const archs[] = {"Volta",     "Ampere", "Ada",   "Hopper",
                                    "Blackwell", "CDNA2",  "CDNA3", "CDNA4"};
enum { N_ARCHS = sizeof archs / sizeof *archs };

bool draft_is_attention(const char *path)
{
    return strncmp(path, attention, sizeof attention - 1) == 0 && path[sizeof attention - 1] == '.';
}

void draft_attention_field(Draft *draft, const char *path, Loc loc, Value *v)
{
    ArchKernel choice = {.key = path + sizeof attention, .loc = loc};
    /* add the entry even if its kernel is unknown, so that its key is checked, too */
    draft_store(draft, path, field_of_plan(attention), loc, v, &choice.kernel);
    list_push(draft->arena, &draft->attention, choice);
}

static bool is_known(const Draft *draft, const char *key)
{
    const char *own = draft->config.cluster.device.arch;
    for (int i = 0; i < N_ARCHS; i++)
        if (strcmp(key, archs[i]) == 0) return true;
    return strcmp(key, "1") == 0 || (own != NULL && strcmp(key, own) == 0);
}

static void report_unknown(Draft *draft, const ArchKernel *choice)
{
    diag_error(draft->d, FAULT_input, "unknown-key", choice->loc,
               "%s: '%s' is not the name of a GPU architecture", attention, choice->key);
    const char *near = str_nearest(choice->key, archs, N_ARCHS);
    if (near != NULL)
        diag_hint(draft->d, "did you mean '%s'?", near);
    else
        diag_hint(draft->d, "give a default kernel first, then kernels for architectures: %s",
                  draft_list(draft->arena, archs, N_ARCHS));
}

void draft_choose_attention(Draft *draft)
{
    const char *own = draft->config.cluster.device.arch;
    const ArchKernel *usual = NULL, *chosen = NULL;
    if (!draft->is_choice) return;
    for (uint32_t i = 0; i < draft->attention.n; i++) {
        const ArchKernel *choice = &draft->attention.at[i];
        if (!is_known(draft, choice->key)) report_unknown(draft, choice);
        if (strcmp(choice->key, "1") == 0) usual = choice;
        if (own != NULL && strcmp(choice->key, own) == 0) chosen = choice;
    }
    if (usual == NULL) {
        diag_error(draft->d, FAULT_input, "missing-key", draft_loc(draft, attention),
                   "%s has no default kernel for architectures that it does not name", attention);
        diag_hint(draft->d, "for example attention = { \"flash2\", Blackwell = \"cudnn\" }");
        return;
    }
    draft->config.runtime.attention = (chosen != NULL ? chosen : usual)->kernel;
}
