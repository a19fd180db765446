/* A row of published kernels (columns of measured_kernels.csv) as a question to the cost model. */
#ifndef TANDEM_CLI_KERNEL_ROW_H
#define TANDEM_CLI_KERNEL_ROW_H

#include "cli/accuracy.h"
#include "sim/kernels.h"

enum { KERNEL_ROW_DEVICES = 64, KERNEL_ROW_PRODUCTS = 4 };

/* Devices by the names that the file has for them, filled as they are needed. */
typedef struct KernelDevices {
    Arena *arena;
    const char *name[KERNEL_ROW_DEVICES];
    Device device[KERNEL_ROW_DEVICES]; /* sms 0: the library has none of this name */
    uint32_t n;
} KernelDevices;

/* What is fitted of kernels; NULL: the device's own. */
typedef struct KernelFit {
    const GemmFit *gemm;
    const AttentionFit *attention[2]; /* forward, backward */
} KernelFit;

/* Products or attention; and memory traffic beside them, in kernels of its own. */
typedef struct KernelRow {
    const char *what; /* "gemm, 8 bits": what errors are gathered under */
    const Device *device;
    double measured_s;
    DType dtype;
    bool block;                             /* 8 bits with scales by blocks */
    double product[KERNEL_ROW_PRODUCTS][3]; /* m, n, k; 0: none */
    AttentionWork attention;                /* heads 0: none */
    bool forward, backward;                 /* of attention: which are in the time */
    double bytes, n_kernels;                /* of passes over memory */
} KernelRow;

/* NULL, or why the row cannot be asked: "no such GPU in the library". */
const char *kernel_row(KernelDevices *devices, const Csv *csv, uint32_t row, KernelRow *out);
double kernel_row_predicted_s(const KernelRow *row, const KernelFit *fit);

#endif
