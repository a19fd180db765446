/* The profile of another framework (scripts/runtimes): which kernels and host times the simulator
 * charges for a plan, and how the framework allocates memory. */
#ifndef TANDEM_FRONT_RUNTIME_CONFIG_H
#define TANDEM_FRONT_RUNTIME_CONFIG_H

#include "planner/ir/op/op.h"

/* The ops that compile{} may fuse. block: only ops of the same block. model: any ops that follow
 * each other. */
#define COMPILE_PERS(X) X(block) X(model)
typedef enum CompilePer {
#define X(name) COMPILE_##name,
    COMPILE_PERS(X)
#undef X
        COMPILE_PER_COUNT
} CompilePer;

/* The kernels that compute attention. triton: the first flash kernels in Triton, which add a bias
 * to the scores. unfused: a product, a softmax and a second product, which write the scores to
 * memory and read them again. */
#define ATTENTION_KERNELS(X) X(flash2) X(flash3) X(cudnn) X(triton) X(unfused)
typedef enum AttentionKernel {
#define X(name) ATTENTION_##name,
    ATTENTION_KERNELS(X)
#undef X
        ATTENTION_tandem, /* the kernels of Tandem's own executor; a profile cannot name them */
    ATTENTION_KERNEL_COUNT
} AttentionKernel;

/* Kernels whose time is mostly the time of memory traffic. `any` is charged at the rate of large
 * copies. The other names say whose kernel it is: PyTorch's elementwise kernels; vLLM's gated
 * activation and norm; the norms of cuDNN and of PyTorch (eager, fused); Triton's kernels, written
 * by hand or generated, which can also write 8-bit operands. */
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

/* The passes in which the outputs of an op reuse the memory of its inputs. */
typedef enum InPlace { IN_PLACE_never, IN_PLACE_backward, IN_PLACE_always } InPlace;

/* The framework's kernels for one of Tandem's ops, if the op is not compiled. */
typedef struct RuntimeOp {
    /* kernels that the host launches for this op; 0: the op runs inside another op's kernel */
    double kernels;
    /* additional calls of PyTorch's functions that belong to this op, each of which launches a
     * kernel on few bytes. They do not belong to a Python module, so the host needs call_s for
     * each */
    double calls;
    /* memory traffic / traffic of reading each input and writing each output once */
    double passes;
    /* bytes for each element of the op's largest argument, allocated until the op's gradient has
     * run. Not counted: the tensors that Tandem's op keeps */
    double saved;
    /* bytes for each element of the op's largest argument, allocated only while the op runs */
    double scratch;
    double tensors; /* number of tensors of equal size that make up `scratch` */
    /* for attention: bytes saved for each score, and allocated as long as `saved` */
    double scores;
    /* for experts: the op multiplies by a copy of all experts' weights in one tensor, and saves
     * this copy */
    bool stacks;
    /* the output is not saved; the ops of the backward pass that read it compute it again */
    bool remade;
    bool keeps_bytes; /* the op saves its inputs in 8 bits */
    bool reads_none;  /* the framework has no op for this gradient, so no tensor is kept for it */
    /* the output never becomes a tensor: the op that reads it computes it inside its own kernel */
    bool folded;
    /* a module keeps a reference to this output until the next step, and with it the output's
     * autograd graph. In a recomputed region, the tensors that autograd saved for the output
     * therefore stay allocated */
    bool keeps_graph;
    /* in the forward pass, the host waits for the result before it launches anything else */
    bool waits;
    InPlace in_place; /* whether the outputs reuse the memory of inputs that no later op needs */
    /* for an op bound by memory: the kind of its kernel, whose rate applies to `passes` */
    TrafficKernel kernel;
} RuntimeOp;

/* The contents of a profile, scripts/runtimes/NAME.lua. If the name is NULL, Tandem's own executor
 * runs the plan. The host times assume one process that launches everything in the order of the
 * program. */
