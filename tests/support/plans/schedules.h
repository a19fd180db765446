/* Random pipeline schedules, drawn from a seed, with any placement and any order that
 * terminates. */
#ifndef TANDEM_TESTS_SCHEDULES_H
#define TANDEM_TESTS_SCHEDULES_H

#include "planner/front/config.h"

/* Gives each rank `chunks` stages, at random. Each rank does possible actions in random order,
 * mixing whole and split backwards. */
OwnSchedule schedule_random(uint64_t seed, uint32_t n_ranks, uint32_t chunks,
                            uint32_t n_microbatches, Arena *arena);

#endif
