/* Chooses among attention's kernels: see attention_chooser.h. */
#include "kernels/cuda/choose/attention_chooser.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/choose/attention_private.h"
#include "planner/base/log.h"
#include "planner/ir/layout/layout.h"

/* Version of the stored choices. Raise it when a kernel of ours changes, so that calls are timed
 * and compared again. */
#define KERNELS "7"

typedef struct TimedChoice {
    AttentionChoice choice;
    bool timed;
    int64_t median_ps;
} TimedChoice;

struct AttentionChooser {
    AttentionChooserOptions options;
    char device[160], about[200];
    TimedChoice *calls;
    uint32_t n_calls, room;
    bool hangs;
};

static const char *const kernel_names[CUDA_ATTENTION_KERNELS] = {
    "mma.sync", "Hopper's instructions", "the library", "one kernel with Hopper's instructions"};

const char *attention_kernel_name(CudaAttentionKernel kernel)
{
    assert(kernel < CUDA_ATTENTION_KERNELS);
    return kernel_names[kernel];
}

bool attention_launch(CudaAttentionKernel kernel, OpKind op, const CudaAttentionLibrary *library,
                      const KernelArgs *args, const CudaContext *cuda, bool *taken,
                      CudaError *error)
{
    CudaContext own = *cuda;
    own.attention = NULL;
    *taken = true;
    switch (kernel) {
    case CUDA_ATTENTION_hopper: return cuda_attention_hopper(op, args, &own, error);
    case CUDA_ATTENTION_library:
        assert(library != NULL);
        return library->run(library->self, op, args, &own, taken, error);
    case CUDA_ATTENTION_one:
        *taken = op == OP_attention_grad && cuda_attention_one_takes(args, &own);
        return !*taken || cuda_attention_one(args, &own, error);
    case CUDA_ATTENTION_mma:
    case CUDA_ATTENTION_KERNELS: break;
    }
    return op == OP_attention ? cuda_attention(args, &own, error)
                              : cuda_attention_grad(args, &own, error);
}

AttentionChooser *attention_chooser_open(const AttentionChooserOptions *options, CudaError *error)
{
    AttentionChooser *w = calloc(1, sizeof *w);
    if (w == NULL) {
        (void)snprintf(error->text, sizeof error->text, "no memory for attention's kernels");
        return NULL;
    }
    w->options = *options;
    (void)snprintf(w->device, sizeof w->device, "%s, attention " KERNELS "%s",
                   options->device != NULL ? options->device : "",
                   options->library != NULL ? " with a library" : "");
    return w;
}

void attention_chooser_close(AttentionChooser *w)
{
    if (w == NULL) return;
    free(w->calls);
    free(w);
}

/* Returns true if a choice is made for the call: Hopper's kernels and the mma.sync kernels can both
 * compute it. */
static bool is_chosen_for(OpKind op, const KernelArgs *args, const CudaContext *cuda)
{
    return (op == OP_attention || op == OP_attention_grad) &&
           cuda_attention_hopper_takes(op, args, cuda);
}

/* Makes the name under which a choice is stored. It contains everything on which the choice
 * depends. */
static void name_of(OpKind op, const KernelArgs *a, char name[ATTENTION_NAME_BYTES])
{
    (void)snprintf(name, ATTENTION_NAME_BYTES,
                   "%s %s b%lld s%lld T%lld g%lld r%lld E%lld at %lld, %lld%s", op_info(op)->name,
                   dtype_name(a->dtype[0]), (long long)a->size['b'], (long long)a->size['s'],
                   (long long)a->size['T'], (long long)a->size['g'], (long long)a->size['r'],
                   (long long)a->size['E'], (long long)(a->start['s'] - a->start['T']),
                   (long long)(a->second['s'] - a->start['T']), a->attrs.causal ? " causal" : "");
}

static TimedChoice *find(const AttentionChooser *w, const char *name)
{
    for (uint32_t i = 0; i < w->n_calls; i++)
        if (strcmp(w->calls[i].choice.call, name) == 0) return &w->calls[i];
    return NULL;
}

/* Takes the stored choice of a call. Returns false if there is none, or if the stored kernel cannot
 * compute this call. (The gradient in one kernel needs scratch memory. Of two calls with one name,
 * only one may have it.) */
