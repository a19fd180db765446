/* The head and the loss work in pieces along the tokens. Whole logits never exist, and each piece's
 * backward pass follows its forward pass. The tests count gathers, reductions and saved memory.
 * Wrong pieces are rejected. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/base/str.h"
#include "planner/verify/verify.h"
#include "tests/support/plans/tiny.h"

enum { SEQ = 10, VOCAB = 600 };

static Tiny sizes(uint32_t pieces)
{
    Tiny t = tiny_default();
    t.seq = SEQ, t.vocab = VOCAB;
    t.tile = pieces;
    return t;
}

typedef struct Case {
    Arena *arena;
    Plan *plan;
    const Program *p; /* the program of the last stage */
    Graph *g;
} Case;

static const char *verdict(const Case *c)
{
    Diag d = diag_in(c->arena);
    verify_plan(c->plan, VERIFY_all, false, &d);
    Str s = str_in(c->arena);
    diag_print(&d, &s);
    return str_text(&s);
}

static Case case_of(const Tiny *t)
{
    Case c = {.arena = arena_new()};
    Diag d = diag_in(c.arena);
    c.plan = tiny_plan(t, false, c.arena, &d);
    if (!c.plan) {
        Str s = str_in(c.arena);
        diag_print(&d, &s);
        fail_msg("%s", str_text(&s));
        return c;
    }
    c.p = &c.plan->programs.at[c.plan->programs.n - 1];
    c.g = &c.plan->graph;
    assert_string_equal(verdict(&c), "");
    return c;
}

static uint32_t count(const Case *c, OpKind op, UnitId unit)
{
    uint32_t n = 0;
    for (Pc pc = 1; pc < c->p->code.n; pc++)
        n += c->p->code.at[pc].op == op && (!unit || c->p->code.at[pc].unit == unit);
    return n;
}

static UnitId unit_of(const Case *c, const char *param)
{
    for (TensorId t = 1; t < c->g->tensors.n; t++)
        if (strcmp(c->g->tensors.at[t].name, param) == 0) return c->g->tensors.at[t].unit;
    fail_msg("no %s", param);
    return 0;
}

/* Returns the most tokens of a buffer with a dimension of the vocabulary, other than a weight. */
static int64_t most_logits(const Case *c)
{
    int64_t most = 0;
    for (BufferId b = 1; b < c->p->buffers.n; b++) {
        const Shape *s = plan_shape_at(c->plan, c->p->buffers.at[b].shape);
        if (s->n_dims == 3 && s->dim[2] == VOCAB && s->dim[1] > most) most = s->dim[1];
    }
    return most;
}

static void whole_logits_never_exist(void **state)
{
    (void)state;
    for (uint32_t pieces = 2; pieces <= SEQ; pieces++) {
        Tiny t = sizes(pieces);
        Case c = case_of(&t);
        assert_int_equal(most_logits(&c), (SEQ + pieces - 1) / pieces);
        assert_int_equal(count(&c, OP_xent_loss, 0), pieces);
        /* The input and the labels are cut into pieces. */
        assert_int_equal(count(&c, OP_tokens, 0), 2 * pieces);
        arena_free(c.arena);
    }
    Tiny t = sizes(0);
    Case c = case_of(&t);
    assert_int_equal(most_logits(&c), SEQ);
    arena_free(c.arena);
}

/* Each piece runs forward and backward before the next one. Only then comes the backward pass of
 * the blocks. */
static void each_piece_runs_backward_after_forward(void **state)
{
    (void)state;
    Tiny t = sizes(3);
    Case c = case_of(&t);
    uint32_t piece = 0, n_backward = 0;
    Phase phase = PHASE_none;
    for (Pc pc = 1; pc < c.p->code.n; pc++) {
        const Instr *in = &c.p->code.at[pc];
        const uint32_t tile = c.g->nodes.at[in->origin].tile;
        if (in->phase == PHASE_backward && !tile) n_backward++;
        if (!tile) continue;
        assert_int_equal(n_backward, 0);
        assert_true(tile == piece || (tile == piece + 1 && in->phase == PHASE_forward));
        assert_true(tile != piece || phase != PHASE_backward || in->phase == PHASE_backward);
        piece = tile;
        phase = in->phase;
    }
    assert_int_equal(piece, 3);
    assert_true(n_backward > 0);
    arena_free(c.arena);
}

