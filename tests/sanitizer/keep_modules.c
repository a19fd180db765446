/* Linked into every program of the sanitizers' build. A leak report names the code that called
 * malloc, and tests/support/lsan.supp uses this to separate the allocations of MPI libraries from
 * ours. The functions below make sure that the report can name those libraries. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Keeps libraries loaded to the end, because the report cannot name a library that was unloaded. */
int dlclose(void *module);
int dlclose(void *module)
{
    (void)module;
    return 0;
}

/* MPI libraries keep some texts that they print into memory from these functions. The C library's
 * versions call malloc themselves and have no frame pointer, so the fast unwinder would not find
 * their caller. The slow unwinder finds it, but takes most of the time of a short run. These
 * versions do the same, but have a frame pointer. */
int vasprintf(char **to, const char *format, va_list values);
int asprintf(char **to, const char *format, ...);
int __vasprintf_chk(char **to, int flag, const char *format, va_list values);
int __asprintf_chk(char **to, int flag, const char *format, ...);

int vasprintf(char **to, const char *format, va_list values)
{
    va_list again;
    va_copy(again, values);
    const int n = vsnprintf(NULL, 0, format, again);
    va_end(again);
    *to = n < 0 ? NULL : malloc((size_t)n + 1);
    return *to == NULL ? -1 : vsnprintf(*to, (size_t)n + 1, format, values);
}

int __vasprintf_chk(char **to, int flag, const char *format, va_list values)
{
    (void)flag;
    return vasprintf(to, format, values);
}

int asprintf(char **to, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    const int n = vasprintf(to, format, values);
    va_end(values);
    return n;
}

int __asprintf_chk(char **to, int flag, const char *format, ...)
{
    (void)flag;
    va_list values;
    va_start(values, format);
    const int n = vasprintf(to, format, values);
    va_end(values);
    return n;
}
