/* Groups of instructions, and of buffers, to which a local check gives the same answer.
 *
 * The argument. Twins have equal keys. The key of a buffer has all its fields, and those of the
 * buffer that contains it, except numbers that only say where and when: offsets, first and last
 * use, and the micro-batch. The key of an instruction has all its fields and the keys of its
 * arguments, except the micro-batch, waits, launch group (Instr.launch), kernel and match number.
 * It also says whether the match number is 0, and which arguments are used here for the first time.
 * A check that reads nothing else of the program gives the same answer for all twins. So once it
 * has accepted one of them, it may skip the others. If one is faulty, it checks the others too:
 * each fault is reported, as without twins. */
#ifndef TANDEM_VERIFY_TWINS_H
#define TANDEM_VERIFY_TWINS_H

#include <assert.h>

#include "planner/ir/plan.h"

/* The groups of one program. Group 0 stands for items without twins. */
typedef struct Twins {
    uint32_t *of_instr;  /* [pc] */
    uint32_t *of_buffer; /* [buffer] */
    uint32_t n;          /* all numbers of groups are below n */
} Twins;

/* A table that gives equal keys equal numbers. The first word of a key is its number of words. */
typedef struct TwinTable {
    Arena *arena;
    LIST(uint64_t) keys; /* [number * width] */
    uint32_t width, n, *slots, n_slots;
    LIST(uint32_t) next; /* [number]: the number that followed it last; this one is tried first */
    uint32_t newest;
} TwinTable;

/* Groups the buffers of a program, whose fields must be in range. */
Twins twins_of_buffers(const Program *p, Arena *arena);
TwinTable twins_table(Arena *arena);
/* Finds the group of instruction pc, whose fields and arguments must be in range. The group of an
 * op that updates its inputs is 0, because its check compares arguments with each other. */
void twins_add_instr(Twins *t, TwinTable *table, const Program *p, Pc pc);

static_assert(sizeof(Buffer) == 64 && sizeof(Instr) == 68, "keys of twins have all fields");

#endif
