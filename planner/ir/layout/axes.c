/* The table of axes, and the sets that its columns make. */
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

AxisNames axes_with(uint32_t flags)
{
    AxisNames names = 0;
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        if (axes[a].flags & flags) names |= 1u << a;
    return names;
}

AxisNames axes_cutting(IndexRole role)
{
    AxisNames names = 0;
    assert(role != INDEX_none);
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        if (axes[a].cuts == role) names |= 1u << a;
    return names;
}

AxisNames axes_cutting_batch(void)
{
    AxisNames names = 0;
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        if (axes[a].cuts != INDEX_none) names |= 1u << a;
    return names;
}

AxisNames axes_trading(IndexRole role)
{
    AxisNames names = 0;
    assert(role != INDEX_none);
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        if (axes[a].trades == role) names |= 1u << a;
    return names;
}

AxisNames axes_of_pass(const char *pass)
{
    AxisNames names = 0;
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        if (axes[a].pass && strcmp(axes[a].pass, pass) == 0) names |= 1u << a;
    return names;
}

AxisName axes_first(AxisNames names)
{
    AxisName a = (AxisName)0;
    while (a < AXIS_NAMES && !axes_have(names, a)) a = (AxisName)(a + 1);
    return a;
}
