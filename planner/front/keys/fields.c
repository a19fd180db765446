/* The table of all keys that a plan may have: for each, its type, its range and its offset in the
 * Draft. The options of a pass are rows of its PassSpec instead. */
#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "planner/front/keys/fields.h"
#include "planner/front/parent.h"
#include "planner/front/pass_spec.h"

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define IN(member) offsetof(Draft, member)

/* Range of the rates of hardware [bytes/s or flop/s]: from 1 MB/s to far above any hardware. */
#define LEAST_RATE 1e6
#define MOST_RATE  1e15

static const double MOST = 9.0e15; /* up to here, a double represents every integer exactly */

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
    {"batch.channels", FIELD_i64, IN(config.channels), 1, 1 << 16, NULL},
    {"batch.targets", FIELD_i64, IN(config.targets), 1, 1 << 16, NULL},
    {"batch.height", FIELD_i64, IN(config.height), 1, 1 << 13, NULL},
    {"batch.width", FIELD_i64, IN(config.width), 1, 1 << 13, NULL},
    {"batch.denominator", FIELD_word, IN(config.denominator), 0, 0, denominators},

    {"mesh", FIELD_table, 0, 0, 0, NULL},
#define AXIS(name, ...) {"mesh." #name, FIELD_axis, IN(mesh[AXIS_##name]), -1, MOST_RANKS, NULL},
#include "planner/ir/axes.def"

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
    {"cluster.fabric.buffer_bytes", FIELD_f64, IN(config.cluster.fabric.buffer_bytes), 0, 1e12,
     NULL},
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
    {"cluster.device.light_power", FIELD_f64, IN(config.cluster.device.light_power), 0, 1, NULL},
    {"cluster.device.block_scales", FIELD_bool, IN(config.cluster.device.block_scales), 0, 0, NULL},
    {"cluster.device.exponentials", FIELD_f64, IN(config.cluster.device.exponentials), 0, 1024,
     NULL},
    {"cluster.device.launch_s", FIELD_f64, IN(config.cluster.device.launch_s), 0, 1, NULL},
    {"cluster.device.kernel_floor_s", FIELD_f64, IN(config.cluster.device.kernel_floor_s), 0, 1,
     NULL},
    {"cluster.device.usd_per_hour", FIELD_f64, IN(config.cluster.device.usd_per_hour), 0, 1e6,
     NULL},
    {"cluster.device.watts", FIELD_f64, IN(config.cluster.device.watts), 0, 1e5, NULL},
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
    {"runtime.call_s", FIELD_f64, IN(config.runtime.call_s), 0, 1, NULL},
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
    {"runtime.makes_states", FIELD_bool, IN(config.runtime.makes_states), 0, 0, NULL},
    {"runtime.starts_whole", FIELD_bool, IN(config.runtime.starts_whole), 0, 0, NULL},
    {"runtime.pads_late", FIELD_bool, IN(config.runtime.pads_late), 0, 0, NULL},
    {"runtime.keeps_outputs", FIELD_bool, IN(config.runtime.keeps_outputs), 0, 0, NULL},
    {"runtime.keeps_sent", FIELD_bool, IN(config.runtime.keeps_sent), 0, 0, NULL},
    {"runtime.keeps_received", FIELD_bool, IN(config.runtime.keeps_received), 0, 0, NULL},
    {"runtime.offloaded_blocks", FIELD_f64, IN(config.runtime.offloaded_blocks), 0, 1e6, NULL},
    {"runtime.host_optimizer", FIELD_bool, IN(config.runtime.host_optimizer), 0, 0, NULL},
    {"runtime.holds_gradients", FIELD_bool, IN(config.runtime.holds_gradients), 0, 0, NULL},
    {"runtime.workspace_bytes", FIELD_f64, IN(config.runtime.workspace_bytes), 0, 1e12, NULL},
    {"runtime.n_workspaces", FIELD_f64, IN(config.runtime.n_workspaces), 0, 64, NULL},
    {"runtime.library_bytes", FIELD_f64, IN(config.runtime.library_bytes), 0, 1e12, NULL},
    {"runtime.makes_gradients", FIELD_bool, IN(config.runtime.makes_gradients), 0, 0, NULL},
    {"runtime.keeps_returned", FIELD_bool, IN(config.runtime.keeps_returned), 0, 0, NULL},
    {"runtime.two_gradients", FIELD_bool, IN(config.runtime.two_gradients), 0, 0, NULL},
    {"runtime.update_bytes", FIELD_f64, IN(config.runtime.update_bytes), 0, 64, NULL},
    {"runtime.master_bytes", FIELD_f64, IN(config.runtime.master_bytes), 0, 4, NULL},
    {"runtime.moment_bytes", FIELD_f64, IN(config.runtime.moment_bytes), 0, 8, NULL},
    {"runtime.frozen_base", FIELD_bool, IN(config.runtime.frozen_base), 0, 0, NULL},
    {"runtime.overlaps_tp", FIELD_bool, IN(config.runtime.overlaps_tp), 0, 0, NULL},
    {"runtime.sequence_first", FIELD_bool, IN(config.runtime.sequence_first), 0, 0, NULL},
    {"runtime.ring_kernels", FIELD_f64, IN(config.runtime.ring_kernels), 0, 100, NULL},
    {"runtime.ring_grad_kernels", FIELD_f64, IN(config.runtime.ring_grad_kernels), 0, 100, NULL},
    {"runtime.exchange_part", FIELD_f64, IN(config.runtime.exchange_part), 0, 1, NULL},
    {"runtime.own_exchange", FIELD_bool, IN(config.runtime.own_exchange), 0, 0, NULL},
    {"runtime.keeps_quantised", FIELD_bool, IN(config.runtime.keeps_quantised), 0, 0, NULL},
    {"runtime.quantised_bytes", FIELD_f64, IN(config.runtime.quantised_bytes), 0, 8, NULL},
    {"runtime.keeps_gathered", FIELD_bool, IN(config.runtime.keeps_gathered), 0, 0, NULL},
    {"runtime.message_s", FIELD_f64, IN(config.runtime.message_s), 0, 1, NULL},
    {"runtime.pass_s", FIELD_f64, IN(config.runtime.pass_s), 0, 1, NULL},
    {"runtime.waits_messages", FIELD_bool, IN(config.runtime.waits_messages), 0, 0, NULL},
    {"runtime.host_factor", FIELD_f64, IN(config.runtime.host_factor), 0, 100, NULL},
    {"runtime.input_s", FIELD_f64, IN(config.runtime.input_s), 0, 100, NULL},
    {"runtime.reports_rank", FIELD_word, IN(config.runtime.reports_rank), 0, 0, memory_ranks},
    {"runtime.ops", FIELD_table, 0, 0, 0, NULL},
