/* The part of a configuration that the planner may read. Configurations that differ only in their
 * cluster or runtime often have equal parts, and then they have equal plans. */
#ifndef TANDEM_FRONT_PLANNED_H
#define TANDEM_FRONT_PLANNED_H

#include "planner/base/str.h"
#include "planner/front/config.h"

/* A configuration in which every value that no pass may read is zero. So a plan cannot depend on
 * such a value. */
typedef struct Planned {
    Config config;
} Planned;

void config_planned(const Config *config, Planned *out);

/* Appends to `key` bytes that are equal only for equal configurations of one script that is held
 * open. Returns false if there are no such bytes: the configuration has a schedule of its own, or
 * refers to memory of `arena`, the arena of its load. */
bool planned_key(const Planned *planned, const Arena *arena, Str *key);

#endif
