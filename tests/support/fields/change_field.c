/* See change_field.h. */
#include "tests/support/fields/change_field.h"

#include <string.h>

bool change_field(const Field *f, void *at)
{
    size_t n = field_bytes(f->kind);
    uint64_t whole = 0;
    double number = 0;
    bool flag = false;
    if (n == 0) return false;
    switch (f->kind) {
    case FIELD_f64:
    case FIELD_rate:
        memcpy(&number, at, n);
        number = number * 1.25 + 1;
        memcpy(at, &number, n);
        return true;
    case FIELD_bool:
    case FIELD_offload:
        memcpy(&flag, at, n);
        flag = !flag;
        memcpy(at, &flag, n);
        return true;
    case FIELD_text: memcpy(at, &(const char *){"another"}, n); return true;
    case FIELD_table:
    case FIELD_modules:
    case FIELD_ops:
    case FIELD_styles:
    case FIELD_split:
    case FIELD_i64:
    case FIELD_u32:
    case FIELD_u64:
    case FIELD_dtype:
    case FIELD_word:
    case FIELD_axis:
    case FIELD_reshard:
    case FIELD_choice: break;
    }
    /* A struct of options begins with a word; only this word changes. */
    if (n > sizeof whole) n = sizeof(uint32_t);
    memcpy(&whole, at, n);
    whole++;
    memcpy(at, &whole, n);
    return true;
}
