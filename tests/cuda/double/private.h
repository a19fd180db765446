/* Shared by the files of the double. */
#ifndef TANDEM_TESTS_CUDA_DOUBLE_PRIVATE_H
#define TANDEM_TESTS_CUDA_DOUBLE_PRIVATE_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdbool.h>
#include <stdint.h>

#include "planner/base/list.h"
#include "tests/cuda/double/double.h"

/* ---- script.c ---- */
typedef enum ScriptKind {
    SCRIPT_none,
    SCRIPT_fail,
    SCRIPT_async,
    SCRIPT_hang,
    SCRIPT_fault,
    SCRIPT_stays
} ScriptKind;
typedef struct Scripted {
    ScriptKind kind;
    int code;
} Scripted;
typedef enum ObjectKind {
    OBJECT_device,
    OBJECT_host,
    OBJECT_stream,
    OBJECT_event,
    OBJECT_graph,
    OBJECT_exec,
    OBJECT_comm,
    OBJECT_registration,
    OBJECT_KINDS
} ObjectKind;
typedef struct World {
    Arena *arena;
    uint64_t seed, n_draws, memory;
    uint32_t queue;     /* what a stream holds at most; 0: as a device */
    int64_t n_queues;   /* of the device, by CUDA_DEVICE_MAX_CONNECTIONS at the first call */
    bool loads_lazily;  /* CUDA_MODULE_LOADING, at the first call */
    bool connects_late; /* NCCL_RUNTIME_CONNECT, likewise: a collective connects when it is used */
    bool serial;        /* branches of a graph run one node at a time, as they were captured */
    bool serial_drawn;  /* ... in an order that luck draws */
    int min_ctas, max_ctas, policy; /* that communicators must ask for */
    bool must_ask;
    bool no_windows; /* NCCL has no symmetric memory between these devices */
    int n_devices, capability, driver, current;
    bool same_uuid;
    const char *wrong; /* an op */
    int64_t live[OBJECT_KINDS];
    cudaError_t last, lost; /* lost: a kernel has faulted; nothing runs any more */
    double now_ms;          /* of the devices' clock */
} World;
World *world(void);
Scripted double_script(const char *call); /* counts the call */
const char *double_wrong_op(void);        /* whose results are to be wrong; NULL: none */
uint64_t double_draw(uint64_t below);     /* the next random number */
void *double_new(ObjectKind kind, size_t bytes);
void double_delete(ObjectKind kind, void *at);
/* What streams still hold may be destroyed: it is gone once they are done with it, here never. */
typedef struct Buried {
    struct Buried *next;
} Buried;
void double_bury(ObjectKind kind, Buried *at);
_Noreturn void double_misuse(const char *what); /* what CUDA leaves undefined */

/* Every function begins with it. */
#define CUDA_CALL(name)                                                                            \
    do {                                                                                           \
        Scripted scripted_ = double_script(#name);                                                 \
        if (scripted_.kind == SCRIPT_fail) return world()->last = (cudaError_t)scripted_.code;     \
        if (world()->lost) return world()->last = world()->lost;                                   \
    } while (0)

/* ---- memory.c ---- */
void *double_translate(const void *at); /* where the double itself may touch that address */
/* The file that holds this process's device memory, and an address's place in it. */
bool double_is_pinned(const void *at);
void double_finish_all(void); /* what all streams hold runs */
bool double_default_is_busy(void);
int double_memory_file(void);
uint64_t double_memory_offset(const void *at);
void double_memory_reset(void);
enum { DEVICE_FOLD = 1 }; /* all devices of a process share one address range */
#define DEVICE_RANGE (UINT64_C(1) << 32)

/* ---- stream.c ---- */
typedef enum Progress {
    PROGRESS_none, /* it waits for something */
    PROGRESS_some,
    PROGRESS_done
} Progress;
/* What a stream does next, again and again until it is done. `state` is zeroed room that each run
 * of a captured task has anew. */
typedef struct Task {
    Progress (*run)(struct Task *task, void *state);
    void (*release)(struct Task *task); /* before the task itself is freed; NULL: nothing */
    size_t state_bytes;
    struct Task *next;
} Task;
void *double_task(size_t bytes, Progress (*run)(Task *task, void *state));
void double_free_task(Task *task);
void double_enqueue(cudaStream_t stream, Task *task); /* or captures it */
/* Lets streams run until `done` says so. Aborts when it never will. */
void double_run_until(bool (*done)(void *self), void *self);
void double_run_some(void); /* a few tasks, by luck */
/* A kernel, or whatever runs at its place in the stream, on a copy of `args`. */
typedef void (*DoubleFunction)(void *args);
void double_launch(cudaStream_t stream, DoubleFunction run, const void *args, size_t bytes);
void double_streams_reset(void);
bool double_is_capturing(void);
cudaError_t double_spoil_capture(void); /* a call that a capture forbids */

struct CUevent_st {
    Buried buried;
    bool has_timing;
    uint64_t recorded, done; /* generations */
    double ms;
    cudaGraph_t graph; /* its last record was captured, as node - 1 of this graph */
    uint32_t node;
};

struct CUstream_st {
    Task *head, *tail;
    uint32_t n_held;
    int priority;
    bool is_gone;                /* destroyed; what it holds runs all the same */
    void *state;                 /* of the head, once it has begun */
    cudaGraph_t graph;           /* it is being captured */
    uint32_t last;               /* 1 + the last node of this stream */
    uint32_t waits[16], n_waits; /* nodes that its next node follows */
    struct CUstream_st *next;
};

/* ---- adapter.c ---- */
#ifdef TANDEM_KERNELS_CUDA_CUDA_H
CudaKernel double_kernel(OpKind op); /* that of the CPU, where the stream gets to it */
/* Products through the library's double (cublas_stream.c), or by the CPU's kernels (libraries.c):
 * then all are NULL. */
typedef struct DoubleProducts {
    CudaKernel (*run)(OpKind op);
    bool (*accepts)(OpKind op, const DType *dtype, uint32_t n_args);
    WorkspaceBytes workspace;
} DoubleProducts;
extern const DoubleProducts double_products;
/* What a kernel does when its stream gets to it, on addresses that the host may use: the CPU's
 * kernels (kernels.c), or the device's own, thread by thread (kernels_emulated.c). */
typedef struct DoubleKernels {
    WorkspaceBytes scratch;
    void (*run)(OpKind op, const KernelArgs *args, const CudaContext *cuda);
} DoubleKernels;
extern const DoubleKernels double_kernels;
#endif

/* ---- graph.c ---- */
typedef struct GraphNode {
    Task *task;
    uint32_t n_before, before[17]; /* nodes that it follows, 1 + index */
} GraphNode;
struct CUgraph_st {
    Arena *arena;
    LIST(GraphNode) nodes;
    cudaStream_t origin;
    bool is_spoilt, has_priorities; /* its kernels come from streams of several */
    uint32_t users;                 /* the graph and its execs */
};
void double_leave_capture(cudaGraph_t graph);         /* all streams that are in it */
void double_capture(cudaStream_t stream, Task *task); /* NULL: a mark, as for an event */

#endif
