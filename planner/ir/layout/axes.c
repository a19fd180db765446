/* The table of mesh axes with their properties, from axes.def. */
#include "planner/ir/layout/axes.h"

#include <assert.h>
#include <string.h>

static const AxisInfo axes[AXIS_NAMES] = {
#define AXIS(name_, doc_, ...) [AXIS_##name_] = {.name = #name_, .doc = (doc_), __VA_ARGS__},
#include "planner/ir/axes.def"
};
_Static_assert(AXIS_NAMES < 32, "AxisNames has 32 bits");

const AxisInfo *axis_info(AxisName name)
{
    assert(name < AXIS_NAMES);
    return &axes[name];
}

const char *axis_name_text(AxisName name)
{
    return axis_info(name)->name;
}

/* The body of a function that returns all axes for which `condition` is true. The condition may use
 * `axis`, a pointer to the AxisInfo of the axis that is tested. */
#define AXES_WHERE(condition)                                                                      \
    AxisNames names = 0;                                                                           \
    for (const AxisInfo *axis = axes; axis < axes + AXIS_NAMES; axis++)                            \
        if (condition) names |= 1u << (axis - axes);                                               \
    return names

AxisNames axes_with(uint32_t flags)
{
    AXES_WHERE(axis->flags & flags);
}

AxisNames axes_cutting(IndexRole role)
{
    assert(role != INDEX_none);
    AXES_WHERE(axis->cuts == role);
}

AxisNames axes_cutting_batch(void)
{
    AXES_WHERE(axis->cuts != INDEX_none);
}

AxisNames axes_trading(IndexRole role)
{
    assert(role != INDEX_none);
    AXES_WHERE(axis->trades == role);
}

AxisNames axes_of_pass(const char *pass)
{
    AXES_WHERE(axis->pass && strcmp(axis->pass, pass) == 0);
}

AxisName axes_first(AxisNames names)
{
    AxisName a = (AxisName)0;
    while (a < AXIS_NAMES && !axes_have(names, a)) a = (AxisName)(a + 1);
    return a;
}
