/* Turns a source's description of a kernel into its sizes. Sources differ in how they count FLOPs,
 * write shapes and divide a time. Only this file knows these conventions. */
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

/* Returns the number that follows "name=" in the cell `shape`, or `otherwise` if the cell has no
 * such name. */
static double number_of(const char *shape, const char *name, double otherwise)
{
    size_t n = strlen(name);
    for (const char *at = strstr(shape, name); at != NULL; at = strstr(at + 1, name)) {
        bool begins = at == shape || at[-1] == ' ' || at[-1] == ',';
        if (begins && at[n] == '=') return strtod(at + n + 1, NULL);
    }
    return otherwise;
}

/* Returns the time of a row. If the row gives only a rate, returns the time of `flops` FLOPs at
 * this rate. If it gives only a bandwidth, returns the time of `bytes` bytes at this bandwidth.
 * Returns NAN if it gives none of these. */
static double measured_s(const Csv *csv, uint32_t row, double flops, double bytes)
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
    out->measured_s = measured_s(csv, row, 2 * m * n * k, 0);
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
    double m = csv_number(csv, row, "M"), h = number_of(shape, "h", 0);
    double ff = number_of(shape, "ff", 0), three = qkv != NULL ? strtod(qkv + 4, NULL) : 3 * h;
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
    out->measured_s = measured_s(csv, row, flops, 0);
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
    double s = number_of(shape, "s", number_of(shape, "sq", 0));
    w->head = number_of(shape, "head_dim", number_of(shape, "dqk", 0));
    w->value = number_of(shape, "dv", w->head);
    w->queries = w->keys = s;
    double batch = number_of(shape, "b", 16384 / s);
    double heads = number_of(shape, "hq", 2048 / w->head);
    w->heads = batch * heads;
    w->kv_heads = batch * number_of(shape, "hkv", heads);
    out->backward = strcasestr(kernel, "bwd") != NULL;
    const bool both = out->backward && strcasestr(kernel, "fwd") != NULL;
    out->forward = both || !out->backward;
    /* FLOPs of the forward pass, if all scores count */
    double square = 2 * w->heads * s * s * (w->head + w->value);
    double told = strstr(notes, "NON-CAUSAL FLOP") != NULL || !w->causal ? square : square / 2;
    out->kind = KERNEL_ROW_attention;
    w->window = number_of(shape, "window", 0);
    out->what = both ? "attention, both" : out->backward ? "attention backward" : "attention";
    out->measured_s = measured_s(csv, row, (both ? 3.5 : out->backward ? 2.5 : 1) * told, 0);
    return square > 0 && out->measured_s > 0 ? NULL : "no sizes or no time";
}

/* ---- kernels other than single products and attention: kernels that move memory, products of
 * groups, heads with their loss, and rings of attention. Their numbers of bytes were counted by
 * hand in the source code of the kernels. */

/* Reads a row of Vidur for a kernel of vLLM: a norm, an activation or an addition. The cell `shape`
 * is such as "tokens=128 d=4096 ff=11008". */
static const char *read_elementwise(const Csv *csv, uint32_t row, const char *kernel,
                                    KernelRow *out)
{
    const char *shape = csv_cell(csv, row, "shape");
    double tokens = number_of(shape, "tokens", 0), d = number_of(shape, "d", 0);
    double ff = number_of(shape, "ff", 0);
    bool norm = strstr(kernel, "norm") != NULL, gated = strstr(kernel, "act") != NULL;
    if (!norm && !gated && strstr(kernel, "add") == NULL) return "its inputs are not known";
    /* 2 bytes a number: a norm reads one input and writes one output; a sum or a gate reads two */
    out->traffic.bytes = 2 * tokens * (norm ? 2 * d : 3 * (gated ? ff : d));
    out->traffic.rows = norm || gated ? tokens : 0;
    out->traffic.kernel = norm    ? TRAFFIC_vllm_norm
                          : gated ? TRAFFIC_vllm_gated
                                  : TRAFFIC_elementwise;
    out->what = norm ? "norm" : "elementwise";
    return NULL;
}

