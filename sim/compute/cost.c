/* Computes the time that a compute instruction takes alone on its device: the measured time if the
 * store has one for the same work, otherwise a roofline. Sizes come from the plan. Only
 * contractions, convolutions, attention and scans have models of their own, because their
 * efficiency depends on their sizes. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "planner/ir/layout/rows.h"
#include "sim/compute/kernels.h"
#include "sim/compute/own.h"
#include "sim/compute/rows_share.h"
#include "sim/compute/work.h"
#include "sim/runtime/runtime.h"

typedef struct Cached {
    uint64_t hash;
    const Program *program;
    const Instr *instr; /* NULL: the entry is unused */
    bool compiled;      /* the framework that runs the plan compiles the op */
    uint32_t on_rows;   /* result of rows_args; 0: a rank's rows do not matter */
    double share;
    Ps time_ps;
} Cached;

struct Cost {
    Cluster cluster; /* peak_flops: rates that the device sustains in a long run */
    const Runtime *runtime;
    Store *store;
    const char *machine;
    Arena *arena, *scratch;
    Diag *diag;
    Cached *table;
    uint32_t room, n, n_measured, n_uneven; /* n_uneven: entries for a rank's own number of rows */
};

/* ---- models ---- */

/* Returns the time of an instruction on the host or over the link to the host. */
static double host_s(const Cluster *cluster, const Plan *plan, const Program *p, const Instr *in)
{
    double link = cluster->host_link_bytes_per_s, memory = cluster->host_bytes_per_s;
    if (link <= 0) link = 55.4e9; /* measured on one H200 with PCIe 5 x16 */
    /* one of 8 devices: an eighth of two sockets of 8 x DDR5-4800 (614 GB/s), times 0.7 */
    if (memory <= 0) memory = 54e9;
    const Buffer *first = &p->buffers.at[program_arg(p, in, 0)];
    const Buffer *last = &p->buffers.at[program_arg(p, in, in->args.n - 1u)];
    bool crosses = first->space != last->space;
    return crosses ? (double)last->bytes / link : (double)plan_hbm_bytes(plan, p, in) / memory;
}

/* Returns the time of the kernel before an 8-bit product. It bounds the scales from below. Except
 * on Blackwell, it also transposes each operand that is not contiguous along the summed index
 * (cuBLAS' documentation, 8-bit data types). It reads and writes one byte for each element of these
 * operands. */
static double turned_s(const Device *device, const Binding *b, const int64_t size['z' + 1])
{
    /* compute capability 12 also needs the transposition, and has another arch name */
    bool turns = device->arch == NULL || strcmp(device->arch, "Blackwell") != 0;
    double bytes = 0;
    for (uint32_t arg = 0; arg < 2 && turns; arg++) {
        const char inner = b->letter[arg][b->n_dims[arg] - 1];
        double elements = 1;
        bool summed = true;
        for (uint8_t d = 0; d < b->n_dims[arg]; d++)
            elements *= (double)size[(int)b->letter[arg][d]];
        for (uint8_t d = 0; d < b->n_dims[b->n_in]; d++)
            summed = summed && b->letter[b->n_in][d] != inner;
        if (!summed) bytes += 2 * elements;
    }
    return device->kernel_floor_s + kernel_memory_s(device, bytes);
}

/* Returns the time to apply scales after a product. Only Hopper's products can apply a scale for
 * each row (cuBLAS' documentation, scaling modes); an unknown device counts as Hopper. On other
 * devices, the product is written in fp32, and a kernel reads it again. */
static double scaled_after_s(const Device *device, const ProductWork *w)
{
    if (device->arch == NULL || strcmp(device->arch, "Hopper") == 0) return 0;
    double numbers = (double)w->batch * (double)w->m * (double)w->n;
    return device->kernel_floor_s + kernel_memory_s(device, 2 * sizeof(float) * numbers);
}

static bool is_attention(OpKind op)
{
    return op_mixes_tokens(op);
}

