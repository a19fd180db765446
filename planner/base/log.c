/* Writes progress notes to stderr. The level and the rank are global variables, which are set once,
 * before any thread starts. */
#include "planner/base/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Log {
    bool is_configured;
    LogLevel level;
    int rank;
} Log;

static Log the_log = {.rank = -1};

static LogLevel level_of_environment(LogLevel otherwise)
{
    const char *text = getenv("TANDEM_LOG");
    if (text == NULL) return otherwise;
    if (strcmp(text, "quiet") == 0) return LOG_quiet;
    if (strcmp(text, "info") == 0) return LOG_info;
    if (strcmp(text, "debug") == 0) return LOG_debug;
    return otherwise;
}

void log_configure(LogLevel level, int rank)
{
    the_log.is_configured = true;
    the_log.level = level == LOG_quiet ? LOG_quiet : level_of_environment(level);
    the_log.rank = rank;
}

__attribute__((format(printf, 2, 0))) static void note(LogLevel level, const char *format,
                                                       va_list args)
{
    if (!the_log.is_configured) log_configure(LOG_info, -1);
    if (level > the_log.level) return;
    /* the whole note in one write, so that the notes of several ranks do not mix */
    char line[1024];
    int n = the_log.rank < 0 ? 0 : snprintf(line, sizeof line, "[%d] ", the_log.rank);
    size_t used = (size_t)n;
    n = vsnprintf(line + used, sizeof line - used - 1, format, args);
    used += n < 0 ? 0 : (size_t)n;
    if (used > sizeof line - 2) used = sizeof line - 2;
    line[used++] = '\n';
    fwrite(line, 1, used, stderr);
    fflush(stderr);
}

void log_info(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    note(LOG_info, format, args);
    va_end(args);
}

void log_debug(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    note(LOG_debug, format, args);
    va_end(args);
}
