/* The op table: the grammar of signatures, the facts that follow from them, and their binding to
 * shapes. All layouts, FLOPs and bytes follow from signatures, so one mistake here would be
 * everywhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/ir/op/bound.h"
#include "planner/ir/op/op_private.h"
#include "planner/ir/window.h"

static int setup(void **state)
{
    *state = arena_new();
    return 0;
}

static int teardown(void **state)
{
    arena_free(*state);
    return 0;
}

static void a_signature_is_parsed_into_its_dimensions(void **state)
{
    (void)state;
    Signature s;
    assert_true(op_parse_signature("bh~w...,Ic->(bw)...c,", &s, NULL));
    assert_int_equal(s.n_in, 2);
    assert_int_equal(s.n_out, 2);
    assert_int_equal(s.in[0].n_dims, 3);
    assert_int_equal(s.in[0].ellipsis, 3);
    assert_int_equal(s.in[0].dim[1].letter, 'h');
    assert_true(s.in[0].dim[1].reads);
    assert_false(s.in[0].dim[2].reads);
    assert_true(sig_is_windowed(&s));
    assert_int_equal(s.in[1].ellipsis, -1);
    assert_int_equal(s.out[0].dim[0].letter, 'b');
    assert_int_equal(s.out[0].dim[0].inner, 'w');
    assert_int_equal(s.out[0].ellipsis, 1);
    assert_int_equal(s.out[1].n_dims, 0);
    assert_true(op_parse_signature("->x", &s, NULL));
    assert_int_equal(s.n_in, 0);
}

static void bad_signatures_are_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "ab",
        "ab-c",
        "a->b->c",
        "aa->a",
        "a..b->a",
        "...a...->a",
        "(ab->a",
        "(a)->a",
        "c~->c",
        "H~->H",
        "h~h->h",
        "h~,H->h",
        "(h~p)->h",
        "a1->a",
        "abcdefg->a",
        "a(ba)->a",
        "a->a ",
        "(aa)->a",
        "a,b,c,d,e,f,g,h,i->a",
        "a->a,b,c,d,e",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        Diag d = diag_in(*state);
        Signature s;
        if (op_parse_signature(bad[i], &s, &d)) fail_msg("\"%s\" was accepted", bad[i]);
        assert_int_equal(d.n_errors, 1);
        assert_string_equal(d.items.at[0].rule, "bad-signature");
        assert_false(op_parse_signature(bad[i], &s, NULL));
    }
}

static void every_op_is_found_by_its_name(void **state)
{
    (void)state;
    for (int op = 1; op < OP_COUNT; op++) {
        const OpInfo *info = op_info((OpKind)op);
        assert_int_equal(op_find(info->name), op);
        assert_int_not_equal(info->class_, OP_CLASS_none);
        Signature s;
        bool has = info->class_ == OP_CLASS_compute || info->class_ == OP_CLASS_contract;
        assert_int_equal(*info->signature != 0, has);
        if (has) assert_true(op_parse_signature(info->signature, &s, NULL));
    }
    assert_int_equal(op_find("no_such_op"), OP_none);
    assert_int_equal(op_find(""), OP_none);
    assert_int_equal(op_info(OP_none)->sig.n_in, 0);
}

static void signatures_of_gradients_follow_from_contractions(void **state)
{
    (void)state;
    assert_string_equal(op_info(OP_linear_d0)->signature, "bsn,kn->bsk");
    assert_string_equal(op_info(OP_linear_d1)->signature, "bsk,bsn->kn");
    assert_string_equal(op_info(OP_linear_o_d0)->signature, "bsn,grdn->bsgrd");
    assert_string_equal(op_info(OP_linear_q_d1)->name, "linear_q_d1");
    assert_string_equal(op_info(OP_linear_tensorwise)->signature, "bsk,kn,,->bsn");
    assert_string_equal(op_info(OP_linear_rowwise)->signature, "bsk,kn,bs,n->bsn");
    assert_string_equal(op_info(OP_linear_q_rowwise_d1)->name, "linear_q_rowwise_d1");
    assert_string_equal(op_info(OP_linear_o_rowwise_d0)->signature, "bsn,grdn,bs,grd->bsgrd");
    assert_string_equal(op_info(OP_linear_blocks)->signature, "bskB,kBn,bsk,kn->bsn");
    assert_string_equal(op_info(OP_linear_blocks_d1)->signature, "bsBk,bsBn,bsk,bsn->kn");
    assert_string_equal(op_info(OP_linear_o_blocks)->signature, "bsgrdB,grdBn,bsgrd,grdn->bsn");
    assert_int_equal(op_info(OP_linear_blocks)->along, OP_linear_blocks);
    assert_string_equal(op_info(OP_linear_pairs)->signature, "bskA,kAn,bsk,kn,,->bsn");
    assert_string_equal(op_info(OP_linear_o_pairs_d0)->signature, "bsnA,grdnA,bsn,grdn,,->bsgrd");
    /* each element is a pair of numbers */
    assert_true(op_info(OP_linear_pairs)->flops_per_point == 4);
    assert_true(op_has_pairs(OP_linear_pairs_d1) && op_has_pairs(OP_quantise_squares_last));
    assert_false(op_has_pairs(OP_linear_blocks) || op_has_pairs(OP_image));
    assert_string_equal(op_info(OP_linear_rowwise_d1)->signature, "bsk,bsn,k,n->kn");
    assert_int_equal(op_info(OP_linear_q_d1)->scaled[SCALING_rowwise], OP_linear_q_rowwise_d1);
    assert_int_equal(op_info(OP_linear_tensorwise)->scaled[SCALING_none], OP_linear);
    assert_int_equal(op_info(OP_linear_tensorwise_d0)->scaling, SCALING_tensorwise);
    const OpInfo *l = op_info(OP_linear);
    assert_int_equal(l->n_backward, 2);
    assert_int_equal(l->backward[0].op, OP_linear_d0);
    assert_int_equal(l->backward[0].of[0], 0);
    assert_int_equal(l->backward[1].in[0].kind, WIRE_i);
    assert_int_equal(l->backward[1].of[0], 1);
    assert_true(op_info(OP_linear_d1)->flags & OP_ACCUMULATES);
    char out[32];
    sig_gradient("ab,bc->ac", 0, out, sizeof out);
    assert_string_equal(out, "ac,bc->ab");
}

