/* Attributes of ops have bounds (planner/ir/op/attrs.def). Beyond them a kernel would divide by
 * zero or leave its buffers. The tests try each attribute of each op in a plan's text: at its
 * bounds, beyond them, and on ops without this attribute. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "planner/ir/text/text.h"
#include "planner/ir/window.h"
#include "tests/support/test_arena.h"

/* Returns the attributes that the op needs, with values that contradict no other attribute. */
static Attrs sound_attrs(OpKind op)
{
    /* Each of these must stay above another attribute, so it gets its largest value. */
    static const uint32_t large[] = {ATTR_hi, ATTR_rope_factor, ATTR_rope_context, ATTR_rope_high};
    Attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    for (uint32_t i = 0; i < ATTRS; i++) {
        AttrBounds b;
        if (!op_attr_bounds(op, i, &b)) continue;
        double x = b.lo > 0 || b.above_lo ? b.lo + (b.above_lo ? 1 : 0) : 0;
        for (uint32_t k = 0; k < sizeof large / sizeof *large; k++)
            if (large[k] == i) x = b.hi;
        attr_set(&attrs, i, x);
    }
    /* The attribute `hi` is allowed only with rows and columns. */
    if (op == OP_rope || op == OP_rope_grad) attrs.rows = attrs.columns = 1;
    return attrs;
}

/* Reads a plan with one node and one attribute with value `x`. Returns the message about it; NULL
 * if the text is accepted. */
static const char *read_with(OpKind op, uint32_t attr, double x)
{
    const Attrs attrs = sound_attrs(op);
    Str text = str_in(arena);
    str_add(&text, "tandem plan 3\nattrs 1");
    for (uint32_t i = 0; i < ATTRS; i++) {
        const double value = i == attr ? x : attr_get(&attrs, i);
        if (value == 0) continue;
        str_print(&text, " %s=", attr_name(i));
        if (attr_is_int(i))
            str_print(&text, "%.0f", value);
        else
            str_add_double(&text, value);
    }
    str_print(&text, "\nnode 1 %s attrs=1\n", op_info(op)->name);
    Diag d = diag_in(arena);
    if (text_parse("test.plan", str_text(&text), text.n, arena, &d) != NULL) return NULL;
    assert_true(d.items.n == 1);
    return d.items.at[0].text;
}

/* Expects a refusal whose message names the op, the attribute and its bounds. */
static void must_refuse(OpKind op, const AttrBounds *b, double x)
{
    const char *said = read_with(op, b->attr, x);
    const char *expected = arena_print(arena, "%s has %s = %.10g, which must be", op_info(op)->name,
                                       attr_name(b->attr), x);
    if (said == NULL || strstr(said, expected) == NULL)
        fail_msg("%s with %s = %g: %s", op_info(op)->name, attr_name(b->attr), x,
                 said ? said : "accepted");
}

/* At its bound, an attribute may contradict another attribute. But no message may say that it is
 * too large or too small. */
static void must_allow(OpKind op, const AttrBounds *b, double x)
{
    const char *said = read_with(op, b->attr, x);
    if (said != NULL && strstr(said, "which must be") != NULL)
        fail_msg("%s with %s = %g: %s", op_info(op)->name, attr_name(b->attr), x, said);
}

static double beside(const AttrBounds *b, double x, double towards)
{
    return attr_is_int(b->attr) ? x + (towards > x ? 1 : -1) : nextafter(x, towards);
}

static void each_attribute_keeps_its_bounds(void **state)
{
    (void)state;
    uint32_t n = 0;
    for (int op = OP_none + 1; op < OP_COUNT; op++)
        for (uint32_t i = 0; i < ATTRS; i++) {
            AttrBounds b;
            if (!op_attr_bounds((OpKind)op, i, &b)) continue;
            n++;
            if (b.above_lo)
                must_refuse((OpKind)op, &b, b.lo);
            else
                must_allow((OpKind)op, &b, b.lo);
            must_allow((OpKind)op, &b, b.above_lo ? beside(&b, b.lo, INFINITY) : b.lo);
            must_refuse((OpKind)op, &b, beside(&b, b.lo, -INFINITY));
            if (b.below_hi) must_refuse((OpKind)op, &b, b.hi);
            must_allow((OpKind)op, &b, b.below_hi ? beside(&b, b.hi, -INFINITY) : b.hi);
            must_refuse((OpKind)op, &b, beside(&b, b.hi, INFINITY));
        }
    assert_true(n > 400);
}

