/* How long a compute instruction takes alone on its device: measured where the store knows its
 * key, else a roofline. Sizes come from the plan, never from the op's name; only contractions and
 * attention, whose efficiency depends on their shape, are told apart. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "sim/sim.h"

typedef struct Cached {
    uint64_t hash;
    const Program *program;
    const Instr *instr; /* NULL: free */
    Ps time_ps;
} Cached;

struct Cost {
    const Cluster *cluster;
    Store *store;
    const char *machine;
    Arena *arena, *scratch;
    Diag *diag;
    Cached *table;
    uint32_t room, n, n_measured;
};

/* ---- keys ---- */

static void add_dims(Str *s, const Plan *plan, const Buffer *b)
{
    const Shape *shape = plan_shape_at(plan, b->shape);
    str_add(s, "[");
    for (uint8_t i = 0; i < shape->n_dims; i++) {
        int64_t n = shape_local_dim(shape, &plan->mesh, &plan->graph.deals, i);
        str_print(s, "%s%lld", i == 0 ? "" : ",", (long long)n);
    }
    str_add(s, "]");
}

static Rank rank_of_program(const Plan *plan, const Program *p)
{
    uint32_t index = (uint32_t)(p - plan->programs.at);
    for (Rank r = 0; r < plan->mesh.n_ranks; r++) {
        if (plan->program_of[r] == index) return r;
    }
    return 0;
}

const char *cost_key(const Plan *plan, const Program *p, const Instr *in, Arena *arena)
{
    const OpInfo *info = op_info(in->op);
    const Attrs *attrs = graph_attrs_at(&plan->graph, in->attrs);
    Str s = str_in(arena);
    str_add(&s, info->name);
    DType last = DT_none;
    for (uint32_t i = 0; i < in->args.n; i++) { /* runs of one dtype are told once */
        DType dtype = p->buffers.at[program_arg(p, in, i)].dtype;
        if (dtype != last) str_print(&s, " %s", dtype_name(dtype));
        last = dtype;
    }
    Binding b;
    int64_t size['z' + 1] = {0};
    bool signed_ = info->class_ != OP_CLASS_reshape && in->args.n > 0;
    if (signed_ && plan_bind(plan, p, in, rank_of_program(plan, p), &b, size, NULL, NULL)) {
        str_print(&s, " %s", info->signature);
        for (uint8_t i = 0; i < b.n_letters; i++) {
            char letter = b.letters[i];
            str_print(&s, " %c=%lld", letter, (long long)size[(int)letter]);
        }
    } else {
        for (uint32_t i = 0; i < in->args.n; i++) {
            str_add(&s, i == 0 ? " " : i == in->n_in ? "->" : ",");
            add_dims(&s, plan, &p->buffers.at[program_arg(p, in, i)]);
        }
        if (attrs->dim != 0) str_print(&s, " dim=%lld", (long long)attrs->dim);
    }
    if (attrs->accumulate != 0) str_print(&s, " accumulate=%lld", (long long)attrs->accumulate);
    if (attrs->causal != 0) str_add(&s, " causal");
    return str_text(&s);
}

/* ---- models ---- */

static bool is_processor(const Device *device)
{
    return device->arch != NULL && strcmp(device->arch, "cpu") == 0;
}

static double peak_of(const Device *device, DType dtype)
{
    double peak = device->peak_flops[dtype];
    if (peak <= 0) peak = device->peak_flops[DT_f32];
    return peak > 0 ? peak : 1e9;
}

static double memory_s(const Device *device, double bytes)
{
    double part = device->memory_efficiency > 0 ? device->memory_efficiency : .8;
    return bytes / (fmax(device->hbm_bytes_per_s, 1) * part);
}

/* Over the host's link: one H200 measured 55.4 GB/s on PCIe 5 x16 (63 by its rate). A device's
 * share of the host's memory: an eighth of two sockets with 8 channels of DDR5-4800 (614 GB/s) at
 * 0.7. */
static double host_s(const Cluster *cluster, const Plan *plan, const Program *p, const Instr *in)
{
    double link = cluster->host_link_bytes_per_s, memory = cluster->host_bytes_per_s;
    if (link <= 0) link = 55.4e9;
    if (memory <= 0) memory = 54e9;
    const Buffer *first = &p->buffers.at[program_arg(p, in, 0)];
    const Buffer *last = &p->buffers.at[program_arg(p, in, in->args.n - 1u)];
    bool crosses = first->space != last->space;
    return crosses ? (double)last->bytes / link : (double)plan_hbm_bytes(plan, p, in) / memory;
}

