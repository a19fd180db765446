/* Step times that a row of published runs states as a rate. */
#ifndef TANDEM_CLI_ACCURACY_RATES_H
#define TANDEM_CLI_ACCURACY_RATES_H

#include "cli/accuracy/accuracy.h"

/* The framework of a row, as the script of the row read it (releases.lua). */
typedef struct RowFramework {
    const char *name;
    int month; /* year and month of its release (YYYYMM); month 0: only the year is known; 0: not
                  even the year */
} RowFramework;

/* Returns the part that a text states in percent: 0.81 for "81%" and "81.0 %". Returns NAN for
 * other texts, and for parts above 1. */
double percentage(const char *text);
/* Returns the time of a step in seconds, computed from the tokens per second of each device that
 * the row states. Returns NAN if the cell is empty or has another form. */
double rate_step_s(const Csv *csv, uint32_t row, const Config *c);
/* Returns the time of a step in seconds, computed from the FLOP/s of each device that the row
 * states, or from the stated part of the device's peak. Returns NAN if the row states neither. */
double flops_step_s(const Csv *csv, uint32_t row, const RowFramework *framework, const Config *c,
                    const Plan *plan);

#endif
