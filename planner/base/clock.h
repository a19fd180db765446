/* The clock with which Tandem measures and waits. It only goes forward. */
#ifndef TANDEM_BASE_CLOCK_H
#define TANDEM_BASE_CLOCK_H

#include <stdint.h>

int64_t clock_ps(void); /* returns picoseconds since a fixed but unknown moment */
double clock_s(void);

#endif
