/* How many cases a test draws. Under the sanitizers a case takes three to four times as long, and
 * only the code that runs matters there. The numbers of all cases are compared in the other builds.
 *
 * Four such tests were measured, line by line. Their few cases run 97 % (test_fewer) to 99.9 %
 * (test_kernels) of the lines that all their cases run. All cases of the four tests run 28,143
 * lines. Of these lines, 169 are run neither by the few cases of the four nor by those of
 * test_random_models and test_bound. Only for tests. */
#ifndef TANDEM_TESTS_SUPPORT_SAMPLE_H
#define TANDEM_TESTS_SUPPORT_SAMPLE_H

#if defined(__SANITIZE_ADDRESS__)
enum { UNDER_SANITIZERS = 1 };
#else
enum { UNDER_SANITIZERS = 0 };
#endif

#define SAMPLE(all, under_sanitizers) (UNDER_SANITIZERS ? (under_sanitizers) : (all))

#endif