static void backward_wiring_is_parsed(void **state)
{
    (void)state;
    const Backward *w = &op_info(OP_attention)->backward[0];
    assert_int_equal(op_info(OP_attention)->n_backward, 1);
    assert_int_equal(w->op, OP_attention_grad);
    assert_int_equal(w->n_in, 6);
    assert_int_equal(w->in[0].kind, WIRE_d);
    assert_int_equal(w->in[4].kind, WIRE_o);
    assert_int_equal(w->in[5].index, 1);
    assert_int_equal(w->n_of, 3);
    assert_int_equal(w->of[2], 2);
    const OpInfo *add = op_info(OP_add);
    assert_int_equal(add->n_backward, 2);
    assert_int_equal(add->backward[1].op, OP_pass);
    assert_int_equal(add->backward[1].of[0], 1);
}

#define DIMS(...) ((Dims){sizeof((int64_t[]){__VA_ARGS__}) / 8, (int64_t[]){__VA_ARGS__}})

static bool bind(OpKind op, const Dims *in, uint32_t n_in, Binding *b, Diag *d)
{
    Loc loc = {"model.lua", 5};
    return op_bind(op, in, n_in, NULL, 0, b, loc, d);
}

static void binding_infers_output_shapes_and_flops(void **state)
{
    Diag d = diag_in(*state);
    Binding b;
    int64_t dim[MAX_DIMS];
    const Dims attention[] = {DIMS(2, 16, 4, 3, 8), DIMS(2, 32, 4, 8), DIMS(2, 32, 4, 8)};
    assert_true(bind(OP_attention, attention, 3, &b, &d));
    assert_int_equal(b.size['T'], 32);
    assert_int_equal(b.size['E'], 8);
    assert_int_equal(op_output_dims(OP_attention, &b, 0, dim), 5);
    assert_int_equal(dim[3], 3);
    assert_int_equal(op_output_dims(OP_attention, &b, 1, dim), 4);
    assert_memory_equal(dim, ((int64_t[]){2, 16, 4, 3}), 32);
    assert_true(op_flops(OP_attention, &b, b.size, 1) == 4.0 * 2 * 16 * 4 * 3 * 8 * 32);
    assert_true(op_flops(OP_attention, &b, b.size, 0.5) == 2.0 * 2 * 16 * 4 * 3 * 8 * 32);
    const Dims loss[] = {DIMS(2, 16), DIMS(2, 16), DIMS(2, 16), DIMS(2, 16)};
    assert_true(bind(OP_xent_loss, loss, 4, &b, &d));
    assert_int_equal(op_output_dims(OP_xent_loss, &b, 0, dim), 0);
    /* The gradient of a pick has a vocabulary whose size no input states. */
    assert_true(bind(OP_xent_pick_grad, loss, 2, &b, &d));
    assert_int_equal(op_output_dims(OP_xent_pick_grad, &b, 0, dim), -1);
    Loc loc = {NULL, 0};
    const Dims picked = DIMS(2, 16, 50);
    assert_true(op_bind(OP_xent_pick_grad, loss, 2, &picked, 1, &b, loc, &d));
    assert_int_equal(op_output_dims(OP_xent_pick_grad, &b, 0, dim), 3);
    assert_int_equal(dim[2], 50);
    assert_int_equal(d.n_errors, 0);
}

