/* The limit of processor time for each case of bad input, and the case that took longest. Processor
 * time does not depend on what else runs on the machine. Only for tests. */
#ifndef TANDEM_TESTS_SUPPORT_SLOWEST_H
#define TANDEM_TESTS_SUPPORT_SLOWEST_H

#include <stdbool.h>

/* Five times what the slowest case takes, because another machine may be several times slower.
 * AddressSanitizer makes everything several times slower, too. */
#if defined(SLOWEST_LIMIT_S) /* A test of the limit sets another one. */
#elif defined(__SANITIZE_ADDRESS__)
#define SLOWEST_LIMIT_S 40.0
#else
#define SLOWEST_LIMIT_S 8.0
#endif

typedef struct Slowest {
    double cpu_s;
    char name[200];
} Slowest;

/* Returns false if the case took longer than the limit. */
bool slowest_note(Slowest *s, const char *name, double cpu_s);
/* Prints "GROUP: slowest case: ...". */
void slowest_print(const Slowest *s, const char *group);
/* Returns the processor time [s] of this process, or of its children that have ended. */
double slowest_own_s(void);
double slowest_children_s(void);

#endif
