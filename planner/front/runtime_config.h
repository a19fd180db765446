/* How another framework executes a plan, from its profile (scripts/runtimes): the kernels and host
 * times that the simulator charges, and the way in which it allocates memory. */
#ifndef TANDEM_FRONT_RUNTIME_CONFIG_H
#define TANDEM_FRONT_RUNTIME_CONFIG_H

#include "planner/ir/op/op.h"

/* The ops that compile{} may fuse. block: ops of one block. model: any consecutive ops. */
#define COMPILE_PERS(X) X(block) X(model)
typedef enum CompilePer {
#define X(name) COMPILE_##name,
    COMPILE_PERS(X)
#undef X
        COMPILE_PER_COUNT
} CompilePer;

/* triton: the first flash kernels written in Triton, with a bias added to the scores. unfused: a
 * product, a softmax and a second product, which write the scores to memory and read them back. */
#define ATTENTION_KERNELS(X) X(flash2) X(flash3) X(cudnn) X(triton) X(unfused)
typedef enum AttentionKernel {
#define X(name) ATTENTION_##name,
    ATTENTION_KERNELS(X)
#undef X
        ATTENTION_tandem, /* those of Tandem's executor; no profile names them */
    ATTENTION_KERNEL_COUNT
} AttentionKernel;

/* Kernels whose time is mostly memory traffic. any: charged at the rate of large copies. The other
 * names say which library's kernel it is: PyTorch's elementwise kernels; vLLM's gated activation
 * and norm; the norms of cuDNN and of PyTorch (eager, fused); Triton's, written by hand or
 * compiled, which can also make 8-bit operands. */
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

/* The memory that a log counts. allocated: live tensors. reserved: all that the allocator holds.
 * process: all memory of the process, with context, libraries and communicators. */
#define MEMORY_KINDS(X) X(reserved) X(allocated) X(process)
typedef enum MemoryKind {
#define X(name) MEMORY_##name,
    MEMORY_KINDS(X)
#undef X
        MEMORY_KIND_COUNT
} MemoryKind;

/* The rank whose peak the framework's log prints: the rank that needs the most, or a rank of the
 * first or the last stage. */
#define MEMORY_RANKS(X) X(most) X(first) X(last)
typedef enum MemoryRank {
#define X(name) MEMORY_RANK_##name,
    MEMORY_RANKS(X)
#undef X
        MEMORY_RANK_COUNT
} MemoryRank;

/* The framework's kernels for one of Tandem's ops, if the op is not compiled. */
typedef enum InPlace { IN_PLACE_never, IN_PLACE_backward, IN_PLACE_always } InPlace;

typedef struct RuntimeOp {
    double kernels; /* number of kernels that the host launches; 0: the op is part of another
                     * kernel */
    double passes;  /* memory traffic, as a multiple of reading inputs and writing outputs once */
    /* bytes for each element of the op's largest argument, allocated until its gradient op has run.
     * They come in addition to the tensors that Tandem's op keeps */
    double saved;
    double scratch; /* bytes for each element, allocated only while the op runs */
    double tensors; /* number of equal tensors in `scratch` */
    double scores;  /* attention: bytes saved for each score, alive as long as `saved` */
    /* experts: the op multiplies by a stacked copy of their weights, which is also saved */
    bool stacks;
    bool remade;      /* its output is not saved: the backward ops that read it compute it again */
    bool keeps_bytes; /* its inputs are saved in 8 bits */
    bool reads_none;  /* the framework has no op for this gradient, so nothing is kept for it */
    /* its output is never a tensor: the op that reads it computes it inside its kernel */
    bool folded;
    /* a module keeps its output and the output's autograd graph until the next step. In a
     * recomputed region, the tensors that autograd saved for the output then stay allocated */
    bool keeps_graph;
    bool waits;       /* forward: the host reads the result before it issues anything else */
    InPlace in_place; /* its outputs reuse the memory of inputs that no later op needs */
    /* the kind of kernel, if it is bound by memory; `passes` is then charged at this kernel's
     * rate */
    TrafficKernel kernel;
} RuntimeOp;

/* A profile: scripts/runtimes/NAME.lua. name NULL: Tandem's own executor. Host times assume one
 * process that issues everything in program order. */
