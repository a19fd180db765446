/* The double's kernels are the CPU's. They run when the stream reaches them, on addresses of device
 * memory that the double may touch. The adapter does the other work of device kernels: it reads the
 * control block, skips updates if the norm is not finite, and reports ids out of range. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/experts/choices.h"
#include "kernels/cuda/init.h"
#include "kernels/number.h"
#include "tests/cuda/double/private.h"

typedef struct Launch {
    OpKind op;
    KernelArgs args;
    const CudaControl *control;
    uint32_t *fault, pc;
} Launch;

static void note_fault(const Launch *l, CudaFault kind)
{
    uint32_t *word = double_translate(l->fault);
    uint32_t fault = (uint32_t)kind << CUDA_FAULT_PC_BITS | l->pc;
    if (fault > *word) *word = fault;
}

static void check_ids(const Launch *l)
{
    const KernelArgs *a = &l->args;
    const int32_t *ids = a->ptr[0];
    for (int64_t i = 0; i < a->elements[0]; i++)
        if (ids[i] < 0 || ids[i] >= a->binding->size['v']) note_fault(l, CUDA_FAULT_id);
}

static void spoil_some(OpKind op, const KernelArgs *a)
{
    const char *wrong = double_wrong_op();
    if (wrong == NULL || strcmp(wrong, op_info(op)->name) != 0) return;
    DType t = a->dtype[a->n_in];
    for (int64_t i = 0; i < a->elements[a->n_in]; i += 4)
        number_write(t, a->ptr[a->n_in], (uint64_t)i,
                     number_read(t, a->ptr[a->n_in], (uint64_t)i) / 2);
}

static void run(void *self)
{
    Launch copy = *(const Launch *)self; /* a graph may run self again, so it must not change */
    const Launch *l = &copy;
    KernelArgs *a = &copy.args;
    const CudaControl *block = double_translate(l->control);
    Control control = {.step = block->step, .lr = block->lr, .seed = block->seed};
    uint64_t scratch = double_kernels.accepts != NULL
                           ? 0
                           : double_kernels.scratch(l->op, a->dtype, a->elements, a->n_args);
    void *room = scratch ? malloc(scratch) : NULL;
    for (uint32_t i = 0; i < a->n_args; i++) {
        if (!double_is_device(a->ptr[i])) double_misuse("a kernel on memory of the host");
        a->ptr[i] = double_translate(a->ptr[i]);
    }
    if (scratch) {
        memset(room, 0xff, scratch);
        a->ptr[a->n_args] = room;
        a->dtype[a->n_args] = DT_u8;
        a->elements[a->n_args++] = (int64_t)scratch;
    }
    a->control = &control;
    bool updates = (op_info(l->op)->flags & OP_UPDATES) != 0;
    if (l->op == OP_embed) check_ids(l);
    if (!updates || isfinite(*(const double *)a->ptr[a->n_in - 1])) {
        const CudaContext cuda = {.control = block,
                                  .fault = double_translate(l->fault),
                                  .pc = l->pc,
                                  .n_sms = 2,
                                  .compute_capability = (uint32_t)world()->capability};
        double_kernels.run(l->op, a, &cuda);
    }
    spoil_some(l->op, a);
    free(room);
}

static void lose_device(void *code)
{
    world()->lost = (cudaError_t) * (int *)code;
}

/* The task of a kernel that never ends. */
static Progress never(Task *task, void *state)
{
    (void)task, (void)state;
    return PROGRESS_none;
}

/* Returns the number of the launch's first argument that has this pointer. */
static uint32_t first_with(const CudaChainPart *part, uint32_t n, const void *ptr)
{
    uint32_t first = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < part[i].args->n_args; k++, first++)
            if (part[i].args->ptr[k] == ptr) return first;
    return first;
}

/* To load a kernel, the driver may wait for running work. This work may be a communication that
 * waits for another rank, and that rank may be loading a kernel, too. A kernel is loaded at its
 * first launch. */
static void load_kernel(Hash128 kernel)
{
    enum { MOST = 4096 };
    static Hash128 loaded[MOST];
    static uint32_t n_loaded;
    for (uint32_t i = 0; i < n_loaded; i++)
        if (memcmp(&loaded[i], &kernel, sizeof kernel) == 0) return;
    assert(n_loaded < MOST);
    loaded[n_loaded++] = kernel;
    if (world()->loads_lazily && world()->live[OBJECT_comm] > 0)
        double_misuse("a kernel is loaded while communications may run");
}