static double attention_s(const Cost *c, DType dtype, const Instr *in, const Attrs *attrs,
                          const int64_t size['z' + 1])
{
    const Device *device = &c->cluster.device;
    const HeadsSizes is = op_heads_sizes(in->op, size);
    double groups = (double)is.samples * (double)is.groups, head = (double)is.head;
    AttentionWork work = {.kernel = runtime_attention(c->runtime, device), .dtype = dtype};
    work.kv_heads = groups;
    work.heads = groups * (double)is.heads;
    work.queries = (double)is.queries, work.keys = (double)is.keys;
    work.head = head;
    work.value = (double)is.value;
    work.causal = attrs->causal != 0;
    work.window = (double)attrs->window;
    work.backward = op_is_gradient(in->op);
    work.in_parts = op_whole(in->op) != OP_none;
    work.special = (op_part(in->op) == OP_none && !work.in_parts) || attrs->drop > 0;
    if (work.kernel != ATTENTION_unfused) return kernel_lasting_attention_s(device, &work);
    return runtime_unfused_s(device, dtype, work.heads, work.queries, work.keys, head,
                             work.backward);
}

static double scan_s(const Cost *c, DType dtype, const Instr *in, const Attrs *attrs,
                     const int64_t size['z' + 1])
{
    const OpKind op = in->op;
    ScanWork work = {.dtype = dtype, .chunk = (double)attrs->chunk};
    const bool of_shared = op_dim(op, op_info(op)->sig.n_in, INDEX_state) >= 0;
    work.part = !op_is_gradient(op) ? SCAN_forward : of_shared ? SCAN_shared : SCAN_backward;
    work.samples = (double)size[(int)op_letter(op, INDEX_samples)];
    work.tokens = (double)size[(int)op_whole_letter(op, INDEX_tokens)];
    work.groups = (double)size[(int)op_letter(op, INDEX_groups)];
    work.heads = (double)size[(int)op_letter(op, INDEX_heads)];
    work.head = (double)size[(int)op_whole_letter(op, INDEX_head)];
    work.state = (double)size[(int)op_whole_letter(op, INDEX_state)];
    return kernel_scan_s(&c->cluster.device, &work);
}

/* Returns the time of a convolution. cuDNN computes it as the matrix product that it equals,
 * without writing the windows to memory. The rate follows the sizes of that product (NVIDIA,
 * Convolutional Layers User's Guide,
 * docs.nvidia.com/deeplearning/performance/dl-performance-convolutional). Groups with few channels
 * do not fill a tile. For these, the general cores are faster, at half of their peak (an
 * assumption). */
static double convolution_s(const Device *device, DType dtype, OpKind op, double flops,
                            const int64_t size['z' + 1])
{
    const ProductWork work = work_of_convolution(op, size);
    const double as_product =
        kernel_lasting_s(device, dtype, 2 * work.batch * work.m * work.n * work.k,
                         kernel_gemm_s(device, dtype, work.batch, work.m, work.n, work.k, NULL));
    if (work.batch == 1) return as_product;
    return fmin(as_product, flops / (.5 * kernel_peak(device, DT_f32)));
}

/* Returns the time of an op whose kernel the profile names, without the kernel's start. */
static double traffic_s(const Device *device, const Plan *plan, const Program *p, const Instr *in,
                        TrafficKernel kernel, const RowsShare *uneven)
{
    const TrafficWork work = {kernel, rows_in(uneven, plan, p, in),
                              rows_moved(uneven, plan, p, in, false)};
    TrafficFit fit = *kernel_traffic_fit(device, kernel);
    fit.start_us = 0;
    return kernel_traffic_s(device, &work, &fit);
}

/* Returns the time of a product in a long run, where the power limit lowers the clock. */
static double product_s(const Cost *c, DType dtype, const ProductWork *w)
{
    const GemmFit *timed = runtime_products(c->runtime, &c->cluster.device);
    const double s = kernel_gemm_s(&c->cluster.device, dtype, w->batch, w->m, w->n, w->k, timed);
    if (timed != NULL) return s;
    return kernel_lasting_s(&c->cluster.device, dtype, 2 * w->batch * w->m * w->n * w->k, s);
}

