/* Random pipeline schedules, made from a seed. Stages may be placed in any way, and actions come in
 * any order that terminates. */
#ifndef TANDEM_TESTS_SCHEDULES_H
#define TANDEM_TESTS_SCHEDULES_H

#include "planner/front/config.h"

/* Gives each rank `chunks` random stages. Each rank executes possible actions in random order. Some
 * of the backwards are whole and some are split. */
OwnSchedule schedule_random(uint64_t seed, uint32_t n_ranks, uint32_t chunks,
                            uint32_t n_microbatches, Arena *arena);

#endif