/* Finds the kernel of a launch by its ops and by the types and alignment of their arguments. In a
 * chain, it also depends on which buffers share memory. */
static void load(const CudaChainPart *part, uint32_t n)
{
    Hash128 all[CUDA_CHAIN_MAX];
    for (uint32_t i = 0; i < n; i++) {
        uint32_t key[2 + 3 * MAX_ARGS] = {(uint32_t)part[i].op, part[i].args->n_args};
        for (uint32_t k = 0; k < part[i].args->n_args; k++) {
            const void *ptr = part[i].args->ptr[k];
            key[2 + 3 * k] = (uint32_t)part[i].args->dtype[k];
            key[3 + 3 * k] = (uint32_t)((uintptr_t)ptr % 16);
            key[4 + 3 * k] = n > 1 ? first_with(part, n, ptr) : 0;
        }
        all[i] = hash_bytes(key, sizeof key);
    }
    load_kernel(hash_bytes(all, n * sizeof *all));
}

static bool launch(OpKind op, const KernelArgs *args, const CudaContext *cuda, CudaError *error)
{
    Scripted s = double_script("kernel");
    if (s.kind == SCRIPT_fail) {
        snprintf(error->text, sizeof error->text, "the kernel of %s: error %d", op_info(op)->name,
                 s.code);
        return false;
    }
    load(&(CudaChainPart){.op = op, .args = args}, 1);
    if (double_default_is_busy())
        double_misuse("a kernel is launched while the default stream may still write");
    if (s.kind == SCRIPT_fault) double_launch(cuda->stream, lose_device, &s.code, sizeof s.code);
    if (s.kind == SCRIPT_hang) double_enqueue(cuda->stream, double_task(sizeof(Task), never));
    Launch l = {op, *args, cuda->control, cuda->fault, cuda->pc};
    double_launch(cuda->stream, run, &l, sizeof l);
    return true;
}

/* ---- choices of experts ---- */

static void run_choices(void *self)
{
    const CudaChoices *c = self;
    const int32_t *ids = double_translate((void *)c->ids);
    const int32_t *slots = double_translate((void *)c->slots);
    uint64_t *chosen = double_translate(c->chosen), *dropped = double_translate(c->dropped);
    for (int64_t i = 0; i < c->n; i++) {
        if (ids[i] >= 0 && ids[i] < c->n_experts) chosen[ids[i]]++;
        *dropped += slots[i] < 0;
    }
}

bool cuda_choices(const CudaChoices *choices, const CudaContext *cuda, CudaError *error)
{
    static const char name[] = "choices";
    Scripted s = double_script(name);
    if (s.kind == SCRIPT_fail) {
        snprintf(error->text, sizeof error->text, "the choices of experts: error %d", s.code);
        return false;
    }
    load_kernel(hash_bytes(name, sizeof name));
    if (double_default_is_busy())
        double_misuse("a kernel is launched while the default stream may still write");
    double_launch(cuda->stream, run_choices, choices, sizeof *choices);
    return true;
}

/* ---- initial values ---- */

static void run_init(void *self)
{
    const CudaInit *init = self;
    for (uint64_t i = 0; i < init->n; i++) {
        double rest;
        number_write(init->rest, &rest, 0,
                     kernel_init_value(init->seed, init->stream, init->global + i, init->kind,
                                       init->a, init->b));
        number_write(init->dtype, double_translate(init->buffer), init->at + i,
                     number_read(init->rest, &rest, 0));
    }
}

bool cuda_init_takes(DType dtype)
{
    return dtype == DT_f32 || dtype == DT_bf16 || dtype == DT_f16;
}

bool cuda_init(const CudaInit *init, const CudaContext *cuda, CudaError *error)
{
    Scripted s = double_script("init");
    if (s.kind == SCRIPT_fail) {
        snprintf(error->text, sizeof error->text, "initial values: error %d", s.code);
        return false;
    }
    if (double_default_is_busy())
        double_misuse("a kernel is launched while the default stream may still write");
    double_launch(cuda->stream, run_init, init, sizeof *init);
    return true;
}

