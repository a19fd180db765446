/* The cuda backend's own options, to which BackendOptions.own points. options.def lists the options
 * that a user can give. */
#ifndef TANDEM_EXEC_CUDA_OPTIONS_H
#define TANDEM_EXEC_CUDA_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* The ways to turn a step into CUDA graphs. */
typedef enum CudaGraphs {
    /* whole for short programs, otherwise cut; none if communication goes through the host */
    CUDA_GRAPHS_auto,
    CUDA_GRAPHS_whole, /* the step is one graph */
    CUDA_GRAPHS_cut,   /* three graphs: for the first, the inner and the last micro-batches */
    CUDA_GRAPHS_none
} CudaGraphs;

typedef enum CudaVia { CUDA_VIA_nccl, CUDA_VIA_host } CudaVia;

/* Zero is the default of each field. */
typedef struct CudaOptions {
    CudaGraphs graphs;
    uint32_t device; /* 1 + the device's number; 0: the local rank's device */
    /* several ranks on one GPU; NCCL is told that they are on different hosts */
    bool share_device;
    CudaVia via;           /* host: communications go through the host, over MPI, instead of NCCL */
    uint32_t whole_length; /* auto: programs with more instructions are cut; 0: 4000 instructions */
    bool tf32;             /* products of fp32 numbers may round the numbers to 19 bits */
    bool cudnn;            /* cuDNN computes attention if it accepts the call and is fastest */
    bool mma;              /* never use the Hopper-only attention kernels */
    const char *record;    /* a folder where each rank records its position; NULL: none */
    /* seconds that the other ranks wait for a rank that works on the CPU, outside a step; 0: the
     * larger of 120 s and timeout_s */
    double patience_s;
} CudaOptions;

#endif
