/* Turns a source's description of a kernel into its sizes. Sources differ in how they count FLOPs,
 * write shapes and divide a time. Only this file and kernel_row_composite.c know these
 * conventions. */
#define _GNU_SOURCE /* for strcasestr */
#include "cli/accuracy/kernel_row.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "planner/front/front.h"

const Device *kernel_row_device(KernelDevices *devices, const char *name)
{
    for (uint32_t i = 0; i < devices->n; i++)
        if (strcmp(devices->name[i], name) == 0)
            return devices->device[i].sms > 0 ? &devices->device[i] : NULL;
    if (devices->n == KERNEL_ROW_DEVICES || strpbrk(name, "'\\\n") != NULL) return NULL;
    Diag d = diag_in(devices->arena);
    Config config;
    Graph graph;
    memset(&config, 0, sizeof config);
    memset(&graph, 0, sizeof graph);
    /* Only a plan can name a device. So this text is a plan, as small as possible. */
    const char *code = arena_print(
        devices->arena,
        "local nn, e = require 'tandem.nn'\n"
        "e = nn.embedding(2, 2)\n"
        "local gpu = require 'tandem.gpus'.find '%s' or ''\n"
        "return plan { cluster = require 'clusters.gpu' { gpu = gpu, devices_per_node = 1 },\n"
        "batch = { seq = 1 }, precision = { compute = 'fp32' }, model = nn.module { e = e,\n"
        "forward = function(m, x, y) return nn.cross_entropy(m.e(x), y) end } }\n",
        name);
    bool known = front_load_text(name, code, NULL, devices->arena, &config, &graph, &d);
    uint32_t i = devices->n++;
    devices->name[i] = name;
    if (known) devices->device[i] = config.cluster.device;
    return known ? &devices->device[i] : NULL;
}

/* Returns the type of a kernel's operands, which is the first type in a text: fp16, "bf16->fp32",
 * torch.bfloat16, FP8, "fp8 (bf16 out)". Returns DT_none for 32-bit types, and for any text that
 * names integers or types of fewer than 8 bits. */
static DType dtype_of(const char *text)
{
    static const struct {
        const char *word;
        DType dtype;
    } words[] = {{"bf16", DT_bf16},    {"bfloat16", DT_bf16}, {"fp8", DT_e4m3},
                 {"float8", DT_e4m3},  {"e4m3", DT_e4m3},     {"fp16", DT_f16},
                 {"float16", DT_f16},  {"half", DT_f16},      {"fp32", DT_none},
                 {"float32", DT_none}, {"tf32", DT_none},     {"fp64", DT_none},
                 {"float64", DT_none}};
    static const char *const others[] = {"fp4", "float4", "e2m1", "nf4", "fp6", "int8", "int4"};
    const char *arrow = strstr(text, "->"), *first = NULL;
    const size_t n = arrow != NULL ? (size_t)(arrow - text) : strlen(text);
    char operands[256];
    if (n >= sizeof operands) return DT_none;
    snprintf(operands, sizeof operands, "%.*s", (int)n, text);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcasestr(operands, others[i]) != NULL) return DT_none;
    DType dtype = DT_none;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *at = strcasestr(operands, words[i].word);
        if (at == NULL || (first != NULL && at >= first)) continue;
        first = at;
        dtype = words[i].dtype;
    }
    return dtype;
}

/* Returns true if each block of 8-bit numbers has its own scale. */
static bool has_blocks(const char *dtype)
{
    return strcasestr(dtype, "block") != NULL || strstr(dtype, "128x128") != NULL ||
           strstr(dtype, "1x128") != NULL;
}

double kernel_row_number(const char *shape, const char *name, double otherwise)
{
    size_t n = strlen(name);
    for (const char *at = strstr(shape, name); at != NULL; at = strstr(at + 1, name)) {
        bool begins = at == shape || at[-1] == ' ' || at[-1] == ',';
        if (begins && at[n] == '=') return strtod(at + n + 1, NULL);
    }
    return otherwise;
}

double kernel_row_measured_s(const Csv *csv, uint32_t row, double flops, double bytes)
{
    double us = csv_number(csv, row, "time_us"), tflops = csv_number(csv, row, "tflops");
    double gbps = csv_number(csv, row, "GBps");
    if (us > 0) return us * 1e-6;
    if (flops > 0 && tflops > 0) return flops / (tflops * 1e12);
    return bytes > 0 && gbps > 0 ? bytes / (gbps * 1e9) : NAN;
}

/* Returns the bytes that a product moves for each element of its result. A plain product writes 16
 * or 32 bits. A product that adds to a gradient's buffer reads 32 bits and writes 32 bits. */
static double result_bytes(const Csv *csv, uint32_t row)
{
    if (strcmp(csv_cell(csv, row, "accumulate"), "1") == 0) return 8;
    return strstr(csv_cell(csv, row, "dtype"), "->fp32") != NULL ? 4 : 2;
}

