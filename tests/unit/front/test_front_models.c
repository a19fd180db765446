/* A model's script gives exactly this graph: parameters, nodes, dtypes and modules. Passes rely on
 * these graphs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/loaded.h"

/* These are the published sizes. */
static void models_have_their_parameter_counts(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        int seq;
        uint64_t n, no_embedding;
        uint32_t layers, dim, heads, kv_heads, head_dim, vocab;
    } cases[] = {
        {"llama' '3.1-8b'", 8192, 8030261248, 7504924672, 32, 4096, 32, 8, 128, 128256},
        {"llama' '3.1-70b'", 8192, 70553706496, 69503033344, 80, 8192, 64, 8, 128, 128256},
        {"llama' '3.1-405b'", 8192, 405853388800, 403752042496, 126, 16384, 128, 8, 128, 128256},
        {"llama' '3.2-1b'", 8192, 1235814400, 1235814400, 16, 2048, 32, 8, 64, 128256},
        {"gpt2' '124m'", 1024, 124439808, 123653376, 12, 768, 12, 12, 64, 50257},
        {"gpt2' '350m'", 1024, 354823168, 353774592, 24, 1024, 16, 16, 64, 50257},
        {"gpt2' '774m'", 1024, 774030080, 772719360, 36, 1280, 20, 20, 64, 50257},
        {"gpt2' '1.5b'", 1024, 1557611200, 1555972800, 48, 1600, 25, 25, 64, 50257},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Loaded l = load_model(cases[i].model, cases[i].seq);
        const ModelInfo *info = &l.graph.info;
        assert_int_equal(info->n_params, cases[i].n);
        assert_int_equal(info->n_params_no_embedding, cases[i].no_embedding);
        assert_int_equal(info->n_layers, cases[i].layers);
        assert_int_equal(info->d_model, cases[i].dim);
        assert_int_equal(info->n_heads, cases[i].heads);
        assert_int_equal(info->n_kv_heads, cases[i].kv_heads);
        assert_int_equal(info->head_dim, cases[i].head_dim);
        assert_int_equal(info->vocab, cases[i].vocab);
        assert_int_equal(info->seq, cases[i].seq);
        arena_free(l.arena);
    }
}

static void assert_param(const Graph *g, const char *name, TpStyle tp, uint32_t n_dims,
                         const int64_t *dim, uint32_t column, uint32_t row, InitKind init)
{
    const Tensor *t = &g->tensors.at[loaded_tensor(g, name)];
    assert_int_equal(t->role, ROLE_param);
    assert_int_equal(t->tp, tp);
    assert_int_equal(t->n_dims, n_dims);
    for (uint32_t i = 0; i < n_dims; i++) assert_int_equal(t->dim[i], dim[i]);
    if (tp == TP_row)
        assert_int_equal(t->row_dim, row);
    else
        assert_int_equal(t->column_dim, column);
    assert_int_equal(t->init.kind, init);
    assert_int_equal(t->init_stream, hash_bytes(name, strlen(name)).lo);
    assert_string_not_equal(t->loc.file, "");
    assert_true(t->loc.line > 0);
}

