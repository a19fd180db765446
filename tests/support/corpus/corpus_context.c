/* Plans of the corpus that split sequences over cp, combined with other axes of the mesh. */
#include "tests/support/corpus/corpus.h"

typedef struct Visit {
    void (*visit)(void *self, const Tiny *t);
    void *self;
    uint32_t n;
} Visit;

/* The number of the plan decides its heads, biases, norms of heads and projections. */
static Tiny sizes(const Visit *v, uint32_t cp, CpMode mode)
{
    Tiny t = tiny_default();
    t.groups = cp == 3 ? 6 : 4, t.head_dim = 2, t.dim = 10, t.hidden = 12, t.vocab = 37;
    t.cp = cp, t.cp_options.mode = mode;
    t.seq = 4 * cp;
    t.repeat = 1 + v->n / 2 % 2;
    t.fused = v->n % 5 == 2;
    t.biases = v->n % 3 == 1;
    t.qk_norm = v->n % 4 == 3;
    t.micro = 1 + v->n / 3 % 2;
    t.microbatches = 1 + v->n % 3 % 2;
    return t;
}

static void give(Visit *v, const Tiny *t)
{
    v->visit(v->self, t);
    v->n++;
}

/* cp alone, inside dp_shard, inside dp_replicate, and inside both, combined with every way of
 * summing gradients. */
static void each_mesh(Visit *v, CpMode mode)
{
    for (uint32_t cp = 2; cp <= 4; cp++)
        for (uint32_t data = 0; data < 6; data++) {
            Tiny t = sizes(v, cp, mode);
            t.dp_shard = data == 1 || data == 3 ? 2 : 1;
            t.dp_replicate = data == 2 || data == 3 || data == 4 ? 2 : 1;
            t.use_ddp = data >= 4;
            t.ac = (AcMode)(v->n % 3);
            t.fsdp2.reshard_after_forward = v->n % 4 == 1 ? RESHARD_false : RESHARD_true;
            give(v, &t);
        }
    Tiny t = sizes(v, 2, mode);
    t.dp_shard = 4, t.fsdp2.reshard_after_forward = RESHARD_to, t.fsdp2.reshard_to = 2;
    give(v, &t);
}

static void each_zero(Visit *v, CpMode mode)
{
    for (int zero = 0; zero < ZERO_COUNT; zero++)
        for (uint32_t data = 1; data <= 2; data++) {
            Tiny t = sizes(v, 2, mode);
            t.use_zero = true;
            t.zero = (ZeroStrategy)zero;
            *(zero == ZERO_no_shard ? &t.dp_replicate : &t.dp_shard) = data;
            t.zero_options.bucket_size = 250;
            give(v, &t);
        }
}

/* cp combined with stages, 8-bit products, losses, dropout, and blocks that keep outputs. */
static void each_other(Visit *v, CpMode mode)
{
    for (uint32_t k = 0; k < 12; k++) {
        Tiny t = sizes(v, 2, mode);
        t.layers = t.microbatches = 2, t.micro = 2;
        t.dp_shard = k & 1 ? 2 : 1;
        t.ac = k == 5 || k == 7 ? AC_full : AC_none;
        t.use_float8 = k == 2 || k == 3;
        t.float8.recipe = (Float8Recipe)(k % 2);
        t.denominator = k < DENOMINATOR_COUNT ? (Denominator)k : (Denominator)0;
        t.smoothing = k == 4 ? 0.1 : 0, t.z_loss = k == 5 ? 0.01 : 0;
        t.dropout = k == 4 || k == 7 ? 0.25 : 0;
        if (k == 5) t.ac_ops = 3;
        t.compile = k == 6 || k == 9;
        t.fsdp2.copy = k == 9, t.fsdp2.offload = k == 11;
        t.spectral = k == 10;
        if (k >= 6 && k <= 8) {
            t.pp = 2, t.microbatches = 4;
            t.pp_options.schedule = k == 6   ? SCHEDULE_1f1b
                                    : k == 7 ? SCHEDULE_gpipe
                                             : SCHEDULE_zb_h1;
        }
        give(v, &t);
    }
}

/* tp cuts the heads, and cp gathers keys and values or passes them round a ring. The plans also
 * vary two things: whether tp cuts the sequence, too, and the number of KV heads. */
static void each_tp(Visit *v, CpMode mode)
{
    for (uint32_t k = 0; k < 16; k++) {
        Tiny t = sizes(v, 2 + k / 4 % 2, mode);
        t.tp = k % 5 == 4 ? 3 : k % 5 == 3 ? 4 : 2;
        t.groups = k % 5 == 2 ? 1 : t.tp, t.repeat = k % 5 == 2 ? 4 : 1 + k % 2;
        t.hidden = 24;
        t.seq = 2 * t.cp * t.tp;
        t.tp_options.sequence = k % 2 == 0 || k > 12;
        t.tp_options.loss_parallel = k % 7 != 1;
        t.tp_options.share_gathers = k % 7 != 3;
        t.tp_options.keep_gathered = k % 7 == 2;
        t.variant = (TinyVariant)(k < 5 ? k : 0);
        t.dp_shard = k % 3 == 0 ? 2 : 1;
        t.ac = (AcMode)(k % 3);
        t.use_float8 = k == 6 || k == 9;
        t.spectral = k == 11;
        t.compile = k == 8;
        if (k == 10) t.pp = 2, t.microbatches = 4;
        give(v, &t);
    }
}

