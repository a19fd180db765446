/* Prints two runs side by side. */
#ifndef TANDEM_CLI_REPORT_COMPARE_H
#define TANDEM_CLI_REPORT_COMPARE_H

#include "cli/cli.h"

/* Prints the runs with these two numbers (compare_two.c). */
void compare_two(Cli *cli, Store *store, const int64_t id[2]);

#endif