static const char *read_gemm(const Csv *csv, uint32_t row, KernelRow *out)
{
    double m = csv_number(csv, row, "M"), n = csv_number(csv, row, "N");
    double k = csv_number(csv, row, "K");
    out->what = out->dtype == DT_e4m3 ? "gemm, 8 bits" : "gemm";
    out->measured_s = kernel_row_measured_s(csv, row, 2 * m * n * k, 0);
    out->product[0][0] = m;
    out->product[0][1] = n;
    out->product[0][2] = k;
    return m * n * k > 0 && out->measured_s > 0 ? NULL : "no sizes or no time";
}

/* Reads a row of TransformerEngine for the four products of a layer together: "h=4096 ff=16384 (QKV
 * 12288), fprop". If the notes say "autocast", the time includes quantising the operands. For this,
 * one kernel reads the 16-bit tensor to find its maximum. A second kernel reads it again and writes
 * two 8-bit copies, one of them transposed. Together they move 6 bytes for each element. A forward
 * product quantises two operands, and the gradient of its inputs one more. The gradient of its
 * weights reuses their copies. */
static const char *read_layer(const Csv *csv, uint32_t row, KernelRow *out)
{
    const char *shape = csv_cell(csv, row, "shape"), *qkv = strstr(shape, "QKV ");
    double m = csv_number(csv, row, "M"), h = kernel_row_number(shape, "h", 0);
    double ff = kernel_row_number(shape, "ff", 0),
           three = qkv != NULL ? strtod(qkv + 4, NULL) : 3 * h;
    if (!(m * h * ff > 0)) return "no sizes";
    const double sizes[KERNEL_ROW_PRODUCTS][2] = {{three, h}, {h, h}, {ff, h}, {h, ff}};
    bool forward = strstr(shape, "fprop") != NULL, inputs = strstr(shape, "dgrad") != NULL;
    bool makes = out->dtype == DT_e4m3 && strstr(csv_cell(csv, row, "notes"), "autocast") != NULL;
    /* The product has n_made quantised operands, which together have `made` elements. */
    double flops = 0, made = 0, n_made = 0;
    for (int i = 0; i < KERNEL_ROW_PRODUCTS; i++) {
        double n = sizes[i][0], k = sizes[i][1]; /* n: outputs of the linear layer; k: inputs */
        flops += 2 * m * n * k;
        out->product[i][0] = forward || inputs ? m : n;
        out->product[i][1] = forward ? n : k;
        out->product[i][2] = forward ? k : inputs ? n : m;
        made += forward ? m * k + n * k : inputs ? m * n : 0;
        n_made += forward ? 2 : inputs ? 1 : 0;
    }
    if (makes) {
        out->bytes = 6 * made;
        out->n_kernels = 2 * n_made;
    }
    out->what = out->dtype == DT_e4m3 ? "gemm, 8 bits" : "gemm";
    out->measured_s = kernel_row_measured_s(csv, row, flops, 0);
    return NULL;
}

/* Reads the family of an attention kernel from the words of its name, such as
 * "attention_fwd+bwd_FA2" or "attention_FA3_fwd". A name without a family means FlashAttention-2.
 * Returns false if the name has two families or an unknown word. */
static bool family_of(const char *kernel, AttentionKernel *family)
{
    enum { NO_FAMILY = -1 };
    static const struct {
        const char *word;
        int family;
    } words[] = {{"attention", NO_FAMILY},
                 {"fwd", NO_FAMILY},
                 {"bwd", NO_FAMILY},
                 {"FA2", ATTENTION_flash2},
                 {"flash2", ATTENTION_flash2},
                 {"flash_attn_2", ATTENTION_flash2},
                 {"FA3", ATTENTION_flash3},
                 {"flash3", ATTENTION_flash3},
                 {"flash_attn_3", ATTENTION_flash3},
                 {"cudnn", ATTENTION_cudnn},
                 {"triton", ATTENTION_triton}};
    static const char between[] = "_+- ()";
    int found = NO_FAMILY;
    for (const char *at = kernel + strspn(kernel, between); *at != 0; at += strspn(at, between)) {
        size_t i = 0, n = 0;
        for (; i < sizeof words / sizeof *words; i++) {
            n = strlen(words[i].word);
            if (strncasecmp(at, words[i].word, n) == 0 && strchr(between, at[n]) != NULL) break;
        }
        if (i == sizeof words / sizeof *words) return false;
        at += n;
        if (words[i].family == NO_FAMILY) continue;
        if (found != NO_FAMILY && found != words[i].family) return false;
        found = words[i].family;
    }
    *family = found != NO_FAMILY ? (AttentionKernel)found : ATTENTION_flash2;
    return true;
}

/* Reads a row of attention. Some tables count the FLOPs of all scores, others only those of the
 * causal half; the notes say which. FlashAttention's plots give no batch size. It follows from
 * their constant 16k tokens and width of 2,048. */
