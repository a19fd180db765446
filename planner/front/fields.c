/* Every key that a plan may have: one row each, with its type, range and place in the Draft. */
#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "planner/front/fields.h"

#define WORDS(...)      ((const char *const[]){__VA_ARGS__, NULL})
#define IN(member)      offsetof(Draft, member)
#define IN_PASS(member) offsetof(PassConfig, member)

/* Rates of hardware: from a megabyte per second to beyond all that is built. */
#define LEAST_RATE 1e6
#define MOST_RATE  1e15

static const double MOST = 9.0e15; /* integers up to here are exact as doubles */

static const char *const denominators[] = {
#define X(name) #name,
    DENOMINATORS(X)
#undef X
        NULL};

static const char *const attention_kernels[] = {
#define X(name) #name,
    ATTENTION_KERNELS(X)
#undef X
        NULL};

static const char *const traffic_kernels[] = {
#define X(name) #name,
    TRAFFIC_KERNELS(X)
#undef X
        NULL};

static const char *const memory_kinds[] = {
#define X(name) #name,
    MEMORY_KINDS(X)
#undef X
        NULL};

static const char *const in_place_words[] = {"never", "backward", "always", NULL};
static const char *const memory_ranks[] = {
#define X(name) #name,
    MEMORY_RANKS(X)
#undef X
        NULL};

