/* The part of a configuration that the planner may read. Configurations that differ only in their
 * cluster or runtime often have equal parts, and then they have equal plans. */
#ifndef TANDEM_FRONT_PLANNED_H
#define TANDEM_FRONT_PLANNED_H

#include "planner/base/str.h"
#include "planner/front/config.h"

/* A copy of a configuration in which each value that no pass may read is zero. A plan that is made
 * from this copy cannot depend on such a value. */
typedef struct Planned {
    Config config;
} Planned;

void config_planned(const Config *config, Planned *out);

/* Appends bytes to `key` that identify the configuration among all configurations of one script
 * that is held open. Returns false if no such bytes exist. This is so if the configuration has a
 * schedule of its own, or refers to memory in `arena`, the arena of its load. */
bool planned_key(const Planned *planned, const Arena *arena, Str *key);

#endif
