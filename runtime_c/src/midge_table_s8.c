/* midge_table_s8.c - any function of one code, by a table of 256. */
#include "midge_kernel.h"

/* x and y may be the same. */
void midge_table_s8(const midge_strip *strip, const midge_op *op) {
    const int8_t *table = (const int8_t *)(strip->data + op->word[MIDGE_OP_DATA]);
    const size_t count = op->word[MIDGE_MAP_COUNT];
    const uint32_t rings = op->word[MIDGE_OP_RINGS];
    const midge_rows from = midge_rows_at(strip, op, MIDGE_OP_X, count, midge_low(rings));
    const midge_rows to = midge_rows_at(strip, op, MIDGE_OP_Y, count, midge_high(rings));
    for (uint32_t row = strip->first; row < strip->last; ++row) {
        const int8_t *x = midge_row(&from, row);
        int8_t *y = midge_row(&to, row);
        for (size_t i = 0; i < count; ++i)
            y[i] = table[x[i] + 128];
    }
}
