/* Measured kernels by shape: products and attention, as the simulator charges them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/accuracy.h"
#include "planner/front/front.h"
#include "sim/sim.h"

enum { MOST_DEVICES = 64 };

/* Devices by the names that the file has for them; filled as they are needed, in each process. */
typedef struct Devices {
    const char *name[MOST_DEVICES];
    Device device[MOST_DEVICES]; /* sms 0: the library has none of this name */
    uint32_t n;
    Arena *arena;
} Devices;

static const Device *find_device(Devices *devices, const char *name)
{
    for (uint32_t i = 0; i < devices->n; i++)
        if (strcmp(devices->name[i], name) == 0)
            return devices->device[i].sms > 0 ? &devices->device[i] : NULL;
    if (devices->n == MOST_DEVICES || strpbrk(name, "'\\\n") != NULL) return NULL;
    Diag d = diag_in(devices->arena);
    Config config;
    Graph graph;
    memset(&config, 0, sizeof config);
    memset(&graph, 0, sizeof graph);
    /* The smallest plan there is, only to read the cluster. */
    const char *code = arena_print(
        devices->arena,
        "local nn, e = require 'tandem.nn'\n"
        "e = nn.embedding(2, 2)\n"
        "return plan { cluster = require 'clusters.gpu' { gpu = '%s', devices_per_node = 1 },\n"
        "batch = { seq = 1 }, precision = { compute = 'fp32' }, model = nn.module { e = e,\n"
        "forward = function(m, x, y) return nn.cross_entropy(m.e(x), y) end } }\n",
        name);
    bool known = front_load_text(name, code, NULL, devices->arena, &config, &graph, &d);
    uint32_t i = devices->n++;
    devices->name[i] = name;
    if (known) devices->device[i] = config.cluster.device;
    return known ? &devices->device[i] : NULL;
}

/* fp16, bf16, "bf16->fp32", bfloat16, fp8, "fp8_e4m3", "fp8 (128x128/1x128 scales)" */
static DType dtype_of(const char *text)
{
    if (strncmp(text, "fp8", 3) == 0) return DT_e4m3;
    if (strncmp(text, "bf", 2) == 0) return DT_bf16;
    return strncmp(text, "fp16", 4) == 0 ? DT_f16 : DT_none;
}

/* The number after "name=" in a list of them; `otherwise` if there is none. */
static double shape_number(const char *shape, const char *name, double otherwise)
{
    size_t n = strlen(name);
    for (const char *at = strstr(shape, name); at != NULL; at = strstr(at + 1, name)) {
        bool begins = at == shape || at[-1] == ' ' || at[-1] == ',';
        if (begins && at[n] == '=') return strtod(at + n + 1, NULL);
    }
    return otherwise;
}

static double measured_s(const Csv *csv, uint32_t row, double flops)
{
    double us = csv_number(csv, row, "time_us"), tflops = csv_number(csv, row, "tflops");
    if (us > 0) return us * 1e-6;
    return tflops > 0 ? flops / (tflops * 1e12) : NAN;
}

static void score_gemm(const Csv *csv, const Device *device, const RowOut *out)
{
    double m = csv_number(csv, out->row, "M"), n = csv_number(csv, out->row, "N");
    double k = csv_number(csv, out->row, "K");
    DType dtype = dtype_of(csv_cell(csv, out->row, "dtype"));
    double s = measured_s(csv, out->row, 2 * m * n * k);
    if (!(m * n * k > 0) || !(s > 0))
        row_reason(out, "no sizes or no time");
    else if (dtype == DT_none || device->peak_flops[dtype] <= 0)
        row_reason(out, "the library has no rate of this dtype");
    else
        row_score(out, dtype == DT_e4m3 ? "gemm, 8 bits" : "gemm", s,
                  cost_gemm_s(device, dtype, 1, m, n, k));
}

/* TransformerEngine's sum over the four products of a layer, "h=4096 ff=16384 (QKV 12288), fprop".
 * With "autocast" in its notes, 8-bit operands are made first: read for the maximum, read and
 * written as they are and transposed, 6 bytes an element; the weights' gradient finds them made. */