typedef struct Runtime {
    const char *name;
    AttentionKernel attention;
    double kernel_s;   /* time to issue a kernel of an eager op */
    double compiled_s; /* time to issue a kernel of a compiled region */
    /* additional time for each op if tp > 1, because its tensors carry a layout */
    double tensor_s;
    double collective_s; /* time to issue a collective */
    double unit_s;       /* additional time for each gather and each reduction of sharded units */
    double update_s;     /* time to issue the update of a unit */
    double step_s;       /* time between steps, during which the device idles */
    CompilePer compiled; /* the extent of compilation; read only if is_compiled */
    bool is_compiled;    /* the plan has compile{} */
    /* compile{} also compiles the loss, which is a function outside the model */
    bool compiles_loss;
    /* 8-bit scales come from past steps, and weights are quantised once a step */
    bool delayed;
    bool expandable;         /* the allocator's segments grow in place (expandable segments) */
    MemoryKind reports;      /* the memory that the framework's logs report as the peak */
    MemoryRank reports_rank; /* the rank whose peak the logs report */
    double bucket_elements;  /* DeepSpeed's ZeRO: reduce_bucket_size; 0: not DeepSpeed */
    double prefetch_elements, live_elements, reuse_elements,
        persist_elements; /* stage 3's prefetch_bucket_size, max_live_parameters,
                           * max_reuse_distance, param_persistence_threshold */
    /* bytes for each element of a weight's gradient: a product writes a temporary tensor that is
     * then added to the gradient; 0: products accumulate directly */
    double added_bytes;
    bool head_outside;    /* the loss reads the head's weight outside the head's module */
    bool holds_arguments; /* Python keeps a module's arguments alive until the call returns */
    bool holds_logits;    /* Python keeps the logits until the next logits exist */
    /* attention repeats keys and values for each query head, and saves the copies */
    bool expands_kv;
    /* a reduced gradient of a sharded unit is cast to the dtype of its parameters at rest */
    bool casts_gradients;
    bool makes_states; /* the first step makes the optimizer's states, after its backward pass */
    bool starts_whole; /* without tp{} and pp{}, each device first holds the whole model */
    /* experts: each expert gets as many rows as the fullest expert, but only in the product; the
     * additional rows are padding. Ranks exchange only the chosen rows, and all of them may go to
     * one rank */
    bool pads_late;
    /* the last stage keeps the output of each micro-batch to the end of the step */
    bool keeps_outputs;
    bool keeps_sent; /* every stage keeps the activations that it sends forward */
    /* a stage receives each micro-batch, in both directions, into a permanent tensor for that
     * micro-batch. The gradients that the stage sends live to the end of the step */
    bool keeps_received;
    /* number of the model's first blocks whose saved activations are in host memory */
    double offloaded_blocks;
    bool host_optimizer; /* the optimizer's state and the fp32 weights are in host memory */
    /* gradients that ranks keep whole are in one buffer from the start of the run, also between
     * steps */
    bool holds_gradients;
    /* the plan's passes reduce gradients of sharded units in each micro-batch, so that ranks do not
     * keep them whole; found from the passes */
    bool scatters_gradients;
    /* bytes of cuBLAS's workspace, taken from the allocator; 0: PyTorch's default for the device */
    double workspace_bytes;
    double n_workspaces; /* number of workspaces: each thread that multiplies has its own; 0: one */
    double library_bytes; /* workspace of another library, also taken from the allocator */
    /* the product for a weight's gradient adds to the gradient's buffer, and also makes a tensor */
    bool makes_gradients;
    bool keeps_returned; /* with makes_gradients: one such tensor for each size of a block's weights
                            stays alive */
    double update_bytes; /* bytes for each updated element, held during the update */
    double master_bytes; /* bytes of each fp32 weight of the optimizer; 0: four */
    bool frozen_base;    /* LoRA: weights have no gradients and no optimizer state */
    /* a product next to a gather or a reduction over tp is cut into as many pieces as there are
     * ranks, and waits for only one piece */
    bool overlaps_tp;
    /* products wait for this fraction of an exchange between ranks of experts; 0: for all of it */
    double exchange_part;
    /* another library than NCCL exchanges tokens between ranks of experts, with its own buffers */
    bool own_exchange;
    bool keeps_gathered;  /* default of tp's keep_gathered if sequence is true */
    bool keeps_quantised; /* default of float8's keep_quantised */
    /* bytes of each number, with its part of a scale, of quantised activations; 0: as in the plan
     */
    double quantised_bytes;
    double message_s; /* additional host time for each message between stages */
    double pass_s;    /* additional host time for each pass of a micro-batch through a stage */
    /* the host waits for messages between stages, if each rank has one stage */
    bool waits_messages;
    double host_factor; /* multiplies the profile's host times, for another CPU; 0: 1 */
    double input_s;     /* time of the loader to read a sequence, while the previous step
                         * computes */
    RuntimeOp op[OP_COUNT];
} Runtime;

#endif
