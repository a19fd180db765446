/* Batches of fields, and the mean squared error in which rows are weighted by their latitude.
 * kernels/latitude.h defines the weights. */
#ifndef REAL
#include "kernels/cpu/cpu.h"
#include "kernels/latitude.h"
#include "kernels/number.h"

/* Returns the weight of local row `row`, which depends on the row's global index. */
static double row_weight(const KernelArgs *a, int64_t row)
{
    if (!a->attrs.latitude) return 1;
    return latitude_weight(a->start['h'] + row, a->binding->size['h']);
}

static void put_number(const KernelArgs *a, uint32_t j, double x)
{
    const uint32_t arg = a->n_in + j;
    if (cpu_accumulates(a, j)) x += number_read(a->dtype[arg], a->ptr[arg], 0);
    number_write(a->dtype[arg], a->ptr[arg], 0, x);
}

/* Reads columns from `at` on of one row of a field. Columns beyond the field are set to zero,
 * because the last rank may have fewer columns than its buffer. */
static void read_line(const KernelArgs *a, const FieldLine *f, int64_t at, double *line)
{
    const DataSource *data = a->control->data;
    FieldLine real = *f;
    const int64_t left = a->valid['w'] - at;
    if (left < real.n) real.n = left > 0 ? left : 0;
    if (real.n > 0) data->line(data->self, &real, line);
    for (int64_t k = real.n; k < f->n; k++) line[k] = 0;
}

#define KERNEL_FILE "kernels/cpu/field/loss.c"
#include "kernels/cpu/real.h"

BOTH(field)
BOTH(mse_loss)
BOTH(mse_loss_grad)

#else

/* writes input [b,c,h,w] and target [b,n,h,w] */
static void F(field)(const KernelArgs *a)
{
    enum { MOST = 512 };
    double line[MOST];
    for (int k = 0; k < 2; k++) {
        const int channel = k == 0 ? 'c' : 'n';
        REAL *to = a->ptr[k];
        FieldLine f = {.step = a->control->step,
                       .microbatch = a->microbatch,
                       .is_target = k == 1,
                       .channels = a->binding->size[channel],
                       .rows = a->binding->size['h'],
                       .columns = a->binding->size['w']};
        for (int64_t i = 0; i < a->size['b'] * a->size[channel] * a->size['h']; i++) {
            f.row = a->start['h'] + i % a->size['h'];
            f.channel = a->start[channel] + i / a->size['h'] % a->size[channel];
            f.sample = a->start['b'] + i / a->size['h'] / a->size[channel];
            for (int64_t at = 0; at < a->size['w']; at += f.n) {
                f.column = a->start['w'] + at;
                f.n = a->size['w'] - at < MOST ? a->size['w'] - at : MOST;
                if (i % a->size['h'] >= a->valid['h'])
                    memset(line, 0, sizeof line);
                else
                    read_line(a, &f, at, line);
                for (int64_t j = 0; j < f.n; j++) *to++ = (REAL)line[j];
            }
        }
    }
}

/* prediction, target [b,C,h,w] -> loss [], points [] */
static void F(mse_loss)(const KernelArgs *a)
{
    const REAL *x = a->ptr[0], *target = a->ptr[1];
    const int64_t columns = a->size['w'], lines = a->size['b'] * a->size['C'] * a->size['h'];
    double loss = 0;
    for (int64_t i = 0; i < lines; i++, x += columns, target += columns) {
        double sum = 0;
        if (i % a->size['h'] >= a->valid['h']) continue;
        for (int64_t k = 0; k < a->valid['w']; k++) {
            double away = (double)x[k] - (double)target[k];
            sum += away * away;
        }
        loss += sum * row_weight(a, i % a->size['h']);
    }
    put_number(a, 0, loss * a->attrs.scale / (double)a->size['C']);
    put_number(a, 1, (double)(a->size['b'] * a->valid['h'] * a->valid['w']));
}

static void F(mse_loss_grad)(const KernelArgs *a)
{
    const REAL *x = a->ptr[0], *target = a->ptr[1];
    const int64_t columns = a->size['w'], lines = a->size['b'] * a->size['C'] * a->size['h'];
    REAL *dx = a->ptr[2];
    memset(dx, 0, (size_t)(lines * columns) * sizeof *dx);
    for (int64_t i = 0; i < lines; i++) {
        if (i % a->size['h'] >= a->valid['h']) continue;
        const double weight =
            2 * a->attrs.scale / (double)a->size['C'] * row_weight(a, i % a->size['h']);
        for (int64_t k = i * columns; k < i * columns + a->valid['w']; k++)
            dx[k] = (x[k] - target[k]) * (REAL)weight;
    }
}

#endif
