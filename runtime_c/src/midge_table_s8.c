/* midge_table_s8.c - any function of one code, by a table of 256. */
#include "midge_kernel.h"

/* x and y may be the same. */
void midge_table_s8(const midge_memory *memory, const midge_op *op) {
    const int8_t *table = (const int8_t *)(memory->data + op->word[MIDGE_OP_DATA]);
    const int8_t *x = midge_codes_at(memory, op, MIDGE_OP_X);
    int8_t *y = midge_codes_at(memory, op, MIDGE_OP_Y);
    const size_t count = op->word[MIDGE_MAP_COUNT];
    for (size_t i = 0; i < count; ++i)
        y[i] = table[x[i] + 128];
}
