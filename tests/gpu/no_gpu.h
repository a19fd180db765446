/* For a program that needs a GPU but runs on a machine without one. */
#ifndef TANDEM_TESTS_GPU_NO_GPU_H
#define TANDEM_TESTS_GPU_NO_GPU_H

/* Prints the reason and ends the process with code 6, unless CUDA finds a usable device. A child
 * does the search, so that this process may still fork before it first calls CUDA. */
void no_gpu_ends(void);

#endif
