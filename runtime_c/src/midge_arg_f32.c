/* midge_arg_f32.c - where along the middle axis of X the largest or smallest value stands. */
#include "midge_word.h"

static size_t best_of(const midge_real *x, size_t count, size_t pitch, uint32_t flags) {
    size_t best = 0;
    for (size_t k = 1; k < count; ++k) {
        const float v = x[k * pitch], b = x[best * pitch];
        const int better = flags & MIDGE_ARG_SMALLEST ? v < b : v > b;
        const int equal = v <= b && v >= b;
        best = better || (equal && (flags & MIDGE_ARG_LAST)) ? k : best;
    }
    return best;
}

void midge_arg_f32(const midge_strip *strip, const midge_op *op) {
    const size_t count = op->word[MIDGE_REDUCE_COUNT], inner = op->word[MIDGE_REDUCE_INNER];
    const midge_real *x = midge_reals_at(strip, op, MIDGE_OP_X);
    midge_word *y = midge_words_at(strip, op, MIDGE_OP_Y);
    for (uint32_t n = op->word[MIDGE_REDUCE_OUTER]; n > 0; --n, x += count * inner)
        for (size_t i = 0; i < inner; ++i)
            *y++ = (int32_t)best_of(x + i, count, inner, op->word[MIDGE_ARG_FLAGS]);
}