static const char *read_attention(const Csv *csv, uint32_t row, const char *kernel, KernelRow *out)
{
    const char *shape = csv_cell(csv, row, "shape"), *notes = csv_cell(csv, row, "notes");
    AttentionWork *w = &out->attention;
    w->causal = strstr(shape, "causal") != NULL && strstr(shape, "causal=False") == NULL;
    if (!family_of(kernel, &w->kernel)) return "no model of this family of attention";
    w->dtype = out->dtype;
    double s = kernel_row_number(shape, "s", kernel_row_number(shape, "sq", 0));
    w->head = kernel_row_number(shape, "head_dim", kernel_row_number(shape, "dqk", 0));
    w->value = kernel_row_number(shape, "dv", w->head);
    w->queries = w->keys = s;
    double batch = kernel_row_number(shape, "b", 16384 / s);
    double heads = kernel_row_number(shape, "hq", 2048 / w->head);
    w->heads = batch * heads;
    w->kv_heads = batch * kernel_row_number(shape, "hkv", heads);
    out->backward = strcasestr(kernel, "bwd") != NULL;
    const bool both = out->backward && strcasestr(kernel, "fwd") != NULL;
    out->forward = both || !out->backward;
    /* FLOPs of the forward pass, if all scores count */
    double square = 2 * w->heads * s * s * (w->head + w->value);
    double told = strstr(notes, "NON-CAUSAL FLOP") != NULL || !w->causal ? square : square / 2;
    out->kind = KERNEL_ROW_attention;
    w->window = kernel_row_number(shape, "window", 0);
    out->what = both ? "attention, both" : out->backward ? "attention backward" : "attention";
    out->measured_s = kernel_row_measured_s(csv, row,
                                            (both            ? 3.5
                                             : out->backward ? 2.5
                                                             : 1) *
                                                told,
                                            0);
    return square > 0 && out->measured_s > 0 ? NULL : "no sizes or no time";
}

const char *kernel_row(KernelDevices *devices, const Csv *csv, uint32_t row, KernelRow *out)
{
    const char *kernel = csv_cell(csv, row, "kernel"), *why = NULL;
    bool known = true;
    *out = (KernelRow){.device = kernel_row_device(devices, csv_cell(csv, row, "gpu"))};
    out->groups = out->repeats = out->times = 1;
    out->dtype = dtype_of(csv_cell(csv, row, "dtype"));
    out->block = out->dtype == DT_e4m3 && has_blocks(csv_cell(csv, row, "dtype"));
    out->out_bytes = result_bytes(csv, row);
    out->loops = strcmp(csv_cell(csv, row, "timing"), "back to back") == 0;
    if (out->device == NULL) return "no such GPU in the library";
    if (strcmp(kernel, "gemm") == 0)
        why = read_gemm(csv, row, out);
    else if (strcmp(kernel, "gemm_te_layer_sum") == 0)
        why = read_layer(csv, row, out);
    else if (strncmp(kernel, "attention", 9) == 0)
        why = read_attention(csv, row, kernel, out);
    else
        why = kernel_row_composite(csv, row, kernel, out, &known);
    if (!known) return arena_print(devices->arena, "no model of '%s'", kernel);
    if (why != NULL || out->kind == KERNEL_ROW_traffic) return why;
    bool rated = out->dtype != DT_none && out->device->peak_flops[out->dtype] > 0;
    return rated ? NULL : "the library has no rate of this dtype";
}

static double products_s(const KernelRow *row, const GemmFit *fit)
{
    const Device *device = row->device;
    GemmFit gemm = fit != NULL ? *fit : *kernel_gemm_fit(device);
    /* power limits slow down Ampere's products by the same factor whatever data they multiply, and
     * short products not at all */
    const bool throttled = row->loops && device->light_power < 1;
    const Device lasting = kernel_sustained(device);
    double s = 0;
    if (row->block) {
        gemm.eight = gemm.block;
        gemm.stores_apart = true;
    }
    for (int i = 0; i < KERNEL_ROW_PRODUCTS && row->product[i][0] > 0; i++) {
        const double *p = row->product[i];
        GemmWork work = kernel_product(row->dtype, row->groups, p[0], p[1], p[2]);
        work.out_bytes = row->out_bytes;
        s += throttled ? cost_lasting_product_s(&lasting, &work, &gemm)
                       : cost_product_s(device, &work, &gemm);
    }
    return s * row->repeats + kernel_softmax_s(device, row->scores);
}

double kernel_row_predicted_s(const KernelRow *row, const KernelFit *fit)
{
    static const KernelFit own;
    if (fit == NULL) fit = &own;
    const Device *device = row->device;
    double s = row->n_kernels * device->kernel_floor_s + kernel_memory_s(device, row->bytes);
    s += products_s(row, fit->gemm);
    if (row->traffic.bytes > 0) s += kernel_traffic_s(device, &row->traffic, fit->traffic);
    for (int backward = 0; backward < 2 && row->attention.heads > 0; backward++) {
        if (!(backward ? row->backward : row->forward)) continue;
        AttentionWork work = row->attention;
        work.backward = backward;
        s += row->times * cost_attention_s(device, &work, fit->attention[backward]);
        work.causal = false;
        work.keys *= row->full_keys;
        if (row->times_full > 0)
            s += row->times_full * cost_attention_s(device, &work, fit->attention[backward]);
    }
    return s;
}