static bool use_kept(const AttentionChooser *w, TimedChoice *call, OpKind op,
                     const KernelArgs *args, const CudaContext *cuda)
{
    const KernelChoices *kept = w->options.kept;
    uint32_t kernel;
    if (kept == NULL ||
        !kept->get(kept->self, w->device, call->choice.call, &kernel, sizeof kernel))
        return false;
    if (kernel >= CUDA_ATTENTION_KERNELS ||
        (kernel == CUDA_ATTENTION_library && w->options.library == NULL))
        return false;
    if (kernel == CUDA_ATTENTION_one &&
        !(op == OP_attention_grad && cuda_attention_one_takes(args, cuda)))
        return false;
    call->choice.kernel = (int32_t)kernel;
    return true;
}

static bool choose(AttentionChooser *w, TimedChoice *call, OpKind op, const KernelArgs *args,
                   const CudaContext *cuda, CudaError *error)
{
    AttentionTimes times;
    if (use_kept(w, call, op, args, cuda) || !w->options.tune) return true;
    if (!attention_time(op, &w->options, args, cuda, &times, error)) {
        w->hangs = times.hangs;
        return false;
    }
    for (int kernel = 0; kernel < CUDA_ATTENTION_KERNELS; kernel++)
        if (times.ms[kernel] > 0)
            log_debug("%s: %.3f ms by %s%s", call->choice.call, times.ms[kernel],
                      kernel_names[kernel], kernel == (int)times.best ? ", which is used" : "");
    call->choice.kernel = (int32_t)times.best;
    call->choice.wrong = times.wrong;
    call->timed = times.timed;
    call->median_ps = times.median_ps;
    if (times.wrong) memcpy(w->about, times.about, sizeof w->about);
    return true;
}

bool attention_chooser_prepare(AttentionChooser *w, OpKind op, const KernelArgs *args,
                               const CudaContext *cuda, CudaError *error)
{
    TimedChoice call = {.choice = {.kernel = CUDA_ATTENTION_mma}};
    if (!is_chosen_for(op, args, cuda)) return true;
    name_of(op, args, call.choice.call);
    if (find(w, call.choice.call) != NULL) return true;
    if (w->n_calls == w->room) {
        uint32_t room = w->room > 0 ? 2 * w->room : 16;
        TimedChoice *calls = realloc(w->calls, room * sizeof *calls);
        if (calls == NULL) {
            (void)snprintf(error->text, sizeof error->text, "no memory for attention's kernels");
            return false;
        }
        w->calls = calls;
        w->room = room;
    }
    if (!choose(w, &call, op, args, cuda, error)) return false;
    w->calls[w->n_calls++] = call;
    return true;
}

bool attention_chooser_run(void *chooser, OpKind op, const KernelArgs *args,
                           const CudaContext *cuda, bool *taken, CudaError *error)
{
    const AttentionChooser *w = chooser;
    const CudaAttentionLibrary *library = w->options.library;
    const TimedChoice *call = NULL;
    char name[ATTENTION_NAME_BYTES];
    *taken = false;
    if (w->n_calls > 0 && is_chosen_for(op, args, cuda)) {
        name_of(op, args, name);
        call = find(w, name);
    }
    if (call != NULL && call->choice.kernel == CUDA_ATTENTION_mma) return true;
    if (call != NULL)
        return attention_launch((CudaAttentionKernel)call->choice.kernel, op, library, args, cuda,
                                taken, error);
    return library == NULL || library->run(library->self, op, args, cuda, taken, error);
}

uint32_t attention_chooser_n(const AttentionChooser *w)
{
    return w->n_calls;
}

void attention_chooser_tell(const AttentionChooser *w, AttentionChoice *choice)
{
    for (uint32_t i = 0; i < w->n_calls; i++) choice[i] = w->calls[i].choice;
}

void attention_chooser_adopt(AttentionChooser *w, const AttentionChoice *all, uint32_t n)
{
    const KernelChoices *kept = w->options.kept;
    for (uint32_t i = 0; i < w->n_calls; i++) {
        TimedChoice *call = &w->calls[i];
        bool found = false, wrong = false;
        for (uint32_t k = 0; k < n; k++) {
            if (strcmp(all[k].call, call->choice.call) != 0) continue;
            if (!found) call->choice.kernel = all[k].kernel;
            found = true;
            wrong = wrong || all[k].wrong;
        }
        if (wrong) call->choice.kernel = CUDA_ATTENTION_mma;
        uint32_t kernel = (uint32_t)call->choice.kernel;
        if (call->timed && kept != NULL)
            kept->put(kept->self, w->device, call->choice.call, &kernel, sizeof kernel,
                      call->median_ps);
    }
}

bool attention_chooser_hang(const AttentionChooser *w)
{
    return w->hangs;
}

const char *attention_chooser_wrong(const AttentionChooser *w)
{
    return w->about[0] != 0 ? w->about : NULL;
}
