/* A monotonic clock, for measured times and for timeouts. It never goes backwards. */
#ifndef TANDEM_BASE_CLOCK_H
#define TANDEM_BASE_CLOCK_H

#include <stdint.h>

int64_t clock_ps(void); /* both return the time since a fixed but unknown moment */
double clock_s(void);

#endif
