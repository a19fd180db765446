/* Progress and debugging notes on stderr, one line each; stdout carries results only.
 * TANDEM_LOG=debug (or info, quiet) chooses the level. The prefix names the rank if one was set. */
#ifndef TANDEM_BASE_LOG_H
#define TANDEM_BASE_LOG_H

typedef enum LogLevel { LOG_quiet, LOG_info, LOG_debug } LogLevel;
/* Sets the level, and the rank that is printed before each note; rank -1 prints none. The variable
 * TANDEM_LOG overrides `level`, unless `level` is LOG_quiet. */
void log_configure(LogLevel level, int rank);
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
