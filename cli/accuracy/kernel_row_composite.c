/* Rows of kernels other than single products and attention: kernels that move memory, products of
 * groups, heads with their loss, and rings of attention. Numbers of bytes in this file were counted
 * by hand in the source code of the kernels. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/accuracy/kernel_row.h"

/* Reads a row of Vidur for a kernel of vLLM: a norm, an activation or an addition. The cell `shape`
 * is such as "tokens=128 d=4096 ff=11008". */
static const char *read_elementwise(const Csv *csv, uint32_t row, const char *kernel,
                                    KernelRow *out)
{
    const char *shape = csv_cell(csv, row, "shape");
    double tokens = kernel_row_number(shape, "tokens", 0), d = kernel_row_number(shape, "d", 0);
    double ff = kernel_row_number(shape, "ff", 0);
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
    double rows = kernel_row_number(shape, "rows", 0), width = kernel_row_number(shape, "C", 0);
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
    double k = csv_number(csv, row, "K"), experts = kernel_row_number(shape, "E", 1), numbers = 0;
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
    double k = csv_number(csv, row, "K"), experts = kernel_row_number(shape, "E", 0);
    bool weights = strstr(shape, "grad_w") != NULL || strstr(kernel, "wgrad") != NULL;
    bool inputs = strstr(shape, "grad_act") != NULL || strstr(kernel, "dgrad") != NULL;
    out->groups = experts > 0 ? experts : kernel_row_number(shape, "groups", 0);
    if (experts > 0) m /= experts;
    const double sizes[3][3] = {{m, n, k}, {m, k, n}, {n, k, m}};
    memcpy(out->product[0], sizes[weights ? 2 : inputs ? 1 : 0], sizeof sizes[0]);
    out->measured_s = kernel_row_measured_s(csv, row, 2 * out->groups * m * n * k, 0);
    out->kind = KERNEL_ROW_other;
    out->what = dtype_bytes(out->dtype) == 1 ? "gemm of groups, 8 bits" : "gemm of groups";
    return out->groups * m * n * k > 0 ? NULL : "no sizes";
}

/* Reads a row of ml-engineering's search for the width of an MLP. Each time covers four products of
 * 4096 by d_ff by h. */
static const char *read_mlp(const Csv *csv, uint32_t row, KernelRow *out)
{
    const char *shape = csv_cell(csv, row, "shape");
    double h = kernel_row_number(shape, "h", 0), ff = kernel_row_number(shape, "d_ff", 0);
    const double sizes[3] = {h, h, ff};
    memcpy(out->product[0], sizes, sizeof sizes);
    out->groups = 4;
    out->measured_s = kernel_row_measured_s(csv, row, 2 * 4 * h * h * ff, 0);
    out->kind = KERNEL_ROW_other;
    out->what = "gemm, four at once";
    return h * ff > 0 ? NULL : "no sizes";
}

/* A head and its loss (M tokens, N words, width K). Fused kernels compute the softmax together with
 * the product. In the backward pass they compute the scores again, and the scores' gradients pass
 * through memory once. The loop in PyTorch processes 512 tokens at a time. Its forward ops move
 * these bytes for each score: scale 4, to fp32 6, softmax 16, logsumexp 24, entropy 16, log_softmax
 * 16. Its backward pass repeats the first three and adds: gradients zeroed 4, one-hot 4,
 * subtraction 12, product 8, addition 12, to 16 bits 6, scale 4, the entropy's gradient 96. The sum
 * of the weights' gradients moves 6 bytes a weight each time. */
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
    out->measured_s = kernel_row_measured_s(csv, row, 0, 0);
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
    out->measured_s = kernel_row_measured_s(csv, row, 0, 0);
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

const char *kernel_row_composite(const Csv *csv, uint32_t row, const char *kernel, KernelRow *out,
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
    out->measured_s = kernel_row_measured_s(csv, row, 0, bytes);
    return bytes > 0 && out->measured_s > 0 ? NULL : "no sizes or no time";
}
