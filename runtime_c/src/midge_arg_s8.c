/* midge_arg_s8.c - where along the middle axis of X the largest or smallest code stands. */
#include "midge_word.h"

static size_t best_of(const int8_t *x, size_t count, size_t pitch, uint32_t flags) {
    size_t best = 0;
    for (size_t k = 1; k < count; ++k) {
        const int8_t v = x[k * pitch], b = x[best * pitch];
        const int better = flags & MIDGE_ARG_SMALLEST ? v < b : v > b;
        best = better || (v == b && (flags & MIDGE_ARG_LAST)) ? k : best;
    }
    return best;
}

void midge_arg_s8(const midge_strip *strip, const midge_op *op) {
    const size_t count = op->word[MIDGE_REDUCE_COUNT], inner = op->word[MIDGE_REDUCE_INNER];
    const int8_t *x = midge_codes_at(strip, op, MIDGE_OP_X);
    midge_word *y = midge_words_at(strip, op, MIDGE_OP_Y);
    for (uint32_t n = op->word[MIDGE_REDUCE_OUTER]; n > 0; --n, x += count * inner)
        for (size_t i = 0; i < inner; ++i)
            *y++ = (int32_t)best_of(x + i, count, inner, op->word[MIDGE_ARG_FLAGS]);
}
