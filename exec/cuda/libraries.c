/* The libraries that compute some instructions. Before the first step, the executor opens them and
 * prepares each instruction that they may compute. So choosing, timing and allocating have ended
 * before the steps begin. */
#include <string.h>

#include "exec/cuda/private.h"
#include "kernels/cuda/attention/attention_part.h"
#include "kernels/cuda/choose/attention_chooser.h"
#include "kernels/cuda/cudnn/cudnn_attention.h"
#include "kernels/cuda/product/products.h"

static const Loc nowhere = {NULL, 0};

static bool failed(Cuda *c, Pc pc, const CudaError *error)
{
    return cuda_fail(c, "cuda", "rank %u, %s: %s", c->rank,
                     instr_text(c->plan, c->state.info->p, pc, c->arena), error->text);
}

static bool prepare_attention(Cuda *c, Pc pc, OpKind op, const KernelArgs *args)
{
    CudaError error = {""};
    bool taken;
    if (c->kernels.cudnn && !cudnn_attention_prepare(c->kernels.cudnn, op, args, &taken, &error))
        return failed(c, pc, &error);
    if (c->kernels.chooser == NULL ||
        attention_chooser_prepare(c->kernels.chooser, op, args, &c->gpu.context, &error))
        return true;
    c->watch.stuck = attention_chooser_hang(c->kernels.chooser);
    return failed(c, pc, &error);
}

static bool prepare(Cuda *c, Pc pc)
{
    const Instr *in = program_instr(c->state.info->p, pc);
    const KernelArgs *args = c->state.at[pc].args;
    CudaError error = {""};
    if (op_info(in->op)->class_ == OP_CLASS_contract)
        return cuda_products_prepare(in->op, args, &c->gpu.context, &error) ||
               failed(c, pc, &error);
    if (op_whole(in->op) == OP_none)
        return !op_mixes_tokens(in->op) || prepare_attention(c, pc, in->op, args);
    PartCalls at;
    attention_part_calls(&at, op_whole(in->op), args);
    while (attention_part_next(&at)) {
        KernelArgs call = at.call;
        if (op_is_gradient(in->op)) call.n_args = args->n_args; /* with scratch memory */
        if (!prepare_attention(c, pc, op_whole(in->op), &call)) return false;
    }
    return true;
}

static bool open_chooser(Cuda *c)
{
    enum { HOPPER = 90, TENSOR_VERSION = 12000 };
    if (c->gpu.context.compute_capability == HOPPER &&
        !device_driver(c, "cuTensorMapEncodeTiled", TENSOR_VERSION,
                       "by which Hopper's kernels read tensors: --mma leaves them out",
                       &c->gpu.context.tensor_encode))
        return false;
    const AttentionChooserOptions chooser = {.tune = c->options.choices != NULL,
                                             .kept = c->options.choices,
                                             .device = c->comms.mine.name,
                                             .library =
                                                 c->kernels.cudnn ? &c->kernels.attention : NULL,
                                             .patience_s = c->options.timeout_s};
    CudaError error = {""};
    c->kernels.chooser = attention_chooser_open(&chooser, &error);
    if (c->kernels.chooser == NULL) return cuda_fail(c, "cuda", "%s", error.text);
    c->kernels.by_chooser = (CudaAttentionLibrary){c->kernels.chooser, attention_chooser_run};
    c->gpu.context.attention = &c->kernels.by_chooser;
    return true;
}

/* Prepares a product together with the ops that may be fused with it. */
static bool prepare_kernel(Cuda *c, uint32_t at)
{
    CudaChainPart part[CUDA_CHAIN_MAX];
    CudaError error = {""};
    Pc pc = c->launches.order.pc[at];
    if (op_info(program_instr(c->state.info->p, pc)->op)->class_ != OP_CLASS_contract) return true;
    uint32_t n = issue_kernel(c, at, part);
    return n < 2 || cuda_products_prepare_chain(part, n, &c->gpu.context, &error) ||
           failed(c, pc, &error);
}

bool libraries_open(Cuda *c)
{
    const CudaOptions *o = &c->own;
    const CudaProductOptions products = {.tf32 = o->tf32,
                                         .tune = c->options.choices != NULL,
                                         .kept = c->options.choices,
                                         .device = c->comms.mine.name,
                                         .compute_capability = c->gpu.context.compute_capability,
                                         .kernel = kernel_cuda};
    CudaError error = {""};
    c->gpu.context.stream = c->streams.of[STREAM_compute];
    c->gpu.context.products = cuda_products_open(&products, &error);
    if (c->gpu.context.products == NULL) return cuda_fail(c, "cuda", "%s", error.text);
    if (o->cudnn) {
        c->kernels.cudnn = cudnn_attention_open(NULL, &error);
        if (c->kernels.cudnn == NULL) return cuda_fail(c, "cuda", "--cudnn: %s", error.text);
        c->kernels.attention = (CudaAttentionLibrary){c->kernels.cudnn, cudnn_attention_run};
        c->gpu.context.attention = &c->kernels.attention;
    }
    if (!o->mma && !open_chooser(c)) return false;
    for (Pc pc = 1; pc <= c->state.info->n_instr; pc++)
        if (program_instr(c->state.info->p, pc)->stream == STREAM_compute && !prepare(c, pc))
            return false;
    for (uint32_t i = 0; i < c->launches.order.n; i++)
        if (!prepare_kernel(c, i)) return false;
    return true;
}

