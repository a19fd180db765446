/* Chooses among attention's kernels: see attention_ways.h. */
#include "kernels/cuda/ways/attention_ways.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/ways/attention_private.h"
#include "planner/base/log.h"
#include "planner/ir/layout/layout.h"

/* Version of stored choices: raise it when our kernels change, so that they are timed and compared
 * again. */
#define KERNELS "5"

typedef struct TimedChoice {
    AttentionChoice choice;
    bool timed;
    int64_t median_ps;
} TimedChoice;

struct AttentionWays {
    AttentionWaysOptions options;
    char device[160], about[200];
    TimedChoice *calls;
    uint32_t n_calls, room;
    bool hangs;
};

static const char *const way_names[ATTENTION_WAYS] = {
    "mma.sync", "Hopper's instructions", "the library", "one kernel with Hopper's instructions"};

const char *attention_way_name(AttentionWay way)
{
    assert(way < ATTENTION_WAYS);
    return way_names[way];
}

bool attention_launch(AttentionWay way, OpKind op, const CudaAttentionLibrary *library,
                      const KernelArgs *args, const CudaContext *cuda, bool *taken,
                      CudaError *error)
{
    CudaContext own = *cuda;
    own.attention = NULL;
    *taken = true;
    switch (way) {
    case ATTENTION_WAY_hopper: return cuda_attention_hopper(op, args, &own, error);
    case ATTENTION_WAY_library:
        assert(library != NULL);
        return library->run(library->self, op, args, &own, taken, error);
    case ATTENTION_WAY_one:
        *taken = op == OP_attention_grad && cuda_attention_one_takes(args, &own);
        return !*taken || cuda_attention_one(args, &own, error);
    case ATTENTION_WAY_mma:
    case ATTENTION_WAYS: break;
    }
    return op == OP_attention ? cuda_attention(args, &own, error)
                              : cuda_attention_grad(args, &own, error);
}

AttentionWays *attention_ways_open(const AttentionWaysOptions *options, CudaError *error)
{
    AttentionWays *w = calloc(1, sizeof *w);
    if (w == NULL) {
        (void)snprintf(error->text, sizeof error->text, "no memory for ways of attention");
        return NULL;
    }
    w->options = *options;
    (void)snprintf(w->device, sizeof w->device, "%s, attention " KERNELS "%s",
                   options->device != NULL ? options->device : "",
                   options->library != NULL ? " with a library" : "");
    return w;
}

void attention_ways_close(AttentionWays *w)
{
    if (w == NULL) return;
    free(w->calls);
    free(w);
}

/* True if more than one kernel can compute the call. */
static bool is_chosen_for(OpKind op, const KernelArgs *args, const CudaContext *cuda)
{
    return (op == OP_attention || op == OP_attention_grad) &&
           cuda_attention_hopper_takes(op, args, cuda);
}

/* Names a call by the inputs of the choice. */
static void name_of(OpKind op, const KernelArgs *a, char name[ATTENTION_NAME_BYTES])
{
    (void)snprintf(name, ATTENTION_NAME_BYTES,
                   "%s %s b%lld s%lld T%lld g%lld r%lld E%lld at %lld, %lld%s", op_info(op)->name,
                   dtype_name(a->dtype[0]), (long long)a->size['b'], (long long)a->size['s'],
                   (long long)a->size['T'], (long long)a->size['g'], (long long)a->size['r'],
                   (long long)a->size['E'], (long long)(a->start['s'] - a->start['T']),
                   (long long)(a->second['s'] - a->start['T']), a->attrs.causal ? " causal" : "");
}

static TimedChoice *find(const AttentionWays *w, const char *name)
{
    for (uint32_t i = 0; i < w->n_calls; i++)
        if (strcmp(w->calls[i].choice.call, name) == 0) return &w->calls[i];
    return NULL;
}

/* A stored choice may not fit: calls of one name may have less scratch than the one-kernel gradient
 * needs. */
static bool use_kept(const AttentionWays *w, TimedChoice *call, OpKind op, const KernelArgs *args,
                     const CudaContext *cuda)
{
    const KernelChoices *kept = w->options.kept;
    uint32_t way;
    if (kept == NULL || !kept->get(kept->self, w->device, call->choice.call, &way, sizeof way))
        return false;
    if (way >= ATTENTION_WAYS || (way == ATTENTION_WAY_library && w->options.library == NULL))
        return false;
    if (way == ATTENTION_WAY_one &&
        !(op == OP_attention_grad && cuda_attention_one_takes(args, cuda)))
        return false;
    call->choice.way = (int32_t)way;
    return true;
}

