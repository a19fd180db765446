/* The double has only one attention kernel, the CPU's (adapter.c), so there is nothing to choose.
 * The script can make the timing of a kernel hang: attention_chooser@N=fail:1. */
#include "kernels/cuda/choose/attention_chooser.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "tests/cuda/double/private.h"

struct AttentionChooser {
    char nothing;
};
static struct AttentionChooser chooser;
static bool hangs;

AttentionChooser *attention_chooser_open(const AttentionChooserOptions *options, CudaError *error)
{
    (void)options, (void)error;
    return &chooser;
}

bool attention_chooser_prepare(AttentionChooser *w, OpKind op, const KernelArgs *args,
                               const CudaContext *cuda, CudaError *error)
{
    hangs = double_script("attention_chooser").kind == SCRIPT_fail;
    if (hangs) (void)snprintf(error->text, sizeof error->text, "attention by no way did not end");
    return !hangs && w == &chooser && args->binding != NULL && cuda->stream != NULL &&
           (op == OP_attention || op == OP_attention_grad);
}

bool attention_chooser_run(void *w, OpKind op, const KernelArgs *args, const CudaContext *cuda,
                           bool *taken, CudaError *error)
{
    (void)w, (void)op, (void)args, (void)cuda, (void)error;
    *taken = false;
    return true;
}

void attention_chooser_close(AttentionChooser *w)
{
    (void)w;
}

/* Each rank reports one choice, and all choices are equal. The backend must give at least one
 * back. */
uint32_t attention_chooser_n(const AttentionChooser *w)
{
    (void)w;
    return 1;
}

void attention_chooser_tell(const AttentionChooser *w, AttentionChoice *choice)
{
    (void)w;
    *choice = (AttentionChoice){.call = "attention", .kernel = CUDA_ATTENTION_hopper};
}

void attention_chooser_adopt(AttentionChooser *w, const AttentionChoice *all, uint32_t n)
{
    (void)w;
    assert(n > 0);
    for (uint32_t i = 0; i < n; i++) {
        assert(strcmp(all[i].call, "attention") == 0);
        assert(all[i].kernel == CUDA_ATTENTION_hopper && !all[i].wrong);
    }
}

bool attention_chooser_hang(const AttentionChooser *w)
{
    (void)w;
    return hangs;
}

const char *attention_chooser_wrong(const AttentionChooser *w)
{
    (void)w;
    return NULL;
}