static void an_ellipsis_gets_its_own_letters(void **state)
{
    Diag d = diag_in(*state);
    Binding b;
    int64_t dim[MAX_DIMS];
    const Dims rope[] = {DIMS(2, 16, 4, 3, 8)};
    assert_true(bind(OP_rope, rope, 1, &b, &d));
    assert_string_equal(b.ellipsis, "ac"); /* b and s are already used */
    assert_int_equal(b.letter[0][2], 'a');
    assert_int_equal(b.letter[0][3], 'c');
    assert_int_equal(b.letter[1][4], 'E');
    assert_int_equal(b.size['c'], 3);
    const Dims bias[] = {DIMS(2, 16, 4, 8), DIMS(4, 8)};
    assert_true(bind(OP_bias, bias, 2, &b, &d));
    assert_int_equal(b.letter[1][1], b.letter[0][3]);
    const Dims none[] = {{0, NULL}, {0, NULL}};
    assert_true(bind(OP_add, none, 2, &b, &d));
    assert_int_equal(op_output_dims(OP_add, &b, 0, dim), 0);
    const Dims six[] = {DIMS(1, 2, 3, 4, 5, 6), DIMS(1, 2, 3, 4, 5, 6)};
    assert_true(bind(OP_add, six, 2, &b, &d));
    assert_int_equal(strlen(b.ellipsis), 6);
    assert_int_equal(op_output_dims(OP_add, &b, 0, dim), 6);
    assert_int_equal(d.n_errors, 0);
}