/* Records of all ranks, one rank after another. Each rank's records are padded with zeros to the
 * same number. If all ranks have the same records, these are stored only once. */
typedef struct GatheredRecords {
    const void *all;
    uint32_t n, n_before; /* number of all records; number of records of the ranks before this
                             one */
} GatheredRecords;

typedef struct Summary {
    Hash128 records;
    uint64_t n;
} Summary;

/* Gathers the records of all ranks. This rank has `n` records of `bytes` bytes each. */
static bool gather(Cuda *c, const void *mine, uint32_t n, size_t bytes, GatheredRecords *gathered)
{
    Summary own = {hash_bytes(mine, n * bytes), n};
    Summary *each = arena_array(c->arena, c->n_ranks, sizeof *each);
    if (!c->meet->exchange(c->meet, &own, sizeof own, each, c->watch.patience_s))
        return cuda_fail(c, "rank-open", "rank %u: %s", c->rank, c->meet->why);
    uint64_t most = 0;
    bool same = true;
    for (Rank r = 0; r < c->n_ranks; r++) {
        if (each[r].n > most) most = each[r].n;
        same = same && memcmp(&each[r], &each[0], sizeof own) == 0;
    }
    *gathered = (GatheredRecords){mine, n, c->rank > 0 ? n : 0};
    if (same) return true;
    unsigned char *padded = arena_array(c->arena, most, bytes);
    unsigned char *all = arena_array(c->arena, most * c->n_ranks, bytes);
    memset(padded, 0, most * bytes);
    memcpy(padded, mine, n * bytes);
    if (!c->meet->exchange(c->meet, padded, most * bytes, all, c->watch.patience_s))
        return cuda_fail(c, "rank-open", "rank %u: %s", c->rank, c->meet->why);
    *gathered = (GatheredRecords){all, (uint32_t)most * c->n_ranks, (uint32_t)most * c->rank};
    return true;
}

static bool settle_products(Cuda *c)
{
    struct CudaProducts *p = c->gpu.context.products;
    CudaError error = {""};
    const uint32_t n = cuda_products_counts(p).calls;
    CudaProductChoice *mine = arena_array(c->arena, n + 1u, sizeof *mine);
    GatheredRecords gathered;
    cuda_products_choices(p, mine);
    if (!gather(c, mine, n, sizeof *mine, &gathered)) return false;
    return cuda_products_settle(p, gathered.all, gathered.n, gathered.n_before, &error) ||
           cuda_fail(c, "cuda", "rank %u: %s", c->rank, error.text);
}

static bool settle_attention(Cuda *c)
{
    const uint32_t n = c->kernels.chooser ? attention_chooser_n(c->kernels.chooser) : 0;
    AttentionChoice *mine = arena_array(c->arena, n + 1u, sizeof *mine);
    GatheredRecords gathered;
    memset(mine, 0, (n + 1u) * sizeof *mine);
    if (n > 0) attention_chooser_tell(c->kernels.chooser, mine);
    if (!gather(c, mine, n, sizeof *mine, &gathered)) return false;
    if (c->kernels.chooser == NULL) return true;
    attention_chooser_adopt(c->kernels.chooser, gathered.all, gathered.n);
    if (attention_chooser_wrong(c->kernels.chooser) != NULL)
        diag_warning(c->d, "attention-differs", nowhere, "rank %u: %s", c->rank,
                     attention_chooser_wrong(c->kernels.chooser));
    return true;
}

/* Warns about products that the plain kernel computes. It uses no tensor cores, but the prediction
 * assumes the library's kernels. */
static void warn_plain(Cuda *c)
{
    char text[640];
    for (uint32_t i = 0; cuda_products_plain(c->gpu.context.products, i, text, sizeof text); i++)
        diag_warning(c->d, "product-plain", nowhere,
                     "rank %u: the plain kernel computes this product: %s", c->rank, text);
}

bool libraries_settle(Cuda *c)
{
    if (!settle_products(c) || !settle_attention(c)) return false;
    warn_plain(c);
    return true;
}

void libraries_close(Cuda *c)
{
    cuda_products_close(c->gpu.context.products);
    attention_chooser_close(c->kernels.chooser);
    cudnn_attention_close(c->kernels.cudnn);
    c->kernels.chooser = NULL;
    c->gpu.context.products = NULL;
    c->gpu.context.attention = NULL;
    c->kernels.cudnn = NULL;
}
