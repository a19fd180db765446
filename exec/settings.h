/* The numbers that describe a training and are recorded in its checkpoints. */
#ifndef TANDEM_EXEC_SETTINGS_H
#define TANDEM_EXEC_SETTINGS_H

#include "exec/exec.h"

/* Returns a list such as "lr 0.003, warmup_steps 10, ... beta1 0.9". It is the same for all plans
 * of a training, whatever their mesh is. */
const char *exec_settings(const ExecOptions *options, const Plan *plan, Arena *arena);

#endif
