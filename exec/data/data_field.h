/* Sources of fields. */
#ifndef TANDEM_EXEC_DATA_FIELD_H
#define TANDEM_EXEC_DATA_FIELD_H

#include "exec/exec.h"

/* Fills one line of a wave that travels eastward, smooth in both directions. The target is the
 * field one time step later. */
void data_wave_line(uint64_t seed, const FieldLine *f, double *values);
/* Fills one line of independent normal numbers. */
void data_noise_line(uint64_t seed, const FieldLine *f, double *values);

/* True if the model reads batches of fields. */
bool data_reads_fields(const Graph *graph);
/* True if the model reads an image beside the tokens of each sample. */
bool data_reads_images(const Graph *graph);
/* Opens a source of samples from a file that numpy.save wrote: float32 or float64 [times, channels,
 * height, width]. The input is the field at a random time, the target the field one time step
 * later. A model with fewer channels reads the first channels. Reports data-file. */
DataSource *data_grid(const char *path, const Graph *graph, uint64_t seed, Arena *arena, Diag *d);

#endif
