/* Turns a row of published kernels (columns of measured_kernels.csv) into a request to the cost
 * model. */
#ifndef TANDEM_CLI_ACCURACY_KERNEL_ROW_H
#define TANDEM_CLI_ACCURACY_KERNEL_ROW_H

#include "cli/accuracy/accuracy.h"
#include "sim/compute/kernels.h"

enum { KERNEL_ROW_DEVICES = 64, KERNEL_ROW_PRODUCTS = 4 };

/* Devices by their names in the file, loaded when first needed. */
typedef struct KernelDevices {
    Arena *arena;
    const char *name[KERNEL_ROW_DEVICES];
    Device device[KERNEL_ROW_DEVICES]; /* sms 0: the library has no device of this name */
    uint32_t n;
} KernelDevices;

/* The fitted constants of kernels; NULL: the device's own. */
typedef struct KernelFit {
    const GemmFit *gemm;
    const AttentionFit *attention[2]; /* forward, backward */
    const TrafficFit *traffic;
} KernelFit;

/* The kind of constants that predict a row; only these may be fitted to it. */
typedef enum KernelRowKind {
    KERNEL_ROW_products,
    KERNEL_ROW_attention,
    KERNEL_ROW_traffic,
    /* one time of kernels of several kinds, to which no constant is fitted */
    KERNEL_ROW_other,
} KernelRowKind;

/* A row's kernels, whose times are added up: products, attention, a kernel that moves memory, and
 * separate kernels that pass over memory. */
typedef struct KernelRow {
    const char *what; /* "gemm, 8 bits": the name under which errors are grouped */
    KernelRowKind kind;
    const Device *device;
    double measured_s;
    DType dtype;
    bool block;                             /* 8-bit numbers with scales by blocks */
    bool loops;                             /* the source repeated the product without a pause */
    double out_bytes;                       /* bytes moved for each number of a product's result */
    double product[KERNEL_ROW_PRODUCTS][3]; /* m, n, k; 0: none */
    double groups, repeats;                 /* products in one kernel; repetitions of the kernel */
    double scores; /* elements of a softmax that the kernel computes beside its product; 0: none */
    AttentionWork attention;  /* heads 0: none */
    bool forward, backward;   /* the passes of attention that the time includes */
    double times, times_full; /* number of attentions with this mask; number without a mask */
    double full_keys;         /* number of keys without a mask, as a fraction of attention.keys */
    TrafficWork traffic;      /* bytes 0: none */
    double bytes, n_kernels;  /* bytes and kernels of separate passes over memory */
} KernelRow;

/* Returns the library's GPU that a source calls `name`; NULL: it has none. */
const Device *kernel_row_device(KernelDevices *devices, const char *name);
/* Returns NULL, or the reason why the row cannot be predicted, such as "no such GPU in the
 * library". */
const char *kernel_row(KernelDevices *devices, const Csv *csv, uint32_t row, KernelRow *out);
double kernel_row_predicted_s(const KernelRow *row, const KernelFit *fit);

/* Does the work of kernel_row for kernels other than products and attention
 * (kernel_row_composite.c). Sets *known if `kernel` is such a kernel. */
const char *kernel_row_composite(const Csv *csv, uint32_t row, const char *kernel, KernelRow *out,
                                 bool *known);
/* Returns the number after "name=" in the cell `shape`; `otherwise` if there is none. */
double kernel_row_number(const char *shape, const char *name, double otherwise);
/* Returns the row's time. If the row states only a rate, returns the time of `flops` at this rate;
 * if only a bandwidth, the time of `bytes` at this bandwidth. NAN if it states none of these. */
double kernel_row_measured_s(const Csv *csv, uint32_t row, double flops, double bytes);

#endif
