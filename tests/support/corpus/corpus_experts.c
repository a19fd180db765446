/* Plans of the corpus with mixtures of experts, some of them shared over ep, combined with other
 * axes of the mesh. */
#include "tests/support/corpus/corpus.h"

typedef struct Visit {
    void (*visit)(void *self, const Tiny *t);
    void *self;
    uint32_t n;
} Visit;

/* The number of the plan decides the routing. A token goes to one expert or to several. The experts
 * have room for all tokens, or so little that some are dropped. The experts' weights are relative
 * to the chosen experts or to all. */
static Tiny sizes(const Visit *v, uint32_t ep)
{
    static const int64_t capacity[] = {0, 3, 2};
    Tiny t = tiny_default();
    t.groups = 4, t.head_dim = 2, t.dim = 10, t.hidden = 8, t.vocab = 37;
    t.ep = ep;
    t.experts = ep == 4 ? 8 : 6;
    t.top_k = 1 + v->n % 3;
    t.capacity = capacity[v->n / 2 % 3];
    t.normalise = v->n % 5 < 3;
    t.aux_loss = v->n % 7 % 2 ? 0.1 : 0;
    t.router_z = v->n % 11 == 3 ? 0.05 : 0;
    t.balance_rate = v->n % 6 == 1 ? 0.01 : 0;
    t.gpt2 = v->n % 4 == 3;
    t.micro = 1 + v->n / 3 % 2;
    t.repeat = 1 + v->n / 4 % 2;
    return t;
}

static void give(Visit *v, const Tiny *t)
{
    v->visit(v->self, t);
    v->n++;
}

/* An expert is held by one rank, or by several ranks of dp_shard, of dp_replicate, or of both. */
static void each_mesh(Visit *v)
{
    for (uint32_t ep = 1; ep <= 4; ep *= 2)
        for (uint32_t data = 0; data < 6; data++)
            for (uint32_t inside = 0; inside < 3; inside++) {
                Tiny t = sizes(v, ep);
                t.dp_shard = data == 1 || data == 3 ? 2 : 1;
                t.dp_replicate = data == 2 || data == 3 || data == 4 ? 2 : 1;
                t.use_ddp = data >= 4;
                t.fsdp2.over_ep = ep == 1 || inside != data % 3;
                t.tp = inside ? 2 : 1;
                t.tp_options.sequence = inside == 2;
                t.ac = (AcMode)((data + inside) % 3);
                t.microbatches = 1 + v->n % 3;
                if (tiny_data_ranks(&t) * t.tp <= 8) give(v, &t);
            }
}

static void each_zero(Visit *v)
{
    for (int zero = 0; zero < ZERO_COUNT; zero++)
        for (uint32_t tp = 1; tp <= 2; tp++) {
            Tiny t = sizes(v, 2);
            t.use_zero = true;
            t.zero = (ZeroStrategy)zero;
            t.zero_options =
                (ZeroOptions){.bucket_size = zero == ZERO_no_shard && tp == 1 ? 0 : 250};
            if (zero == ZERO_optim && tp == 1) t.zero_options.gather = ZERO_GATHER_eager;
            t.dp_shard = zero != ZERO_no_shard && tp == 2 ? 2 : 1;
            t.dp_replicate = tp == 1 ? 2 : 1;
            t.tp = tp, t.microbatches = 2;
            give(v, &t);
        }
}

static void each_pipeline(Visit *v)
{
    for (int schedule = 0; schedule < SCHEDULE_COUNT; schedule++)
        for (uint32_t inside = 0; inside < 2; inside++) {
            Tiny t = sizes(v, 2);
            t.pp = 2;
            t.pp_options.schedule = (ScheduleKind)schedule;
            t.pp_options.chunks = schedule_traits((ScheduleKind)schedule).least_chunks;
            t.layers = t.pp * t.pp_options.chunks;
            t.microbatches = t.layers > 4 ? t.layers : 4;
            t.tp = inside ? 2 : 1;
            t.use_ddp = (schedule + (int)inside) % 2;
            t.ac = schedule % 3 == 1 ? AC_full : AC_none;
            give(v, &t);
        }
}

