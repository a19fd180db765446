/* The options that only the CUDA backend has; BackendOptions.own points to them. options.def lists
 * the options that a user can set. */
#ifndef TANDEM_EXEC_CUDA_OPTIONS_H
#define TANDEM_EXEC_CUDA_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* How a step is turned into CUDA graphs. */
typedef enum CudaGraphs {
    /* whole for short programs, cut for long ones, and none if communications go through the
     * host */
    CUDA_GRAPHS_auto,
    CUDA_GRAPHS_whole, /* the whole step is one graph */
    CUDA_GRAPHS_cut,   /* three graphs: for the first micro-batch, for all inner ones, and for the
                          last */
    CUDA_GRAPHS_none
} CudaGraphs;

typedef enum CudaVia { CUDA_VIA_nccl, CUDA_VIA_host } CudaVia;

/* For each field, zero is the default. */
typedef struct CudaOptions {
    CudaGraphs graphs;
    uint32_t device; /* 1 + index of the device; 0: the device whose index is that of this rank on
                        its machine */
    /* several ranks use one GPU; NCCL is told that they are on different hosts */
    bool share_device;
    CudaVia via;           /* CUDA_VIA_host: communications go through the host and MPI instead of
                              NCCL */
    uint32_t whole_length; /* CUDA_GRAPHS_auto cuts programs with more instructions than this; 0
                              stands for 4000 */
    bool tf32;             /* products of fp32 numbers may round the numbers to 19 bits */
    bool cudnn; /* cuDNN computes attention if it accepts the call and, on Hopper, is the fastest */
    bool mma;   /* attention never uses the kernels for Hopper */
    const char *record; /* folder in which each rank records its position; NULL: none */
    /* seconds that other ranks wait for a rank that works on its CPU outside of a step; 0 stands
     * for the larger of 120 and timeout_s */
    double patience_s;
} CudaOptions;

#endif
