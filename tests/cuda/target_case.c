/* The name of the case that runs now, for all targets: see target.h. */
#include <stdarg.h>
#include <stdio.h>

#include "tests/cuda/target.h"

static char now[160] = "no case";

void target_case(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(now, sizeof now, format, args);
    va_end(args);
}

const char *target_case_now(void)
{
    return now;
}