/* Reads a row of a norm, such as "rms_norm_bwd_torch_compile" with the shape "rows=8192 C=4096".
 * The forward pass reads one tensor and writes one. The backward pass reads the input and the
 * gradient and writes one tensor. */
static const char *read_norm(const Csv *csv, uint32_t row, const char *kernel, KernelRow *out)
{
    const char *shape = csv_cell(csv, row, "shape");
    double rows = number_of(shape, "rows", 0), width = number_of(shape, "C", 0);
    bool backward = strstr(kernel, "bwd") != NULL;
    TrafficKernel of = backward ? TRAFFIC_cudnn_norm_grad : TRAFFIC_cudnn_norm;
    if (strstr(kernel, "pytorch") != NULL)
        of = backward ? TRAFFIC_torch_norm_grad : TRAFFIC_torch_norm;
    else if (strstr(kernel, "compile") != NULL || strstr(kernel, "triton") != NULL ||
             strstr(kernel, "liger") != NULL)
        of = backward ? TRAFFIC_triton_norm_grad : TRAFFIC_triton;
    double size = out->dtype == DT_none ? 2 : (double)dtype_bytes(out->dtype);
    out->traffic = (TrafficWork){of, rows, size * rows * width * (backward ? 3 : 2)};
    out->what = backward ? "norm backward" : "norm";
    return NULL;
}

/* Reads a row of a kernel that quantises: it reads 16-bit numbers and writes 8-bit numbers with
 * their scales. The shape is "32768x4096". The shape "E=8 balanced" means the operands of a product
 * of groups of experts: x of M by K, weights of K by N for each group, gradients of M by N. */
static const char *read_quantise(const Csv *csv, uint32_t row, const char *kernel, KernelRow *out)
{
    const char *shape = csv_cell(csv, row, "shape"), *times = strchr(shape, 'x');
    double m = csv_number(csv, row, "M"), n = csv_number(csv, row, "N");
    double k = csv_number(csv, row, "K"), experts = number_of(shape, "E", 1), numbers = 0;
    if (m * n * k > 0) {
        bool weights = strstr(kernel, "weight_quant") != NULL;
        bool gradient = strstr(kernel, "grad_out") != NULL;
        numbers = weights ? experts * n * k : m * (gradient ? n : k);
    } else if (times != NULL) {
        numbers = strtod(shape, NULL) * strtod(times + 1, NULL);
    }
    out->traffic = (TrafficWork){.kernel = TRAFFIC_triton, .bytes = 3 * numbers};
    out->what = "quantise";
    return NULL;
}

/* Reads a row of a product of groups. "groups=40 stage=bwd_grad_w" gives the rows of each group,
 * "E=8 balanced" the rows of all groups together. A gradient of weights sums over the rows of its
 * group. */
static const char *read_groups(const Csv *csv, uint32_t row, const char *kernel, KernelRow *out)
{
    const char *shape = csv_cell(csv, row, "shape");
    double m = csv_number(csv, row, "M"), n = csv_number(csv, row, "N");
    double k = csv_number(csv, row, "K"), experts = number_of(shape, "E", 0);
    bool weights = strstr(shape, "grad_w") != NULL || strstr(kernel, "wgrad") != NULL;
    bool inputs = strstr(shape, "grad_act") != NULL || strstr(kernel, "dgrad") != NULL;
    out->groups = experts > 0 ? experts : number_of(shape, "groups", 0);
    if (experts > 0) m /= experts;
    const double sizes[3][3] = {{m, n, k}, {m, k, n}, {n, k, m}};
    memcpy(out->product[0], sizes[weights ? 2 : inputs ? 1 : 0], sizeof sizes[0]);
    out->measured_s = measured_s(csv, row, 2 * out->groups * m * n * k, 0);
    out->kind = KERNEL_ROW_other;
    out->what = dtype_bytes(out->dtype) == 1 ? "gemm of groups, 8 bits" : "gemm of groups";
    return out->groups * m * n * k > 0 ? NULL : "no sizes";
}

