/* Compares Qwen2-VL with a second implementation in this file. It follows the paper and the
 * published code, not the model script. The loss of the whole model must agree, with its encoder,
 * its merger and its positions of images and texts. Also tests the activations of image
 * encoders. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "planner/front/front.h"
#include "tests/support/command.h"
#include "tests/support/ops/eval.h"

/* The tiny model (scripts/models/qwen2_vl.lua) reads texts of 12 tokens. */
enum { TEXT = 12, DIM = 48, HEADS = 4, KV = 2, HEAD = 12, HIDDEN = 80, VOCAB = 64, LAYERS = 2 };
enum { ROWS = 4, COLUMNS = 8, PATCHES = ROWS * COLUMNS, IMAGE = PATCHES / 4 };
enum { V_DIM = 32, V_HEADS = 4, V_HEAD = 8, V_IN = 6 * 4 * 4, V_HIDDEN = 128, ALL = TEXT + IMAGE };

typedef struct Model {
    Arena *arena;
    Graph graph;
    Eval eval;
} Model;

static void load(Model *m, const char *model)
{
    Config config;
    m->arena = arena_new();
    Diag d = diag_in(m->arena);
    command_write_file("script.lua",
                       arena_print(m->arena,
                                   "return plan { model = require 'models.%s, batch = { global = "
                                   "2, micro = 2, seq = %d } }\n",
                                   model, TEXT));
    const bool fine = front_load("script.lua", NULL, m->arena, &config, &m->graph, &d);
    Str text = str_in(m->arena);
    diag_print(&d, &text);
    if (!fine) fail_msg("%s", str_text(&text));
}

static void fill(void *self, int64_t step, uint32_t microbatch, int64_t first, int64_t n,
                 int64_t seq, int32_t *tokens, int32_t *labels)
{
    (void)self, (void)step, (void)microbatch;
    for (int64_t i = 0; i < n * seq; i++) {
        tokens[i] = (int32_t)((7 * i + 3 * first + i * i) % VOCAB);
        labels[i] = (int32_t)((5 * i + first + 11) % VOCAB);
    }
}

static void line(void *self, const FieldLine *at, double *values)
{
    (void)self;
    for (int64_t i = 0; i < at->n; i++)
        values[i] = sin(.37 * (double)(i + 1) + 1.3 * (double)at->row + 2.1 * (double)at->sample);
}

/* ---- the second implementation, for one sample ---- */

static const double *weight(const Model *m, const char *name, int64_t elements)
{
    const Graph *g = &m->graph;
    for (TensorId t = 1; t < g->tensors.n; t++) {
        if (g->tensors.at[t].role != ROLE_param || strcmp(g->tensors.at[t].name, name) != 0)
            continue;
        assert_int_equal(value_elements(&m->eval.value[t]), elements);
        return m->eval.value[t].at;
    }
    fail_msg("no weight %s", name);
    return NULL;
}

/* x [n, in] -> y [n, out] */
static double *linear(const Model *m, const char *name, const double *x, int64_t n, int64_t in,
                      int64_t out, bool bias)
{
    const double *w = weight(m, arena_print(m->arena, "%s.weight", name), in * out);
    const double *b = bias ? weight(m, arena_print(m->arena, "%s.bias", name), out) : NULL;
    double *y = arena_array(m->arena, (size_t)(n * out), sizeof *y);
    for (int64_t i = 0; i < n; i++)
        for (int64_t o = 0; o < out; o++) {
            double sum = bias ? b[o] : 0;
            for (int64_t k = 0; k < in; k++) sum += x[i * in + k] * w[k * out + o];
            y[i * out + o] = sum;
        }
    return y;
}

