/* See zero_memory.h. In its first step, DeepSpeed records in which order parameters are used; here
 * this order is read from the program. It determines when DeepSpeed fetches, keeps and releases
 * parameters. */
#include "sim/memory/zero_memory.h"

#include <assert.h>
#include <string.h>

/* One use of a parameter by a module: the instructions from `from` to `to` read it. */
typedef struct ParamUse {
    TensorId param;
    Pc from, to;
    uint64_t elements;
} ParamUse;

/* A fetch: parameters that are gathered together into one tensor. When the program waits for the
 * first of them, all of them are copied out of that tensor. */
typedef struct Fetch {
    Pc at;
    uint64_t elements;
    uint32_t n;
    TensorId params; /* the parameter that was added last; Param.next links the others */
    uint32_t tensor; /* index of the tensor into which they are gathered; 0: no module has waited
                        for the fetch yet */
} Fetch;

typedef struct Param {
    bool available, kept; /* kept: the parameter stays gathered during the whole step */
    uint32_t counted_on;  /* index in `trace` of the parameter's last use that prefetching has
                             passed */
    uint32_t fetch; /* index of the fetch that contains the parameter, until a module has waited for
                       the parameter; 0: none */
    uint32_t tensor; /* index of its ZeroTensor while the parameter is gathered */
    TensorId next;   /* next parameter of the same fetch */
    double elements;
} Param;

typedef struct Zero {
    const Plan *plan;
    const Program *p;
    const Runtime *runtime;
    Arena *arena;
    ZeroMemory *out;
    LIST(ParamUse) trace; /* entry 0 is unused */
    LIST(Fetch) fetches;  /* entry 0 is unused */
    Param *params;        /* [tensor] */
    double available;     /* number of gathered elements */
    uint32_t next;        /* index in `trace` of the first use that has not been prefetched */
    double ranks;         /* number of ranks over which a unit is divided */
    double elements;      /* elements of all units, without padding */
    bool partitioned;     /* true: stage 3, in which weights are divided over ranks as well */
    bool *waits;          /* [pc]: the host waits for the device before it issues instruction pc */
} Zero;

/* Gradients that are being copied into DeepSpeed's bucket. */
typedef struct Bucket {
    /* elements since the last reduction; elements of the largest gradient among them */
    double elements, largest;
    uint32_t n;
    uint32_t from; /* index in ZeroMemory.tensors of the first tensor that was added after the last
                      reduction */
    Pc first;      /* the first gradient of the step */
} Bucket;

static uint64_t elements_of(const Buffer *b)
{
    return b->bytes / dtype_bytes(b->dtype);
}

static uint32_t add_tensor(Zero *z, Pc from, Pc to, double bytes, Stream stream)
{
    return list_push(z->arena, &z->out->tensors,
                     ((ZeroTensor){from, to, (uint64_t)bytes, stream, false}));
}

/* Returns true for a parameter in the gathered buffer of a unit that is large enough to be divided
 * over ranks. */
static bool is_gathered(const Zero *z, const Buffer *b)
{
    return b->parent != 0 && b->unit != 0 && b->tensor != 0 && b->category == CATEGORY_gathered &&
           elements_of(b) > (uint64_t)z->runtime->persist_elements;
}

static void add_use(Zero *z, const Buffer *b, TensorId param, Pc pc)
{
    ParamUse *last = &z->trace.at[z->trace.n - 1];
    if (last->param == param && z->p->code.at[last->to].phase == z->p->code.at[pc].phase)
        last->to = pc;
    else
        list_push(z->arena, &z->trace, ((ParamUse){param, pc, pc, elements_of(b)}));
}

/* Adds a use of an embedding's table. The hook before the backward pass of the embedding fetches
 * the table, although the backward pass does not read it. */
static void add_table(Zero *z, const Instr *in, Pc pc)
{
    const Buffer *grad = &z->p->buffers.at[program_arg(z->p, in, in->n_in)];
    const OpInfo *info = op_info(in->op);
    if (!(info->flags & OP_LOOKS_UP) || info->n_backward > 0 || grad->tensor == 0) return;
    TensorId param = z->plan->graph.tensors.at[grad->tensor].grad_of;
    if (param != 0) add_use(z, grad, param, pc);
}