/* In each micro-batch, the head's weight is gathered once and its gradient is reduced once,
 * whatever the rule for blocks is. */
static void the_heads_weight_is_gathered_and_reduced_once(void **state)
{
    (void)state;
    for (int root = 0; root <= 1; root++)
        for (uint32_t pieces = 2; pieces <= 4; pieces++) {
            Tiny t = sizes(pieces);
            t.dp_shard = 2;
            t.fsdp2.reshard_root = root;
            Case c = case_of(&t);
            Tiny whole = sizes(0);
            whole.dp_shard = 2;
            whole.fsdp2.reshard_root = root;
            Case w = case_of(&whole);
            UnitId u = unit_of(&c, "head.weight");
            assert_int_equal(count(&c, OP_all_gather, u), count(&w, OP_all_gather, u));
            assert_int_equal(count(&c, OP_reduce_scatter, u), 1);
            arena_free(c.arena);
            arena_free(w.arena);
        }
}

/* With sequence parallelism, the head's input is gathered once, not for each piece. */
static void tokens_are_gathered_once_for_all_pieces(void **state)
{
    (void)state;
    uint32_t n[2];
    for (int k = 0; k < 2; k++) {
        Tiny t = sizes(k ? 5 : 2);
        t.vocab = 58, t.tp = 2;
        t.tp_options.sequence = true;
        Case c = case_of(&t);
        n[k] = count(&c, OP_all_gather, 0);
        arena_free(c.arena);
    }
    assert_true(n[0] > 0);
    assert_int_equal(n[0], n[1]);
}

/* Logits and their gradient share one buffer. It has 1 / pieces of its former size. */
static void pieces_save_memory_of_logits(void **state)
{
    (void)state;
    Tiny whole = sizes(0), tiled = sizes(5);
    whole.microbatches = tiled.microbatches = 1;
    Case a = case_of(&whole), b = case_of(&tiled);
    const uint64_t saved = (uint64_t)SEQ * VOCAB * sizeof(float) * 4 / 5;
    /* pieces of the input also need memory */
    assert_true(a.p->bytes > b.p->bytes + saved * 9 / 10);
    arena_free(a.arena);
    arena_free(b.arena);
}

/* If several forward actions follow each other, a unit that only partly belongs to the pieces is
 * reduced once a step. A unit that wholly belongs to them is reduced each time. */
static void a_partly_tiled_unit_is_reduced_once_a_step(void **state)
{
    (void)state;
    static const ScheduleKind schedules[] = {SCHEDULE_gpipe, SCHEDULE_1f1b};
    for (int k = 0; k < 2; k++) {
        Tiny t = sizes(2);
        t.pp = 2, t.dp_shard = 2, t.microbatches = 4;
        t.pp_options.schedule = schedules[k];
        Case c = case_of(&t);
        uint32_t n = count(&c, OP_reduce_scatter, unit_of(&c, "head.weight"));
        assert_int_equal(n, k == 0 ? 1 : 4);
        arena_free(c.arena);
    }
}

static void set_attrs(Case *c, NodeId id, int64_t first, int64_t n, double scale)
{
    Attrs a = *graph_attrs_at(c->g, c->g->nodes.at[id].attrs);
    a.first += first, a.count += n;
    if (scale != 1) a.smoothing += scale;
    c->g->nodes.at[id].attrs = graph_attrs(c->g, c->arena, &a);
}

static NodeId nth(const Case *c, OpKind op, uint32_t tile, uint32_t n)
{
    for (NodeId id = 1; id < c->g->nodes.n; id++)
        if (c->g->nodes.at[id].op == op && c->g->nodes.at[id].tile == tile && n-- == 0) return id;
    fail_msg("no such node");
    return 0;
}

/* Gives the instructions the attributes of their nodes. So the program agrees with the graph, and
 * only the tokens that both state are wrong. */
static void follow(Case *c)
{
    for (uint32_t i = 0; i < c->plan->programs.n; i++)
        for (Pc pc = 1; pc < c->plan->programs.at[i].code.n; pc++) {
            Instr *in = &c->plan->programs.at[i].code.at[pc];
            const Node *n = &c->g->nodes.at[in->origin];
            Attrs a = *graph_attrs_at(c->g, n->attrs);
            if (!in->origin || n->op != in->op) continue;
            a.accumulate = graph_attrs_at(c->g, in->attrs)->accumulate;
            in->attrs = graph_attrs(c->g, c->arena, &a);
        }
}

