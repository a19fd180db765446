/* Another system's execution, as its profile says (scripts/runtimes): what the simulator charges
 * for, and how memory is had. */
#ifndef TANDEM_FRONT_RUNTIME_CONFIG_H
#define TANDEM_FRONT_RUNTIME_CONFIG_H

#include "planner/ir/op.h"

/* Ops that may become one kernel: ops of one block, or any consecutive ops. */
#define COMPILE_PERS(X) X(block) X(model)
typedef enum CompilePer {
#define X(name) COMPILE_##name,
    COMPILE_PERS(X)
#undef X
        COMPILE_PER_COUNT
} CompilePer;

/* triton: the first flash kernels written in it, with a bias of scores. unfused: scores are written
 * and read: a product, a softmax and a product. */
#define ATTENTION_KERNELS(X) X(flash2) X(flash3) X(cudnn) X(triton) X(unfused)
typedef enum AttentionKernel {
#define X(name) ATTENTION_##name,
    ATTENTION_KERNELS(X)
#undef X
        ATTENTION_KERNEL_COUNT
} AttentionKernel;

/* Kernels that do little but move memory. any: what its bytes take at the rate of large copies.
 * Others by whose they are: PyTorch's elementwise ones; vLLM's gated activation and norm; norms of
 * cuDNN and of PyTorch (eager, fused); Triton's, written or compiled, which make 8-bit operands
 * too. */
#define TRAFFIC_KERNELS(X)                                                                         \
    X(any)                                                                                         \
    X(elementwise)                                                                                 \
    X(vllm_gated)                                                                                  \
    X(vllm_norm)                                                                                   \
    X(cudnn_norm) X(cudnn_norm_grad) X(torch_norm) X(torch_norm_grad) X(triton) X(triton_norm_grad)
typedef enum TrafficKernel {
#define X(name) TRAFFIC_##name,
    TRAFFIC_KERNELS(X)
#undef X
        TRAFFIC_KERNEL_COUNT
} TrafficKernel;

/* Sum of live tensors; what the allocator holds; with context, libraries and communicators. */
#define MEMORY_KINDS(X) X(reserved) X(allocated) X(process)
typedef enum MemoryKind {
#define X(name) MEMORY_##name,
    MEMORY_KINDS(X)
#undef X
        MEMORY_KIND_COUNT
} MemoryKind;

/* Whose peak its logs print: the largest, or one stage's. */
#define MEMORY_RANKS(X) X(most) X(first) X(last)
typedef enum MemoryRank {
#define X(name) MEMORY_RANK_##name,
    MEMORY_RANKS(X)
#undef X
        MEMORY_RANK_COUNT
} MemoryRank;

/* The kernels of that system for one op of ours, where it is not compiled. */
typedef enum InPlace { IN_PLACE_never, IN_PLACE_backward, IN_PLACE_always } InPlace;

typedef struct RuntimeOp {
    double kernels; /* launched, and issued by the host; 0: it is a part of another kernel */
    double passes;  /* memory traffic, as a multiple of reading inputs and writing outputs once */
    double saved;   /* bytes an element of its largest argument that live on until the op that is
                     * its gradient has run, besides what our op keeps */
    double scratch; /* ... that live while it runs, */
    double tensors; /* in so many tensors of one size */
    double scores;  /* attention: bytes a score that are saved, as `saved` */
    bool stacks;    /* experts: it multiplies by a copy of their weights side by side, saved too */
    bool remade;    /* its output is made again by what reads it backward: it is not saved */
    bool folded;    /* its output is never a tensor: what reads it makes it within */
    bool keeps_graph; /* a module keeps its output with its graph until the next step: of a region
                       * that is made again, what autograd saved on the way to it is not given back
                       */
    InPlace in_place; /* its outputs lie where inputs lay that nothing needs after it */
    TrafficKernel kernel; /* of what moves memory: whose it is; then `passes` is in that */
} RuntimeOp;

/* A profile: scripts/runtimes/NAME.lua. name NULL: Tandem's own executor. Host times are those of
 * one process, which issues everything in program order. */
typedef struct Runtime {
    const char *name;
    AttentionKernel attention;
    double kernel_s;     /* to issue a kernel of an eager op */
    double compiled_s;   /* ... of a compiled region */
    double tensor_s;     /* more for each op where tp > 1 (tensors that know their layout) */
    double collective_s; /* to issue a collective */
    double unit_s;       /* more for each gather and each reduction of sharded units */
    double update_s;     /* to issue the update of a unit */
    double step_s;       /* between steps, in which the device has nothing to do */
    CompilePer compiled; /* what of the model is compiled; read only if is_compiled */
    bool is_compiled;    /* the plan has compile{} */
    bool compiles_loss;  /* then the loss, too, which is a function beside the model */
    bool delayed;        /* 8-bit scales are those of past steps, weights are made once a step */
    bool expandable;     /* the allocator's segments grow in place */
    MemoryKind reports;  /* what its logs call the peak of memory, */
    MemoryRank reports_rank; /* and of which rank */
    double bucket_elements;  /* DeepSpeed's ZeRO: reduce_bucket_size; 0: it is another system */
    double prefetch_elements, live_elements, reuse_elements,
        persist_elements; /* stage 3's prefetch_bucket_size, max_live_parameters,
                           * max_reuse_distance, param_persistence_threshold */
    double added_bytes;   /* an element of a weight's gradient, beside the product that is added to
                           * it, while it is; 0: products are added as they are made */
    bool head_outside;    /* the loss reads the head's weight outside the head's own module */
    bool holds_arguments; /* Python holds what a module is called with until it returns, */
    bool holds_logits;    /* ... and the logits until the next ones are there */
    bool expands_kv;      /* attention reads, and saves, a key and a value for each query head */
    bool casts_gradients; /* what a sharded unit reduced becomes of the parameters' type at rest */
    bool starts_whole;    /* without tp{} and pp{}, all of the model is first made on each device */
    bool pads_late;     /* experts: rows are padded to the fullest expert's where they are computed;
                         * ranks exchange those that were chosen, all of which may be one rank's */
    bool keeps_outputs; /* the last stage's, of each micro-batch, to the end of the step */
    bool keeps_sent;    /* and what any stage sends forward */
    bool keeps_received;  /* a stage receives each micro-batch, both ways, into a tensor of its own
                           * for good; the gradient that it sends is there to the end of the step */
    bool host_optimizer;  /* the optimizer's state and fp32 weights lie in host memory */
    bool holds_gradients; /* gradients lie in one buffer from the start, between steps too */
    double workspace_bytes; /* cuBLAS's, of the allocator; 0: as PyTorch sets it for the device */
    RuntimeOp op[OP_COUNT];
} Runtime;

#endif