typedef struct Runtime {
    const char *name;
    AttentionKernel attention;
    double kernel_s;   /* host time to launch a kernel of an op that is not compiled */
    double call_s;     /* host time for each call counted in RuntimeOp.calls */
    double compiled_s; /* host time to launch a kernel of a compiled region */
    /* additional host time for each op if tp > 1, because its tensors then carry a
     * layout (DTensor) */
    double tensor_s;
    double collective_s; /* host time to launch a collective */
    /* additional host time for each gather and each reduction of a sharded unit */
    double unit_s;
    double update_s;     /* host time to launch the update of a unit */
    double step_s;       /* time between two steps during which the device does nothing */
    CompilePer compiled; /* which ops are compiled together; read only if is_compiled */
    bool is_compiled;    /* the plan lists compile{} */
    /* compile{} also compiles the loss function, which is not part of the model */
    bool compiles_loss;
    /* scales of 8-bit numbers come from earlier steps, and weights are quantised once in
     * each step */
    bool delayed;
    bool expandable;         /* the allocator's segments grow in place (expandable segments) */
    MemoryKind reports;      /* the memory that the framework's logs report as the peak */
    MemoryRank reports_rank; /* the rank whose peak the framework's logs report */
    /* for DeepSpeed's ZeRO: reduce_bucket_size; 0: the framework is not DeepSpeed */
    double bucket_elements;
    double prefetch_elements, live_elements, reuse_elements,
        persist_elements; /* stage 3's prefetch_bucket_size, max_live_parameters,
                           * max_reuse_distance, param_persistence_threshold */
    /* bytes for each element of a weight's gradient. Such a gradient is first a temporary tensor,
     * which is then added to the accumulated gradient. 0: products add to it directly */
    double added_bytes;
    /* the loss function multiplies by the head's weight itself, outside the head's module */
    bool head_outside;
    /* Python keeps a module's inputs allocated until the module's call returns */
    bool holds_arguments;
    /* Python keeps the logits allocated until the next micro-batch's logits exist */
    bool holds_logits;
    /* attention copies keys and values for each query head, and saves the copies */
    bool expands_kv;
    /* after the reduction, the gradient of a sharded unit is cast to the dtype in which its
     * parameters are stored */
    bool casts_gradients;
    /* the optimizer's state is allocated in the first step, after the backward pass */
    bool makes_states;
    /* without tp{} and pp{}, each device holds the whole model when the run starts */
    bool starts_whole;
    /* for experts: in the product, every expert gets as many rows as the fullest expert, and the
     * additional rows are padding. Ranks exchange only the chosen rows, without padding, so one
     * rank may receive all of them */
    bool pads_late;
    /* the last stage keeps the outputs of all micro-batches until the end of the step */
    bool keeps_outputs;
    bool keeps_sent; /* every stage keeps the activations that it has sent forward */
    /* a stage receives each micro-batch, in both directions, into a tensor that it never frees.
     * Gradients that the stage has sent stay allocated until the end of the step */
    bool keeps_received;
    /* number of the model's first blocks whose saved activations are kept in host memory */
    double offloaded_blocks;
    bool host_optimizer; /* the optimizer's state and the fp32 weights are kept in host memory */
    /* gradients that ranks hold whole are in one buffer, which stays allocated during the
     * whole run */
    bool holds_gradients;
    /* derived from the passes, not from the profile: gradients of sharded units are reduced in each
     * micro-batch, so ranks do not hold them whole */
    bool scatters_gradients;
    /* bytes of cuBLAS's workspace, which PyTorch's allocator provides; 0: PyTorch's default for the
     * device */
    double workspace_bytes;
    /* number of such workspaces: each thread that launches products has one; 0: one */
    double n_workspaces;
    /* bytes of another library's workspace, which PyTorch's allocator provides, too */
    double library_bytes;
    /* the product for a weight's gradient adds to the gradient's buffer, but also allocates a
     * tensor */
    bool makes_gradients;
    /* with makes_gradients: for each size of weight in a block, one such tensor stays allocated */
    bool keeps_returned;
    /* each weight has a 16-bit gradient besides the one that the optimizer reads, from its first
     * product in a step to the end of the step */
    bool two_gradients;
    double update_bytes; /* bytes for each element that is updated, allocated during the update */
    double master_bytes; /* bytes of each element of the optimizer's fp32 weights; 0: four */
    double moment_bytes; /* bytes of each element of each moment; 0: those of the plan's dtype */
    /* for LoRA: the model's weights have no gradients and no optimizer state */
    bool frozen_base;
    /* a product beside a gather or a reduction over tp is cut into as many parts as tp has ranks.
     * It waits only for the communication of one part */
    bool overlaps_tp;
    /* the outermost dimension of activations is the sequence, so tp's gathers and reductions of a
     * sequence need no copies */
    bool sequence_first;
    /* attention between ranks of cp is a ring. For each of them, the host issues this many kernels
     * in the forward and in the backward pass; 0: one call, as without cp */
    double ring_kernels, ring_grad_kernels;
    /* the fraction of an exchange between ranks of experts for which products wait; 0: the whole
     * exchange */
    double exchange_part;
    /* ranks of experts exchange tokens with a library other than NCCL, which has its own buffers */
    bool own_exchange;
    bool keeps_gathered;  /* default of the option keep_gathered of tp{} if `sequence` is true */
    bool keeps_quantised; /* default of the option keep_quantised of float8{} */
    /* bytes of each element of quantised activations, scale included; 0: as the plan says */
    double quantised_bytes;
    double message_s; /* additional host time for each message between pipeline stages */
    double pass_s;    /* additional host time for each micro-batch that passes through a stage */
    /* if each rank has one stage, the host waits until messages between stages have arrived */
    bool waits_messages;
    /* all host times of the profile are multiplied by this, for another CPU; 0: 1 */
    double host_factor;
    /* time of the data loader to read a sequence, while the previous step computes */
    double input_s;
    RuntimeOp op[OP_COUNT];
} Runtime;

#endif
