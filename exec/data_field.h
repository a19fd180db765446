/* Where fields come from. */
#ifndef TANDEM_EXEC_DATA_FIELD_H
#define TANDEM_EXEC_DATA_FIELD_H

#include "exec/exec.h"

/* One line of a wave that travels eastward, in fields that are smooth in both directions. The
 * target is the field one time on. */
void data_wave_line(uint64_t seed, const FieldLine *f, double *values);
/* One line of independent normal numbers. */
void data_noise_line(uint64_t seed, const FieldLine *f, double *values);

/* True if the model reads batches of fields. */
bool data_reads_fields(const Graph *graph);
/* Samples from a file of numpy.save, float32 or float64 of shape (times, channels, height, width):
 * the input is the field at a random time, the target the field one time on. A model with fewer
 * channels reads the first ones. Reports data-file. */
DataSource *data_grid(const char *path, const Graph *graph, uint64_t seed, Arena *arena, Diag *d);

#endif
