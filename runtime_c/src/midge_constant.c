/* midge_constant.c - copies a constant into the arena. */
#include "midge_kernel.h"

void midge_constant(const midge_strip *strip, const midge_op *op) {
    memcpy(strip->arena + op->word[MIDGE_OP_Y], strip->data + op->word[MIDGE_OP_DATA],
           op->word[MIDGE_CONSTANT_BYTES]);
}