/* An attribute that the op does not have must be zero. */
static void attributes_that_an_op_does_not_have_are_refused(void **state)
{
    (void)state;
    for (int op = OP_none + 1; op < OP_COUNT; op++)
        for (uint32_t i = 0; i < ATTRS; i++) {
            AttrBounds b;
            if (op_attr_bounds((OpKind)op, i, &b)) continue;
            const char *said = read_with((OpKind)op, i, 1);
            const char *expected = arena_print(arena, "%s has no attribute %s",
                                               op_info((OpKind)op)->name, attr_name(i));
            if (said == NULL || strstr(said, expected) == NULL)
                fail_msg("%s with %s: %s", op_info((OpKind)op)->name, attr_name(i),
                         said ? said : "accepted");
        }
}

static void sound_attributes_are_accepted(void **state)
{
    (void)state;
    for (int op = OP_none + 1; op < OP_COUNT; op++) {
        const Attrs attrs = sound_attrs((OpKind)op);
        Str why = str_in(arena);
        if (!op_attrs_fit((OpKind)op, &attrs, &why)) fail_msg("%s", str_text(&why));
    }
}

static void not_a_number_is_refused(void **state)
{
    (void)state;
    for (int op = OP_none + 1; op < OP_COUNT; op++)
        for (uint32_t i = 0; i < ATTRS; i++) {
            Attrs attrs = sound_attrs((OpKind)op);
            Str why = str_in(arena);
            if (attr_is_int(i)) continue;
            attr_set(&attrs, i, (double)NAN);
            assert_false(op_attrs_fit((OpKind)op, &attrs, &why));
        }
}

static const char *fault_of(OpKind op, Attrs attrs)
{
    Str why = str_in(arena);
    return op_attrs_fit(op, &attrs, &why) ? "" : str_text(&why);
}

/* These bounds follow from a formula or a kernel. They are written here a second time, because a
 * test that reads the bounds from attrs.def cannot find a wrong row there. */
static void bounds_follow_from_the_formulas(void **state)
{
    (void)state;
    const struct {
        OpKind op;
        uint32_t attr;
        double usual, wrong;
    } cases[] = {
        {OP_rope, ATTR_theta, 1e4, 0},           /* positions are divided by its powers */
        {OP_sinusoid, ATTR_theta, 1e4, 1},       /* all frequencies would be equal */
        {OP_rmsnorm, ATTR_eps, 1e-6, -1e-6},     /* the root of a negative number would be taken */
        {OP_dropout, ATTR_drop, 0.1, 1},         /* kept elements are divided by 1 - drop */
        {OP_attention, ATTR_drop, 0.1, 1},       /* kept scores are divided by 1 - drop */
        {OP_soft_cap, ATTR_scale, 30, 0},        /* logits are divided by it */
        {OP_xent_loss, ATTR_scale, 0.25, 0},     /* with scale 0, no label would count */
        {OP_xent_smooth, ATTR_smoothing, .1, 1}, /* labels would not count */
        {OP_topk, ATTR_top_k, 2, 0},             /* a token without an expert */
        {OP_topk, ATTR_experts, 8, 0},           /* slots are divided by it */
        {OP_dispatch, ATTR_capacity, 4, 0},      /* slots are divided by it */
        {OP_state_scan, ATTR_chunk, 256, 0},     /* tokens are divided by it */
        {OP_conv2d, ATTR_h_stride, 2, 0},        /* rows are divided by it */
        {OP_conv2d, ATTR_w_dilation, 1, 0},     /* all points of the window would read one column */
        {OP_group_norm, ATTR_group, 8, 0},      /* channels are divided by it */
        {OP_quantise, ATTR_scale, 448, 0},      /* values are divided by the largest */
        {OP_slice, ATTR_parts, 2, 0},           /* the dimension is divided by it */
        {OP_slice, ATTR_dim, 1, MAX_DIMS},      /* `dim` must be the number of a dimension */
        {OP_reduce_scatter, ATTR_reduce, 1, 0}, /* no collective has such a reduction */
        {OP_adamw, ATTR_beta1, 0.9, 1},         /* the moment is divided by 1 - beta1^t */
        {OP_adamw, ATTR_beta2, 0.999, 1},       /* the moment is divided by 1 - beta2^t */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Attrs attrs = sound_attrs(cases[i].op);
        attr_set(&attrs, cases[i].attr, cases[i].usual);
        assert_string_equal(fault_of(cases[i].op, attrs), "");
        attr_set(&attrs, cases[i].attr, cases[i].wrong);
        const char *fault = fault_of(cases[i].op, attrs);
        if (strstr(fault, attr_name(cases[i].attr)) == NULL)
            fail_msg("%s with %s = %g: '%s'", op_info(cases[i].op)->name, attr_name(cases[i].attr),
                     cases[i].wrong, fault);
    }
}

