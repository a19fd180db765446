/* Changes a dimension that is split over ranks from contiguous rows to strided rows, or back. With
 * strided rows, a rank has many short pieces at equal distances. Before the exchange, a kernel
 * collects the pieces for each rank into one message to that rank. After it, a kernel puts the
 * pieces of the received messages in order. */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

/* Copies all pieces that this rank and rank `other` exchange. If `packs` is true, it copies from
 * the rank's part to the message, otherwise from the message to the part. */
static void copy_pieces(const KernelArgs *a, char *part, char *message, uint32_t other, bool packs)
{
    const Strides *s = &a->strides;
    const bool in_rows = packs != s->to_rows; /* true: `part` has the rank's contiguous rows */
    const int64_t of_rows = in_rows ? s->part : other, of_strides = in_rows ? other : s->part;
    const int64_t end = (of_rows + 1) * s->pieces;
    const size_t bytes = (size_t)(s->rows * a->inner) * dtype_bytes(a->dtype[0]);
    int64_t k = 0;
    for (int64_t piece = strides_first(s, of_rows, of_strides); piece < end; piece += s->n_parts) {
        const int64_t place = strides_place(s, piece, in_rows);
        for (int64_t o = 0; o < a->outer; o++) {
            char *of_part = part + (size_t)(o * s->pieces + place) * bytes;
            char *of_message = message + (size_t)(o * s->most + k) * bytes;
            memcpy(packs ? of_message : of_part, packs ? of_part : of_message, bytes);
        }
        k++;
    }
    assert(k <= s->most);
}

static void copy_all(const KernelArgs *a, char *part, char *messages, bool packs)
{
    const Strides *s = &a->strides;
    const size_t bytes =
        (size_t)(a->outer * s->most * s->rows * a->inner) * dtype_bytes(a->dtype[0]);
    for (uint32_t other = 0; other < s->n_parts; other++)
        copy_pieces(a, part, messages + other * bytes, other, packs);
}

/* All messages are as long as the longest one. If two ranks exchange fewer pieces, the rest of
 * their message is zero. */
void cpu_stride_pack(const KernelArgs *a)
{
    memset(a->ptr[1], 0, (size_t)a->elements[1] * dtype_bytes(a->dtype[1]));
    copy_all(a, a->ptr[0], a->ptr[1], true);
}

void cpu_stride_unpack(const KernelArgs *a)
{
    copy_all(a, a->ptr[1], a->ptr[0], false);
}