/* Returns the time of the products of a rank's experts, which all have the same number of rows. */
static double uneven_s(const Device *device, const Plan *plan, const Program *p, const Instr *in,
                       const RowsShare *uneven)
{
    const Buffer *first = &p->buffers.at[program_arg(p, in, 0)];
    /* true: the product makes the gradient of a weight, so it sums over rows */
    const bool of_weight = op_dim(in->op, 1, INDEX_rooms) >= 0;
    const Shape *rows = plan_shape_at(plan, first->shape);
    const Shape *weight =
        plan_shape_at(plan, p->buffers.at[program_arg(p, in, of_weight ? 3 : 1)].shape);
    const Mesh *mesh = &plan->mesh;
    const Deals *deals = &plan->graph.deals;
    const uint32_t n = (uint32_t)shape_local_dim(weight, mesh, deals, 0);
    const double k = (double)shape_local_dim(weight, mesh, deals, 1),
                 f = (double)shape_local_dim(weight, mesh, deals, 2);
    const double each = rows_mean(rows, mesh, deals) / n * rows_factor(uneven, p, in);
    const bool back = op_is_gradient(in->op);
    double m[MOST_EXPERTS];
    assert(n <= MOST_EXPERTS);
    for (uint32_t e = 0; e < n; e++) m[e] = of_weight ? k : each;
    return kernel_grouped_gemm_s(device, first->dtype, n, m, back && !of_weight ? k : f,
                                 of_weight ? each
                                 : back    ? f
                                           : k,
                                 NULL);
}

static double model_s(const Cost *c, const Plan *plan, const Program *p, const Instr *in,
                      const RuntimeOp *as, const RowsShare *uneven)
{
    const Device *device = &c->cluster.device;
    const OpInfo *info = op_info(in->op);
    double floor_s = device->kernel_floor_s * (as->kernels + as->calls), compute = 0;
    const double bytes = rows_moved(uneven, plan, p, in, false);
    double memory = kernel_memory_s(device, as->passes * bytes);
    Binding b;
    int64_t size['z' + 1] = {0};
    if (plan_touches_host(p, in) && !kernel_on_processor(device))
        return floor_s + host_s(&c->cluster, plan, p, in);
    if (info->class_ == OP_CLASS_reshape || in->args.n == 0) return floor_s + memory;
    if (rows_factor(uneven, p, in) == 0) return floor_s + memory;
    if (as->kernel != TRAFFIC_any)
        return floor_s + traffic_s(device, plan, p, in, as->kernel, uneven);
    if (!plan_bind(plan, p, in, work_rank(plan, p), &b, size, NULL, NULL)) {
        return floor_s + memory;
    }
    DType dtype = p->buffers.at[program_arg(p, in, 0)].dtype;
    const Attrs *attrs = graph_attrs_at(&plan->graph, in->attrs);
    const double share = plan_rows_share(plan, p, in);
    double flops =
        op_flops(in->op, &b, size, op_seen(in->op, &b, attrs)) * share * rows_factor(uneven, p, in);
    rows_sizes(uneven, p, in, &b, size);
    int64_t *rows = &size[(int)op_letter(in->op, INDEX_height)];
    if (share < 1) *rows = (int64_t)ceil((double)*rows * share);
    if (info->class_ == OP_CLASS_contract) {
        /* passes after the first one are separate kernels, so their memory traffic adds time */
        floor_s += kernel_memory_s(device, fmax(as->passes - 1, 0) * bytes);
        memory = kernel_memory_s(device, fmin(as->passes, 1) * bytes);
        ProductWork work = work_of_product(&b, size);
        work.k *= dtype_numbers(dtype);
        /* products with scales for blocks have a rate of their own */
        if (info->scaling == SCALING_blocks) dtype = DT_e8m0;
        compute = product_s(c, dtype, &work);
        if (!work_is_aligned(p, in, &b, size)) compute *= kernel_unaligned(device);
        if (info->scaling != SCALING_none && !(info->flags & OP_BLOCKS) &&
            runtime_is_own(c->runtime) && !kernel_on_processor(device))
            floor_s += turned_s(device, &b, size);
        if (info->scaling == SCALING_rowwise && runtime_is_own(c->runtime) &&
            !kernel_on_processor(device))
            floor_s += scaled_after_s(device, &work);
    } else if (op_counts_arg(in->op) >= 0 && op_is_product(in->op)) {
        compute = kernel_lasting_s(device, dtype, flops, uneven_s(device, plan, p, in, uneven));
    } else if (work_is_convolution(in->op)) {
        compute = convolution_s(device, dtype, in->op, flops, size);
    } else if (is_attention(in->op)) {
        compute = attention_s(c, dtype, in, attrs, size);
    } else if (op_keeps_state(in->op)) {
        compute = scan_s(c, dtype, in, attrs, size);
    } else {
        /* general cores reach half of their peak: few instructions are fused multiply-adds */
        compute = as->kernels > 0 ? flops / (.5 * kernel_peak(device, DT_f32)) : 0;
        const OwnFit *own = own_fit(c->runtime, device, in->op);
        if (own != NULL) {
            floor_s += own->more_us * 1e-6;
            memory = own_memory_s(device, own, rows_in(uneven, plan, p, in), bytes);
        }
    }
    return floor_s + fmax(compute, memory);
}