static void score_layer(const Csv *csv, const Device *device, const RowOut *out)
{
    const char *shape = csv_cell(csv, out->row, "shape"), *notes = csv_cell(csv, out->row, "notes");
    const char *type = csv_cell(csv, out->row, "dtype"), *qkv = strstr(shape, "QKV ");
    double m = csv_number(csv, out->row, "M"), h = shape_number(shape, "h", 0);
    double ff = shape_number(shape, "ff", 0), three = qkv != NULL ? strtod(qkv + 4, NULL) : 3 * h;
    DType dtype = dtype_of(type);
    if (!(m * h * ff > 0) || strstr(type, "block") != NULL || device->peak_flops[dtype] <= 0) {
        row_reason(out, "no sizes, or scales by blocks");
        return;
    }
    const double sizes[4][2] = {{three, h}, {h, h}, {ff, h}, {h, ff}}; /* outputs, inputs */
    bool forward = strstr(shape, "fprop") != NULL, inputs = strstr(shape, "dgrad") != NULL;
    bool makes = dtype == DT_e4m3 && strstr(notes, "autocast") != NULL;
    double s = 0, flops = 0, made = 0;
    for (int i = 0; i < 4; i++) {
        double n = sizes[i][0], k = sizes[i][1];
        flops += 2 * m * n * k;
        s += forward  ? cost_gemm_s(device, dtype, 1, m, n, k)
             : inputs ? cost_gemm_s(device, dtype, 1, m, k, n)
                      : cost_gemm_s(device, dtype, 1, n, k, m);
        made += forward ? m * k + n * k : inputs ? m * n : 0;
    }
    if (makes)
        s += 6 * made / (device->hbm_bytes_per_s * device->memory_efficiency) +
             8 * device->kernel_floor_s;
    row_score(out, dtype == DT_e4m3 ? "gemm, 8 bits" : "gemm", measured_s(csv, out->row, flops), s);
}

static AttentionKernel family_of(const char *kernel)
{
    if (strstr(kernel, "FA3") != NULL) return ATTENTION_flash3;
    bool cudnn = strstr(kernel, "cudnn") != NULL || strstr(kernel, "cuDNN") != NULL;
    return cudnn ? ATTENTION_cudnn : ATTENTION_flash2;
}

/* Tables count the whole square of scores or its causal half; the notes say which. */
static void score_attention(const Csv *csv, const Device *device, const char *kernel,
                            const RowOut *out)
{
    const char *shape = csv_cell(csv, out->row, "shape"), *notes = csv_cell(csv, out->row, "notes");
    bool causal = strstr(shape, "causal") != NULL && strstr(shape, "causal=False") == NULL;
    /* FlashAttention's plots keep tokens x width: their rates hold for any number of heads */
    double b = shape_number(shape, "b", 1), heads = shape_number(shape, "hq", 32);
    double s = shape_number(shape, "s", shape_number(shape, "sq", 0));
    double head = shape_number(shape, "head_dim", shape_number(shape, "dqk", 0));
    double value = shape_number(shape, "dv", head);
    DType dtype = dtype_of(csv_cell(csv, out->row, "dtype"));
    bool backward = strstr(kernel, "bwd") != NULL, both = strstr(kernel, "fwd+bwd") != NULL;
    double square = 2 * b * heads * s * s * (head + value); /* forward, all scores */
    double useful = causal ? square / 2 : square;
    double part = both ? 3.5 : backward ? 2.5 : 1;
    bool told_whole = strstr(notes, "NON-CAUSAL FLOP") != NULL;
    double seconds = measured_s(csv, out->row, part * (told_whole ? square : useful));
    if (!(square > 0) || !(seconds > 0) || shape_number(shape, "window", 0) > 0) {
        row_reason(out, "no sizes, no time, or a window");
        return;
    }
    if (dtype == DT_none || device->peak_flops[dtype] <= 0) {
        row_reason(out, "the library has no rate of this dtype");
        return;
    }
    AttentionKernel family = family_of(kernel);
    double predicted = 0;
    if (!backward || both)
        predicted += cost_attention_s(device, dtype, family, useful, s, head, causal, false);
    if (backward)
        predicted += cost_attention_s(device, dtype, family, 2.5 * useful, s, head, causal, true);
    row_score(out,
              both       ? "attention, both"
              : backward ? "attention backward"
                         : "attention",
              seconds, predicted);
}

static void score_row(const Csv *csv, RowOut *out)
{
    static Devices devices; /* of this process */
    if (devices.arena == NULL) devices.arena = arena_new();
    const char *kernel = csv_cell(csv, out->row, "kernel");
    const Device *device = find_device(&devices, csv_cell(csv, out->row, "gpu"));
    if (device == NULL)
        row_reason(out, "no such GPU in the library");
    else if (strcmp(kernel, "gemm") == 0)
        score_gemm(csv, device, out);
    else if (strcmp(kernel, "gemm_te_layer_sum") == 0)
        score_layer(csv, device, out);
    else if (strncmp(kernel, "attention", 9) == 0)
        score_attention(csv, device, kernel, out);
    else
        row_reason(out, arena_print(devices.arena, "no model of '%s'", kernel));
}

bool score_kernels(Cli *cli, const Csv *csv, Scores *scores)
{
    return jobs_run(csv, 1, "kernel", score_row, cli, scores);
}
