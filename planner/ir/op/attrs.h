/* Attributes: the settings of an op that its index signature does not give, such as the eps of a
 * norm or the stride of a convolution. */
#ifndef TANDEM_IR_ATTRS_H
#define TANDEM_IR_ATTRS_H

#include <stdbool.h>
#include <stdint.h>

/* THE list of attributes. An op reads only its own (attrs.def); the others are 0. */
#define ATTRIBUTES(X)                                                                              \
    X(double, scale) /* multiplies the result. Attention: the softmax scale. Loss: 1 / all tokens  \
                        that may count */                                                          \
    X(double, eps)                                                                                 \
    X(double, theta)       /* rope, sinusoid: base of the frequencies */                           \
    X(double, rope_factor) /* rope: divides low frequencies (kernels/rope.h); 0: none */           \
    X(double, rope_low)  /* rope: pairs with at most this many turns in rope_context are scaled */ \
    X(double, rope_high) /* rope: pairs with at least this many turns in rope_context are not */   \
    X(double, rope_gain) /* rope: multiplies the rotated elements; 0 means 1 */                    \
    X(double, beta1)                                                                               \
    X(double, beta2)                                                                               \
    X(double, weight_decay)                                                                        \
    X(double, clip)      /* the largest gradient norm; 0: no clipping */                           \
    X(double, smoothing) /* label smoothing */                                                     \
    X(double, cap)       /* attention: scores become cap tanh(score / cap); 0: no cap */           \
    X(double, z_loss)    /* coefficient of the squared log-sum-exp in the loss */                  \
    X(double, mean)      /* sign_step: the count of choices that leaves a bias unchanged */        \
    X(double, drop)      /* probability of dropping an element; 0: draws nothing */                \
    X(int64_t, site)  /* dropout: part of the random key, different for each place in the model */ \
    X(int64_t, group) /* how many values share a scale, or sequences a denominator */              \
    X(int64_t, count_all)    /* xent_loss: also counts tokens whose label is ignored */            \
    X(int64_t, rope_context) /* rope: context length of pre-training [tokens] */                   \
    X(int64_t, rope_yarn) /* rope: 0: Llama 3.1 scaling; 1: YaRN; 2: YaRN between whole pairs */   \
    X(int64_t, rope_dims) /* rope: how many elements of a head rotate, the first ones; 0: all */   \
    X(int64_t, window)    /* attention: how many keys a query sees; 0: all */                      \
    X(int64_t, chunk)     /* state_scan: tokens of a chunk, from which FLOPs are computed */       \
    X(int64_t, distance)  /* attention_table: the distance at which the last bucket begins */      \
    X(int64_t, segment)   /* which of the equal segments of a fused projection to take, from 0 */  \
    X(int64_t, first)     /* slices: the first feature (of each group), token or channel */        \
    X(int64_t, count)     /* slices: how many features, tokens or channels */                      \
    X(int64_t, top_k)     /* how many experts each token chooses */                                \
    X(int64_t, experts)   /* how many experts there are */                                         \
    X(int64_t, capacity)  /* for how many tokens of each sequence an expert has room */            \
    X(int64_t, expert_groups) /* topk: how many groups the experts form; 0: no groups */           \
    X(int64_t, top_groups)    /* topk: from how many groups a token may choose */                  \
    X(int64_t, sigmoid)       /* topk: a group's score is the sum of its two largest sigmoids */   \
    X(int64_t, normalise)     /* route: a token's routing weights sum to 1 */                      \
    X(int64_t, lo) /* ops on a flat buffer: they use elements lo to hi - 1 (global indices) */     \
    X(int64_t, hi)                                                                                 \
    X(int64_t, parts)      /* pack, unpack: into how many parts the dimension is divided */        \
    X(int64_t, dim)        /* pack, unpack, slice: the dimension */                                \
    X(int64_t, chunks)     /* pack, unpack: 2 for a zigzag deal, with two chunks for each part */  \
    X(int64_t, accumulate) /* if bit j is set, the op adds to output j */                          \
    X(int64_t, causal)                                                                             \
    X(int64_t, reduce)   /* collectives: sum, max or mean (Reduce in op.h) */                      \
    X(int64_t, h_kernel) /* the window in direction h (window.h) */                                \
    X(int64_t, h_stride)                                                                           \
    X(int64_t, h_dilation)                                                                         \
    X(int64_t, h_before)                                                                           \
    X(int64_t, h_after)                                                                            \
    X(int64_t, h_mode)                                                                             \
    X(int64_t, w_kernel) /* the window in direction w */                                           \
    X(int64_t, w_stride)                                                                           \
    X(int64_t, w_dilation)                                                                         \
    X(int64_t, w_before)                                                                           \
    X(int64_t, w_after)                                                                            \
    X(int64_t, w_mode)                                                                             \
    X(int64_t, rows) /* resize: rows of the output; rope, image: rows of the image */              \
    X(int64_t, columns)                                                                            \
    X(int64_t, nearest)    /* resize: takes the nearest point instead of interpolating */          \
    X(int64_t, latitude)   /* mse_loss: weights each row by the cosine of its latitude */          \
    X(int64_t, stochastic) /* adamw: parameters are bf16, rounded up or down at random */          \
    X(int64_t, registered) /* collectives: the buffers are registered with NCCL */

enum { ROPE_PAIRS = 64 };
typedef struct Attrs {
#define X(type, name) type name;
    ATTRIBUTES(X)
#undef X
    /* rope: factors that divide the frequency of each pair of elements (LongRoPE); all 0: none */
    double rope_pair[ROPE_PAIRS];
} Attrs;

/* ids of the attributes: ATTR_eps and so on */
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
/* Returns how many factors rope_pair has: those after the last non-zero one do not count. */
uint32_t attr_rope_pairs(const Attrs *attrs);

#endif
