/* Small models built in C, without Lua: graphs and configs for tests of all code behind the
 * front. */
#ifndef TANDEM_TESTS_TINY_H
#define TANDEM_TESTS_TINY_H

#include "planner/lower/compile.h"

/* Structures that Llama and GPT-2 lack. */
typedef enum TinyVariant {
    TINY_plain,
    TINY_parallel, /* attention and feed-forward read the same residual, as in GPT-NeoX */
    TINY_doubled,  /* x + x follows each block, so one op reads one value twice */
    /* x + norm(x) follows each block, so norm's backward reads the gradient to which it adds */
    TINY_normed,
    TINY_column_only, /* the feed-forward has column linears, but no row linear */
    /* The feed-forward has a row linear, but no column linears, so its activations are split along
     * another dimension. */
    TINY_row_only,
    TINY_VARIANTS
} TinyVariant;

typedef struct Tiny {
    TinyVariant variant;
    /* true: a GPT-2 (layernorm, gelu, learned positions, biases, tied head); false: a Llama */
    bool gpt2;
    bool fused; /* one weight gives q, k and v, and one gives gate and up */
    /* the feed-forward adds two MLPs, one twice as wide as the other (fused: with one weight) */
    bool unequal;
    bool whole_table; /* the embedding and a tied head are not split by the vocabulary */
    /* linears, except a tied head, are divided by the spectral norms of their weights */
    bool spectral;
    /* biases: all linears have biases, also in Llama. qk_norm: each query and key head is
     * normalised. */
    bool biases, qk_norm;
    bool scans; /* state-space layers with as many heads take the place of attention */
    /* The number of experts. 0: the feed-forward is not a mixture. A mixture is neither fused nor
     * unequal. */
    int64_t experts;
    /* A token goes to top_k experts. An expert has room for `capacity` tokens of a sequence (0: for
     * all of them). */
    int64_t top_k, capacity;
    /* experts drop no token, so rows are uneven; a rank has memory for `bound` times its mean
     * share */
    bool dropless;
    double bound;    /* 0: a rank has memory for all rows that can arrive */
    bool normalise;  /* the chosen experts' weights sum to 1 */
    double aux_loss; /* the loss includes this factor times the imbalance of the choices */
    /* above 0: the router uses sigmoids and a bias that balances the experts at this rate */
    double balance_rate;
    /* the loss also includes this factor times the squared log-sum-exps of the router's logits */
    double router_z;
    uint32_t layers;
    int64_t dim, groups, repeat, head_dim, hidden, vocab, seq;
    int64_t micro; /* the number of sequences of a data rank in a micro-step */
    uint32_t microbatches;
    uint32_t dp_shard, dp_replicate, cp, ep, tp, pp;
    /* Experts folded over the mesh: how many ranks of tp and of cp share the experts, in addition
     * to those of ep. 0 or 1: none. cp may lend ranks only if tp lends all of its ranks. ep may be
     * more than 1 only if cp lends all of its ranks. */
    uint32_t tp_lent, cp_lent;
    /* true: ddp, also over ep and cp. false: fsdp2 if dp_shard, ep or cp is above 1, otherwise
     * ddp. */
    bool use_ddp;
    CpOptions cp_options;
    PpOptions pp_options;
    /* 0: a built-in schedule. Otherwise this is the seed of a random schedule that gives each rank
     * pp_options.chunks stages. */
    uint64_t own_seed;
    TpOptions tp_options;
    bool use_float8;
    Float8Options float8;
    AcMode ac;
    uint32_t ac_ops; /* bit i is set: recomputed regions keep the outputs of tiny_ac_ops[i] */
    bool ac_alternate;
    Fsdp2Options fsdp2;
    bool use_zero; /* true: zero{} instead of fsdp2{} */
    ZeroStrategy zero;
    bool compile; /* true: compile{} is the last pass */
    CompilePer compile_per;
    uint32_t freeze;   /* bit i is set: the modules of tiny_frozen[i] are not trained */
    bool freeze_whole; /* frozen parameters are not sharded */
    uint32_t tile;     /* the number of pieces of the head and the loss; 0: they are not split */
    /* All options of zero{} except prefetch, which comes from fsdp2.prefetch. */
    ZeroOptions zero_options;
    bool sgd;
    DType state;       /* the dtype of the moments; DT_none: that of parameters at rest */
    Rounding rounding; /* how weights are rounded to bf16 */
    double clip;       /* the bound of the global norm; 0: no clipping */
    bool unpadded;     /* an odd vocabulary is not padded */
    Denominator denominator;
    /* the number of sequences in a group, for microbatch_mean; 0: `micro` */
    int64_t group;
    double smoothing, z_loss; /* label smoothing and z-loss */
    /* deviation: the standard deviation of weights (0 stands for 0.3). scale: the factor of
     * attention's scores (0 stands for 0.5). */
    double deviation, scale;
    /* The probability of dropout after the embedding, in attention's scores, and on each
     * residual. */
    double dropout;
    /* all are DT_f32 unless set; param: at rest; reduce: of gradients */
    DType compute, param, reduce;
} Tiny;

/* Families of ops in the blocks of tiny models. For a model without one of them, the bit has no
 * effect. */
enum { TINY_AC_OPS = 15 };
extern const char *const tiny_ac_ops[TINY_AC_OPS];

/* Modules that a tiny model may freeze. The embedding is a module only in a model that freezes
 * it. */
enum { TINY_FROZEN = 5, TINY_FROZEN_TABLE = 1 };
extern const char *const tiny_frozen[TINY_FROZEN];

/* Returns the number of ranks that read different samples. */
int64_t tiny_data_ranks(const Tiny *t);
void tiny_config(const Tiny *t, Arena *arena, Config *config);
/* Returns a Llama with 2 layers, dim 12, 4 groups of 1 head of 4, hidden 16, vocab 29, seq 8, one
 * rank. */
Tiny tiny_default(void);
void tiny_build(const Tiny *t, Arena *arena, Config *config, Graph *graph);
/* Builds the model (tiny_build) and compiles it for the CPU (plan_compile). After an error, returns
 * NULL. With fp64, all real dtypes become f64. */
Plan *tiny_plan(const Tiny *t, bool fp64, Arena *arena, Diag *d);
Plan *tiny_plan_in(const Tiny *t, DTypeMap dtypes, Arena *arena, Diag *d);
/* Returns the same model with the same micro-steps on one rank. */
Tiny tiny_one_rank(const Tiny *t);

#endif