/* ---- the cache ---- */

Cost *cost_new(const Cluster *cluster, const Runtime *runtime, Store *store, const char *machine,
               Arena *arena, Diag *d)
{
    Cost *c = arena_alloc(arena, sizeof *c);
    *c = (Cost){.cluster = *cluster, .runtime = runtime, .store = store, .machine = machine};
    c->arena = arena, c->diag = d;
    c->cluster.device = kernel_sustained(&cluster->device);
    c->room = 1024;
    c->table = arena_array(arena, c->room, sizeof *c->table);
    return c;
}

static uint64_t hash_instr(const Program *p, const Instr *in)
{
    uint64_t h = in->op * UINT64_C(0x9e3779b97f4a7c15) + in->attrs;
    for (uint32_t i = 0; i < in->args.n; i++) {
        const Buffer *b = &p->buffers.at[program_arg(p, in, i)];
        h = (h ^ (h >> 29)) * UINT64_C(0xbf58476d1ce4e5b9) + ((uint64_t)b->shape << 8) + b->dtype +
            ((uint64_t)b->space << 7);
    }
    return (h ^ (h >> 32)) * UINT64_C(0x94d049bb133111eb);
}

static bool same_work(const Program *p, const Instr *x, const Program *q, const Instr *y)
{
    bool same =
        x->op == y->op && x->attrs == y->attrs && x->args.n == y->args.n && x->n_in == y->n_in;
    for (uint32_t i = 0; same && i < x->args.n; i++) {
        const Buffer *a = &p->buffers.at[program_arg(p, x, i)];
        const Buffer *b = &q->buffers.at[program_arg(q, y, i)];
        same = a->shape == b->shape && a->dtype == b->dtype && a->bytes == b->bytes &&
               a->space == b->space;
    }
    return same;
}

static void cache_grow(Cost *c)
{
    Cached *old = c->table;
    uint32_t n = c->room;
    c->room *= 2;
    c->table = arena_array(c->arena, c->room, sizeof *c->table);
    for (uint32_t i = 0; i < n; i++) {
        if (old[i].instr == NULL) continue;
        uint32_t at = (uint32_t)(old[i].hash >> 32) & (c->room - 1);
        while (c->table[at].instr != NULL) at = (at + 1) & (c->room - 1);
        c->table[at] = old[i];
    }
}

/* Returns the time of an instruction, measured or modelled. A rank's own number of rows changes a
 * measured time by the same factor as a modelled one. */
static Ps work_out(Cost *c, const Plan *plan, const Program *p, const Instr *in, bool compiled,
                   const RowsShare *uneven)
{
    static const RuntimeOp one = {.kernels = 1, .passes = 1};
    const RuntimeOp *as = compiled || runtime_is_own(c->runtime) ? &one : &c->runtime->op[in->op];
    if (c->store != NULL && c->machine != NULL) {
        const char *key = cost_key(plan, p, in, c->arena);
        Ps measured = work_measured(c->store, c->machine, key, plan, p, in, c->arena, c->diag);
        if (measured >= 0 && uneven != NULL) {
            const double even_s = model_s(c, plan, p, in, as, NULL);
            return ps_of((double)measured * model_s(c, plan, p, in, as, uneven) /
                         fmax(even_s, 1 / (double)PS_PER_S));
        }
        if (measured >= 0) {
            c->n_measured++;
            return measured;
        }
    }
    return ps_of(model_s(c, plan, p, in, as, uneven) * (double)PS_PER_S);
}

