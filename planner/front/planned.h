/* The part of a configuration that determines a plan. Configurations that differ only in their
 * cluster, or in the costs of their runtime, usually have equal parts, and then they share one
 * plan. */
#ifndef TANDEM_FRONT_PLANNED_H
#define TANDEM_FRONT_PLANNED_H

#include "planner/base/str.h"
#include "planner/front/config.h"

/* A copy of a configuration in which every value that passes may not read is zero. Passes get only
 * this copy, so a plan cannot depend on these values. */
typedef struct Planned {
    Config config;
} Planned;

void config_planned(const Config *config, Planned *out);

/* Appends bytes to `key` that are equal for two configurations of one held script (parent.h) only
 * if both give the same plan. Returns false if there is no such key: the configuration has its own
 * pipeline schedule, or contains a pointer into `arena`, the arena of its load (planned.c says
 * why). */
bool planned_key(const Planned *planned, const Arena *arena, Str *key);

#endif
