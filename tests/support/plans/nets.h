/* Small convolution networks on fields, built in C without Lua: convolutions of every kind, in
 * sequence, on a mesh of domains and data ranks. */
#ifndef TANDEM_TESTS_NETS_H
#define TANDEM_TESTS_NETS_H

#include "planner/ir/window.h"
#include "planner/lower/compile.h"

enum { NET_MOST_LAYERS = 8 };

typedef enum NetKind {
    NET_conv,      /* a convolution with a bias, then gelu */
    NET_transpose, /* a transposed convolution with a bias */
    NET_residual,  /* x + silu(conv(x)): keeps the shape */
    NET_norm,      /* a group norm with two groups */
    NET_pool,      /* average pooling */
    NET_shuffle,   /* pooling by h.kernel x w.kernel, a convolution, then a shuffle that turns its
                      channels back into points */
    NET_earth, /* a convolution on the field with `before` more rows beyond each pole, as on a globe
                */
    NET_attention, /* x + attention in windows of h.kernel x w.kernel points, biased by position */
    NET_apart,     /* the same, but the points of a window are spread over the field */
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
    bool latitude; /* the loss weighs rows by latitude */
    bool spectral; /* convolutions, also transposed ones, divide by the norm of their weight */
    int64_t micro; /* number of samples of a data rank in a micro-step */
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

/* Returns a net on one rank, of 12 x 8 points and 4 channels, with windows of 3 x 3, stride 1 and
 * zero padding. */
Net net_default(void);
/* Returns a window that keeps the size (stride 1), or that divides it by `stride` if it divides
 * evenly. */
Window net_window(int64_t kernel, int64_t stride, int64_t dilation, WindowMode mode);
Net net_one_rank(const Net *n);
void net_build(const Net *n, Arena *arena, Config *config, Graph *graph);
/* Builds the net (net_build) and compiles it for the CPU (plan_compile). Returns NULL after
 * diagnostics. */
Plan *net_plan(const Net *n, bool fp64, Arena *arena, Diag *d);
/* Returns a name such as "12 x 8: conv 3/1 ..., domain 2 ...". */
const char *net_name(const Net *n, Arena *arena);

#endif
