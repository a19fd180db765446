/* Proves properties of a lowered plan before anything runs. It reads the program and the global
 * graph, and shares no code with the passes. Each range of bytes has an abstract value: a 128-bit
 * hash of the graph's expression for its content, and the shape, layout, deal and dtype of the
 * content. The hash of a sum is the sum of the hashes of its terms. A gradient therefore has the
 * hash of the graph's gradient if, and only if, each contribution arrived exactly once. Their order
 * does not matter. */
#ifndef TANDEM_VERIFY_VERIFY_H
#define TANDEM_VERIFY_VERIFY_H

#include "planner/ir/plan.h"

enum {
    VERIFY_structure = 1, /* indices, counts, bounds and dtypes are right; arguments and streams are
                             those that the rows of ops.def allow. Always runs first */
    VERIFY_layouts =
        2, /* every instruction computes the graph's value; no PARTIAL value is read as whole */
    VERIFY_scale = 4, /* every parameter's gradient is divided by the global tokens exactly once;
                       * the norm counts each element once */
    VERIFY_races = 8, /* if two instructions touch the same bytes and one of them writes, they are
                       * ordered; nothing is read before it is written */
    VERIFY_deadlock = 16, /* all members of a communicator issue the same sequence; ranks do not
                           * wait for each other in a circle */
    VERIFY_coverage = 32, /* each logical element of weights, gradients, states and batch is handled
                           * exactly once; recomputation changes no state */
    VERIFY_redundant = 64, /* communication whose result is unused or already present (warning) */
    VERIFY_metadata = 128, /* statements of the plan about itself are true: the step's sizes, axes,
                            * units, categories of buffers */
    VERIFY_all = 255,
    /* for tests: visit every layer and every instruction. Normally equal ones are visited once
     * (copies/, twins.h); reports are the same either way */
    VERIFY_in_full = 256
};
/* Reports every violation (rule ids "verify-layout", "verify-scale", "verify-race",
 * "verify-read-before-write", "verify-deadlock", "verify-sequence", "verify-coverage",
 * "verify-purity", "verify-dtype", "verify-metadata", "verify-structure", "verify-segments",
 * "verify-tiles", "verify-redundant") with its instruction (program, pc, op, origin's script:line).
 * For deadlocks it also names the ranks and the instruction for which each rank waits. Faults are
 * FAULT_internal (our own passes made the plan) or, with `user_plan`, FAULT_input.
 */
bool verify_plan(const Plan *plan, uint32_t proofs, bool user_plan, Diag *d);
/* verify_fit compares the peak bytes of each program with the memory of a device. It also compares
 * the host bytes of all ranks of a node with the host memory of a node. Reports FAULT_infeasible:
 * "does-not-fit" with the worst rank, "host-does-not-fit" with the worst node. */
typedef struct Capacity {
    uint64_t device_bytes, reserved_bytes; /* bytes of a device; the part of these bytes that no
                                            * plan may use */
    uint64_t host_bytes;                   /* the host memory of a node in bytes; 0: unknown, no
                                              limit */
    uint32_t devices_per_node;             /* the number of devices of a node; 0: all ranks are on
                                              one node */
} Capacity;
/* Returns the bytes of a device that a plan may use. */
static inline uint64_t usable_bytes(uint64_t device_bytes, uint64_t reserved_bytes)
{
    return device_bytes > reserved_bytes ? device_bytes - reserved_bytes : 0;
}
bool verify_fit(const Plan *plan, const Capacity *c, Diag *d);
/* Returns the largest host memory [bytes] that the ranks of one node need; *node is that node. */
uint64_t plan_host_bytes(const Plan *plan, uint32_t devices_per_node, uint32_t *node);

#endif