#define LAUNCH(name)                                                                               \
    static bool launch_##name(const KernelArgs *a, const CudaContext *cuda, CudaError *error)      \
    {                                                                                              \
        return launch(OP_##name, a, cuda, error);                                                  \
    }
#define LAUNCH_3(name)                                           LAUNCH(name) LAUNCH(name##_d0) LAUNCH(name##_d1)
#define COMPUTE(name, signature, flops, reduce, backward, flags) LAUNCH(name)
#define CONTRACT(name, signature)                                CONTRACT_FORMS(LAUNCH_3, name)
#define PRODUCT(name, signature)                                 LAUNCH_3(name)
#define RESHAPE(name, flags)                                     LAUNCH(name)
#include "planner/ir/op/ops.def"

CudaKernel double_kernel(OpKind op)
{
    static const CudaKernel table[OP_COUNT] = {
#define ROW(name)                                                [OP_##name] = launch_##name,
#define ROW_3(name)                                              ROW(name) ROW(name##_d0) ROW(name##_d1)
#define COMPUTE(name, signature, flops, reduce, backward, flags) ROW(name)
#define CONTRACT(name, signature)                                CONTRACT_FORMS(ROW_3, name)
#define PRODUCT(name, signature)                                 ROW_3(name)
#define RESHAPE(name, flags)                                     ROW(name)
#include "planner/ir/op/ops.def"
    };
    return table[op];
}

CudaKernel kernel_cuda(OpKind op)
{
    bool is_product = op_info(op)->class_ == OP_CLASS_contract;
    return is_product && double_products.run ? double_products.run(op) : double_kernel(op);
}

/* Products by the library's double, and the device's own kernels, use scratch that the program
 * plans. The CPU's kernels use scratch of the adapter. */
bool kernel_cuda_accepts(OpKind op, const DType *dtype, uint32_t n_args)
{
    if (op_info(op)->class_ == OP_CLASS_contract && double_products.run)
        return double_products.accepts(op, dtype, n_args);
    if (double_kernels.accepts != NULL) return double_kernels.accepts(op, dtype, n_args);
    static const int64_t one[MAX_ARGS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    DType all[MAX_ARGS + 1];
    memcpy(all, dtype, n_args * sizeof *dtype);
    uint64_t scratch = kernel_cpu_workspace(op, dtype, one, n_args);
    if (scratch) all[n_args] = DT_u8;
    return kernel_cpu_accepts(op, all, n_args + (scratch > 0));
}

uint64_t kernel_cuda_workspace(OpKind op, const DType *dtype, const int64_t *elements,
                               uint32_t n_args)
{
    if (op_info(op)->class_ == OP_CLASS_contract && double_products.run)
        return double_products.workspace(op, dtype, elements, n_args);
    return double_kernels.accepts != NULL ? double_kernels.scratch(op, dtype, elements, n_args) : 0;
}

uint32_t kernel_cuda_chain_length(const CudaChainPart *part, uint32_t n)
{
    (void)part;
    return n > 1 ? n : 0;
}

typedef struct Spoiled {
    char *at;
    uint64_t bytes;
} Spoiled;

/* Makes every number NaN. */
static void spoil(void *self)
{
    const Spoiled *s = self;
    memset(double_translate(s->at), 0xff, s->bytes);
}

static Spoiled output_of(const KernelArgs *a, uint32_t j)
{
    uint32_t arg = a->n_in + j;
    return (Spoiled){a->ptr[arg], (uint64_t)a->elements[arg] * dtype_bytes(a->dtype[arg])};
}

/* Returns true if a part after part i writes the same bytes. */
static bool is_taken_over(const CudaChainPart *part, uint32_t n, uint32_t i, Spoiled mine)
{
    for (uint32_t k = i + 1; k < n; k++)
        for (uint32_t j = 0; j < part[k].args->n_args - part[k].args->n_in; j++) {
            Spoiled its = output_of(part[k].args, j);
            if (its.at < mine.at + mine.bytes && mine.at < its.at + its.bytes) return true;
        }
    return false;
}

/* Outputs that the chain declares unread are overwritten after the last part, because a device
 * would not have written them. */
bool kernel_cuda_chain(const CudaChainPart *part, uint32_t n, const CudaContext *cuda,
                       CudaError *error)
{
    load(part, n);
    for (uint32_t i = 0; i < n; i++)
        if (!launch(part[i].op, part[i].args, cuda, error)) return false;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; part[i].unread >> j; j++) {
            Spoiled mine = output_of(part[i].args, j);
            if (!(part[i].unread >> j & 1)) continue;
            double_script("unread");
            if (!is_taken_over(part, n, i, mine))
                double_launch(cuda->stream, spoil, &mine, sizeof mine);
        }
    return true;
}
