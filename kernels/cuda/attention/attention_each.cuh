/* Includes the file BODY once for each combination of dtype and head size, so that each combination
 * gets its own kernel. BODY names its kernels by NAME. The combinations are listed here and in
 * ATTENTION_HEADS. */
#define NAME_4(name, type, head) name##_##type##_##head
#define NAME_3(name, type, head) NAME_4(name, type, head)
#define NAME(name)               NAME_3(name, TYPE, HEAD)

#define TYPE bf16
#define HEAD 64
#include BODY
#undef HEAD
#define HEAD 128
#include BODY
#undef HEAD
#define HEAD 256
#include BODY
#undef HEAD
#undef TYPE

#define TYPE f16
#define HEAD 64
#include BODY
#undef HEAD
#define HEAD 128
#include BODY
#undef HEAD
#define HEAD 256
#include BODY
#undef HEAD
#undef TYPE

/* Calls the function that was compiled for a->dtype and for this head size. */
#define ATTENTION_CALL(name)                                                                       \
    if (a->dtype == DT_bf16 && head == 64) return name##_bf16_64(a, cuda, error);                  \
    if (a->dtype == DT_bf16 && head == 128) return name##_bf16_128(a, cuda, error);                \
    if (a->dtype == DT_bf16 && head == 256) return name##_bf16_256(a, cuda, error);                \
    if (a->dtype == DT_f16 && head == 64) return name##_f16_64(a, cuda, error);                    \
    if (a->dtype == DT_f16 && head == 128) return name##_f16_128(a, cuda, error);                  \
    assert(a->dtype == DT_f16 && head == 256);                                                     \
    return name##_f16_256(a, cuda, error)
