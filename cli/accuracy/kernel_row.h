/* Turns a row of published kernels into a question to the cost model. The columns are those of
 * measured_kernels.csv. */
#ifndef TANDEM_CLI_ACCURACY_KERNEL_ROW_H
#define TANDEM_CLI_ACCURACY_KERNEL_ROW_H

#include "cli/accuracy/accuracy.h"
#include "sim/compute/kernels.h"

enum { KERNEL_ROW_DEVICES = 64, KERNEL_ROW_PRODUCTS = 4 };

/* The devices that rows have named, by the names in the file. Each is loaded when a row first needs
 * it. */
typedef struct KernelDevices {
    Arena *arena;
    const char *name[KERNEL_ROW_DEVICES];
    Device device[KERNEL_ROW_DEVICES]; /* sms is 0 if the library has no device of this name */
    uint32_t n;
} KernelDevices;

/* Constants of kernels that a fit tries. NULL: the device's own constants. */
typedef struct KernelFit {
    const GemmFit *gemm;
    const AttentionFit *attention[2]; /* [0]: forward pass; [1]: backward pass */
    const TrafficFit *traffic;
} KernelFit;

/* The group of constants on which a row's prediction depends. A fit may fit only these constants to
 * the row. */
typedef enum KernelRowKind {
    KERNEL_ROW_products,
    KERNEL_ROW_attention,
    KERNEL_ROW_traffic,
    /* the time covers kernels of several groups, so no constant is fitted to it */
    KERNEL_ROW_other,
} KernelRowKind;

/* The kernels of one row, whose times are added up: products, attention, a kernel that moves
 * memory, and separate kernels that read and write memory. */
typedef struct KernelRow {
    /* name of the group in which the row's error counts, such as "gemm, 8 bits" */
    const char *what;
    KernelRowKind kind;
    const Device *device;
    double measured_s;
    DType dtype;
    /* operands are 8-bit numbers, and each block of them has a scale */
    bool block;
    /* the source repeated the product without a pause, so the device was hot */
    bool loops;
    /* bytes that the kernel moves for each element of a product's result */
    double out_bytes;
    double product[KERNEL_ROW_PRODUCTS][3]; /* m, n, k of each product; 0: no such product */
    /* number of products in one kernel; number of times that the kernel runs */
    double groups, repeats;
    /* elements of a softmax that the kernel computes together with its product; 0: none */
    double scores;
    AttentionWork attention; /* heads is 0 if the row has no attention */
    /* whether the time includes attention's forward pass, and its backward pass */
    bool forward, backward;
    /* number of attentions with the mask; number of attentions without a mask */
    double times, times_full;
    double full_keys;    /* keys of the attentions without a mask / attention.keys */
    TrafficWork traffic; /* bytes is 0 if there is no such kernel */
    /* bytes that separate kernels move, and the number of these kernels */
    double bytes, n_kernels;
} KernelRow;

/* Returns the GPU of the library that a source calls `name`, or NULL if the library has no such
 * GPU. */
const Device *kernel_row_device(KernelDevices *devices, const char *name);
/* Fills in `out` from a row. Returns NULL, or the reason why the row cannot be predicted, such as
 * "no such GPU in the library". */
const char *kernel_row(KernelDevices *devices, const Csv *csv, uint32_t row, KernelRow *out);
double kernel_row_predicted_s(const KernelRow *row, const KernelFit *fit);

#endif
