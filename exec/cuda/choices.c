/* Counts on the device how often each expert is chosen. After each instruction that gives every
 * choice a slot, which is a row of the expert's buffer, a kernel adds to counters in device memory
 * (exec/loads.h). The host reads the counters between steps. */
#include "kernels/cuda/experts/choices.h"

#include "exec/cuda/private.h"
#include "exec/loads.h"

static size_t counters(const LoadCounts *l)
{
    return (size_t)l->n_layers * (l->n_experts + 1);
}

bool choices_open(Cuda *c)
{
    void *at;
    c->choices.host = loads_new(c->plan, c->arena);
    if (c->choices.host == NULL) return true;
    const size_t bytes = counters(c->choices.host) * sizeof *c->choices.device;
    if (!CHECK_CUDA(c, cudaMalloc, (&at, bytes))) return false;
    c->choices.device = at;
    return CHECK_CUDA(c, cudaMemset, (at, 0, bytes));
}

bool choices_clear(Cuda *c)
{
    if (c->choices.device == NULL) return true;
    return CHECK_CUDA(
        c, cudaMemset,
        (c->choices.device, 0, counters(c->choices.host) * sizeof *c->choices.device));
}

void choices_close(Cuda *c)
{
    if (c->choices.device != NULL) cudaFree(c->choices.device);
    c->choices.device = NULL;
}

bool choices_issue(Cuda *c, Pc pc)
{
    const LoadCounts *l = c->choices.host;
    const Instr *in = program_instr(c->state.info->p, pc);
    const uint32_t layer = l != NULL ? loads_layer(l, c->plan, c->rank, in) : 0;
    CudaError error = {""};
    if (layer == 0) return true;
    const KernelArgs *args = c->state.at[pc].args;
    const CudaChoices choices = {.ids = args->ptr[0],
                                 .slots = args->ptr[1],
                                 .n = args->elements[0],
                                 .n_experts = l->n_experts,
                                 .chosen = c->choices.device + (size_t)(layer - 1) * l->n_experts,
                                 .dropped = c->choices.device + (size_t)l->n_layers * l->n_experts +
                                            (layer - 1)};
    c->gpu.context.stream = c->streams.of[in->stream];
    return cuda_choices(&choices, &c->gpu.context, &error) ||
           cuda_fail(c, "cuda", "rank %u, the choices of experts: %s", c->rank, error.text);
}

const LoadCounts *choices_read(Cuda *c)
{
    LoadCounts *l = c->choices.host;
    if (l == NULL) return NULL;
    const size_t n_chosen = (size_t)l->n_layers * l->n_experts;
    const uint64_t *at = c->choices.device;
    if (!CHECK_CUDA(c, cudaMemcpy,
                    (l->chosen, at, n_chosen * sizeof *at, cudaMemcpyDeviceToHost)) ||
        !CHECK_CUDA(c, cudaMemcpy,
                    (l->dropped, at + n_chosen, l->n_layers * sizeof *at, cudaMemcpyDeviceToHost)))
        return NULL;
    return l;
}
