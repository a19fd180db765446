/* The double has only one attention kernel, the CPU's (adapter.c), so nothing is chosen. The script
 * may make a timed kernel hang: attention_ways@N=fail:1. */
#include "kernels/cuda/ways/attention_ways.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "tests/cuda/double/private.h"

struct AttentionWays {
    char nothing;
};
static struct AttentionWays ways;
static bool hangs;

AttentionWays *attention_ways_open(const AttentionWaysOptions *options, CudaError *error)
{
    (void)options, (void)error;
    return &ways;
}

bool attention_ways_prepare(AttentionWays *w, OpKind op, const KernelArgs *args,
                            const CudaContext *cuda, CudaError *error)
{
    hangs = double_script("attention_ways").kind == SCRIPT_fail;
    if (hangs) (void)snprintf(error->text, sizeof error->text, "attention by no way did not end");
    return !hangs && w == &ways && args->binding != NULL && cuda->stream != NULL &&
           (op == OP_attention || op == OP_attention_grad);
}

bool attention_ways_run(void *w, OpKind op, const KernelArgs *args, const CudaContext *cuda,
                        bool *taken, CudaError *error)
{
    (void)w, (void)op, (void)args, (void)cuda, (void)error;
    *taken = false;
    return true;
}

void attention_ways_close(AttentionWays *w)
{
    (void)w;
}

/* Each rank reports one choice, all of them equal; at least one must come back. */
uint32_t attention_ways_n(const AttentionWays *w)
{
    (void)w;
    return 1;
}

void attention_ways_tell(const AttentionWays *w, AttentionChoice *choice)
{
    (void)w;
    *choice = (AttentionChoice){.call = "attention", .way = ATTENTION_WAY_hopper};
}

void attention_ways_adopt(AttentionWays *w, const AttentionChoice *all, uint32_t n)
{
    (void)w;
    assert(n > 0);
    for (uint32_t i = 0; i < n; i++) {
        assert(strcmp(all[i].call, "attention") == 0);
        assert(all[i].way == ATTENTION_WAY_hopper && !all[i].wrong);
    }
}

bool attention_ways_hang(const AttentionWays *w)
{
    (void)w;
    return hangs;
}

const char *attention_ways_wrong(const AttentionWays *w)
{
    (void)w;
    return NULL;
}
