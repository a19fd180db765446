/* The profile of another framework (scripts/runtimes), such as torchtitan: the kernels and host
 * times that the simulator charges for a plan under that framework, and how it allocates memory.
 *
 * Terms: the host is the CPU process that launches kernels on the device. A unit is a module whose
 * parameters are sharded together (FSDP). "Saved" tensors are those that autograd keeps for the
 * backward pass.
 */
#ifndef TANDEM_FRONT_RUNTIME_CONFIG_H
#define TANDEM_FRONT_RUNTIME_CONFIG_H

#include "planner/ir/op/op.h"

/* Which ops compile{} may fuse into one kernel. block: consecutive ops of one block, such as a
 * transformer layer. model: any consecutive ops. */
#define COMPILE_PERS(X) X(block) X(model)
typedef enum CompilePer {
#define X(name) COMPILE_##name,
    COMPILE_PERS(X)
#undef X
        COMPILE_PER_COUNT
} CompilePer;

/* The kernels that compute attention. flash2, flash3: FlashAttention-2 and -3. triton: the first
 * flash kernels in Triton, which can add a bias to the scores. unfused: a matrix product, a softmax
 * and a second product, each of which reads and writes the scores in memory. */
#define ATTENTION_KERNELS(X) X(flash2) X(flash3) X(cudnn) X(triton) X(unfused)
typedef enum AttentionKernel {
#define X(name) ATTENTION_##name,
    ATTENTION_KERNELS(X)
#undef X
        ATTENTION_tandem, /* the kernels of Tandem's own executor; a profile cannot name them */
    ATTENTION_KERNEL_COUNT
} AttentionKernel;

/* Kernels bound by memory traffic; each has its own achieved fraction of the memory bandwidth. any:
 * some other kernel, which achieves the fraction of large copies. The others are named after their
 * source: PyTorch's elementwise kernels; vLLM's gated activation and norm; the norms of cuDNN and
 * of PyTorch; Triton's kernels, written by hand or generated, and these can also write 8-bit
 * operands. */
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

/* The kind of memory that a framework's log reports. allocated: live tensors. reserved: everything
 * that the caching allocator holds. process: the whole process, with CUDA context, libraries and
 * communicators. */
#define MEMORY_KINDS(X) X(reserved) X(allocated) X(process)
typedef enum MemoryKind {
#define X(name) MEMORY_##name,
    MEMORY_KINDS(X)
#undef X
        MEMORY_KIND_COUNT
} MemoryKind;

/* The rank whose peak memory the framework's log prints. most: the rank that needs the most. first,
 * last: a rank of the first (last) pipeline stage. */
#define MEMORY_RANKS(X) X(most) X(first) X(last)
typedef enum MemoryRank {
#define X(name) MEMORY_RANK_##name,
    MEMORY_RANKS(X)
#undef X
        MEMORY_RANK_COUNT
} MemoryRank;

/* In which passes the outputs of an op reuse the memory of its inputs. */
typedef enum InPlace { IN_PLACE_never, IN_PLACE_backward, IN_PLACE_always } InPlace;

/* The cost of one of Tandem's ops in the framework, if the op is not compiled. One framework module
 * may correspond to several of Tandem's ops, or the other way round. */