/* Reads a row of ml-engineering's search for the width of an MLP. Each time covers four products of
 * 4096 by d_ff by h. */
static const char *read_mlp(const Csv *csv, uint32_t row, KernelRow *out)
{
    const char *shape = csv_cell(csv, row, "shape");
    double h = number_of(shape, "h", 0), ff = number_of(shape, "d_ff", 0);
    const double sizes[3] = {h, h, ff};
    memcpy(out->product[0], sizes, sizeof sizes);
    out->groups = 4;
    out->measured_s = measured_s(csv, row, 2 * 4 * h * h * ff, 0);
    out->kind = KERNEL_ROW_other;
    out->what = "gemm, four at once";
    return h * ff > 0 ? NULL : "no sizes";
}

/* A head and its loss (M tokens, N words, width K). Fused kernels compute the softmax together with
 * the product. In the backward pass they compute the scores again, and the scores' gradients pass
 * through memory once. The loop in PyTorch processes 512 tokens at a time. Its forward ops move
 * these bytes for each score: scale 4, conversion to fp32 6, softmax 16, logsumexp 24, entropy 16,
 * log_softmax 16. Its backward pass repeats the first three and adds: gradients zeroed 4, one-hot
 * 4, subtraction 12, product 8, addition 12, conversion to 16 bits 6, scale 4, the entropy's
 * gradient 96. The sum of the weights' gradients moves 6 bytes a weight each time. */
static const char *read_head(const Csv *csv, uint32_t row, const char *kernel, KernelRow *out)
{
    enum { CHUNK = 512 };
    const char *shape = csv_cell(csv, row, "shape");
    double m = csv_number(csv, row, "M"), n = csv_number(csv, row, "N");
    double k = csv_number(csv, row, "K"), scores = m * n;
    bool both = strstr(kernel, "fwd+bwd") != NULL, loop = strstr(shape, "fallback") != NULL;
    bool backward = strstr(kernel, "bwd") != NULL, forward = both || !backward;
    bool entropy = strstr(shape, "entropy=Yes") != NULL;
    double rows = loop ? CHUNK : m, n_products = 0;
    const double sizes[4][3] = {{rows, n, k}, {rows, n, k}, {rows, k, n}, {n, k, rows}};
    for (int i = forward ? 0 : 1; i < (backward ? 4 : 1); i++)
        memcpy(out->product[(int)n_products++], sizes[i], sizeof sizes[i]);
    if (loop) {
        out->repeats = m / CHUNK;
        if (forward) out->bytes += scores * 82, out->n_kernels += 11 * out->repeats;
        if (backward) {
            out->bytes += scores * (76 + (entropy ? 96 : 0)) + 6 * n * k * out->repeats;
            out->n_kernels += (12 + (entropy ? 12 : 0)) * out->repeats;
        }
    } else {
        out->scores = scores * ((forward ? 1 : 0) + (backward ? 1 : 0));
        /* the scores' gradients are written once and read by two products */
        if (backward) out->bytes = 2 * 3 * scores;
    }
    out->measured_s = measured_s(csv, row, 0, 0);
    out->kind = KERNEL_ROW_other;
    out->what = loop ? "head and loss, in a loop" : "head and loss";
    return scores * k > 0 && out->measured_s > 0 ? NULL : "no sizes or no time";
}

/* Reads a row of ring attention over FlashAttention-2: "8 GPUs, 8k tokens/GPU, ... heads 32/8/128,
 * causal". In the first step a rank attends to its own tokens, with a causal mask. In later steps,
 * the last rank of a plain ring computes whole squares, a zigzag computes half squares, and stripes
 * compute causal squares. Between steps, PyTorch's kernels add outputs (38 bytes a number) and, in
 * the backward pass, gradients of queries (10 bytes). Meanwhile ranks send keys and values, which
 * takes a fraction of the time and is not counted. */