static Ps alone_ps(Cost *c, const Plan *plan, const Program *p, const Instr *in, bool compiled,
                   const RowsShare *rows)
{
    const uint32_t on_rows = rows_args(rows, p, in);
    const double share = on_rows != 0 ? rows->share : 1;
    uint64_t hash = hash_instr(p, in) + on_rows * UINT64_C(0x9e3779b97f4a7c15);
    if (2 * c->n >= c->room) cache_grow(c);
    uint32_t at = (uint32_t)(hash >> 32) & (c->room - 1);
    for (; c->table[at].instr != NULL; at = (at + 1) & (c->room - 1)) {
        const Cached *have = &c->table[at];
        if (have->hash == hash && have->compiled == compiled && have->on_rows == on_rows &&
            have->share == share && same_work(p, in, have->program, have->instr)) {
            return have->time_ps;
        }
    }
    const Ps time = work_out(c, plan, p, in, compiled, on_rows != 0 ? rows : NULL);
    c->table[at] = (Cached){hash, p, in, compiled, on_rows, share, time};
    c->n++;
    if (on_rows != 0) c->n_uneven++;
    return c->table[at].time_ps;
}

/* Returns the time that an instruction adds as a part of a fused kernel. Values that stay inside
 * the kernel cause no memory traffic. The times of the parts are added up, which gives slightly
 * more than one roofline over all of them. */
static Ps part_ps(const Cost *c, const Plan *plan, const Program *p, const Instr *in,
                  const RowsShare *rows)
{
    const Device *device = &c->cluster.device;
    const OwnFit *own = own_fit(c->runtime, device, in->op);
    const double bytes = rows_moved(rows, plan, p, in, true);
    double compute_s = plan_flops(plan, p, in) * rows_factor(rows, p, in) /
                       (.5 * kernel_peak(device, DT_f32)),
           memory_s = kernel_memory_s(device, bytes), start_s = device->kernel_floor_s;
    if (own != NULL) {
        compute_s *= 1 - own->hidden;
        memory_s = own_memory_s(device, own, rows_in(rows, plan, p, in), bytes);
        start_s += own->more_us * 1e-6;
    }
    const double s = fmax(compute_s, memory_s) + (plan_begins_kernel(p, in) ? start_s : 0);
    return ps_of(s * (double)PS_PER_S);
}

/* Returns the time that an op adds if it is fused with a product. Its memory traffic is counted at
 * the product. Its arithmetic follows the product, on general cores. Tandem's executor runs some of
 * these ops as kernels of their own. */
static Ps epilogue_ps(const Cost *c, const Plan *plan, const Program *p, const Instr *in,
                      const RowsShare *rows)
{
    const Device *device = &c->cluster.device;
    const OwnFit *own = own_fit(c->runtime, device, in->op);
    double s =
        plan_flops(plan, p, in) * rows_factor(rows, p, in) / (.5 * kernel_peak(device, DT_f32));
    if (own != NULL) s *= 1 - own->hidden;
    if (own != NULL && own->apart > 0)
        s = device->kernel_floor_s + own->more_us * 1e-6 +
            own_memory_s(device, own, rows_in(rows, plan, p, in),
                         rows_moved(rows, plan, p, in, false));
    return ps_of(s * (double)PS_PER_S);
}

static double product_bytes(const Plan *plan, const Program *p, const Instr *in,
                            const RowsShare *rows)
{
    double bytes = rows_moved(rows, plan, p, in, true);
    for (const Instr *part = plan_next_part(p, in); part; part = plan_next_part(p, part))
        bytes += rows_moved(rows, plan, p, part, true);
    return bytes;
}

/* Returns the time of a product with fused ops: its own time or, if longer, that of all bytes. In
 * Tandem's executor the two add up, because they did not overlap on an H200. */
