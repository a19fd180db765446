/* Fuzz targets. With -DTANDEM_FUZZ=ON (clang), libFuzzer calls each target with generated inputs;
 * `make fuzz` does that. In other builds, replay.c calls each target with the files of its corpus,
 * as a ctest test. A target must survive every input: no crash, no leak, no endless loop. */
#ifndef TANDEM_TESTS_FUZZ_H
#define TANDEM_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Writes the input to a file, for readers that take a path. The path stays valid until the next
 * call, which replaces the file. */
const char *fuzz_file(const uint8_t *data, size_t size);

#endif
