/* Options and a memmove for AddressSanitizer. Both are linked into every program of the sanitizers'
 * build. */
#include <sanitizer/asan_interface.h>
#include <string.h>

enum { WORD = 32 };

void *__real_memmove(void *to, const void *from, size_t n);
void *__wrap_memmove(void *to, const void *from, size_t n);

/* A failed check of undefined behaviour executes an illegal instruction, for which AddressSanitizer
 * prints the line and the stack. With the value 2, it handles this signal although cmocka asks for
 * it. */
const char *__asan_default_options(void)
{
    return "handle_sigill=2";
}

/* The linker redirects all calls of memmove to __wrap_memmove. The sanitizer's own memmove moves
 * one byte at a time. This took a fifth of the time of tests that place buffers. The function here
 * checks the same bytes, and calls the sanitizer's function only to report a fault. */
static void move_word(char *to, const char *from)
{
    char word[WORD];
    __builtin_memcpy(word, from, WORD);
    __builtin_memcpy(to, word, WORD);
}

void *__wrap_memmove(void *to, const void *from, size_t n)
{
    char *t = to;
    const char *f = from;
    if (n < WORD || __asan_region_is_poisoned((void *)(size_t)from, n) != NULL ||
        __asan_region_is_poisoned(to, n) != NULL)
        return __real_memmove(to, from, n);
    const size_t rest = n % WORD;
    if (t <= f) {
        for (size_t i = 0; i + WORD <= n; i += WORD) move_word(t + i, f + i);
        __real_memmove(t + n - rest, f + n - rest, rest);
    } else {
        __real_memmove(t + n - rest, f + n - rest, rest);
        for (size_t i = n - rest; i > 0; i -= WORD) move_word(t + i - WORD, f + i - WORD);
    }
    return to;
}