/* Tiles of cuBLAS and their relative efficiency; the best one counts. eta (gemm_efficiency) and
 * the tiles' numbers were fitted to 12,500 cuBLAS timings of Llama projections on A100 and H100
 * (vidur): mean error 8-9 %, 6-7 % from 1,024 rows on. */
static double gemm_compute_s(const Device *device, DType dtype, double batch, double m, double n,
                             double k)
{
    static const struct {
        double m, n, efficiency;
    } tiles[] = {{128, 256, 1},  {256, 128, 1},  {128, 128, .95},
                 {64, 256, .90}, {64, 128, .80}, {64, 64, .60}};
    double eta = device->gemm_efficiency > 0 ? device->gemm_efficiency : .78;
    double peak = peak_of(device, dtype) * eta, best = INFINITY;
    if (is_processor(device) || device->sms == 0) return 2 * batch * m * n * k / peak;
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++) {
        double n_tiles = batch * ceil(m / tiles[i].m) * ceil(n / tiles[i].n);
        for (double split = 1; split <= 4; split *= 2) {
            if (split > 1 && n_tiles * split > device->sms) break;
            double waves = ceil(n_tiles * split / device->sms);
            double s = 2 * tiles[i].m * tiles[i].n * ceil(k / split) * device->sms * waves /
                       (peak * tiles[i].efficiency);
            if (split > 1) s += 2e-6;
            best = fmin(best, s);
        }
    }
    return best;
}

double cost_gemm_s(const Device *device, DType dtype, double batch, double m, double n, double k)
{
    double bytes = dtype_bytes(dtype) * batch * (m * k + k * n + m * n);
    return device->kernel_floor_s +
           fmax(gemm_compute_s(device, dtype, batch, m, n, k), memory_s(device, bytes));
}

/* Letters of a contraction fall into four groups by where they appear. */
static double contraction_s(const Device *device, DType dtype, const Binding *b,
                            const int64_t size['z' + 1])
{
    double batch = 1, m = 1, n = 1, k = 1;
    for (uint8_t i = 0; i < b->n_letters; i++) {
        char letter = b->letters[i];
        bool in[3] = {false, false, false};
        const uint32_t args[3] = {0, 1, b->n_in}; /* scales are between inputs and output */
        for (uint32_t arg = 0; arg < 3; arg++) {
            for (uint8_t d = 0; d < b->n_dims[args[arg]]; d++) {
                if (b->letter[args[arg]][d] == letter) in[arg] = true;
            }
        }
        double at = (double)size[(int)letter];
        if (in[0] && in[1] && in[2])
            batch *= at;
        else if (in[0] && in[2])
            m *= at;
        else if (in[1] && in[2])
            n *= at;
        else
            k *= at;
    }
    return gemm_compute_s(device, dtype, batch, m, n, k);
}

/* Flash attention by sequence length: part of the dense peak = best * T / (T + half), fitted by eye
 * to FlashAttention-2 on A100 (189 of 312 TFLOP/s at 16k, forward and backward, causal) and to
 * FlashAttention-3 and cuDNN on H100 (forward 602 and 529 at 8k); the backward reaches .78 of the
 * forward's part on Hopper. Heads of 64 reach about .78 of heads of 128. */
double cost_attention_s(const Device *device, DType dtype, double flops, double keys, double head,
                        bool causal, bool backward)
{
    double half = causal ? 700 : 500, best;
    if (is_processor(device)) return flops / (peak_of(device, dtype) * .5);
    bool hopper = device->arch != NULL && strcmp(device->arch, "Hopper") == 0;
    bool blackwell = device->arch != NULL && strcmp(device->arch, "Blackwell") == 0;
    best = hopper || blackwell ? .62 : .64;
    if (backward && (hopper || blackwell)) best *= .78;
    if (head < 128) best *= .56 + .44 * head / 128;
    return flops / (peak_of(device, dtype) * best * keys / (keys + half));
}

static bool is_attention(OpKind op)
{
    return op == OP_attention || op == OP_attention_grad;
}

