/* midge_gather.c - slices of X, in the arena or a constant, at places that are computed. */
#include "midge_word.h"

void midge_gather(const midge_strip *strip, const midge_op *op) {
    const size_t inner = op->word[MIDGE_PICK_INNER] * sizeof(uint32_t);
    const uint32_t from = op->word[MIDGE_PICK_FROM], count = op->word[MIDGE_PICK_COUNT];
    const midge_word *index = midge_words_at(strip, op, MIDGE_PICK_INDEX);
    const uint8_t *x = op->word[MIDGE_PICK_TABLE]
                           ? (const uint8_t *)(strip->data + op->word[MIDGE_OP_DATA])
                           : strip->arena + op->word[MIDGE_OP_X];
    uint8_t *y = strip->arena + op->word[MIDGE_OP_Y];
    for (uint32_t n = op->word[MIDGE_PICK_OUTER]; n > 0; --n, x += from * inner)
        for (uint32_t i = 0; i < count; ++i, y += inner)
            memcpy(y, x + midge_place(index[i], from) * inner, inner);
}