static double *norm(const Model *m, const char *name, const double *x, int64_t n, int64_t dim,
                    bool centred)
{
    const double *w = weight(m, arena_print(m->arena, "%s.weight", name), dim);
    const double *b = centred ? weight(m, arena_print(m->arena, "%s.bias", name), dim) : NULL;
    double *y = arena_array(m->arena, (size_t)(n * dim), sizeof *y);
    for (int64_t i = 0; i < n; i++) {
        double mean = 0, square = 0;
        for (int64_t k = 0; k < dim && centred; k++) mean += x[i * dim + k] / (double)dim;
        for (int64_t k = 0; k < dim; k++) square += pow(x[i * dim + k] - mean, 2) / (double)dim;
        for (int64_t k = 0; k < dim; k++)
            y[i * dim + k] =
                (x[i * dim + k] - mean) / sqrt(square + 1e-6) * w[k] + (centred ? b[k] : 0);
    }
    return y;
}

/* Rotates elements d and d + half of a head, for each d below half. */
static void turn(double *head, int64_t half, const double *angle)
{
    for (int64_t d = 0; d < half; d++) {
        const double x = head[d], y = head[d + half];
        head[d] = x * cos(angle[d]) - y * sin(angle[d]);
        head[d + half] = y * cos(angle[d]) + x * sin(angle[d]);
    }
}

/* x [n, dim], angle [n, head / 2] -> y [n, dim] */
static double *attend(const Model *m, const char *name, const double *x, int64_t n, int64_t dim,
                      int64_t heads, int64_t kv, int64_t head, const double *angle, bool causal)
{
    double *q = linear(m, arena_print(m->arena, "%s.wq", name), x, n, dim, heads * head, true),
           *k = linear(m, arena_print(m->arena, "%s.wk", name), x, n, dim, kv * head, true),
           *v = linear(m, arena_print(m->arena, "%s.wv", name), x, n, dim, kv * head, true),
           *y = arena_array(m->arena, (size_t)(n * heads * head), sizeof *y),
           *score = arena_array(m->arena, (size_t)n, sizeof *score);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t h = 0; h < heads; h++)
            turn(q + (i * heads + h) * head, head / 2, angle + i * head / 2);
        for (int64_t h = 0; h < kv; h++)
            turn(k + (i * kv + h) * head, head / 2, angle + i * head / 2);
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t h = 0; h < heads; h++) {
            const int64_t of = h / (heads / kv), last = causal ? i : n - 1;
            double sum = 0;
            for (int64_t j = 0; j <= last; j++) {
                double dot = 0;
                for (int64_t d = 0; d < head; d++)
                    dot += q[(i * heads + h) * head + d] * k[(j * kv + of) * head + d];
                sum += score[j] = exp(dot / sqrt((double)head));
            }
            for (int64_t j = 0; j <= last; j++)
                for (int64_t d = 0; d < head; d++)
                    y[(i * heads + h) * head + d] += score[j] / sum * v[(j * kv + of) * head + d];
        }
    return linear(m, arena_print(m->arena, "%s.wo", name), y, n, heads * head, dim,
                  causal == false);
}

static void add(double *x, const double *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] += y[i];
}

static double gelu(double x)
{
    return .5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + .044715 * x * x * x)));
}

/* Patches come in squares of four. One token of the text stands for each square. */
static double *encode(const Model *m, const double *patches)
{
    double angle[PATCHES][V_HEAD / 2];
    for (int p = 0; p < PATCHES; p++) {
        const int square = p / 4, within = p % 4;
        const int row = 2 * (square / (COLUMNS / 2)) + within / 2,
                  column = 2 * (square % (COLUMNS / 2)) + within % 2;
        for (int j = 0; j < V_HEAD / 4; j++) {
            const double frequency = pow(1e4, -2. * j / (V_HEAD / 2));
            angle[p][j] = row * frequency;
            angle[p][j + V_HEAD / 4] = column * frequency;
        }
    }
    double *x = linear(m, "encoder.patches", patches, PATCHES, V_IN, V_DIM, false);
    for (int layer = 0; layer < LAYERS; layer++) {
        const char *at = arena_print(m->arena, "encoder.blocks.%d", layer);
        const double *y = norm(m, arena_print(m->arena, "%s.norm1", at), x, PATCHES, V_DIM, true);
        add(x,
            attend(m, arena_print(m->arena, "%s.attention", at), y, PATCHES, V_DIM, V_HEADS,
                   V_HEADS, V_HEAD, angle[0], false),
            PATCHES * V_DIM);
        y = norm(m, arena_print(m->arena, "%s.norm2", at), x, PATCHES, V_DIM, true);
        double *up =
            linear(m, arena_print(m->arena, "%s.up", at), y, PATCHES, V_DIM, V_HIDDEN, true);
        for (int i = 0; i < PATCHES * V_HIDDEN; i++) up[i] /= 1 + exp(-1.702 * up[i]);
        add(x, linear(m, arena_print(m->arena, "%s.down", at), up, PATCHES, V_HIDDEN, V_DIM, true),
            PATCHES * V_DIM);
    }
    const double *merged = norm(m, "merger.norm", x, PATCHES, V_DIM, true);
    double *inner = linear(m, "merger.first", merged, IMAGE, 4 * V_DIM, 4 * V_DIM, true);
    for (int i = 0; i < IMAGE * 4 * V_DIM; i++) inner[i] = gelu(inner[i]);
    return linear(m, "merger.last", inner, IMAGE, 4 * V_DIM, DIM, true);
}

