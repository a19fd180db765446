/* Random pipeline schedules, drawn from a seed, with any placement and any order that
 * terminates. */
#ifndef TANDEM_TESTS_SCHEDULES_H
#define TANDEM_TESTS_SCHEDULES_H

#include "planner/front/config.h"

/* Gives each rank `chunks` random stages. Each rank runs actions that are possible in random order,
 * and mixes whole and split backwards. */
OwnSchedule schedule_random(uint64_t seed, uint32_t n_ranks, uint32_t chunks,
                            uint32_t n_microbatches, Arena *arena);

#endif
