/* Progress and debugging notes on stderr, one line each; stdout carries results only.
 * TANDEM_LOG=debug (or info, quiet) chooses the level. The prefix names the rank if one was set. */
#ifndef TANDEM_BASE_LOG_H
#define TANDEM_BASE_LOG_H

typedef enum LogLevel { LOG_quiet, LOG_info, LOG_debug } LogLevel;
/* rank -1: no prefix. TANDEM_LOG wins over `level`, except over LOG_quiet. */
void log_configure(LogLevel level, int rank);
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