static void mismatched_shapes_are_refused(void **state)
{
    const struct {
        OpKind op;
        uint32_t n;
        Dims in[2];
        const char *says;
    } bad[] = {
        {OP_linear, 2, {DIMS(2, 3, 4), DIMS(5, 6)}, "index k is 5 in input 1, but 4 before"},
        {OP_linear, 2, {DIMS(2, 3), DIMS(5, 6)}, "input 0 has 2 dimensions, not 3"},
        {OP_linear, 1, {DIMS(2, 3, 4)}, "was given 1 inputs"},
        {OP_linear, 2, {DIMS(2, 0, 4), DIMS(4, 6)}, "dimension 0 of input 0 does not fit index s"},
        {OP_add, 2, {DIMS(2, 3), DIMS(2)}, "input 1 has 1 dimensions, not 2"},
        {OP_bias, 2, {DIMS(2, 3, 4), DIMS(5)}, "is 5 in input 1"},
        {OP_slice, 1, {DIMS(2, 3, 4)}, "the op slice has no index signature"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        Diag d = diag_in(*state);
        Binding b;
        assert_false(bind(bad[i].op, bad[i].in, bad[i].n, &b, &d));
        assert_int_equal(d.n_errors, 1);
        assert_string_equal(d.items.at[0].rule, "shape-mismatch");
        assert_int_equal(d.items.at[0].loc.line, 5);
        if (!strstr(d.items.at[0].text, bad[i].says)) fail_msg("%s", d.items.at[0].text);
        Binding quiet;
        Loc loc = {NULL, 0};
        assert_false(op_bind(bad[i].op, bad[i].in, bad[i].n, NULL, 0, &quiet, loc, NULL));
    }
}

static bool bind_text(const char *text, const Dims *in, uint32_t n_in, const Dims *out,
                      Signature *sig, Binding *b)
{
    Loc loc = {NULL, 0};
    assert_true(op_parse_signature(text, sig, NULL));
    return sig_bind(sig, "test", text, in, n_in, out, out ? sig->n_out : 0, NULL, b, loc, NULL);
}

/* In a convolution, `h~` stands for the rows that h reads. Their number is H. */
static void a_windowed_dimension_binds_both_sizes(void **state)
{
    (void)state;
    Signature s;
    Binding b;
    int64_t dim[MAX_DIMS];
    const char *conv = "bch~w~,ncIJ->bnhw";
    const Dims in[] = {DIMS(2, 3, 17, 8), DIMS(8, 3, 5, 3)}, out[] = {DIMS(2, 8, 7, 6)};
    assert_true(bind_text(conv, in, 2, out, &s, &b));
    assert_int_equal(b.size['H'], 17);
    assert_int_equal(b.size['h'], 7);
    assert_int_equal(b.letter[0][2], 'h');
    assert_true(b.reads[0][2] && !b.reads[2][2]);
    for (uint32_t i = 0; i < b.n_letters; i++) assert_int_not_equal(b.letters[i], 'H');
    /* without an output, only the window gives h */
    assert_true(bind_text(conv, in, 2, NULL, &s, &b));
    assert_int_equal(b.size['h'], 0);
    assert_int_equal(sig_output_dims(&s, &b, 0, dim), -1);
    assert_true(sig_may_split(&s, 'h'));
    assert_false(sig_may_split(&s, 'I'));
    const char *back = "bnhw,ncIJ->bch~w~";
    const Dims grad[] = {DIMS(2, 8, 7, 6), DIMS(8, 3, 5, 3)}, made[] = {DIMS(2, 3, 17, 8)};
    assert_true(bind_text(back, grad, 2, made, &s, &b));
    assert_int_equal(sig_output_dims(&s, &b, 0, dim), 4);
    assert_memory_equal(dim, ((int64_t[]){2, 3, 17, 8}), 32);
}

/* The rows that a window reads and writes must equal those of a walk over all taps. */
static void windows_read_the_rows_of_their_taps(void **state)
{
    (void)state;
    uint32_t n_fit = 0;
    for (int64_t k = 1; k <= 4; k++)
        for (int64_t s = 1; s <= 3; s++)
            for (int64_t dilation = 1; dilation <= 2; dilation++)
                for (int64_t before = 0; before <= 3; before++) {
                    const Window w = {k, s, dilation, before, 1, WINDOW_zero, 0, 0, false};
                    const int64_t size = 9, n = window_outputs(&w, size);
                    if (!n) continue;
                    n_fit++;
                    assert_true((n - 1) * s + (k - 1) * dilation < size + before + 1);
                    assert_true(n * s + (k - 1) * dilation >= size + before + 1);
                    assert_true(window_inputs(&w, n) <= size);
                    assert_int_equal(window_outputs(&w, window_inputs(&w, n)), n);
                    for (int64_t lo = 0; lo < n; lo++) {
                        int64_t least = INT64_MAX, most = INT64_MIN;
                        for (int64_t o = lo; o < n; o++)
                            for (int64_t tap = 0; tap < k; tap++) {
                                int64_t row = o * s - before + tap * dilation;
                                least = row < least ? row : least;
                                most = row > most ? row : most;
                            }
                        Interval reads = window_reads(&w, lo, n);
                        assert_int_equal(reads.lo, least);
                        assert_int_equal(reads.hi, most + 1);
                    }
                }
    assert_true(n_fit > 80);
    const Window mirror = {3, 1, 1, 2, 2, WINDOW_reflect, 0, 0, false},
                 ring = {3, 1, 1, 2, 2, WINDOW_periodic, 0, 0, false};
    assert_int_equal(window_row(&mirror, 5, -2), 2);
    assert_int_equal(window_row(&mirror, 5, 6), 2);
    assert_int_equal(window_row(&ring, 5, -2), 3);
    assert_int_equal(window_row(&ring, 5, 6), 1);
    assert_int_equal(window_row(&ring, 5, 4), 4);
    const Window zero = {3, 1, 1, 2, 2, WINDOW_zero, 0, 0, false};
    assert_int_equal(window_row(&zero, 5, -1), -1);
    assert_int_equal(window_row(&zero, 5, 5), -1);
}

/* Only attributes state these sizes. Each is set beyond its bound, one at a time. */
static void sizes_of_experts_are_bounded(void **state)
{
    (void)state;
    const Attrs good = {.experts = 6, .top_k = 2, .capacity = 3};
    const struct {
        int64_t experts, top_k, capacity;
    } bad[] = {{0, 2, 3}, {-6, 2, 3}, {6, 0, 3},  {6, 7, 3},
               {1, 2, 3}, {6, 2, 0},  {6, 2, -1}, {6, 2, INT32_MAX / 6 + 1}};
    Binding b = {0};
    assert_true(op_sized(&b, &good));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Attrs a = good;
        a.experts = bad[i].experts, a.top_k = bad[i].top_k, a.capacity = bad[i].capacity;
        b = (Binding){0};
        if (op_sized(&b, &a)) fail_msg("case %zu was accepted", i);
    }
}