static double model_s(const Cluster *cluster, const Plan *plan, const Program *p, const Instr *in)
{
    const Device *device = &cluster->device;
    const OpInfo *info = op_info(in->op);
    double memory = memory_s(device, (double)plan_hbm_bytes(plan, p, in)), compute = 0;
    double floor_s = device->kernel_floor_s;
    Binding b;
    int64_t size['z' + 1] = {0};
    if (plan_touches_host(p, in) && !is_processor(device))
        return floor_s + host_s(cluster, plan, p, in);
    if (info->class_ == OP_CLASS_reshape || in->args.n == 0) return floor_s + memory;
    if (!plan_bind(plan, p, in, rank_of_program(plan, p), &b, size, NULL, NULL)) {
        return floor_s + memory;
    }
    DType dtype = p->buffers.at[program_arg(p, in, 0)].dtype;
    bool causal = graph_attrs_at(&plan->graph, in->attrs)->causal != 0;
    double flops = op_flops(in->op, &b, size, causal);
    if (info->class_ == OP_CLASS_contract) {
        compute = contraction_s(device, dtype, &b, size);
    } else if (is_attention(in->op)) {
        compute = cost_attention_s(device, dtype, flops, (double)size['T'], (double)size['E'],
                                   causal, in->op == OP_attention_grad);
    } else { /* plain cores, half of whose slots are fused multiply-adds at best */
        compute = flops / (.5 * peak_of(device, DT_f32));
    }
    return floor_s + fmax(compute, memory);
}

/* ---- the cache ---- */

Cost *cost_new(const Cluster *cluster, Store *store, const char *machine, Arena *arena, Diag *d)
{
    Cost *c = arena_alloc(arena, sizeof *c);
    *c = (Cost){.cluster = cluster, .store = store, .machine = machine, .arena = arena};
    c->diag = d;
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

static Ps work_out(Cost *c, const Plan *plan, const Program *p, const Instr *in)
{
    if (c->store != NULL && c->machine != NULL) {
        const char *key = cost_key(plan, p, in, c->arena);
        Ps measured = store_get_kernel(c->store, c->machine, key, c->diag);
        if (measured >= 0) {
            c->n_measured++;
            return measured;
        }
    }
    return (Ps)llround(model_s(c->cluster, plan, p, in) * (double)PS_PER_S);
}

/* A part of a kernel: launched once, and what stays in it costs no memory traffic. Parts are added
 * up one by one, a little above what one roofline over all of them would give. */
static Ps part_ps(const Cost *c, const Plan *plan, const Program *p, const Instr *in)
{
    const Device *device = &c->cluster->device;
    double compute = plan_flops(plan, p, in) / (.5 * peak_of(device, DT_f32));
    double s = fmax(compute, memory_s(device, (double)plan_kernel_bytes(plan, p, in)));
    if (plan_begins_kernel(p, in)) s += device->kernel_floor_s;
    return (Ps)llround(s * (double)PS_PER_S);
}

static Ps cost_compute(const void *self, const Plan *plan, const Program *p, const Instr *in)
{
    Cost *c = *(Cost *const *)self;
    /* Our CPU backends run the parts one after the other. */
    if (in->fuse && !is_processor(&c->cluster->device)) return part_ps(c, plan, p, in);
    uint64_t hash = hash_instr(p, in);
    if (2 * c->n >= c->room) cache_grow(c);
    uint32_t at = (uint32_t)(hash >> 32) & (c->room - 1);
    for (; c->table[at].instr != NULL; at = (at + 1) & (c->room - 1)) {
        const Cached *have = &c->table[at];
        if (have->hash == hash && same_work(p, in, have->program, have->instr)) {
            return have->time_ps;
        }
    }
    c->table[at] = (Cached){hash, p, in, work_out(c, plan, p, in)};
    c->n++;
    return c->table[at].time_ps;
}

CostModel cost_model(Cost *cost)
{
    Cost **self = arena_alloc(cost->arena, sizeof *self);
    *self = cost;
    return (CostModel){cost->store == NULL ? "roofline" : "measured, else roofline", cost_compute,
                       self};
}

void cost_counts(const Cost *cost, uint32_t *n_measured, uint32_t *n_modelled)
{
    *n_measured = cost->n_measured;
    *n_modelled = cost->n - cost->n_measured;
}
