/* The clock for all measuring and waiting: it only goes forward. */
#ifndef TANDEM_BASE_CLOCK_H
#define TANDEM_BASE_CLOCK_H

#include <stdint.h>

int64_t clock_ps(void); /* picoseconds */
double clock_s(void);

#endif