/* Output row o of a resize to the nearest row reads row o * from / to, rounded down. */
static void resizing_reads_the_nearest_rows(void **state)
{
    (void)state;
    for (int64_t from = 1; from <= 4; from++)
        for (int64_t to = 1; to <= 4; to++)
            for (int64_t lo = 0; lo < 8; lo++)
                for (int64_t hi = lo + 1; hi <= 8; hi++) {
                    const Window w = {1, 1, 1, 0, 0, WINDOW_zero, from, to, true};
                    const Interval reads = window_reads(&w, lo, hi);
                    assert_int_equal(reads.lo, lo * from / to);
                    assert_int_equal(reads.hi, (hi - 1) * from / to + 1);
                }
}

/* The signature of a patch embedding has composite dimensions. */
static void composite_dimensions_bind_their_factors(void **state)
{
    (void)state;
    Signature s;
    Binding b;
    int64_t dim[MAX_DIMS];
    const char *patch = "b(hp)(wq)c,pqcn->bhwn";
    const Dims image[] = {DIMS(2, 32, 48, 3), DIMS(16, 16, 3, 9)};
    assert_true(bind_text(patch, image, 2, NULL, &s, &b));
    assert_int_equal(sig_output_dims(&s, &b, 0, dim), 4);
    assert_memory_equal(dim, ((int64_t[]){2, 2, 3, 9}), 32);
    assert_true(sig_may_split(&s, 'h'));
    assert_false(sig_may_split(&s, 'p')); /* p is not the first index of its dimension */
    const Dims odd[] = {DIMS(2, 30, 48, 3), DIMS(16, 16, 3, 9)};
    assert_false(bind_text(patch, odd, 2, NULL, &s, &b));
    const Dims back[] = {DIMS(2, 2, 3, 4, 5)};
    assert_true(bind_text("bhpwq->b(hp)(wq)", back, 1, NULL, &s, &b));
    assert_int_equal(sig_output_dims(&s, &b, 0, dim), 3);
    assert_int_equal(dim[1], 6);
    assert_int_equal(dim[2], 20);
    const Dims deep[] = {DIMS(2, 2, 2, 2, 2, 2), DIMS(2, 2)};
    assert_false(bind_text("...,xy->x...", deep, 2, NULL, &s, &b)); /* seven dimensions */
}

static void only_lower_case_indices_may_be_split(void **state)
{
    (void)state;
    assert_true(op_may_split(OP_attention, 'g'));
    assert_true(op_may_split(OP_attention, 's'));
    assert_false(op_may_split(OP_attention, 'E'));
    assert_false(op_may_split(OP_attention, 'T'));
    assert_false(op_may_split(OP_attention, 'q')); /* this row has no letter q */
    assert_true(op_may_split(OP_add, 'q'));        /* `...` may stand for it */
    assert_false(op_may_split(OP_all_reduce, 'a'));
    assert_false(op_may_split(OP_attention, 0));
}