static const Field plan_fields[] = {
    {"", FIELD_table, 0, 0, 0, NULL},
    {"name", FIELD_text, IN(name), 0, 0, NULL},
    {"model", FIELD_table, 0, 0, 0, NULL},
    {"seed", FIELD_u64, IN(config.seed), 0, MOST, NULL},
    {"steps", FIELD_u32, IN(config.train_steps), 1, 1e9, NULL},
    {"data", FIELD_text, IN(config.data_file), 0, 0, NULL},
    {"original", FIELD_text, IN(config.original), 0, 0, NULL},
    {"init", FIELD_word, IN(init), 0, 0, WORDS("standard", "varied")},

    {"batch", FIELD_table, 0, 0, 0, NULL},
    {"batch.global", FIELD_i64, IN(config.global_batch), 1, 1 << 30, NULL},
    {"batch.micro", FIELD_i64, IN(config.micro_batch), 1, 1 << 20, NULL},
    {"batch.seq", FIELD_i64, IN(config.seq), 1, 1 << 26, NULL},
    {"batch.denominator", FIELD_word, IN(config.denominator), 0, 0, denominators},

    {"mesh", FIELD_table, 0, 0, 0, NULL},
#define X(name) {"mesh." #name, FIELD_axis, IN(mesh[AXIS_##name]), -1, MOST_RANKS, NULL},
    MESH_AXES(X)
#undef X

        {"mesh.ep_mode", FIELD_word, IN(config.ep_mode), 0, 0, WORDS("extra", "folded")},

    {"nccl", FIELD_table, 0, 0, 0, NULL},
    {"nccl.register", FIELD_word, IN(config.nccl.registration), 0, 0, nccl_registers},
    {"nccl.cta_policy", FIELD_word, IN(config.nccl.cta_policy), 0, 0, nccl_cta_policies},
    {"nccl.min_ctas", FIELD_u32, IN(config.nccl.min_ctas), 1, NCCL_MOST_CTAS, NULL},
    {"nccl.max_ctas", FIELD_u32, IN(config.nccl.max_ctas), 1, NCCL_MOST_CTAS, NULL},

    {"precision", FIELD_table, 0, 0, 0, NULL},
    {"precision.param", FIELD_dtype, IN(config.param), 0, 0, NULL},
    {"precision.compute", FIELD_dtype, IN(config.compute), 0, 0, NULL},
    {"precision.reduce", FIELD_dtype, IN(config.reduce), 0, 0, NULL},

    {"optimizer", FIELD_table, 0, 0, 0, NULL},
    {"optimizer.kind", FIELD_word, IN(config.optimizer.kind), 0, 0, WORDS("adamw", "sgd")},
    {"optimizer.lr", FIELD_f64, IN(config.optimizer.lr), 0, 1e6, NULL},
    {"optimizer.beta1", FIELD_f64, IN(config.optimizer.beta1), 0, 1, NULL},
    {"optimizer.beta2", FIELD_f64, IN(config.optimizer.beta2), 0, 1, NULL},
    {"optimizer.eps", FIELD_f64, IN(config.optimizer.eps), 0, 1, NULL},
    {"optimizer.rounding", FIELD_word, IN(config.optimizer.rounding), 0, 0,
     WORDS("nearest", "stochastic")},
    {"optimizer.state", FIELD_dtype, IN(config.optimizer.state), 0, 0, NULL},
    {"optimizer.weight_decay", FIELD_f64, IN(config.optimizer.weight_decay), 0, 1e3, NULL},
    {"optimizer.clip_norm", FIELD_f64, IN(config.optimizer.clip_norm), 0, 1e12, NULL},
    {"optimizer.warmup_steps", FIELD_i64, IN(config.optimizer.warmup_steps), 0, 1e9, NULL},
    {"optimizer.total_steps", FIELD_i64, IN(config.optimizer.total_steps), 0, 1e9, NULL},
    {"optimizer.min_lr_ratio", FIELD_f64, IN(config.optimizer.min_lr_ratio), 0, 1, NULL},

    {"parallel", FIELD_table, 0, 0, 0, NULL},

    {"cluster", FIELD_table, 0, 0, 0, NULL},
    {"cluster.name", FIELD_text, IN(config.cluster.name), 0, 0, NULL},
    {"cluster.nodes", FIELD_u32, IN(config.cluster.nodes), 1, MOST_RANKS, NULL},
    {"cluster.devices_per_node", FIELD_u32, IN(config.cluster.devices_per_node), 0, 1024, NULL},
    {"cluster.intra", FIELD_word, IN(config.cluster.intra), 0, 0,
     WORDS("nvswitch", "nvlink", "mesh", "pcie", "host")},
    {"cluster.pcie", FIELD_table, 0, 0, 0, NULL},
    {"cluster.pcie.sockets", FIELD_u32, IN(config.cluster.pcie.sockets), 0, 64, NULL},
    {"cluster.pcie.switches", FIELD_u32, IN(config.cluster.pcie.switches), 0, 64, NULL},
    {"cluster.pcie.socket_bytes_per_s", FIELD_rate, IN(config.cluster.pcie.socket_bytes_per_s),
     LEAST_RATE, MOST_RATE, NULL},
    {"cluster.pcie.peer", FIELD_word, IN(config.cluster.pcie.peer), 0, 0,
     WORDS("auto", "off", "switch", "socket", "node")},
    {"cluster.pcie.intel", FIELD_bool, IN(config.cluster.pcie.intel), 0, 0, NULL},
    {"cluster.intra_bytes_per_s", FIELD_f64, IN(config.cluster.intra_bytes_per_s), LEAST_RATE,
     MOST_RATE, NULL},
    {"cluster.host_link_bytes_per_s", FIELD_rate, IN(config.cluster.host_link_bytes_per_s),
     LEAST_RATE, MOST_RATE, NULL},
    {"cluster.host_memory_bytes", FIELD_u64, IN(config.cluster.host_memory_bytes), 0, 1e15, NULL},
    {"cluster.host_bytes_per_s", FIELD_rate, IN(config.cluster.host_bytes_per_s), LEAST_RATE,
     MOST_RATE, NULL},
    {"cluster.nics_per_node", FIELD_u32, IN(config.cluster.nics_per_node), 0, 1024, NULL},
    {"cluster.nic_bytes_per_s", FIELD_rate, IN(config.cluster.nic_bytes_per_s), LEAST_RATE,
     MOST_RATE, NULL},
    {"cluster.oversubscription", FIELD_f64, IN(config.cluster.oversubscription), 1, 1e6, NULL},
    {"cluster.collective_launch_s", FIELD_f64, IN(config.cluster.collective_launch_s), 0, 10, NULL},
    {"cluster.nodes_per_group", FIELD_u32, IN(config.cluster.nodes_per_group), 0, MOST_RANKS, NULL},
    {"cluster.group_oversubscription", FIELD_f64, IN(config.cluster.group_oversubscription), 1, 1e6,
     NULL},
    {"cluster.topology", FIELD_table, 0, 0, 0, NULL},
    {"cluster.topology.kind", FIELD_word, IN(config.cluster.topology.kind), 0, 0,
     WORDS("tree", "torus", "dragonfly")},
    {"cluster.topology.sizes", FIELD_table, 0, 0, 0, NULL},
    {"cluster.topology.sizes.1", FIELD_u32, IN(config.cluster.topology.sizes[0]), 0, 4096, NULL},
    {"cluster.topology.sizes.2", FIELD_u32, IN(config.cluster.topology.sizes[1]), 0, 4096, NULL},
    {"cluster.topology.sizes.3", FIELD_u32, IN(config.cluster.topology.sizes[2]), 0, 4096, NULL},
    {"cluster.topology.sizes.4", FIELD_u32, IN(config.cluster.topology.sizes[3]), 0, 4096, NULL},
    {"cluster.topology.groups", FIELD_u32, IN(config.cluster.topology.groups), 0, 4096, NULL},
    {"cluster.topology.routers", FIELD_u32, IN(config.cluster.topology.routers), 0, 1024, NULL},
    {"cluster.topology.nodes", FIELD_u32, IN(config.cluster.topology.nodes), 0, 1024, NULL},
    {"cluster.topology.ways_out", FIELD_u32, IN(config.cluster.topology.ways_out), 0, 1024, NULL},
    {"cluster.topology.link_bytes_per_s", FIELD_rate, IN(config.cluster.topology.link_bytes_per_s),
     LEAST_RATE, MOST_RATE, NULL},
    {"cluster.topology.way_out_bytes_per_s", FIELD_rate,
     IN(config.cluster.topology.way_out_bytes_per_s), LEAST_RATE, MOST_RATE, NULL},
    {"cluster.rings", FIELD_table, 0, 0, 0, NULL},
    {"cluster.rings.2", FIELD_u32, IN(config.cluster.rings[2]), 0, 64, NULL},
    {"cluster.rings.3", FIELD_u32, IN(config.cluster.rings[3]), 0, 64, NULL},
    {"cluster.rings.4", FIELD_u32, IN(config.cluster.rings[4]), 0, 64, NULL},
    {"cluster.rings.5", FIELD_u32, IN(config.cluster.rings[5]), 0, 64, NULL},
    {"cluster.rings.6", FIELD_u32, IN(config.cluster.rings[6]), 0, 64, NULL},
    {"cluster.rings.7", FIELD_u32, IN(config.cluster.rings[7]), 0, 64, NULL},
    {"cluster.rings.8", FIELD_u32, IN(config.cluster.rings[8]), 0, 64, NULL},
    {"cluster.fabric", FIELD_table, 0, 0, 0, NULL},
    {"cluster.fabric.name", FIELD_text, IN(config.cluster.fabric.name), 0, 0, NULL},
    {"cluster.fabric.message_s", FIELD_f64, IN(config.cluster.fabric.message_s), 0, 1, NULL},
    {"cluster.fabric.achieved", FIELD_f64, IN(config.cluster.fabric.achieved), 0, 1, NULL},
    {"cluster.fabric.ramp_s", FIELD_f64, IN(config.cluster.fabric.ramp_s), 0, 1, NULL},
    {"cluster.fabric.ramp_bytes", FIELD_f64, IN(config.cluster.fabric.ramp_bytes), 0, 1e15, NULL},
    {"cluster.fabric.spread_s", FIELD_f64, IN(config.cluster.fabric.spread_s), 0, 1, NULL},
    {"cluster.fabric.simple_only", FIELD_bool, IN(config.cluster.fabric.simple_only), 0, 0, NULL},
    {"cluster.fabric.no_nvls", FIELD_bool, IN(config.cluster.fabric.no_nvls), 0, 0, NULL},
    {"cluster.fabric.sharp", FIELD_bool, IN(config.cluster.fabric.sharp), 0, 0, NULL},
    {"cluster.cores_per_node", FIELD_u32, IN(config.cluster.cores_per_node), 0, 65536, NULL},
    {"cluster.is_local", FIELD_bool, IN(config.cluster.is_local), 0, 0, NULL},
    {"cluster.device", FIELD_table, 0, 0, 0, NULL},
    {"cluster.device.name", FIELD_text, IN(config.cluster.device.name), 0, 0, NULL},
    {"cluster.device.arch", FIELD_text, IN(config.cluster.device.arch), 0, 0, NULL},
    {"cluster.device.sms", FIELD_u32, IN(config.cluster.device.sms), 1, 65536, NULL},
    {"cluster.device.memory_bytes", FIELD_u64, IN(config.cluster.device.memory_bytes), 0, MOST,
     NULL},
    {"cluster.device.reserved_bytes", FIELD_u64, IN(config.cluster.device.reserved_bytes), 0, MOST,
     NULL},
    {"cluster.device.hbm_bytes_per_s", FIELD_f64, IN(config.cluster.device.hbm_bytes_per_s),
     LEAST_RATE, MOST_RATE, NULL},
    {"cluster.device.gemm_efficiency", FIELD_f64, IN(config.cluster.device.gemm_efficiency), 0.01,
     1, NULL},
    {"cluster.device.memory_efficiency", FIELD_f64, IN(config.cluster.device.memory_efficiency),
     0.01, 1, NULL},
    {"cluster.device.sustained", FIELD_f64, IN(config.cluster.device.sustained), 0.01, 1, NULL},
    {"cluster.device.launch_s", FIELD_f64, IN(config.cluster.device.launch_s), 0, 1, NULL},
    {"cluster.device.kernel_floor_s", FIELD_f64, IN(config.cluster.device.kernel_floor_s), 0, 1,
     NULL},
    {"cluster.device.usd_per_hour", FIELD_f64, IN(config.cluster.device.usd_per_hour), 0, 1e6,
     NULL},
    {"cluster.device.peak_flops", FIELD_table, 0, 0, 0, NULL},
#define X(name, bytes)                                                                             \
    {"cluster.device.peak_flops." #name,                                                           \
     FIELD_rate,                                                                                   \
     IN(config.cluster.device.peak_flops[DT_##name]),                                              \
     LEAST_RATE,                                                                                   \
     1e18,                                                                                         \
     NULL},
    DTYPES(X)
#undef X

        {"runtime", FIELD_table, 0, 0, 0, NULL},
    {"runtime.name", FIELD_text, IN(config.runtime.name), 0, 0, NULL},
    {"runtime.attention", FIELD_word, IN(config.runtime.attention), 0, 0, attention_kernels},
    {"runtime.kernel_s", FIELD_f64, IN(config.runtime.kernel_s), 0, 1, NULL},
    {"runtime.compiled_s", FIELD_f64, IN(config.runtime.compiled_s), 0, 1, NULL},
    {"runtime.tensor_s", FIELD_f64, IN(config.runtime.tensor_s), 0, 1, NULL},
    {"runtime.collective_s", FIELD_f64, IN(config.runtime.collective_s), 0, 1, NULL},
    {"runtime.unit_s", FIELD_f64, IN(config.runtime.unit_s), 0, 1, NULL},
    {"runtime.update_s", FIELD_f64, IN(config.runtime.update_s), 0, 1, NULL},
    {"runtime.step_s", FIELD_f64, IN(config.runtime.step_s), 0, 100, NULL},
    {"runtime.delayed", FIELD_bool, IN(config.runtime.delayed), 0, 0, NULL},
    {"runtime.expandable", FIELD_bool, IN(config.runtime.expandable), 0, 0, NULL},
    {"runtime.compiles_loss", FIELD_bool, IN(config.runtime.compiles_loss), 0, 0, NULL},
    {"runtime.reports", FIELD_word, IN(config.runtime.reports), 0, 0, memory_kinds},
    {"runtime.bucket_elements", FIELD_f64, IN(config.runtime.bucket_elements), 0, 1e15, NULL},
    {"runtime.prefetch_elements", FIELD_f64, IN(config.runtime.prefetch_elements), 0, 1e15, NULL},
    {"runtime.live_elements", FIELD_f64, IN(config.runtime.live_elements), 0, 1e15, NULL},
    {"runtime.reuse_elements", FIELD_f64, IN(config.runtime.reuse_elements), 0, 1e15, NULL},
    {"runtime.persist_elements", FIELD_f64, IN(config.runtime.persist_elements), 0, 1e15, NULL},
    {"runtime.added_bytes", FIELD_f64, IN(config.runtime.added_bytes), 0, 16, NULL},
    {"runtime.head_outside", FIELD_bool, IN(config.runtime.head_outside), 0, 0, NULL},
    {"runtime.holds_arguments", FIELD_bool, IN(config.runtime.holds_arguments), 0, 0, NULL},
    {"runtime.holds_logits", FIELD_bool, IN(config.runtime.holds_logits), 0, 0, NULL},
    {"runtime.expands_kv", FIELD_bool, IN(config.runtime.expands_kv), 0, 0, NULL},
    {"runtime.casts_gradients", FIELD_bool, IN(config.runtime.casts_gradients), 0, 0, NULL},
    {"runtime.starts_whole", FIELD_bool, IN(config.runtime.starts_whole), 0, 0, NULL},
    {"runtime.pads_late", FIELD_bool, IN(config.runtime.pads_late), 0, 0, NULL},
    {"runtime.keeps_outputs", FIELD_bool, IN(config.runtime.keeps_outputs), 0, 0, NULL},
    {"runtime.keeps_sent", FIELD_bool, IN(config.runtime.keeps_sent), 0, 0, NULL},
    {"runtime.keeps_received", FIELD_bool, IN(config.runtime.keeps_received), 0, 0, NULL},
    {"runtime.host_optimizer", FIELD_bool, IN(config.runtime.host_optimizer), 0, 0, NULL},
    {"runtime.holds_gradients", FIELD_bool, IN(config.runtime.holds_gradients), 0, 0, NULL},
    {"runtime.workspace_bytes", FIELD_f64, IN(config.runtime.workspace_bytes), 0, 1e12, NULL},
    {"runtime.reports_rank", FIELD_word, IN(config.runtime.reports_rank), 0, 0, memory_ranks},
    {"runtime.ops", FIELD_table, 0, 0, 0, NULL},
#define OF_OP(row)                                                                                 \
    {"runtime.ops." #row, FIELD_table, 0, 0, 0, NULL}, {"runtime.ops." #row ".kernels",            \
                                                        FIELD_f64,                                 \
                                                        IN(config.runtime.op[OP_##row].kernels),   \
                                                        0,                                         \
                                                        1e3,                                       \
                                                        NULL},                                     \
        {"runtime.ops." #row ".passes",                                                            \
         FIELD_f64,                                                                                \
         IN(config.runtime.op[OP_##row].passes),                                                   \
         0,                                                                                        \
         1e3,                                                                                      \
         NULL},                                                                                    \
        {"runtime.ops." #row ".saved",                                                             \
         FIELD_f64,                                                                                \
         IN(config.runtime.op[OP_##row].saved),                                                    \
         0,                                                                                        \
         1e3,                                                                                      \
         NULL},                                                                                    \
        {"runtime.ops." #row ".tensors",                                                           \
         FIELD_f64,                                                                                \
         IN(config.runtime.op[OP_##row].tensors),                                                  \
         1,                                                                                        \
         8,                                                                                        \
         NULL},                                                                                    \
        {"runtime.ops." #row ".scratch",                                                           \
         FIELD_f64,                                                                                \
         IN(config.runtime.op[OP_##row].scratch),                                                  \
         0,                                                                                        \
         1e3,                                                                                      \
         NULL},                                                                                    \
        {"runtime.ops." #row ".scores",                                                            \
         FIELD_f64,                                                                                \
         IN(config.runtime.op[OP_##row].scores),                                                   \
         0,                                                                                        \
         1e3,                                                                                      \
         NULL},                                                                                    \
        {"runtime.ops." #row ".kernel",                                                            \
         FIELD_word,                                                                               \
         IN(config.runtime.op[OP_##row].kernel),                                                   \
         0,                                                                                        \
         0,                                                                                        \
         traffic_kernels},                                                                         \
        {"runtime.ops." #row ".remade",                                                            \
         FIELD_bool,                                                                               \
         IN(config.runtime.op[OP_##row].remade),                                                   \
         0,                                                                                        \
         0,                                                                                        \
         NULL},                                                                                    \
        {"runtime.ops." #row ".stacks",                                                            \
         FIELD_bool,                                                                               \
         IN(config.runtime.op[OP_##row].stacks),                                                   \
         0,                                                                                        \
         0,                                                                                        \
         NULL},                                                                                    \
        {"runtime.ops." #row ".keeps_graph",                                                       \
         FIELD_bool,                                                                               \
         IN(config.runtime.op[OP_##row].keeps_graph),                                              \
         0,                                                                                        \
         0,                                                                                        \
         NULL},                                                                                    \
        {"runtime.ops." #row ".folded",                                                            \
         FIELD_bool,                                                                               \
         IN(config.runtime.op[OP_##row].folded),                                                   \
         0,                                                                                        \
         0,                                                                                        \
         NULL},                                                                                    \
        {"runtime.ops." #row ".in_place",                                                          \
         FIELD_word,                                                                               \
         IN(config.runtime.op[OP_##row].in_place),                                                 \
         0,                                                                                        \
         0,                                                                                        \
         in_place_words},
#define COMPUTE(row, signature, flops, reduce, backward, flags) OF_OP(row)
#define CONTRACT(row, signature)                                OF_OP(row)
#define PRODUCT(row, signature)                                 OF_OP(row)
#include "planner/ir/ops.def"
#undef OF_OP
};
enum { N_PLAN_FIELDS = sizeof plan_fields / sizeof *plan_fields };

static const char *const schedules[] = {
#define X(name, least, most, placement) #name,
    SCHEDULES(X)
#undef X
        NULL};

static const char *const strategies[] = {
#define X(name) #name,
    ZERO_STRATEGIES(X)
#undef X
        NULL};

static const char *const compile_pers[] = {
#define X(name) #name,
    COMPILE_PERS(X)
#undef X
        NULL};

static const char *const recipes[] = {
#define X(name) #name,
    FLOAT8_RECIPES(X)
#undef X
        NULL};

static const char *const cp_modes[] = {
#define X(name) #name,
    CP_MODES(X)
#undef X
        NULL};

static const Field pass_fields[] = {
    {"pp.schedule", FIELD_word, IN_PASS(pp.schedule), 0, 0, schedules},
    {"pp.chunks", FIELD_u32, IN_PASS(pp.chunks), 1, 64, NULL},
    {"pp.cap", FIELD_u32, IN_PASS(pp.cap), 1, 1 << 20, NULL},
    {"pp.csv", FIELD_text, IN_PASS(pp.csv), 0, 0, NULL},
    {"pp.placement", FIELD_word, IN_PASS(pp.placement), 0, 0, WORDS("any", "loop", "v")},
    {"pp.layers_per_stage", FIELD_u32, IN_PASS(pp.layers_per_stage), 1, 65536, NULL},
    {"pp.round", FIELD_word, IN_PASS(pp.round), 0, 0, WORDS("none", "up", "down")},
    {"pp.tied", FIELD_word, IN_PASS(pp.tied), 0, 0, WORDS("sum", "refuse")},
    {"pp.split", FIELD_table, 0, 0, 0, NULL},
    {"tp.sequence", FIELD_bool, IN_PASS(tp.sequence), 0, 0, NULL},
    {"tp.loss_parallel", FIELD_bool, IN_PASS(tp.loss_parallel), 0, 0, NULL},
    {"tp.keep_gathered", FIELD_bool, IN_PASS(tp.keep_gathered), 0, 0, NULL},
    {"tp.share_gathers", FIELD_bool, IN_PASS(tp.share_gathers), 0, 0, NULL},
    {"tp.sync_replicated_gradients", FIELD_bool, IN_PASS(tp.sync_replicated_gradients), 0, 0, NULL},
    {"tp.plan", FIELD_table, 0, 0, 0, NULL},
    {"tp.plan_only", FIELD_bool, IN_PASS(tp.plan_only), 0, 0, NULL},
    {"cp.mode", FIELD_word, IN_PASS(cp.mode), 0, 0, cp_modes},
    {"float8.recipe", FIELD_word, IN_PASS(float8.recipe), 0, 0, recipes},
    {"float8.fsdp_gather", FIELD_bool, IN_PASS(float8.fsdp_gather), 0, 0, NULL},
    {"float8.head", FIELD_bool, IN_PASS(float8.head), 0, 0, NULL},
    {"float8.skip_indivisible", FIELD_bool, IN_PASS(float8.skip_indivisible), 0, 0, NULL},
    {"float8.skip", FIELD_table, 0, 0, 0, NULL},
    {"float8.only", FIELD_table, 0, 0, 0, NULL},
    {"ac.mode", FIELD_word, IN_PASS(ac), 0, 0, WORDS("none", "full", "selective")},
    {"ac.every", FIELD_u32, IN_PASS(ac_every), 1, 65536, NULL},
    {"ac.alternate", FIELD_bool, IN_PASS(ac_alternate), 0, 0, NULL},
    {"ac.modules", FIELD_table, 0, 0, 0, NULL},
    {"ac.ops", FIELD_table, 0, 0, 0, NULL},
    {"fsdp2.units", FIELD_table, 0, 0, 0, NULL},
    {"fsdp2.reshard_after_forward", FIELD_reshard, IN_PASS(fsdp2), 1, MOST_RANKS, NULL},
    {"fsdp2.reshard_root", FIELD_bool, IN_PASS(fsdp2.reshard_root), 0, 0, NULL},
    {"fsdp2.reshard_last", FIELD_bool, IN_PASS(fsdp2.reshard_last), 0, 0, NULL},
    {"fsdp2.keep_gathered", FIELD_bool, IN_PASS(fsdp2.keep_gathered), 0, 0, NULL},
    {"fsdp2.offload", FIELD_offload, IN_PASS(fsdp2.offload), 0, 0, NULL},
    {"fsdp2.copy", FIELD_bool, IN_PASS(fsdp2.copy), 0, 0, NULL},
    {"fsdp2.over_ep", FIELD_bool, IN_PASS(fsdp2.over_ep), 0, 0, NULL},
    {"fsdp2.mp", FIELD_table, 0, 0, 0, NULL},
    {"fsdp2.mp.param", FIELD_dtype, IN_PASS(fsdp2.mp.param), 0, 0, NULL},
    {"fsdp2.mp.reduce", FIELD_dtype, IN_PASS(fsdp2.mp.reduce), 0, 0, NULL},
    {"fsdp2.mp.output", FIELD_dtype, IN_PASS(fsdp2.mp.output), 0, 0, NULL},
    {"fsdp2.mp.cast_forward_inputs", FIELD_bool, IN_PASS(fsdp2.mp.cast_forward_inputs), 0, 0, NULL},
    {"fsdp2.prefetch", FIELD_u32, IN_PASS(fsdp2.prefetch), 0, 64, NULL},
    {"fsdp2.defer_grad_sync", FIELD_bool, IN_PASS(fsdp2.defer_grad_sync), 0, 0, NULL},
    {"zero.strategy", FIELD_word, IN_PASS(zero.strategy), 0, 0, strategies},
    {"zero.prefetch", FIELD_u32, IN_PASS(zero.prefetch), 0, 64, NULL},
    {"compile.per", FIELD_word, IN_PASS(compile), 0, 0, compile_pers},
    {"zero.units", FIELD_table, 0, 0, 0, NULL},
    {"zero.bucket_size", FIELD_i64, IN_PASS(zero.bucket_size), 1, MOST, NULL},
    {"zero.disable_bucketing", FIELD_bool, IN_PASS(zero.disable_bucketing), 0, 0, NULL},
    {"zero.overlap_grad_reduce", FIELD_choice, IN_PASS(zero.overlap_grad_reduce), 0, 0, NULL},
    {"zero.overlap_param_gather", FIELD_choice, IN_PASS(zero.overlap_param_gather), 0, 0, NULL},
    {"zero.grad_reduce_in_fp32", FIELD_choice, IN_PASS(zero.grad_reduce_in_fp32), 0, 0, NULL},
    {"zero.preserve_fp32_weights", FIELD_choice, IN_PASS(zero.preserve_fp32_weights), 0, 0, NULL},
    {"zero.average_in_collective", FIELD_choice, IN_PASS(zero.average_in_collective), 0, 0, NULL},
    {"zero.calculate_per_token_loss", FIELD_choice, IN_PASS(zero.calculate_per_token_loss), 0, 0,
     NULL},
    {"zero.fsdp_double_buffer", FIELD_bool, IN_PASS(zero.fsdp_double_buffer), 0, 0, NULL},
    {"zero.nccl_ub", FIELD_bool, IN_PASS(zero.nccl_ub), 0, 0, NULL},
    {"zero.keep_fp8_transpose_cache", FIELD_choice, IN_PASS(zero.keep_fp8_transpose_cache), 0, 0,
     NULL},
    {"zero.check_for_nan_in_grad", FIELD_choice, IN_PASS(zero.check_for_nan_in_grad), 0, 0, NULL},
    {"zero.gather", FIELD_word, IN_PASS(zero.gather), 0, 0, WORDS("lazy", "eager")},
    {"tile.pieces", FIELD_u32, IN_PASS(tile.pieces), 2, 1024, NULL},
    {"ddp.bucket_mib", FIELD_f64, IN_PASS(ddp.bucket_mib), 1e-6, 1e6, NULL},
};
enum { N_PASS_FIELDS = sizeof pass_fields / sizeof *pass_fields };

static const Field *find(const Field *fields, size_t n, const char *path)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(fields[i].path, path) == 0) return &fields[i];
    return NULL;
}

static const FieldDoc field_docs[] = {
#define DOC(key, unit, text) {key, unit, text},
#include "planner/front/fields_doc.def"
#undef DOC
};

/* Does `path` have the words of `pattern`, of which a `*` is any one? */
static bool fits(const char *pattern, const char *path)
{
    for (;;) {
        size_t n = strcspn(pattern, "."), m = strcspn(path, ".");
        bool any = n == 1 && *pattern == '*';
        if (!any && (n != m || strncmp(pattern, path, n) != 0)) return false;
        if (pattern[n] != path[m]) return false;
        if (pattern[n] == 0) return true;
        pattern += n + 1;
        path += m + 1;
    }
}

const FieldDoc *field_doc(const char *path)
{
    for (size_t i = 0; i < sizeof field_docs / sizeof *field_docs; i++)
        if (fits(field_docs[i].key, path)) return &field_docs[i];
    return NULL;
}

const FieldDoc *field_doc_at(uint32_t i)
{
    return i < sizeof field_docs / sizeof *field_docs ? &field_docs[i] : NULL;
}

const Field *field_at(bool of_pass, uint32_t i)
{
    if (of_pass) return i < N_PASS_FIELDS ? &pass_fields[i] : NULL;
    return i + 1 < N_PLAN_FIELDS ? &plan_fields[i + 1] : NULL; /* the first is the plan itself */
}

const Field *field_of_plan(const char *path)
{
    return find(plan_fields, N_PLAN_FIELDS, path);
}

const Field *field_of_pass(const char *path)
{
    return find(pass_fields, N_PASS_FIELDS, path);
}

uint32_t field_siblings(const char *parent, bool of_pass, const char **names, uint32_t room)
{
    const Field *fields = of_pass ? pass_fields : plan_fields;
    size_t n = of_pass ? N_PASS_FIELDS : N_PLAN_FIELDS, length = strlen(parent);
    uint32_t found = 0;
    for (size_t i = 0; i < n; i++) {
        const char *path = fields[i].path;
        if (path[0] == 0 || strncmp(path, parent, length) != 0) continue;
        const char *key = path + length;
        if (length > 0 && *key++ != '.') continue;
        if (strchr(key, '.') != NULL || strcmp(key, "kind") == 0) continue;
        if (found < room) names[found++] = key;
    }
    return found;
}
