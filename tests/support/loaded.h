/* Loads scripts for tests of planner/front. */
#ifndef TANDEM_TESTS_LOADED_H
#define TANDEM_TESTS_LOADED_H

#include "planner/front/front.h"

typedef struct Loaded {
    Arena *arena; /* the test frees it */
    bool fine;
    Config config;
    Graph graph;
    const char *errors;
} Loaded;

Loaded load_file(const char *path, const FrontOptions *options);
/* writes the script to script.lua and loads this file */
Loaded load_text(const char *script, const FrontOptions *options);
/* Loads a plan with only this model, and ends the test if the plan is refused. `model` is the text
 * between "require 'models." and the comma, such as: llama' '3.1-8b' */
Loaded load_model(const char *model, int seq);
/* ends the test if there is no such tensor */
TensorId loaded_tensor(const Graph *g, const char *name);

#endif