/* Tokens before the image count from 0. All tokens of the image have the time of its first token.
 * Their rows and columns are counted from there. The text after the image continues after the
 * largest of these numbers. */
static void positions(int before, int at[ALL][3])
{
    int next = 0, tall = ROWS / 2, wide = COLUMNS / 2;
    for (int i = 0; i < ALL; i++) {
        const int inside = i - before;
        if (inside == IMAGE) next = before + (tall > wide ? tall : wide);
        const bool image = inside >= 0 && inside < IMAGE;
        at[i][0] = image ? before : next;
        at[i][1] = image ? before + inside / wide : next;
        at[i][2] = image ? before + inside % wide : next;
        next += !image;
    }
}

/* Returns the sum of the losses of one text's tokens. */
static double losses(const Model *m, int before, const int32_t *tokens, const int32_t *labels,
                     const double *patches)
{
    static const int section[HEAD / 2] = {0, 0, 1, 1, 2, 2};
    const double *embed = weight(m, "embed.weight", (int64_t)VOCAB * DIM),
                 *image = encode(m, patches);
    double *x = arena_array(m->arena, ALL * DIM, sizeof *x), angle[ALL][HEAD / 2], sum = 0;
    int at[ALL][3];
    positions(before, at);
    for (int i = 0; i < ALL; i++) {
        const int text = i < before ? i : i - IMAGE;
        const bool is_image = i >= before && i < before + IMAGE;
        memcpy(x + i * DIM, is_image ? image + (i - before) * DIM : embed + tokens[text] * DIM,
               DIM * sizeof *x);
        for (int j = 0; j < HEAD / 2; j++)
            angle[i][j] = at[i][section[j]] * pow(1e6, -2. * j / HEAD);
    }
    for (int layer = 0; layer < LAYERS; layer++) {
        const char *in = arena_print(m->arena, "layers.%d", layer);
        const double *y =
            norm(m, arena_print(m->arena, "%s.attention_norm", in), x, ALL, DIM, false);
        add(x,
            attend(m, arena_print(m->arena, "%s.attention", in), y, ALL, DIM, HEADS, KV, HEAD,
                   angle[0], true),
            ALL * DIM);
        y = norm(m, arena_print(m->arena, "%s.mlp_norm", in), x, ALL, DIM, false);
        double *gate = linear(m, arena_print(m->arena, "%s.gate", in), y, ALL, DIM, HIDDEN, false),
               *up = linear(m, arena_print(m->arena, "%s.up", in), y, ALL, DIM, HIDDEN, false);
        for (int i = 0; i < ALL * HIDDEN; i++) gate[i] *= up[i] / (1 + exp(-gate[i]));
        add(x, linear(m, arena_print(m->arena, "%s.down", in), gate, ALL, HIDDEN, DIM, false),
            ALL * DIM);
    }
    const double *logits =
        linear(m, "head", norm(m, "norm", x, ALL, DIM, false), ALL, DIM, VOCAB, false);
    for (int i = 0; i < TEXT; i++) {
        const double *z = logits + (i < before ? i : i + IMAGE) * VOCAB;
        double all = 0;
        for (int v = 0; v < VOCAB; v++) all += exp(z[v]);
        sum += log(all) - z[labels[i]];
    }
    return sum;
}

