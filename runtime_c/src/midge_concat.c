/* midge_concat.c - copies one input of a concatenation to its place in the output. */
#include "midge_kernel.h"

void midge_concat(const midge_strip *strip, const midge_op *op) {
    const size_t bytes = op->word[MIDGE_CONCAT_BYTES];
    const size_t pitch = op->word[MIDGE_CONCAT_PITCH];
    const uint8_t *x = strip->arena + op->word[MIDGE_OP_X];
    uint8_t *y = strip->arena + op->word[MIDGE_OP_Y];
    if (x == y)
        return; /* it was made where it belongs */
    for (uint32_t row = op->word[MIDGE_CONCAT_ROWS]; row > 0; --row, x += bytes, y += pitch)
        memcpy(y, x, bytes);
}
