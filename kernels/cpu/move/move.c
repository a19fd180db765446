/* Kernels that move data or bring data in: batches, casts, fills, and ops that change how a value
 * lies in memory. They work for elements of any size. */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/number.h"

static void batch_part_of_sequence(const KernelArgs *a, const DataSource *data, int64_t seq)
{
    int32_t *out[2] = {a->ptr[0], a->ptr[1]}, whole[2][KERNEL_MOST_SPLIT_SEQ];
    int64_t n = a->size['s'];
    assert(seq <= KERNEL_MOST_SPLIT_SEQ);
    for (int64_t i = 0; i < a->size['b']; i++) {
        data->fill(data->self, a->control->step, a->microbatch, a->start['b'] + i, 1, seq, whole[0],
                   whole[1]);
        for (int k = 0; k < 2; k++) {
            for (int64_t s = 0; s < a->valid['s']; s++)
                out[k][i * n + s] = whole[k][cpu_whole_index(a, 's', s)];
            for (int64_t s = a->valid['s']; s < n; s++) out[k][i * n + s] = k == 0 ? 0 : -1;
        }
    }
}

/* writes tokens [b,s] i32 and labels [b,s] i32 */
void cpu_batch(const KernelArgs *a)
{
    const DataSource *data = a->control->data;
    int64_t seq = a->binding != NULL ? a->binding->size['s'] : a->size['s'];
    if (seq != a->size['s'])
        batch_part_of_sequence(a, data, seq);
    else
        data->fill(data->self, a->control->step, a->microbatch, a->start['b'], a->size['b'], seq,
                   a->ptr[0], a->ptr[1]);
}

void cpu_cast(const KernelArgs *a)
{
    if (number_is_real(a->dtype[0])) {
        number_cast(a->dtype[0], a->ptr[0], a->dtype[1], a->ptr[1], a->rows);
    } else {
        assert(a->dtype[0] == a->dtype[1]);
        memmove(a->ptr[1], a->ptr[0], (size_t)a->rows * dtype_bytes(a->dtype[0]));
    }
}

/* y [...] = attrs.scale (0 if it is not set) */
void cpu_fill(const KernelArgs *a)
{
    double value = a->attrs.scale;
    if (value == 0)
        memset(a->ptr[0], 0, (size_t)a->rows * dtype_bytes(a->dtype[0]));
    else
        for (int64_t i = 0; i < a->rows; i++)
            number_write(a->dtype[0], a->ptr[0], (uint64_t)i, value);
}

void cpu_copy(const KernelArgs *a)
{
    memmove(a->ptr[1], a->ptr[0], (size_t)a->elements[0] * dtype_bytes(a->dtype[0]));
}

/* Returns how many elements of the part that begins at `start` are real, if the dimension has
 * `middle` elements. */
static int64_t real_part(const KernelArgs *a, int64_t start)
{
    int64_t n = a->middle - start;
    if (n > a->part_size) return a->part_size;
    return n < 0 ? 0 : n;
}

/* in [outer, middle, inner] -> out [outer, part_size, inner], from index `start` on; zero beyond
 * middle */
static void take_part(const KernelArgs *a, int64_t start, char *out)
{
    const char *in = a->ptr[0];
    size_t step = (size_t)a->inner * dtype_bytes(a->dtype[0]);
    int64_t real = real_part(a, start);
    for (int64_t o = 0; o < a->outer; o++) {
        char *to = out + (size_t)(o * a->part_size) * step;
        if (real > 0) memcpy(to, in + (size_t)(o * a->middle + start) * step, (size_t)real * step);
        memset(to + (size_t)real * step, 0, (size_t)(a->part_size - real) * step);
    }
}

void cpu_slice(const KernelArgs *a)
{
    take_part(a, a->part_start, a->ptr[1]);
}

void cpu_place(const KernelArgs *a)
{
    const char *in = a->ptr[0];
    char *out = a->ptr[1];
    const size_t step = (size_t)a->inner * dtype_bytes(a->dtype[0]);
    const int64_t real = real_part(a, a->part_start);
    memset(out, 0, (size_t)(a->outer * a->middle) * step);
    for (int64_t o = 0; o < a->outer && real > 0; o++)
        memcpy(out + (size_t)(o * a->middle + a->part_start) * step,
               in + (size_t)(o * a->part_size) * step, (size_t)real * step);
}

static size_t part_bytes(const KernelArgs *a)
{
    return (size_t)(a->outer * a->part_size * a->inner) * dtype_bytes(a->dtype[0]);
}

/* Returns the beginning of chunk k of part `part`. In a zigzag, part p of n parts has chunks p and
 * 2n - 1 - p of 2n chunks. */
static int64_t chunk_start(const KernelArgs *a, int64_t part, int k)
{
    return (k == 0 ? part : 2 * a->attrs.parts - 1 - part) * (a->part_size / 2);
}

static void move_chunks(const KernelArgs *a, char *whole, char *parts, bool to_whole)
{
    const size_t step = (size_t)a->inner * dtype_bytes(a->dtype[0]);
    const int64_t half = a->part_size / 2;
    assert(a->attrs.parts * a->part_size == a->middle && a->part_size % 2 == 0);
    for (int64_t part = 0; part < a->attrs.parts; part++)
        for (int64_t o = 0; o < a->outer; o++)
            for (int k = 0; k < 2; k++) {
                char *in_part =
                    parts + (size_t)((part * a->outer + o) * a->part_size + k * half) * step;
                char *in_whole = whole + (size_t)(o * a->middle + chunk_start(a, part, k)) * step;
                memcpy(to_whole ? in_whole : in_part, to_whole ? in_part : in_whole,
                       (size_t)half * step);
            }
}

void cpu_pack(const KernelArgs *a)
{
    char *out = a->ptr[1];
    assert(a->attrs.parts * a->part_size >= a->middle);
    if (a->attrs.chunks) {
        move_chunks(a, a->ptr[0], out, false);
        return;
    }
    for (int64_t part = 0; part < a->attrs.parts; part++)
        take_part(a, part * a->part_size, out + (size_t)part * part_bytes(a));
}

void cpu_unpack(const KernelArgs *a)
{
    const char *in = a->ptr[0];
    char *out = a->ptr[1];
    size_t step = (size_t)a->inner * dtype_bytes(a->dtype[0]);
    assert(a->attrs.parts * a->part_size >= a->middle);
    if (a->attrs.chunks) {
        move_chunks(a, out, a->ptr[0], true);
        return;
    }
    for (int64_t part = 0; part < a->attrs.parts; part++) {
        int64_t start = part * a->part_size, real = real_part(a, start);
        if (real == 0) continue;
        for (int64_t o = 0; o < a->outer; o++)
            memcpy(out + (size_t)(o * a->middle + start) * step,
                   in + (size_t)part * part_bytes(a) + (size_t)(o * a->part_size) * step,
                   (size_t)real * step);
    }
}