typedef struct RuntimeOp {
    /* kernels that the host launches for this op; 0: its work is done in another op's kernel */
    double kernels;
    /* further PyTorch calls of this op, each of which launches a kernel on few bytes. The host
     * needs Runtime.call_s for each, not kernel_s, because no Python module is entered */
    double calls;
    /* memory traffic of the op's kernels / traffic of reading each input and writing each output
     * once */
    double passes;
    /* bytes that stay allocated until the op's gradient has run, for each element of the op's
     * largest argument, in addition to the tensors that Tandem's op keeps */
    double saved;
    /* bytes that are allocated only while the op runs, for each element of the op's largest
     * argument */
    double scratch;
    double tensors; /* number of equal tensors that make up `scratch` */
    /* for attention: bytes for each score (query x key), allocated as long as `saved` */
    double scores;
    /* for experts: the weights of all experts are copied into one tensor, and this copy is saved */
    bool stacks;
    /* the output is not saved; each gradient op that needs the output computes it again */
    bool remade;
    bool keeps_bytes; /* the op saves its inputs in 8 bits */
    /* for one of Tandem's gradient ops that the framework does not have: it computes this gradient
     * from other tensors, so no input is saved for the op */
    bool reads_none;
    /* the output is never stored: the kernel of the op that reads it computes it on the fly */
    bool folded;
    /* a module stores a reference to this output until the next step, which keeps the output's
     * autograd graph alive. In a recomputed region, the tensors saved for that graph therefore stay
     * allocated */
    bool keeps_graph;
    /* the host waits for the result of the forward op before it launches anything else */
    bool waits;
    InPlace in_place; /* in which passes outputs overwrite inputs that no later op needs */
    /* for an op bound by memory: the kernel whose bandwidth `passes` is charged at */
    TrafficKernel kernel;
} RuntimeOp;

/* The contents of a profile, scripts/runtimes/NAME.lua. If the name is NULL, Tandem's own executor
 * runs the plan. All times with the suffix _s are seconds. Host times assume that one process
 * launches everything in program order. */