static void rejects(Case *c, const char *says)
{
    follow(c);
    const char *is = verdict(c);
    if (!strstr(is, "verify-tiles") || !strstr(is, says)) fail_msg("\"%s\" in: %s", says, is);
    arena_free(c->arena);
}

static void wrong_pieces_are_rejected(void **state)
{
    (void)state;
    Tiny t = sizes(3); /* the pieces end before tokens 3, 6 and 10 */
    t.gpt2 = true;     /* a tied weight's gradient has one more contribution */
    Case c = case_of(&t);
    set_attrs(&c, nth(&c, OP_tokens, 2, 0), 1, 0, 1);
    /* The inputs belong to other tokens than the labels. */
    rejects(&c, "reads tensors with different tokens");
    c = case_of(&t);
    set_attrs(&c, nth(&c, OP_tokens, 2, 0), -3, 0, 1);
    set_attrs(&c, nth(&c, OP_tokens, 2, 1), -3, 0, 1);
    set_attrs(&c, nth(&c, OP_tokens_grad, 2, 0), -3, 0, 1);
    /* The first piece counts twice, and the second is missing. */
    rejects(&c, "must be summed over each of 10 tokens once");
    c = case_of(&t);
    set_attrs(&c, nth(&c, OP_tokens_grad, 3, 0), -1, 0, 1);
    rejects(&c, "writes gradients of tokens that are not its own");
    c = case_of(&t);
    set_attrs(&c, nth(&c, OP_xent_loss, 2, 0), 0, 0, 0.1);
    /* One piece is computed in another way. */
    rejects(&c, "do not cover all tokens in the same way");
    c = case_of(&t);
    c.g->nodes.at[nth(&c, OP_xent_max, 2, 0)].tile = 3;
    rejects(&c, "names a piece other than");
    c = case_of(&t);
    c.g->nodes.at[nth(&c, OP_embed, 0, 0)].tile = 1;
    rejects(&c, "names a piece, but computes with all tokens");
}

/* If the loss is a mean of means, its ops also count the labels of their piece. */
static void labels_of_other_pieces_are_rejected(void **state)
{
    (void)state;
    Tiny t = sizes(3);
    t.denominator = DENOMINATOR_microbatch_mean;
    Case c = case_of(&t);
    set_attrs(&c, nth(&c, OP_xent_loss_mean, 2, 0), 1, 0, 1);
    rejects(&c, "counts the labels of tokens that are not its own");
    c = case_of(&t);
    set_attrs(&c, nth(&c, OP_xent_loss_mean_grad, 3, 0), -1, 0, 1);
    rejects(&c, "counts the labels of tokens that are not its own");
}

/* A piece's share of the loss, or of a gradient, is missing both in the graph and in the
 * program. */
static void a_missing_share_of_a_piece_is_rejected(void **state)
{
    (void)state;
    static const OpKind left_out[] = {OP_xent_loss, OP_linear_d0, OP_linear_d1, OP_tokens_grad};
    for (size_t k = 0; k < sizeof left_out / sizeof *left_out; k++) {
        Tiny t = sizes(3);
        Case c = case_of(&t);
        NodeId id = nth(&c, left_out[k], 2, 0);
        Node *n = &c.g->nodes.at[id];
        TensorId other = n->out[0]; /* no later op reads it */
        Tensor lost = c.g->tensors.at[other];
        lost.name = "lost";
        n->out[0] = (TensorId)list_push(c.arena, &c.g->tensors, lost);
        const char *is = verdict(&c);
        if (!strstr(is, "verify-tiles")) fail_msg("%s: %s", op_info(left_out[k])->name, is);
        arena_free(c.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_logits_never_exist),
        cmocka_unit_test(each_piece_runs_backward_after_forward),
        cmocka_unit_test(the_heads_weight_is_gathered_and_reduced_once),
        cmocka_unit_test(tokens_are_gathered_once_for_all_pieces),
        cmocka_unit_test(pieces_save_memory_of_logits),
        cmocka_unit_test(a_partly_tiled_unit_is_reduced_once_a_step),
        cmocka_unit_test(wrong_pieces_are_rejected),
        cmocka_unit_test(labels_of_other_pieces_are_rejected),
        cmocka_unit_test(a_missing_share_of_a_piece_is_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