static void read_trace(Zero *z)
{
    for (Pc pc = 1; pc < z->p->code.n; pc++) {
        const Instr *in = &z->p->code.at[pc];
        for (uint32_t i = 0; i < in->n_in; i++) {
            const Buffer *b = &z->p->buffers.at[program_arg(z->p, in, i)];
            if (is_gathered(z, b)) add_use(z, b, b->tensor, pc);
        }
        if (in->args.n > in->n_in) add_table(z, in, pc);
    }
}

/* Keeps the weight of the head gathered, for Liger's loss, which reads this weight outside of the
 * head's module. DeepSpeed treats it as an external parameter of the whole model: it is fetched
 * with the model and never released. DeepSpeed learns this in its first step. There, a read of the
 * weight gathers it at once, and it stays gathered until the model returns. */
static void keep_head(Zero *z)
{
    TensorId head = 0; /* the parameter that the forward pass uses last */
    for (uint32_t i = 1; i < z->trace.n; i++)
        if (z->p->code.at[z->trace.at[i].from].phase == PHASE_forward) head = z->trace.at[i].param;
    if (!z->runtime->head_outside || head == 0) return;
    const ParamUse *first = NULL, *last = NULL;
    for (uint32_t i = 1; i < z->trace.n; i++) {
        if (z->trace.at[i].param != head) continue;
        if (first == NULL) first = &z->trace.at[i];
        last = &z->trace.at[i];
    }
    const double bytes = 2. * (double)first->elements;
    add_tensor(z, 1, z->p->code.n - 1, bytes, STREAM_dp_gather);
    /* _allgather_params gathers into a flat tensor and then copies to the weight's own tensor */
    uint32_t flat = add_tensor(z, first->from, first->from, bytes, STREAM_compute);
    uint32_t recorded = add_tensor(z, first->from, last->to, bytes, STREAM_compute);
    z->out->tensors.at[flat].only_at_first = true;
    z->out->tensors.at[recorded].only_at_first = true;
    z->params[head].kept = true;
    z->available += (double)first->elements;
}

static void fetch(Zero *z, TensorId param, uint64_t elements, uint32_t group)
{
    Fetch *f = &z->fetches.at[group];
    f->elements += elements;
    f->n++;
    z->params[param].next = f->params;
    f->params = param;
    z->params[param].elements = (double)elements;
    z->params[param].available = true;
    z->params[param].fetch = group;
    z->available += (double)elements;
}

static uint32_t new_fetch(Zero *z, Pc at)
{
    return list_push(z->arena, &z->fetches, ((Fetch){.at = at}));
}

/* Copies all parameters of a fetch out of their tensor. This happens when a module waits for the
 * first of them. */
static void copy_out(Zero *z, uint32_t group, Pc at)
{
    Fetch *f = &z->fetches.at[group];
    f->tensor = add_tensor(z, f->at, at, 2. * (double)f->elements, STREAM_dp_gather);
    for (TensorId id = f->params; id != 0; id = z->params[id].next)
        z->params[id].tensor =
            add_tensor(z, at, z->p->code.n - 1, 2. * z->params[id].elements, STREAM_dp_gather);
}

/* Lets a module wait for a parameter. If a fetch has a single parameter, this parameter stays in
 * the tensor of the fetch. Otherwise the tensor is freed after modules have waited for all its
 * parameters. */
static void wait_for(Zero *z, const ParamUse *use)
{
    Param *param = &z->params[use->param];
    if (param->fetch == 0) return;
    Fetch *f = &z->fetches.at[param->fetch];
    if (f->n == 1)
        param->tensor =
            add_tensor(z, f->at, z->p->code.n - 1, 2 * param->elements, STREAM_dp_gather);
    else if (f->tensor == 0)
        copy_out(z, param->fetch, use->from);
    if (f->tensor != 0) z->out->tensors.at[f->tensor].to = use->from;
    param->fetch = 0;
}

/* Prefetches the next uses in order, until as many elements are gathered as the framework's
 * profile allows (live_elements, prefetch_elements). */
static void prefetch(Zero *z, Pc at)
{
    double room = z->runtime->live_elements - z->available, n = 0;
    if (room > z->runtime->prefetch_elements) room = z->runtime->prefetch_elements;
    uint32_t group = 0;
    for (; z->next < z->trace.n && n < room; z->next++) {
        const ParamUse *use = &z->trace.at[z->next];
        z->params[use->param].counted_on = z->next;
        if (z->params[use->param].available || z->params[use->param].kept) continue;
        if (group == 0) group = new_fetch(z, at);
        fetch(z, use->param, use->elements, group);
        n += (double)use->elements;
    }
}