/* Options that gather weights, cut them, or recompute. */
static void each_option(Visit *v)
{
    for (uint32_t k = 0; k < 20; k++) {
        Tiny t = sizes(v, 2);
        t.microbatches = 2;
        t.dp_shard = k % 4 == 1 ? 2 : 1;
        t.tp = k % 3 == 1 ? 2 : 1;
        t.tp_options.sequence = k % 2;
        t.tp_options.share_gathers = k != 4;
        t.tp_options.keep_gathered = k == 7;
        t.compile = k < 6, t.compile_per = k < 3 ? COMPILE_block : COMPILE_model;
        t.ac = k % 3 ? AC_full : AC_none;
        if (k < 4) t.ac_ops = k + 1;
        if (k == 5) t.ac_alternate = true;
        t.fsdp2.copy = k == 6, t.fsdp2.offload = k == 7, t.fsdp2.keep_gathered = k == 8;
        if (k == 9) t.dp_shard = 4, t.fsdp2.reshard_after_forward = RESHARD_to;
        if (k == 9) t.fsdp2.reshard_to = 2;
        if (k == 10) t.fsdp2.reshard_after_forward = RESHARD_false;
        t.fsdp2.reshard_root = k == 11, t.fsdp2.defer_grad_sync = k == 12;
        t.fsdp2.prefetch = k % 3;
        t.fsdp2.over_ep = k % 5 != 2;
        t.use_float8 = k >= 12 && k < 16 && !t.gpt2;
        t.float8.recipe = k % 2 ? FLOAT8_tensorwise : FLOAT8_rowwise;
        t.float8.fsdp_gather = k == 13;
        t.tile = k == 16 ? 2 : 0;
        t.dropout = k == 17 ? 0.25 : 0;
        if (k == 18) t.fused = t.biases = true;
        if (k == 19) t.spectral = true;
        give(v, &t);
    }
    for (int variant = 0; variant < TINY_VARIANTS; variant++) {
        Tiny t = sizes(v, 2);
        t.variant = (TinyVariant)variant;
        t.tp = t.microbatches = 2;
        give(v, &t);
    }
}

/* Experts that drop no token. A rank has memory for every row that can arrive, or for fewer. */
static void each_dropless(Visit *v)
{
    for (uint32_t k = 0; k < 24; k++) {
        Tiny t = sizes(v, 1U << k % 3);
        t.dropless = true, t.bound = k % 4 == 2 ? 3 : 0;
        t.top_k = 1 + k % 3, t.micro = 1 + k % 2, t.microbatches = 2;
        t.seq = k % 5 ? 8 : 4; /* With few tokens, some experts get none. */
        t.dp_shard = k % 4 == 1 ? 2 : 1, t.dp_replicate = k % 6 == 4 ? 2 : 1;
        t.tp = k % 3 != 2 && k % 2 ? 2 : 1, t.tp_options.sequence = k % 5 == 3;
        t.use_ddp = k % 7 == 3;
        t.ac = (AcMode)(k / 2 % 3);
        t.balance_rate = 0, t.biases = k == 5;
        t.fsdp2.over_ep = k % 5 != 2;
        t.compile = k == 8 || k == 19, t.compile_per = k == 8 ? COMPILE_block : COMPILE_model;
        if (k % 9 == 6) t.pp = 2, t.microbatches = 4, t.layers = 2;
        if (k == 10) t.use_zero = true, t.zero = ZERO_optim_grads_params, t.dp_shard = 2;
        give(v, &t);
    }
}

void corpus_experts(void (*visit)(void *self, const Tiny *t), void *self)
{
    Visit v = {visit, self, 0};
    each_mesh(&v);
    each_zero(&v);
    each_pipeline(&v);
    each_option(&v);
    each_dropless(&v);
}