static const char *read_ring(const Csv *csv, uint32_t row, const char *kernel, KernelRow *out)
{
    const char *shape = csv_cell(csv, row, "shape");
    const char *tokens_at = strstr(shape, "GPUs, "), *heads_at = strstr(shape, "heads ");
    if (tokens_at == NULL || heads_at == NULL) return "no sizes";
    char *end;
    double n = strtod(shape, NULL), tokens = 1024 * strtod(tokens_at + 6, NULL);
    AttentionWork *w = &out->attention;
    w->heads = strtod(heads_at + 6, &end);
    w->kv_heads = strtod(end + 1, &end);
    w->head = w->value = strtod(end + 1, &end);
    w->kernel = ATTENTION_flash2;
    w->dtype = out->dtype;
    w->queries = w->keys = tokens;
    w->causal = strstr(shape, "causal") != NULL;
    out->forward = true;
    out->backward = strstr(kernel, "fwd+bwd") != NULL;
    bool stripes = strstr(kernel, "stripe") != NULL, zigzag = strstr(kernel, "zigzag") != NULL;
    out->times = stripes ? n : 1;
    out->times_full = stripes ? 0 : n - 1;
    out->full_keys = zigzag ? .5 : 1;
    double outputs = w->heads * tokens * w->value;
    out->bytes = (n - 1) * outputs * (38 + (out->backward ? 10 : 0));
    out->n_kernels = (n - 1) * (out->backward ? 11 : 8);
    out->measured_s = measured_s(csv, row, 0, 0);
    out->kind = KERNEL_ROW_other;
    out->what = n > 1 ? "attention in a ring" : "attention";
    return w->heads * tokens * w->head > 0 && out->measured_s > 0 ? NULL : "no sizes or no time";
}

/* A copy on one device: counts the bytes read and written. */
static const char *read_copy(KernelRow *out)
{
    out->bytes = 1e9;
    out->n_kernels = 0;
    out->what = "copy";
    return NULL;
}

/* Reads a row of one of the kernels of this section. Sets *known to false if `kernel` is none of
 * them. */
static const char *read_other(const Csv *csv, uint32_t row, const char *kernel, KernelRow *out,
                              bool *known)
{
    const char *why = NULL;
    out->kind = KERNEL_ROW_traffic;
    if (strncmp(kernel, "elementwise_", 12) == 0)
        why = read_elementwise(csv, row, kernel, out);
    else if (strstr(kernel, "norm_fwd") != NULL || strstr(kernel, "norm_bwd") != NULL)
        why = read_norm(csv, row, kernel, out);
    else if (strstr(kernel, "_quant") != NULL)
        why = read_quantise(csv, row, kernel, out);
    else if (strncmp(kernel, "hbm_copy", 8) == 0)
        why = read_copy(out);
    else if (strstr(kernel, "grouped_gemm") != NULL || strstr(kernel, "grouped_mm") != NULL)
        return read_groups(csv, row, kernel, out);
    else if (strcmp(kernel, "swiglu_mlp_gemms") == 0)
        return read_mlp(csv, row, out);
    else if (strncmp(kernel, "fused_lm_head_ce", 16) == 0)
        return read_head(csv, row, kernel, out);
    else if (strncmp(kernel, "cp_attention_", 13) == 0)
        return read_ring(csv, row, kernel, out);
    else
        *known = false;
    if (why != NULL || !*known) return why;
    double bytes = out->traffic.bytes + out->bytes;
    out->measured_s = measured_s(csv, row, 0, bytes);
    return bytes > 0 && out->measured_s > 0 ? NULL : "no sizes or no time";
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
        why = read_other(csv, row, kernel, out, &known);
    if (!known) return arena_print(devices->arena, "no model of '%s'", kernel);
    if (why != NULL || out->kind == KERNEL_ROW_traffic) return why;
    bool rated = out->dtype != DT_none && out->device->peak_flops[out->dtype] > 0;
    return rated ? NULL : "the library has no rate of this dtype";
}
