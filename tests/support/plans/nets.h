/* Small convolution networks on fields, built in C without Lua. Convolutions of every kind follow
 * each other, on a mesh of domains and data ranks. */
#ifndef TANDEM_TESTS_NETS_H
#define TANDEM_TESTS_NETS_H

#include "planner/ir/window.h"
#include "planner/lower/compile.h"

enum { NET_MOST_LAYERS = 8 };

typedef enum NetKind {
    NET_conv,      /* a convolution with a bias, followed by gelu */
    NET_transpose, /* a transposed convolution with a bias */
    NET_residual,  /* x + silu(conv(x)), which keeps the shape */
    NET_norm,      /* a group norm with two groups */
    NET_pool,      /* average pooling */
    /* pooling by h.kernel x w.kernel, a convolution, and then a shuffle that turns channels back
     * into points */
    NET_shuffle,
    /* A convolution on a field that is extended by `before` rows beyond each pole, as on a
     * globe. */
    NET_earth,
    /* x + attention in windows of h.kernel x w.kernel points, with a bias by position */
    NET_attention,
    NET_apart, /* like NET_attention, but the points of a window are spread over the field */
    NET_KINDS
} NetKind;

typedef struct NetLayer {
    NetKind kind;
    Window h, w;
} NetLayer;

typedef struct Net {
    int64_t channels, height, width;
    uint32_t n_layers;
    NetLayer layer[NET_MOST_LAYERS];
    bool latitude; /* the loss weighs rows by their latitude */
    /* the results of convolutions, also of transposed ones, are divided by the norm of the
     * weight */
    bool spectral;
    int64_t micro; /* the number of samples of a data rank in a micro-step */
    uint32_t microbatches;
    uint32_t domain, domain_w, dp_shard, dp_replicate, tp;
    bool use_ddp; /* true: ddp; false: fsdp2 */
    bool use_zero;
    ZeroStrategy zero;
    AcMode ac;
    bool keep_halos; /* domain { keep_halos = true } */
    bool original;   /* domain { as = "original" } */
    bool whole_rows; /* domain { interior_first = false } */
    double clip;
    DType compute;
} Net;

/* Returns a net on one rank with 12 x 8 points and 4 channels. Its windows are 3 x 3, with stride 1
 * and zero padding. */
Net net_default(void);
/* Returns a window that keeps the size if the stride is 1. With another stride, it divides an
 * evenly divisible size by the stride. */
Window net_window(int64_t kernel, int64_t stride, int64_t dilation, WindowMode mode);
Net net_one_rank(const Net *n);
void net_build(const Net *n, Arena *arena, Config *config, Graph *graph);
/* Builds the net (net_build) and compiles it for the CPU (plan_compile). After an error, returns
 * NULL. */
Plan *net_plan(const Net *n, bool fp64, Arena *arena, Diag *d);
/* Returns a name such as "12 x 8: conv 3/1 ..., domain 2 ...". */
const char *net_name(const Net *n, Arena *arena);

#endif
