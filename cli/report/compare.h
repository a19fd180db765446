/* Prints two runs side by side. */
#ifndef TANDEM_CLI_REPORT_COMPARE_H
#define TANDEM_CLI_REPORT_COMPARE_H

#include "cli/cli.h"

void compare_two(Cli *cli, Store *store, const int64_t id[2]); /* compare_two.c */

#endif
