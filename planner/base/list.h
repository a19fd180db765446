/* LIST(Node) declares a growing array of Node in an arena. Keep indices of its elements, never
 * pointers: the array moves when it grows. In a list whose index 0 means "none", call
 * list_reserve_none first. */
#ifndef TANDEM_BASE_LIST_H
#define TANDEM_BASE_LIST_H

#include <string.h>

#include "planner/base/arena.h"

#define LIST(T)                                                                                    \
    struct {                                                                                       \
        T *at;                                                                                     \
        uint32_t n, room;                                                                          \
    }

/* Returns the list's array, grown if necessary so that one more element fits. It is a macro,
 * because most calls need no growth and therefore no function call. */
#define list_room(arena, list)                                                                     \
    ((list)->n < (list)->room                                                                      \
         ? (void *)(list)->at                                                                      \
         : list_grow((arena), (list)->at, (list)->n, &(list)->room, 1, sizeof *(list)->at))

/* Appends a zeroed element and returns its index. */
#define list_add(arena, list)                                                                      \
    ((list)->at = list_room(arena, list), memset(&(list)->at[(list)->n], 0, sizeof *(list)->at),   \
     (list)->n++)

/* Appends a copy of `value` and returns its index. */
#define list_push(arena, list, value)                                                              \
    ((list)->at = list_room(arena, list), (list)->at[(list)->n] = (value), (list)->n++)

/* If the list is empty, appends a zeroed element, so that index 0 can mean "none". */
#define list_reserve_none(arena, list) ((void)((list)->n == 0 ? list_add(arena, list) : 0))

/* Grows the array, if necessary, so that `more` further elements fit. */
#define list_reserve(arena, list, more)                                                            \
    ((list)->at =                                                                                  \
         list_grow((arena), (list)->at, (list)->n, &(list)->room, more, sizeof *(list)->at))

/* Returns `at` itself, or a larger copy of it, with room for `more` elements after the first n.
 * Sets *room to the number of elements that fit in all. The new room is not initialised. `size` is
 * the size of an element. */
void *list_grow(Arena *arena, void *at, uint32_t n, uint32_t *room, uint32_t more, size_t size);

#endif
