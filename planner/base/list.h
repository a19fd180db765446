/* A growing array in an arena, declared as LIST(Node) nodes. Elements are referred to by index,
 * never by pointer, because growing moves them. For a list whose index 0 means "none", call
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

/* Returns the list's array, with room for one more element. It is a macro, because most calls find
 * room and then need no function call. */
#define list_room(arena, list)                                                                     \
    ((list)->n < (list)->room                                                                      \
         ? (void *)(list)->at                                                                      \
         : list_grow((arena), (list)->at, (list)->n, &(list)->room, 1, sizeof *(list)->at))

/* Appends a zeroed element and returns the element's index. */
#define list_add(arena, list)                                                                      \
    ((list)->at = list_room(arena, list), memset(&(list)->at[(list)->n], 0, sizeof *(list)->at),   \
     (list)->n++)

/* Appends a copy of `value` and returns the new element's index. */
#define list_push(arena, list, value)                                                              \
    ((list)->at = list_room(arena, list), (list)->at[(list)->n] = (value), (list)->n++)

/* Gives index 0 of an empty list to a zeroed element that stands for "none". */
#define list_reserve_none(arena, list) ((void)((list)->n == 0 ? list_add(arena, list) : 0))

/* Makes room for `more` elements after the list's last one. */
#define list_reserve(arena, list, more)                                                            \
    ((list)->at =                                                                                  \
         list_grow((arena), (list)->at, (list)->n, &(list)->room, more, sizeof *(list)->at))

/* Returns an array that starts with the first n elements of `at` and then has room for `more`
 * elements. The new room is not initialised. Sets *room to the number of elements that fit. */
void *list_grow(Arena *arena, void *at, uint32_t n, uint32_t *room, uint32_t more, size_t size);

#endif