static bool choose(AttentionWays *w, TimedChoice *call, OpKind op, const KernelArgs *args,
                   const CudaContext *cuda, CudaError *error)
{
    AttentionTimes times;
    if (use_kept(w, call, op, args, cuda) || !w->options.tune) return true;
    if (!attention_time(op, &w->options, args, cuda, &times, error)) {
        w->hangs = times.hangs;
        return false;
    }
    for (int way = 0; way < ATTENTION_WAYS; way++)
        if (times.ms[way] > 0)
            log_debug("%s: %.3f ms by %s%s", call->choice.call, times.ms[way], way_names[way],
                      way == (int)times.best ? ", which is used" : "");
    call->choice.way = (int32_t)times.best;
    call->choice.wrong = times.wrong;
    call->timed = times.timed;
    call->median_ps = times.median_ps;
    if (times.wrong) memcpy(w->about, times.about, sizeof w->about);
    return true;
}

bool attention_ways_prepare(AttentionWays *w, OpKind op, const KernelArgs *args,
                            const CudaContext *cuda, CudaError *error)
{
    TimedChoice call = {.choice = {.way = ATTENTION_WAY_mma}};
    if (!is_chosen_for(op, args, cuda)) return true;
    name_of(op, args, call.choice.call);
    if (find(w, call.choice.call) != NULL) return true;
    if (w->n_calls == w->room) {
        uint32_t room = w->room > 0 ? 2 * w->room : 16;
        TimedChoice *calls = realloc(w->calls, room * sizeof *calls);
        if (calls == NULL) {
            (void)snprintf(error->text, sizeof error->text, "no memory for ways of attention");
            return false;
        }
        w->calls = calls;
        w->room = room;
    }
    if (!choose(w, &call, op, args, cuda, error)) return false;
    w->calls[w->n_calls++] = call;
    return true;
}

bool attention_ways_run(void *ways, OpKind op, const KernelArgs *args, const CudaContext *cuda,
                        bool *taken, CudaError *error)
{
    const AttentionWays *w = ways;
    const CudaAttentionLibrary *library = w->options.library;
    const TimedChoice *call = NULL;
    char name[ATTENTION_NAME_BYTES];
    *taken = false;
    if (w->n_calls > 0 && is_chosen_for(op, args, cuda)) {
        name_of(op, args, name);
        call = find(w, name);
    }
    if (call != NULL && call->choice.way == ATTENTION_WAY_mma) return true;
    if (call != NULL)
        return attention_launch((AttentionWay)call->choice.way, op, library, args, cuda, taken,
                                error);
    return library == NULL || library->run(library->self, op, args, cuda, taken, error);
}

uint32_t attention_ways_n(const AttentionWays *w)
{
    return w->n_calls;
}

void attention_ways_tell(const AttentionWays *w, AttentionChoice *choice)
{
    for (uint32_t i = 0; i < w->n_calls; i++) choice[i] = w->calls[i].choice;
}

void attention_ways_adopt(AttentionWays *w, const AttentionChoice *all, uint32_t n)
{
    const KernelChoices *kept = w->options.kept;
    for (uint32_t i = 0; i < w->n_calls; i++) {
        TimedChoice *call = &w->calls[i];
        bool found = false, wrong = false;
        for (uint32_t k = 0; k < n; k++) {
            if (strcmp(all[k].call, call->choice.call) != 0) continue;
            if (!found) call->choice.way = all[k].way;
            found = true;
            wrong = wrong || all[k].wrong;
        }
        if (wrong) call->choice.way = ATTENTION_WAY_mma;
        uint32_t way = (uint32_t)call->choice.way;
        if (call->timed && kept != NULL)
            kept->put(kept->self, w->device, call->choice.call, &way, sizeof way, call->median_ps);
    }
}

bool attention_ways_hang(const AttentionWays *w)
{
    return w->hangs;
}

const char *attention_ways_wrong(const AttentionWays *w)
{
    return w->about[0] != 0 ? w->about : NULL;
}
