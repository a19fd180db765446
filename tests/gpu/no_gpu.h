/* For a program that needs a GPU but runs on a machine without one. */
#ifndef TANDEM_TESTS_GPU_NO_GPU_H
#define TANDEM_TESTS_GPU_NO_GPU_H

/* Prints the reason and ends the process with code 6, unless CUDA finds a usable device. A child
 * does the search, so that this process may still fork before it first calls CUDA. Only the first
 * call searches. From then on, each line of output is written at once. So a program that hangs and
 * is killed shows how far it came. */
void no_gpu_ends(void);

#endif