/* Returns the first output of the first node of this op. */
static const Value *output(const Model *m, OpKind op, int of)
{
    for (NodeId id = 1; id < m->graph.nodes.n; id++)
        if (m->graph.nodes.at[id].op == op) return &m->eval.value[m->graph.nodes.at[id].out[of]];
    fail_msg("no %s", op_info(op)->name);
    return NULL;
}

static void qwen2_vl_is_the_published_model(void **state)
{
    (void)state;
    static const int before[] = {0, 5};
    for (int k = 0; k < 2; k++) {
        Model m;
        DataSource data = {.fill = fill, .line = line};
        load(&m, before[k] ? "qwen2_vl' { size = 'tiny', before = 5 }" : "qwen2_vl' 'tiny'");
        m.eval = eval_new(m.arena, &m.graph, DT_f64, &data);
        for (TensorId t = 1; t < m.graph.tensors.n; t++)
            for (int64_t i = 0;
                 m.graph.tensors.at[t].role == ROLE_param && i < value_elements(&m.eval.value[t]);
                 i++)
                value_set(&m.eval.value[t], i, .3 * sin(12.9898 * (double)(i + 1) + 78.233 * t));
        eval_forward(&m.eval);
        const Value *tokens = output(&m, OP_batch, 0), *labels = output(&m, OP_batch, 1),
                    *images = output(&m, OP_image, 0);
        assert_int_equal(images->dim[0], 2);
        double expected = 0;
        for (int b = 0; b < 2; b++) {
            double patches[PATCHES * V_IN];
            for (int i = 0; i < PATCHES * V_IN; i++)
                patches[i] = value_get(images, b * PATCHES * V_IN + i);
            expected += losses(&m, before[k], (const int32_t *)tokens->at + b * TEXT,
                               (const int32_t *)labels->at + b * TEXT, patches) /
                        (2 * TEXT);
        }
        const double loss = value_get(&m.eval.value[m.graph.loss], 0);
        if (!(fabs(loss - expected) <= 1e-11 * expected))
            fail_msg("before = %d: loss %.15g, and %.15g expected", before[k], loss, expected);
        arena_free(m.arena);
    }
}

/* The blocks of CLIP's and Qwen2-VL's encoders use QuickGELU, x sigmoid(1.702 x). This is
 * silu(1.702 x) / 1.702. The projector and the merger have GELU. */
static void encoders_of_images_have_quick_gelu(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        uint32_t blocks;
    } models[] = {{"llava' 'tiny'", 2}, {"qwen2_vl' 'tiny'", 2}};
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        Model m;
        load(&m, models[k].model);
        const Graph *g = &m.graph;
        uint32_t n = 0, n_gelu = 0;
        for (NodeId id = 1; id < g->nodes.n; id++) n_gelu += g->nodes.at[id].op == OP_gelu;
        for (NodeId id = 3; id < g->nodes.n; id++) {
            const Node *last = &g->nodes.at[id], *silu = &g->nodes.at[id - 1],
                       *first = &g->nodes.at[id - 2];
            if (last->op != OP_scale || silu->op != OP_silu || first->op != OP_scale) continue;
            assert_true(silu->in[0] == first->out[0] && last->in[0] == silu->out[0]);
            assert_true(graph_attrs_at(g, first->attrs)->scale == 1.702);
            assert_true(graph_attrs_at(g, last->attrs)->scale == 1 / 1.702);
            n++;
        }
        assert_int_equal(n, models[k].blocks);
        assert_int_equal(n_gelu, 1);
        arena_free(m.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(qwen2_vl_is_the_published_model),
        cmocka_unit_test(encoders_of_images_have_quick_gelu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