/* Returns true if the parameter is used again before a given number of elements of other
 * parameters. Also returns true if prefetching has passed the parameter since then, because it was
 * still gathered. */
static bool used_again_soon(const Zero *z, uint32_t i)
{
    double passed = 0;
    if (z->params[z->trace.at[i].param].counted_on > i) return true;
    for (uint32_t k = i + 1; k < z->trace.n && passed < z->runtime->reuse_elements; k++) {
        if (z->trace.at[k].param == z->trace.at[i].param) return true;
        passed += (double)z->trace.at[k].elements;
    }
    return false;
}

/* Finds where the host waits for the device. Weights come from the pool of the stream that gathers,
 * and are recorded for the compute stream. So their bytes are used again only after the device has
 * passed their release (free_param). The host notices this only when it waits. It waits where
 * Hugging Face's attention checks whether a sequence is packed (_is_packed_sequence), and where it
 * reads a reduced gradient. */
static void find_waits(Zero *z)
{
    z->waits = arena_array(z->arena, (size_t)z->p->code.n + 1, sizeof *z->waits);
    for (Pc pc = 1; pc < z->p->code.n; pc++) z->waits[pc] = op_attends(z->p->code.at[pc].op);
    for (uint32_t i = 1; z->runtime->host_optimizer && i < z->out->tensors.n; i++)
        if (z->out->tensors.at[i].stream == STREAM_dp_reduce)
            z->waits[z->out->tensors.at[i].from] = true;
}

static Pc reusable_after(const Zero *z, Pc released)
{
    Pc pc = released + 1;
    while (pc < z->p->code.n && !z->waits[pc]) pc++;
    return pc - 1;
}

static void fetch_and_release(Zero *z)
{
    z->next = 1;
    for (uint32_t i = 1; i < z->trace.n; i++) {
        const ParamUse *use = &z->trace.at[i];
        Param *param = &z->params[use->param];
        if (param->kept) continue;
        if (!param->available) fetch(z, use->param, use->elements, new_fetch(z, use->from));
        wait_for(z, use);
        if (z->next <= i) z->next = i + 1;
        prefetch(z, use->from);
        if (used_again_soon(z, i)) continue;
        z->out->tensors.at[param->tensor].to = reusable_after(z, use->to);
        param->available = false;
        z->available -= (double)use->elements;
    }
}

/* Stage 3 copies a gradient into the bucket on the stream for reductions and tells the allocator so
 * (record_stream). The allocator then keeps the gradient's bytes until that stream has passed the
 * copy. The host does not wait for the copy. It waits for the stream only to read a reduced part,
 * which happens in each reduction if the optimizer is on the host. */
static void release_copied(Zero *z, const Bucket *b, Pc pc)
{
    for (uint32_t i = b->from; i < z->out->tensors.n; i++) {
        ZeroTensor *t = &z->out->tensors.at[i];
        if (t->stream == STREAM_compute && t->to < pc) t->to = pc;
    }
}

/* Adds the tensors of one reduction. Several gradients are interleaved by rank into one tensor, and
 * a single gradient stays where it is (stage3.py, __reduce_and_partition_ipg_grads). If the
 * optimizer is on the host, the norm of each part is computed in fp64, and the part is copied from
 * the device. Stages 1 and 2 copy the bucket to a flat tensor to reduce it. */
static void reduce(Zero *z, Bucket *b, Pc pc)
{
    if (b->n == 0) return;
    if (b->n > 1 || !z->partitioned) add_tensor(z, pc, pc, 2 * b->elements, STREAM_dp_reduce);
    if (z->partitioned && z->runtime->host_optimizer) {
        add_tensor(z, pc, pc, 2 * b->largest / z->ranks, STREAM_dp_reduce);
        add_tensor(z, pc, pc, 8 * b->largest / z->ranks, STREAM_dp_reduce);
    }
    if (z->partitioned) release_copied(z, b, pc);
    *b = (Bucket){.first = b->first, .from = z->out->tensors.n};
}

/* Adds a gradient to the bucket. A weight's gradient exists from its first product until it is
 * copied into the bucket. A gradient that is larger than the bucket waits as it is for the next
 * reduction. */
static void add_gradient(Zero *z, Bucket *b, const Buffer *grad)
{
    const double n = (double)elements_of(grad);
    if (b->elements + n > z->runtime->bucket_elements) reduce(z, b, grad->last);
    if (b->first == 0) b->first = grad->first;
    add_tensor(z, grad->first, grad->last, 2 * n, STREAM_compute);
    b->elements += n;
    b->n++;
    if (n > b->largest) b->largest = n;
}

