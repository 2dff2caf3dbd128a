/* midge_where.c - words of one tensor or another. y may lie where any of them does. */
#include "midge_word.h"

void midge_where(const midge_strip *strip, const midge_op *op) {
    const midge_word *x = midge_words_at(strip, op, MIDGE_OP_X);
    const midge_word *a = midge_words_at(strip, op, MIDGE_WHERE_A);
    const midge_word *b = midge_words_at(strip, op, MIDGE_WHERE_B);
    midge_word *y = midge_words_at(strip, op, MIDGE_OP_Y);
    for (uint32_t i = 0; i < op->word[MIDGE_MAP_COUNT]; ++i)
        y[i] = x[i] != 0 ? a[i] : b[i];
}
