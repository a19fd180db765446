/* The streams of a program. Instructions on one stream run in order. */
#ifndef TANDEM_IR_STREAMS_H
#define TANDEM_IR_STREAMS_H

/* Without clang-format off, each run of the formatter moves one more entry to a line of its own. */
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
