/* midge_flip_sign.c - uint8 codes to int8 codes, or back. */
#include "midge_kernel.h"

/* x and y may be the same. */
void midge_flip_sign(const midge_strip *strip, const midge_op *op) {
    const uint8_t *x = strip->arena + op->word[MIDGE_OP_X];
    uint8_t *y = strip->arena + op->word[MIDGE_OP_Y];
    const size_t count = op->word[MIDGE_MAP_COUNT];
    for (size_t i = 0; i < count; ++i)
        y[i] = x[i] ^ 0x80u;
}
