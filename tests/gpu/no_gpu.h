/* For programs that need a GPU, in case there is none. */
#ifndef TANDEM_TESTS_GPU_NO_GPU_H
#define TANDEM_TESTS_GPU_NO_GPU_H

/* Prints the reason and ends the process with code 6, unless CUDA finds a usable device. A child
 * process does the search, so that this process may still fork before it first calls CUDA. */
void no_gpu_ends(void);

#endif