/* Mixtures of experts, on cp alone and with ep, and tables of positions. The capacity of some
 * experts is below the number of cp ranks, or not divisible by it. */
static void each_mixture(Visit *v, CpMode mode)
{
    for (uint32_t k = 0; k < 10; k++) {
        Tiny t = sizes(v, 2 + k % 3, mode);
        t.gpt2 = k % 2;
        t.fused = t.fused && !t.gpt2;
        t.experts = k < 8 ? 4 : 0, t.top_k = 1 + k % 2;
        t.capacity = k % 4 == 0 ? 0 : k % 4 == 1 ? 3 : k % 4 == 2 ? 2 * t.cp : 1;
        t.normalise = k % 3 == 0;
        t.aux_loss = k % 3 ? 0.1 : 0, t.router_z = k % 4 == 2 ? 0.05 : 0;
        t.balance_rate = k % 4 == 3 && t.experts ? 0.01 : 0;
        t.ep = k < 8 && t.cp == 2 ? 2 : 1;
        t.dp_shard = k % 4 == 3 && t.cp < 4 ? 2 : 1;
        t.tp = mode != CP_all_to_all && k % 5 == 2 ? 2 : 1;
        t.seq = 2 * t.cp * t.tp;
        t.dim = 12;
        t.tp_options.sequence = k % 2 == 0;
        t.use_ddp = k == 4;
        t.ac = (AcMode)(k % 3);
        if (k == 6) t.pp = 2, t.microbatches = 4;
        give(v, &t);
    }
}

/* State-space layers inside tp. cp shares their groups, the heads of one group, or both. */
static void each_scan(Visit *v, CpMode mode)
{
    for (uint32_t k = 0; k < 11; k++) {
        Tiny t = sizes(v, 2 + k % 3, mode);
        t.scans = true;
        t.fused = t.biases = t.qk_norm = false;
        t.groups = k % 4 == 0 ? 1 : k % 4 == 1 ? t.cp : 2;
        t.repeat = k % 4 == 1 ? 1 + k % 2 : t.cp;
        t.dp_shard = k % 3 == 1 ? 2 : 1;
        t.dp_replicate = k == 5 ? 2 : 1;
        t.use_ddp = k == 3;
        t.ac = k % 3 == 2 ? AC_full : AC_none;
        t.compile = k == 6;
        if (k >= 7 && k <= 9 && mode != CP_all_to_all) {
            t.cp = 2, t.tp = 2, t.groups = 2, t.repeat = 2, t.dp_shard = 1;
            t.tp_options.sequence = k != 8;
            t.seq = 2 * t.cp * t.tp;
        }
        if (k == 10) t.pp = 2, t.layers = 2, t.microbatches = 4;
        give(v, &t);
    }
}

/* Groups of ranks exchange tokens for heads, and a ring runs over the groups. */
static void each_group(Visit *v)
{
    for (uint32_t k = 0; k < 11; k++) {
        Tiny t = sizes(v, k < 7 || k == 10 ? 4 : 8, CP_ring);
        t.cp_options.all_to_all = k < 8 || k == 10 ? 2 : 4;
        t.seq = 2 * t.cp * (1 + k % 2);
        t.dp_shard = k % 3 == 1 ? 2 : 1;
        t.dp_replicate = k % 3 == 2 && t.cp == 4 ? 2 : 1;
        t.use_ddp = k == 3 || k == 9;
        t.ac = (AcMode)(k % 3);
        t.use_float8 = k == 4 || k == 10;
        if (k == 10) t.float8.recipe = FLOAT8_rowwise; /* This recipe has a scale for each token. */
        t.dropout = k == 5 ? 0.25 : 0;
        if (k == 6) t.pp = 2, t.layers = 2, t.microbatches = 4;
        give(v, &t);
    }
}

void corpus_context(void (*visit)(void *self, const Tiny *t), void *self)
{
    Visit v = {visit, self, 0};
    for (int mode = 0; mode < CP_MODE_COUNT; mode++) {
        each_mesh(&v, (CpMode)mode);
        each_zero(&v, (CpMode)mode);
        each_other(&v, (CpMode)mode);
        each_mixture(&v, (CpMode)mode);
    }
    each_tp(&v, CP_all_gather);
    each_tp(&v, CP_ring);
    each_group(&v);
    for (int mode = 0; mode < CP_MODE_COUNT; mode++) each_scan(&v, (CpMode)mode);
}