static Ps product_ps(const Cost *c, const Plan *plan, const Program *p, const Instr *in, Ps alone,
                     const RowsShare *rows)
{
    const Device *device = &c->cluster.device;
    const OwnFit *own = own_fit(c->runtime, device, in->op);
    const double bytes = product_bytes(plan, p, in, rows);
    const double added = bytes - rows_moved(rows, plan, p, in, false);
    double s = device->kernel_floor_s + kernel_memory_s(device, bytes);
    Ps memory = ps_of(s * (double)PS_PER_S);
    if (own != NULL && added > 0)
        alone += ps_of(own_memory_s(device, own, 0, added) * (double)PS_PER_S);
    return alone > memory ? alone : memory;
}

/* Returns true if the instruction is a part of a fused kernel. Tandem's CPU backends never fuse. */
static bool is_fused(const Cost *c, const Instr *in, bool compiled)
{
    bool joins = runtime_is_own(c->runtime) || compiled;
    return in->fuse && joins && !kernel_on_processor(&c->cluster.device);
}

static Ps cost_compute_rows(const void *self, const Plan *plan, const Program *p, const Instr *in,
                            const RowsShare *rows)
{
    Cost *c = *(Cost *const *)self;
    bool compiled = runtime_compiles(c->runtime, plan, in);
    if (!is_fused(c, in, compiled)) return alone_ps(c, plan, p, in, compiled, rows);
    const Instr *first = plan_kernel(p, in);
    if (op_info(first->op)->class_ != OP_CLASS_contract) return part_ps(c, plan, p, in, rows);
    if (in != first) return epilogue_ps(c, plan, p, in, rows);
    return product_ps(c, plan, p, in, alone_ps(c, plan, p, in, compiled, rows), rows);
}

static Ps cost_compute(const void *self, const Plan *plan, const Program *p, const Instr *in)
{
    return cost_compute_rows(self, plan, p, in, NULL);
}

/* Returns the bytes that an instruction moves. The bytes of ops that are fused with a product are
 * counted at the product. */
static double cost_bytes(const void *self, const Plan *plan, const Program *p, const Instr *in)
{
    const Cost *c = *(Cost *const *)self;
    bool compiled = runtime_compiles(c->runtime, plan, in);
    if (is_fused(c, in, compiled)) {
        const Instr *first = plan_kernel(p, in);
        bool product = op_info(first->op)->class_ == OP_CLASS_contract;
        if (!product) return (double)plan_kernel_bytes(plan, p, in);
        return in == first ? product_bytes(plan, p, in, NULL) : 0;
    }
    double bytes = (double)plan_hbm_bytes(plan, p, in);
    return compiled || runtime_is_own(c->runtime) ? bytes : bytes * c->runtime->op[in->op].passes;
}

static Ps cost_issue(const void *self, const Plan *plan, const Program *p, const Instr *in)
{
    const Cost *c = *(Cost *const *)self;
    return runtime_issue_ps(c->runtime, plan, p, in);
}

static bool cost_leaves_out(const void *self, const Plan *plan, const Program *p, const Instr *in)
{
    const Cost *c = *(Cost *const *)self;
    return runtime_leaves_out(c->runtime, plan, p, in);
}

static double cost_waited(const void *self, const Plan *plan, const Instr *in)
{
    const Cost *c = *(Cost *const *)self;
    return runtime_waited(c->runtime, plan, in);
}

static bool cost_waits(const void *self, const Instr *in)
{
    const Cost *c = *(Cost *const *)self;
    return runtime_waits(c->runtime, in);
}

CostModel cost_model(Cost *cost)
{
    Cost **self = arena_alloc(cost->arena, sizeof *self);
    const bool own = runtime_is_own(cost->runtime);
    *self = cost;
    return (CostModel){.compute = cost_compute,
                       .compute_rows = cost_compute_rows,
                       .bytes = cost_bytes,
                       .issue = own ? NULL : cost_issue,
                       .leaves_out = own ? NULL : cost_leaves_out,
                       .waited = own ? NULL : cost_waited,
                       .waits = own ? NULL : cost_waits,
                       .issue_from = own ? 0 : runtime_step_ps(cost->runtime),
                       .by_shape = true,
                       .self = self};
}

void cost_counts(const Cost *cost, CostCounts *counts)
{
    counts->kernels_measured = cost->n_measured;
    counts->kernels_modelled = cost->n - cost->n_uneven - cost->n_measured;
}