static void llama_traces_to_the_graph_that_passes_expect(void **state)
{
    (void)state;
    FrontOptions options = {0};
    Loaded l = load_file(TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua", &options);
    if (!l.fine) print_error("%s", l.errors);
    assert_true(l.fine);
    const Graph *g = &l.graph;
    static const OpKind block[] = {OP_rmsnorm, OP_linear_q, OP_linear_kv, OP_linear_kv,
                                   OP_rope,    OP_rope,     OP_attention, OP_linear_o,
                                   OP_add,     OP_rmsnorm,  OP_linear,    OP_silu,
                                   OP_linear,  OP_mul,      OP_linear,    OP_add};
    enum { N_BLOCK = sizeof block / sizeof *block };
    assert_int_equal(g->nodes.n, 1 + 2 + 32 * N_BLOCK + 2 + 4);
    assert_int_equal(g->nodes.at[1].op, OP_batch);
    assert_int_equal(g->nodes.at[2].op, OP_embed);
    for (uint32_t layer = 0; layer < 32; layer++)
        for (uint32_t i = 0; i < N_BLOCK; i++) {
            const Node *n = &g->nodes.at[3 + layer * N_BLOCK + i];
            assert_int_equal(n->op, block[i]);
            assert_int_equal(n->layer, layer + 1);
            assert_string_equal(n->loc.file, "models/llama.lua");
        }
    const Node *tail = &g->nodes.at[g->nodes.n - 6];
    static const OpKind ends[] = {OP_rmsnorm,   OP_linear,      OP_xent_max,
                                  OP_xent_pick, OP_xent_sumexp, OP_xent_loss};
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(tail[i].op, ends[i]);
        assert_int_equal(tail[i].layer, 0);
    }
    static const int64_t q[] = {4096, 8, 4, 128}, kv[] = {4096, 8, 128}, o[] = {8, 4, 128, 4096};
    static const int64_t up[] = {4096, 14336}, down[] = {14336, 4096}, table[] = {128256, 4096};
    static const int64_t head[] = {4096, 128256}, norm[] = {4096};
    assert_param(g, "layers.3.attention.wq.weight", TP_column, 4, q, 1, 0, INIT_normal);
    assert_param(g, "layers.3.attention.wk.weight", TP_column, 3, kv, 1, 0, INIT_normal);
    assert_param(g, "layers.3.attention.wv.weight", TP_column, 3, kv, 1, 0, INIT_normal);
    assert_param(g, "layers.3.attention.wo.weight", TP_row, 4, o, 0, 0, INIT_normal);
    assert_param(g, "layers.31.feed_forward.w1.weight", TP_column, 2, up, 1, 0, INIT_normal);
    assert_param(g, "layers.31.feed_forward.w2.weight", TP_row, 2, down, 0, 0, INIT_normal);
    assert_param(g, "tok_embeddings.weight", TP_vocab, 2, table, 0, 0, INIT_normal);
    assert_param(g, "output.weight", TP_vocab, 2, head, 1, 0, INIT_normal);
    assert_param(g, "layers.0.ffn_norm.weight", TP_none, 1, norm, 0, 0, INIT_ones);
    arena_free(l.arena);
}

static void tensors_have_their_dtypes_and_sizes(void **state)
{
    (void)state;
    FrontOptions options = {0};
    Loaded l = load_file(TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua", &options);
    assert_true(l.fine);
    const Graph *g = &l.graph;
    for (TensorId id = 1; id < g->tensors.n; id++) {
        const Tensor *t = &g->tensors.at[id];
        if (t->role == ROLE_input) assert_int_equal(t->dtype, DT_i32);
        if (t->role == ROLE_param) {
            assert_int_equal(t->dtype, DT_bf16);
            assert_int_equal(t->rest_dtype, DT_f32);
            assert_int_equal(t->reduce_dtype, DT_f32);
        }
        if (t->role == ROLE_activation && t->n_dims > 0) {
            assert_int_equal(t->dim[0], 8); /* one sequence on each of 8 data ranks */
            assert_int_equal(t->dim[1], 8192);
        }
    }
    uint32_t n_attention = 0, n_rope = 0, n_norms = 0, n_losses = 0;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        bool statistic = n->op == OP_xent_max || n->op == OP_xent_pick || n->op == OP_xent_sumexp;
        DType first = g->tensors.at[n->out[0]].dtype;
        if (n->op != OP_batch && n->op != OP_xent_loss)
            assert_int_equal(first, statistic ? DT_f32 : DT_bf16);
        DType others = n->op == OP_xent_loss ? DT_f64 : DT_f32;
        for (uint32_t j = 1; j < n->n_out && n->op != OP_batch; j++)
            assert_int_equal(g->tensors.at[n->out[j]].dtype, others);
        const Attrs *a = graph_attrs_at(g, n->attrs);
        if (n->op == OP_attention) assert_true(a->causal == 1 && a->scale == 1 / sqrt(128));
        if (n->op == OP_rope)
            assert_true(a->theta == 500000 && a->rope_factor == 8 && a->rope_low == 1 &&
                        a->rope_high == 4 && a->rope_context == 8192);
        if (n->op == OP_xent_loss) assert_true(a->scale == 1.0 / (64.0 * 8192));
        if (n->op == OP_rmsnorm) assert_true(a->eps == 1e-5);
        n_attention += n->op == OP_attention, n_rope += n->op == OP_rope;
        n_norms += n->op == OP_rmsnorm, n_losses += n->op == OP_xent_loss;
    }
    assert_int_equal(n_attention, 32);
    assert_int_equal(n_rope, 2 * 32);
    assert_int_equal(n_norms, 2 * 32 + 1);
    assert_int_equal(n_losses, 1);
    const Tensor *loss = &g->tensors.at[g->loss];
    assert_int_equal(loss->role, ROLE_loss);
    assert_int_equal(loss->dtype, DT_f64);
    assert_int_equal(loss->n_dims, 0);
    arena_free(l.arena);
}

