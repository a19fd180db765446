/* Decides how many cases a test draws. Under the sanitizers, a case takes three to four times as
 * long, and only the code that runs matters there. The other builds compare the numbers of all
 * cases. ¶ Four such tests were measured, line by line. Their few cases run 97 % (test_fewer) to
 * 99.9 % (test_kernels) of the lines that all their cases run. All cases of the four tests run
 * 28,143 lines. Of these lines, 169 are run neither by the few cases of the four nor by those of
 * test_random_models and test_bound. ¶ A later measurement covers 14 more tests, from
 * test_accuracy_words to test_verify_plans. Their few cases run 93.6 % (test_hints) to 100 % of the
 * lines that all their cases run. All cases of the 14 tests run 29,804 lines. Of these lines, 197
 * are run neither by the few cases of the 14 nor by 55 other tests. Only for tests. */
#ifndef TANDEM_TESTS_SUPPORT_SAMPLE_H
#define TANDEM_TESTS_SUPPORT_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__)
enum { UNDER_SANITIZERS = 1 };
#else
enum { UNDER_SANITIZERS = 0 };
#endif

/* Returns true for every case, but under the sanitizers only for about one of `of` cases. Cases
 * often come from nested loops. If every third or fourth case was tried, an inner loop could have
 * the same value in all of them. So the fraction of index times the golden ratio decides: its
 * values are spread evenly, and have no period. */
static inline bool is_sampled(size_t index, size_t of)
{
    const uint32_t golden = 0x9e3779b9; /* 2^32 divided by the golden ratio */
    return !UNDER_SANITIZERS || (uint32_t)index * golden < UINT32_MAX / of;
}

/* Returns true for every file of a folder, but under the sanitizers only for about one of `of`
 * files. The names decide, because folders list their files in any order. */
static inline bool is_sampled_name(const char *name, size_t of)
{
    size_t sum = 0;
    for (; *name != 0; name++) sum += (unsigned char)*name;
    return is_sampled(sum, of);
}

#define SAMPLE(all, under_sanitizers) (UNDER_SANITIZERS ? (under_sanitizers) : (all))

#endif