/* With context 0, rotary positions by YaRN were once NaN. */
static void attributes_that_contradict_each_other_are_refused(void **state)
{
    (void)state;
    Attrs yarn = {.theta = 1e4,
                  .rope_factor = 40,
                  .rope_low = 1,
                  .rope_high = 32,
                  .rope_context = 4096,
                  .rope_yarn = 2};
    assert_string_equal(fault_of(OP_rope, yarn), "");
    Attrs a = yarn;
    a.rope_context = 0;
    assert_non_null(strstr(fault_of(OP_rope, a), "needs rope_context"));
    a = yarn, a.rope_low = 0;
    assert_non_null(strstr(fault_of(OP_rope, a), "rope_low above 0"));
    a = yarn, a.theta = 1;
    assert_non_null(strstr(fault_of(OP_rope, a), "theta above 1"));
    a = yarn, a.rope_factor = 0.5;
    assert_non_null(strstr(fault_of(OP_rope, a), "rope_factor of 1"));
    a = yarn, a.rope_low = 33;
    assert_non_null(strstr(fault_of(OP_rope, a), "rope_low must not be above"));
    a = yarn, a.rope_dims = 5;
    assert_non_null(strstr(fault_of(OP_rope, a), "rope_dims must be even"));
    a = (Attrs){.theta = 1e4, .rope_pair = {1.5, 2}};
    assert_string_equal(fault_of(OP_rope, a), "");
    assert_non_null(strstr(fault_of(OP_silu, a), "theta"));
    a.theta = 0;
    assert_non_null(strstr(fault_of(OP_silu, a), "has no attribute rope_pair"));
    a = (Attrs){.theta = 1e4, .rope_pair = {1.5, 0, 2}};
    assert_non_null(strstr(fault_of(OP_rope, a), "rope_pair must be between 0.001"));
    a = (Attrs){.theta = 1e4, .rope_pair = {1e-310, 2}};
    assert_non_null(strstr(fault_of(OP_rope, a), "rope_pair must be between 0.001"));
    a = yarn, a.rope_pair[0] = 2;
    assert_non_null(strstr(fault_of(OP_rope, a), "leave out rope_pair or rope_factor"));
    a = (Attrs){.theta = 1e4, .rows = 4, .columns = 6, .hi = 2, .count = 2};
    assert_string_equal(fault_of(OP_rope, a), "");
    a.rows = 3;
    assert_non_null(strstr(fault_of(OP_rope, a), "must be multiples of count"));
    a.rows = 0;
    assert_non_null(strstr(fault_of(OP_rope, a), "give both rows and columns, or neither"));
    a.columns = 0;
    assert_non_null(strstr(fault_of(OP_rope, a), "hi are allowed only with rows and columns"));
    a = (Attrs){.theta = 1e4, .lo = 1, .hi = 2};
    assert_non_null(strstr(fault_of(OP_rope, a), "hi are allowed only with rows and columns"));
    a = (Attrs){.theta = 1e4, .rows = 4, .columns = 6, .first = 1, .hi = 2, .count = 2};
    assert_non_null(strstr(fault_of(OP_rope, a), "first must be 0"));
    a = (Attrs){.lo = 8, .hi = 7};
    assert_non_null(strstr(fault_of(OP_sumsq, a), "lo must not be above hi"));
    a = (Attrs){.parts = 2, .chunks = 1};
    assert_non_null(strstr(fault_of(OP_pack, a), "chunks must be 0 or 2"));
}