static void gpt2_ties_its_head_and_has_biases(void **state)
{
    (void)state;
    Loaded l = load_model("gpt2' '124m'", 1024);
    const Graph *g = &l.graph;
    static const int64_t heads[] = {12, 1, 64}, groups[] = {12, 64}, dim[] = {768},
                         hidden[] = {3072};
    static const int64_t positions[] = {1024, 768};
    assert_param(g, "layers.11.attention.wq.bias", TP_column, 3, heads, 0, 0, INIT_zeros);
    assert_param(g, "layers.11.attention.wk.bias", TP_column, 2, groups, 0, 0, INIT_zeros);
    assert_param(g, "layers.11.attention.wo.bias", TP_none, 1, dim, 0, 0, INIT_zeros);
    assert_param(g, "layers.11.mlp.up.bias", TP_column, 1, hidden, 0, 0, INIT_zeros);
    assert_param(g, "layers.11.mlp.down.bias", TP_none, 1, dim, 0, 0, INIT_zeros);
    assert_param(g, "layers.11.ln_1.bias", TP_none, 1, dim, 0, 0, INIT_zeros);
    assert_param(g, "wpe.weight", TP_none, 2, positions, 0, 0, INIT_normal);
    TensorId table = loaded_tensor(g, "wte.weight");
    uint32_t uses = 0;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        if (n->op == OP_linear_t || n->op == OP_embed) {
            assert_int_equal(n->in[1], table);
            uses++;
        }
    }
    assert_int_equal(uses, 2);
    assert_int_equal(g->tensors.at[table].tp, TP_vocab);
    assert_false(g->tensors.at[table].input_embedding);
    arena_free(l.arena);
}

static void modules_have_paths_blocks_and_layers(void **state)
{
    (void)state;
    Loaded l = load_model("llama' 'tiny'", 32);
    const Graph *g = &l.graph;
    uint32_t blocks = 0, attentions = 0;
    assert_string_equal(g->modules.at[1].path, "");
    for (ModuleId m = 1; m < g->modules.n; m++) {
        const Module *at = &g->modules.at[m];
        assert_true(at->parent < m);
        if (at->is_block) {
            char path[32];
            snprintf(path, sizeof path, "layers.%u", blocks);
            assert_string_equal(at->path, path);
            assert_string_equal(at->class_, "block");
            assert_int_equal(at->layer, ++blocks);
        }
        attentions += strcmp(at->class_, "attention") == 0;
        if (at->parent != 0 && g->modules.at[at->parent].layer != 0)
            assert_int_equal(at->layer, g->modules.at[at->parent].layer);
    }
    assert_int_equal(blocks, 2);
    assert_int_equal(attentions, 2);
    arena_free(l.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_have_their_parameter_counts),
        cmocka_unit_test(llama_traces_to_the_graph_that_passes_expect),
        cmocka_unit_test(tensors_have_their_dtypes_and_sizes),
        cmocka_unit_test(gpt2_ties_its_head_and_has_biases),
        cmocka_unit_test(modules_have_paths_blocks_and_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
