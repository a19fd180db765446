/* A program that needs a GPU, where there is none. */
#ifndef TANDEM_TESTS_GPU_NO_GPU_H
#define TANDEM_TESTS_GPU_NO_GPU_H

/* Tells why and ends the process with code 6, unless CUDA shows a device that can be used. Looks
 * from a child, so that this process may still fork before it first calls CUDA. */
void no_gpu_ends(void);

#endif
