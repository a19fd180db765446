/* The attributes of an op: numbers that its signature does not give, such as eps or a window. */
#ifndef TANDEM_IR_ATTRS_H
#define TANDEM_IR_ATTRS_H

#include <stdbool.h>
#include <stdint.h>

/* One table of all attributes. Each op reads only the attributes that belong to it; 0 is the
 * default. */
#define ATTRIBUTES(X)                                                                              \
    X(double, scale) /* multiplies the result (loss: 1 / all tokens that may count; attention:     \
                      * softmax scale) */                                                          \
    X(double, eps)                                                                                 \
    X(double, theta)       /* RoPE base */                                                         \
    X(double, rope_factor) /* divides low frequencies (kernels/rope.h); 0: none */                 \
    X(double, rope_low)    /* divides pairs with at most this many turns in rope_context */        \
    X(double, rope_high)   /* keeps pairs with at least this many turns in rope_context */         \
    X(double, rope_gain)   /* multiplies the elements that turn; 0 means 1 */                      \
    X(double, beta1)                                                                               \
    X(double, beta2)                                                                               \
    X(double, weight_decay)                                                                        \
    X(double, clip)           /* global-norm bound; 0: no clipping */                              \
    X(double, smoothing)      /* label smoothing */                                                \
    X(double, cap)            /* soft cap; 0: none */                                              \
    X(double, z_loss)         /* coefficient of the squared log-sum-exp */                         \
    X(double, mean)           /* sign_step: the count that leaves the value unchanged */           \
    X(double, drop)           /* probability of dropping an element; above 0: draws numbers */     \
    X(int64_t, site)          /* dropout: a part of the random key, one for each place in the      \
                               * model */                                                          \
    X(int64_t, group)         /* numbers that share a scale; sequences that share a denominator */ \
    X(int64_t, count_all)     /* xent_loss: count ignored tokens too */                            \
    X(int64_t, rope_context)  /* original context length of the scaling */                         \
    X(int64_t, rope_yarn)     /* 0: Llama 3.1; 1: YaRN; 2: YaRN between whole pairs */             \
    X(int64_t, rope_dims)     /* how many of a head's first elements turn; 0: all */               \
    X(int64_t, window)        /* attention: keys that a query sees; 0: all */                      \
    X(int64_t, chunk)         /* state_scan: tokens of a chunk of the published kernels */         \
    X(int64_t, distance)      /* attention_table: the distance at which the last bucket begins */  \
    X(int64_t, segment)       /* the part to take of a fused projection of equal parts */          \
    X(int64_t, first)         /* the first feature (of each group), token or channel to take */    \
    X(int64_t, count)         /* the number of features, tokens or channels to take */             \
    X(int64_t, top_k)         /* number of experts of a token */                                   \
    X(int64_t, experts)       /* number of all experts */                                          \
    X(int64_t, capacity)      /* tokens of a sequence for which an expert has room */              \
    X(int64_t, expert_groups) /* topk: number of groups of experts; 0: no groups */                \
    X(int64_t, top_groups)    /* topk: groups that a token may choose from */                      \
    X(int64_t, sigmoid)       /* topk: the score of a group is the sum of its two best sigmoids */ \
    X(int64_t, normalise)     /* route: the weights of the chosen experts sum to 1 */              \
    X(int64_t, lo)            /* range [lo, hi) of a flat buffer, in global elements */            \
    X(int64_t, hi)                                                                                 \
    X(int64_t, parts)      /* pack, unpack: number of parts */                                     \
    X(int64_t, dim)        /* pack, unpack, slice: which dimension */                              \
    X(int64_t, chunks)     /* pack, unpack: 2: the dimension is dealt out in a zigzag */           \
    X(int64_t, accumulate) /* bit j: out[j] += */                                                  \
    X(int64_t, causal)                                                                             \
    X(int64_t, reduce)   /* collective: its reduction (Reduce in op.h) */                          \
    X(int64_t, h_kernel) /* the window of h~ (window.h) */                                         \
    X(int64_t, h_stride)                                                                           \
    X(int64_t, h_dilation)                                                                         \
    X(int64_t, h_before)                                                                           \
    X(int64_t, h_after)                                                                            \
    X(int64_t, h_mode)                                                                             \
    X(int64_t, w_kernel) /* the window of w~ */                                                    \
    X(int64_t, w_stride)                                                                           \
    X(int64_t, w_dilation)                                                                         \
    X(int64_t, w_before)                                                                           \
    X(int64_t, w_after)                                                                            \
    X(int64_t, w_mode)                                                                             \
    X(int64_t, rows) /* resize: the sizes of the output */                                         \
    X(int64_t, columns)                                                                            \
    X(int64_t, nearest)  /* resize: the nearest point, else bilinear */                            \
    X(int64_t, latitude) /* mse_loss: rows count as the cosine of their latitude */                \
    X(int64_t,                                                                                     \
      stochastic) /* adamw: parameters are bf16, rounded by a draw of (seed, step, site) */        \
    X(int64_t, registered) /* collective: its buffers are registered with the network */

enum { ROPE_PAIRS = 64 };
typedef struct Attrs {
#define X(type, name) type name;
    ATTRIBUTES(X)
#undef X
    /* rope: divides the frequency of each pair of elements that turns (LongRoPE); all 0: none */
    double rope_pair[ROPE_PAIRS];
} Attrs;

/* The numbers of the attributes: ATTR_eps and so on. */
enum {
#define X(type, name) ATTR_##name,
    ATTRIBUTES(X)
#undef X
        ATTRS
};
const char *attr_name(uint32_t attr);
bool attr_is_int(uint32_t attr);
double attr_get(const Attrs *attrs, uint32_t attr);
void attr_set(Attrs *attrs, uint32_t attr, double value);
/* Returns how many numbers rope_pair has. */
uint32_t attr_rope_pairs(const Attrs *attrs);

#endif
