/* A row of published kernels (columns of measured_kernels.csv) as a question to the cost model. */
#ifndef TANDEM_CLI_ACCURACY_KERNEL_ROW_H
#define TANDEM_CLI_ACCURACY_KERNEL_ROW_H

#include "cli/accuracy/accuracy.h"
#include "sim/compute/kernels.h"

enum { KERNEL_ROW_DEVICES = 64, KERNEL_ROW_PRODUCTS = 4 };

/* Devices by the names that the file has for them, filled as they are needed. */
typedef struct KernelDevices {
    Arena *arena;
    const char *name[KERNEL_ROW_DEVICES];
    Device device[KERNEL_ROW_DEVICES]; /* sms 0: the library has none of this name */
    uint32_t n;
} KernelDevices;

/* The fitted constants of kernels; NULL: the device's own. */
typedef struct KernelFit {
    const GemmFit *gemm;
    const AttentionFit *attention[2]; /* forward, backward */
    const TrafficFit *traffic;
} KernelFit;

/* By which group of constants a row is predicted, and which it may be fitted with. */
typedef enum KernelRowKind {
    KERNEL_ROW_products,
    KERNEL_ROW_attention,
    KERNEL_ROW_traffic,
    KERNEL_ROW_other, /* of several: predicted by what was fitted to the rest */
} KernelRowKind;

/* Times that are added up: products, attention, a kernel that moves memory, and passes over memory
 * in kernels of their own. */
typedef struct KernelRow {
    const char *what; /* "gemm, 8 bits": what errors are gathered under */
    KernelRowKind kind;
    const Device *device;
    double measured_s;
    DType dtype;
    bool block;                             /* 8 bits with scales by blocks */
    double product[KERNEL_ROW_PRODUCTS][3]; /* m, n, k; 0: none */
    double groups, repeats;   /* each product of so many in one kernel; and so often */
    double scores;            /* of a softmax that goes along with a product */
    AttentionWork attention;  /* heads 0: none */
    bool forward, backward;   /* of attention: which are in the time */
    double times, times_full; /* such attention, and such without a mask */
    double full_keys;         /* of the latter: keys, as a part of `attention`'s */
    TrafficWork traffic;      /* bytes 0: none */
    double bytes, n_kernels;  /* of passes over memory */
} KernelRow;

/* NULL, or why the row cannot be asked: "no such GPU in the library". */
const char *kernel_row(KernelDevices *devices, const Csv *csv, uint32_t row, KernelRow *out);
double kernel_row_predicted_s(const KernelRow *row, const KernelFit *fit);

/* Kernels besides products and attention (kernel_row_composite.c). NULL, or why not; *known: it is
 * one.
 */
const char *kernel_row_composite(const Csv *csv, uint32_t row, const char *kernel, KernelRow *out,
                                 bool *known);
/* The number after "name=" in a list of them; `otherwise` if there is none. */
double kernel_row_number(const char *shape, const char *name, double otherwise);
/* The row's time, or that of `flops` at its rate, or of `bytes` at its bandwidth; NAN. */
double kernel_row_measured_s(const Csv *csv, uint32_t row, double flops, double bytes);

#endif