static Pc gradients(Zero *z, Bucket *b)
{
    Pc last = 0;
    for (Pc pc = 1; pc < z->p->code.n; pc++) {
        const Instr *in = &z->p->code.at[pc];
        for (uint32_t i = in->n_in; i < in->args.n; i++) {
            const Buffer *grad = &z->p->buffers.at[program_arg(z->p, in, i)];
            if (grad->category != CATEGORY_gradient || grad->parent == 0 || grad->unit == 0)
                continue;
            if (grad->tensor == 0 || grad->last != pc) continue;
            add_gradient(z, b, grad);
            last = pc;
        }
    }
    if (last != 0) reduce(z, b, last);
    return last;
}

/* Adds the tensors of the update. The update needs gradients in fp32. In stages 1 and 2, the kept
 * gradients are first copied to one flat tensor. */
static void update(Zero *z, Pc first, Pc last)
{
    const double part = z->elements / z->ranks;
    const Pc end = z->p->code.n - 1;
    if (!z->partitioned) {
        for (int i = 0; i < 2; i++) /* with overlap_comm there are two buckets */
            add_tensor(z, first, last, 2 * z->runtime->bucket_elements, STREAM_compute);
        add_tensor(z, first, end, 2 * part, STREAM_compute);
        add_tensor(z, end, end, 2 * part, STREAM_compute);
    }
    if (!z->runtime->host_optimizer) add_tensor(z, end, end, 4 * part, STREAM_compute);
}

static void stay(Zero *z, double bytes)
{
    uint32_t i = 0;
    while (z->out->resident_bytes[i] != 0) i++;
    z->out->resident_bytes[i] = (uint64_t)bytes;
}

/* Returns true for buffers of the plan that ZeRO's own tensors replace: gathered weights, buffers
 * that are sent to gather them, gradients and their parts. If the optimizer is on the host, these
 * are also the optimizer states and fp32 weights. */
static bool is_replaced(const Zero *z, const Buffer *b)
{
    bool of_state = b->category == CATEGORY_parameter || b->category == CATEGORY_optimizer;
    if (b->unit == 0) return false;
    return b->category == CATEGORY_gathered || b->category == CATEGORY_communication ||
           b->category == CATEGORY_gradient || (of_state && z->runtime->host_optimizer);
}

static bool gathers_twice(const Program *p)
{
    for (Pc pc = 1; pc < p->code.n; pc++)
        if (p->code.at[pc].op == OP_all_gather && p->code.at[pc].unit != 0 &&
            p->code.at[pc].phase == PHASE_recompute)
            return true;
    return false;
}

void zero_memory(const Plan *plan, const Program *p, const Runtime *runtime, Arena *arena,
                 ZeroMemory *zero)
{
    memset(zero, 0, sizeof *zero);
    zero->replaced = arena_array(arena, (size_t)p->buffers.n + 1, sizeof *zero->replaced);
    list_reserve_none(arena, &zero->tensors);
    if (runtime->bucket_elements <= 0 || plan->graph.units.n <= 1) return;
    Zero z = {.plan = plan, .p = p, .runtime = runtime, .arena = arena, .out = zero};
    list_reserve_none(arena, &z.trace);
    list_reserve_none(arena, &z.fetches);
    z.params = arena_array(arena, (size_t)plan->graph.tensors.n + 1, sizeof *z.params);
    z.partitioned = gathers_twice(p);
    z.ranks = (double)mesh_size(&plan->mesh, plan->graph.units.at[1].shard);
    for (UnitId u = 1; u < plan->graph.units.n; u++)
        if (!graph_is_frozen(&plan->graph, u))
            z.elements += (double)plan->graph.units.at[u].elements;
    for (BufferId id = 1; id < p->buffers.n; id++)
        zero->replaced[id] = is_replaced(&z, &p->buffers.at[id]);
    stay(&z, 2 * z.elements / (z.partitioned ? z.ranks : 1));
    if (z.partitioned) {
        stay(&z, 2 * runtime->bucket_elements);
        if (!runtime->host_optimizer) stay(&z, 2 * z.elements / z.ranks);
    }
    Bucket bucket = {.from = zero->tensors.n};
    Pc last = gradients(&z, &bucket);
    if (z.partitioned) {
        find_waits(&z);
        read_trace(&z);
        keep_head(&z);
        fetch_and_release(&z);
    }
    update(&z, bucket.first, last);
}