static void splitting_an_index_gives_layouts(void **state)
{
    Diag d = diag_in(*state);
    Binding b;
    const Dims linear[] = {DIMS(2, 3, 4), DIMS(4, 6)};
    assert_true(bind(OP_linear, linear, 2, &b, &d));
    assert_int_equal(op_axis_layout(OP_linear, &b, 0, 'k'), SPLIT(2));
    assert_int_equal(op_axis_layout(OP_linear, &b, 1, 'k'), SPLIT(0));
    assert_int_equal(op_axis_layout(OP_linear, &b, 2, 'k'), PARTIAL_SUM);
    assert_int_equal(op_axis_layout(OP_linear, &b, 0, 'n'), WHOLE);
    assert_int_equal(op_axis_layout(OP_linear, &b, 2, 'n'), SPLIT(2));
    assert_int_equal(op_axis_layout(OP_linear, &b, 2, 0), WHOLE);
    const Dims logits[] = {DIMS(2, 3, 50)};
    assert_true(bind(OP_xent_max, logits, 1, &b, &d));
    assert_int_equal(op_axis_layout(OP_xent_max, &b, 1, 'v'), PARTIAL_MAX);
    /* This op has no inputs. The other outputs of a source are whole. */
    Loc loc = {NULL, 0};
    const Dims x[] = {DIMS(2, 3), DIMS(2, 3)};
    assert_true(op_bind(OP_batch, NULL, 0, x, 2, &b, loc, &d));
    assert_int_equal(op_axis_layout(OP_batch, &b, 1, 'b'), SPLIT(0));
}

static void lookups_name_their_table_index(void **state)
{
    Diag d = diag_in(*state);
    Binding b;
    const Dims embed[] = {DIMS(2, 3), DIMS(1000, 8)};
    assert_true(bind(OP_embed, embed, 2, &b, &d));
    assert_int_equal(op_looked_up(OP_embed, &b, 1), 'v');
    assert_int_equal(op_looked_up(OP_embed, &b, 0), 0);
    Loc loc = {NULL, 0};
    const Dims grad[] = {DIMS(2, 3, 8), DIMS(2, 3)}, table_dims = DIMS(1000, 8);
    assert_true(op_bind(OP_embed_grad, grad, 2, &table_dims, 1, &b, loc, &d));
    assert_int_equal(op_looked_up(OP_embed_grad, &b, 2), 'v');
    assert_true(op_flops(OP_embed_grad, &b, b.size, 1) == 2.0 * 3 * 8);
    const Dims linear[] = {DIMS(2, 3, 4), DIMS(4, 6)};
    assert_true(bind(OP_linear, linear, 2, &b, &d));
    assert_int_equal(op_looked_up(OP_linear, &b, 1), 0);
}

/* In a table of positions, and in a table of all tokens' choices, a token uses only its own row. So
 * the FLOPs of these ops do not grow with the square of the sequence. */
static void tokens_take_their_own_rows(void **state)
{
    Diag d = diag_in(*state);
    Binding b;
    const Dims position[] = {DIMS(2, 64, 8), DIMS(64, 8)};
    assert_true(bind(OP_position, position, 2, &b, &d));
    assert_true(op_flops(OP_position, &b, b.size, 1) == 2.0 * 64 * 8);
    const Dims balance[] = {DIMS(2, 64, 16), DIMS(2, 64, 4)};
    assert_true(bind(OP_balance, balance, 2, &b, &d));
    assert_true(op_flops(OP_balance, &b, b.size, 1) == 4.0 * 2 * 64 * 16 * 4);
}

/* A binding is stored and found again. Other sizes must not find it, nor may a mismatch. */
static void a_stored_binding_is_found_only_for_equal_shapes(void **state)
{
    Diag d = diag_in(*state);
    Binding first, again, other;
    for (int64_t size = 4; size < 4000; size++) {
        const Dims dims[] = {DIMS(2, 3, size), DIMS(size, 6)},
                   bad[] = {DIMS(2, 3, size), DIMS(size + 1, 6)};
        assert_true(bind(OP_linear, dims, 2, &first, &d));
        assert_true(bind(OP_linear, dims, 2, &again, &d));
        assert_memory_equal(&first, &again, sizeof first);
        assert_int_equal(again.size['k'] + again.size['n'], size + 6);
        assert_false(bind(OP_linear, bad, 2, &other, NULL));
        assert_false(bind(OP_linear, dims, 1, &other, NULL));
    }
    assert_int_equal(d.n_errors, 0);
}

