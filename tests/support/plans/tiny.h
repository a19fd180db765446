/* Small models built in C, without Lua: graphs and configs for tests of all code behind the
 * front. */
#ifndef TANDEM_TESTS_TINY_H
#define TANDEM_TESTS_TINY_H

#include "planner/lower/compile.h"

/* Topologies that Llama and GPT-2 lack. */
typedef enum TinyVariant {
    TINY_plain,
    TINY_parallel,    /* attention and feed-forward read the same residual (GPT-NeoX) */
    TINY_doubled,     /* adds x + x after each block: one op reads one value twice */
    TINY_normed,      /* adds x + norm(x): an op reads the sum to which its own gradient is added */
    TINY_column_only, /* feed-forward has column linears, but no row linear */
    /* feed-forward has a row linear, but no column linears, so its activations are split along
     * another dimension */
    TINY_row_only,
    TINY_VARIANTS
} TinyVariant;

typedef struct Tiny {
    TinyVariant variant;
    bool gpt2;    /* layernorm, gelu, learned positions, biases, tied head; else Llama */
    bool fused;   /* one weight for q, k and v, and one for gate and up */
    bool unequal; /* feed-forward: two MLPs that are added, one twice as wide (fused: one weight) */
    bool whole_table; /* neither the embedding nor a tied head is split by the vocabulary */
    bool spectral;    /* linears, except a tied head, are divided by their weights' norm */
    /* biases of all linears, also in Llama; norms of each query and key head */
    bool biases, qk_norm;
    bool scans; /* state-space layers with attention's heads take the place of attention */
    /* number of experts; 0: the feed-forward is not a mixture. A mixture is neither fused nor
     * unequal. */
    int64_t experts;
    /* A token goes to top_k experts. An expert has room for `capacity` tokens of a sequence (0: for
     * all). */
    int64_t top_k, capacity;
    bool dropless;   /* rows are uneven, without a capacity; a rank has memory for `bound` times its
                        mean share */
    double bound;    /* 0: memory for all rows that can arrive */
    bool normalise;  /* the chosen experts' weights sum to 1 */
    double aux_loss; /* the loss adds this factor times the imbalance of the choices */
    double balance_rate; /* above 0: the router uses sigmoids, and a bias that this rate balances */
    double router_z;     /* the loss also adds this factor times the squared log-sum-exps of the
                          * router's logits */
    uint32_t layers;
    int64_t dim, groups, repeat, head_dim, hidden, vocab, seq;
    int64_t micro; /* sequences of a data rank in a micro-step */
    uint32_t microbatches;
    uint32_t dp_shard, dp_replicate, cp, ep, tp, pp;
    /* Experts folded over the mesh: the numbers of tp ranks and of cp ranks that share them, in
     * addition to the ranks of ep. 0 or 1: none. cp may lend ranks only if tp lends all of its own.
     * ep may be more than 1 only if cp lends all of its own. */
    uint32_t tp_lent, cp_lent;
    /* true: ddp, also over ep and cp; false: fsdp2 if dp_shard, ep or cp is above 1, otherwise
     * ddp */
    bool use_ddp;
    CpOptions cp_options;
    PpOptions pp_options;
    /* 0: a built-in schedule; otherwise the seed of a random schedule with pp_options.chunks stages
     * for each rank */
    uint64_t own_seed;
    TpOptions tp_options;
    bool use_float8;
    Float8Options float8;
    AcMode ac;
    uint32_t ac_ops; /* bit i: regions keep the outputs of tiny_ac_ops[i] */
    bool ac_alternate;
    Fsdp2Options fsdp2;
    bool use_zero; /* zero{} instead of fsdp2{} */
    ZeroStrategy zero;
    bool compile; /* compile{} at the end of the list of passes */
    CompilePer compile_per;
    uint32_t freeze;   /* bit i: the modules of tiny_frozen[i] are not trained */
    bool freeze_whole; /* frozen parameters are not sharded */
    uint32_t tile;     /* number of pieces of the head and the loss; 0: not split */
    /* all other options of zero{}, except prefetch, which fsdp2.prefetch gives */
    ZeroOptions zero_options;
    bool sgd;
    DType state;       /* dtype of the moments; DT_none: the dtype of parameters at rest */
    Rounding rounding; /* rounding of bf16 weights */
    double clip;       /* global-norm bound; 0: none */
    bool unpadded;     /* an odd vocabulary is not padded */
    Denominator denominator;
    int64_t group;            /* group of sequences for microbatch_mean; 0: `micro` */
    double smoothing, z_loss; /* label smoothing and z_loss of the loss */
    /* standard deviation of weights (0 stands for 0.3); scale of attention's scores (0 stands for
     * 0.5) */
    double deviation, scale;
    /* probability of dropout after the embedding, in attention's scores, and on each residual */
    double dropout;
    DType compute, param, reduce; /* DT_f32 unless set; param: at rest; reduce: of gradients */
} Tiny;

/* Families of ops in the blocks of tiny models. A model skips families that it does not have. */
enum { TINY_AC_OPS = 15 };
extern const char *const tiny_ac_ops[TINY_AC_OPS];

/* Modules that a tiny model may freeze. Only a model that freezes its embedding has a module for
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
/* Builds the model (tiny_build) and compiles it for the CPU (plan_compile). Returns NULL after
 * diagnostics. fp64: all real dtypes become f64; otherwise they stay. */
Plan *tiny_plan(const Tiny *t, bool fp64, Arena *arena, Diag *d);
Plan *tiny_plan_in(const Tiny *t, DTypeMap dtypes, Arena *arena, Diag *d);
/* Returns the same model with the same micro-steps on one rank. */
Tiny tiny_one_rank(const Tiny *t);

#endif
