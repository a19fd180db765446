/* The table of mesh axes: every row is complete and agrees with the table of passes. An index has
 * the same role in the rows of all ops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/ir/layout/mesh.h"
#include "planner/ir/op/op.h"
#include "planner/passes/pass.h"

static bool is_pass(const char *word)
{
    for (int p = 0; p < PASS_NAME_COUNT; p++)
        if (strcmp(pass_specs[p]->name, word) == 0) return true;
    return false;
}

static bool one_line(const char *text, size_t most)
{
    return text == NULL || (text[0] != 0 && strchr(text, '\n') == NULL && strlen(text) <= most);
}

static void every_row_is_complete(void **state)
{
    (void)state;
    for (uint32_t a = 0; a < AXIS_NAMES; a++) {
        const AxisInfo *axis = axis_info((AxisName)a);
        const bool sums = axis->flags & AXIS_STATES || axis->cuts == INDEX_samples;
        print_message("%s\n", axis->name);
        assert_true(one_line(axis->name, 16) && axis->name != NULL);
        assert_true(one_line(axis->doc, 120) && axis->doc != NULL);
        assert_true(axis->doc[strlen(axis->doc) - 1] == '.');
        assert_int_equal(axis->stream != STREAM_none, axis->carries != CARRIES_nothing);
        assert_int_equal(axis->unused != NULL, axis->use != NULL);
        if (axis->lacks) assert_true(axis->pass && axis->use && one_line(axis->lacks, 80));
        assert_int_equal(axis->apart != NULL, axis->sum != NULL);
        assert_true(one_line(axis->unused, 200) && one_line(axis->apart, 200));
        if (axis->pass) assert_true(is_pass(axis->pass));
        /* If an axis has several ranks but no pass uses it, some message must name it. */
        if (axis->pass || axis->flags & AXIS_UNITS) assert_non_null(axis->unused);
        if (!axis->pass && !(axis->flags & AXIS_UNITS) && axis->cuts == INDEX_samples)
            assert_non_null(axis->apart);
        /* Ranks that sum gradients share states. An axis that exchanges an index needs an index to
         * give up. */
        if (axis->flags & AXIS_STATES) assert_true(axis->cuts != INDEX_none);
        if (axis->trades != INDEX_none) assert_true(axis->cuts != INDEX_none && sums);
        if (axis->cuts == INDEX_tokens) assert_true(axis->chunks > 0);
        for (uint32_t b = 0; b < a; b++)
            assert_string_not_equal(axis->name, axis_info((AxisName)b)->name);
    }
}

static void there_is_one_axis_of_stages_and_it_is_the_outermost(void **state)
{
    (void)state;
    assert_int_equal(axes_with(AXIS_STAGES), 1);
    assert_int_equal(__builtin_popcount(axes_with(AXIS_UNITS)), 1);
    assert_int_equal(__builtin_popcount(axes_with(AXIS_FOLDS)), 1);
    /* Folded ranks are the innermost ranks of the axis of units. */
    assert_true(axes_first(axes_with(AXIS_FOLDS)) > axes_first(axes_with(AXIS_UNITS)));
    assert_int_equal(axes_with(AXIS_UNITS) & ~axes_with(AXIS_STATES), 0);
    assert_int_equal(axes_first(0), AXIS_NAMES);
}

/* No axis splits two index roles. The axes of all roles together are those that split the batch. A
 * data pass assigns the layouts of no axis. */
static void sets_of_axes_partition_the_table(void **state)
{
    (void)state;
    AxisNames cut = 0;
    for (int role = INDEX_none + 1; role < INDEX_ROLES; role++) {
        assert_int_equal(cut & axes_cutting((IndexRole)role), 0);
        cut |= axes_cutting((IndexRole)role);
    }
    assert_int_equal(cut, axes_cutting_batch());
    for (int p = 0; p < PASS_NAME_COUNT; p++)
        if (pass_specs[p]->is_data) assert_int_equal(axes_of_pass(pass_specs[p]->name), 0);
    assert_int_equal(axes_of_pass("tp"), AXIS_BIT(tp));
    assert_int_equal(axes_of_pass("nobody"), 0);
}

static void an_index_has_the_same_role_in_every_row(void **state)
{
    (void)state;
    assert_int_equal(op_dim(OP_attention, 0, INDEX_tokens), 1);
    assert_int_equal(op_dim(OP_attention, 1, INDEX_groups), 2);
    assert_true(op_is_whole(OP_attention, 1, INDEX_tokens));
    assert_false(op_is_whole(OP_attention, 0, INDEX_tokens));
    assert_int_equal(op_dim(OP_linear_experts, 1, INDEX_experts), 0);
    assert_int_equal(op_dim(OP_linear_q, 1, INDEX_experts), -1);
    /* This dimension belongs to the `...`. */
    assert_int_equal(op_dim(OP_rmsnorm_heads, 0, INDEX_head), -1);
    assert_int_equal(op_role(OP_add, op_letter(OP_linear, INDEX_tokens)), INDEX_none);
    for (int op = OP_none + 1; op < OP_COUNT; op++) {
        const char whole = op_whole_letter((OpKind)op, INDEX_tokens);
        if (whole) assert_false(op_may_split((OpKind)op, whole));
        if (op_info((OpKind)op)->flags & OP_SOURCE)
            assert_true(op_may_split((OpKind)op, op_letter((OpKind)op, INDEX_samples)));
        assert_int_equal(op_mixes_tokens((OpKind)op),
                         strncmp(op_info((OpKind)op)->name, "attention", 9) == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_complete),
        cmocka_unit_test(there_is_one_axis_of_stages_and_it_is_the_outermost),
        cmocka_unit_test(sets_of_axes_partition_the_table),
        cmocka_unit_test(an_index_has_the_same_role_in_every_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
