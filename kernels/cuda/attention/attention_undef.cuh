/* Undefines the macros of a kernel's body, so that the body can be included again for another dtype
 * or head size. */
#undef F
#undef ROWS
#undef TURNED
#undef TILES
#undef COLUMNS
#undef BLOCKS
#undef MMA_OF
#undef PAIR_OF
#undef WIDEN_OF
#undef MMA_1
#undef PAIR_1
#undef WIDEN_1
#undef MMA
#undef PAIR
#undef WIDEN
#undef PASTE_3
#undef PASTE
