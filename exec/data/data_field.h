/* Data sources of fields. */
#ifndef TANDEM_EXEC_DATA_FIELD_H
#define TANDEM_EXEC_DATA_FIELD_H

#include "exec/exec.h"

/* Writes the values of one line of a smooth wave that travels eastward. The target is the same
 * field one time step later. */
void data_wave_line(uint64_t seed, const FieldLine *f, double *values);
/* Writes independent normally distributed numbers to one line. */
void data_noise_line(uint64_t seed, const FieldLine *f, double *values);

/* Returns true if the model reads batches of fields. */
bool data_reads_fields(const Graph *graph);
/* Returns true if the model reads an image in addition to the tokens of each sample. */
bool data_reads_images(const Graph *graph);
/* Makes a data source from a file that numpy.save wrote, with float32 or float64 numbers [times,
 * channels, height, width]. The input of a sample is the field at a random time; the target is the
 * field one time step later. The model reads the first channels of the file. Reports data-file. */
DataSource *data_grid(const char *path, const Graph *graph, uint64_t seed, Arena *arena, Diag *d);

#endif
