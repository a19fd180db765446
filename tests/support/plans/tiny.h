/* Small models built in C, without Lua: graphs and configs for tests of everything behind the
 * front. */
#ifndef TANDEM_TESTS_TINY_H
#define TANDEM_TESTS_TINY_H

#include "planner/lower/compile.h"

/* Topologies that Llama and GPT-2 lack. */
typedef enum TinyVariant {
    TINY_plain,
    TINY_parallel,    /* attention and feed-forward read the same residual (GPT-NeoX) */
    TINY_doubled,     /* x + x after each block: one value read twice by one op */
    TINY_column_only, /* feed-forward: column linears without the row linear */
    TINY_row_only,    /* ... and the other way round: their activations change dimension */
    TINY_VARIANTS
} TinyVariant;

typedef struct Tiny {
    TinyVariant variant;
    bool gpt2;    /* layernorm, gelu, learned positions, biases, tied head; else Llama */
    bool fused;   /* q, k, v and gate, up are one weight each */
    bool unequal; /* feed-forward: two MLPs that are added, one twice as wide (fused: one weight) */
    bool whole_table;     /* the embedding, and a tied head, are not cut by the vocabulary */
    bool spectral;        /* linears, but a tied head, are divided by their weights' norm */
    bool biases, qk_norm; /* of all linears also in Llama; of each query's and key's head */
    int64_t experts;      /* 0: none; else feed-forward is a mixture of them (then neither fused nor
                             unequal), of which a token goes to top_k, */
    int64_t top_k, capacity; /* each with room for so many tokens of a sequence (0: all); */
    bool normalise;          /* their weights sum to 1 */
    double aux_loss;         /* how unevenly sequences choose, times this, is added to the loss */
    uint32_t layers;
    int64_t dim, groups, repeat, head_dim, hidden, vocab, seq;
    int64_t micro; /* sequences per data rank and micro-step */
    uint32_t microbatches;
    uint32_t dp_shard, dp_replicate, cp, ep, tp, pp;
    bool use_ddp; /* over ep and cp, too: fsdp2 if dp_shard > 1, or ep or cp > 1 without this; else
                     ddp */
    CpOptions cp_options;
    PpOptions pp_options;
    uint64_t own_seed; /* not 0: the schedule is drawn by it, pp_options.chunks stages a rank */
    TpOptions tp_options;
    bool use_float8;
    Float8Options float8;
    AcMode ac;
    uint32_t ac_ops; /* bits: what regions keep, of tiny_ac_ops */
    bool ac_alternate;
    Fsdp2Options fsdp2;
    bool use_zero; /* zero{} instead of fsdp2{} */
    ZeroStrategy zero;
    bool compile; /* at the end of the list */
    CompilePer compile_per;
    uint32_t tile;            /* pieces of the head and the loss; 0: not cut */
    ZeroOptions zero_options; /* all others of them; prefetch is fsdp2's */
    bool sgd;
    DType state;       /* of the moments; DT_none: as parameters at rest */
    Rounding rounding; /* of bf16 weights */
    double clip;       /* global-norm bound; 0: none */
    Denominator denominator;
    int64_t group;                /* microbatch_mean; 0: micro */
    double smoothing, z_loss;     /* of the loss */
    double deviation, scale;      /* of weights, of attention's scores; 0: 0.3, 0.5 */
    double dropout;               /* after the embedding, attention's scores, and each residual */
    DType compute, param, reduce; /* DT_f32 unless set; at rest; of gradients */
} Tiny;

/* Op families of its blocks; those that a model has not are left out in silence. */
enum { TINY_AC_OPS = 15 };
extern const char *const tiny_ac_ops[TINY_AC_OPS];

/* Ranks with samples of their own. */
int64_t tiny_data_ranks(const Tiny *t);
void tiny_config(const Tiny *t, Arena *arena, Config *config);
/* Llama: 2 layers, dim 12, 4 groups of 1 head of 4, hidden 16, vocab 29, seq 8, one rank. */
Tiny tiny_default(void);
void tiny_build(const Tiny *t, Arena *arena, Config *config, Graph *graph);
/* tiny_build and plan_compile, for the CPU; NULL with diagnostics. dtypes: identity, or all f64.
 */
Plan *tiny_plan(const Tiny *t, bool fp64, Arena *arena, Diag *d);
Plan *tiny_plan_in(const Tiny *t, DTypeMap dtypes, Arena *arena, Diag *d);
/* The same model and micro-steps on one rank. */
Tiny tiny_one_rank(const Tiny *t);

#endif
