/* midge_gather_elements.c - words of X along the middle axis, at places that are computed. */
#include "midge_word.h"

void midge_gather_elements(const midge_strip *strip, const midge_op *op) {
    const size_t inner = op->word[MIDGE_PICK_INNER];
    const uint32_t from = op->word[MIDGE_PICK_FROM], count = op->word[MIDGE_PICK_COUNT];
    const midge_word *index = midge_words_at(strip, op, MIDGE_PICK_INDEX);
    const midge_word *x = midge_words_at(strip, op, MIDGE_OP_X);
    midge_word *y = midge_words_at(strip, op, MIDGE_OP_Y);
    for (uint32_t n = op->word[MIDGE_PICK_OUTER]; n > 0; --n, x += from * inner)
        for (uint32_t i = 0; i < count; ++i)
            for (size_t k = 0; k < inner; ++k)
                *y++ = x[midge_place(*index++, from) * inner + k];
}
