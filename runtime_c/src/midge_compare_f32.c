/* midge_compare_f32.c - truths about pairs of real values; false where one is NaN. */
#include "midge_word.h"

MIDGE_INLINE int32_t compare(uint32_t kind, float a, float b) {
    switch (kind) {
    case MIDGE_WORD_EQUAL:
        return a <= b && a >= b;
    case MIDGE_WORD_LESS:
        return a < b;
    default:
        return a <= b; /* MIDGE_WORD_LESS_EQUAL */
    }
}

void midge_compare_f32(const midge_strip *strip, const midge_op *op) {
    const midge_real *a = midge_reals_at(strip, op, MIDGE_OP_X);
    const midge_real *b = midge_reals_at(strip, op, MIDGE_BINARY_B);
    midge_word *y = midge_words_at(strip, op, MIDGE_OP_Y);
    midge_walk walk = midge_walk_begin(op);
    for (; !walk.done; midge_walk_next(&walk))
        *y++ = compare(op->word[MIDGE_BINARY_KIND], a[walk.a], b[walk.b]);
}
