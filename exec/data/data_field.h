/* Sources of fields. */
#ifndef TANDEM_EXEC_DATA_FIELD_H
#define TANDEM_EXEC_DATA_FIELD_H

#include "exec/exec.h"

/* Fills one line of a smooth wave that travels eastward. The target is the same field one time step
 * later. */
void data_wave_line(uint64_t seed, const FieldLine *f, double *values);
/* Fills one line with independent normal numbers. */
void data_noise_line(uint64_t seed, const FieldLine *f, double *values);

/* True if the model reads batches of fields. */
bool data_reads_fields(const Graph *graph);
/* True if the model reads an image beside the tokens of each sample. */
bool data_reads_images(const Graph *graph);
/* Opens a file of numpy.save with float32 or float64 [times, channels, height, width]. The input is
 * the field at a random time, and the target is the field one step later. The model reads the first
 * channels. Reports data-file. */
DataSource *data_grid(const char *path, const Graph *graph, uint64_t seed, Arena *arena, Diag *d);

#endif