typedef struct Runtime {
    const char *name;
    AttentionKernel attention;
    double kernel_s;   /* host time to launch a kernel of an op that is not compiled */
    double call_s;     /* host time for each call counted in RuntimeOp.calls */
    double compiled_s; /* host time to launch a kernel of a compiled region */
    /* with tp > 1: additional host time for each op, because its tensors are DTensors, whose layout
     * is checked and propagated */
    double tensor_s;
    double collective_s; /* host time to launch a collective */
    /* additional host time for each all-gather and each reduce-scatter of a sharded unit */
    double unit_s;
    double update_s;     /* host time to launch the optimizer's update of a unit */
    double step_s;       /* time for which the device is idle between two steps */
    CompilePer compiled; /* what compile{} fuses; read only if is_compiled */
    bool is_compiled;    /* the plan lists compile{} */
    /* compile{} also compiles the loss function, although it is not part of the model */
    bool compiles_loss;
    /* delayed scaling: the scales of 8-bit tensors come from earlier steps, and weights are
     * quantised once a step */
    bool delayed;
    /* PyTorch's option expandable_segments: segments of the caching allocator grow in place */
    bool expandable;
    MemoryKind reports;      /* which memory the framework's logs report as the peak */
    MemoryRank reports_rank; /* the rank that prints this peak */
    /* DeepSpeed's reduce_bucket_size; 0: the framework is not DeepSpeed */
    double bucket_elements;
    double prefetch_elements, live_elements, reuse_elements,
        persist_elements; /* stage 3's prefetch_bucket_size, max_live_parameters,
                           * max_reuse_distance, param_persistence_threshold */
    /* bytes for each element of a weight's gradient that is first computed into a temporary tensor
     * and then added to the accumulated gradient. 0: the product accumulates directly */
    double added_bytes;
    /* the loss function multiplies by the head's weight itself, so this product is outside the
     * head's module (and its hooks) */
    bool head_outside;
    /* a module's inputs stay allocated until its call returns, because Python holds references */
    bool holds_arguments;
    /* the logits stay allocated until the next micro-batch has computed its own */
    bool holds_logits;
    /* attention repeats keys and values for each query head, and saves the repeated tensors */
    bool expands_kv;
    /* a unit's gradient is cast to the storage dtype of its parameters after it was reduced */
    bool casts_gradients;
    /* the optimizer's state is allocated in the first step, after the backward pass, not before */
    bool makes_states;
    /* at the start, each device holds the whole model before it is sharded (only without tp{},
     * pp{}) */
    bool starts_whole;
    /* for experts: the product pads every expert's rows to the fullest expert. Padding is added
     * after the exchange, so ranks exchange only real rows, and one rank may receive all of them */
    bool pads_late;
    /* the last stage keeps its output of every micro-batch until the end of the step */
    bool keeps_outputs;
    bool keeps_sent; /* every stage keeps the activations that it has sent to the next stage */
    /* a stage receives every micro-batch, forward and backward, into a tensor of its own that it
     * never frees. Gradients that it has sent stay allocated until the end of the step */
    bool keeps_received;
    /* activation offloading: the saved activations of this many blocks, the model's first, wait in
     * host memory for the backward pass */
    double offloaded_blocks;
    bool host_optimizer; /* the optimizer's state and the fp32 master weights are in host memory */
    /* gradients that each rank holds whole (ddp, ZeRO-1) are views of one buffer, which stays
     * allocated during the whole run */
    bool holds_gradients;
    /* set from the passes, not from the profile: gradients are reduce-scattered in each
     * micro-batch, so ranks do not hold them whole */
    bool scatters_gradients;
    /* bytes of one cuBLAS workspace in PyTorch's allocator; 0: PyTorch's default for the device */
    double workspace_bytes;
    /* number of cuBLAS workspaces, one for each thread that launches products; 0: one */
    double n_workspaces;
    /* bytes of another library's workspace (Transformer Engine) in PyTorch's allocator */
    double library_bytes;
    /* the product for a weight's gradient accumulates into a buffer, but also allocates a tensor of
     * the gradient's size */
    bool makes_gradients;
    /* with makes_gradients: one such tensor stays allocated for each distinct size of a block's
     * weights */
    bool keeps_returned;
    /* from its first product in a step to the end of the step, each weight has a 16-bit gradient
     * besides the one that the optimizer reads */
    bool two_gradients;
    /* bytes that the optimizer allocates during an update, for each element that it updates */
    double update_bytes;
    double master_bytes; /* bytes for each element of the optimizer's fp32 weights; 0: four */
    double moment_bytes; /* bytes for each element of a moment; 0: those of optimizer.state */
    /* LoRA: the model's own weights have no gradients and no optimizer state */
    bool frozen_base;
    /* a product next to a gather or a reduction over tp is cut into as many pieces as tp has ranks.
     * It then waits only for one piece of the communication */
    bool overlaps_tp;
    /* activations are stored as [sequence, batch, features], so gathers and reductions of the
     * sequence over tp need no copies */
    bool sequence_first;
    /* the framework computes attention over cp as a ring. For each rank of the ring, the host
     * launches this many kernels in the forward pass and in the backward pass; 0: one call, as
     * without cp */
    double ring_kernels, ring_grad_kernels;
    /* For experts: products wait during this fraction of an all-to-all's time, and overlap with the
     * rest. 0 means that they wait all the time. */
    double exchange_part;
    /* experts exchange tokens through a library with its own buffers (DeepEP), not through NCCL */
    bool own_exchange;
    bool keeps_gathered;  /* default of the option keep_gathered of tp{ sequence = true } */
    bool keeps_quantised; /* default of the option keep_quantised of float8{} */
    /* bytes for each element of a quantised activation, its share of a scale included; 0: those of
     * the plan's format */
    double quantised_bytes;
    /* additional host time to send or receive a message between pipeline stages */
    double message_s;
    /* additional host time for each forward or backward of a micro-batch on a stage */
    double pass_s;
    /* with one stage on each rank, the host waits until a message between stages has arrived */
    bool waits_messages;
    /* factor on all host times of the profile, for a slower or faster CPU; 0: 1 */
    double host_factor;
    /* time in which the data loader reads one sequence, in parallel with the previous step */
    double input_s;
    RuntimeOp op[OP_COUNT];
} Runtime;

#endif
