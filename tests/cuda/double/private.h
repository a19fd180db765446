/* Shared by the files of the double. */
#ifndef TANDEM_TESTS_CUDA_DOUBLE_PRIVATE_H
#define TANDEM_TESTS_CUDA_DOUBLE_PRIVATE_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

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
    pid_t user; /* the process that uses the double; 0: none has yet */
    uint64_t seed, n_draws, memory;
    uint32_t queue; /* largest number of tasks that a stream holds; 0: as many as on a device */
    /* number of the stream that runs before all others (0: none); number of streams ever made */
    uint32_t first, n_streams;
    /* queues of the device: CUDA_DEVICE_MAX_CONNECTIONS at the first call */
    int64_t n_queues;
    bool loads_lazily; /* CUDA_MODULE_LOADING at the first call */
    /* a collective connects its ranks only when it is first used; NCCL_RUNTIME_CONNECT at the first
     * call of the double */
    bool connects_late;
    /* only one node of a graph runs at a time, in the order of the capture */
    bool serial;
    bool serial_drawn;              /* with `serial`: in a random order instead */
    int min_ctas, max_ctas, policy; /* settings that communicators must ask for */
    bool must_ask;
    bool no_windows; /* NCCL has no symmetric memory between these devices */
    int n_devices, capability, driver, current;
    bool same_uuid;
    const char *wrong; /* name of the op whose results are wrong; NULL: none */
    int64_t live[OBJECT_KINDS];
    cudaError_t last, lost; /* lost: a kernel has faulted, and nothing runs after it */
    double now_ms;          /* time on the devices' clock */
} World;
World *world(void);
Scripted double_script(const char *call); /* counts the call and returns its script */
const char *double_wrong_op(void);        /* the op whose results are to be wrong; NULL: none */
uint64_t double_draw(uint64_t below);     /* the next random number */
void *double_new(ObjectKind kind, size_t bytes);
void double_delete(ObjectKind kind, void *at);
/* An object that is destroyed while streams may still use it. CUDA would free it when the streams
 * are done; the double never frees it. */
typedef struct Buried {
    struct Buried *next;
} Buried;
void double_bury(ObjectKind kind, Buried *at);
/* Reports a use that CUDA leaves undefined, and ends the test. */
_Noreturn void double_misuse(const char *what);

/* Every function of the double begins with this macro. It counts the call, and returns an error if
 * the script requests one. */
#define CUDA_CALL(name)                                                                            \
    do {                                                                                           \
        Scripted scripted_ = double_script(#name);                                                 \
        if (scripted_.kind == SCRIPT_fail) return world()->last = (cudaError_t)scripted_.code;     \
        if (world()->lost) return world()->last = world()->lost;                                   \
    } while (0)

/* ---- memory.c ---- */
void *double_translate(const void *at); /* returns an address that the double may touch */
void double_fill(void *to, int value, uint64_t bytes); /* fills device memory */
/* double_memory_file returns the file that holds this process's device memory. double_memory_offset
 * returns the offset of an address in that file. */
bool double_is_pinned(const void *at);
void double_finish_all(void); /* runs all work that streams hold */
bool double_default_is_busy(void);
int double_memory_file(void);
uint64_t double_memory_offset(const void *at);
void double_memory_reset(void);
enum { DEVICE_FOLD = 1 }; /* all devices of a process share one range of addresses */
#define DEVICE_RANGE (UINT64_C(1) << 32)

/* ---- stream.c ---- */
typedef enum Progress {
    PROGRESS_none, /* the stream waits for something */
    PROGRESS_some,
    PROGRESS_done
} Progress;
/* A task of a stream. It is called again and again until it is done. `state` is memory filled with
 * zeros; each run of a captured task gets new state. */
typedef struct Task {
    Progress (*run)(struct Task *task, void *state);
    void (*release)(struct Task *task); /* called before the task itself is freed; NULL: nothing */
    size_t state_bytes;
    struct Task *next;
} Task;
void *double_task(size_t bytes, Progress (*run)(Task *task, void *state));
void double_free_task(Task *task);
void double_enqueue(cudaStream_t stream, Task *task); /* Adds the task to the stream, or captures
                                                       * it. */
/* Lets streams run until `done` returns true. Ends the test if that can never happen. */
void double_run_until(bool (*done)(void *self), void *self);
bool double_run_some(void); /* runs a few random tasks; returns false if all streams wait */
/* A kernel, or other work, that runs at its place in the stream on a copy of `args`. */
typedef void (*DoubleFunction)(void *args);
void double_launch(cudaStream_t stream, DoubleFunction run, const void *args, size_t bytes);
void double_streams_reset(void);
bool double_is_capturing(void);
cudaError_t double_spoil_capture(void); /* reports a call that a capture forbids */

struct CUevent_st {
    Buried buried;
    bool has_timing;
    uint64_t recorded, done; /* how many records were made so far, and how many of them are done */
    double ms;
    /* the graph in which the last record was captured, as number `node` - 1; NULL: it was not
     * captured */
    cudaGraph_t graph;
    uint32_t node;
};

struct CUstream_st {
    Task *head, *tail;
    uint32_t n_held, number;
    int priority;
    bool is_gone;                /* destroyed, but its work still runs */
    void *state;                 /* state of the task at the queue's head, once that has begun */
    cudaGraph_t graph;           /* the graph into which the stream is being captured; NULL: none */
    uint32_t last;               /* 1 + the number of this stream's last node */
    uint32_t waits[16], n_waits; /* nodes before its next node */
    struct CUstream_st *next;
};

/* ---- adapter.c ---- */
#ifdef TANDEM_KERNELS_CUDA_CUDA_H
CudaKernel double_kernel(OpKind op); /* the CPU's kernel, run when the stream reaches it */
/* How products use the library's double (cublas_stream.c). All NULL if the CPU's kernels compute
 * products (libraries.c). */
typedef struct DoubleProducts {
    CudaKernel (*run)(OpKind op);
    bool (*accepts)(OpKind op, const DType *dtype, uint32_t n_args);
    WorkspaceBytes workspace;
} DoubleProducts;
extern const DoubleProducts double_products;
/* How the double does the work of a kernel. The work runs when the kernel's stream reaches it, on
 * addresses that the host may use: by the CPU's kernels (kernels.c), or by the device's own
 * kernels, thread by thread (kernels_emulated.c). */
typedef struct DoubleKernels {
    WorkspaceBytes scratch;
    void (*run)(OpKind op, const KernelArgs *args, const CudaContext *cuda);
    /* NULL: the double has its own scratch. Otherwise programs must plan scratch, as for a
     * device. */
    bool (*accepts)(OpKind op, const DType *dtype, uint32_t n_args);
} DoubleKernels;
extern const DoubleKernels double_kernels;
#endif

/* ---- graph.c ---- */
typedef struct GraphNode {
    Task *task;
    uint32_t n_before, before[17]; /* nodes that it follows: 1 + index */
} GraphNode;
struct CUgraph_st {
    Arena *arena;
    LIST(GraphNode) nodes;
    cudaStream_t origin;
    bool is_spoilt;
    bool has_priorities; /* its kernels were captured from streams with different priorities */
    uint32_t users;      /* how many objects refer to it: the graph itself and its executables */
};
void double_leave_capture(cudaGraph_t graph); /* ends the capture of all its streams */
/* task NULL: a node without work, such as an event */
void double_capture(cudaStream_t stream, Task *task);

#endif