#define OP_FLAG(row, name)                                                                         \
    {                                                                                              \
        "runtime.ops." #row "." #name, FIELD_bool, IN(config.runtime.op[OP_##row].name), 0, 0,     \
            NULL                                                                                   \
    }
#define OF_OP(row)                                                                                 \
    {"runtime.ops." #row, FIELD_table, 0, 0, 0, NULL}, {"runtime.ops." #row ".kernels",            \
                                                        FIELD_f64,                                 \
                                                        IN(config.runtime.op[OP_##row].kernels),   \
                                                        0,                                         \
                                                        1e3,                                       \
                                                        NULL},                                     \
        {"runtime.ops." #row ".calls",                                                             \
         FIELD_f64,                                                                                \
         IN(config.runtime.op[OP_##row].calls),                                                    \
         0,                                                                                        \
         1e4,                                                                                      \
         NULL},                                                                                    \
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
        OP_FLAG(row, remade), OP_FLAG(row, keeps_bytes), OP_FLAG(row, reads_none),                 \
        OP_FLAG(row, stacks), OP_FLAG(row, keeps_graph), OP_FLAG(row, waits),                      \
        OP_FLAG(row, folded),                                                                      \
        {"runtime.ops." #row ".in_place",                                                          \
         FIELD_word,                                                                               \
         IN(config.runtime.op[OP_##row].in_place),                                                 \
         0,                                                                                        \
         0,                                                                                        \
         in_place_words},
#define COMPUTE(row, signature, flops, reduce, backward, flags) OF_OP(row)
#define CONTRACT(row, signature)                                OF_OP(row)
#define PRODUCT(row, signature)                                 OF_OP(row)
#include "planner/ir/op/ops.def"
#undef OP_FLAG
#undef OF_OP
};
enum { N_PLAN_FIELDS = sizeof plan_fields / sizeof *plan_fields };

bool field_is_table(FieldKind kind)
{
    return kind == FIELD_table || kind == FIELD_modules || kind == FIELD_ops ||
           kind == FIELD_styles || kind == FIELD_split;
}

static const FieldDoc field_docs[] = {
#define DOC(key, unit, text) {key, unit, text},
#include "planner/front/keys/fields_doc.def"
#undef DOC
#define AXIS(name, doc, ...) {"mesh." #name, "ranks", doc},
#include "planner/ir/axes.def"
};

/* True if `path` matches `pattern`, in which a `*` stands for any one word: "runtime.ops.*.calls".
 */
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

static const FieldDoc *doc_of_pass(const char *path)
{
    for (uint32_t p = 0; p < PASS_NAME_COUNT; p++) {
        if (strcmp(pass_specs[p]->name, path) == 0) return &pass_specs[p]->doc;
        for (const PassOption *o = pass_specs[p]->options; o && o->field.path; o++)
            if (strcmp(o->field.path, path) == 0) return &o->doc;
    }
    return NULL;
}

const FieldDoc *field_doc(const char *path)
{
    for (size_t i = 0; i < sizeof field_docs / sizeof *field_docs; i++)
        if (fits(field_docs[i].key, path)) return &field_docs[i];
    return doc_of_pass(path);
}

const FieldDoc *field_doc_at(uint32_t i)
{
    return i < sizeof field_docs / sizeof *field_docs ? &field_docs[i] : NULL;
}

const Field *field_at(bool of_pass, uint32_t i)
{
    for (uint32_t p = 0; of_pass && p < PASS_NAME_COUNT; p++)
        for (const PassOption *o = pass_specs[p]->options; o && o->field.path; o++)
            if (i-- == 0) return &o->field;
    if (of_pass) return NULL;
    /* row 0 is the plan itself */
    return i + 1 < N_PLAN_FIELDS ? &plan_fields[i + 1] : NULL;
}

/* number of slots of the hash table below; a power of two */
enum { N_SLOTS = 16384 };
static_assert(2 * N_PLAN_FIELDS <= N_SLOTS, "the index would be slow");
/* Hash table from the path of a plan's field to 1 + its index in plan_fields; 0: an empty slot.
 * Filled at the first look-up. */
static uint16_t slots[N_SLOTS];
static pthread_once_t indexed = PTHREAD_ONCE_INIT;

static uint32_t slot_of(const char *path)
{
    uint32_t hash = 2166136261U;
    for (; *path != 0; path++) hash = (hash ^ (unsigned char)*path) * 16777619U;
    return hash % N_SLOTS;
}

static void make_index(void)
{
    for (uint16_t i = 0; i < N_PLAN_FIELDS; i++) {
        uint32_t at = slot_of(plan_fields[i].path);
        while (slots[at] != 0) at = (at + 1) % N_SLOTS;
        slots[at] = (uint16_t)(i + 1);
    }
}

const Field *field_of_plan(const char *path)
{
    pthread_once(&indexed, make_index);
    for (uint32_t at = slot_of(path); slots[at] != 0; at = (at + 1) % N_SLOTS)
        if (strcmp(plan_fields[slots[at] - 1].path, path) == 0) return &plan_fields[slots[at] - 1];
    return NULL;
}

bool field_number(const Config *config, const char *key, double *value, bool *whole)
{
    const Field *f = field_of_plan(key);
    static_assert(offsetof(Draft, config) == 0, "fields lie in the Draft, which begins with it");
    if (f == NULL) return false;
    if (f->offset + sizeof(int64_t) > sizeof *config)
        /* the field is stored in the Draft behind its Config, which is all that the caller has */
        return false;
    const char *at = (const char *)config + f->offset;
    int64_t wide;
    uint32_t narrow;
    *whole = f->kind == FIELD_i64 || f->kind == FIELD_u64 || f->kind == FIELD_u32;
    if (f->kind == FIELD_f64 || f->kind == FIELD_rate) {
        memcpy(value, at, sizeof *value);
    } else if (f->kind == FIELD_u32) {
        memcpy(&narrow, at, sizeof narrow);
        *value = narrow;
    } else if (*whole) {
        memcpy(&wide, at, sizeof wide);
        *value = (double)wide;
    } else {
        return false;
    }
    return true;
}

const Field *field_of_pass(const char *path)
{
    for (uint32_t p = 0; p < PASS_NAME_COUNT; p++)
        for (const PassOption *o = pass_specs[p]->options; o && o->field.path; o++)
            if (strcmp(o->field.path, path) == 0) return &o->field;
    return NULL;
}

/* Returns the last word of `path` if the words before it are `parent`: "tp" for "mesh.tp" below
 * "mesh". Otherwise returns NULL. */
static const char *key_below(const char *parent, const char *path)
{
    const size_t length = strlen(parent);
    if (path[0] == 0 || strncmp(path, parent, length) != 0) return NULL;
    const char *key = path + length;
    if (length > 0 && *key++ != '.') return NULL;
    return strchr(key, '.') != NULL || strcmp(key, "kind") == 0 ? NULL : key;
}

uint32_t field_siblings(const char *parent, bool of_pass, const char **names, uint32_t room)
{
    uint32_t found = 0;
    for (size_t i = 0; !of_pass && i < N_PLAN_FIELDS; i++) {
        const char *key = key_below(parent, plan_fields[i].path);
        if (key && found < room) names[found++] = key;
    }
    for (uint32_t p = 0; of_pass && p < PASS_NAME_COUNT; p++)
        for (const PassOption *o = pass_specs[p]->options; o && o->field.path; o++) {
            const char *key = key_below(parent, o->field.path);
            if (key && found < room) names[found++] = key;
        }
    return found;
}
