/* Progress and debugging notes on stderr, one line each. Results go to stdout only. The environment
 * variable TANDEM_LOG (quiet, info or debug) selects which notes are printed. */
#ifndef TANDEM_BASE_LOG_H
#define TANDEM_BASE_LOG_H

typedef enum LogLevel { LOG_quiet, LOG_info, LOG_debug } LogLevel;
/* Selects which notes are printed, and the rank that begins each note (-1: none). The variable
 * TANDEM_LOG overrides `level`, unless `level` is LOG_quiet. */
void log_configure(LogLevel level, int rank);
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