/* An output whose dimensions are still to be derived has none, like a scalar. A stored binding for
 * one of them must not be found for the other. */
static void an_output_to_derive_is_not_a_scalar(void **state)
{
    (void)state;
    Binding b;
    const int64_t nothing[1] = {0};
    const Loc loc = {NULL, 0};
    for (int64_t size = 4; size < 400; size++) {
        const Dims in[] = {DIMS(2, 3, size), DIMS(size, 6)}, derived = {0, NULL},
                   scalar = {0, nothing}, known = DIMS(2, 3, 6);
        assert_true(op_bind(OP_linear, in, 2, &derived, 1, &b, loc, NULL));
        assert_false(op_bind(OP_linear, in, 2, &scalar, 1, &b, loc, NULL));
        assert_true(op_bind(OP_linear, in, 2, &known, 1, &b, loc, NULL));
        assert_false(op_bind(OP_linear, in, 2, &scalar, 1, &b, loc, NULL));
    }
}

/* Binds x W for a weight of this width. */
static const Binding *bound_of_width(int64_t width, Binding *own)
{
    const Dims in[] = {DIMS(2, 3, 4), DIMS(4, width)}, out = DIMS(2, 3, width);
    return op_bound(OP_linear, in, 2, &out, 1, own, (Loc){NULL, 0}, NULL);
}

/* Binds more shapes than can be stored, so that stored bindings are replaced. */
static void a_returned_binding_survives_the_next_one(void **state)
{
    (void)state;
    const OpInfo *info = op_info(OP_linear);
    Binding own[2], fresh;
    const Binding *before = bound_of_width(3, &own[0]);
    for (int64_t width = 4; width < 4000; width++) {
        const Dims in[] = {DIMS(2, 3, 4), DIMS(4, width - 1)}, out = DIMS(2, 3, width - 1);
        const Binding *next = bound_of_width(width, &own[width % 2]);
        assert_true(sig_bind(&info->sig, info->name, info->signature, in, 2, &out, 1, NULL, &fresh,
                             (Loc){NULL, 0}, NULL));
        assert_non_null(next);
        assert_memory_equal(before, &fresh, sizeof fresh);
        before = next;
    }
}

static void stored_answers_equal_those_of_the_signature(void **state)
{
    (void)state;
    for (int op = OP_none + 1; op < OP_COUNT; op++)
        for (int letter = 1; letter < 128; letter++)
            for (int twice = 0; twice < 2; twice++)
                assert_int_equal(op_may_split((OpKind)op, (char)letter),
                                 sig_may_split(&op_info((OpKind)op)->sig, (char)letter));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signature_is_parsed_into_its_dimensions),
        cmocka_unit_test_setup_teardown(bad_signatures_are_refused, setup, teardown),
        cmocka_unit_test(every_op_is_found_by_its_name),
        cmocka_unit_test(signatures_of_gradients_follow_from_contractions),
        cmocka_unit_test(backward_wiring_is_parsed),
        cmocka_unit_test_setup_teardown(binding_infers_output_shapes_and_flops, setup, teardown),
        cmocka_unit_test_setup_teardown(an_ellipsis_gets_its_own_letters, setup, teardown),
        cmocka_unit_test_setup_teardown(mismatched_shapes_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_stored_binding_is_found_only_for_equal_shapes, setup,
                                        teardown),
        cmocka_unit_test(an_output_to_derive_is_not_a_scalar),
        cmocka_unit_test(a_returned_binding_survives_the_next_one),
        cmocka_unit_test(stored_answers_equal_those_of_the_signature),
        cmocka_unit_test(a_windowed_dimension_binds_both_sizes),
        cmocka_unit_test(windows_read_the_rows_of_their_taps),
        cmocka_unit_test(composite_dimensions_bind_their_factors),
        cmocka_unit_test(sizes_of_experts_are_bounded),
        cmocka_unit_test(resizing_reads_the_nearest_rows),
        cmocka_unit_test(only_lower_case_indices_may_be_split),
        cmocka_unit_test_setup_teardown(splitting_an_index_gives_layouts, setup, teardown),
        cmocka_unit_test_setup_teardown(lookups_name_their_table_index, setup, teardown),
        cmocka_unit_test_setup_teardown(tokens_take_their_own_rows, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