/* An attribute that has no effect without another one is refused alone. */
static void attributes_without_effect_are_refused(void **state)
{
    (void)state;
    Attrs a;
    /* Llama's scaling without its factor would silently change nothing. */
    const Attrs llama = {
        .theta = 1e4, .rope_factor = 8, .rope_low = 1, .rope_high = 4, .rope_context = 8192};
    assert_string_equal(fault_of(OP_rope, llama), "");
    a = llama, a.rope_factor = 0;
    assert_non_null(strstr(fault_of(OP_rope, a), "need rope_factor"));
    a.rope_low = a.rope_high = 0;
    assert_non_null(strstr(fault_of(OP_rope, a), "need rope_factor"));
    a.rope_context = 0;
    assert_string_equal(fault_of(OP_rope, a), "");
    a.rope_gain = 2; /* LongRoPE multiplies by this factor, without rope_factor */
    assert_string_equal(fault_of(OP_rope, a), "");
    a = llama, a.rope_factor = 0.5;
    assert_non_null(strstr(fault_of(OP_rope, a), "rope_factor must be 1 or more"));
    a = llama, a.rope_low = 5;
    assert_non_null(strstr(fault_of(OP_rope, a), "rope_low must not be above"));
    /* Groups of experts without their number would silently change nothing. */
    const Attrs experts = {
        .top_k = 2, .experts = 8, .capacity = 4, .expert_groups = 4, .top_groups = 2, .sigmoid = 1};
    assert_string_equal(fault_of(OP_topk, experts), "");
    a = experts, a.expert_groups = 0;
    assert_non_null(strstr(fault_of(OP_topk, a), "need expert_groups"));
    a.sigmoid = 0;
    assert_non_null(strstr(fault_of(OP_topk, a), "need expert_groups"));
    a.top_groups = 0, a.sigmoid = 1;
    assert_non_null(strstr(fault_of(OP_topk, a), "need expert_groups"));
    a.sigmoid = 0;
    assert_string_equal(fault_of(OP_topk, a), "");
    a = experts, a.top_groups = 0;
    assert_non_null(strstr(fault_of(OP_topk, a), "expert_groups needs top_groups"));
}

/* These attributes state sizes that a kernel would follow beyond its buffers. */
static void sizes_must_fit_the_attributes(void **state)
{
    (void)state;
    Binding b = {.n_in = 1};
    b.size['E'] = 8, b.size['F'] = 3, b.size['h'] = 4, b.size['P'] = 6, b.size['C'] = 12;
    b.size['R'] = 15, b.size['K'] = 2, b.size['T'] = 8, b.size['s'] = 4;
    const struct {
        OpKind op;
        Attrs fits, wrong;
    } cases[] = {
        {OP_rope, {.rope_dims = 8}, {.rope_dims = 10}},
        {OP_rope_grad, {.rope_dims = 8}, {.rope_dims = 10}},
        {OP_rope, {.rope_pair = {1, 1, 1, 1}}, {.rope_pair = {1, 1, 1}}},
        {OP_rope, {.rope_dims = 4, .rope_pair = {1, 1}}, {.rope_dims = 6, .rope_pair = {1, 1}}},
        {OP_rope, {.rows = 2, .columns = 2, .hi = 4}, {.rows = 2, .columns = 2, .hi = 5}},
        {OP_rope,
         {.rows = 2, .columns = 2, .hi = 3, .count = 1},
         {.rows = 2, .columns = 2, .hi = 4, .count = 1}},
        {OP_segment, {.segment = 2}, {.segment = 3}},
        {OP_segment_grad, {.segment = 2}, {.segment = 3}},
        {OP_turn_poles, {.h_before = 1, .h_after = 3}, {.h_before = 2, .h_after = 3}},
        {OP_turn_poles_grad, {.h_before = 1, .h_after = 3}, {.h_before = 2, .h_after = 3}},
        {OP_image,
         {.rows = 2, .columns = 3, .h_kernel = 2, .count = 3},
         {.rows = 3, .columns = 3, .h_kernel = 2, .count = 3}},
        {OP_image,
         {.rows = 3, .columns = 2, .h_kernel = 2, .count = 3},
         {.rows = 3, .columns = 2, .h_kernel = 1, .count = 3}},
        {OP_xent_loss_mean, {.first = 4}, {.first = 5}},
        {OP_xent_loss_mean_grad, {.first = 4}, {.first = 5}},
        {OP_offsets, {.h_kernel = 2, .w_kernel = 3}, {.h_kernel = 2, .w_kernel = 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(op_attrs_match(cases[i].op, &b, &cases[i].fits));
        assert_false(op_attrs_match(cases[i].op, &b, &cases[i].wrong));
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_arena_setup, test_arena_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_attribute_keeps_its_bounds),
        TEST(attributes_that_an_op_does_not_have_are_refused),
        TEST(sound_attributes_are_accepted),
        TEST(not_a_number_is_refused),
        TEST(bounds_follow_from_the_formulas),
        TEST(attributes_that_contradict_each_other_are_refused),
        TEST(attributes_without_effect_are_refused),
        TEST(sizes_must_fit_the_attributes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
