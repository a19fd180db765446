/* How many cases a test draws. Under the sanitizers a case takes three to four times as long.
 * There, only the code that runs matters, and few cases run it as well as many. The numbers of all
 * cases are compared in the other builds. Only for tests. */
#ifndef TANDEM_TESTS_SUPPORT_SAMPLE_H
#define TANDEM_TESTS_SUPPORT_SAMPLE_H

#if defined(__SANITIZE_ADDRESS__)
enum { UNDER_SANITIZERS = 1 };
#else
enum { UNDER_SANITIZERS = 0 };
#endif

#define SAMPLE(all, under_sanitizers) (UNDER_SANITIZERS ? (under_sanitizers) : (all))

#endif
