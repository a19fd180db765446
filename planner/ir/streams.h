/* The streams of a program: queues of instructions, like CUDA streams. Instructions on one stream
 * run in order; those on different streams may overlap. `compute` runs kernels. `copy_in` and
 * `copy_out` copy between host and device, and `host` computes on the CPU. On the others,
 * collectives run: dp_gather and dp_reduce serve FSDP, pp_forward and pp_backward send between
 * pipeline stages, and the rest serve the mesh axis of the same name (Carries in layout/axes.h). */
#ifndef TANDEM_IR_STREAMS_H
#define TANDEM_IR_STREAMS_H

/* Without this, each run of clang-format moves one more entry to a line of its own. */
/* clang-format off */
#define STREAMS(X)                                                                                 \
    X(none)                                                                                        \
    X(compute) X(tp) X(cp) X(domain) X(dp_gather) X(dp_reduce) X(dp_replicate) X(ep) X(pp_forward) \
    X(pp_backward) X(copy_in) X(copy_out) X(host)
/* clang-format on */
typedef enum Stream {
#define X(name) STREAM_##name,
    STREAMS(X)
#undef X
        STREAM_COUNT
} Stream;

#endif
